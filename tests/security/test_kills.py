"""Nothing is killed but what the run itself has started, whatever others leave about."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import harness
import pytest
from machine_users import Machine, User

MEMORY = Path("/dev/shm")

#: A tool that says that it has started, waits until it may go on, and copies its input. Its marks lie beside the working
#: folder, as what it writes there is its own.
WAITING = "#!/bin/sh\necho x >> {marks}/starts\nuntil [ -e {marks}/go ]; do sleep 0.02; done\nexec cat\n"

HOUR = 3600.0


def get_marks(user: User) -> Path:
    """Return the folder of the marks of the user's tools, beside their home."""
    return user.home.with_name(f"{user.home.name}-marks")


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@contextmanager
def waiting_run(user: User, n: int = 2) -> Iterator[subprocess.Popen[str]]:
    """A run of ``n`` tasks, all of which wait for a mark."""
    (marks := get_marks(user)).mkdir()
    os.chown(marks, user.uid, -1)
    user.sh(f"for k in $(seq {n}); do printf '>r%d\\nMKV\\n' $k; done > in.fa")
    (user.home / "waiting").write_text(WAITING.format(marks=marks))
    (user.home / "waiting").chmod(0o755)
    run = (
        "run",
        "--slots",
        n,
        "--batch",
        1,
        "--verify",
        0,
        "--input",
        "in.fa",
        "--output",
        "out",
        "--",
        "sh",
        "-c",
        "~/waiting < in.fa > out",
    )
    with user.start_millrace(*run) as process:
        started = harness.wait_until(lambda: lines(marks / "starts") == n, process)
        assert started and process.poll() is None, process.communicate()
        yield process
        process.kill()


def plant(stranger: User, place: Path, name: str) -> Path:
    """A folder as a dead run leaves it, with a name of the stranger's choice."""
    path = place / name
    stranger.sh(f"mkdir -p {path}/spool; chmod -R 755 {path}; touch -d '2 hours ago' {path}/spool {path}")
    return path


@contextmanager
def sleeper(user: User, **environ: str) -> Iterator[subprocess.Popen[str]]:
    with user.start("sleep", HOUR, **environ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("known", [0, 1, 15])
def test_planted_folder_ends_no_tools_of_another_run(machine: Machine, known: int) -> None:
    user, stranger = machine.user, machine.stranger
    with waiting_run(user) as run:
        name = stranger.sh(f"ls {MEMORY} | grep ^millrace-work-{user.uid}-").strip()
        planted = plant(stranger, MEMORY, name[: len(name) - 16 + known])
        assert user.millrace("run", "--input", "in.fa", "--", "cat", "in.fa").returncode == 0
        (get_marks(user) / "go").touch()
        _, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        assert lines(get_marks(user) / "starts") == 2, "a tool was killed and started again"
        assert (planted / "spool").is_dir()


def test_planted_copy_of_a_live_folder_name_ends_nothing(machine: Machine) -> None:
    """A stranger who reads the name cannot make the run look dead."""
    user, stranger = machine.user, machine.stranger
    with waiting_run(user) as run:
        name = stranger.sh(f"ls {MEMORY} | grep ^millrace-work-{user.uid}-").strip()
        plant(stranger, machine.shared, name)
        assert (
            user.millrace("run", "--input", "in.fa", "--", "cat", "in.fa", TMPDIR=str(machine.shared)).returncode == 0
        )
        (get_marks(user) / "go").touch()
        assert run.wait(300) == 0
        assert lines(get_marks(user) / "starts") == 2, "a tool was killed and started again"


def test_folder_readable_by_others_is_no_work_directory(machine: Machine) -> None:
    user, token = machine.user, os.urandom(8).hex()
    planted = plant(user, MEMORY, f"millrace-work-{user.uid}-{token}")
    with sleeper(user, MILLRACE_TOKEN=token) as process:
        user.sh("printf '>r\\nM\\n' > in.fa")
        assert user.millrace("run", "--input", "in.fa", "--", "cat", "in.fa").returncode == 0
        assert process.poll() is None and planted.is_dir()
        planted.chmod(0o700)  # now it is one: the rig can tell
        assert user.millrace("run", "--input", "in.fa", "--", "cat", "in.fa").returncode == 0
        assert process.wait(300) == -9 and not planted.exists()


def test_a_link_is_no_work_directory(machine: Machine) -> None:
    user, token = machine.user, os.urandom(8).hex()
    user.sh("mkdir -p own/spool; touch own/precious; chmod 700 own; printf '>r\\nM\\n' > in.fa")
    machine.stranger.sh(f"ln -s {user.home}/own {MEMORY}/millrace-work-{user.uid}-{token}")
    with sleeper(user, MILLRACE_TOKEN=token) as process:
        assert user.millrace("run", "--input", "in.fa", "--", "cat", "in.fa").returncode == 0
        assert process.poll() is None
    assert (user.home / "own/precious").exists()


def sweep(user: User, token: str) -> int:
    """What a supervisor does on each node."""
    code = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-m', 'millrace.launch.sweep'], input={token + chr(10)!r}, text=True).returncode)"
    return user.run(user.python, "-c", code).returncode


@pytest.mark.parametrize("part", [0, 1, 15])
def test_part_of_a_job_token_ends_nothing_on_a_node(machine: Machine, part: int) -> None:
    token = os.urandom(8).hex()
    with sleeper(machine.user, MILLRACE_LAUNCH=token) as process:
        assert sweep(machine.user, token[:part])
        assert process.poll() is None
        assert sweep(machine.user, token) == 0 and process.wait(300) == -9


def test_token_matches_a_whole_environment_entry_only(machine: Machine) -> None:
    token, user = os.urandom(8).hex(), machine.user
    places = {"OTHER": token, "MILLRACE_LAUNCH": f"{token}0", "NOTE": f"MILLRACE_LAUNCH={token}"}
    with sleeper(user, **places) as process, sleeper(user, MILLRACE_LAUNCH=token) as meant:
        assert sweep(user, token) == 0
        assert meant.wait(300) == -9 and process.poll() is None


def test_only_own_folders_of_dead_mpi_jobs_are_swept(machine: Machine) -> None:
    """Those of strangers and of live jobs stay."""
    user, stranger = machine.user, machine.stranger
    dead, held, young, taken = (f"/tmp/millrace-mpi-{os.urandom(8).hex()}-{os.urandom(8).hex()}" for _ in range(4))
    for owner, folders in ((user, (dead, held, young)), (stranger, (taken,))):
        for folder in folders:
            owner.sh(f"mkdir -m 700 {folder}; touch {folder}/file")
            if folder != young:
                owner.sh(f"touch -d '2 hours ago' {folder}")
    user.sh("mkdir own; touch own/precious; printf '>r\\nM\\n' > in.fa")
    link = f"/tmp/millrace-mpi-{os.urandom(8).hex()}-{os.urandom(8).hex()}"
    stranger.sh(f"ln -s {user.home}/own {link}")
    check = f"import os, time; from millrace.host import work_places; work_places.hold_start_folder({{work_places.LAUNCHER_VARIABLE: '{held}'}}); print(flush=True); time.sleep({HOUR})"
    with user.start(user.python, "-c", check) as rank:
        assert rank.stdout and rank.stdout.readline() == "\n"
        try:
            assert user.millrace("run", "--input", "in.fa", "--", "cat", "in.fa").returncode == 0
            assert [os.path.exists(path) for path in (dead, held, young, taken)] == [False, True, True, True]
            assert (user.home / "own/precious").exists() and os.path.lexists(link)
        finally:
            rank.kill()


@pytest.mark.parametrize("what", ["node", "work directory"])
def test_root_ends_no_process_of_others(machine: Machine, what: str, tmp_path: Path) -> None:
    token, user = os.urandom(8).hex(), machine.user
    root = User(0, tmp_path, user.python, user.packages)
    own, name = ("MILLRACE_LAUNCH", "") if what == "node" else ("MILLRACE_TOKEN", f"millrace-work-0-{token}")
    with sleeper(user, **{own: token}) as process, sleeper(root, **{own: token}) as meant:
        if name:
            (MEMORY / name / "spool").mkdir(parents=True)
            (MEMORY / name).chmod(0o700)
            (tmp_path / "in.fa").write_text(">r\nM\n")
            assert root.millrace("run", "--input", "in.fa", "--", "cat", "in.fa").returncode == 0
        else:
            assert sweep(root, token) == 0
        assert meant.wait(300) == -9 and process.poll() is None
