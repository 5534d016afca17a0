"""Descriptions of tools that another user has written, or may write, start nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from machine_users import Machine, User

DESCRIPTION = """programs = ["mytool"]
version = ["--version"]
[[use.input]]
operand = 1
format = "fasta"
"""

#: Notes each start in the folder of the program.
TOOL = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/started"
[ "$1" = --version ] && { echo 1.0; exit; }
cat "$1"
"""


def with_tool(user: User) -> dict[str, str]:
    """Give a user ``mytool``, and an input; what to add to the environment."""
    user.sh("mkdir bin; printf '>r1\\nMKV\\n' > in.fa")
    (user.home / "bin" / "mytool").write_text(TOOL)
    (user.home / "bin" / "mytool").chmod(0o755)
    return {"PATH": f"{user.home}/bin:{user.environ['PATH']}"}


def describe(user: User, folder: Path) -> Path:
    """Let a user write a description into a folder."""
    user.sh(f"mkdir -p {folder} && cat > {folder}/mytool.toml <<'E'\n{DESCRIPTION}E")
    return folder / "mytool.toml"


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_description_of_a_stranger_is_refused(machine: Machine, verb: str) -> None:
    user = machine.user
    environ = with_tool(user)
    describe(machine.stranger, machine.shared / "millrace-tools")
    done = user.millrace(verb, "--", "mytool", user.home / "in.fa", cwd=machine.shared, **environ)
    assert done.returncode == 2 and "is not believed" in done.stderr, done.stderr
    assert not (user.home / "bin" / "started").exists()


@pytest.mark.parametrize(
    ("opened", "words"),
    [
        ("millrace-tools/mytool.toml", "mytool.toml: can be written by every user"),
        ("millrace-tools", "millrace-tools: can be written by every user"),
        (".", "project: can be written by every user"),
    ],
)
def test_description_writable_by_everybody_is_refused(machine: Machine, opened: str, words: str) -> None:
    """Although its owner has confirmed it, while it was theirs alone."""
    user, project = machine.user, machine.user.home / "project"
    environ = with_tool(user)
    describe(user, project / "millrace-tools")
    allowed = user.millrace("tool", "allow", "millrace-tools/mytool.toml", cwd=project)
    assert allowed.returncode == 0, allowed.stderr
    assert user.millrace("plan", "--", "mytool", "../in.fa", cwd=project, **environ).returncode == 0
    (user.home / "bin" / "started").unlink()
    (project / opened).chmod(0o777)
    done = user.millrace("plan", "--", "mytool", "../in.fa", cwd=project, **environ)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not (user.home / "bin" / "started").exists()


def test_confirmation_holds_for_one_user_and_content(machine: Machine) -> None:
    user, stranger, project = machine.user, machine.stranger, machine.user.home / "project"
    environ = with_tool(user)
    path = describe(user, project / "millrace-tools")
    planned = ("plan", "--", "mytool", "../in.fa")
    refused = user.millrace(*planned, cwd=project, **environ)
    assert refused.returncode == 2 and "millrace tool allow millrace-tools/mytool.toml" in refused.stderr, (
        refused.stderr
    )
    # What a stranger has confirmed in a folder that the user is made to use counts for nothing.
    describe(stranger, stranger.home)
    stranger.sh(f"mkdir {machine.shared}/state")
    allowed = stranger.millrace("tool", "allow", "mytool.toml", XDG_STATE_HOME=f"{machine.shared}/state")
    assert allowed.returncode == 0, allowed.stderr
    stranger.sh(f"chmod -R 777 {machine.shared}/state")
    refused = user.millrace(*planned, cwd=project, **environ, XDG_STATE_HOME=f"{machine.shared}/state")
    assert refused.returncode == 2 and "has not been confirmed" in refused.stderr, refused.stderr
    kept = user.millrace("tool", "allow", path, cwd=project, XDG_STATE_HOME=f"{machine.shared}/state")
    assert kept.returncode == 2 and "what you confirm cannot be kept" in kept.stderr, kept.stderr
    assert user.millrace("tool", "allow", path, cwd=project).returncode == 0
    assert user.millrace(*planned, cwd=project, **environ).returncode == 0
    path.write_text(DESCRIPTION + "# changed\n")
    refused = user.millrace(*planned, cwd=project, **environ)
    assert refused.returncode == 2 and "has not been confirmed" in refused.stderr, refused.stderr


def test_description_in_the_home_of_another_is_ignored(machine: Machine) -> None:
    """As where ``sudo`` keeps ``HOME``: whoever owns it could say what root runs."""
    user, stranger = machine.user, machine.stranger
    environ = with_tool(user)
    machine.stranger.home.chmod(0o755)
    describe(stranger, stranger.home / ".config/millrace/tools")
    for who in (user, User(0, user.home, user.python, user.packages)):
        done = who.millrace("plan", "--", "mytool", user.home / "in.fa", **environ, HOME=str(stranger.home))
        assert "file:mytool" not in done.stdout + done.stderr, done.stderr
        assert not (user.home / "bin" / "started").exists()
    user.home.chmod(0o755)
    own = stranger.millrace("plan", "--", "mytool", user.home / "in.fa", **environ)
    assert "file:mytool" in own.stdout, "the rig can tell"
