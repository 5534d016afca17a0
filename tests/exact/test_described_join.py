"""Tools that are described by a file: serial bytes, and refusals where there are none."""

from __future__ import annotations

import gzip
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from exact_cases import make_variants
from session_resources import once
from shell import Shell


class Run(NamedTuple):
    """A command, and the files or folders that it writes."""

    line: str
    outputs: tuple[str, ...] = ()
    stdin: str = ""


#: A command as the user types it, after `millrace run`; serially the same.
ALIKE = {
    "bowtie2": Run("bowtie2 --quiet -x bt -U r1.fq -S out.sam", ("out.sam",)),
    "bowtie2-pairs": Run("bowtie2 --quiet --local -p 2 --reorder -x bt -1 r1.fq -2 r2.fq -S out.sam", ("out.sam",)),
    "bowtie2-stdout": Run("bowtie2 --quiet -k 3 --no-hd -x bt -U r1.fq"),
    "fastp": Run(
        "fastp -A -G --dont_eval_duplication -j /dev/null -h /dev/null -q 20 -l 30 -i r1.fq -o out.fq", ("out.fq",)
    ),
    "fastp-pairs": Run(
        "fastp -a AGATCGGAAGAGC -G -w 3 -c -3 --dont_eval_duplication --json=/dev/null --html=/dev/null -i r1.fq -I r2.fq -o o1.fq -O o2.fq",
        ("o1.fq", "o2.fq"),
    ),
    "seqkit-seq": Run("seqkit seq -rp -t dna -w 50 -m 80 contigs.fna -o out.fa", ("out.fa",)),
    "seqkit-translate": Run("seqkit translate --seq-type dna -f 6 contigs.fna"),
    "seqkit-fx2tab": Run("seqkit fx2tab -n -l -g r1.fq"),
    "seqkit-grep": Run("seqkit grep -r -p 1 r1.fq"),
    "seqkit-subseq": Run("seqkit subseq -r 2:40 r1.fq"),
    "seqkit-replace": Run("seqkit replace -p ^ -r x_ contigs.fna"),
    "lastal": Run("lastal ld contigs.fna"),
    "lastal-table": Run("lastal -fTAB -E 1e6 ld short.fna"),
    "samtools-import": Run("samtools import -0 r1.fq -R lane1 -O SAM -o out.sam", ("out.sam",)),
    "samtools-fasta": Run("samtools import -0 ref.fa -O SAM"),
    "samtools-pairs": Run("samtools import -1 r1.fq -2 r2.fq -O sam"),
    "seqkit-stdin": Run("seqkit fq2fa", stdin="r1.fq"),
    "bcftools-view": Run("bcftools view --no-version -i 'QUAL>50' -s s2 -c 1 -o out.vcf v.vcf", ("out.vcf",)),
    "bcftools-headless": Run("bcftools view -H -v snps v.vcf"),
    "bcftools-header": Run("bcftools view -h --no-version v.vcf"),
    "bcftools-query": Run(r"bcftools query -i 'DP>20' -f '#%CHROM %POS [%GT ]\n' v.vcf"),
    "bcftools-filter": Run("bcftools filter --no-version -s LOW -e 'QUAL<30' -Ov v.vcf"),
    "bcftools-annotate": Run(r"bcftools annotate --no-version -x INFO/AF -I '%CHROM\_%POS' v.vcf"),
    "bcftools-query-file": Run(r"bcftools query -f '#%CHROM\n' --output-file=out.txt v.vcf", ("out.txt",)),
    "bcftools-lists": Run("bcftools view --no-version -S ^names -T ^places -O v0 v.vcf"),
    "bcftools-mask": Run("bcftools filter --no-version --mask-file places -s MASK v.vcf"),
    "bcftools-stdin": Run("bcftools view --no-version -G -", stdin="v.vcf"),
}

#: Each file is a record: the serial command is the same for one file.
FAMILIES = {
    "fasttree": ("fasttree -quiet -nt -out {out} {file}", "aligned"),
    "clustalo": ("clustalo --threads=1 -i {file} -o {out}", "families"),
    "prodigal": ("prodigal -q -p meta -f gff -i {file} -o {out}", "genomes"),
}

REFUSED = {
    "bowtie2 -p 2 -x bt -U r1.fq": "add --reorder",
    "fastp -G -j /dev/null -h /dev/null -i r1.fq -o o": "guesses the adapter",
    "fastp -A -G -h /dev/null -i r1.fq -o o": "writes a report (-j)",
    "fastp -A -j /dev/null -h /dev/null -i r1.fq -o o": "poly-G",
    "fastp -A -D -G -j /dev/null -h /dev/null -i r1.fq -o o": "-D",
    "bowtie2 -x bt -U r1.fq -1 r1.fq -2 r2.fq -S o": "-U and -1 are both given",
    "bowtie2 -x bt -U r1.fq,r2.fq -S o": "are several files",
    "bowtie2 -x bt -U r1.fq.bz2 -S o": "stands in the header",
    "clustalo -i families -o o -v": "others in each run",
    "fastp -a auto -G -j /dev/null -h /dev/null -i r1.fq -o o": "guesses the adapter",
    "fastp --adapter_sequence=auto -G -j /dev/null -h /dev/null -i r1.fq -o o": "guesses the adapter",
    "fastp --adapter_fasta contigs.fna -G -j /dev/null -h /dev/null -i r1.fq -o o": "guesses the adapter",
    "fastp -A -G -j /dev/null -h /dev/null -i r1.fq -o o.gz": "one gzip stream",
    "samtools import -0 r1.fq -O SAM -o o.sam.gz": "one compressed stream",
    "seqkit seq -p contigs.fna": "guesses the alphabet",
    "seqkit seq -t auto -p contigs.fna": "guesses the alphabet",
    "seqkit seq contigs.fna -o o.gz": "one compressed stream",
    "seqkit grep -p x contigs.fna --out-file=o.xz": "one compressed stream",
    "seqkit replace -p . --replacement={NR} contigs.fna": "{nr}",
    "seqkit rmdup contigs.fna": "orders or compares",
    "seqkit replace -p . -r {nr} contigs.fna": "{nr}",
    "fasttree -nt aligned/a.fa": "one tree from the whole alignment",
    "clustalo -i contigs.fna": "aligns all records",
    "prodigal -i contigs.fna": "trains on the whole input",
    "seqkit seq contigs.fna r1.fq": "one file or word more",
    "samtools import r1.fq": "how they are paired",
    "samtools import -0 r1.fq -o out.bam": "add -O SAM",
    "samtools import --order NM -0 r1.fq -O sam": "not known",
    "samtools view r1.sam": "reads a header before the alignments",
    "bowtie2 -x bt -U r1.fq out.sam": "one file or word more",
    "bowtie2 -x bt r1.fq": "if that is the input, name it with -U",
    "lastal -P2 ld contigs.fna": "in which they are found",
    "lastal -i 1M ld contigs.fna": "numbers batches",
    "lastal many contigs.fna": "is in several volumes",
    "bcftools view v.vcf": "add --no-version",
    "bcftools annotate -x INFO/AF v.vcf": "add --no-version",
    "bcftools view --no-version -Oz -o o v.vcf": "one compressed stream",
    "bcftools view --no-version -o o.vcf.gz v.vcf": "one compressed stream",
    "bcftools query -H -f %POS v.vcf": "--join header",
    "bcftools filter --no-version -g 5 v.vcf": "beside each other",
    "bcftools view --no-version -r 1:1-500 v.vcf": "not known",
    "bcftools sort v.vcf": "orders or compares",
    "bcftools view --no-version -i ID=@names v.vcf": "may read a file",
    "bcftools view --no-version -o x.VCF.bgz v.vcf": "one compressed stream",
    "bcftools view --no-version -S ^nothing v.vcf": "no such file",
    "bcftools view --no-version v.bcf": "is BCF",
    "bcftools view --no-version u.bcf": "is BCF",
    "bcftools norm -m- v.vcf": "orders or compares",
    "bcftools stats v.vcf": "one result",
    "cd-hit -i contigs.fna -o o": "compares all records with each other",
    "bowtie2 --no-such-option -x bt -U r1.fq": "not known",
    "bowtie2 -x nothing -U r1.fq": "no such file",
}  # fmt: skip


def _make(data: Path, folder: Path) -> None:
    records = (data / "contigs.fna").read_text().split(">")[1:]
    contigs = [(text.split()[0], "".join(text.split("\n")[1:])) for text in records]
    draw = random.Random(18)
    parts = [(f"c{k}", seq[:4000]) for k, (_, seq) in enumerate(contigs[:12])]
    (folder / "contigs.fna").write_text("".join(f">{name} x\n{seq}\n" for name, seq in parts))
    short = "".join(f">s{k}\n{seq[k * 90 : k * 90 + 60]}\n" for k, (_, seq) in enumerate(parts))
    (folder / "short.fna").write_text(f"{short}>nothing\n{'ACGT' * 9}\n")
    with (folder / "r1.fq").open("w") as first, (folder / "r2.fq").open("w") as second:
        for k in range(300):
            seq = draw.choice(parts)[1]
            at = draw.randrange(max(1, len(seq) - 400))
            for file, read in ((first, seq[at : at + 100]), (second, _reverse(seq[at + 150 : at + 250]))):
                read = "".join(draw.choice("ACGT") if draw.random() < 0.02 else base for base in read)
                quality = "".join(chr(33 + draw.randrange(2, 41)) for _ in read)
                file.write(f"@read{k} {k}\n{read}\n+\n{quality}\n")
    make_variants(folder / "v.vcf")
    (folder / "names").write_text("s1\n")
    (folder / "places").write_text("1\t200\t900\n")
    (folder / "u.bcf").write_bytes(b"BCF\2\2")
    (folder / "v.bcf").write_bytes(gzip.compress(b"BCF\2\2"))
    for name in ("families", "aligned", "genomes"):
        (folder / name).mkdir()
    for k in range(3):
        seq = parts[k][1][:120]
        several = ["".join(draw.choice("ACGT") if draw.random() < 0.2 else base for base in seq) for _ in range(5)]
        (folder / "aligned" / f"{'abc'[k]}.fa").write_text(
            "".join(f">s{n}\n{each}\n" for n, each in enumerate(several))
        )
        cut = "".join(f">s{n}\n{each[n:]}\n" for n, each in enumerate(several))
        (folder / "families" / f"f{k}.fa").write_text(cut)
        (folder / "genomes" / f"g{k}.fa").write_text(f">g{k}\n{contigs[k][1][:20000]}\n")


def _reverse(seq: str) -> str:
    return seq.upper().translate(str.maketrans("ACGT", "TGCA"))[::-1]


@pytest.fixture
def sample(shell: Shell, data: Path, session_folder: Path) -> Iterator[Shell]:
    made = once(session_folder / "described", lambda folder: _make(data, folder))
    shutil.copytree(made, shell.work, dirs_exist_ok=True)
    yield shell


def needs(shell: Shell, line: str) -> None:
    program = line.split()[0]
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    if program == "bowtie2" and not (shell.work / "bt.1.bt2").exists():
        assert shell.run("bowtie2-build -q contigs.fna bt").code == 0
    if program == "lastal" and not (shell.work / "ld.prj").exists():
        assert shell.run("lastdb ld contigs.fna; lastdb -s 10K many contigs.fna").code == 0


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize(
    "batch", ["7", pytest.param("1", marks=pytest.mark.slow), pytest.param("100", marks=pytest.mark.slow)]
)
def test_described_tool_writes_serial_bytes(sample: Shell, name: str, batch: str) -> None:
    line, outputs, stdin = ALIKE[name]
    needs(sample, line)
    source = f" < {stdin}" if stdin else ""
    ended = sample.run(f"{line}{source} > stdout")
    assert ended.code == 0, ended.shown
    serial = {each: (sample.work / each).read_bytes() for each in (*outputs, "stdout")}
    assert any(serial.values())
    for each in serial:
        (sample.work / each).unlink()
    if batch == "7" and "r1.fq" in line + stdin:
        batch = "150"
    form = "--format fastq" if stdin == "r1.fq" else ""
    ended = sample.run(f"millrace run --slots 2 --batch {batch} {form} -- {line}{source} > stdout")
    assert ended.code == 0, ended.shown
    assert f"not every option of {line.split()[0]} was compared: " in ended.err
    assert "all bytes equal" in ended.err or "all of the input was one task" in ended.err
    for each, wanted in serial.items():
        assert (sample.work / each).read_bytes() == wanted, each


@pytest.mark.parametrize("name", FAMILIES)
def test_each_file_of_a_folder_writes_its_serial_bytes(sample: Shell, name: str) -> None:
    line, folder = FAMILIES[name]
    needs(sample, line)
    files = sorted((sample.work / folder).iterdir())
    for file in files:
        ended = sample.run(line.format(file=f"{folder}/{file.name}", out=f"{file.stem}.serial"))
        assert ended.code == 0, ended.shown
    (sample.work / "out").mkdir()
    ended = sample.run(f"millrace run --slots 2 -- {line.format(file=folder, out='out/{stem}.txt')}")
    assert ended.code == 0, ended.shown
    for file in files:
        alone = (sample.work / f"{file.stem}.serial").read_bytes()
        assert alone and (sample.work / "out" / f"{file.stem}.txt").read_bytes() == alone


@pytest.mark.parametrize("line", REFUSED)
def test_inexact_command_is_refused_before_the_start(sample: Shell, line: str) -> None:
    needs(sample, line)
    ended = sample.run(f"millrace run -- {line}")
    assert ended.code == 2, ended.shown
    assert REFUSED[line] in ended.err, ended.shown


def test_read_that_bowtie2_leaves_out_is_set_aside(sample: Shell) -> None:
    """With a blank line behind it, alone in a task, bowtie2 makes no read of it, and ends with 0."""
    needs(sample, "bowtie2")
    sample.run("head -36 r1.fq > few.fq; echo >> few.fq; touch none.fq")
    ended = sample.run("millrace run --slots 2 --batch 4 -- bowtie2 --no-hd -x bt -U few.fq -S o")
    assert ended.code == 3 and "1 record quarantined" in ended.err, ended.shown
    assert (sample.work / "o").read_text().count("\n") == 8
    ended = sample.run("millrace run -- bowtie2 --no-hd -x bt -U none.fq -S none")
    assert ended.code == 0 and not (sample.work / "none").read_bytes(), ended.shown


def test_guess_from_the_first_reads_does_not_add_up(sample: Shell) -> None:
    """Why fastp's guesses are refused: its report counts, whatever else it does."""
    needs(sample, "fastp")
    sample.run("head -600 r1.fq > half.fq")
    for part in ("r1.fq", "half.fq"):
        assert sample.run(f"fastp -A -G --dont_eval_duplication -j {part}.json -h /dev/null -i {part} -o o").code == 0
    assert (sample.work / "r1.fq.json").read_bytes() != (sample.work / "half.fq.json").read_bytes()
