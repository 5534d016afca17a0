"""minimap2 in batches gives the bytes of one serial run."""

from __future__ import annotations

import gzip
import random
import re
from pathlib import Path

import pytest
from tool_batches import call, in_batches, need, understand

from millrace.core.errors import RefusedError

#: In one way of each kind; the others go the second.
SIZES = (1, 7, 25)


def make(folder: Path, data: Path) -> None:
    """A reference with repeats, and reads of all lengths: mapped, mapped twice, not mapped, and without a base."""
    dice = random.Random(3)
    contigs = [record.partition("\n") for record in (data / "contigs.fna").read_text().split(">")[-9:]]
    sequences = [sequence.replace("\n", "")[:20000] for _, _, sequence in contigs]
    repeat = sequences[0][:3000]
    (folder / "ref.fa").write_text("".join(f">t{k}\n{sequence}{repeat}\n" for k, sequence in enumerate(sequences)))
    with (folder / "reads.fa").open("w") as fasta, (folder / "reads.fq").open("w") as fastq:
        for k in range(40):
            source = dice.choice([*sequences, repeat])
            length = min(dice.choice((60, 150, 1000, 2500)), len(source))
            at = dice.randrange(len(source) - length + 1)
            read = "".join(dice.choice("ACGT") if dice.random() < 0.04 else base for base in source[at : at + length])
            if k % 9 == 0:
                read = "".join(dice.choices("ACGT", k=200))
            fasta.write(f">r{k} c{k}\n{read}\n" if k != 31 else ">empty\n")
            fastq.write(f"@r{k}\n{read}\n+\n{'I' * len(read)}\n")


@pytest.fixture(scope="module")
def mapping(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("minimap2")
    folder = tmp_path_factory.mktemp("minimap2")
    make(folder, data)
    call(["minimap2", "-d", "ref.mmi", "ref.fa"], folder)
    call(["minimap2", "-I", "30k", "-d", "parts.mmi", "ref.fa"], folder)
    return folder


@pytest.mark.parametrize(
    "options",
    [
        "", "-c", "-x map-ont", "-cx map-hifi --cs", "--cs=long -c", "-x asm20 -c", "-x splice -c", "-X", "-x ava-ont",
        "-K 500", "-t 1", "-t 4 -K1k", "--paf-no-hit", "-N 20 -p 0.1 --secondary=yes", "-P", "--seed 5", "-2", "--rmq=yes",
        "-f 0.5", "--q-occ-frac 0.1", "-a", "-ax map-ont", "-a -t 2 -K 500", "-ax sr --frag=no", "-a --MD --eqx -Y -L",
        "-a --sam-hit-only", "-aR @RG\\tID:a\\tSM:b",
    ],
)  # fmt: skip
def test_reads_join_exactly(mapping: Path, tmp_path: Path, options: str) -> None:
    sizes = SIZES if options in ("", "-a") else SIZES[1:2]
    check(mapping, tmp_path, ["minimap2", *options.split(), "../../ref.fa", "reads.fa"], sizes)


@pytest.mark.parametrize("line", ["-a -o out ../../ref.mmi reads.fa", "../../ref.mmi -oout reads.fa -c"])
def test_index_and_output_in_any_argument(mapping: Path, tmp_path: Path, line: str) -> None:
    check(mapping, tmp_path, ["minimap2", *line.split()])


def check(mapping: Path, tmp_path: Path, command: list[str], sizes: tuple[int, ...] = SIZES[1:2]) -> None:
    # Beside the batches, so that a relative path to the reference is the same for them.
    serial = tmp_path / "batches" / "serial"
    serial.mkdir(parents=True)
    for name in ("ref.fa", "ref.mmi"):
        (tmp_path / name).symlink_to(mapping / name)
    (serial / "reads.fa").write_bytes((mapping / "reads.fa").read_bytes())
    use = understand(command, serial)
    stdout, _ = call(command, serial)
    expected = stdout if use.outputs[0].stdout else (serial / "out").read_bytes()
    assert expected
    for size in sizes:
        joined = in_batches(use, (serial / "reads.fa").read_bytes(), size, tmp_path / "batches")
        assert joined[use.outputs[0].name] == expected, size


def test_documented_recipe_removes_the_lines_that_differ(mapping: Path, tmp_path: Path) -> None:
    """The serial and the parallel file differ without it."""
    docs = Path(__file__).resolve().parents[2] / "docs" / "exactness.md"
    recipe = re.search(r"^`(cmp <.*?)`", docs.read_text(), re.MULTILINE)
    assert recipe
    for name in ("serial.txt", "parallel.txt"):
        call(["minimap2", "-a", "-o", str(tmp_path / name), "ref.fa", "reads.fa"], mapping)
    assert (tmp_path / "serial.txt").read_bytes() != (tmp_path / "parallel.txt").read_bytes()
    call(["bash", "-c", recipe[1]], tmp_path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("parts.mmi reads.fa", "index in several parts"),
        ("-I 30k ref.fa reads.fa", "mapped in parts"),
        ("-x sr ref.fa reads.fa", "mates, which batches could part"),
        ("--frag=yes ref.fa reads.fa", "mates, which batches could part"),
        ("ref.fa reads.fa reads.fq", "one file after the other"),
        ("-d new.mmi ref.fa reads.fa", "writes the index"),
        ("--split-prefix=x ref.fa reads.fa", "several parts"),
        ("-x new-preset ref.fa reads.fa", "not known to map each read by itself"),
        ("-a ref.fa packed.fa.gz", "header of SAM shows its name"),
        ("--print-seeds ref.fa reads.fa", "--print-seeds is not known"),
        ("ref.fa", "needs a reference and reads"),
        ("none.fa reads.fa", "no such file"),
        ("ref.fa none.fa", "no such file"),
        ("-o - ref.fa reads.fa", "leave it out for standard output"),
    ],
)
def test_refused_before_anything_starts(mapping: Path, line: str, problem: str) -> None:
    (mapping / "packed.fa.gz").write_bytes(gzip.compress((mapping / "reads.fa").read_bytes()))
    with pytest.raises(RefusedError, match=problem):
        understand(["minimap2", *line.split()], mapping)


def test_reference_in_parts_is_mapped_part_by_part(mapping: Path) -> None:
    """Why it is refused: the rows of a read do not stand together."""
    rows = call(["minimap2", "ref.fa", "reads.fa"], mapping)[0], call(["minimap2", "parts.mmi", "reads.fa"], mapping)[0]
    names = [[line.split(b"\t")[0] for line in each.splitlines()] for each in rows]
    assert names[0] == sorted(names[0], key=lambda name: int(name[1:]))
    assert names[1] != sorted(names[1], key=lambda name: int(name[1:]))


def test_mates_in_one_file_affect_each_other(mapping: Path) -> None:
    """Why fragment mode with one file is refused."""
    reads = (mapping / "reads.fa").read_text().split(">")[2:4]
    mates = [f">same/{k}\n{read.partition(chr(10))[2]}" for k, read in enumerate(reads, start=1)]
    (mapping / "mates.fa").write_text("".join(mates))
    together = call(["minimap2", "-ax", "sr", "ref.fa", "mates.fa"], mapping)[0]
    (mapping / "mates.fa").write_text(mates[0])
    alone = call(["minimap2", "-ax", "sr", "ref.fa", "mates.fa"], mapping)[0]
    assert alone.splitlines()[-1] not in together.splitlines()


def test_reads_lost_with_status_0_are_a_failure(mapping: Path) -> None:
    reads = (mapping / "reads.fq").read_text()
    (mapping / "broken.fq").write_text(f"{reads}@x\nACGT\n+\nIIIIII\n")
    (mapping / "fewer.fq").write_text("".join(reads.splitlines(keepends=True)[:8]))
    for line in ("ref.fa broken.fq", "-x sr ref.fa reads.fq fewer.fq"):
        use = understand(["minimap2", *line.split()], mapping)
        said = call(["minimap2", *line.split()], mapping)[1]
        assert any(re.search(words.encode(), said) for words in use.failures_said), said
