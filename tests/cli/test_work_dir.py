"""Where the work directory lies: where the user wants it, in memory, or on disk where memory is short."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cgroups import memory_group
from harness import wait_until
from shell import PLAIN, Shell

from millrace.core.errors import RefusedError
from millrace.host import work_places
from millrace.node import work_dir
from millrace.planning import work_dir_location

needs_setpriv = pytest.mark.skipif(bool(PLAIN) and not shutil.which("setpriv"), reason="setpriv is not installed")

#: Prints where what a task writes in its folder lies, below the test's folder or in memory.
WHERE = ': > here.$$; find "$MARK" /dev/shm -path "*/upper-0/here.$$"'


@pytest.fixture
def told(shell: Shell) -> Path:
    """A file in which the tool ``where`` says where what it writes in its folder lies."""
    path = shell.root / "where.log"
    shell.tool("where", f"{WHERE} >> {path}; rm here.$$; exec cat")
    return path


@pytest.mark.parametrize("line", ["millrace run --work-dir ../place", "MILLRACE_WORK=$PWD/../place millrace run"])
def test_work_directory_is_as_asked_and_removed_at_the_end(line: str, shell: Shell, told: Path) -> None:
    place = shell.root / "place"
    place.mkdir()
    dead = place / f"{work_dir.build_name_prefix()}{'0' * 16}"
    (dead / "spool").mkdir(parents=True)
    dead.chmod(0o700)
    ended = shell.run(f"{line} --batch 1 --format fasta -- where < in.fa | cmp - in.fa")
    assert ended.code == 0, ended.shown
    found = told.read_text().splitlines()
    assert len(found) >= 3 and all(path.startswith(f"{place}/{work_dir.build_name_prefix()}") for path in found), found
    assert list(place.iterdir()) == [], "nor is left what an earlier run had there"


@needs_setpriv
@pytest.mark.parametrize("closed", ["555 cache/sub", "555 cache/sub cache .", "0 cache/sub cache"])
def test_unwritable_tool_folders_are_removed_per_task(closed: str, shell: Shell) -> None:
    place = shell.root / "place"
    place.mkdir()
    shell.tool("closes", f"mkdir -p cache/sub && touch cache/sub/f && chmod {closed} && exec cat")
    run = "millrace run -q --work-dir ../place --batch 1 --slots 1 --format fasta"
    ended = shell.run(f"{PLAIN} {run} -- closes < in.fa | cmp - in.fa")
    assert ended.code == 0, ended.shown
    assert list(place.iterdir()) == []


@needs_setpriv
def test_unwritable_folders_of_a_killed_tool_are_removed(shell: Shell) -> None:
    place = shell.root / "place"
    place.mkdir()
    closes = 'mkdir -p cache/sub && touch cache/sub/f && chmod 555 cache/sub && touch "$COUNT" && sleep 600'
    shell.tool("closes", closes)
    run = "millrace run -q --work-dir ../place --slots 1 --format fasta --run-dir r"
    ended = shell.run(
        f'{PLAIN} {run} -- closes < in.fa & p=$!; until [ -e "$COUNT" ]; do sleep 0.1; done; kill -KILL $p; wait $p'
    )
    assert ended.code == 137, ended.shown
    assert wait_until(lambda: list(place.iterdir()) == []), list(place.iterdir())


def test_job_file_sets_the_work_directory(shell: Shell) -> None:
    """Plan and doctor report where it is."""
    place = shell.root / "place"
    place.mkdir()
    (shell.work / "job.toml").write_text(f'command = ["copy", "in.fa"]\ninput = ["in.fa"]\nwork-dir = "{place}"\n')
    ended = shell.run("millrace plan job.toml")
    assert f"work directory: in {place}, as asked" in ended.out, ended.shown
    found = json.loads(shell.run(f"MILLRACE_WORK={place} millrace doctor --json").out)
    assert (found["work_dir"], found["work_why"]) == (str(place), "as asked")


def test_file_size_limit_is_named_with_the_file(shell: Shell) -> None:
    ended = shell.run("ulimit -f 1; millrace run --format fasta --output out.fa -- copy < in.fa")
    assert ended.code == 1 and "out.fa.millrace/" in ended.err and "(ulimit -f)" in ended.err, ended.shown


def test_missing_work_directory_is_refused_before_the_start(shell: Shell) -> None:
    ended = shell.run("millrace run --work-dir nowhere --format fasta -- copy < in.fa")
    assert ended.code == 2 and "nowhere: no such folder for the work directory" in ended.err, ended.shown
    assert shell.run_dirs() == []


def test_shared_storage_is_refused_as_work_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_places.file_lock, "find_filesystem_kind", lambda _: "nfs4")
    with pytest.raises(RefusedError, match=r"machines share \(nfs4\)"):
        work_dir_location.choose_work_place(str(tmp_path), 2, Path("/"))


def test_node_sweep_removes_the_work_directory(tmp_path: Path) -> None:
    dead = tmp_path / f"{work_dir.build_name_prefix()}{'1' * 16}"
    (dead / "spool").mkdir(parents=True)
    dead.chmod(0o700)
    words = [sys.executable, "-m", "millrace.launch.sweep"]
    subprocess.run(words, input=f"{'a' * 16}\n{tmp_path}\n", text=True, check=True)
    assert not dead.exists()


def test_work_directory_holds_only_documented_files(shell: Shell) -> None:
    """For each slot two batches of at most 16 MB, with their results."""
    record = b">r\n" + b"MKVLAAGIAK" * 100 + b"\n"
    (shell.work / "large.fa").write_bytes(record * 150_000)
    sizes = shell.root / "sizes.log"
    shell.tool("sized", f'cat; du -sb "$MARK"/place/millrace-work-* >> {sizes}')
    (shell.root / "place").mkdir()
    ended = shell.run("millrace run --slots 2 --work-dir ../place --format fasta -- sized < large.fa | cmp - large.fa")
    assert ended.code == 0, ended.shown
    found = [int(line.split()[0]) for line in sizes.read_text().splitlines()]
    assert len(found) > 8 and max(found) > 1 << 20, found
    assert max(found) <= 2 * 2 * 2 * (16 << 20) + (1 << 20), found


@pytest.mark.slow
def test_results_do_not_count_against_a_limit_that_is_tight(shell: Shell, told: Path) -> None:
    shell.tool(
        "large",
        f'{WHERE} >> {told}; rm here.$$; grep ">" | while read -r _; do head -c 80M /dev/zero | tr "\\0" x; done',
    )
    with memory_group("results", 176 << 20) as group:
        enter = f"echo $$ > {group.folder}/cgroup.procs; "
        line = "millrace run --slots 2 --batch 1 --format fasta -- large < in.fa > out"
        ended = shell.run(enter + line, 300)
        assert ended.code == 0, ended.shown
        assert group.kills == 0
        plan = shell.run(enter + "millrace plan --slots 2 --format fasta -- large < in.fa")
    with (shell.work / "out").open("rb") as out:
        assert (
            all(set(piece) == {ord("x")} for piece in iter(lambda: out.read(1 << 20), b"")) and out.tell() == 240 << 20
        )
    assert not any(path.startswith("/dev/shm/") for path in told.read_text().splitlines())
    assert "on disk: 134 MB for the slots would be much of the 185 MB" in plan.out, plan.shown
