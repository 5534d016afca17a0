"""What a run keeps is the user's own, closed to whoever may not read the input, and nobody else's is believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from machine_users import Machine, User
from test_kills import waiting_run


def ready(user: User) -> None:
    user.sh("printf '>r1\\nMKV\\n' > in.fa; echo mine > precious; chmod 644 precious")


def test_run_directory_of_a_stranger_is_refused(machine: Machine) -> None:
    user, out = machine.user, machine.shared / "out"
    ready(user)
    links = " ".join(
        f"ln -s {user.home}/precious {out}.millrace/{name};" for name in ("lock", "events.jsonl", "job.json.new")
    )
    machine.stranger.sh(f"mkdir {out}.millrace; chmod 777 {out}.millrace; {links}")
    done = user.millrace("run", "--input", "in.fa", "--output", out, "--", "sh", "-c", "cat in.fa > $0", out)
    assert done.returncode == 2 and "belongs to another user" in done.stderr, done.stderr
    assert (user.home / "precious").read_text() == "mine\n"


def test_link_of_a_stranger_to_a_user_folder_is_refused(machine: Machine) -> None:
    user = machine.user
    ready(user)
    user.sh("mkdir own; chmod 755 .")
    machine.stranger.sh(f"ln -s {user.home}/own {machine.shared}/run")
    done = user.millrace("run", "--run-dir", machine.shared / "run", "--input", "in.fa", "--", "cat", "in.fa")
    assert done.returncode == 2 and "belongs to another user" in done.stderr, done.stderr
    assert not any((user.home / "own").iterdir())


def test_run_directory_writable_by_everybody_is_refused(machine: Machine) -> None:
    ready(machine.user)
    machine.user.sh("mkdir run; chmod 777 run")
    done = machine.user.millrace("run", "--run-dir", "run", "--input", "in.fa", "--", "cat", "in.fa")
    assert done.returncode == 2 and "can be written by every user" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("home", "mode", "umask", "made"),
    [(0o755, 0o600, 0o022, 0o700), (0o755, 0o640, 0o022, 0o750), (0o755, 0o644, 0o022, 0o755), (0o700, 0o644, 0o022, 0o700),
     (0o755, 0o644, 0o077, 0o700)],
    ids=["private", "for the group", "for all", "in a private folder", "umask"],
)  # fmt: skip
def test_a_run_directory_is_as_private_as_the_input(
    machine: Machine, home: int, mode: int, umask: int, made: int
) -> None:
    user, stranger = machine.user, machine.stranger
    ready(user)
    (user.home / "in.fa").chmod(mode)
    user.home.chmod(home)
    run_dir = machine.shared / "run"
    line = f"umask {umask:03o}; {user.python} -P -m millrace run --keep-run-dir --run-dir {run_dir} --input in.fa -- cat in.fa"
    user.sh(line)
    assert run_dir.stat().st_mode & 0o777 == made
    assert (stranger.run("wc", run_dir / "journal.mrj").returncode == 0) == bool(made & 5)


@pytest.mark.parametrize("private", ["database", "output", "folder of the output"])
def test_a_run_directory_is_as_private_as_database_and_output(machine: Machine, private: str) -> None:
    """What is in the journal says what was found, and what will be in the output."""
    user, run_dir = machine.user, machine.shared / "run"
    ready(user)
    user.sh("chmod 755 .; mkdir -m 755 out; echo x > db; echo old > out/old; chmod 644 in.fa db out/old")
    words = f"{user.python} -P -m millrace run --keep-run-dir --run-dir {run_dir} --input in.fa --shared db"
    line = "-- sh -c 'cat in.fa db > out/{}' > /dev/null"
    output = "old" if private == "output" else "new"
    for mode, made in ((0o755, 0o755), (0o700, 0o700)):
        place = {"database": "db", "output": "out/old", "folder of the output": "out"}[private]
        (user.home / place).chmod(mode)
        user.sh(f"rm -rf {run_dir} out/new; {words} --output out/{output} {line.format(output)}")
        assert run_dir.stat().st_mode & 0o777 == made


def test_digests_of_the_environment_differ_from_run_to_run(machine: Machine) -> None:
    """So that no table tells a value, and it is still seen that one has changed."""
    user, found = machine.user, []
    ready(user)
    (user.home / "tool").write_text("#!/bin/sh\ngrep -q r2 $1 && exit 1\ncat $1\n")
    (user.home / "tool").chmod(0o755)
    user.sh("printf '>r1\\nMKV\\n>r2\\nMKV\\n>r3\\nMKV\\n' > in.fa")
    words = ("run", "--batch", "1", "--slots", "1", "--on-failure", "stop", "--input", "in.fa", "--run-dir")
    for run_dir in ("one", "two"):
        assert user.millrace(*words, run_dir, "--", "./tool", "in.fa", PASSWORD="1234").returncode == 1
        environ = json.loads((user.home / run_dir / "job.json").read_text())["environ"]
        found.append(environ["PASSWORD"])
        assert len(environ[""]) == 32
    assert found[0] != found[1]
    same = user.millrace(*words, "one", "--", "./tool", "in.fa", PASSWORD="1234")
    assert "not what the environment had" not in same.stderr
    other = user.millrace(*words, "one", "--", "./tool", "in.fa", PASSWORD="5678")
    assert "PASSWORD: not what the environment had" in other.stderr, other.stderr


def test_stranger_sees_a_held_lock_but_cannot_acquire_it(machine: Machine) -> None:
    user, stranger = machine.user, machine.stranger
    user.home.chmod(0o755)
    with waiting_run(user):
        lock = user.home / "out.millrace/lock"
        assert stranger.run("flock", "--nonblock", "--shared", lock, "true").returncode == 66, "it could be opened"
        assert "running" in stranger.millrace("status", user.home / "out.millrace").stdout


@pytest.mark.parametrize("mode", ["700", "755", "777"])
def test_a_launch_folder_of_a_stranger_is_refused(machine: Machine, mode: str) -> None:
    folder = machine.shared / "out.millrace.launch"
    machine.stranger.sh(f"mkdir {folder}; echo 0 > {folder}/done; chmod {mode} {folder}")
    code = f"from pathlib import Path; from millrace.launch.supervisor_link import lock_launch_folder; lock_launch_folder(Path('{folder}'))"
    done = machine.user.run(machine.user.python, "-c", code)
    assert "RefusedError" in done.stderr and "belongs to another user" in done.stderr


def test_launch_folder_is_private(machine: Machine) -> None:
    folder = machine.shared / "out.millrace.launch"
    code = f"from pathlib import Path; from millrace.launch.supervisor_link import lock_launch_folder; lock_launch_folder(Path('{folder}'))"
    assert machine.user.run(machine.user.python, "-c", code).returncode == 0
    assert machine.stranger.run("ls", folder).returncode != 0


@pytest.mark.parametrize("made", ["mkdir -m 777 {}", "mkdir -m 700 {}", "ln -s {home}/own {}"])
def test_rank_refuses_mpi_files_of_a_stranger(machine: Machine, made: str) -> None:
    user, folder = machine.user, machine.shared / "millrace-mpi"
    ready(user)
    user.sh("mkdir -m 700 own")
    machine.stranger.sh(made.format(folder, home=user.home))
    environ = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "MILLRACE_MPI_FOLDER": str(folder)}
    done = user.millrace("run", "--input", "in.fa", "--", "cat", "in.fa", **environ)
    assert done.returncode == 1 and f"{folder}: the folder of the MPI launcher cannot be trusted" in done.stderr, (
        done.stderr
    )


def test_modules_of_the_working_directory_are_not_imported(machine: Machine) -> None:
    user = machine.user
    modules = ("mpi4py", "shutil", "json", "millrace")
    for name in modules:
        machine.stranger.sh(f'echo \'open("{user.home}/loaded-{name}", "w")\' > {machine.shared}/{name}.py')
    user.sh("printf '>r1\\nMKV\\n' > in.fa")
    done = user.millrace(
        "run", "--hosts", "a,b", "--input", user.home / "in.fa", "--", "cat", user.home / "in.fa", cwd=machine.shared
    )
    assert done.returncode == 2 and "this Python has none" in done.stderr, done.stderr
    (user.home / "rsh").write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    (user.home / "rsh").chmod(0o755)
    code = "import os; from millrace.launch import node_sweeps; from millrace.launch.node_allocation import NodeAllocation; print(node_sweeps.sweep_all_nodes(NodeAllocation('hosts', ('a',)), ['a'], '0' * 16, os.environ).alive)"
    asked = user.run(user.python, "-P", "-c", code, cwd=machine.shared, MILLRACE_RSH=str(user.home / "rsh"))
    assert asked.stdout == "('a',)\n", asked.stderr
    assert not list(user.home.glob("loaded-*"))


def test_preexisting_copy_folder_of_a_stranger_is_avoided(machine: Machine) -> None:
    """A folder by another name is made, and the next run uses it again."""
    user = machine.user
    machine.stranger.sh(
        f"mkdir {machine.shared}/millrace-stage-{user.uid}; chmod 777 {machine.shared}/millrace-stage-{user.uid}"
    )
    code = f"from pathlib import Path; from millrace.storage.cache.copy_cache import NodeCache; print(NodeCache(Path('{machine.shared}')).folder)"
    first, second = (user.run(user.python, "-c", code) for _ in range(2))
    folder = Path(first.stdout.strip())
    assert first.stdout == second.stdout, first.stderr
    assert folder.stat().st_uid == user.uid and folder.stat().st_mode & 0o777 == 0o700
    assert folder.name != f"millrace-stage-{user.uid}"


def test_disk_without_ownership_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from millrace.host import permissions

    monkeypatch.setattr(os, "geteuid", lambda: 12345)  # whatever we make belongs to somebody else
    assert permissions.find_ownership_problem(tmp_path) == ""
    assert not any(tmp_path.iterdir())


def test_report_of_a_foreign_run_follows_no_link(machine: Machine) -> None:
    user, run_dir = machine.user, machine.shared / "run"
    ready(user)
    machine.stranger.sh(
        f"mkdir -m 777 {run_dir}; printf '>r\\nM\\n' > in.fa;"
        f"{user.python} -P -m millrace run --keep-run-dir --run-dir own --input in.fa -- cat in.fa; cp own/* {run_dir};"
        f"ln -s {user.home}/precious {run_dir}/report.html.new; ln -s {user.home}/precious {run_dir}/report.html"
    )
    # The page itself needs large packages, and is not what this is about.
    code = f"from pathlib import Path; from millrace.report import html_report; html_report.render_page = lambda *_: 'page'; html_report.write_report(Path('{run_dir}'), Path('{run_dir}/report.html'))"
    done = user.run(user.python, "-c", code)
    assert done.returncode == 0, done.stderr
    assert (user.home / "precious").read_text() == "mine\n"
    assert not (run_dir / "report.html").is_symlink() and (run_dir / "report.html").read_text() == "page"
    (run_dir / "report.html").unlink()
    machine.stranger.sh(f"chmod 755 {run_dir}")
    assert "hint" not in done.stderr
    done = user.run(user.python, "-c", code)
    assert "MillraceError" in done.stderr and "hint: name a place of your own with -o" in done.stderr, done.stderr


@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
def test_cache_of_another_user_is_not_used(machine: Machine, variable: str) -> None:
    user, stranger = machine.user, machine.stranger
    machine.shared.chmod(0o777)
    ask = "from pathlib import Path; from millrace.core.tool_use import UserCommand; from millrace.adapters.program_identity import read_version_line; print(read_version_line(UserCommand(argv=('echo',), exe=Path('/bin/echo'), cwd=Path('/'), environ={}), 'echo 1.0'))"
    cache = machine.shared / "cache"
    stranger.sh(f"mkdir -m 755 {cache}")
    environ = {"HOME": str(stranger.home), "XDG_CACHE_HOME": "", variable: str(cache)}
    own = stranger.run(user.python, "-c", ask, **environ)
    assert own.stdout == "echo 1.0\n", own.stderr
    (kept,) = [path for path in cache.rglob("*") if path.is_file()]
    stranger.sh(f"echo planted > {kept}")
    assert stranger.run(user.python, "-c", ask, **environ).stdout == "planted\n", "the rig can tell"
    # With rights as root's, everything of the stranger's can be read, and his links are followed.
    for who in (user, User(0, user.home, user.python, user.packages)):
        assert who.run(user.python, "-c", ask, **environ).stdout == "echo 1.0\n"
    assert kept.read_text() == "planted\n"
    assert {path.stat().st_uid for path in cache.rglob("*")} == {stranger.uid}, "nor is anything written there"


@pytest.mark.parametrize(
    ("mode", "owner", "why"),
    [
        ("777", "user", "sticky"),
        ("777", "stranger", "another user"),
        ("1777", "stranger", "another user"),
        ("1777", "user", ""),
    ],
)
def test_replaceable_work_directory_is_refused(machine: Machine, mode: str, owner: str, why: str) -> None:
    """Others could rename a folder above it."""
    user, place = machine.user, machine.shared / "place"
    ready(user)
    getattr(machine, owner).sh(f"mkdir {place}; chmod {mode} {place}")
    run = ("run", "--input", "in.fa", "--", "cat", "in.fa")
    for words, environ in (((*run[:1], "--work-dir", place, *run[1:]), {}), (run, {"MILLRACE_WORK": str(place)})):
        done = user.millrace(*words, **environ)
        assert done.returncode == (2 if why else 0) and why in done.stderr, done.stderr


def test_redirected_stdout_in_a_root_folder_is_written(machine: Machine) -> None:
    """The user may write the file, and nothing beside it."""
    user = machine.user
    ready(user)
    user.sh(
        f"{user.python} -P -m millrace run --input in.fa --output /dev/stdout -- cp in.fa /dev/stdout > out.fa; cmp in.fa out.fa"
    )
