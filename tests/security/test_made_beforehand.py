"""Further places where Millrace makes files by names that can be known before: nothing of a stranger's is followed."""

from __future__ import annotations

import shutil

import pytest
from machine_users import Machine

FUNCTION = """[phase.one]
python = "some.py:names"
input = "in.fa"
output = "{}/"
"""


@pytest.mark.skipif(not shutil.which("blastp"), reason="blastp is not installed")
@pytest.mark.parametrize("planted", ["mkdir -m 777 {0}; ln -s {1}/precious {0}/db.faa", "ln -s {1} {0}"])
def test_demo_follows_no_link_of_a_stranger(machine: Machine, planted: str) -> None:
    user, folder = machine.user, machine.shared / "demo"
    user.sh("echo mine > precious; chmod 755 .")
    machine.stranger.sh(planted.format(folder, user.home))
    done = user.millrace("demo", "--dir", folder, "--queries", "1")
    assert done.returncode == 2 and f"{folder}: " in done.stderr, done.stderr
    assert (user.home / "precious").read_text() == "mine\n" and not (user.home / "db.faa").exists()


def test_files_of_a_function_follow_no_link(machine: Machine) -> None:
    user, out = machine.user, machine.shared / "out"
    user.sh("printf '>r1\\nMKV\\n' > in.fa; echo mine > precious; chmod 755 .")
    (user.home / "some.py").write_text("def names(records):\n    for each in records:\n        yield 'one', each\n")
    (user.home / "job.toml").write_text(FUNCTION.format(out))
    user.sh(f"mkdir -m 777 {out}")
    machine.stranger.sh(f"ln -s {user.home}/precious {out}/.one.new")
    done = user.millrace("run", "job.toml")
    assert done.returncode == 0, done.stderr
    assert (user.home / "precious").read_text() == "mine\n"
    assert (out / "one").read_text() == ">r1\nMKV\n" and not (out / "one").is_symlink()


def test_folder_named_by_the_user_keeps_its_mode(machine: Machine) -> None:
    user = machine.user
    user.sh("mkdir -m 755 map")
    code = "import millrace; print(list(millrace.map(len, ['a', 'bcd'], run_dir='map', slots=1)))"
    done = user.run(user.python, "-P", "-c", code)
    assert done.stdout == "[1, 3]\n", done.stderr
    assert (user.home / "map").stat().st_mode & 0o777 == 0o755
