"""Runs on a Dask cluster of real processes: the serial bytes, whatever comes and goes, and without a shared folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import harness
import namespace_nodes
import pytest
import web_server
from dask_site import DaskSite

# Not imported, which takes a while.
pytestmark = pytest.mark.skipif(not find_spec("distributed"), reason="distributed is not installed")


@pytest.fixture(scope="module")
def blastp(tmp_path_factory: pytest.TempPathFactory, data: Path) -> harness.Case:
    made = harness.blastp(tmp_path_factory.mktemp("dask-blastp") / "case", data, n_queries=12, n_targets=1500)
    case = replace(made, options=("--batch", "1"))
    case.serial()
    return case


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables by which Dask's processes, and the coordinator as their client, use TLS with one certificate."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=millrace-test", "-keyout", key, "-out", cert], check=True, capture_output=True,
    )  # fmt: skip
    prefix = "DASK_DISTRIBUTED__COMM__"
    found = {f"{prefix}REQUIRE_ENCRYPTION": "True", f"{prefix}TLS__CA_FILE": str(cert)}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        found |= {f"{prefix}TLS__{role}__CERT": str(cert), f"{prefix}TLS__{role}__KEY": str(key)}
    # Nor does a lost worker count against a task where Dask's scheduler would give it up at the first one.
    return {**found, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}


@pytest.fixture
def site(tmp_path: Path, blastp: harness.Case, certificates: dict[str, str]) -> Iterator[DaskSite]:
    """A cluster with TLS whose workers do not see the folder of the case, but for the database."""
    shown = [path.name for path in blastp.folder.glob("db.p*")]
    with DaskSite(tmp_path / "dask", blastp.folder, shown, certificates, protocol="tls") as made:
        made.start_scheduler()
        yield made
    left = harness.left_over(made.mark)
    assert not left, f"{left}\n{made.logs()}"
    shutil.rmtree(blastp.run_dir, ignore_errors=True)
    (blastp.folder / "out.tsv").unlink(missing_ok=True)


def wait_for_results(case: harness.Case, process: subprocess.Popen[str], n_bytes: int = 1) -> None:
    """Wait until results are in the journal."""
    empty = 40
    assert harness.wait_until(lambda: harness.size(case.journal) > empty + n_bytes, process)


def lose_worker(site: DaskSite, case: harness.Case) -> str:
    """Run on two workers, of which one is killed once it has results, and another joins; return what was said."""
    first = site.start_worker()
    run = site.start_run(case)
    wait_for_results(case, run)
    site.start_worker()
    first.kill()
    site.start_worker()
    code, said = site.finish(run)
    assert code == 0 and case.differing() == [], f"{said}\n{site.logs()}"
    assert "is lost: it has left" in said
    return said


@pytest.mark.slow
def test_lost_worker_by_tls_without_shared_folder_same_bytes(site: DaskSite, blastp: harness.Case) -> None:
    said = lose_worker(site, blastp)
    assert not blastp.run_dir.exists()
    assert said.count("has joined") >= 1


def make_families(folder: Path, data: Path) -> harness.Case:
    """Each record is a file, and so has an output of its own."""
    (folder / "fams").mkdir(parents=True)
    (folder / "families").mkdir()
    records = (data / "proteins_queries.faa").read_text().split("\n>")
    for k in range(6):
        own = "\n".join(f">{record.lstrip('>')}" for record in records[4 * k : 4 * k + 4])
        (folder / "fams" / f"f{k}.fa").write_text(f"{own}\n")
    tool = ("mafft", "--quiet", "--out", "families/", "fams/")
    case = harness.Case("mafft", folder, (), tool, tuple(f"families/f{k}.fa" for k in range(6)))
    for name in case.outputs:
        given = name.replace("families", "fams")
        done = subprocess.run(["mafft", "--quiet", given], cwd=folder, check=True, capture_output=True)
        case.expected[name] = done.stdout
    return case


def make_diamond(folder: Path, data: Path) -> harness.Case:
    folder.mkdir()
    harness.take(data / "proteins_db.faa", folder / "db.faa", 1500)
    harness.take(data / "proteins_queries.faa", folder / "q.faa", 24)
    make = ["diamond", "makedb", "--in", "db.faa", "-d", "db", "--quiet"]
    subprocess.run(make, cwd=folder, check=True, capture_output=True)
    tool = ("diamond", "blastp", "-q", "q.faa", "-d", "db", "-o", "out.tsv")
    case = harness.Case("diamond", folder, ("--batch", "6"), tool, ("out.tsv",))
    case.serial()
    return case


def make_filter(folder: Path, _: Path) -> harness.Case:
    """A program that Millrace does not know, from standard input to standard output: parts of its input run again."""
    folder.mkdir()
    (folder / "in.txt").write_text("".join(f"line {k}\n" for k in range(2000)))
    options = ("--format", "lines", "--batch", "100")
    case = harness.Case("filter", folder, options, ("tr", "a-z", "A-Z"), ("out.txt",))
    case.expected["out.txt"] = (folder / "in.txt").read_bytes().upper()
    return case


def make_search(folder: Path, data: Path, make: Callable[[Path, Path], harness.Case]) -> harness.Case:
    case = make(folder, data)
    case.serial()
    return case


#: What makes a case of each kind, and the files of its database, which each worker has.
KINDS: dict[str, tuple[Callable[[Path, Path], harness.Case], str]] = {
    "blastp": (partial(make_search, make=harness.blastp), "db.p*"),
    "hmmscan": (partial(make_search, make=partial(harness.hmmscan, n_queries=48)), "profiles.hmm*"),
    "diamond": (make_diamond, "db.dmnd"),
    "filter": (make_filter, "no database"),
    "families": (make_families, "no database"),
}


@pytest.fixture(scope="module")
def apart(
    tmp_path_factory: pytest.TempPathFactory, data: Path, certificates: dict[str, str]
) -> Iterator[tuple[DaskSite, dict[str, harness.Case]]]:
    """Four workers, each on a node with network and mounts of its own, with TLS; they see nothing of cases but databases."""
    if reason := namespace_nodes.reason_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("apart")
    (folder / "cases").mkdir()
    cases = {kind: make(folder / "cases" / kind, data) for kind, (make, _) in KINDS.items()}
    shown = [
        str(path.relative_to(folder / "cases"))
        for kind, (_, database) in KINDS.items()
        for path in cases[kind].folder.glob(database)
    ]
    names = ("n1", "n2", "n3", "n4")
    with (
        tempfile.TemporaryDirectory(prefix="mr-") as short,
        namespace_nodes.Nodes(Path(short), names, os.getpid() % 200 + 40) as nodes,
        DaskSite(folder / "apart", folder / "cases", shown, certificates, protocol="tls", nodes=nodes) as site,
    ):
        site.start_scheduler()
        for _ in names:
            site.start_worker()
        yield site, cases


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_workers_on_nodes_apart_serial_bytes(apart: tuple[DaskSite, dict[str, harness.Case]], kind: str) -> None:
    """No folder is shared: what tasks read comes with them, but the database."""
    site, cases = apart
    case = cases[kind]
    if kind == "filter":
        with (case.folder / "in.txt").open("rb") as given, (case.folder / "out.txt").open("wb") as made:
            run = site.start_run(case, stdin=given, stdout=made)
    else:
        run = site.start_run(case)
    code, said = site.finish(run)
    assert code == 0 and case.differing() == [], f"{said}\n{site.logs()}"
    assert not any(site.folder.glob("w*/shown/**/*.fa")), "files that came with tasks are removed"


def test_fragments_of_a_lost_worker_serial_bytes(site: DaskSite, blastp: harness.Case) -> None:
    """What one worker found in a fragment comes to the worker that finishes the batch by the coordinator's journal."""
    tool = (*blastp.tool[:5], "-outfmt", "7", *blastp.tool[7:])
    options = ("--batch", "3", "--fragments", "3", "--keep-run-dir")
    case = replace(blastp, tool=tool, options=options, expected={})
    case.serial()
    lose_worker(site, case)
    events = [json.loads(line) for line in (case.run_dir / "events.jsonl").read_text().splitlines()]
    done = [event["fragment"] for event in events if event["event"] == "task" and event.get("status", "done") == "done"]
    assert sorted(set(done)) == [0, 1, 2, 3] and done.count(0) == 4, events


def test_store_is_kept_and_used_by_runs_on_workers(site: DaskSite, blastp: harness.Case, tmp_path: Path) -> None:
    """The second run searches a sample alone."""
    case = replace(blastp, options=("--store", str(tmp_path / "store")))
    site.start_worker(2)
    for is_known in (False, True):
        (case.folder / "out.tsv").unlink(missing_ok=True)
        code, said = site.finish(site.start_run(case))
        assert code == 0 and case.differing() == [], f"{said}\n{site.logs()}"
        assert ("11 of 12 queries known" in said) == is_known, said
        with closing(sqlite3.connect(tmp_path / "store" / "candidates" / "candidates.sqlite")) as tables, tables:
            tables.execute("DELETE FROM results")  # else nothing is left to search


@pytest.mark.slow
@pytest.mark.parametrize("fragments", ["3", "20K"])
def test_hmmscan_in_fragments_on_workers_serial_bytes(tmp_path: Path, data: Path, fragments: str) -> None:
    case = replace(harness.hmmscan(tmp_path / "case", data, n_queries=24), options=("--fragments", fragments))
    case.serial()
    shown = [path.name for path in case.folder.glob("profiles.hmm*")]
    with DaskSite(tmp_path / "dask", case.folder, shown) as site:
        site.start_scheduler()
        site.start_worker()
        site.start_worker()
        code, said = site.finish(site.start_run(case))
        assert code == 0, f"{said}\n{site.logs()}"
    assert case.differing() == []


@pytest.mark.slow
def test_worker_with_another_database_is_refused(site: DaskSite, blastp: harness.Case) -> None:
    (site.folder / "other").mkdir()
    other = DaskSite(
        site.folder / "other", blastp.folder, ["db.psq"], site.environ, protocol="tls"
    )  # part of the database is missing there
    other.port = site.port
    try:
        other.start_worker()
        code, said = site.finish(site.start_run(blastp))
    finally:
        for worker in other.workers:
            other.end(worker)
    assert code == 2 and "is not here" in said and "bring the same file" in said, f"{said}\n{other.logs()}"
    assert not blastp.run_dir.exists() and not (blastp.folder / "out.tsv").exists()


@pytest.mark.slow
def test_database_by_url_on_workers_serial_bytes(tmp_path: Path, blastp: harness.Case) -> None:
    """The same as with the database in the working folder, but for its name in the report, which is that of the URL's file."""
    pytest.importorskip("requests")
    case = replace(blastp, folder=tmp_path / "case", tool=(*blastp.tool[:4], "{url}", *blastp.tool[5:]))
    case.folder.mkdir()
    shutil.copy(blastp.folder / "q.faa", case.folder)
    with web_server.serve() as web, DaskSite(tmp_path / "dask", case.folder, []) as site:
        urls = [web.put(file.name, file.read_bytes()) for file in blastp.folder.glob("db.p*")]
        case = replace(case, tool=tuple(word.format(url=urls[0].rpartition(".")[0]) for word in case.tool))
        site.start_scheduler()
        site.start_worker(2)
        code, said = site.finish(site.start_run(case))
        assert code == 0, f"{said}\n{site.logs()}"
    assert case.differing() == []


@pytest.mark.slow
def test_killed_scheduler_and_coordinator_serial_bytes(site: DaskSite, blastp: harness.Case) -> None:
    site.start_worker()
    run = site.start_run(blastp)
    wait_for_results(blastp, run)
    run.kill()
    run.communicate()
    run = site.start_run(blastp)
    wait_for_results(blastp, run, harness.size(blastp.journal))
    assert site.scheduler
    site.end(site.scheduler)
    site.start_scheduler()
    site.start_worker()
    code, said = site.finish(run)
    assert code == 0, f"{said}\n{site.logs()}"
    assert blastp.differing() == []
    assert "Dask's scheduler is lost" in said


@pytest.mark.slow
def test_lost_scheduler_after_patience_ends_for_resume(site: DaskSite, blastp: harness.Case) -> None:
    site.start_worker()
    run = site.start_run(blastp, "--patience", "1")
    wait_for_results(blastp, run)
    assert site.scheduler
    site.end(site.scheduler)
    code, said = site.finish(run)
    assert code == 1 and "it resumes" in said, said
    site.start_scheduler()
    site.start_worker()
    code, said = site.finish(site.start_run(blastp))
    assert code == 0 and blastp.differing() == [], said


@pytest.mark.slow
def test_stopped_worker_is_replaced_and_used_again(tmp_path: Path, data: Path) -> None:
    case = harness.blastp(tmp_path / "case", data, n_queries=40)
    case = replace(case, options=("--batch", "1"))
    case.serial()
    with DaskSite(tmp_path / "dask", case.folder, [path.name for path in case.folder.glob("db.p*")]) as site:
        site.start_scheduler()
        first, _ = site.start_worker(), site.start_worker()
        run = site.start_run(case)
        wait_for_results(case, run)
        first.send_signal(signal.SIGSTOP)
        log = tmp_path / "case" / "out.tsv.millrace" / "events.jsonl"
        assert harness.wait_until(lambda: "no sign of life for 10 s" in log.read_text(), run)
        first.send_signal(signal.SIGCONT)
        code, said = site.finish(run)
        assert code == 0 and case.differing() == [], f"{said}\n{site.logs()}"
        assert said.count("is lost") <= 2, said  # the summary has the message once more


@pytest.mark.slow
@pytest.mark.parametrize("seed", [5001, 5002, 5003])
def test_random_history_serial_bytes(seed: int, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers, Dask's scheduler and the coordinator are killed, stand still and come back at random moments."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from bench import chaos_dask

    case = replace(harness.blastp(tmp_path / "case", data, n_queries=40), options=("--batch", "1"))
    case.serial()
    history, wrong = chaos_dask.run_history(case, tmp_path / "site", seed)
    assert not wrong, f"{dict(history.events)}: {wrong}"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hosts", "n1,n2"], "--dask with --hosts: both bring slots of their own"),
        (["--records"], "--dask with --records: programs that stay alive"),
        (["--patience", "-1"], "patience"),
    ],
)
def test_contradiction_with_dask_is_refused_at_once(options: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "in.fa").write_text(">r\nMKV\n")
    command = [
        sys.executable,
        "-m",
        "millrace",
        "plan",
        "--dask",
        "tcp://127.0.0.1:1",
        *options,
        "--input",
        "in.fa",
        "--",
        "cat",
        "in.fa",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and words in done.stderr
