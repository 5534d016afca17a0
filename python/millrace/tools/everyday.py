"""Rules that refuse well-known programs without an adapter, where their results depend on more than one record.

Each rule was observed with the program itself, run once on all and once on each batch, or follows from its purpose
(``docs/tools/programs.md`` says which). A program or call without a rule may still depend on its whole input: a rule
only spares the user the attempt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from millrace.tools.calls import (
    Call,
    Rule,
    both,
    either,
    exactly,
    operand,
    option,
    text,
    value,
    verb,
    without,
)
from millrace.tools.primer3 import sets_for_all
from millrace.tools.tables import (
    csvcut_takes_names,
    miller_hides_changes,
    miller_names_columns,
    miller_reads_several_tables,
    miller_takes_all,
    miller_writes_a_list,
)

#: The names of awk.
AWKS = ("awk", "gawk", "mawk", "nawk", "original-awk")

#: Exit statuses that mean "no match", not a failure, by program.
NOTHING_FOUND = dict.fromkeys(
    ("grep", "egrep", "fgrep", "zgrep", "zegrep", "zfgrep", "bzgrep", "xzgrep", "rg", "ag"), (1,)
)


#: Programs whose scripts ``millrace.tools.one_liners`` parses.
SCRIPTED = frozenset((*AWKS, "sed", "gsed", "perl", "jq"))

#: Message of grep for a match in input that it takes for binary: it then writes no more lines.
BINARY_FOUND = "[Bb]inary file .*match"


def takes_for_binary(program: str, arguments: Sequence[str]) -> bool:
    """Tell whether the program is a grep that checks whether its input is text, and stops writing if it is not.

    >>> takes_for_binary("grep", ["-i", "-ea", "x"]), takes_for_binary("grep", ["-iax"]), takes_for_binary("cat", ["x"])
    (True, False, False)
    """
    if program not in NOTHING_FOUND:
        return False
    # Letters behind one that takes a value belong to the value.
    return not any(
        word in ("--text", "--binary-files=text") or re.match("-[^-efmABCdDgtTrM]*a", word) for word in arguments
    )


def _has_number(call: Call) -> bool:
    """Tell whether grep gets a number of context lines (``-2``, ``-i2``); values of options do not count."""
    return any(
        re.match("-[abEFGhHiIlLnoPqrRsTuUvVwxyZz]*[0-9]", word)
        and not re.fullmatch("-[A-Za-z]*[efmABCDd]|--(regexp|file)?", before)
        for before, word in call.pairs
    )


def refusal(call: Call) -> tuple[str, str] | None:
    """Return why ``call`` cannot be computed exactly, and an alternative that works; None: no rule refuses it."""
    for rule in RULES.get(call.program, ()):
        if rule.applies(call):
            return rule.why, rule.instead.replace("PROGRAM", call.program)
    return None


# Alternatives that work

_PIPE = "let millrace run the step before it, and pipe the result: millrace run -- ... | PROGRAM"
_OWN_THREADS = "run it by itself, with threads of its own; millrace can run the steps that go record by record"
_FOLDER = (
    "put each {what} into a file of its own and give the folder: "
    "millrace run --input FOLDER --output 'OUT/{{stem}}.{end}' -- PROGRAM {words}"
)
_SAM = "say what stands once: millrace run --join sam ..."
_HEADER = "say what stands once: millrace run --input FILE --join header ..."


def _folder(what: str, end: str, words: str) -> str:
    return _FOLDER.format(what=what, end=end, words=words)


_ORDERS = "orders or compares the whole input"
_COUNTS = "counts or numbers through the whole input"
_DIGESTS = "gives one result for the whole input"
_PACKS = "packs the whole input into one stream"
_ENDS = "looks for the beginning or end of the whole input"
_INDEXES = "makes one index of the whole input"
_CLUSTERS = "compares all records with each other"
_DRAWS = "draws at random through the whole input"

_PREFIX = (
    "put each alignment into a file of its own and give the folder: "
    "millrace run --input FOLDER --output 'OUT/{{stem}}{end}' -- PROGRAM {words} FOLDER --prefix 'OUT/{{stem}}' {more}"
)
_TREE = Rule("infers one tree from the whole alignment", _folder("alignment", "nwk", "... FOLDER"))
_ALIGN = Rule("aligns all records of the input with each other", _folder("family", "aln", "... FOLDER"))
_ASSEMBLE = Rule("assembles the whole input", _OWN_THREADS)
_TABLE = Rule(
    "takes the first line of the input for the names of columns, which only the first batch has",
    "say that it is there: millrace run --input FILE:csv+header --join csv -- PROGRAM ...",
    joins=frozenset({"csv"}),
    formats=frozenset({"csv+header"}),
)
_CSVKIT = (
    Rule(
        "reads quotes otherwise than rows are cut",
        "let csvformat write usual ones: csvformat ... FILE | millrace run --format csv -- ...",
        option("-q", "-p", "-u", "-b", "--quotechar", "--escapechar", "--quoting", "--doublequote"),
    ),
    Rule(
        "with -K leaves out the first lines of the input",
        "tail -n +N FILE | millrace run --format csv -- ...",
        option("-K", "--skip-lines"),
    ),
)
_IN_PLACE = "changes its input, of which each task has but a part"
_TO_A_FILE = "leave that out, and name another file for the result: millrace run -- PROGRAM ... > OUT"
_AWK = (
    Rule("with inplace " + _IN_PLACE, _TO_A_FILE, text(r"^(-i|--i\w*=)?inplace$")),
    Rule(
        "with BEGIN prints at each start", _HEADER, text(r"\bBEGIN\s*\{(?:[^{}]|\{[^{}]*\})*?(?:\{[^{}]*?)?\b(print|printf|system)\b"),
        frozenset({"header"}),
    ),
)  # fmt: skip
_GREP = (
    Rule("with -c, -n, -b or -m " + _COUNTS, _PIPE, option("-c", "-n", "-b", "-m", "--count", "--line-number", "--byte-offset", "--max-count")),
    Rule("with context lines looks beyond a record", _PIPE, either(option("-A", "-B", "-C", "--after-context", "--before-context", "--context"), _has_number)),
    Rule(_DIGESTS, _PIPE, option("-q", "-l", "-L", "--quiet", "--files-with-matches", "--files-without-match", others=("--file",))),
)  # fmt: skip
_FASTP_AUTO = either(
    value(("-a", "--adapter_sequence"), "auto"), exactly("--adapter_sequence=auto", "-a=auto", "-aauto")
)
_TRIMMOMATIC = (
    Rule("guesses the encoding of the qualities from the first reads", "say it: PROGRAM ... -phred33", without(exactly("-phred33", "-phred64"))),
)  # fmt: skip

#: Plugins of bcftools that accept ``--no-version``.
_BCFTOOLS_PLUGIN = verb(
    *(
        "+add-variantkey",
        "+dosage",
        "+fill-AN-AC",
        "+fill-from-fasta",
        "+fill-tags",
        "+fixploidy",
        "+fixref",
        "+guess-ploidy",
    ),
    *("+impute-info", "+missing2ref", "+setGT", "+tag2tag", "+trio-dnm2", "+variantkey-hex"),
)

#: Rules by program; the first one that applies is reported.
RULES: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(("sort", "uniq", "tac", "shuf", "tsort", "comm", "join", "diff", "cmp"), (Rule(_ORDERS, _PIPE),)),
    **dict.fromkeys(("wc", "nl", "pr", "split", "csplit"), (Rule(_COUNTS, _PIPE),)),
    **dict.fromkeys(("head", "tail"), (Rule(_ENDS, _PIPE),)),
    **dict.fromkeys(
        ("cksum", "sum", "md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "datamash"),
        (Rule(_DIGESTS, _PIPE),),
    ),
    **dict.fromkeys(
        ("gzip", "bgzip", "pigz", "bzip2", "pbzip2", "xz", "zstd", "lz4", "tar", "zip"), (Rule(_PACKS, _PIPE),)
    ),
    **dict.fromkeys(
        ("makeblastdb", "hmmpress", "bowtie2-build", "hisat2-build", "lastdb", "cmpress"),
        (Rule(_INDEXES, "run it by itself, before"),),
    ),
    **dict.fromkeys(AWKS, _AWK),
    **dict.fromkeys(NOTHING_FOUND, _GREP),
    **dict.fromkeys(("sed", "gsed"), (Rule("with -i " + _IN_PLACE, _TO_A_FILE, text("^-[nErsuz]*i|^--i")),)),
    "perl": (Rule("with -i " + _IN_PLACE, _TO_A_FILE, text("^-[lnpaw0-9]*i")),),
    **dict.fromkeys(
        ("dos2unix", "unix2dos", "mac2unix", "unix2mac"),
        (
            Rule(
                _IN_PLACE, "give it its input by a pipe or <: millrace run --format lines -- PROGRAM < FILE > OUT",
                both(operand("-c", "--convmode"), without(exactly("-n", "--newfile", "-O", "--to-stdout"))),
            ),
        ),
    ),
    "mogrify": (
        Rule(
            "changes its files", "millrace run --input FOLDER --output 'OUT/{stem}.png' -- convert FOLDER ... 'OUT/{stem}.png'",
            without(exactly("-path")),
        ),
    ),
    "tr": (
        Rule("squeezes line breaks, also those between records", _PIPE, both(option("-s", "--squeeze-repeats"), either(option("-c", "-C", "--complement"), text(r"\n|\\n|\\0?12|\[:(space|cntrl):\]")))),
    ),
    "tee": (Rule("with -a adds to what is there", "let the shell add it: millrace run -- ... >> FILE", option("-a", "--append")),),
    "cat": (Rule("with -n, -b or -s " + _COUNTS, _PIPE, option("-n", "-b", "-s", "--number", "--number-nonblank", "--squeeze-blank")),),
    "jq": (
        Rule("with --slurp or --null-input " + _DIGESTS, _PIPE, option("-s", "-n", "--slurp", "--null-input")),
    ),
    "csvgrep": (Rule("with -l or -n " + _COUNTS, _PIPE, option("-l", "-n", "--linenumbers", "--names")), *_CSVKIT, _TABLE),
    "csvformat": _CSVKIT,
    **dict.fromkeys(("csvjoin", "csvsort"), (Rule(_ORDERS, _PIPE),)),
    **dict.fromkeys(("csvjson", "csvlook", "csvsql", "csvstack", "csvstat"), (Rule(_DIGESTS, _PIPE),)),
    "csvclean": (Rule(_COUNTS, _PIPE),),
    "csvcut": (
        Rule("with -l or -n " + _COUNTS, _PIPE, option("-l", "-n", "--linenumbers", "--names")),
        *_CSVKIT,
        _TABLE._replace(when=csvcut_takes_names, instead="name columns by numbers (-c 1,3), or " + _TABLE.instead),
    ),
    "mlr": (
        Rule("with -I " + _IN_PLACE, _TO_A_FILE, exactly("-I")),
        Rule("with such a verb or expression " + _ORDERS, _PIPE, miller_takes_all),
        Rule("with --rs or --irs reads records that are not lines", _PIPE, exactly("--rs", "--irs")),
        Rule(
            "takes a blank line for the end of a table, and what follows for other names of columns", "read it as CSV or TSV: --icsv, --itsv",
            both(miller_names_columns, miller_reads_several_tables),
        ),
        Rule("without names of columns does not show where they change", "let it write names (without --ho and -N), and add --join csv", miller_hides_changes),
        _TABLE._replace(
            when=miller_names_columns, joins=frozenset(), formats=frozenset({"csv+header", "lines+header"}),
            instead=_TABLE.instead + " (lines+header and --join header for tabs; no --join for JSON), or add --implicit-csv-header",
        ),
        Rule("writes one list for the whole input", "let it write a value a line: --ojsonl", miller_writes_a_list),
        Rule("draws one frame around the whole input", "let it write CSV: --ocsv", text(r"^--\w2b$")),
    ),
    **dict.fromkeys(
        ("zcat", "gunzip", "gzcat", "bzcat", "bunzip2", "xzcat", "unxz", "zstdcat", "unzstd", "lz4cat"),
        (Rule("is no sooner done in parts", "share out what follows it: PROGRAM FILE.gz | millrace run --format FORMAT -- ...; or run PROGRAM by itself"),),
    ),
    "prodigal": (
        Rule("trains on the whole input, and numbers its sequences even with -p meta, which is known without --input", _folder("genome", "gff", "-f gff -i FOLDER -o 'OUT/{stem}.gff'")),
    ),
    "bwa": (
        Rule(_INDEXES, "run it by itself, before", verb("index")),
        Rule(
            "draws among equal hits by the number of the read, and learns the insert sizes of pairs from the reads beside",
            "minimap2 and bowtie2 do not: millrace run -- minimap2 -ax sr --frag=no ref.fa reads.fq (without --frag=no for "
            "two files of mates)",
            verb("mem"),
        ),
        Rule("draws among equal hits from one stream for all reads", "minimap2 and bowtie2 do not: millrace run -- minimap2 -ax sr --frag=no ref.fa reads.fq", verb("samse", "sampe")),
    ),
    "bowtie2": (
        Rule("with --non-deterministic " + _DRAWS, "leave it out", exactly("--non-deterministic")),
        Rule(
            "with several threads writes reads in the order in which they are done",
            "leave -p out, as millrace fills the cores by itself, or add --reorder",
            both(value(("-p", "--threads"), "(?!1$).*"), without(exactly("--reorder"))),
        ),
        Rule("writes a SAM header at each start", _SAM + ", or add --no-hd", without(exactly("--no-hd", "--no-head")), frozenset({"sam"})),
    ),
    "hisat2": (
        Rule("uses splice sites that it found in the reads before", "add --no-temp-splicesite, in the serial run too", without(exactly("--no-temp-splicesite"))),
        Rule(
            "with several threads writes reads in the order in which they are done",
            "leave -p out, as millrace fills the cores by itself, or add --reorder",
            both(value(("-p", "--threads"), "(?!1$).*"), without(exactly("--reorder"))),
        ),
        Rule("writes a SAM header at each start", _SAM + ", or add --no-hd", without(exactly("--no-hd", "--no-head")), frozenset({"sam"})),
    ),
    "porechop": (Rule("decides from the first reads which adapters it seeks", "run it by itself, or trim with cutadapt -a ADAPTER: millrace run -- cutadapt ..."),),
    "primer3_core": (
        Rule(
            "takes what one record sets beyond its sequence for those behind it, too, and a record here may do so",
            "give settings to all records alike: --p3_settings_file FILE, and a file with SEQUENCE_ tags alone: "
            "millrace run --input FILE --format regex --record-end '^=' -- PROGRAM --p3_settings_file SETTINGS FILE",
            sets_for_all,
        ),
    ),
    "mmseqs": (Rule("orders the queries of a run for itself", "diamond and blastp do not: millrace run -- diamond blastp ..."),),
    "lastal": (
        Rule("counts the queries of the run in its last line", "give the command alone, which adds it up: millrace run -- PROGRAM ...", joins=frozenset({"totals"})),
    ),
    "exonerate": (
        Rule(
            "orders the hits of all queries by their targets",
            "put each query into a file of its own, and name a script with exonerate \"$1\" db.fa > \"$2\": "
            "millrace run --input FOLDER --output 'OUT/{stem}.txt' -- SCRIPT FOLDER 'OUT/{stem}.txt'",
        ),
    ),
    **dict.fromkeys(
        ("cd-hit", "cdhit", "cd-hit-est", "cdhit-est", "cd-hit-2d", "cd-hit-est-2d", "cd-hit-454"),
        (Rule(_CLUSTERS, _OWN_THREADS),),
    ),
    **dict.fromkeys(
        ("vsearch", "usearch"),
        (
            Rule(_CLUSTERS, _OWN_THREADS, text(r"^--?(cluster|derep|sortby|shuffle|fastx_uniques|unoise|uchime|subsample|fastx_subsample|allpairs)")),
            Rule("with --sintax " + _DRAWS, "run it by itself: a read has another answer behind other reads", text("^--?sintax$")),
        ),
    ),
    **dict.fromkeys(
        ("fasta36", "fasta"),
        (Rule("judges a query by what it has seen of the queries before", "use ssearch36 -m 8 with some thousand entries, or blastp: millrace run -- blastp ..."),),
    ),
    **dict.fromkeys(("maskseq", "sixpack"), (Rule("reads the first record of the input alone", _folder("record", "fa", "-sequence FOLDER -outseq 'OUT/{stem}.fa'")),)),
    **dict.fromkeys(("fasttree", "FastTree", "FastTreeMP", "fasttreeMP", "phyml"), (_TREE,)),
    **dict.fromkeys(
        ("iqtree", "iqtree2"), (Rule(_TREE.why, _PREFIX.format(end=".treefile", words="-s", more="-seed 1 -nt 1")),)
    ),
    "raxml-ng": (
        Rule(_TREE.why, _PREFIX.format(end=".raxml.bestTree", words="--msa", more="--seed 1 --threads 1 --model GTR+G")),
    ),
    **dict.fromkeys(
        ("raxml", "raxmlHPC"),
        (
            Rule(
                _TREE.why,
                "put each alignment into a file of its own, and name a script with PROGRAM -s \"$1\" -n x ... && mv RAxML_bestTree.x \"$2\": "
                "millrace run --input FOLDER --output 'OUT/{stem}.nwk' -- SCRIPT FOLDER 'OUT/{stem}.nwk'",
            ),
        ),
    ),
    **dict.fromkeys(("clustalo", "clustalw", "clustalw2", "t_coffee", "kalign", "probcons", "prank"), (_ALIGN,)),
    **dict.fromkeys(("spades.py", "megahit", "flye", "Trinity", "velveth", "abyss-pe", "canu"), (_ASSEMBLE,)),
    **dict.fromkeys(("trimmomatic", "TrimmomaticSE", "TrimmomaticPE"), _TRIMMOMATIC),
    "fastp": (
        Rule("with --dedup " + _CLUSTERS, _OWN_THREADS, exactly("-D", "--dedup")),
        Rule(
            "guesses the adapter from the first reads", "name it with -a, or add --disable_adapter_trimming (-A)",
            without(either(exactly("-A", "--disable_adapter_trimming"), both(exactly("-a", "--adapter_sequence"), without(_FASTP_AUTO)))),
        ),
    ),
    "cutadapt": (
        Rule("with -o reports totals of the whole run", "add --quiet", both(text(r"^-o|^--output"), without(exactly("--quiet")))),
    ),
    "seqkit": (
        Rule(_COUNTS, _PIPE, verb("stats", "stat", "range", "sum", "split", "split2")),
        Rule(_ENDS, _PIPE, verb("head", "head-genome")),
        Rule(_ORDERS, _PIPE, verb("sort", "rmdup", "rename", "common", "pair", "concat")),
        Rule(_DRAWS, _PIPE, verb("sample", "shuffle")),
        Rule("with --delete-matched looks for each pattern once in the whole input", _PIPE, both(verb("grep"), exactly("--delete-matched"))),
        Rule(_INDEXES, "run it by itself", verb("faidx")),
        Rule("with {nr} " + _COUNTS, _PIPE, both(verb("replace"), text(r"\{(nr|NR)\}"))),
        Rule("with -H writes a header at each start", _HEADER, both(verb("fx2tab"), option("-H", "--header-line")), frozenset({"header"})),
        Rule("writes a header at each start", _HEADER, both(verb("locate"), without(exactly("--bed", "--gtf"))), frozenset({"header"})),
    ),
    "seqtk": (
        Rule(_COUNTS, _PIPE, verb("rename", "size", "fqchk")),
        Rule(_DRAWS, _PIPE, verb("sample", "randbase")),
    ),
    "bedtools": (
        Rule(_ORDERS, _PIPE, verb("merge", "sort", "cluster", "groupby", "spacing")),
        Rule(_DIGESTS, _PIPE, verb("complement", "genomecov", "jaccard", "reldist", "fisher", "summary")),
        Rule(_DRAWS, _PIPE, verb("sample", "shuffle", "random")),
        Rule("changes the order of the lines", "use bedtools coverage", verb("annotate")),
        Rule("with -hist " + _DIGESTS, "leave -hist out", both(verb("coverage"), exactly("-hist"))),
    ),
    **dict.fromkeys(("mergeBed", "sortBed", "clusterBed", "groupBy"), (Rule(_ORDERS, _PIPE),)),
    **dict.fromkeys(("complementBed", "genomeCoverageBed"), (Rule(_DIGESTS, _PIPE),)),
    "bcftools": (
        Rule(_ORDERS, _PIPE, verb("sort", "merge", "concat", "isec", "norm", "gtcheck")),
        Rule(_DIGESTS, _PIPE, verb("stats", "consensus", "roh", "cnv", "polysomy")),
        Rule(_INDEXES, "run it by itself", verb("index")),
        Rule(
            "looks at the variants beside each other", _PIPE,
            either(verb("csq", "+prune", "+remove-overlaps"), both(verb("filter"), option("-g", "-G", "--SnpGap", "--IndelGap"))),
        ),
        Rule(
            "with such an output " + _PACKS, "let it write VCF, and pipe the result: millrace run -- ... | bcftools view -O b",
            either(text(r"^(-O|--output-type=)[zbu]"), value(("-O", "--output-type"), "[zbu].*"), value(("-o", "--output"), r"(?i).*\.(b?gz|bcf)")),
        ),
        Rule(
            "writes the time and its command into the header", "add --no-version, in the serial run too",
            both(either(verb("view", "annotate", "filter", "call", "convert"), _BCFTOOLS_PLUGIN), without(either(exactly("--no-version"), both(verb("view"), exactly("-H", "--no-header"))))),
        ),
        Rule(
            "reads a header before the variants, which only the first batch has", "say that it is VCF: --input FILE:vcf",
            without(verb("")), formats=frozenset({"vcf"}),
        ),
    ),
    "samtools": (
        Rule(_ORDERS, _PIPE, verb("sort", "merge", "markdup", "rmdup", "collate")),
        Rule(_COUNTS, _PIPE, verb("flagstat", "idxstats", "stats", "depth", "coverage", "mpileup")),
        Rule("makes or needs one index of the whole input", "run it by itself", verb("index", "faidx", "dict")),
        Rule(
            "reads a header before the alignments, which only the first batch has",
            "give it threads of its own (-@), or a pipe: millrace run -- bowtie2 ... | PROGRAM view -b",
            verb("view", "fastq", "fasta", "calmd", "fixmate", "addreplacerg", "reheader", "tview"),
        ),
    ),
}  # fmt: skip
