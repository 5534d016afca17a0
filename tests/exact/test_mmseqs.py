"""``mmseqs easy-search`` in batches gives the bytes of the serial command with ``--threads 1``."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from parameter_choice import some
from shell import Shell
from tool_batches import cut

#: A short k-mer: its index has 25 MB instead of 0.9 GB. With all letters, each start makes scores for four seconds.
ALL_LETTERS = "-k 5"
SHORT = f"{ALL_LETTERS} --alph-size aa:13,nucl:5"

#: Queries that a program could stumble on: empty, short, of nothing known, of one name, longer than MMseqs2 takes, odd letters.
IRREGULAR = [
    b">empty\n", b">short with words\nMA\n", b">unknown\nGSGSGSGSGSGSGSGSGS\n", b">same one\nMKVLAAGIVGLLLAQWERTYHISLPDK\n",
    b">same two\nMKVLAAGIVGLLLAQWERTYHISLPDKNNN\n", b">like_genes\nACGTACGTGGCCAATTACGATCGATGCATGCATGC\n", b">only_x\nXXXXXXXXXXXX\n",
    b">sp|P1|NAME words\tand a tab\nMKVLAAGIVGLLLAQWERTYHISLPDK*\n",
]  # fmt: skip


@pytest.fixture
def desk(shell: Shell, data: Path) -> Shell:
    """Targets of both kinds, queries of both kinds like some of them, and irregular ones."""
    if not shutil.which("mmseqs"):
        pytest.skip("no mmseqs")
    chance = random.Random(53)
    proteins = cut((data / "proteins_db.faa").read_bytes(), "fasta")
    genes = cut((data / "genes_db.fna").read_bytes(), "fasta")
    (shell.work / "t.faa").write_bytes(b"".join(proteins[:400]))
    (shell.work / "t.fna").write_bytes(b"".join(genes[:60]))
    queries = [mutate(each, 0.3, b"ACDEFGHIKLMNPQRSTVWY", chance) for each in chance.sample(proteins[:400], 62)]
    long = b"".join(map(letters, proteins[:9])) + bytes(chance.choices(b"ACDEFGHIKLMNPQRSTVWY", k=67_000))
    irregular = [*IRREGULAR, crlf(queries[3]), b">long\n" + long + b"\n"]
    queries += irregular
    chance.shuffle(queries)
    (shell.work / "q.faa").write_bytes(b"".join(queries))
    reads = [mutate(each, 0.08, b"ACGT", chance) for each in chance.sample(genes[:60], 30)]
    reads += [b">empty\n", b">short\nACGTAC\n", b">unknown\n" + b"ACGT" * 20 + b"\n", b">only_n\n" + b"N" * 60 + b"\n"]
    reads += [b">other_letters\nRYRYRYWSWSKMKMKMBDHV\n", b">long\n" + b"".join(map(letters, genes[:20])) + b"\n"]
    # The first ten are what MMseqs2 judges by.
    (shell.work / "q.fna").write_bytes(b"".join([*reads[:12], *chance.sample(reads[12:], len(reads) - 12)]))
    return shell


def letters(record: bytes) -> bytes:
    return b"".join(record.split(b"\n")[1:])


def mutate(record: bytes, share: float, alphabet: bytes, chance: random.Random) -> bytes:
    text = bytes(chance.choice(alphabet) if chance.random() < share else letter for letter in letters(record))
    return record.split(b"\n")[0] + b"\n" + text + b"\n"


def crlf(record: bytes) -> bytes:
    return record.replace(b"\n", b"\r\n")


def check(desk: Shell, line: str, *options: str, inner: str = "") -> bytes:
    """Compare ``mmseqs easy-search LINE`` with its serial run; return what that writes."""
    done = desk.run(f"mmseqs easy-search {line.replace('OUT', 'serial')} --threads 1 -v 1")
    assert done.code == 0, done.shown
    serial = (desk.work / "serial").read_bytes()
    for option in options:
        (desk.work / "ours").unlink(missing_ok=True)
        done = desk.run(
            f"millrace run --fresh {option} -- mmseqs easy-search {line.replace('OUT', 'ours')} {inner} -v 1"
        )
        assert done.code == 0, done.shown
        assert (desk.work / "ours").read_bytes() == serial, f"{option}: {done.shown}"
    return serial


def keep_first(desk: Shell, name: str, n_records: int) -> None:
    records = cut((desk.work / name).read_bytes(), "fasta")
    (desk.work / name).write_bytes(b"".join(records[:n_records]))


@pytest.mark.parametrize(
    "options",
    some(
        [
            "", "--format-mode 4", "--format-mode 2", "-s 1", "-s 5.45", "-s 7.5 --max-seqs 20 -e 10",
            "--format-output query,target,evalue,gapopen,pident,fident,nident,qstart,qend,qlen,tstart,tend,tlen,alnlen,raw,bits,cigar,"
            "qseq,tseq,qheader,theader,qaln,taln,qframe,tframe,mismatch,qcov,tcov,empty",
            "-c 0.8 --cov-mode 1 --min-seq-id 0.3", "--alt-ali 3 -e 100", "--greedy-best-hits", "--start-sens 1 --sens-steps 3 -s 7",
            "--mask 0 --comp-bias-corr 0 --spaced-kmer-mode 0", "--max-accept 2 --max-rejected 5", "--realign 1", "--alignment-mode 4",
            "-a", "--max-seqs 2 -e 1000", "--diag-score 0 --max-seqs 5", "--mask-lower-case 1 --mask-prob 0.8", "--max-seq-len 200",
            "--sub-mat aa:VTML80.out,nucl:nucleotide.out", "--alph-size aa:13,nucl:5", "--exact-kmer-matching 1",
            "--k-score seq:100,prof:80", "--min-ungapped-score 30 --score-bias 0.5 --min-aln-len 50 --seq-id-mode 1", "--shuffle 0",
            "--format-mode 4 --format-output query,target,evalue --shuffle 1", "--format-mode 4 --alph-size aa:13,nucl:5",
        ],
        "--format-mode 4 --alph-size aa:13,nucl:5",
    ),
)  # fmt: skip
def test_protein_search_writes_serial_bytes(desk: Shell, options: str) -> None:
    assert check(desk, f"q.faa t.faa OUT tmp {ALL_LETTERS} {options}", "--batch 37")


@pytest.mark.parametrize("n_records", some([33, 1, 2, 31, 32, 64, 65], 33, 1))
def test_any_number_of_queries_is_in_serial_order(desk: Shell, n_records: int) -> None:
    keep_first(desk, "q.faa", n_records)
    check(desk, f"q.faa t.faa OUT tmp {SHORT} -e 1000", "--batch 7", inner="--threads 2")


def test_batches_of_one_and_of_their_own_size(desk: Shell) -> None:
    serial = check(desk, f"q.faa t.faa OUT tmp {SHORT} -e 1000", "--batch 1", "")
    names = [row.split(b"\t")[0] for row in serial.splitlines()]
    assert len({*names}) > 40 and (desk.work / "tmp").is_dir()


@pytest.mark.parametrize(
    "line",
    some(
        [
            f"q.fna t.faa OUT tmp {SHORT}",
            f"q.fna t.faa OUT tmp {SHORT} --translation-table 11 --min-length 10 --orf-start-mode 0 --forward-frames 1 "
            "--format-output query,target,qframe,qorfstart,qorfend,bits,qstart,qend",
            f"q.faa t.fna OUT tmp {SHORT}",
            f"q.fna t.fna OUT tmp --search-type 2 {SHORT}",
            f"q.fna t.fna OUT tmp --search-type 4 {SHORT} --format-output query,target,cigar,tseq,qorfstart,qaln",
        ],
        f"q.fna t.faa OUT tmp {SHORT}",
        f"q.fna t.fna OUT tmp --search-type 2 {SHORT}",
    ),
)
def test_nucleotide_search_writes_serial_bytes(desk: Shell, line: str) -> None:
    check(desk, line, "--batch 5")


@pytest.mark.slow
@pytest.mark.parametrize("queries", ["q.fna", "q.faa"])
def test_nucleotides_in_batches_of_one(desk: Shell, queries: str) -> None:
    keep_first(desk, queries, 24)
    check(desk, f"{queries} t.faa OUT tmp {SHORT} -e 1000", "--batch 1")
    check(desk, f"{queries} t.fna OUT tmp -k 5 --search-type 2 -e 1000", "--batch 1")


@pytest.mark.slow
def test_default_kmer_writes_serial_bytes(desk: Shell) -> None:
    check(desk, "q.faa t.faa OUT tmp", "--batch 40")


def test_kind_of_queries_is_that_of_the_whole_file(desk: Shell) -> None:
    """A batch of peptides that look like genes is searched as proteins, and genes with other letters as genes."""
    peptides = [b">p%d\nGATTACAGATTACANNGATTACAGATTACA\n" % number for number in range(40)]
    records = cut((desk.work / "q.faa").read_bytes(), "fasta")
    (desk.work / "q.faa").write_bytes(b"".join([*records[:3], *peptides, *records[3:9]]))
    (desk.work / "t.faa").write_bytes(
        (desk.work / "t.faa").read_bytes() + b">gat\n" + b"GATTACAGATTACANNGATTACAGATTACA\n"
    )
    assert b"\tgat\t" in check(
        desk, f"q.faa t.faa OUT tmp {SHORT} -e 1000 --mask 0 --comp-bias-corr 0 --min-ungapped-score 0", "--batch 9"
    )


@pytest.mark.parametrize("index", ["", f"mmseqs createindex db tmp2 {SHORT} -v 1 >/dev/null"], ids=["plain", "indexed"])
def test_target_database_is_used_as_it_is(desk: Shell, index: str) -> None:
    done = desk.run(f"mmseqs createdb t.faa db -v 1 && {index or 'true'}")
    assert done.code == 0, done.shown
    check(desk, f"q.faa db OUT tmp {SHORT}", "--batch 40")


def test_database_may_not_say_how_nucleotides_are_searched(desk: Shell) -> None:
    """An index that was made for a search of nucleotides makes that the search of a command without ``--search-type``."""
    ended = desk.run(
        "mmseqs createdb t.fna db -v 1 >/dev/null; mmseqs createindex db tmp2 --search-type 3 -k 11 -v 1 >/dev/null; "
        "millrace run -- mmseqs easy-search q.fna db out tmp"
    )
    assert ended.code == 2 and "how to search them is not said" in ended.err, ended.shown


def test_query_file_is_its_own_target(desk: Shell) -> None:
    keep_first(desk, "q.faa", 40)
    check(desk, f"q.faa q.faa OUT tmp {SHORT}", "--batch 9")


def test_compressed_files_are_read(desk: Shell) -> None:
    assert desk.run("gzip -k q.faa t.faa").code == 0
    check(desk, f"q.faa.gz t.faa.gz OUT tmp {SHORT}", "--batch 23")


def test_folder_for_temporary_files_is_each_tasks_own(desk: Shell) -> None:
    """Files that an earlier search left there, which MMseqs2 itself would go on with, are not taken."""
    line = f"mmseqs easy-search q.faa t.faa ours {desk.work}/tmp {SHORT} -v 1"
    done = desk.run(f"millrace run --batch 23 -- {line}")
    assert done.code == 0 and not (desk.work / "tmp").exists(), done.shown
    assert "which is no output" not in done.err


@pytest.mark.slow
def test_resumed_run_writes_serial_bytes(desk: Shell) -> None:
    """A run whose tool is killed again and again goes on where it was."""
    line = f"mmseqs easy-search q.faa t.faa OUT tmp {SHORT} -v 1"
    done = desk.run(f"{line.replace('OUT', 'serial')} --threads 1")
    assert done.code == 0, done.shown
    command = f"millrace run --batch 5 -- {line.replace('OUT', 'ours')}"
    for seconds in (1, 2, 3):
        desk.run(f"timeout -s KILL {seconds} {command}")
    done = desk.run(command)
    assert done.code == 0, done.shown
    assert (desk.work / "ours").read_bytes() == (desk.work / "serial").read_bytes()


def test_database_that_cannot_be_made_ends_the_run(desk: Shell) -> None:
    done = desk.run("millrace run -- mmseqs easy-search q.faa t.faa ours tmp -k 4")
    assert done.code not in (0, 3) and "no database was made of it" in done.err, done.shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("easy-cluster q.faa out tmp", "compares all sequences with each other"),
        ("easy-linclust q.faa out tmp", "compares all sequences with each other"),
        ("easy-rbh q.faa t.faa out tmp", "best hits of both sides"),
        ("easy-linsearch q.fna t.fna out tmp", "was not compared"),
        ("easy-taxonomy q.faa t.faa out tmp", "was not compared"),
        ("search qdb tdb out tmp", "works on databases"),
        ("easy-search q.faa t.faa out", "needs queries, a target, an output and a folder"),
        ("easy-search q.faa q.fna t.faa out tmp", "2 files of queries"),
        ("easy-search stdin t.faa out tmp", "needs a file"),
        ("easy-search none t.faa out tmp", "no such file"),
        ("easy-search q.faa none out tmp", "neither a database nor a file"),
        ("easy-search q.faa t.faa /dev/stdout tmp", "is no file"),
        ("easy-search empty.faa t.faa out tmp", "empty.faa has no sequence"),
        ("easy-search blank.faa t.faa out tmp --dbtype 1", "blank.faa has no sequence"),
        ("easy-search q.faa blank.faa out tmp", "blank.faa has no sequence"),
        ("easy-search q.faa t.faa out tmp -c 2", "does not take these options: Error in argument -c"),
        ("easy-search q.faa t.faa out tmp --sub-mat aa:none.out", "--sub-mat none.out: no such file"),
        ("easy-search q.fna t.fna out tmp", "add --search-type 2"),
        ("easy-search q.fna t.fna out tmp --search-type 3", "other scores after other queries"),
        ("easy-search q.faa t.faa out tmp --num-iterations 2", "searches with profiles"),
        ("easy-search q.faa t.faa out tmp --format-mode 1", "lists the targets"),
        ("easy-search q.faa t.faa out tmp --format-mode 3", "cannot be joined"),
        ("easy-search q.faa t.faa out tmp --format-output query,qset", "column qset"),
        ("easy-search q.faa t.faa out tmp --split 2", "splits the target"),
        ("easy-search q.faa t.faa out tmp --split-memory-limit 1G", "splits the target"),
        ("easy-search q.faa t.faa out tmp --db-output", "writes a database"),
        ("easy-search q.faa t.faa out tmp --remove-tmp-files 0", "keeps the files"),
        ("easy-search q.faa t.faa out tmp -e 1 -e 2", "given twice"),
        ("easy-search q.faa t.faa out tmp -e", "needs a value"),
        ("easy-search q.faa t.faa out tmp -s high", "-s needs a number"),
        ("easy-search q.faa t.faa out tmp --no-such-option 1", "not known to millrace"),
    ],
)
def test_what_is_not_exact_is_refused(desk: Shell, line: str, words: str) -> None:
    (desk.work / "empty.faa").touch()
    (desk.work / "blank.faa").write_text("\nno record\n")
    ended = desk.run(f"millrace run -- mmseqs {line}")
    assert ended.code == 2 and words in ended.err, ended.shown
    assert "hint:" in ended.err and not (desk.work / "out").exists()
