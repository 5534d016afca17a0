"""``run --store``: what earlier searches found is not searched again, and the bytes are those of the serial search."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import storage_servers
from changed_databases import CHANGES, GeneMaker, SequenceMaker, make_database, write_records
from hidden_candidates import hide_candidates
from stored_runs import count_known, read_without_date
from tool_batches import cut, need

from millrace.adapters.adapter_base import QueryCandidates
from millrace.extensions.reuse.remote_store import open_remote_store
from millrace.extensions.reuse.search_store import SealedRows, encode_candidates, format_candidates
from millrace.extensions.reuse.store_seals import ChecksumSeal, find_seal, read_signature_seal

pytestmark = [pytest.mark.process, pytest.mark.skipif(shutil.which("blastp") is None, reason="BLAST+ is not installed")]


#: A search that takes a quarter of the time of the usual E-value.
SHALLOW = ("blastp", "-query", "q.faa", "-db", "march", "-evalue", "1e-3")


class StoreFolder:
    """A folder with queries ``q.faa``, databases and a store."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, "store"

    def fill_words(self, *command: str, slots: int = 2) -> list[str]:
        """Return the words that run a command with the store."""
        return [sys.executable, "-m", "millrace", "run", "--slots", str(slots), "--store", self.store, "--", *command]

    def run(self, *command: str, expect: int = 0) -> str:
        """Run a command with the store; return what it said."""
        done = subprocess.run(self.fill_words(*command), cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == expect, done.stderr
        return done.stderr

    def check(self, *command: str, known: int | None = None) -> str:
        """Run a command with the store and without Millrace, and compare; ``known``: queries that are not searched whole."""
        (self.folder / "ours").unlink(missing_ok=True)
        told = self.run(*command, "-out", "ours")
        subprocess.run([need(command[0]), *command[1:], "-out", "serial"], cwd=self.folder, check=True)
        assert (self.folder / "ours").read_bytes() == (self.folder / "serial").read_bytes()
        assert known is None or sum(count_known(told)) == known, told
        assert not list(self.folder.glob("*.millrace"))
        return told


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreFolder:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    maker = SequenceMaker(7)
    folder = tmp_path / "folder"
    folder.mkdir()
    entries = maker.make_entries(120)
    make_database(folder, "march", entries, "prot")
    april = maker.change_entries(maker.change_entries(entries, "change"), "add")
    make_database(folder, "april", april[::-1], "prot", ids=True)
    queries = [maker.make_relative() for _ in range(10)]
    write_records(folder / "q.faa", queries, "q")
    write_records(folder / "more.faa", [*queries[:4], maker.make_relative(), *queries[4:]], "m")
    return StoreFolder(folder)


def test_changed_database_is_searched_where_it_is_new(made: StoreFolder) -> None:
    made.check("blastp", "-query", "q.faa", "-db", "march", "-evalue", "1e-3", known=0)
    plan = [
        sys.executable,
        "-m",
        "millrace",
        "plan",
        "--store",
        "store",
        "--",
        "blastp",
        "-query",
        "more.faa",
        "-db",
        "april",
    ]
    told = subprocess.run(
        [*plan, "-evalue", "1e-3"], cwd=made.folder, capture_output=True, text=True, check=True
    ).stdout
    assert "store: 10 of 11 queries known, 116 of 124 entries known: 15.0% of the search is left" in told
    # One of the known queries is searched again, to see that nothing is missing.
    told = made.check("blastp", "-query", "q.faa", "-db", "april", "-evalue", "1e-3", known=9)
    assert "9 of 10 queries known, 116 of 124 entries known: 15.8% of the search is left" in told
    told = made.check("blastp", "-query", "more.faa", "-db", "april", "-evalue", "1e-5", "-outfmt", "7", known=9)
    assert "124 of 124 entries known" in told
    # Less deep than is kept is known, deeper is not.
    made.check("blastp", "-query", "q.faa", "-db", "april", "-evalue", "50", "-outfmt", "6", known=0)


@pytest.mark.slow
def test_search_that_is_not_kept_says_why_and_is_right(made: StoreFolder) -> None:
    told = made.check("blastp", "-query", "q.faa", "-db", "march", "-ungapped", "-comp_based_stats", "F")
    assert "store: " not in told
    told = made.check("blastp", "-query", "q.faa", "-db", "march", "-subject_besthit", "-soft_masking", "true")
    assert "store: not used" not in told
    for outfmt in "67":
        told = made.check("blastp", "-query", "q.faa", "-db", "march", "-dbsize", "90000", "-outfmt", outfmt, known=0)
        assert "store: " not in told
    genes = [GeneMaker(7).make_relative() for _ in range(3)]
    for n in (2, 3):
        write_records(made.folder / "genes.fna", genes[:n], "g")
        told = made.check("blastx", "-query", "genes.fna", "-db", "march", "-outfmt", "6")
    assert "store: not used" not in told
    plan = [sys.executable, "-m", "millrace", "plan", "--store", "store", "--", "blastx", "-query", "genes.fna"]
    told = subprocess.run([*plan, "-db", "march"], cwd=made.folder, capture_output=True, text=True, check=True).stdout
    assert "candidates are not kept: blastx judges sums of hits" in told
    for words in ((), ("-sum_stats", "true")):
        made.check("psiblast", "-query", "q.faa", "-db", "march", *words)
        told = made.check("psiblast", "-query", "q.faa", "-db", "april", *words)
        assert ("store: 9 of 10 queries known, 116 of 124 entries known" in told) == (not words)


def test_kept_candidates_do_not_get_deeper_by_use(made: StoreFolder) -> None:
    """Each search may go twice as deep as the one before, but not twice as deep as what was kept in the beginning."""
    for evalue in ("2", "4", "8", "16"):
        made.check(
            "blastp", "-query", "q.faa", "-db", "march", "-evalue", evalue, "-outfmt", "6", "-comp_based_stats", "0"
        )


def test_lost_candidates_are_noticed_and_dropped(made: StoreFolder) -> None:
    search = (*SHALLOW, "-outfmt", "6")
    made.check(*search)
    hide_candidates(made.folder / "store", ChecksumSeal())
    other = (*search[:-1], "7")  # what it writes is not known
    told = made.run(*other, "-out", "ours", expect=5)
    assert "candidates of a query are missing" in told and "of 10 queries, and all results in it, are dropped" in told
    made.check(*other, known=0)
    made.check(*search[:-1], "0", known=9)


def test_digests_of_another_database_are_not_used(made: StoreFolder) -> None:
    for database in ("march", "april"):
        made.run("blastp", "-query", "q.faa", "-db", database, "-evalue", "1e-3", "-outfmt", "6", "-out", "ours")
    cached = sorted(
        (made.folder / "store" / "candidates" / "databases").iterdir(), key=lambda path: path.stat().st_size
    )
    contents = [path.read_bytes() for path in cached]
    for path, content in zip(cached, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    made.check("blastp", "-query", "q.faa", "-db", "april", "-evalue", "1e-3", "-outfmt", "7", known=9)


@pytest.mark.slow
def test_damaged_store_is_not_used(made: StoreFolder) -> None:
    search = ("blastp", "-query", "q.faa", "-db", "march", "-outfmt", "6")
    made.check(*search)
    (entries,) = (made.folder / "store" / "candidates" / "entries").iterdir()
    entries.write_bytes(entries.read_bytes()[:-1])
    made.check(*search[:-1], "7", known=0)
    made.check(*search[:-1], "0", known=0)  # the set is there, and stays damaged
    file = made.folder / "store" / "candidates" / "candidates.sqlite"
    file.write_bytes(b"x" * 4096)
    assert f"store: not used: {made.folder}/store/candidates/candidates.sqlite: file is not a database" in made.check(
        *search
    )


#: Commands, with the names of the files that they read and write.
KEPT_TOOLS = {
    "hmmscan": ("hmmscan", "--tblout", "table", "-o", "report", "models.hmm", "q.faa"),
    "diamond": ("diamond", "blastp", "--quiet", "-q", "q.faa", "-d", "known", "-o", "report"),
}


@pytest.mark.parametrize("tool", KEPT_TOOLS)
def test_results_of_whole_batches_are_known(tool: str, made: StoreFolder, data: Path) -> None:
    folder, command = made.folder, KEPT_TOOLS[tool]
    need(tool)
    queries = cut((data / "proteins_queries.faa").read_bytes(), "fasta")
    (folder / "q.faa").write_bytes(b"".join(queries[:10]))
    _make_tool_database(tool, data, folder, 40)

    def check(known: str) -> None:
        told = made.run(*command)
        outputs = {name: read_without_date(folder / name) for name in ("report", "table") if name in command}
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        assert {name: read_without_date(folder / name) for name in outputs} == outputs
        assert _find_known_results(told) == known

    check("")
    check("10 of 10")
    (folder / "q.faa").write_bytes(b"".join(queries[:14]))
    check("10 of 14")
    check("14 of 14")
    _make_tool_database(tool, data, folder, 39)
    check("")


def test_known_results_are_computed_again_where_that_is_asked_for(made: StoreFolder) -> None:
    search = ["blastp", "-query", "q.faa", "-db", "march", "-outfmt", "6"]
    made.check(*search)
    words = made.fill_words(*search, "-out", "ours")
    at = words.index("--")
    words[at:at] = ["--verify", "1"]
    done = subprocess.run(words, cwd=made.folder, capture_output=True, text=True, check=True)
    assert "10 of 10 records known" in done.stderr and "verified: 10 of 10 records" in done.stderr


def test_changed_models_alone_are_searched_again(made: StoreFolder, data: Path) -> None:
    """The next release of a file of models: one is gone, one has changed, and two are new."""
    folder, command = made.folder, ("hmmsearch", "--tblout", "table", "-o", "report", "models.hmm", "known.faa")
    need("hmmsearch")
    models = [f"{each}//\n" for each in (data / "profiles.hmm").read_text().split("//\n")[:10]]
    (folder / "known.faa").write_bytes(b"".join(cut((data / "proteins_db.faa").read_bytes(), "fasta")[:200]))
    later = [*models[:2], models[3].replace("\nLENG", "\nACC   X1.2\nLENG", 1), *models[4:]]
    for release, known in ((models[:8], ""), (later, "6 of 9")):
        (folder / "models.hmm").write_text("".join(release))
        words = made.fill_words(*command)
        words[4:4] = ["--batch", "1"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert _find_known_results(done.stderr) == known
        ours = [read_without_date(folder / name) for name in ("report", "table")]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        assert [read_without_date(folder / name) for name in ("report", "table")] == ours


def _find_known_results(told: str) -> str:
    """Return of how many records the results were known, in words."""
    if more := re.search(r"store: \d+ of (\d+) queries known, results of (\d+) known", told):
        return f"{more[2]} of {more[1]}"
    return (re.findall(r"store: (.*) records known", told) or [""])[0]


def _make_tool_database(tool: str, data: Path, folder: Path, n: int) -> None:
    if tool == "hmmscan":
        models = (data / "profiles.hmm").read_text().split("//\n")[:n]
        (folder / "models.hmm").write_text("".join(f"{each}//\n" for each in models))
        command = ["hmmpress", "-f", "models.hmm"]
    else:
        (folder / "known.faa").write_bytes(b"".join(cut((data / "proteins_db.faa").read_bytes(), "fasta")[: 10 * n]))
        command = ["diamond", "makedb", "--quiet", "--in", "known.faa", "-d", "known"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    "command",
    [
        "diamond blastp -q q.faa -d proteins --custom-matrix matrix --gapopen 11 --gapextend 1 --comp-based-stats 0 -o ours",
        "obabel drugs.smi -e -s pattern.smi -osmi -O ours",
        "obabel drugs.smi -e -spattern.smi -osmi -O ours",
        "blastn -query genes.fna -db genes -filtering_db repeats -evalue 1e-5 -outfmt 6 -out ours",
    ],
    ids=["diamond", "obabel", "obabel-attached", "blastn"],
)
def test_results_depend_on_files_that_options_name(command: str, made: StoreFolder, data: Path) -> None:
    need(command.split()[0])
    genes = [GeneMaker(7).make_relative() for _ in range(3)]
    write_records(made.folder / "genes.fna", genes, "g")
    make_database(made.folder, "genes", genes, "nucl")
    subprocess.run(
        ["diamond", "makedb", "--quiet", "--in", "march.fasta", "-d", "proteins"], cwd=made.folder, check=True
    )
    shutil.copy(data / "drugs.smi", made.folder)
    outputs = []
    for masked, pattern, score in (([GeneMaker(8).make_relative()], "CO", 6), (genes, "CN", 8)):
        make_database(made.folder, "repeats", masked, "nucl")
        (made.folder / "pattern.smi").write_text(f"{pattern}\n")
        letters = "ARNDCQEGHILKMFPSTWYVBJZX*"
        rows = [" ".join([row, *(str(score if row == letter else -3) for letter in letters)]) for row in letters]
        (made.folder / "matrix").write_text("\n".join([" ".join(letters), *rows, ""]))
        made.run(*command.split())
        ours = (made.folder / "ours").read_bytes()
        subprocess.run(command.split(), cwd=made.folder, check=True, capture_output=True)
        assert ours == (made.folder / "ours").read_bytes()
        outputs.append(ours)
        (made.folder / "ours").unlink()
    assert outputs[0] != outputs[1]


def test_results_of_an_unknown_program_are_not_kept(made: StoreFolder) -> None:
    """It reads a file that its command does not name."""
    (made.folder / "hidden").write_text("s/A/x/g")
    (made.folder / "filter").write_text('#!/bin/sh\nsed "$(cat hidden)" "$1" > "$2"\n')
    (made.folder / "filter").chmod(0o755)
    command = [sys.executable, "-m", "millrace", "run", "--slots", "2", "--store", "store", "--batch", "2"]
    words = [*command, "--input", "q.faa", "--output", "ours", "--", "./filter", "q.faa", "ours"]
    for letter in "xy":
        (made.folder / "hidden").write_text(f"s/A/{letter}/g")
        done = subprocess.run(words, cwd=made.folder, capture_output=True, text=True, timeout=300, check=True)
        assert "store: not used: filter is not known to millrace, so it may read files" in done.stderr
        assert (made.folder / "ours").read_text() == (made.folder / "q.faa").read_text().replace("A", letter)
        (made.folder / "ours").unlink()


@pytest.mark.slow
def test_damaged_results_are_computed_again(made: StoreFolder) -> None:
    search = ("blastp", "-query", "q.faa", "-db", "march", "-outfmt", "6")
    made.check(*search)
    with closing(sqlite3.connect(made.folder / "store" / "candidates" / "candidates.sqlite")) as tables, tables:
        tables.execute("UPDATE results SET blocks = substr(blocks, 2)")
    told = made.check(*search)
    assert "store: 0 of 10 records known" in told
    made.check(*search, known=10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_damage_and_kills_give_no_wrong_byte(seed: int, made: StoreFolder) -> None:
    """Five damaged stores and two writers that are killed, for each seed; a run uses the store, or goes on without it."""
    choose = random.Random(seed)
    store = made.folder / "store"
    serial = ["blastp", "-query", "q.faa", "-db", "march", "-outfmt", "6", "-out", "ours"]
    subprocess.run(serial, cwd=made.folder, check=True, capture_output=True)
    expected = (made.folder / "ours").read_text()
    command = [sys.executable, "-m", "millrace", "run", "--slots", "2", "--store", "store", "--batch", "1"]
    words = [*command, "--verify", "0", "--", *serial]
    for _ in range(2):
        done = subprocess.run(words, cwd=made.folder, check=True, capture_output=True, text=True)
    assert "10 of 10 records known" in done.stderr
    told = []
    for number in range(7):
        if number < 5:
            shutil.rmtree(store, ignore_errors=True)
            subprocess.run(words, cwd=made.folder, check=True, capture_output=True)
            file = choose.choice([path for path in (store / "candidates").rglob("*") if path.is_file()])
            content = bytearray(file.read_bytes())
            at = choose.randrange(len(content))
            content[at : at + choose.choice((1, 200))] = choose.randbytes(1)
            file.write_bytes(content)
        else:
            shutil.rmtree(store, ignore_errors=True)
            process = subprocess.Popen(words, cwd=made.folder, stderr=subprocess.DEVNULL, start_new_session=True)
            with suppress(subprocess.TimeoutExpired):
                process.wait(choose.uniform(0.2, 1.5))
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        (made.folder / "ours").unlink(missing_ok=True)
        done = subprocess.run(words, cwd=made.folder, capture_output=True, text=True)
        told.append((done.returncode, "records known" in done.stderr, "store: not used" in done.stderr))
        if done.returncode:
            assert done.returncode == 2 and "is of another release" in done.stderr, done.stderr
            shutil.rmtree(store)
        else:
            assert (made.folder / "ours").read_text() == expected, told
    print(told)


@pytest.mark.slow
def test_store_that_breaks_while_it_is_written_is_left(made: StoreFolder) -> None:
    """Its tables can be opened, but take no row."""
    made.check("blastp", "-query", "q.faa", "-db", "march", "-outfmt", "6")
    file = made.folder / "store" / "candidates" / "candidates.sqlite"
    with closing(sqlite3.connect(file)) as tables:
        (page,) = tables.execute("SELECT rootpage FROM sqlite_master WHERE name = 'candidates'").fetchone()
        (size,) = tables.execute("PRAGMA page_size").fetchone()
    content = bytearray(file.read_bytes())
    content[size * (page - 1) : size * page] = b"\xff" * size
    file.write_bytes(content)
    told = made.check("blastp", "-query", "q.faa", "-db", "march", "-outfmt", "6", "-word_size", "4")
    assert told.count("store: ") == 1 and "could not be kept: " in told and "malformed" in told


def test_queries_that_cannot_be_told_apart_are_known_by_batch(made: StoreFolder) -> None:
    """A file of blank lines is one record for a run, and no sequence."""
    (made.folder / "q.faa").write_bytes(b"\n\n")
    words = ["blastp", "-query", "q.faa", "-db", "march", "-outfmt", "6"]
    assert "store: " not in made.check(*words)
    assert "store: 1 of 1 record known" in made.check(*words)


@pytest.mark.slow
def test_candidates_are_not_used_by_workers_of_dask(made: StoreFolder) -> None:
    """They search the database as a whole."""
    made.check("blastp", "-query", "q.faa", "-db", "march", "-outfmt", "6")
    words = ["--dask", "tcp://127.0.0.1:1", "--store", "store", "--", "blastp", "-query", "q.faa", "-db", "march"]
    done = subprocess.run(
        [sys.executable, "-m", "millrace", "plan", *words], cwd=made.folder, capture_output=True, text=True, check=True
    )
    assert "not kept: the workers of a Dask cluster search the database as a whole" in done.stdout


def test_store_that_all_may_write_is_refused(made: StoreFolder) -> None:
    (made.folder / "store").mkdir(mode=0o777)
    (made.folder / "store").chmod(0o777)
    told = made.run("blastp", "-query", "q.faa", "-db", "march", "-out", "ours", expect=2)
    assert "store: can be written by every user" in told and not (made.folder / "ours").exists()


class StoreMember:
    """A user of a group's store, with a key and a list of owners."""

    def __init__(self, made: StoreFolder, name: str) -> None:
        self.made, self.name = made, name
        self.config, self.cache = made.folder.parent / name, made.folder.parent / "cache"
        (self.config / "millrace").mkdir(parents=True)
        key = self.config / "millrace" / "store-key"
        subprocess.run([need("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
        self.line = f"{name} {key.with_suffix('.pub').read_text()}"

    def list_owners(self, *owners: StoreMember) -> None:
        """List the owners whose entries are read."""
        (self.config / "millrace" / "store-owners").write_text("".join(each.line for each in owners))

    def take_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be the user of what comes next."""
        monkeypatch.setenv("XDG_CONFIG_HOME", str(self.config))
        monkeypatch.setenv("XDG_CACHE_HOME", str(self.cache))

    def find_known(self, monkeypatch: pytest.MonkeyPatch, outfmt: str, known: int) -> None:
        """Search, and compare the bytes and the number of known queries."""
        self.take_over(monkeypatch)
        self.made.check(*SHALLOW, "-outfmt", outfmt, known=known)


def test_group_store_is_read_from_listed_owners_alone(made: StoreFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are signed; of an owner who has hidden candidates, all go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.folder.parent / "cache"))
    anna, bela, cleo = (StoreMember(made, name) for name in ("anna", "bela", "cleo"))
    for each, owners in ((anna, [anna]), (bela, [anna, bela]), (cleo, [bela])):
        each.list_owners(*owners)
    (made.folder / "store").mkdir()
    (made.folder / "store").chmod(0o2770)
    anna.find_known(monkeypatch, "6", 0)
    (bela.config / "millrace" / "store-key").unlink()  # nothing to sign with: the store is only read
    bela.find_known(monkeypatch, "6", 10)
    bela.find_known(monkeypatch, "7", 9)
    cleo.find_known(monkeypatch, "6", 0)  # and keeps what she has found
    anna.find_known(monkeypatch, "0", 0)
    seal = find_seal(
        made.folder / "store",
        {"XDG_CONFIG_HOME": str(anna.config), "XDG_CACHE_HOME": str(made.folder.parent / "cache"), "HOME": "/"},
    )
    hide_candidates(made.folder / "store", seal)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(bela.config))
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", bela.config / "millrace" / "store-key"], check=True
    )
    told = made.run(*SHALLOW, "-outfmt", "5", "-out", "ours", expect=5)
    assert "all candidates of anna, and all results in it, are dropped" in told
    bela.find_known(monkeypatch, "5", 0)
    (made.folder / "store" / "candidates" / "entries").rename(made.folder / "elsewhere")
    (made.folder / "store" / "candidates" / "entries").symlink_to(made.folder / "elsewhere")
    told = made.run("blastp", "-query", "q.faa", "-db", "march", "-out", "x", expect=2)
    assert "entries: is a link" in told


def test_store_in_a_bucket_is_read_from_listed_owners_alone(made: StoreFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a copy of it; of a search whose candidates are hidden, nobody uses what was kept."""
    boto3 = pytest.importorskip("boto3")
    anna, bela, cleo = (StoreMember(made, name) for name in ("anna", "bela", "cleo"))
    for each, owners in ((anna, [anna]), (bela, [anna, bela]), (cleo, [bela])):
        each.list_owners(*owners)
        each.cache = made.folder.parent / f"cache of {each.name}"
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "y", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with storage_servers.s3() as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        client = boto3.client("s3")
        client.create_bucket(Bucket="lab")
        made.store = "s3://lab/searches"
        anna.find_known(monkeypatch, "6", 0)
        (bela.config / "millrace" / "store-key").rename(bela.config / "key")  # without one nothing is kept
        names = _list_objects(client)
        bela.find_known(monkeypatch, "6", 10)
        bela.find_known(monkeypatch, "7", 9)
        assert _list_objects(client) == names
        cleo.find_known(monkeypatch, "0", 0)
        bela.take_over(monkeypatch)
        open_remote_store(made.store, os.environ).evict(0)  # the copy: what is wanted is read again
        bela.find_known(monkeypatch, "7", 9)
        told = [sys.executable, "-m", "millrace", "store", "--store", made.store]
        assert subprocess.run([*told[:4], "verify", *told[4:]], capture_output=True).returncode == 0
        listed = subprocess.run([*told[:4], "list", *told[4:]], capture_output=True, text=True, check=True).stdout
        assert " 10 queries " in listed and " results of blastp, command " in listed
        _hide_in_bucket(client, anna)
        (bela.config / "key").rename(bela.config / "millrace" / "store-key")
        shutil.rmtree(bela.cache)
        bela.take_over(monkeypatch)
        told = made.run(*SHALLOW, "-outfmt", "5", "-out", "ours", expect=5)
        assert "s3://lab/searches: candidates of a query are missing" in told
        assert "all candidates of anna, and all results in it, are dropped" in told
        anna.find_known(monkeypatch, "7", 0)
        for name in _list_objects(client):
            client.put_object(Bucket="lab", Key=name, Body=b"not what was there")
        shutil.rmtree(bela.cache)
        bela.find_known(monkeypatch, "7", 0)
    (bela.config / "millrace" / "store-owners").unlink()
    told = made.run(*SHALLOW, "-out", "x", expect=2)
    assert "others may be able to write it, and you have no list of owners" in told
    anna.take_over(monkeypatch)
    told = made.check(*SHALLOW, known=0)
    assert "store: not used: s3://lab/searches" in told


def _list_objects(client: Any) -> list[str]:
    return sorted(each["Key"] for each in client.list_objects_v2(Bucket="lab")["Contents"])


def _hide_in_bucket(client: Any, owner: StoreMember) -> None:
    """Drop the candidates that an owner has kept, under right seals, as the owner could."""
    seal = read_signature_seal("", owner.config / "millrace", {"XDG_CACHE_HOME": str(owner.cache), "HOME": "/"})
    for name in _list_objects(client):
        if f"-candidates-{seal.own_name.hex()}" in name:
            content = client.get_object(Bucket="lab", Key=name)["Body"].read()
            key, rows, _ = msgspec.msgpack.decode(content, type=SealedRows)
            hidden = encode_candidates(QueryCandidates([]))
            made = [
                (*row[:3], hidden, seal.make(format_candidates(key, row[0], row[1], row[2], hidden))) for row in rows
            ]
            client.put_object(Bucket="lab", Key=name, Body=msgspec.msgpack.encode(SealedRows(key, made)))


@pytest.mark.slow
def test_store_that_cannot_be_written_is_read(made: StoreFolder) -> None:
    """On a filesystem that is mounted read-only."""
    if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no namespace of mounts here")
    search = ["blastp", "-query", "q.faa", "-db", "march", "-outfmt"]
    made.check(*search, "6")
    tables = made.folder / "store" / "candidates" / "candidates.sqlite"
    before = tables.read_bytes()
    run = made.fill_words(*search, "7", "-out", "ours")
    inner = 'mount --bind store store && mount -o remount,bind,ro store && exec "$@"'
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", inner, "sh", *run]
    done = subprocess.run(words, cwd=made.folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("store: cannot be written, so it is only read") == 1
    assert "store: 9 of 10 queries known" in done.stderr and tables.read_bytes() == before
    subprocess.run([*search, "7", "-out", "serial"], cwd=made.folder, check=True)
    assert (made.folder / "ours").read_bytes() == (made.folder / "serial").read_bytes()


@pytest.mark.slow
def test_two_runs_use_one_store_at_the_same_time(made: StoreFolder) -> None:
    """Both write the rows of the same queries, of databases that differ."""
    searches = {
        f"{name}{outfmt}": ["blastp", "-query", "q.faa", "-db", name, "-outfmt", outfmt]
        for name in ("march", "april")
        for outfmt in "67"
    }
    processes = [
        subprocess.Popen(
            made.fill_words(*search, "-out", out, slots=1), cwd=made.folder, stderr=subprocess.PIPE, text=True
        )
        for out, search in searches.items()
    ]
    for process, (out, search) in zip(processes, searches.items(), strict=True):
        _, told = process.communicate(timeout=300)
        assert process.returncode == 0 and "not used" not in told and "could not be kept" not in told, told
        subprocess.run([*search, "-out", "serial"], cwd=made.folder, check=True)
        assert (made.folder / out).read_bytes() == (made.folder / "serial").read_bytes()
    for out, search in searches.items():
        # Where the output shows names, a result under another one is not known, but what was found is.
        known = "10 of 10 records known" if out.endswith("6") else "9 of 10 queries known"
        assert known in made.run(*search, "-out", f"again{out}")


@pytest.mark.slow
def test_run_killed_with_a_store_resumes(made: StoreFolder) -> None:
    search = ("blastp", "-query", "q.faa", "-db", "april", "-outfmt", "6")
    made.check("blastp", "-query", "q.faa", "-db", "march", "-outfmt", "6")
    command = [sys.executable, "-m", "millrace", "run", "--store", "store", "--", *search, "-out", "ours"]
    (made.folder / "ours").unlink()
    for moment in (0.3, 0.6, 0.9):
        process = subprocess.Popen(command, cwd=made.folder, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + moment
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    made.run(*search, "-out", "ours")
    subprocess.run([need("blastp"), *search[1:], "-out", "serial"], cwd=made.folder, check=True)
    assert (made.folder / "ours").read_bytes() == (made.folder / "serial").read_bytes()
    made.check(*search, known=10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_changes_of_a_database_give_the_serial_bytes(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four changes in a row, each with queries, formats, limits and E-values of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program, kind = (("blastn", "nucl"), ("blastp", "prot"), ("psiblast", "prot"))[seed % 3]
    maker = SequenceMaker(seed, kind)
    place, choose = StoreFolder(tmp_path), maker.random.choice
    entries, queries = maker.make_entries(250), [maker.make_relative() for _ in range(12)]
    for change in ("none", *maker.random.choices(CHANGES, k=4)):
        entries = maker.change_entries(entries, change)
        make_database(
            tmp_path,
            f"db{change}",
            entries,
            kind,
            ids=change == "ids" or choose([True, False]),
            volumes=3 if change == "volumes" else 1,
        )
        queries = [*queries, maker.make_relative()]
        write_records(tmp_path / "q.faa", queries, "q")
        command = (
            program, "-query", "q.faa", "-db", f"db{change}", "-outfmt", choose(["0", "5", "6", "7", "15"]),
            "-evalue", choose(["1e-20", "1e-3", "1e-3", "10", "11"]), "-max_target_seqs", choose(["2", "25", "500"]),
        )  # fmt: skip
        place.check(*command)
        place.check(*command, known=len(queries))
        for file in tmp_path.glob(f"db{change}*"):
            file.unlink()
