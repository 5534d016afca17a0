"""Defaults of a site: where they stand among all that is said, and what is wrong with a file."""

from __future__ import annotations

import os
import subprocess

import pytest
from shell import Shell

PLAN = "millrace plan --input in.fa --output o {} -- tee2 in.fa o"


def notes(shell: Shell, line: str) -> list[str]:
    ended = shell.run(line)
    assert ended.code == 0, ended.shown
    return [text.removeprefix("note:      ") for text in ended.out.splitlines() if text.startswith("note:")]


@pytest.fixture
def site(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    path = shell.root / "site.toml"
    path.write_text('slots = 3\nnice = 5\nwork-dir = "/var/tmp"\n')
    monkeypatch.setenv("MILLRACE_CONFIG", str(path))
    return shell


def test_site_defaults_yield_to_job_file_and_command_line(site: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is command line, environment, job file, site."""
    file = site.root / "site.toml"
    said = notes(site, PLAN.format(""))
    assert f"slots: 3, from {file}" in said and "slots: 3, as asked" in str(said) and f"nice: 5, from {file}" in said
    assert any(text.startswith("work directory: in /var/tmp") for text in said)
    (site.work / "job.toml").write_text('command = "tee2 in.fa o"\ninput = "in.fa"\noutput = "o"\nslots = 4\n')
    said = notes(site, "millrace plan job.toml")
    assert "slots: 4, from job.toml" in said and f"nice: 5, from {file}" in said
    monkeypatch.setenv("MILLRACE_PLAN_SLOTS", "5")
    assert "slots: 5, from the environment" in notes(site, "millrace plan job.toml")
    said = notes(site, "millrace plan --slots 6 job.toml")
    assert "slots: 6, as asked" in str(said) and not any(text.startswith("slots: ") and "from" in text for text in said)
    assert f"site:      {file}: slots = 3, nice = 5" in site.run("millrace doctor").out


def find_store(shell: Shell, line: str) -> str:
    """Return the folder in which a planned run would lie."""
    planned = shell.run(line)
    assert planned.code == 0, planned.shown
    (run_dir,) = (text for text in planned.out.splitlines() if text.startswith("run dir: "))
    return os.path.dirname(run_dir.split(maxsplit=2)[2])


def test_store_of_the_user_yields_to_environment_and_command_line(site: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is command line, environment, the user's file, the site's; a ``~`` is the home folder in each of them."""
    monkeypatch.setenv("HOME", str(site.root))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(site.root / "config"))
    (site.root / "site.toml").write_text('store = "/tmp/of-site"\n')
    assert find_store(site, PLAN.format("")) == "/tmp/of-site"
    (site.root / "config").mkdir()
    (site.root / "config" / "millrace.toml").write_text('store = "~/mine"\n')
    assert find_store(site, PLAN.format("")) == f"{site.root}/mine"
    monkeypatch.setenv("MILLRACE_STORE", "~/other")
    assert find_store(site, PLAN.format("")) == f"{site.root}/other"
    assert find_store(site, PLAN.format("--store=~root/x")) == f"{os.path.expanduser('~root')}/x"
    assert find_store(site, PLAN.format("--no-store")) == str(site.work)
    assert find_store(site, f"MILLRACE_PLAN_NO_STORE=1 {PLAN.format('--store ./~')}") == f"{site.work}/~"
    refused = site.run(PLAN.format("--store x --no-store"))
    assert refused.code == 2 and "--store and --no-store contradict each other" in refused.err
    assert not list(site.root.glob("**/~*"))


def test_tools_run_with_the_priority_of_the_site(site: Shell) -> None:
    site.tool("niceness", 'cat > /dev/null; cut -d" " -f19 /proc/self/stat')
    ended = site.run("nice -n 3 millrace run --format fasta --batch 3 --verify 0 -- niceness < in.fa")
    assert (ended.code, ended.out.split()) == (0, [str(min(os.nice(0) + 3 + 5, 19))]), ended.shown


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("slot = 3", "unknown key 'slot'\n\nhint: did you mean 'slots'?"),
        ('work-dir = "scratch"', "work-dir = 'scratch' is not an absolute path"),
        ('store = "runs"', "store = 'runs' is not an absolute path"),
        ('store = "~no such/runs"', "store ~no such/runs: no home folder is known for ~no such"),
        (
            "fresh = true",
            "unknown key 'fresh'\n\nhint: known keys: costs, nice, replica, slots, stage, store, work-dir",
        ),
        ("slots = 0", "slots: expected a whole number >= 1, found 0\n\nhint: it is named by MILLRACE_CONFIG"),
        ("slots", "not a TOML job file"),
    ],
)
def test_faulty_site_file_is_reported_with_path_and_key(site: Shell, content: str, words: str) -> None:
    (site.root / "site.toml").write_text(content)
    ended = site.run(PLAN.format(""))
    assert ended.code == 2 and f"{site.root}/site.toml: {words}" in ended.err, ended.shown


def test_site_file_in_etc_is_the_default(shell: Shell) -> None:
    if os.geteuid() or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("needs a mount namespace")
    etc = shell.root / "etc"
    etc.mkdir()
    (etc / "millrace.toml").write_text("nice = 7\n")
    for line, wanted in (("", True), ("MILLRACE_CONFIG= ", False)):
        inner = f"mount --bind {etc} /etc && {line}{PLAN.format('')}"
        found = notes(shell, f"unshare --mount sh -c '{inner}'")
        assert ("nice: 7, from /etc/millrace.toml" in found) is wanted
    ended = shell.run(f"MILLRACE_CONFIG=nosuch.toml {PLAN.format('')}")
    assert ended.code == 2 and "nosuch.toml: No such file" in ended.err and "MILLRACE_CONFIG" in ended.err
