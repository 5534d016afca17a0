"""The serial commands that show the promise, as a table, and the small real data that they work on."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shlex
import shutil
import subprocess
import sys
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from session_resources import once
from tool_batches import need

#: (slots, batch): one by one, as measured, and in sizes that cut badly on more slots than cores.
WAYS = ((1, "1"), (2, "auto"), (7, "4"))

MILLRACE = [sys.executable, "-m", "millrace"]


@dataclass(frozen=True)
class Case:
    """One serial command and the files that it writes."""

    name: str
    command: str
    #: Files; of a name that ends in ``/``, all that are in the folder.
    outputs: tuple[str, ...] = ("out",)
    #: File that is its standard input.
    stdin: str = ""
    #: Whether its standard output counts too.
    stdout: bool = False
    options: tuple[str, ...] = ()
    ways: tuple[tuple[int, str], ...] = field(default=WAYS)
    #: Shell command that does the same serially, where ``command`` is not a serial one: each file is a record.
    serial: str = ""


def blast(program: str, outfmt: str, more: str = "") -> Case:
    database = {"blastp": "prot", "psiblast": "prot", "blastx": "prot"}.get(program, "nucl")
    query = "q.faa" if program in ("blastp", "psiblast", "tblastn") else "q.fna"
    form, *columns = outfmt.split()
    name = f"{program}-{form}{'-columns' if columns else ''}{'-' + more.split()[0].strip('-') if more else ''}"
    outfmt = shlex.quote(outfmt)
    return Case(name, f"{program} -query {query} -db {database} -outfmt {outfmt} -evalue 1e-3 {more} -out out")


CASES = [
    *(blast("blastp", str(outfmt)) for outfmt in (0, 5, 6, 7, 8, 10, 11, 12, 15, 16, 18)),
    blast("blastp", "6 qseqid sseqid evalue bitscore qseq"),
    blast("blastp", "6", "-max_target_seqs 3"),
    blast("blastp", "7", "-comp_based_stats 0 -seg yes"),
    blast("blastp", "0", "-num_descriptions 3 -num_alignments 2"),
    *(blast("blastn", str(outfmt)) for outfmt in (0, 5, 6, 7, 10)),
    blast("blastn", "6", "-task blastn -strand plus"),
    Case("blastp-6-relatives", "blastp -query protein.faa -db relatives -outfmt 6 -max_target_seqs 20000 -out out"),
    Case("blastn-6-alike", "blastn -query gene.fna -db alike -outfmt 6 -max_target_seqs 20000 -out out"),
    blast("blastx", "6"),
    blast("blastx", "0"),
    Case("psiblast", "psiblast -query q3.faa -db prot -outfmt 6 -evalue 1e-3 -num_iterations 2 -out out"),
    blast("tblastn", "6"),
    blast("tblastx", "6", "-max_target_seqs 2"),
    Case("blastp-stdin", "blastp -db prot -outfmt 7 -evalue 1e-3", outputs=(), stdin="q.faa", stdout=True),
    Case("blastp-threads", "blastp -query q.faa -db prot -outfmt 6 -evalue 1e-3 -num_threads 2 -out out"),
    Case("hmmscan", "hmmscan -o out --tblout t --domtblout d --pfamtblout f p.hmm q.faa", ("out", "t", "d", "f")),
    Case("hmmscan-stdin", "hmmscan --tblout t p.hmm -", ("t",), stdin="q.faa", stdout=True),
    Case("hmmsearch", "hmmsearch -o out --tblout t --domtblout d -A a p.hmm prot.faa", ("out", "t", "d", "a")),
    Case("phmmer", "phmmer -o out --tblout t --domtblout d q.faa prot.faa", ("out", "t", "d"), ways=((2, "auto"), (7, "3"))),
    Case("nhmmer", "nhmmer -o out --tblout t q3.fna nucl.fna", ("out", "t"), ways=((2, "2"),)),
    Case("jackhmmer", "jackhmmer -N 2 -o out --tblout t q3.faa prot.faa", ("out", "t"), ways=((2, "3"),)),
    Case("diamond-6", "diamond blastp -q d.faa -d dmnd -o out --quiet"),
    Case("diamond-5", "diamond blastp -q d.faa -d dmnd -o out --outfmt 5 --unal 0 --quiet"),
    Case("diamond-blastx", "diamond blastx -q q.fna -d dmnd -f 101 -o out --quiet"),
    Case("mmseqs", "mmseqs easy-search q.faa prot.faa out tmp -k 5 --alph-size aa:13,nucl:5 --threads 1 -v 1", ways=((2, "auto"), (7, "4"))),
    Case("obabel-sdf", "obabel ligands.mol2 -O out.sdf", ("out.sdf",)),
    Case("obabel-smi", "obabel -imol2 ligands.mol2 -osmi", (), stdout=True),
    Case("obabel-from-smi", "obabel drugs.smi -O out.mol2", ("out.mol2",)),
    Case("filter", "sed s/A/B/", (), stdin="q.faa", stdout=True, options=("--format", "fasta")),
    Case("minimap2-sam", "minimap2 -a -o out nucl.fna q.fna"),
    Case("minimap2-paf", "minimap2 -c nucl.fna q.fna", (), stdout=True),
    Case("cmscan", "cmscan -o out --tblout t models.cm hairpins.fa", ("out", "t")),
    Case("cmsearch", "cmsearch --tblout t -A a models.cm hairpins.fa", ("t", "a"), stdout=True),
    Case("bowtie2-sam", "bowtie2 --quiet -f -x bt q.fna -S out", options=("--input", "q.fna", "--output", "out", "--join", "sam")),
    Case("seqkit-table", "seqkit fx2tab -j 1 -H -n -l q.faa", (), stdout=True, options=("--input", "q.faa", "--join", "header")),
    Case(
        "prodigal", "prodigal -q -p meta -f gff -i genomes -o families/{stem}.gff", ("families/",),
        options=("--input", "genomes", "--output", "families/{stem}.gff"),
        serial="for f in a b c; do prodigal -q -p meta -f gff -i genomes/$f.fna -o families/$f.gff || exit; done",
    ),
    Case(
        "fasttree", "fasttree -quiet -nopr -out families/{stem}.nwk aligned", ("families/",),
        options=("--input", "aligned", "--output", "families/{stem}.nwk"),
        serial="for f in a b; do fasttree -quiet -nopr -out families/$f.nwk aligned/$f.afa || exit; done",
    ),
    Case(
        "iqtree2", "iqtree2 -s aligned --prefix families/{stem} -m LG -fast -seed 1 -nt 1 -quiet", ("families/",), ways=((2, "auto"),),
        options=("--input", "aligned", "--output", "families/{stem}.treefile", "--output", "families/{stem}.mldist"),
        serial="for f in a b; do iqtree2 -s aligned/$f.afa --prefix families/$f -m LG -fast -seed 1 -nt 1 -quiet || exit; done; "
        "cd families && rm *.iqtree *.log *.bionj *.gz",
    ),
    Case("bcftools-view", "bcftools view --no-version -i QUAL>50 -o out variants.vcf"),
    Case("bcftools-query", "bcftools query -f '%CHROM %POS [%GT ]\\n' -", (), stdin="variants.vcf", stdout=True),
    Case("csvgrep", "csvgrep -c kind -m k3 table.csv", (), stdout=True, options=("--input", "table.csv:csv+header", "--join", "csv")),
    Case("tool-with-files", "cp q.faa out", options=("--input", "q.faa", "--output", "out")),
    Case(
        "muscle3", "muscle3 -quiet -in fams/ -out families/", ("families/",),
        serial="for f in fams/*; do muscle3 -quiet -in $f -out families/${f#fams/} || exit; done",
    ),
    Case(
        "mafft", "mafft --quiet --out families/ fams/", ("families/",),
        serial="for f in fams/*; do mafft --quiet $f > families/${f#fams/} || exit; done",
    ),
]  # fmt: skip

#: Programs whose database may be in fragments, and what of them is searched as a whole all the same.
FRAGMENTING = ("blastp", "blastn", "blastx", "tblastn", "tblastx", "hmmscan", "hmmsearch", "phmmer")
WHOLE = ("blastp-11", "blastp-threads")

#: The same in fragments of the database.
IN_FRAGMENTS = [
    replace(case, name=f"{case.name}-fragments", options=(*case.options, "--fragments", "3"))
    for case in CASES
    if case.command.split()[0] in FRAGMENTING and case.name not in WHOLE
]


def run(command: list[str], folder: Path, case: Case) -> None:
    """Run ``command`` in ``folder``; standard output goes to the file ``stdout``."""
    with (folder / (case.stdin or "/dev/null")).open("rb") as stdin, (folder / "stdout").open("wb") as stdout:
        done = subprocess.run(command, cwd=folder, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=600)
    assert done.returncode == 0, done.stderr.decode(errors="replace")


def collect(folder: Path, case: Case) -> dict[str, bytes]:
    """The content of each file that a case has written."""
    paths = [
        path for name in case.outputs for path in ((folder / name).iterdir() if name[-1] == "/" else [folder / name])
    ]
    paths += [folder / "stdout"] if case.stdout else []
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def serially(case: Case, bench_of: Path, folder: Path) -> tuple[list[str], dict[str, bytes]]:
    """A case's words, and what it writes without Millrace; ``folder`` becomes a place to run it in with Millrace.

    The tool itself runs once for all who ask the same of one bench.
    """
    words = shlex.split(case.command)
    need(words[0])

    def make(made: Path) -> None:
        work = shutil.copytree(bench_of, made / "work")
        run(["sh", "-c", case.serial] if case.serial else words, work, case)
        (made / "outputs").write_bytes(pickle.dumps((os.fsencode(work), collect(work, case))))
        shutil.rmtree(work)

    key = zlib.crc32(f"{case.command} < {case.stdin}".encode())
    made = once(bench_of.with_name(f"{bench_of.name}-serial-{key:08x}"), make)
    work, outputs = pickle.loads((made / "outputs").read_bytes())
    shutil.copytree(bench_of, folder)
    return words, {name: text.replace(work, os.fsencode(folder)) for name, text in outputs.items()}


def differing(case: Case, folder: Path, expected: dict[str, bytes]) -> list[str]:
    """Names of outputs in ``folder`` that are not as ``expected``, but for what the adapter calls volatile."""
    ours = collect(folder, case)
    names = [name for name in ours.keys() | expected.keys() if ours.get(name) != expected.get(name)]
    if not names or ours.keys() != expected.keys():
        return names
    volatile = volatile_of(case, folder)
    return [
        name
        for name in names
        if masked(ours[name], volatile.get(name, [])) != masked(expected[name], volatile.get(name, []))
    ]


def volatile_of(case: Case, folder: Path) -> dict[str, list[str]]:
    """The named volatile parts of each output, as the adapter lists them."""
    with (folder / (case.stdin or "/dev/null")).open("rb") as stdin:
        plan = subprocess.run(
            [*MILLRACE, "plan", "--json", *case.options, "--", *shlex.split(case.command)],
            cwd=folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            check=True,
        )
    outputs = json.loads(plan.stdout)["outputs"]
    return {("stdout" if output["path"] == "-" else output["path"]): output["volatile"] for output in outputs}


def masked(text: bytes, patterns: list[str]) -> bytes:
    for pattern in patterns:
        text = re.sub(pattern.encode(), b"", text, flags=re.MULTILINE)
    return text


def records(path: Path, start: bytes = b">") -> list[bytes]:
    """The records of a file that begin with ``start`` at the start of a line, byte for byte."""
    found: list[bytes] = []
    for line in path.read_bytes().splitlines(keepends=True):
        if line.startswith(start) or not found:
            found.append(b"")
        found[-1] += line
    return found


def make_alike(data: Path, query: Path, database: Path) -> None:
    """Write one gene, and nine thousand sequences like it: some twice, some with a second part like it."""
    dice = random.Random(11)
    genes = (b"".join(gene.splitlines()[1:]).decode().upper() for gene in records(data / "genes_db.fna"))
    gene = next(gene for gene in genes if 600 < len(gene) < 900)[:400]
    query.write_text(f">gene and what it is\n{gene}\n")
    entry = ""
    with database.open("w", encoding="ascii") as out:
        for k in range(9000):
            if not entry or dice.random() > 0.05:
                rate = dice.choice((0.01, 0.03, 0.06, 0.1))
                part = gene[dice.randrange(150) :][: dice.randrange(120, 400)]
                entry = "".join(dice.choice("ACGT") if dice.random() < rate else base for base in part)
                if dice.random() < 0.02:
                    entry += "N" * 60 + gene[:80]
            out.write(f">entry{k} of a family\n{entry}\n")


#: A codon of each amino acid.
CODONS = {
    "A": "GCT", "C": "TGC", "D": "GAC", "E": "GAA", "F": "TTC", "G": "GGT", "H": "CAC", "I": "ATC", "K": "AAA", "L": "CTG",
    "M": "ATG", "N": "AAC", "P": "CCG", "Q": "CAG", "R": "CGT", "S": "TCC", "T": "ACC", "V": "GTG", "W": "TGG", "Y": "TAC",
}  # fmt: skip


def make_relatives(data: Path, query: Path, database: Path, *, genes: bool = False) -> None:
    """Write one protein, and seven thousand that are like it, or with ``genes`` what codes for them: near and far, some
    twice, some with two such parts, of all lengths and compositions."""
    dice = random.Random(12)
    proteins = (b"".join(protein.splitlines()[1:]).decode() for protein in records(data / "proteins_db.faa"))
    protein = next(protein for protein in proteins if 420 < len(protein) < 440)
    query.write_text(f">protein and what it is\n{protein}\n")
    letters, entry = "".join(CODONS), ""

    def changed(part: str, rate: float) -> str:
        return "".join(dice.choice(letters) if dice.random() < rate else letter for letter in part)

    with database.open("w", encoding="ascii") as out:
        for k in range(7000):
            if not entry or dice.random() > 0.05:
                whole = dice.random() < 0.1  # some have an E-value that is printed as 0.0
                part = protein if whole else protein[dice.randrange(250) :][: dice.randrange(60, 140)]
                some = letters[: dice.choice((2, 3, 20))]
                flank = "".join(dice.choice(some) for _ in range(dice.randrange(40)))
                entry = flank + changed(part, dice.choice((0.0, 0.02) if whole else (0.02, 0.1, 0.2, 0.3)))
                if dice.random() < 0.05:
                    entry += flank[::-1] + changed(protein[40:140], 0.3)
            coded = "".join(CODONS.get(letter, "NNN") for letter in entry)
            if dice.random() < 0.2:
                coded = coded[: len(coded) // 2] + "ACGTA"[: k % 5] + coded[len(coded) // 2 :]
            out.write(f">entry{k} of a family\n{coded if genes else entry}\n")


#: Three covariance models, calibrated: a hairpin, two of them, and one without base pairs.
MODELS = Path(__file__).with_name("hairpins.cm")
#: Sequences that these models find.
HAIRPINS = ("GGCUAGCUUCGGCUAGCCAAUU", "GGCUAGCUUCGGCUAGCCAAGGAUCCGAAAGGAUCCAA")


def make_hairpins(path: Path) -> None:
    """Write sequences with one hit, two or none, of short and long names."""
    dice = random.Random(5)
    with path.open("w", encoding="ascii") as out:
        for k in range(15):
            parts = ["".join(dice.choices("ACGU", k=dice.randrange(30, 200))) for _ in range(3)]
            hit = HAIRPINS[k % 2] if k % 3 else ""
            name = f"a-name-that-needs-more-than-twenty-columns-{k}" if k in (4, 9) else f"q{k}"
            out.write(f">{name} number {k}\n{parts[0]}\n{hit}{parts[1]}\n{hit if k % 5 == 0 else ''}{parts[2]}\n")


def for_diamond(queries: bytes) -> bytes:
    """The queries without the empty ones, which are refused with XML, and at which 2.1.11 stops."""
    return b"".join(each for each in re.split(rb"(?m)^(?=>)", queries) if each.partition(b"\n")[2].strip())


def make_variants(path: Path, number: int = 400) -> None:
    """Variants of two samples on two chromosomes, below the header that bcftools itself writes."""
    draw = random.Random(5)
    rows = []
    for k in range(number):
        ref, alt = draw.sample("ACGT", 2)
        genotypes = "\t".join(draw.choice(("0/0", "0/1", "1/1")) for _ in range(2))
        rows.append(
            f"{1 + 2 * k // number}\t{100 + 7 * k}\trs{k}\t{ref}\t{alt}\t{draw.randrange(1, 100)}\tPASS"
            f"\tDP={draw.randrange(200)};AF={draw.random():.3f}\tGT\t{genotypes}\n"
        )
    path.write_text(
        "##fileformat=VCFv4.2\n"
        '##FILTER=<ID=PASS,Description="All filters passed">\n'
        "##contig=<ID=1,length=1000000>\n##contig=<ID=2,length=1000000>\n"
        '##INFO=<ID=DP,Number=1,Type=Integer,Description="Depth">\n'
        '##INFO=<ID=AF,Number=A,Type=Float,Description="Frequency">\n'
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n'
        "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts1\ts2\n" + "".join(rows)
    )


def make_table(path: Path, number: int = 300) -> None:
    """A table whose first row, as others, has a line break in quotes."""
    path.write_text('id,kind,"a long\nname"\n' + "".join(f'{k},k{k % 7},"x\n{k}, {k % 3}"\n' for k in range(number)))


def make_bench(data: Path, folder: Path) -> None:
    """Put databases (``prot``, ``nucl``, ``p.hmm`` pressed) and queries for every tool into ``folder``.

    Args:
        data: The real test data, from which they are cut.
    """
    proteins = records(data / "proteins_db.faa")
    (folder / "prot.faa").write_bytes(b"".join(proteins[::12]))
    queries = records(data / "proteins_queries.faa")
    awkward = [b">empty_one\n", b">lower case\nmkvlaagivgllaa\nggsgkstlaraLAR\n", queries[3].replace(b"\n", b"\r\n")]
    (folder / "q.faa").write_bytes(
        b"".join([*queries[:5], *awkward[1:], *queries[20:23], awkward[0], *queries[40:42]]).rstrip(b"\n")
    )
    (folder / "q3.faa").write_bytes(b"".join(queries[5:12]))
    genes = records(data / "genes_db.fna")
    (folder / "nucl.fna").write_bytes(b"".join(genes[::8]))
    (folder / "q.fna").write_bytes(b"".join(genes[1:40:3]))
    (folder / "q3.fna").write_bytes(b"".join(genes[1:8:3]))
    make_alike(data, folder / "gene.fna", folder / "alike.fna")
    make_relatives(data, folder / "protein.faa", folder / "relatives.faa")
    profiles = (data / "profiles.hmm").read_bytes().split(b"//\n")
    (folder / "p.hmm").write_bytes(b"".join(part + b"//\n" for part in profiles[:25]))
    shutil.copy(data / "ligands.mol2", folder)
    shutil.copy(data / "drugs.smi", folder)
    (folder / "fams").mkdir()
    (folder / "families").mkdir()
    for path in sorted((data / "families").glob("*.faa"), key=lambda path: path.stat().st_size)[:7]:
        shutil.copy(path, folder / "fams")
    (folder / "genomes").mkdir()
    for name, contig in zip("abc", records(data / "contigs.fna")[-9::3], strict=True):
        (folder / "genomes" / f"{name}.fna").write_bytes(contig[:20000])
    (folder / "aligned").mkdir()
    for name, few in (("a", queries[:6]), ("b", queries[6:11])):
        # Ends filled up with gaps: an alignment as far as a program can see.
        rows = [record.partition(b"\n") for record in few]
        sequences = [sequence.replace(b"\n", b"")[:300].ljust(300, b"-") for _, _, sequence in rows]
        (folder / "aligned" / f"{name}.afa").write_bytes(
            b"".join(
                header.split()[0] + b"\n" + sequence + b"\n"
                for (header, _, _), sequence in zip(rows, sequences, strict=True)
            )
        )
    if shutil.which("bowtie2-build"):
        subprocess.run(["bowtie2-build", "-q", "nucl.fna", "bt"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    for name, kind in (("prot.faa", "prot"), ("nucl.fna", "nucl"), ("alike.fna", "nucl"), ("relatives.faa", "prot")):
        if shutil.which("makeblastdb"):
            command = ["makeblastdb", "-in", name, "-dbtype", kind, "-out", name.partition(".")[0]]
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    if shutil.which("diamond"):
        command = ["diamond", "makedb", "--in", "prot.faa", "-d", "dmnd", "--quiet"]
        subprocess.run(command, cwd=folder, check=True)
        (folder / "d.faa").write_bytes(for_diamond((folder / "q.faa").read_bytes()))
    make_variants(folder / "variants.vcf")
    make_table(folder / "table.csv", 60)  # csvgrep takes half a second to start
    shutil.copy(MODELS, folder / "models.cm")
    make_hairpins(folder / "hairpins.fa")
    if shutil.which("cmpress"):
        subprocess.run(["cmpress", "models.cm"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    if shutil.which("hmmpress"):
        subprocess.run(["hmmpress", "p.hmm"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
