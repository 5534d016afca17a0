"""HMMER: targets that an earlier search has met, and equal queries, are not searched again, and the bytes are the serial ones."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from dask_site import DaskSite
from hidden_candidates import hide_candidates
from tool_batches import cut, still

from millrace import _core
from millrace.adapters.hmmer.command_line import VOLATILE
from millrace.extensions.reuse.store_seals import ChecksumSeal

pytestmark = [pytest.mark.process, pytest.mark.skipif(shutil.which("hmmscan") is None, reason="hmmer is not installed")]

TABLES = ("--tblout", "hits.tbl", "--domtblout", "domains.tbl", "--pfamtblout", "pfam.tbl")
OUTPUTS = ("report", "hits.tbl", "domains.tbl", "pfam.tbl", "all.sto")
#: The report is an output, or it is not wanted.
REPORT, NO_REPORT = ("-o", "report", *TABLES), ("-o", "/dev/null", *TABLES)


class TargetFolder:
    """A folder with models, sequences, queries and a store."""

    #: Options of ``millrace run``.
    options: tuple[str, ...] = ("--slots", "2", "--store", "store")

    def __init__(self, folder: Path, data: Path, seed: int) -> None:
        self.folder, self.choose = folder, random.Random(seed)
        text = (data / "profiles.hmm").read_bytes()
        self.models = re.findall(rb"^HMMER(?:.*\n)+?//\n", text, re.M)[:30]
        names = re.findall(rb"(?m)^NAME  (fam\d+)$", b"".join(self.models))[:12]
        families = [cut((data / "families" / f"{name.decode()}.faa").read_bytes() + b"\n", "fasta") for name in names]
        proteins = cut((data / "proteins_db.faa").read_bytes(), "fasta")[:400]
        self.members, self.proteins = drop_copies([each for family in families for each in family[:5]], proteins)
        for at, model in enumerate(self.models):
            more = b"GA    25.00 20.00;\n" if at % 2 else b"GA    60.00 55.00;\n"
            self.models[at] = re.sub(rb"(?m)^STATS", more + b"STATS", model, count=1)
        self.models[5] = self.models[5].replace(b"\nALPH", b"\nACC   PF00005.2\nALPH", 1)

    def write_models(self, models: Sequence[bytes], name: str = "models.hmm") -> None:
        """Write models, and press them."""
        (self.folder / name).write_bytes(b"".join(models))
        command = ["hmmpress", "-f", name]
        subprocess.run(command, cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def write_records(self, name: str, records: Sequence[bytes]) -> None:
        """Write records of any kind."""
        (self.folder / name).write_bytes(b"".join(records))

    def run(self, *command: str, expect: int = 0) -> str:
        """Run a command with the store; return what it said."""
        words = [sys.executable, "-m", "millrace", "run", *self.options, "--", *command]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == expect, done.stderr
        return done.stderr

    def check(self, *command: str, known: int | None = None) -> str:
        """Run a command with the store and without Millrace, and compare; ``known``: queries that are not searched whole."""
        told = self.run(*command)
        ours = self._take_outputs()
        environ = {**os.environ, "HMMER_NCPU": "0"}
        done = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert ours == self._take_outputs() and ours, command
        found = re.search(r"store: ([\d,]+) of [\d,]+ quer", told)
        assert known is None or int(found[1] if found else 0) == known, told
        return told

    def _take_outputs(self) -> dict[str, bytes]:
        """Return the outputs without what differs between serial runs, and remove them."""
        patterns = [pattern for patterns in VOLATILE.values() for pattern in patterns]
        found = {}
        for path in (self.folder / name for name in OUTPUTS):
            if path.exists():
                text = re.sub(
                    rb"(?m)^# number of worker threads:.*\n|(?<=^# Option settings: hmm).*$", b"", path.read_bytes()
                )
                found[path.name] = still(text.replace(b" --cpu 0 ", b" "), patterns)
                path.unlink()
        return found


def drop_copies(*lists: Sequence[bytes]) -> list[list[bytes]]:
    """Return the records without those whose name or whose residues an earlier one has."""
    seen, left = set[bytes](), []
    for records in lists:
        left.append([])
        for record in records:
            marks = {record.split()[0], record.partition(b"\n")[2]}
            if not marks & seen:
                left[-1].append(record)
            seen |= marks
    return left


@pytest.fixture
def made(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> TargetFolder:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "folder").mkdir()
    made = TargetFolder(tmp_path / "folder", data, 5)
    queries = cut((data / "proteins_queries.faa").read_bytes(), "fasta")[:4]
    made.write_records("q.faa", [*queries, *made.choose.sample(made.members, 8)])
    made.write_records("q.hmm", made.models[:6])
    return made


def change_model(model: bytes) -> bytes:
    """Return the model with other emissions, as a release with more members of the family has it."""
    lines = model.split(b"\n")
    nodes = [at for at, line in enumerate(lines) if re.match(rb" +\d+ ", line) and len(line.split()) > 21]
    for one, other in zip(nodes[2:12:2], nodes[3:13:2], strict=True):
        first, second = lines[one].split(), lines[other].split()
        lines[one] = b"  ".join([first[0], *second[1:21], *first[21:]])
        lines[other] = b"  ".join([second[0], *first[1:21], *second[21:]])
    return b"\n".join(lines)


def test_next_release_of_models_is_searched_where_new(made: TargetFolder) -> None:
    """Of 26 models one is gone, one has changed, four are new, and the order is another."""
    scan = ("hmmscan", *NO_REPORT)
    made.write_models(made.models[:26])
    made.check(*scan, "models.hmm", "q.faa", known=0)
    renamed = re.sub(rb"(?m)^NAME .*$", b"NAME  renamed\nACC   X1.3\nDESC  more than before", made.models[7])
    later = [*made.models[1:7], renamed, made.models[8], change_model(made.models[9]), *made.models[10:]][::-1]
    made.write_models(later)
    told = made.check(*scan, "models.hmm", "q.faa", known=11)
    assert "11 of 12 queries known, 24 of 29 entries known" in told
    # What is kept has all that passes the filters, so any threshold will do.
    for thresholds in (("-T", "15", "--domT", "5"), ("-E", "1000", "-Z", "7", "--domZ", "3")):
        told = made.check(*scan, *thresholds, "models.hmm", "q.faa", known=11)
        assert "29 of 29 entries known" in told
    made.check(*scan, "--cut_ga", "models.hmm", "q.faa", known=0)
    made.check(*scan, "--cut_ga", "--nobias", "models.hmm", "q.faa", known=0)


def test_report_of_hmmscan_counts_old_and_new_models(made: TargetFolder) -> None:
    scan = ("hmmscan", *REPORT, "--cut_ga")
    made.write_models(made.models[:24])
    made.check(*scan, "models.hmm", "q.faa", known=0)
    made.write_models(made.models[::-1])
    told = made.check(*scan, "models.hmm", "q.faa", known=11)
    assert "24 of 30 entries known" in told
    made.check(*scan, "--noali", "--acc", "models.hmm", "q.faa", known=11)
    made.write_models(made.models[1:])
    told = made.check(*scan, "models.hmm", "q.faa", known=0)
    assert "is not used: 1 entry gone, and the output has counts of all" in told
    made.check(*scan, "--notextw", "models.hmm", "q.faa", known=11)


@pytest.mark.slow
def test_report_by_evalues_is_known_where_names_are_short(made: TargetFolder) -> None:
    """HMMER keeps some hits only while few models were read; no name is wider than the narrowest column."""
    scan = ("hmmscan", *REPORT)
    made.write_models(made.models[:24])
    made.check(*scan, "models.hmm", "q.faa", known=0)
    made.write_models(made.models[::-1])
    for evalue in ("1e-12", "10", "1e5"):
        made.check(*scan, "-E", evalue, "models.hmm", "q.faa", known=11)


@pytest.mark.slow
def test_expected_counts_are_those_of_all_models(made: TargetFolder) -> None:
    scan = ("hmmscan", *REPORT, "-T", "10", "--F1", "0.0123", "--F2", "0.0025", "models.hmm", "q.faa")
    made.write_models(made.models[:25])
    made.check(*scan)
    made.write_models(made.models)
    made.check(*scan, known=11)


def test_grown_file_of_sequences_is_searched_where_new(made: TargetFolder) -> None:
    """Copies under the same and other names, other line lengths, new sequences at both ends, and another order."""
    search = ("hmmsearch", *REPORT, "-A", "all.sto")
    title, _, residues = made.proteins[7].partition(b"\n")
    old = [*made.proteins[:200], *made.members[:30], b">same\n" + residues, b">nothing\n"]
    made.choose.shuffle(old)
    made.write_records("db.faa", old)
    made.check(*search, "q.hmm", "db.faa", known=0)
    other = title + b" otherwise\r\n" + residues.replace(b"\n", b"\r\n")
    new = [*made.members[30:34], b">copy\n" + made.members[5].partition(b"\n")[2], *made.proteins[200:206]]
    old = [other if each == made.proteins[7] else each for each in old[::-1]]
    made.write_records("db.faa", [*new[:3], *old, *new[3:]])
    told = made.check(*search, "q.hmm", "db.faa", known=5)
    assert "232 of 243 entries known" in told
    for options in (("-E", "1e5", "--acc"), ("--cut_ga",)):
        told = made.check(*search, *options, "q.hmm", "db.faa", known=5)
        assert "243 of 243 entries known" in told
    made.write_records("db.faa", [*new, *old[2:]])
    told = made.check(*search, "--domE", "1", "q.hmm", "db.faa", known=0)
    assert "is not used: 2 entries gone, and the output has counts of all" in told
    made.write_records("db.faa", [*new, *old[4:]])
    made.check("hmmsearch", *NO_REPORT, "q.hmm", "db.faa", known=5)
    # What was found without those that are gone has no counts, but for the sample.
    made.check(*search, "--domE", "2", "q.hmm", "db.faa", known=1)


def test_phmmer_knows_queries_by_their_sequence(made: TargetFolder) -> None:
    search = ("phmmer", *REPORT)
    queries = made.choose.sample(made.members, 3)
    made.write_records("few.faa", queries)
    made.write_records("db.faa", [*made.proteins[:100], *made.members[:40]])
    made.check(*search, "few.faa", "db.faa", known=0)
    made.write_records("few.faa", [re.sub(rb"^>\S+", b">renamed", each) for each in queries[::-1]])
    made.write_records("db.faa", [*made.proteins[:105], *made.members[:40]])
    made.check(*search, "few.faa", "db.faa", known=2)
    made.check(*search, "--mx", "BLOSUM45", "few.faa", "db.faa", known=0)


@pytest.mark.slow
def test_workers_of_dask_search_what_is_new(made: TargetFolder, tmp_path: Path) -> None:
    with DaskSite(tmp_path / "dask") as site:
        site.start_scheduler()
        site.start_worker()
        site.start_worker()
        made.options = ("--dask", site.address, "--store", "store")
        test_report_of_hmmscan_counts_old_and_new_models(made)
        test_grown_file_of_sequences_is_searched_where_new(made)
        test_phmmer_knows_queries_by_their_sequence(made)


def write_copies(made: TargetFolder, name: str, queries: Sequence[bytes]) -> None:
    """Write each query four times, under other names, among the others."""
    copies = [re.sub(rb"^>", b">copy%d-" % n, each) for n in range(4) for each in queries]
    made.choose.shuffle(copies)
    made.write_records(name, copies)


def make_chance(made: TargetFolder, n_letters: int) -> bytes:
    return b">chance%d\n%s\n" % (n_letters, bytes(made.choose.choices(b"ACDEFGHIKLMNPQRSTVWY", k=n_letters)))


def test_equal_queries_of_phmmer_are_searched_once(made: TargetFolder, data: Path) -> None:
    made.options = ("--slots", "2")
    write_copies(made, "few.faa", [make_chance(made, 2500), *made.members[:2]])
    shutil.copy(data / "proteins_db.faa", made.folder / "db.faa")
    told = made.check("phmmer", *REPORT, "few.faa", "db.faa")
    assert "3 of 12 queries are different: each is searched once" in told
    # Few letters are searched sooner than it takes to plan that.
    write_copies(made, "few.faa", made.members[:1])
    assert "searched once" not in made.check("phmmer", *NO_REPORT, "few.faa", "db.faa")


@pytest.mark.slow
def test_equal_profiles_of_hmmsearch_are_searched_once(made: TargetFolder, data: Path) -> None:
    made.options = ("--slots", "2")
    copies = made.models * 4
    made.choose.shuffle(copies)
    made.write_records("many.hmm", copies)
    shutil.copy(data / "proteins_db.faa", made.folder / "db.faa")
    told = made.check("hmmsearch", *REPORT, "many.hmm", "db.faa")
    assert "30 of 120 queries are different: each is searched once" in told


@pytest.mark.slow
@pytest.mark.parametrize("store", [(), ("--store", "store")])
def test_equal_queries_of_hmmscan_are_searched_once(store: tuple[str, ...], made: TargetFolder, data: Path) -> None:
    made.options = ("--slots", "2", *store)
    models = re.findall(rb"^HMMER(?:.*\n)+?//\n", (data / "profiles.hmm").read_bytes(), re.M)
    made.write_models([re.sub(rb"(?m)^NAME .*$", b"NAME  m%d" % at, each) for at, each in enumerate(models * 4)])
    write_copies(made, "q.faa", [*(make_chance(made, 40_000 + n) for n in range(8)), *made.members[:20]])
    for options in (("-E", "1e-3"), ("-T", "12")):
        told = made.check("hmmscan", *options, *REPORT, "models.hmm", "q.faa")
        assert "28 of 112 queries are different: each is searched once" in told or "108 of 112 queries known" in told
    told = made.check("hmmscan", *NO_REPORT, "--nobias", "models.hmm", "q.faa")
    assert "28 of 112 queries are different: each is searched once" in told
    # With long names what a search reports may depend on models that are no candidates.
    made.write_models(
        [re.sub(rb"(?m)^NAME .*$", b"NAME  long-name-%d" % at, each) for at, each in enumerate(models * 4)]
    )
    told = made.check("hmmscan", *REPORT, "models.hmm", "q.faa")
    assert store or "a name of more than 8 letters" in told


@pytest.mark.slow
def test_stopped_search_of_equal_queries_resumes(made: TargetFolder, data: Path) -> None:
    made.options = ("--slots", "2", "--batch", "1")
    write_copies(made, "few.faa", [make_chance(made, 4000), *made.members[:4]])
    shutil.copy(data / "proteins_db.faa", made.folder / "db.faa")
    search = ("phmmer", *REPORT, "-T", "20", "few.faa", "db.faa")
    for seconds in (0.7, 1.0, 1.5, 2.0):
        words = [sys.executable, "-m", "millrace", "run", *made.options, "--", *search]
        kill_after(seconds, words, made.folder)
    made.check(*search)


@pytest.mark.slow
def test_lost_candidates_are_noticed_and_dropped(made: TargetFolder) -> None:
    made.write_records("q.faa", made.members[:4])
    made.write_models(made.models)
    scan = ("hmmscan", *NO_REPORT)
    made.check(*scan, "models.hmm", "q.faa")
    hide_candidates(made.folder / "store", ChecksumSeal())
    told = made.run(*scan, "-E", "5", "models.hmm", "q.faa", expect=5)
    assert "candidates of a query are missing" in told
    made.check(*scan, "-E", "5", "models.hmm", "q.faa", known=0)
    made.check(*scan, "-E", "6", "models.hmm", "q.faa", known=3)


def test_wrong_counts_are_noticed_and_dropped(made: TargetFolder) -> None:
    made.write_models(made.models[:20])
    scan = ("hmmscan", *REPORT, "--cut_ga")
    made.check(*scan, "models.hmm", "q.faa")
    hide_candidates(made.folder / "store", ChecksumSeal(), lambda: True, lambda counts: [*counts[:-1], counts[-1] + 1])
    made.write_models(made.models)
    assert "candidates of a query are missing" in made.run(*scan, "models.hmm", "q.faa", expect=5)
    made.check(*scan, "models.hmm", "q.faa", known=0)


def kill_after(seconds: float, words: Sequence[str], folder: Path) -> None:
    """Start a command, and kill it and its children if it has not ended by then."""
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.DEVNULL, start_new_session=True)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_run_killed_with_a_store_resumes(made: TargetFolder) -> None:
    scan = ("hmmscan", *REPORT, "-T", "5", "models.hmm", "q.faa")
    made.write_models(made.models[:24])
    made.check(*scan)
    made.write_models(made.models)
    words = [sys.executable, "-m", "millrace", "run", "--slots", "2", "--store", "store", "--batch", "1", "--", *scan]
    for seconds in (0.3, 0.6, 0.9, 1.2):
        kill_after(seconds, words, made.folder)
    made.check(*scan)
    made.check(*scan[:-2], "--noali", *scan[-2:], known=11)


@pytest.mark.slow
def test_name_that_became_that_of_another_sequence_is_no_loss(made: TargetFolder) -> None:
    """Searches report names, so where several targets have one, what a query has found is not kept."""
    twin = b">twin\n" + made.members[0].partition(b"\n")[2]
    made.write_records("q.hmm", made.models[:2])
    made.write_records("db.faa", [twin, *made.proteins[:60]])
    made.check("hmmsearch", *REPORT, "q.hmm", "db.faa", known=0)
    made.write_records("db.faa", [twin, re.sub(rb"^>\S+", b">twin", made.proteins[0]), *made.proteins[1:60]])
    for _ in range(3):  # the sample is another one each time
        made.check("hmmsearch", *REPORT, "-E", str(made.choose.random()), "q.hmm", "db.faa")


NOT_KEPT = {
    "hmmsearch --max q.hmm db.faa": "--max: without filters",
    "hmmsearch --restrictdb_stkey x --restrictdb_n 3 q.hmm db.faa": "already searches a part",
    "hmmscan nine.hmm q.faa": "a name of more than 8 letters",
    "hmmscan --acc models.hmm q.faa": "an accession of more than 8",
    "hmmscan -T 5 --F1 0.01234567 models.hmm q.faa": "fewer digits than it has",
    "hmmscan -o /dev/null many.hmm q.faa": "a name of more than 20 letters",
}


@pytest.mark.parametrize("command", NOT_KEPT)
def test_search_that_is_not_kept_says_why(command: str, made: TargetFolder) -> None:
    made.write_records("db.faa", made.proteins[:9])
    made.write_models(made.models[3:6])
    for name, letters in (("nine", 9), ("many", 21)):
        made.write_models([re.sub(rb"(?m)^NAME .*$", b"NAME  " + b"x" * letters, made.models[0])], f"{name}.hmm")
    made.run("hmmsearch", "-o", "report", "q.hmm", "db.faa")
    plan = [sys.executable, "-m", "millrace", "plan", "--store", "store", "--", *command.split()]
    told = subprocess.run(plan, cwd=made.folder, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"candidates are not kept: .*{NOT_KEPT[command]}", told), told


@pytest.mark.slow
def test_search_that_is_not_kept_is_right(made: TargetFolder) -> None:
    for n in (30, 29, 30):
        named = [
            re.sub(rb"(?m)^NAME  (.*)$", rb"NAME  \1" + b"x" * at, each) for at, each in enumerate(made.models[:n])
        ]
        made.write_models(named)
        made.write_records("db.faa", made.members[:n])
        made.check("hmmscan", *REPORT, "-E", "1e-3", "models.hmm", "q.faa")
        made.check("hmmsearch", *REPORT, "--max", "q.hmm", "db.faa")


def test_pressed_models_are_known_wherever_they_stand(made: TargetFolder) -> None:
    def digest(models: Sequence[bytes]) -> list[bytes]:
        made.write_models(models)
        found = _core.target_digests(made.folder / "models.hmm", pressed=True)
        return [found[at : at + 16] for at in range(0, len(found), 16)]

    first = digest(made.models[:9])
    assert len(set(first)) == 9
    assert digest(made.models[:9][::-1]) == first[::-1]
    renamed = re.sub(rb"(?m)^NAME .*$", b"NAME  other\nDESC  of another name", made.models[1])
    renamed = re.sub(rb"(?m)^DATE .*$", b"DATE  today", renamed)
    described = re.sub(rb"(?m)^ACC .*$", b"ACC   PF00005.3\nDESC  x", made.models[5])
    assert digest([described, renamed]) == [first[5], first[1]]
    changed = digest(
        [made.models[0], change_model(made.models[1]), re.sub(rb"25.00", b"26.00", made.models[3], count=1)]
    )
    assert changed[0] == first[0] and not set(changed[1:]) & set(first)


def change_targets(place: TargetFolder, targets: list[bytes], pool: list[bytes], *, may_repeat: bool) -> list[bytes]:
    """Return the targets after one to three changes."""
    targets, choose = [*targets], place.choose
    for change in choose.choices(
        ("add", "remove", "change", "reorder", "duplicate", "nothing"), k=choose.randint(1, 3)
    ):
        at = choose.randrange(len(targets))
        if change == "add":
            names = {re.findall(rb"(?m)^(?:NAME  |>)(\S+)", each)[0] for each in targets}
            new = [each for each in pool if re.findall(rb"(?m)^(?:NAME  |>)(\S+)", each)[0] not in names]
            targets[at:at] = choose.sample(new, min(len(new), choose.randint(1, 3)))
        elif change == "remove":
            del targets[at : at + choose.randint(1, 2)]
        elif change == "change" and may_repeat:
            targets[at] = targets[at].rstrip(b"\n") + b"MKVAW\n"
        elif change == "change":
            targets[at] = change_model(targets[at])
        elif change == "reorder":
            choose.shuffle(targets)
        elif change == "duplicate" and may_repeat:
            copy = targets[choose.randrange(len(targets))]
            targets.insert(at, choose.choice([copy, re.sub(rb"^>\S+", b">copy%d" % choose.randrange(5), copy)]))
    return targets


#: Thresholds and options of the pipeline.
CHOICES = (
    "",
    "-E 1e-10",
    "-E 1e4",
    "-T 12",
    "--cut_ga",
    "-Z 3",
    "--domE 1e-3",
    "--nobias",
    "--nonull2",
    "--F3 1e-3",
    "--acc",
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_changes_of_targets_give_the_serial_bytes(
    seed: int, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five changes in a row, each with queries, outputs, thresholds and options of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "folder").mkdir()
    place = TargetFolder(tmp_path / "folder", data, seed)
    choose, program = place.choose, ("hmmscan", "hmmsearch", "phmmer")[seed % 3]
    scans = program == "hmmscan"
    pool = [re.sub(rb"\r|\n+$", b"", each) + b"\n" for each in [*place.members, *place.proteins[:120]]]
    choose.shuffle(pool)
    if seed % 2:  # without this, the columns are as narrow as can be
        named = enumerate(place.models)
        place.models = [
            re.sub(rb"(?m)^NAME  (.*)$", rb"NAME  \1" + b"x" * choose.choice((0, at)), each) for at, each in named
        ]
    targets = place.models[:22] if scans else pool[:110]
    for _ in range(5):
        if scans:
            place.write_models(targets)
        else:
            place.write_records("db.faa", targets)
        queries = choose.sample(place.models[:8] if program == "hmmsearch" else place.members, 5)
        place.write_records("q.hmm" if program == "hmmsearch" else "q.faa", queries)
        options = choose.choice([each for each in CHOICES if program != "phmmer" or "cut" not in each]).split()
        outputs = choose.choice([REPORT, NO_REPORT, NO_REPORT[:4], ("-o", "report")])
        files = {"hmmscan": ("models.hmm", "q.faa"), "hmmsearch": ("q.hmm", "db.faa"), "phmmer": ("q.faa", "db.faa")}
        place.check(program, *outputs, *options, *files[program])
        targets = change_targets(place, targets, place.models if scans else pool, may_repeat=not scans)
