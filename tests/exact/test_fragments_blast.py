"""BLAST in fragments of the database writes the bytes of the search of the whole."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from exact_cases import records
from fragment_driver import command_of, in_fragments, serial, why_not
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from parameter_choice import again, some
from session_resources import once
from tool_batches import need, understand

from millrace.adapters.blast import fragments

pytestmark = pytest.mark.skipif(shutil.which("blastp") is None, reason="BLAST+ is not installed")

FORMATS = ("0", "5", "6", "7", "8", "10", "12", "15", "16", "18", "7 qaccver saccver score sallseqid qcovs")
LIMITS = (1, 5, 25, 500, 5000)
#: One below the number of copies, one in the middle, one above all.
FEW_LIMITS = (1, 25, 5000)


def make(folder: Path, name: str, text: bytes, *options: str, kind: str = "prot") -> None:
    """A database ``name`` of the records in ``text``."""
    (folder / f"{name}.in").write_bytes(text)
    command = ["makeblastdb", "-in", f"{name}.in", "-dbtype", kind, "-out", name, "-title", f"all of {name}", *options]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def make_taxonomy(folder: Path, parents: dict[int, int]) -> None:
    """What BLAST+ from 2.15 on needs for lists of taxa, as NCBI's file of that name; earlier ones do not look at it."""
    with closing(sqlite3.connect(folder / "taxonomy4blast.sqlite3")) as base, base:
        base.execute("CREATE TABLE TaxidInfo (taxid INTEGER PRIMARY KEY, parent INTEGER)")
        base.execute("CREATE INDEX TaxidInfoCompositeIdx_parent ON TaxidInfo (parent, taxid)")
        base.executemany("INSERT INTO TaxidInfo VALUES (?, ?)", parents.items())


def knows_below(program: str) -> bool:
    """Whether the BLAST+ that is installed takes a taxon for all below it."""
    return "no_taxid_expansion" in subprocess.run([need(program), "-help"], capture_output=True, text=True).stdout


def named(record: bytes, name: bytes) -> bytes:
    return b">" + name + b"\n" + record.partition(b"\n")[2]


@pytest.fixture(scope="module")
def place(data: Path, session_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with databases of all kinds and queries."""
    made = once(session_folder / "fragments-blast", lambda folder: make_place(folder, data))
    folder = shutil.copytree(made, tmp_path_factory.mktemp("fragments") / "place")
    alias = ["blastdb_aliastool", "-dbtype", "prot"]
    for more in (
        ["-dblist", "plain many", "-out", "both", "-title", "two of them"],
        ["-dblist", f"both {folder}/elsewhere/away", "-out", "nested", "-title", "an alias of an alias"],
        ["-db", "ids", "-seqidlist", "few", "-out", "listed", "-title", "a list"],
    ):
        subprocess.run([*alias, *more], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    yield folder
    shutil.rmtree(folder)


def make_place(folder: Path, data: Path) -> None:
    """Make what does not depend on the folder's name."""
    ids = {record[1:].split()[0]: record for record in records(data / "proteins_db.faa")}
    proteins = list(ids.values())[::28]
    queries = records(data / "proteins_queries.faa")
    # Some entries of the database are among the queries' kin, so that there is something to find.
    (folder / "q.faa").write_bytes(b"".join([*queries[20:23], *proteins[100:104]]))
    (folder / "q3.faa").write_bytes(b"".join([queries[22], *proteins[100:102]]))
    text = b"".join(proteins)
    make(folder, "plain", text)
    make(folder, "many", text, "-max_file_sz", "50000B")
    make(folder, "ids", text, "-parse_seqids")
    make(folder, "old", text, "-blastdb_version", "4")
    make(folder, "old_ids", text, "-blastdb_version", "4", "-parse_seqids")
    copies = [named(record, b"copy%d.%d" % (n, i)) for n, record in enumerate(proteins[100:104]) for i in range(40)]
    twins = [*proteins[::3], *copies]
    random.Random(5).shuffle(twins)
    make(folder, "twins", b"".join(twins))
    genes = records(data / "genes_db.fna")
    make(folder, "genes", b"".join(genes[::12]), "-max_file_sz", "60000B", kind="nucl")
    (folder / "q.fna").write_bytes(b"".join(genes[0:120:20]))
    (folder / "q2.fna").write_bytes(b"".join(genes[0:12:6]))
    gene = genes[6]
    letters = bytearray(gene.partition(b"\n")[2].replace(b"\n", b""))
    unclear = []
    for n in range(60):
        copy = bytearray(letters)
        for at in random.Random(n).sample(range(len(copy)), 3 + n % 20):
            copy[at] = ord("N")
        unclear.append(b">unclear%d\n%s\n" % (n, bytes(copy)))
    make(folder, "unclear", b"".join([*genes[1:300:6], *unclear]), kind="nucl")
    (folder / "few").write_bytes(b"".join(name + b"\n" for name in list(ids)[::42]))
    (folder / "taxa").write_bytes(b"".join(b"%s %d\n" % (name, n % 3 + 1) for n, name in enumerate(ids)))
    make(folder, "taxed", text, "-parse_seqids", "-taxid_map", "taxa")
    (folder / "taxid").write_text("2\n")
    make_taxonomy(folder, {1: 0, 2: 0, 3: 1})
    gis = b"".join(named(record, b"gi|%d|gb|AAA%05d.1| x" % (n, n)) for n, record in enumerate(proteins, 1))
    make(folder, "gis", gis, "-parse_seqids", "-blastdb_version", "4")
    (folder / "few_gis").write_text("".join(f"{n}\n" for n in range(1, len(proteins), 5)))
    coded = [named(record, b"g%d.1" % n) for n, record in enumerate(genes[::6])]
    make(folder, "coded", b"".join(coded), "-parse_seqids", "-max_file_sz", "60000B", kind="nucl")
    (folder / "few_genes").write_text("".join(f"g{n}.1\n" for n in range(0, len(coded), 3)))
    (folder / "elsewhere").mkdir()
    make(folder / "elsewhere", "away", b"".join(proteins[::2]))


def check(place: Path, folder: Path, text: str, n: int = 3, size: int = 5, **more: object) -> bytes:
    """Compare a command in fragments with itself; its output."""
    command = command_of(text.split() if isinstance(text, str) else text, place)
    whole = serial(command)
    assert in_fragments(command, n, size, folder, **more) == whole  # type: ignore[arg-type]
    return whole


@pytest.mark.parametrize(
    ("queries", "n", "size", "evalue"),
    [("q3.faa", 3, 2, "1e-3"), again("q3.faa", 3, 2, "10"), again("q.faa", 3, 4, "10"), again("q.faa", 16, 7, "10")],
)
def test_every_format_is_that_of_the_whole(
    queries: str, n: int, size: int, evalue: str, place: Path, tmp_path: Path
) -> None:
    found: dict[object, list[bytes]] = {}
    for number, outfmt in enumerate(FORMATS):
        arguments = ["blastp", "-query", queries, "-db", "many", "-evalue", evalue, "-outfmt", outfmt]
        command = command_of(arguments, place)
        assert in_fragments(command, n, size, tmp_path / str(number), found) == serial(command), outfmt
    assert len(found) == -(-len(records(place / queries)) // size)


@pytest.mark.parametrize(
    ("mode", "limits", "evalue"), [("2", FEW_LIMITS, "1e-3"), *(again(mode, LIMITS, "10") for mode in "0123")]
)
def test_limits_and_ties_of_copies(
    mode: str, limits: tuple[int, ...], evalue: str, place: Path, tmp_path: Path
) -> None:
    found: dict[object, list[bytes]] = {}
    for limit in limits:
        text = f"blastp -query q3.faa -db twins -outfmt 7 -comp_based_stats {mode} -max_target_seqs {limit}"
        check(place, tmp_path / str(limit), f"{text} -evalue {evalue}", n=7, size=2, found=found)


@pytest.mark.parametrize("evalue", ["1e-30", again("1e-3"), again("1000")])
def test_thresholds(evalue: str, place: Path, tmp_path: Path) -> None:
    check(place, tmp_path, f"blastp -query q3.faa -db twins -outfmt 5 -evalue {evalue}", n=7)


@pytest.mark.parametrize(
    "text",
    [
        "blastn -query q.fna -db genes",
        "blastn -task dc-megablast -query q.fna -db genes -evalue 0.01",
        "blastn -task blastn -query q2.fna -db genes -outfmt 5",
        "blastn -task blastn-short -query q2.fna -db unclear -outfmt 7 -evalue 1e-5",
        *(f"blastn -query q2.fna -db unclear -outfmt 7 -max_target_seqs {limit}" for limit in (1, 500)),
        *(again(f"blastn -query q2.fna -db unclear -outfmt 7 -max_target_seqs {limit}") for limit in (5, 25, 5000)),
        "blastn -query q.fna -db unclear -outfmt 7 -perc_identity 95 -qcov_hsp_perc 50 -max_hsps 1",
        again("blastp -task blastp-fast -query q3.faa -db many -outfmt 7"),
        "blastp -task blastp-short -query q3.faa -db many -outfmt 7 -evalue 1",
        "psiblast -query q3.faa -db many -outfmt 0",
    ],
)
def test_programs(text: str, place: Path, tmp_path: Path) -> None:
    assert b"\n" in check(place, tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "blastx -query q2.fna -db many -outfmt 5",
        "tblastn -query q3.faa -db genes -outfmt 0",
        "tblastx -query q2.fna -db unclear -outfmt 7 -evalue 1e-3",
    ],
)
def test_translations_in_whole_passes(text: str, place: Path, tmp_path: Path) -> None:
    check(place, tmp_path, text, size=1000)


@pytest.mark.parametrize(
    "database",
    some(
        ["plain", "ids", "old", "old_ids", "both", "nested", "elsewhere/away", "both elsewhere/away"],
        "ids",
        "nested",
        "both elsewhere/away",
    ),
)
def test_databases_of_all_kinds(database: str, place: Path, tmp_path: Path) -> None:
    outfmt = "15" if " " in database else "0"
    command = command_of(["blastp", "-query", "q3.faa", "-db", database, "-outfmt", outfmt], place)
    assert in_fragments(command, 3, 2, tmp_path) == serial(command)


def test_a_database_on_the_search_path(place: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "BLASTDB": str(place / "elsewhere")}
    command = command_of(["blastp", "-query", "q3.faa", "-db", "away"], place, environ)
    assert in_fragments(command, 3, 2, tmp_path) == serial(command)


@pytest.mark.parametrize(
    "options",
    [
        again("-db many -culling_limit 1"),
        again("-db twins -culling_limit 2 -max_target_seqs 5"),
        "-db twins -best_hit_overhang 0.2 -best_hit_score_edge 0.1",
        "-db twins -subject_besthit -max_hsps 1",
        again("-db many -dbsize 1000000"),
        again("-db many -searchsp 10000000"),
        "-db many -ungapped -comp_based_stats F",
        again("-db many -use_sw_tback -seg yes -soft_masking true"),
        again("-db many -word_size 2 -xdrop_gap 40"),
        "-db many -comp_based_stats 9 -evalue 1",
    ],
)
def test_options(options: str, place: Path, tmp_path: Path) -> None:
    size = 1000 if "ungapped" in options else 2
    check(place, tmp_path, f"blastp -query q3.faa -outfmt 7 {options}", size=size)


def test_masks_in_the_database(place: Path, tmp_path: Path) -> None:
    for command in (
        "segmasker -in plain -infmt blastdb -parse_seqids -outfmt maskinfo_asn1_bin -out seg.asnb",
        "makeblastdb -in plain -input_type blastdb -dbtype prot -mask_data seg.asnb -out masked -title masked",
    ):
        subprocess.run(command.split(), cwd=place, check=True, capture_output=True)
    for mask in ("-db_soft_mask", "-db_hard_mask"):
        check(place, tmp_path / mask, f"blastp -query q3.faa -db masked -outfmt 0 {mask} 21")


@pytest.mark.parametrize(
    "options",
    [
        again("-db ids -seqidlist few -outfmt 6"),
        again("-db taxed -seqidlist few -outfmt 0"),
        again("-db taxed -negative_seqidlist few -outfmt 5 -max_target_seqs 5"),
        again("-db taxed -taxids 2 -outfmt 7 -evalue 1000"),
        again("-db taxed -taxids 3,1 -outfmt 15 -comp_based_stats 0"),
        again("-db taxed -taxidlist taxid -outfmt 6 -comp_based_stats 1"),
        again("-db taxed -taxids 1 -outfmt 6"),
        again("-db taxed -negative_taxids 1,3 -outfmt 16"),
        "-db taxed -negative_taxidlist taxid -outfmt 7 -evalue 1e-3",
        again("-db gis -gilist few_gis -outfmt 0"),
        again("-db gis -negative_gilist few_gis -outfmt 5"),
        "-db old_ids -seqidlist few -outfmt 7",
    ],
)
def test_lists_of_entries(options: str, place: Path, tmp_path: Path) -> None:
    assert b"\n" in check(place, tmp_path, f"blastp -query q3.faa {options}", n=3, size=2)


@pytest.mark.parametrize(
    "text",
    [
        again("blastn -query q.fna -db coded -seqidlist few_genes -outfmt 5"),
        again("blastn -task blastn -query q2.fna -db coded -negative_seqidlist few_genes -outfmt 0 -evalue 1000"),
        "tblastn -query q3.faa -db coded -seqidlist few_genes -outfmt 7",
        "blastx -query q2.fna -db taxed -negative_taxids 2 -outfmt 7",
    ],
)
def test_lists_of_entries_of_other_programs(text: str, place: Path, tmp_path: Path) -> None:
    check(place, tmp_path, text, n=3, size=1000 if "blastn" not in text[:6] else 3)


def test_a_list_of_taxa_depends_on_the_taxonomy(place: Path) -> None:
    taxonomy = place / "taxonomy4blast.sqlite3"
    for option, depends in (("-taxids 2", True), ("-negative_taxidlist taxid", True), ("-seqidlist few", False)):
        use = understand(f"blastp -query q.faa -db taxed -outfmt 6 {option}".split(), place)
        assert (taxonomy in use.databases) == depends


@pytest.mark.slow
def test_taxa_alone_and_with_those_below(place: Path, tmp_path: Path) -> None:
    text = "blastp -query q3.faa -db taxed -outfmt 6 -taxids 1"
    bare = shutil.copytree(place, tmp_path / "bare")
    (bare / "taxonomy4blast.sqlite3").unlink()
    if not knows_below("blastp"):
        check(bare, tmp_path / "each", text, n=4, size=2)
        return
    # Without its taxonomy BLAST warns, and searches all; what blastdbcmd lists is something else.
    assert "requires additional data files" in why_not(command_of(text.split(), bare))
    for folder in (place, bare):
        check(folder, tmp_path / f"alone-{folder.name}", f"{text} -no_taxid_expansion", n=4, size=2)


def test_list_without_all_names_of_an_entry_is_refused(place: Path, tmp_path: Path) -> None:
    """BLAST shows those alone that the list has."""
    [first, second, *_] = records(place / "plain.in")
    twins = b">twin.1 first\x01twin.2 second\n" + first.partition(b"\n")[2]
    make(tmp_path, "db", twins + second, "-parse_seqids")
    shutil.copy(place / "q3.faa", tmp_path)
    for names in ("twin.2", "twin.1 twin.2"):
        (tmp_path / "some").write_text("\n".join([*names.split(), ""]))
        for option in ("-seqidlist", "-negative_seqidlist"):
            line = f"blastp -query q3.faa -db db {option} some"
            assert ("not named by all of them" in why_not(command_of(line.split(), tmp_path))) == (names == "twin.2")


@pytest.mark.slow
def test_list_names_entries_in_every_form(place: Path, tmp_path: Path) -> None:
    proteins = records(place / "plain.in")
    text = b"".join(named(record, b"gb|AAA%05d.1| x" % n) for n, record in enumerate(proteins))
    make(tmp_path, "db", text, "-parse_seqids")
    shutil.copy(place / "q3.faa", tmp_path)
    forms = ("aaa{:05}.1", "gb|AAA{:05}.1|", ">AAA{:05}.1 words behind it", "Aaa{:05}", "lcl|AAA{:05}.1", "AAA{:05}.7", "\tAAA{:05}.1\r",
             "# AAA{:05}.1", "AAA{:05}.1 AAA00001.1 # not this: AAA00002.1", "gi|{}|gb|AAA{:05}.1|")  # fmt: skip
    lines = [forms[n % len(forms)].format(n, n) for n in range(0, len(proteins), 2)]
    (tmp_path / "some").write_text("\n".join(lines))
    convert = ["blastdb_aliastool", "-seqid_file_in", "some", "-seqid_file_out", "converted"]
    subprocess.run(convert, cwd=tmp_path, check=True, capture_output=True)
    for n, option in enumerate(("-seqidlist some", "-negative_seqidlist some", "-seqidlist converted")):
        line = f"blastp -query q3.faa -db db -outfmt 0 {option}"
        assert b"AAA" in check(tmp_path, tmp_path / f"run{n}", line)


def test_full_list_makes_the_whole_fragment_a_candidate(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full list may lack a hit of the fragment."""
    monkeypatch.setattr(fragments, "_choose_limit", lambda options: 3)
    found: dict[object, list[bytes]] = {}
    for limit in FEW_LIMITS:
        text = f"blastp -query q3.faa -db twins -outfmt 7 -max_target_seqs {limit}"
        check(place, tmp_path / str(limit), text, found=found)
    # Lists of six cannot have told of all the copies that are found.
    assert all(block.count(b"<a href=#") <= 18 for blocks in found.values() for block in blocks)


def test_hit_missed_by_restricted_alignment_is_written(data: Path, tmp_path: Path) -> None:
    """A hit that BLAST finds at five times this E-value, and with restricted gaps misses at ten times."""
    [query] = [record for record in records(data / "proteins_queries.faa") if record.startswith(b">tr|Q4U0G5|")]
    (tmp_path / "q").write_bytes(query)
    entries = [record for record in records(data / "proteins_db.faa") if not record.startswith(b">O40955")]
    # Non-structural polyprotein p200 of a rubella virus, from UniProtKB/Swiss-Prot.
    make(tmp_path, "db", b"".join([*entries, *records(Path(__file__).with_name("distant.faa"))]))
    assert b"O40955" in check(tmp_path, tmp_path / "run", "blastp -query q -db db -outfmt 6 -evalue 1e-3")


def test_a_namesake_in_the_working_directory(place: Path, tmp_path: Path) -> None:
    """BLAST takes a volume there before the one whose whole path an alias names, as those of fragments do."""
    make(tmp_path, "plain", b"".join(records(place / "plain.in")[::-3]))
    shutil.copy(place / "q3.faa", tmp_path)
    line = f"blastp -query q3.faa -db {place}/plain -outfmt 6"
    command = command_of(line.split(), tmp_path)
    assert f"BLAST would take {tmp_path}/plain.pin" in why_not(command)
    run = [sys.executable, "-m", "millrace", "run", "-q", "--progress", "none", "--slots", "2"]
    refused = subprocess.run([*run, "--fragments", "3", "--", *line.split()], cwd=tmp_path, capture_output=True)
    assert refused.returncode == 2 and b"plain.pin" in refused.stderr and not refused.stdout
    done = subprocess.run([*run, "--batch", "2", "--", *line.split()], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == serial(command) != b""
    # Its own folder is no namesake, however it is called; nor is what an alias there stands for.
    assert why_not(command_of(line.split(), place)) == ""
    (tmp_path / "link").symlink_to(place)
    assert why_not(command_of(line.split(), tmp_path / "link")) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("psiblast -query q3.faa -db plain -num_iterations 2", "iteration"),
        ("rpsblast+ -query q3.faa -db plain", "rpsblast"),
        ("blastp -query q3.faa -subject q.faa", "not a database"),
        ("blastp -query q3.faa -db ids -seqidlist few -ungapped -comp_based_stats F", "mean length"),
        ("blastp -query q3.faa -db ids -seqidlist no", "-seqidlist"),
        ("blastp -query q3.faa -db ids -ipglist few", "-ipglist"),
        ("blastp -query q3.faa -db listed", "SEQIDLIST"),
        ("blastp -query q3.faa -db plain -outfmt 11", "-outfmt 11"),
        ("blastn -query q2.fna -db genes -use_index true", "index"),
    ],
)
def test_unsupported_fragment_search_names_its_reason(text: str, why: str, place: Path) -> None:
    assert why in why_not(command_of(text.split(), place))


def test_databases_apart_in_format_0(place: Path) -> None:
    assert "alias" in why_not(command_of(["blastp", "-query", "q3.faa", "-db", "many plain"], place))


def test_an_alias_with_statistics_of_its_own(place: Path) -> None:
    (place / "stale.pal").write_text("TITLE stale\nDBLIST plain\nNSEQ 10\n")
    assert "counts" in why_not(command_of(["blastp", "-query", "q3.faa", "-db", "stale"], place))
    (place / "odd.pal").write_text("TITLE odd\nDBLIST plain\nSTATS_NSEQ 10\nSTATS_TOTLEN 100\n")
    assert "statistics" in why_not(command_of(["blastp", "-query", "q3.faa", "-db", "odd"], place))


LETTERS = "ARNDCQEGHILKMFPSTWYV"
#: Proteins that make trouble: copies, low complexity, one that is most of the database, nothing alike.
SEQUENCES = st.lists(
    st.one_of(
        st.tuples(st.just("query"), st.integers(1, 12)),
        st.tuples(st.just("cut"), st.integers(1, 5)),
        st.tuples(st.just("changed"), st.integers(1, 5)),
        st.tuples(st.just("poor"), st.integers(1, 3)),
        st.tuples(st.just("random"), st.integers(1, 5)),
        st.tuples(st.just("giant"), st.just(1)),
    ),
    min_size=1,
    max_size=8,
)


def adversary(parts: list[tuple[str, int]], seed: int) -> tuple[bytes, bytes]:
    """Queries and a database."""
    dice = random.Random(seed)
    query = "".join(dice.choices(LETTERS, k=dice.randrange(30, 200)))
    entries = []
    for kind, count in parts:
        for _ in range(count):
            changed = "".join(dice.choice(LETTERS) if dice.random() < 0.3 else letter for letter in query)
            entries.append({
                "query": query,
                "cut": query[dice.randrange(20) :][: dice.randrange(20, 100)],
                "changed": changed,
                "poor": dice.choice(LETTERS) * 80 + query[:40],
                "random": "".join(dice.choices(LETTERS, k=dice.randrange(10, 300))),
                "giant": changed + "".join(dice.choices(LETTERS, k=20_000)) + query,
            }[kind])  # fmt: skip
    dice.shuffle(entries)
    queries = f">q1\n{query}\n>q2\n{''.join(dice.choices(LETTERS, k=60))}\n>q3\n{query[::-1]}\n"
    return queries.encode(), "".join(f">entry{n}\n{text}\n" for n, text in enumerate(entries)).encode()


@pytest.mark.slow
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(
    parts=SEQUENCES,
    seed=st.integers(0, 2**32),
    n=st.sampled_from([2, 3, 7, 16]),
    size=st.integers(1, 3),
    limit=st.sampled_from(LIMITS),
    mode=st.sampled_from("0123"),
    evalue=st.sampled_from(["1e-30", "1e-3", "10", "1000"]),
)
@example(parts=[("query", 12)] * 8, seed=1, n=16, size=1, limit=1, mode="2", evalue="10")
def test_arbitrary_databases_are_searched_exactly(
    parts: list[tuple[str, int]], seed: int, n: int, size: int, limit: int, mode: str, evalue: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("adversary")
    queries, entries = adversary(parts, seed)
    (folder / "q.faa").write_bytes(queries)
    make(folder, "db", entries)
    options = f"-max_target_seqs {limit} -comp_based_stats {mode} -evalue {evalue} -outfmt 7"
    check(folder, folder / "run", f"blastp -query q.faa -db db {options}", n=n, size=size)


@pytest.mark.parametrize(
    "text",
    [
        again("blastp -query q.faa -db many -outfmt 0"),
        again("blastp -query q.faa -db nested -outfmt 5 -max_target_seqs 5"),
        again("blastp -query q.faa -db old_ids -outfmt 7"),
        "blastn -query q.fna -db genes -outfmt 16",
    ],
)
def test_the_command_line(text: str, place: Path, tmp_path: Path) -> None:
    need(text.split()[0])
    command = [sys.executable, "-m", "millrace", "run", "-q", "--progress", "none", "--run-dir", str(tmp_path / "run")]
    done = subprocess.run(
        [*command, "--fragments", "3", "--slots", "2", "--", *text.split()], cwd=place, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == serial(command_of(text.split(), place))


@pytest.mark.slow
@pytest.mark.parametrize(("program", "n", "size"), [("blastp", 3, 37), ("blastn", 7, 41)])
def test_three_hundred_real_queries(program: str, n: int, size: int, data: Path, tmp_path: Path) -> None:
    """The whole of the test data; some minutes of two cores."""
    if program == "blastp":
        queries, entries = records(data / "proteins_queries.faa")[:300], records(data / "proteins_db.faa")
    else:
        entries = records(data / "genes_db.fna")
        queries = entries[::9][:300]
    (tmp_path / "q").write_bytes(b"".join(queries))
    kind = "prot" if program == "blastp" else "nucl"
    make(tmp_path, "db", b"".join(entries), "-max_file_sz", "1000000B", kind=kind)
    found: dict[object, list[bytes]] = {}
    for outfmt in ("0", "5", "6", "7"):
        check(
            tmp_path, tmp_path / f"format{outfmt}", f"{program} -query q -db db -outfmt {outfmt}", n, size, found=found
        )
    for limit in (1, 5, 25, 5000):
        text = f"{program} -query q -db db -outfmt 7 -max_target_seqs {limit}"
        check(tmp_path, tmp_path / f"most{limit}", text, n, size, found=found if limit < 5000 else {})
