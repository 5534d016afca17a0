"""``millrace plan`` runs nothing of a stranger's."""

from __future__ import annotations

import pytest
from machine_users import Machine

#: A tool, or a module, that notes that it was run.
TOOL = "#!/bin/sh\ntouch {}/started\necho 'seqkit v2.3.1'\n"
JOB = """[phase.one]
python = "{}:select"
input = "in.fa"
output = "out.fa"
"""
MODULE = """open({!r}, "w")
def select(records):
    yield from records
"""


def test_plan_starts_no_tool_of_a_stranger(machine: Machine) -> None:
    user, stranger, shared = machine.user, machine.stranger, machine.shared
    user.sh(f"printf '>r1\\nMKV\\n' > in.fa; cp in.fa {shared}/in.fa")
    stranger.sh(
        f"mkdir {shared}/bin {shared}/log; chmod 777 {shared}/log; cat > {shared}/bin/seqkit <<'E'\n{TOOL.format(shared / 'log')}E"
    )
    stranger.sh(f"chmod 755 {shared}/bin/seqkit; cp {shared}/bin/seqkit {shared}/seqkit")
    command = ("seqkit", "seq", "in.fa")
    (user.home / "job.toml").write_text(f'[phase.one]\ncommand = ["{shared}/seqkit", "seq", "in.fa"]\n')
    for words in (("./seqkit", *command[1:]), (f"{shared}/bin/seqkit", *command[1:])):
        done = user.millrace("plan", "--", *words, cwd=shared)
        assert done.returncode == 2 and "plan would start seqkit to ask for its version" in done.stderr, done.stderr
    done = user.millrace("plan", "--", *command, cwd=shared, PATH=f".:{user.environ['PATH']}")
    assert done.returncode == 2 and "plan would start seqkit" in done.stderr, done.stderr
    done = user.millrace("plan", "job.toml")
    assert done.returncode == 2 and "plan would start seqkit" in done.stderr, done.stderr
    assert not any((shared / "log").iterdir())
    # What is on PATH by its whole name is trusted as PATH is.
    user.millrace("plan", "--", *command, cwd=shared, PATH=f"{shared}/bin:{user.environ['PATH']}")
    assert (shared / "log" / "started").exists(), "the rig can tell"


@pytest.mark.parametrize("place", ["some.py", "some", "package.some"])
def test_plan_loads_no_function_of_a_job(machine: Machine, place: str) -> None:
    user = machine.user
    module = MODULE.format(str(user.home / "loaded"))
    user.sh("printf '>r1\\nMKV\\n' > in.fa; mkdir -p package")
    (user.home / "package" / "__init__.py").write_text(module)
    for path in ("some.py", "package/some.py"):
        (user.home / path).write_text(module)
    (user.home / "job.toml").write_text(JOB.format(place))
    environ = {"PYTHONPATH": f"{user.packages}:{user.home}"}
    done = user.millrace("plan", "job.toml", **environ)
    assert done.returncode == 0 and "python: " in done.stdout, done.stderr
    assert not (user.home / "loaded").exists()
    done = user.millrace("run", "job.toml", **environ)
    assert done.returncode == 0 and (user.home / "loaded").exists(), done.stderr
    assert (user.home / "out.fa").read_text() == ">r1\nMKV\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def other(records): ...\n", "has no function select"),
        ("def select(records:\n", "cannot be loaded: SyntaxError"),
        ("", "has no function select"),
    ],
)
def test_plan_reports_a_missing_function(machine: Machine, text: str, words: str) -> None:
    user = machine.user
    user.sh("printf '>r1\\nMKV\\n' > in.fa")
    (user.home / "some.py").write_text(text)
    (user.home / "job.toml").write_text(JOB.format("some.py"))
    for verb in ("plan", "run"):
        done = user.millrace(verb, "job.toml")
        assert done.returncode == 2 and f"some.py: {words}" in done.stderr, done.stderr
