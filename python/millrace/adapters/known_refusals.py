"""Rules that refuse well-known programs without an adapter, where their results depend on more than one record.

Each rule was observed with the program itself, run once on all and once on each batch, or follows from its purpose
(``docs/tools/programs.md`` says which). A program or call without a rule may still depend on its whole input: a rule
only spares the user the attempt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from millrace.adapters.call_rules import (
    CallRule,
    ProgramCall,
    has_all,
    has_any,
    has_csvcut_column_names,
    has_exact_word,
    has_global_settings,
    has_hidden_miller_changes,
    has_miller_header,
    has_miller_list_output,
    has_miller_stacked_tables,
    has_miller_whole_verb,
    has_not,
    has_operand,
    has_option,
    has_option_value,
    has_pattern,
    has_pattern_of_pair,
    has_verb,
)

#: The names of awk.
AWKS = ("awk", "gawk", "mawk", "nawk", "original-awk", "bioawk")

#: Exit statuses that mean "no match", not a failure, by program.
NOTHING_FOUND = dict.fromkeys(
    ("grep", "egrep", "fgrep", "zgrep", "zegrep", "zfgrep", "bzgrep", "xzgrep", "rg", "ag"), (1,)
)


#: Programs whose scripts ``millrace.adapters.one_liners`` parses.
SCRIPTED = frozenset((*AWKS, "sed", "gsed", "perl", "jq"))

#: Message of grep for a match in input that it takes for binary: it then writes no more lines.
BINARY_FOUND = "[Bb]inary file .*match"


def can_detect_binary(program: str, arguments: Sequence[str]) -> bool:
    """Tell whether the program is a grep that checks whether its input is text, and stops writing if it is not.

    >>> can_detect_binary("grep", ["-i", "-ea", "x"]), can_detect_binary("grep", ["-iax"]), can_detect_binary("cat", ["x"])
    (True, False, False)
    """
    if program not in NOTHING_FOUND:
        return False
    # Letters behind one that takes a value belong to the value.
    return not any(
        word in ("--text", "--binary-files=text") or re.match("-[^-efmABCdDgtTrM]*a", word) for word in arguments
    )


def _has_context_number(call: ProgramCall) -> bool:
    """Tell whether grep gets a number of context lines (``-2``, ``-i2``); values of options do not count."""
    return any(
        re.match("-[abEFGhHiIlLnoPqrRsTuUvVwxyZz]*[0-9]", word)
        and not re.fullmatch("-[A-Za-z]*[efmABCDd]|--(regexp|file)?", before)
        for before, word in call.pairs
    )


def find_refusal(call: ProgramCall, *, is_described: bool = False) -> tuple[str, str] | None:
    """Return why ``call`` cannot be computed exactly, and an alternative that works; None: no rule refuses it.

    Args:
        is_described: Whether the user has described the program, which then is not one of the census that has its name.
    """
    rows = [] if is_described else _read_census_rows(call.program)
    for rule in (*RULES.get(call.program, ()), *map(_make_census_rule, rows)):
        if rule.should_refuse(call):
            return rule.why, rule.instead.replace("PROGRAM", call.program)
    return None


# The census

#: Programs that were measured, one a line, with the calls of them that are refused: see ``census/refusal_list.py``.
CENSUS = Path(__file__).with_name("census.tsv")


def is_in_census(program: str) -> bool:
    """Tell whether the census has measured this program, in some of its calls."""
    return bool(_read_census_rows(program))


@cache
def _read_census_rows(program: str) -> list[list[str]]:
    rows = (line.split("\t") for line in CENSUS.read_text().splitlines() if line.startswith(program))
    return [row for row in rows if row[0] == program]


def _make_census_rule(row: list[str]) -> CallRule:
    """Make a rule of a row: program, why, alternative, patterns of arguments for which and except which it holds, join."""
    _, why, instead, when, unless, join = row

    def is_refused(call: ProgramCall) -> bool:
        has_exception = bool(unless) and has_pattern_of_pair(unless)(call)
        return bool(why) and not has_exception and (not when or has_pattern_of_pair(when)(call))

    return CallRule(why, _ALTERNATIVES.get(instead, instead), is_refused, frozenset(filter(None, [join])))


# Alternatives that work

_PIPE = "let millrace run the step before it, and pipe the result: millrace run -- ... | PROGRAM"
_OWN_THREADS = "run it by itself, with threads of its own; millrace can run the steps that go record by record"
_FOLDER = (
    "put each {what} into a file of its own and give the folder: "
    "millrace run --input FOLDER --output 'OUT/{{stem}}.{end}' -- PROGRAM {words}"
)
_SAM = "say what stands once: millrace run --join sam ..."
_HEADER = "say what stands once: millrace run --input FILE --join header ..."


def _format_folder_hint(what: str, end: str, words: str) -> str:
    return _FOLDER.format(what=what, end=end, words=words)


#: By the word that stands for them in the census.
_ALTERNATIVES = {
    "pipe": _PIPE,
    "alone": _OWN_THREADS,
    "header": _HEADER,
    "sam": _SAM,
    "folder": _format_folder_hint("record", "out", "... FOLDER ... 'OUT/{stem}.out'"),
}

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
_TREE = CallRule("infers one tree from the whole alignment", _format_folder_hint("alignment", "nwk", "... FOLDER"))
_ALIGN = CallRule("aligns all records of the input with each other", _format_folder_hint("family", "aln", "... FOLDER"))
_ASSEMBLE = CallRule("assembles the whole input", _OWN_THREADS)
_TABLE = CallRule(
    "takes the first line of the input for the names of columns, which only the first batch has",
    "say that it is there: millrace run --input FILE:csv+header --join csv -- PROGRAM ...",
    joins=frozenset({"csv"}),
    formats=frozenset({"csv+header"}),
)
_CSVKIT = (
    CallRule(
        "reads quotes otherwise than rows are cut",
        "let csvformat write usual ones: csvformat ... FILE | millrace run --format csv -- ...",
        has_option("-q", "-p", "-u", "-b", "--quotechar", "--escapechar", "--quoting", "--doublequote"),
    ),
    CallRule(
        "with -K leaves out the first lines of the input",
        "tail -n +N FILE | millrace run --format csv -- ...",
        has_option("-K", "--skip-lines"),
    ),
    CallRule(
        "with -H writes names of columns at each start",
        "say what stands once: millrace run --input FILE:csv --join csv -- PROGRAM ...",
        has_pattern("^(-H|--no-header)"),
        frozenset({"csv"}),
    ),
)
_IN_PLACE = "changes its input, of which each task has but a part"
_TO_A_FILE = "leave that out, and name another file for the result: millrace run -- PROGRAM ... > OUT"
_AWK = (
    CallRule("with inplace " + _IN_PLACE, _TO_A_FILE, has_pattern(r"^(-i|--i\w*=)?inplace$")),
    CallRule(
        "with BEGIN prints at each start", _HEADER, has_pattern(r"\bBEGIN\s*\{(?:[^{}]|\{[^{}]*\})*?(?:\{[^{}]*?)?\b(print|printf|system)\b"),
        frozenset({"header"}),
    ),
)  # fmt: skip
_GREP = (
    CallRule("with -c, -n, -b or -m " + _COUNTS, _PIPE, has_option("-c", "-n", "-b", "-m", "--count", "--line-number", "--byte-offset", "--max-count")),
    CallRule("with context lines looks beyond a record", _PIPE, has_any(has_option("-A", "-B", "-C", "--after-context", "--before-context", "--context"), _has_context_number)),
    CallRule(_DIGESTS, _PIPE, has_option("-q", "-l", "-L", "--quiet", "--files-with-matches", "--files-without-match", others=("--file",))),
)  # fmt: skip
_FASTP_AUTO = has_any(
    has_option_value(("-a", "--adapter_sequence"), "auto"),
    has_exact_word("--adapter_sequence=auto", "-a=auto", "-aauto"),
)
_TRIMMOMATIC = (
    CallRule("guesses the encoding of the qualities from the first reads", "say it: PROGRAM ... -phred33", has_not(has_exact_word("-phred33", "-phred64"))),
)  # fmt: skip

#: Plugins of bcftools that accept ``--no-version``.
_BCFTOOLS_PLUGIN = has_verb(
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

#: Matches calls of seqkit with more than one pattern.
_has_several_patterns = has_any(
    lambda call: sum(re.match("-p|--pattern(=|$)", word) is not None for word in call.arguments) > 1,
    has_pattern("^(-f|--pattern-file)"),
    has_option_value(("-p", "--pattern"), ".*,.*"),
    has_pattern("^(-p|--pattern=).*,"),
)

#: Of aligners that can leave out reads at the beginning or the end of the input.
_UPTO = CallRule(
    "with -u or -s takes or leaves out the first reads of the input", "cut the input before",
    has_pattern(r"^-[us]\d*$|^--?(upto|qupto|skip)(=|$)"),
)  # fmt: skip
_INTERLEAVED = CallRule(
    "reads mates from neighbouring records, which parts may part",
    "give each mate a file of its own: seqtk seq -1 and seqtk seq -2 write them",
    has_pattern("^--?(interleaved|interleaved_in)(=|$)"),
)
_BY_THREADS = CallRule(
    "with several threads writes reads in the order in which they are done",
    "leave -p out, as millrace fills the cores by itself, or add --reorder",
    has_all(has_option_value(("-p", "--threads"), "(?!1$).*"), has_not(has_exact_word("--reorder"))),
)
#: Matches calls of seqkit that do not say what kind of sequences these are.
_guesses_alphabet = has_not(has_pattern_of_pair("^(-t[ =]?|--seq-type[ =])(?i:dna|rna|protein|unlimit)$"))

#: Rules by program; the first one that applies is reported.
RULES: dict[str, tuple[CallRule, ...]] = {
    **dict.fromkeys(("sort", "uniq", "tac", "shuf", "tsort", "comm", "join", "diff", "cmp"), (CallRule(_ORDERS, _PIPE),)),
    **dict.fromkeys(("wc", "nl", "pr", "split", "csplit"), (CallRule(_COUNTS, _PIPE),)),
    **dict.fromkeys(("head", "tail"), (CallRule(_ENDS, _PIPE),)),
    **dict.fromkeys(
        ("cksum", "sum", "md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "datamash"),
        (CallRule(_DIGESTS, _PIPE),),
    ),
    **dict.fromkeys(
        ("gzip", "bgzip", "pigz", "bzip2", "pbzip2", "xz", "zstd", "lz4", "tar", "zip"), (CallRule(_PACKS, _PIPE),)
    ),
    **dict.fromkeys(
        ("makeblastdb", "hmmpress", "bowtie2-build", "hisat2-build", "lastdb", "cmpress"),
        (CallRule(_INDEXES, "run it by itself, before"),),
    ),
    **dict.fromkeys(AWKS, _AWK),
    **dict.fromkeys(NOTHING_FOUND, _GREP),
    **dict.fromkeys(("sed", "gsed"), (CallRule("with -i " + _IN_PLACE, _TO_A_FILE, has_pattern("^-[nErsuz]*i|^--i")),)),
    "perl": (CallRule("with -i " + _IN_PLACE, _TO_A_FILE, has_pattern("^-[lnpaw0-9]*i")),),
    **dict.fromkeys(
        ("dos2unix", "unix2dos", "mac2unix", "unix2mac"),
        (
            CallRule(
                _IN_PLACE, "give it its input by a pipe or <: millrace run --format lines -- PROGRAM < FILE > OUT",
                has_all(has_operand("-c", "--convmode"), has_not(has_exact_word("-n", "--newfile", "-O", "--to-stdout"))),
            ),
        ),
    ),
    "mogrify": (
        CallRule(
            "changes its files", "millrace run --input FOLDER --output 'OUT/{stem}.png' -- convert FOLDER ... 'OUT/{stem}.png'",
            has_not(has_exact_word("-path")),
        ),
    ),
    "tr": (
        CallRule("squeezes line breaks, also those between records", _PIPE, has_all(has_option("-s", "--squeeze-repeats"), has_any(has_option("-c", "-C", "--complement"), has_pattern(r"\n|\\n|\\0?12|\[:(space|cntrl):\]")))),
    ),
    "tee": (CallRule("with -a adds to what is there", "let the shell add it: millrace run -- ... >> FILE", has_option("-a", "--append")),),
    "cat": (CallRule("with -n, -b or -s " + _COUNTS, _PIPE, has_option("-n", "-b", "-s", "--number", "--number-nonblank", "--squeeze-blank")),),
    "jq": (
        CallRule("with --slurp or --null-input " + _DIGESTS, _PIPE, has_option("-s", "-n", "--slurp", "--null-input")),
    ),
    "csvgrep": (CallRule("with -l or -n " + _COUNTS, _PIPE, has_option("-l", "-n", "--linenumbers", "--names")), *_CSVKIT, _TABLE),
    "csvformat": _CSVKIT,
    **dict.fromkeys(("csvjoin", "csvsort"), (CallRule(_ORDERS, _PIPE),)),
    **dict.fromkeys(("csvjson", "csvlook", "csvsql", "csvstack", "csvstat"), (CallRule(_DIGESTS, _PIPE),)),
    "csvclean": (CallRule(_COUNTS, _PIPE),),
    "csvcut": (
        CallRule("with -l or -n " + _COUNTS, _PIPE, has_option("-l", "-n", "--linenumbers", "--names")),
        *_CSVKIT,
        _TABLE._replace(when=has_csvcut_column_names, instead="name columns by numbers (-c 1,3), or " + _TABLE.instead),
    ),
    "mlr": (
        CallRule("with -I " + _IN_PLACE, _TO_A_FILE, has_exact_word("-I")),
        CallRule("with such a verb or expression " + _ORDERS, _PIPE, has_miller_whole_verb),
        CallRule("with --rs or --irs reads records that are not lines", _PIPE, has_exact_word("--rs", "--irs")),
        CallRule(
            "takes a blank line for the end of a table, and what follows for other names of columns", "read it as CSV or TSV: --icsv, --itsv",
            has_all(has_miller_header, has_miller_stacked_tables),
        ),
        CallRule("without names of columns does not show where they change", "let it write names (without --ho and -N), and add --join csv", has_hidden_miller_changes),
        _TABLE._replace(
            when=has_miller_header, joins=frozenset(), formats=frozenset({"csv+header", "lines+header"}),
            instead=_TABLE.instead + " (lines+header and --join header for tabs; no --join for JSON), or add --implicit-csv-header",
        ),
        CallRule("writes one list for the whole input", "let it write a value a line: --ojsonl", has_miller_list_output),
        CallRule("makes columns as wide as the whole input needs, or puts lines between records", "let it write CSV: --ocsv", has_pattern(r"^--(\w2[bpx]|barred|o?(pprint|xtab))$")),
    ),
    **dict.fromkeys(
        ("zcat", "gunzip", "gzcat", "bzcat", "bunzip2", "xzcat", "unxz", "zstdcat", "unzstd", "lz4cat"),
        (CallRule("is no sooner done in parts", "share out what follows it: PROGRAM FILE.gz | millrace run --format FORMAT -- ...; or run PROGRAM by itself"),),
    ),
    "prodigal": (
        CallRule("trains on the whole input, and numbers its sequences even with -p meta, which is known without --input", _format_folder_hint("genome", "gff", "-f gff -i FOLDER -o 'OUT/{stem}.gff'")),
    ),
    "bwa": (
        CallRule(_INDEXES, "run it by itself, before", has_verb("index")),
        CallRule(
            "draws among equal hits by the number of the read, and learns the insert sizes of pairs from the reads beside",
            "minimap2 and bowtie2 do not: millrace run -- minimap2 -ax sr --frag=no ref.fa reads.fq (without --frag=no for "
            "two files of mates)",
            has_verb("mem"),
        ),
        CallRule("draws among equal hits from one stream for all reads", "minimap2 and bowtie2 do not: millrace run -- minimap2 -ax sr --frag=no ref.fa reads.fq", has_verb("samse", "sampe")),
    ),
    "bowtie": (_BY_THREADS, _UPTO, _INTERLEAVED),
    "centrifuge": (_UPTO,),
    "bowtie2": (
        _INTERLEAVED,
        CallRule("with --non-deterministic " + _DRAWS, "leave it out", has_exact_word("--non-deterministic")),
        _BY_THREADS,
        _UPTO,
        CallRule("writes a SAM header at each start", _SAM + ", or add --no-hd", has_not(has_exact_word("--no-hd", "--no-head")), frozenset({"sam"})),
    ),
    "hisat2": (
        CallRule("uses splice sites that it found in the reads before", "add --no-temp-splicesite, in the serial run too", has_not(has_exact_word("--no-temp-splicesite"))),
        _BY_THREADS,
        _UPTO,
        CallRule("writes a SAM header at each start", _SAM + ", or add --no-hd", has_not(has_exact_word("--no-hd", "--no-head")), frozenset({"sam"})),
    ),
    "porechop": (CallRule("decides from the first reads which adapters it seeks", "run it by itself, or trim with cutadapt -a ADAPTER: millrace run -- cutadapt ..."),),
    "primer3_core": (
        CallRule(
            "takes what one record sets beyond its sequence for those behind it, too, and a record here may do so",
            "give settings to all records alike: --p3_settings_file FILE, and a file with SEQUENCE_ tags alone: "
            "millrace run --input FILE --format regex --record-end '^=' -- PROGRAM --p3_settings_file SETTINGS FILE",
            has_global_settings,
        ),
    ),
    "lastal": (
        CallRule("counts the queries of the run in its last line", "give the command alone, which adds it up: millrace run -- PROGRAM ...", joins=frozenset({"totals"})),
    ),
    "exonerate": (
        CallRule(
            "orders the hits of all queries by their targets",
            "put each query into a file of its own, and name a script with exonerate \"$1\" db.fa > \"$2\": "
            "millrace run --input FOLDER --output 'OUT/{stem}.txt' -- SCRIPT FOLDER 'OUT/{stem}.txt'",
        ),
    ),
    **dict.fromkeys(
        ("cd-hit", "cdhit", "cd-hit-est", "cdhit-est", "cd-hit-2d", "cd-hit-est-2d", "cd-hit-454"),
        (CallRule(_CLUSTERS, _OWN_THREADS),),
    ),
    **dict.fromkeys(
        ("vsearch", "usearch"),
        (
            CallRule(_CLUSTERS, _OWN_THREADS, has_pattern(r"^--?(cluster|derep|sortby|shuffle|fastx_uniques|unoise|uchime[23]?_denovo|subsample|fastx_subsample|allpairs)")),
            CallRule(
                "with several threads, as it does by itself, writes queries in the order in which they are done",
                "add --threads 1, in the serial run too; millrace fills the cores by itself",
                has_all(
                    has_pattern("^--?(usearch_global|search_exact|uchime_ref)(=|$)"),
                    has_not(has_pattern_of_pair("^--?threads[ =]1$")),
                ),
            ),
            CallRule("with --sintax " + _DRAWS, "run it by itself: a read has another answer behind other reads", has_pattern("^--?sintax(=|$)")),
            CallRule(_INDEXES, "run it by itself, before", has_pattern("^--?makeudb_usearch")),
            CallRule("with --log writes the time", "leave it out", has_pattern("^--?log(=|$)")),
        ),
    ),
    **dict.fromkeys(
        ("fasta36", "fasta"),
        (CallRule("judges a query by what it has seen of the queries before", "use ssearch36 -m 8 with some thousand entries, or blastp: millrace run -- blastp ..."),),
    ),
    **dict.fromkeys(("maskseq", "sixpack"), (CallRule("reads the first record of the input alone", _format_folder_hint("record", "fa", "-sequence FOLDER -outseq 'OUT/{stem}.fa'")),)),
    **dict.fromkeys(("fasttree", "FastTree", "FastTreeMP", "fasttreeMP", "phyml"), (_TREE,)),
    **dict.fromkeys(
        ("iqtree", "iqtree2"), (CallRule(_TREE.why, _PREFIX.format(end=".treefile", words="-s", more="-seed 1 -nt 1")),)
    ),
    "raxml-ng": (
        CallRule(_TREE.why, _PREFIX.format(end=".raxml.bestTree", words="--msa", more="--seed 1 --threads 1 --model GTR+G")),
    ),
    **dict.fromkeys(
        ("raxml", "raxmlHPC"),
        (
            CallRule(
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
        _INTERLEAVED,
        CallRule("with --dedup " + _CLUSTERS, _OWN_THREADS, has_exact_word("-D", "--dedup")),
        CallRule(
            "guesses the adapter from the first reads", "name it with -a, or add --disable_adapter_trimming (-A)",
            has_not(has_any(has_exact_word("-A", "--disable_adapter_trimming"), has_all(has_exact_word("-a", "--adapter_sequence"), has_not(_FASTP_AUTO)))),
        ),
        CallRule("with --reads_to_process takes the first reads of the input", "cut the input before", has_pattern("^--?reads_to_process")),
        CallRule(
            "writes reports that count through the whole input", "add -j /dev/null -h /dev/null",
            has_not(has_all(has_pattern_of_pair("^(-j|--json)[ =]/dev/null$"), has_pattern_of_pair("^(-h|--html)[ =]/dev/null$"))),
        ),
    ),
    "cutadapt": (
        CallRule("with -o reports totals of the whole run", "add --quiet", has_all(has_pattern(r"^-o|^--output"), has_not(has_exact_word("--quiet")))),
        CallRule("with --json or --debug reports totals and times of the run", "leave it out", has_pattern("^--(js|debug)")),
    ),
    "seqkit": (
        CallRule(_COUNTS, _PIPE, has_verb("stats", "stat", "range", "sum", "split", "split2")),
        CallRule(_ENDS, _PIPE, has_verb("head", "head-genome")),
        CallRule(_ORDERS, _PIPE, has_verb("sort", "rmdup", "rename", "common", "pair", "concat")),
        CallRule(_DRAWS, _PIPE, has_verb("sample", "shuffle")),
        CallRule("with --delete-matched looks for each pattern once in the whole input", _PIPE, has_all(has_verb("grep"), has_exact_word("--delete-matched"))),
        CallRule("with -C " + _COUNTS, _PIPE, has_all(has_verb("grep"), has_pattern("^(-[nscdiIvPr]*C|--count)"))),
        CallRule("with -k draws colours at random", "leave it out", has_all(has_verb("seq"), has_pattern("^(-[ilnpqrsuvg]*k|--color)"))),
        CallRule(
            "guesses the alphabet from the first sequence of the input", "say it with --seq-type (-t): dna, rna or protein",
            has_all(has_any(has_verb("translate"), has_all(has_verb("seq"), has_pattern("^(-[ilnqrsug]*[pv]|--(complement|validate-seq|dna2rna|rna2dna))"))), _guesses_alphabet),
        ),
        CallRule("guesses the encoding from the first reads", "say it: --from Sanger", has_all(has_verb("convert"), has_not(has_exact_word("--from")))),
        CallRule(
            "with -c writes what is left of other sequences where one is shorter than the window", "leave it out",
            has_all(has_verb("sliding"), has_pattern("^(-[gcC]*[cC]|--circular)")),
        ),
        CallRule(_INDEXES, "run it by itself", has_verb("faidx")),
        CallRule("with {nr} " + _COUNTS, _PIPE, has_all(has_verb("replace"), has_pattern(r"\{(nr|NR)\}"))),
        CallRule("with -H writes a header at each start", _HEADER, has_all(has_verb("fx2tab"), has_option("-H", "--header-line")), frozenset({"header"})),
        CallRule("with several patterns writes them in another order in each run", "give one pattern", has_all(has_verb("locate"), _has_several_patterns)),
        CallRule("writes a header at each start", _HEADER, has_all(has_verb("locate"), has_not(has_exact_word("--bed", "--gtf"))), frozenset({"header"})),
    ),
    "seqtk": (
        CallRule(_COUNTS, _PIPE, has_verb("rename", "size", "fqchk")),
        CallRule(_DRAWS, _PIPE, has_verb("sample", "randbase")),
        CallRule("with -1 or -2 takes every other record", _PIPE, has_all(has_verb("seq"), has_pattern("^-[NaACrcVUS]*[12]"))),
        CallRule("with -f " + _DRAWS, _PIPE, has_all(has_verb("seq"), has_pattern("^-[N12aACrcVUS]*f"))),
        CallRule("with -r " + _DRAWS, _PIPE, has_all(has_verb("mergefa"), has_pattern("^-[imh]*r"))),
        CallRule("compares neighbours", _PIPE, has_verb("dropse")),
    ),
    "bedtools": (
        CallRule(_ORDERS, _PIPE, has_verb("merge", "sort", "cluster", "groupby", "spacing")),
        CallRule(_DIGESTS, _PIPE, has_verb("complement", "genomecov", "jaccard", "reldist", "fisher", "summary")),
        CallRule(_DRAWS, _PIPE, has_verb("sample", "shuffle", "random")),
        CallRule("changes the order of the lines", "use bedtools coverage", has_verb("annotate")),
        CallRule("with -hist " + _DIGESTS, "leave -hist out", has_all(has_verb("coverage"), has_exact_word("-hist"))),
    ),
    **dict.fromkeys(("mergeBed", "sortBed", "clusterBed", "groupBy"), (CallRule(_ORDERS, _PIPE),)),
    **dict.fromkeys(("complementBed", "genomeCoverageBed"), (CallRule(_DIGESTS, _PIPE),)),
    "bcftools": (
        CallRule(_ORDERS, _PIPE, has_verb("sort", "merge", "concat", "isec", "norm", "gtcheck")),
        CallRule(_DIGESTS, _PIPE, has_verb("stats", "consensus", "roh", "cnv", "polysomy")),
        CallRule(_INDEXES, "run it by itself", has_verb("index")),
        CallRule("with -n " + _ENDS, _PIPE, has_all(has_verb("head"), has_option("-n", "--records"))),
        CallRule("with -l lists the samples once for the whole input", "run it by itself", has_all(has_verb("query"), has_option("-l", "--list-samples"))),
        CallRule(
            "looks at the variants beside each other", _PIPE,
            has_any(has_verb("csq", "+prune", "+remove-overlaps"), has_all(has_verb("filter"), has_option("-g", "-G", "--SnpGap", "--IndelGap"))),
        ),
        CallRule(
            "with such an output " + _PACKS, "let it write VCF, and pipe the result: millrace run -- ... | bcftools view -O b",
            has_any(has_pattern_of_pair("^(-O ?|--output-type[ =])[zbu]"), has_option_value(("-o", "--output"), r"(?i).*\.(b?gz|bcf)")),
        ),
        CallRule(
            "writes the time and its command into the header", "add --no-version, in the serial run too",
            has_all(has_any(has_verb("view", "annotate", "filter", "call", "convert"), _BCFTOOLS_PLUGIN), has_not(has_any(has_exact_word("--no-version"), has_all(has_verb("view"), has_exact_word("-H", "--no-header"))))),
        ),
        CallRule(
            "reads a header before the variants, which only the first batch has", "say that it is VCF: --input FILE:vcf",
            lambda call: bool(call.verbs), formats=frozenset({"vcf"}),
        ),
    ),
    "samtools": (
        CallRule(_ORDERS, _PIPE, has_verb("sort", "merge", "markdup", "rmdup", "collate")),
        CallRule(_COUNTS, _PIPE, has_verb("flagstat", "idxstats", "stats", "depth", "coverage", "mpileup")),
        CallRule("makes or needs one index of the whole input", "run it by itself", has_verb("index", "faidx", "dict")),
        CallRule("tells from the first reads how they are paired", "say it: samtools import -0 reads.fq -O SAM", has_all(has_verb("import"), has_not(has_exact_word("-0", "-1")))),
        CallRule("writes a SAM header at each start", "give the command alone, or " + _SAM, has_verb("import"), frozenset({"sam"})),
        CallRule(
            "reads a header before the alignments, which only the first batch has",
            "give it threads of its own (-@), or a pipe: millrace run -- bowtie2 ... | PROGRAM view -b",
            has_verb("view", "fastq", "fasta", "calmd", "fixmate", "addreplacerg", "reheader", "tview"),
        ),
    ),
}  # fmt: skip
