"""A search in fragments that is killed, stopped or given a bad query: the serial bytes, and no search done twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import harness
import pytest
from parameter_choice import again, some

from millrace import _core
from millrace.core.tasks import RankTask, SliceTask, decode_task_kind
from millrace.report import summary
from millrace.report.events import RetryEvent, read_events

#: The real program, which notes its database each time, and may wait or fail. Search ``HOLD`` and those after it wait
#: until they may go on.
BLASTP = """#!/bin/sh
case "$*" in */unread0*) exec {blastp} "$@";; esac  # the look at what a wrapper starts
for word; do [ "$last" != -db ] || database=$word; [ "$last" != -query ] || query=$word; last=$word; done
[ -z "$database" ] || echo "$database" >> "$LOG"
[ -z "$query" ] || echo "$$" >> "$LOG.starts"
[ -z "$HOLD" ] || [ -z "$query" ] || [ "$(grep -nx "$$" "$LOG.starts" | tail -1 | cut -d: -f1)" -lt "$HOLD" ] || until [ -e "$LOG.go" ]; do sleep 0.1; done
[ -z "$BAD" ] || [ -z "$query" ] || ! grep -q "$BAD" "$query" || case $database in *$WHERE*) echo "bad query" >&2; exit 3;; esac
exec {blastp} "$@"
"""

N_FRAGMENTS = 4


@dataclass
class Search:
    """A folder with queries, a database and a program before the real one."""

    folder: Path
    expected: bytes

    def command(self, *more: str) -> list[str]:
        tool = ["blastp", "-query", "q.faa", "-db", "db", "-outfmt", "7", "-out", "out.tsv"]
        options = ["--slots", "2", "--batch", "3", "--fragments", str(N_FRAGMENTS), *more]
        return [sys.executable, "-m", "millrace", "run", *options, "--", *tool]

    def start(self, *more: str, **environ: str) -> subprocess.Popen[str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.Popen(
            self.command(*more), cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, start_new_session=True,
            env={**os.environ, "PATH": path, "LOG": f"{self.folder}.log", harness.MARK: str(self.folder), **environ},
        )  # fmt: skip

    @property
    def starts(self) -> int:
        log = Path(f"{self.folder}.log.starts")
        return len(log.read_text().splitlines()) if log.exists() else 0

    def start_held(self, n: int, *more: str) -> subprocess.Popen[str]:
        """Start it, and wait until ``n`` more searches are committed; those after them wait."""
        before = self.searches.total()
        process = self.start(*more, HOLD=str(self.starts + n + 1))
        assert harness.wait_until(lambda: self.searches.total() >= before + n, process)
        return process

    def run(self, *more: str, **environ: str) -> tuple[int, str]:
        process = self.start(*more, **environ)
        _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
        return process.returncode, said

    @property
    def output(self) -> bytes:
        return (self.folder / "out.tsv").read_bytes()

    @property
    def run_dir(self) -> Path:
        return self.folder / "out.tsv.millrace"

    @property
    def searches(self) -> Counter[tuple[int, int, int]]:
        """How often each batch was searched in each fragment, by what is committed."""
        path = self.run_dir / "journal.mrj"
        tasks = _core.scan(str(path), True).tasks if path.exists() else []
        return Counter((task.first, task.last, task.fragment) for task in tasks)


@pytest.fixture
def search(tmp_path: Path, data: Path) -> Search:
    blastp = shutil.which("blastp")
    if not blastp or not shutil.which("makeblastdb"):
        pytest.skip("needs blastp and makeblastdb")
    harness.take(data / "proteins_db.faa", tmp_path / "db.faa", 1200)
    harness.take(data / "proteins_queries.faa", tmp_path / "q.faa", 12)
    for line in ("makeblastdb -in db.faa -dbtype prot -out db", "blastp -query q.faa -db db -outfmt 7 -out serial"):
        subprocess.run(line.split(), cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "blastp"
    program.write_text(BLASTP.replace("{blastp}", blastp))
    program.chmod(0o755)
    return Search(tmp_path, (tmp_path / "serial").read_bytes())


@pytest.mark.slow
def test_committed_searches_are_not_repeated(search: Search) -> None:
    for n in (2, 5):
        process = search.start_held(n, "--keep-run-dir")
        process.kill()
        process.communicate()
        assert not harness.left_over(str(search.folder))
    begun = search.searches
    assert any(fragment for _, _, fragment in begun)
    code, said = search.run("--keep-run-dir")
    assert code == 0, said
    assert search.output == search.expected
    ended = search.searches
    assert begun <= ended and set(ended.values()) == {1}
    # Each batch in each fragment, and then in its candidates.
    assert {fragment for _, _, fragment in ended} == set(range(N_FRAGMENTS + 1))
    assert len(ended) == 4 * (N_FRAGMENTS + 1)


@pytest.mark.slow
def test_stopped_run_keeps_finished_searches(search: Search) -> None:
    process = search.start_held(3)
    process.send_signal(signal.SIGTERM)
    harness.heard(process)
    Path(f"{search.folder}.log.go").touch()
    _, said = process.communicate(timeout=harness.LONGEST_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert not harness.left_over(str(search.folder))
    kept = search.searches
    assert all(fragment for _, _, fragment in kept) and len(kept) >= 3
    code, said = search.run("--keep-run-dir")
    assert code == 0, said
    assert search.output == search.expected and kept <= search.searches


@pytest.mark.parametrize("where", some(["", "fragments/", "database/"], "fragments/"))
def test_failing_query_is_quarantined_alone(search: Search, where: str) -> None:
    names = [line.split()[0][1:] for line in (search.folder / "q.faa").read_text().splitlines() if line[:1] == ">"]
    code, said = search.run(BAD=f"^>{names[4]}", WHERE=where)
    assert code == 3, said
    reason = (search.run_dir / "quarantine" / "record-5" / "stderr.txt").read_text()
    assert reason.endswith("bad query\n") and ("of 4 of the database" in reason) == (where != "database/")
    blocks = search.expected.split(b"# BLASTP")
    assert search.output == b"# BLASTP".join(blocks[:5] + blocks[6:]).replace(b"processed 12", b"processed 11")
    code, said = search.run("--retry-quarantined")
    assert code == 0, said
    assert search.output == search.expected


@pytest.mark.slow
def test_verification_searches_the_whole_database(search: Search) -> None:
    code, said = search.run("--verify", "1.0")
    assert code == 0 and "verified: 12 of 12 records cut elsewhere, all bytes equal" in said
    whole = Path(f"{search.folder}.log").read_text().splitlines().count("db")
    assert 2 <= whole <= 13, "the first six as one and one by one, the last six one by one"
    assert search.output == search.expected


@pytest.mark.slow
def test_status_gather_and_report_count_batches_alone(search: Search) -> None:
    assert search.run("--keep-run-dir")[0] == 0

    def ask(*words: str) -> bytes:
        command = [sys.executable, "-m", "millrace", *words]
        return subprocess.run(command, cwd=search.folder, check=True, capture_output=True).stdout

    status = json.loads(ask("status", "--json", "out.tsv.millrace"))
    assert (status["state"], status["records_done"], status["records_in_order"]) == ("done", 12, 12)
    assert ask("gather", "out.tsv.millrace") == search.expected
    ask("report", "out.tsv.millrace")
    assert (search.run_dir / "report.html").exists()
    events = summary.summarise_events(read_events(search.run_dir / "events.jsonl"))
    assert (events.records_done, events.n_tasks) == (12, 4 * (N_FRAGMENTS + 1))
    assert sum(task.last - task.first for task in events.slowest) == 12


@pytest.mark.slow
def test_changed_number_of_fragments_is_refused_by_name(search: Search) -> None:
    process = search.start_held(2)
    process.kill()
    process.communicate()
    code, said = search.run("--fragments", "3")
    assert code == 2 and "--fragments: was 4, now 3" in said
    # What was decided when the run began stays.
    code, said = search.run("--fragments", "auto")
    assert code == 0, said
    assert search.output == search.expected


#: The real program, the first of whose searches in such a database dies.
DIES_ONCE = """#!/bin/sh
for word; do [ "$last" != -db ] || database=$word; last=$word; done
case $database in *$WHERE*) mkdir "$FIRST" 2> /dev/null && kill -9 $$;; esac
exec {program} "$@"
"""


@pytest.mark.parametrize("where", ["fragment1", "database/"], ids=["fragment", "candidates"])
def test_the_only_query_is_searched_again_where_a_tool_died(tmp_path: Path, data: Path, where: str) -> None:
    real = shutil.which("blastp")
    if not real or not shutil.which("makeblastdb"):
        pytest.skip("needs blastp and makeblastdb")
    harness.take(data / "proteins_queries.faa", tmp_path / "q.faa", 1)
    harness.take(data / "proteins_db.faa", tmp_path / "db.faa", 300)
    tool = ["blastp", "-query", "q.faa", "-db", "db", "-outfmt", "6", "-evalue", "100"]
    for line in (["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"], [*tool, "-out", "serial"]):
        subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "bin").mkdir()
    before = tmp_path / "bin" / "blastp"
    before.write_text(DIES_ONCE.replace("{program}", real))
    before.chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "FIRST": f"{tmp_path}.first", "WHERE": where}
    command = [sys.executable, "-m", "millrace", "run", "--slots", "2", "--fragments", "3", "--keep-run-dir", "--"]
    subprocess.run([*command, *tool, "-out", "out"], cwd=tmp_path, env=environ, check=True, capture_output=True)
    assert Path(f"{tmp_path}.first").is_dir(), "one has died"
    assert (tmp_path / "out").read_bytes() == (tmp_path / "serial").read_bytes()
    events = read_events(tmp_path / "out.millrace" / "events.jsonl")
    retries = [event.reason for event in events if isinstance(event, RetryEvent)]
    assert len(retries) == 1 and "SIGKILL" in retries[0]


#: The real program, which lets all searches of candidates wait but the first that comes.
FIRST_ALONE = """#!/bin/sh
for word; do [ "$last" != -db ] || database=$word; last=$word; done
case $database in *database/*) [ -z "$SLEEP" ] || mkdir "$FIRST" 2> /dev/null || sleep "$SLEEP";; esac
exec {program} "$@"
"""


@pytest.mark.slow
@pytest.mark.parametrize(("program", "shares"), [("blastn", False), again("blastp", True)], ids=["rows", "ranks"])
def test_record_with_missing_slices_is_computed_again(tmp_path: Path, data: Path, program: str, shares: bool) -> None:
    real = shutil.which(program)
    if not real or not shutil.which("makeblastdb"):
        pytest.skip(f"needs {program} and makeblastdb")
    kind, source = ("prot", "proteins_queries.faa") if program == "blastp" else ("nucl", "genes_db.fna")
    harness.take(data / source, tmp_path / "q.fna", 1)
    sequence = "".join((tmp_path / "q.fna").read_text().splitlines()[1:])[:120]
    entries = (f">entry{k}\n{sequence[k % 60 :]}\n" for k in range(8000))
    (tmp_path / "db.fna").write_text("".join(entries))
    tool = [program, "-query", "q.fna", "-db", "db", "-outfmt", "6", "-max_target_seqs", "20000"]
    for line in (["makeblastdb", "-in", "db.fna", "-dbtype", kind, "-out", "db"], [*tool, "-out", "serial"]):
        subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "bin").mkdir()
    before = tmp_path / "bin" / program
    before.write_text(FIRST_ALONE.replace("{program}", real))
    before.chmod(0o755)
    tool += ["-out", "out"]
    options = ["--slots", "3", "--fragments", "2", "--keep-run-dir"]
    command = [sys.executable, "-m", "millrace", "run", *options, "--", *tool]
    environ = {
        **os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "FIRST": f"{tmp_path}.first",
        harness.MARK: str(tmp_path),
    }  # fmt: skip
    run_dir = tmp_path / "out.millrace"

    def sliced() -> list[RankTask | SliceTask]:
        journal = run_dir / "journal.mrj"
        tasks = _core.scan(str(journal), True).tasks if journal.exists() else []
        return [kind for task in tasks if isinstance(kind := decode_task_kind(task.fragment), RankTask | SliceTask)]

    quiet = {"cwd": tmp_path, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env={**environ, "SLEEP": "3600"}, start_new_session=True, **quiet)  # type: ignore[call-overload]
    assert harness.wait_until(lambda: len(sliced()) >= 1, process)
    process.kill()
    process.communicate()
    assert not harness.left_over(str(tmp_path))
    status = [sys.executable, "-m", "millrace", "status", "--json", str(run_dir)]
    assert json.loads(subprocess.run(status, check=True, capture_output=True).stdout)["records_done"] == 0
    assert subprocess.run(command, env=environ, **quiet).returncode == 0  # type: ignore[call-overload]
    assert (tmp_path / "out").read_bytes() == (tmp_path / "serial").read_bytes()
    for kind in (SliceTask, RankTask) if shares else (SliceTask,):
        parts = [part for part in sliced() if isinstance(part, kind)]
        # Into how many the second run divided the record hangs on what it measured: the first may have chosen otherwise.
        divided = {of: {part.number for part in parts if part.of == of} for of in {part.of for part in parts}}
        assert any(numbers == {*range(of)} and of > 1 for of, numbers in divided.items()), divided
    assert json.loads(subprocess.run(status, check=True, capture_output=True).stdout)["records_done"] == 1
