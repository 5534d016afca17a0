"""What is gathered from the journal of a stranger goes below the folder that the user names, or nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from machine_users import Machine

DESCRIPTION = """programs = ["copy"]
[use]
values = "o"
[[use.input]]
operand = 1
each-file = true
[[use.output]]
option = "o"
"""


def run_of_stranger(machine: Machine, out: str) -> Path:
    """Let a stranger run a tool that writes a file for each of two; the kept run directory, which all can read."""
    stranger, run_dir = machine.stranger, machine.shared / "run"
    stranger.sh(
        f"mkdir -p .config/millrace/tools bin in {machine.shared}/work; printf '>a\\nM\\n' > in/precious; cp in/precious in/other; cp -r in {machine.shared}/work;"
        f"printf '#!/bin/sh\\ncat \"$3\" > \"$2\"\\n' > bin/copy; chmod 755 bin/copy; cat > .config/millrace/tools/copy.toml <<'E'\n{DESCRIPTION}E"
    )
    done = stranger.millrace(
        "run", "--keep-run-dir", "--verify", "0", "--run-dir", run_dir, "--", "copy", "-o", out, "in/", cwd=machine.shared / "work",
        PATH=f"{stranger.home}/bin:{stranger.environ['PATH']}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stranger.sh(f"chmod -R a+rX {run_dir}")
    return run_dir


def test_files_for_each_record_are_gathered_below_the_target(machine: Machine) -> None:
    user, run_dir = machine.user, run_of_stranger(machine, "out/{name}.txt")
    done = user.millrace("gather", run_dir, "--stream", "o", "-o", "target")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (user.home / "target" / "out").iterdir()} == {"precious.txt", "other.txt"}
    again = user.millrace("gather", run_dir, "--stream", "o", "-o", "target")
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("out", ["{shared}/written/{name}", "../written/{name}"])
def test_name_outside_of_the_target_is_refused(machine: Machine, out: str) -> None:
    user, written = machine.user, machine.shared / "written"
    machine.stranger.sh(f"mkdir {written}")
    run_dir = run_of_stranger(machine, out.replace("{shared}", str(machine.shared)))
    machine.stranger.sh(f"rm -r {written}")
    user.sh(f"mkdir {written}; echo mine > {written}/precious; mkdir target")
    done = user.millrace("gather", run_dir, "--stream", "o", "-o", "target", cwd=user.home)
    assert done.returncode == 2 and "not one of a file below the folder" in done.stderr, done.stderr
    assert (written / "precious").read_text() == "mine\n"
    assert [path.name for path in written.iterdir()] == ["precious"] and not any((user.home / "target").iterdir())
    assert not (user.home / "written").exists()


@pytest.mark.parametrize(
    "planted", ["ln -s {home}/mine out", "mkdir -m 777 out; ln -s {home}/mine/precious out/precious.txt"]
)
def test_links_in_the_target_are_not_followed(machine: Machine, planted: str) -> None:
    user, run_dir, target = machine.user, run_of_stranger(machine, "out/{name}.txt"), machine.shared / "target"
    user.sh(f"mkdir mine; echo mine > mine/precious; chmod 755 .; mkdir -m 777 {target}")
    machine.stranger.sh(f"cd {target}; {planted.format(home=user.home)}")
    done = user.millrace("gather", run_dir, "--stream", "o", "-o", target)
    assert done.returncode == 2 and "is not followed" in done.stderr, done.stderr
    assert (user.home / "mine" / "precious").read_text() == "mine\n"
    assert [path.name for path in (user.home / "mine").iterdir()] == ["precious"]
