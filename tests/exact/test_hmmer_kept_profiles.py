"""hmmscan with a large database, which is kept open for it from query to query: the bytes of the serial run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from harness import tools, wait_until
from parameter_choice import again

from millrace import _core
from millrace.adapters.hmmer import adapter
from millrace.core.errors import ExitCode

HMMSCAN = shutil.which("hmmscan")

pytestmark = pytest.mark.skipif(
    HMMSCAN is None or not _core.can_reread(HMMSCAN), reason="no hmmscan into which libraries can be preloaded"
)

MILLRACE = [sys.executable, "-m", "millrace"]
#: Without workers, as with them the width of columns differs from one serial run to the next.
ENVIRON = {**os.environ, "HMMER_NCPU": "0"}
OUTPUTS = {"-o": "out.txt", "--tblout": "hits.tbl", "--domtblout": "domains.tbl", "--pfamtblout": "pfam.tbl"}
TABLES = [word for pair in OUTPUTS.items() for word in pair]
VOLATILE = re.compile(rb"(?m)^# (?:CPU time|Mc/sec|Date):?.*\n")
NOTE = "p.hmm.h3f stays open from record to record"
#: Records that hmmscan reads in a way of its own.
ODD = b">empty\n>one\nM\n>random\nMKVLAAGIVGLLLAQWERTYPSDFGHKLCVNM\n>stop\nMKV*LLA*\n>lower \xe9\r\nmkvlaagivgllla\r\n>unknown\nXXXXXXXXXXXX\n>" + b"n" * 300 + b"\nMKVUOBZJ\n"  # fmt: skip
#: Copies of the queries in the long input, so that a task lasts.
N_COPIES = 12


@pytest.fixture(scope="module")
def database(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pressed profiles, many and few, that have cutoffs, and queries."""
    folder = tmp_path_factory.mktemp("profiles")
    found = re.findall(rb"^HMMER(?:.*\n)+?//\n", (data / "profiles.hmm").read_bytes(), re.MULTILINE)
    found = [re.sub(rb"(?m)^STATS", b"GA    25.00 20.00;\nTC    30.00 25.00;\nSTATS", each, count=1) for each in found]
    copies = [re.sub(rb"(?m)^(NAME  .*)$", rb"\1_%d" % k, each, count=1) for k in range(2) for each in found]
    for name, profiles in (("p.hmm", copies), ("few.hmm", found[:3])):
        (folder / name).write_bytes(b"".join(profiles))
        subprocess.run(["hmmpress", name], cwd=folder, check=True, capture_output=True)
    assert (folder / "p.hmm.h3f").stat().st_size >= adapter.MIN_REREAD_BYTES
    relatives = [
        path.read_bytes().split(b">")[1].strip() + b"\n" for path in sorted((data / "families").iterdir())[:12]
    ]
    others = (data / "proteins_queries.faa").read_bytes().split(b">")[1:19]
    (folder / "q.faa").write_bytes(
        b"".join(b">" + each for pair in zip(relatives, others, strict=False) for each in pair)
    )
    (folder / "odd.faa").write_bytes(ODD + b"".join(b">" + each for each in relatives) + b">last\n")
    (folder / "long.faa").write_bytes((folder / "q.faa").read_bytes() * N_COPIES)
    return folder


@pytest.fixture
def folder(database: Path, tmp_path: Path) -> Path:
    """A working directory with the files of ``database``."""
    folder = tmp_path / "work"
    folder.mkdir()
    for path in database.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


def written(folder: Path) -> dict[str, bytes]:
    """What a command has written, without what differs from run to run; the files are removed."""
    found = {}
    for path in filter(Path.exists, (folder / name for name in OUTPUTS.values())):
        found[path.name] = VOLATILE.sub(b"", path.read_bytes())
        path.unlink()
    return found


def run_serial(folder: Path, *argv: str) -> dict[str, bytes]:
    subprocess.run(argv, cwd=folder, env=ENVIRON, check=True, capture_output=True)
    return written(folder)


def run_both(folder: Path, argv: list[str], *options: str, limit: str = "unlimited", **environ: str) -> None:
    """Compare a run, in batches of seven or as ``options`` say, with the serial one."""
    expected = run_serial(folder, *argv)
    assert len(expected) == len(OUTPUTS)
    ours = [*MILLRACE, "run", "-q", "--progress", "none", "--slots", "2", *(options or ("--batch", "7")), "--", *argv]
    limited = ["bash", "-c", f'ulimit -v {limit} && exec "$@"', "bash", *ours]
    done = subprocess.run(limited, cwd=folder, env={**ENVIRON, **environ}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert written(folder) == expected


def plan(folder: Path, *argv: str, **environ: str) -> str:
    command = [*MILLRACE, "plan", "--", *argv]
    return subprocess.run(
        command, cwd=folder, env={**ENVIRON, **environ}, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize(
    "options",
    [
        "", "--cut_ga", "-E 1e-4 --domE 0.1", "-T 5 --domT 5", "--cut_tc --noali --acc", "--nobias --notextw",
        "--incE 0.1 --incdomE 0.1", "-Z 500 --domZ 3 --seed 7", "--nonull2", "--cpu 0", "--qformat fasta",
    ],
)  # fmt: skip
@pytest.mark.parametrize("queries", ["q.faa", "odd.faa"])
def test_cutoffs_give_serial_bytes(folder: Path, options: str, queries: str) -> None:
    argv = ["hmmscan", *TABLES, *options.split(), "p.hmm", queries]
    assert NOTE in plan(folder, *argv)
    run_both(folder, argv)


@pytest.mark.slow
@pytest.mark.parametrize("options", ["--max", "--max -T 5 --domT 5"])
def test_search_without_filters_gives_serial_bytes(folder: Path, options: str) -> None:
    run_both(folder, ["hmmscan", *TABLES, *options.split(), "p.hmm", "odd.faa"])


@pytest.mark.parametrize("how", [("--fragments", "3"), ("--warm", "--batch", "2"), again(("--profile-io",))])
def test_other_ways_of_a_run_give_serial_bytes(folder: Path, how: tuple[str, ...]) -> None:
    """Fragments of profiles are kept open alike; a warm tool, or one whose calls are counted, opens its files itself."""
    run_both(folder, ["hmmscan", *TABLES, "p.hmm", "q.faa"], *how)


def test_limited_address_space_gives_serial_bytes(folder: Path) -> None:
    """The file is not mapped where a limit is set."""
    run_both(folder, ["hmmscan", *TABLES, "p.hmm", "q.faa"], limit="8000000")


def count_opens(folder: Path, library: Path, profiles: str, **environ: str) -> int:
    """Count how often the C library opens the profiles in a run of one task."""
    log = folder.parent / "opens.log"
    log.unlink(missing_ok=True)
    argv = ["hmmscan", *TABLES, profiles, "q.faa"]
    run_both(folder, argv, "--batch", "1000", LD_PRELOAD=str(library), FOPEN_LOG=str(log), **environ)
    return len(re.findall(r"\.h3f$", log.read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def fopen_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of the user's own, which notes what is opened."""
    compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("library") / "fopen_log.so"
    source = Path(__file__).with_name("fopen_log.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def test_large_profiles_are_opened_once(folder: Path, fopen_log: Path) -> None:
    n_queries = (folder / "q.faa").read_bytes().count(b">")
    assert count_opens(folder, fopen_log, "p.hmm") == 1
    assert count_opens(folder, fopen_log, "few.hmm") == n_queries + 1


def test_work_folder_with_space_opens_profiles_each_time(folder: Path, fopen_log: Path) -> None:
    """``LD_PRELOAD`` cannot name a file in such a folder."""
    place = folder.parent / "my work"
    place.mkdir()
    n_queries = (folder / "q.faa").read_bytes().count(b">")
    assert count_opens(folder, fopen_log, "p.hmm", MILLRACE_RUN_WORK_DIR=str(place)) == n_queries + 1


def test_few_profiles_and_scripts_are_not_kept(folder: Path) -> None:
    assert NOTE.replace("p.hmm", "few.hmm") not in plan(folder, "hmmscan", *TABLES, "few.hmm", "q.faa")
    assert NOTE not in plan(folder, "hmmsearch", "few.hmm", "q.faa")
    wrapper = folder / "bin" / "hmmscan"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {HMMSCAN} "$@"\n')
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{os.environ['PATH']}"
    assert NOTE not in plan(folder, "hmmscan", *TABLES, "p.hmm", "q.faa", PATH=path)


def find_reading_tool(pid: int) -> int:
    """Stop a tool of a run while it has the profiles open, and return its number; 0: there is none."""
    for tool in tools(pid):
        with suppress(OSError):
            os.kill(tool, signal.SIGSTOP)
            opened = [os.readlink(f"/proc/{tool}/fd/{fd}") for fd in os.listdir(f"/proc/{tool}/fd")]
            if any(name.endswith(".h3f") for name in opened):
                return tool
            os.kill(tool, signal.SIGCONT)
    return 0


@pytest.fixture
def started(folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def stop_while_reading(
    folder: Path, started: list[subprocess.Popen[str]], *, limit: str = "unlimited"
) -> tuple[subprocess.Popen[str], int]:
    """Start a run, and stop its tool while it reads the profiles."""
    argv = ["hmmscan", *TABLES, "p.hmm", "long.faa"]
    ours = [*MILLRACE, "run", "-q", "--progress", "none", "--slots", "1", "--batch", "1000", "--", *argv]
    limited = ["bash", "-c", f'ulimit -v {limit} && exec "$@"', "bash", *ours]
    process = subprocess.Popen(limited, cwd=folder, env=ENVIRON, stderr=subprocess.PIPE, text=True)
    started.append(process)
    found = [0]

    def find() -> bool:
        found[0] = find_reading_tool(process.pid)
        return bool(found[0])

    assert wait_until(find, process)
    return process, found[0]


def test_killed_tool_is_started_again(folder: Path, started: list[subprocess.Popen[str]]) -> None:
    expected = run_serial(folder, "hmmscan", *TABLES, "p.hmm", "long.faa")
    process, tool = stop_while_reading(folder, started)
    os.kill(tool, signal.SIGKILL)
    assert process.communicate()[1] == ""
    assert process.returncode == ExitCode.DONE
    assert written(folder) == expected


@pytest.mark.parametrize("change", ["cut", "rewrite", "replace"])
def test_changed_profiles_end_the_run_as_ever(folder: Path, started: list[subprocess.Popen[str]], change: str) -> None:
    """What the run says is the same, whether the file is mapped or read."""
    said = []
    for limit in ("unlimited", "8000000"):
        copy_profiles(folder)
        process, tool = stop_while_reading(folder, started, limit=limit)
        change_profiles(folder / "p.hmm.h3f", change)
        os.kill(tool, signal.SIGCONT)
        text = process.communicate()[1]
        said.append((process.returncode, text))
        assert "p.hmm.h3f" in text, text
        assert "changed" in text, text
        written(folder)
        shutil.rmtree(folder / "out.txt.millrace", ignore_errors=True)
    assert said[0] == said[1]
    assert said[0][0] not in (ExitCode.DONE, ExitCode.REFUSED)


def copy_profiles(folder: Path) -> None:
    """Replace links to the database by copies."""
    for path in folder.glob("p.hmm*"):
        source = (folder / "long.faa").resolve().with_name(path.name)
        path.unlink()
        shutil.copy(source, path)


def change_profiles(path: Path, change: str) -> None:
    content = path.read_bytes()
    match change:
        case "cut":
            os.truncate(path, len(content) // 3)
        case "rewrite":
            path.write_bytes(content[: len(content) // 2] * 2)
        case _:
            new = path.with_name("new")
            new.write_bytes(content)
            new.rename(path)
