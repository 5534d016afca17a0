"""What a tool does besides its work ends neither in wrong bytes nor in a run that hangs."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from pathlib import Path

import harness
import pytest
from crash_site import Site

SEEN = "sed 's/^>/>seen /'"


def tool(site: Site, body: str) -> None:
    (site.folder / "tool").write_text(f"#!/bin/bash\n{body}\n")


def lives(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def noted(site: Site) -> list[int]:
    """Numbers of processes that the tool wrote down."""
    return [int(line) for line in site.log.read_text().split()] if site.log.exists() else []


@pytest.mark.parametrize(
    "body",
    [
        f'cat "$1" > >(sleep 0.05; {SEEN} > "$2")',
        f'cat "$1" | tee >(sleep 0.05; {SEEN} > "$2") > /dev/null',
        f'(sleep 0.05; {SEEN} "$1" > "$2") &',
        f'(setsid bash -c \'sleep 0.05; {SEEN.replace(chr(39), chr(34))} "$0" > "$1"\' "$1" "$2" &)',
    ],
    ids=["substitution", "tee", "background", "session of its own"],
)
def test_background_children_are_awaited(site: Site, body: str) -> None:
    tool(site, body)
    code, said = site.run()
    assert code == 0, said
    assert site.output.read_bytes() == site.expected


@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_background_child_killed_after_the_tool_is_reported(name: str, site: Site) -> None:
    """The tool itself has ended well by then, and what is written looks like a result."""
    left = 'until read -r _ _ _ parent _ < /proc/$BASHPID/stat; [ "$parent" != $$ ]; do sleep 0.01; done'
    late = f'{left}; watched $parent "$LOG.rests"; kill -{name} $BASHPID'
    tool(
        site,
        f'{harness.WATCHED}\nif mkdir "$LOG.once"; then : > "$2"; ({late}; {SEEN} "$1" > "$2") & else {SEEN} "$1" > "$2"; fi',
    )
    site.options = ("--slots", "1", "--batch", "40", "--retries", "0", "--on-failure", "stop")
    site.n = 1
    site.write_input()
    code, said = site.run()
    assert code != 0 and "of what it left at work, tool (process " in said and f"was killed by SIG{name}" in said, said
    code, said = site.run()
    assert code == 0 and site.output.read_bytes() == site.expected, said


@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_helpers_killed_by_the_tool_itself_are_no_failure(name: str, site: Site) -> None:
    tool(site, f'sleep 1000 & {SEEN} "$1" > "$2"; kill -{name} $!')
    code, said = site.run("--retries", "0", "--on-failure", "stop")
    assert code == 0, said
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
def test_a_daemon_is_named_and_does_not_outlive_its_task(site: Site) -> None:
    tool(site, f'env -i LOG="$LOG" setsid bash -c \'echo $$ >> "$LOG"; exec sleep 100000\' &\n{SEEN} "$1" > "$2"')
    site.n = 2
    site.write_input()
    site.options = ("--slots", "2", "--batch", "1", "--retries", "0")
    code, said = site.run()
    assert code == 4, said
    assert "it left processes that did nothing for 10 s" in said and "sleep (process " in said
    assert noted(site) and not any(map(lives, noted(site)))


def test_processes_of_a_failed_tool_end_before_the_next_task(site: Site) -> None:
    """It would write the output of another task."""
    late = ': > "$LOG.once"; while [ -e /proc/$PPID ]; do :; done; while :; do echo wrong > out.fa; done'
    begin = f'env -i LOG="$LOG" setsid bash -c \'{late}\' & until [ -e "$LOG.once" ]; do sleep 0.01; done; exit 1'
    tool(
        site,
        f'[ -e "$LOG.once" ] || {{ {begin}; }}\n{SEEN} "$1" > "$2"; sleep 0.02',
    )
    site.options = ("--slots", "1", "--batch", "4")
    code, said = site.run()
    assert code == 0, said
    assert site.output.read_bytes() == site.expected


def test_hidden_children_do_not_survive_a_kill(site: Site) -> None:
    tool(site, 'env -i LOG="$LOG" setsid bash -c \'echo $$ >> "$LOG"; (exec sleep 100000)\'; sleep 100000')
    process = site.start(mark="hidden")
    try:
        assert harness.wait_until(lambda: len(noted(site)) >= 2, process), "the tools do not start"
        children = [pid for pid in noted(site) if lives(pid)]
        assert children
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert harness.wait_until(lambda: not any(map(lives, children))), "a child lives on"
    assert not harness.left_over("hidden")


def test_a_run_whose_watchdog_was_killed_cleans_up_by_itself(site: Site) -> None:
    tool(site, f'until [ -e "$LOG.go" ]; do sleep 0.01; done; {SEEN} "$1" > "$2"')
    before = harness.dead_work()
    process = site.start(mark="dogless")
    try:
        assert harness.wait_until(lambda: bool(harness.tools(process.pid)), process), "the tools do not start"
        work = harness.work_of(process.pid)
        (watchdog,) = [pid for pid, name in harness.children(process.pid) if name == "millrace-watch"]
        os.kill(watchdog, signal.SIGKILL)
        site.log.with_name(f"{site.log.name}.go").touch()
        said = process.communicate()[1]
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert not work.exists() and not harness.left_over("dogless", before)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ('mkfifo "$2"', "a named pipe"),
        ('mkdir "$2"', "a folder"),
        ('ln -s /dev/zero "$2"', "a link to /dev/zero"),
        ("python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' \"$2\"", "a socket"),
    ],
    ids=["pipe", "folder", "device", "socket"],
)
def test_an_output_that_is_no_file_is_refused(site: Site, body: str, what: str) -> None:
    tool(site, body)
    code, said = site.run()
    assert code == 4, said
    assert f"it left out.fa as {what}" in said and "not as a file" in said


@pytest.mark.parametrize("name", ["scratch", "tmp/scratch"])
def test_users_file_written_by_the_tool_is_named(site: Site, name: str) -> None:
    """It is left by the tool itself, run by hand; all slots would write the same."""
    tool(site, f'{SEEN} "$1" > {name}; sleep 0.01; cat {name} > "$2"')
    (site.folder / "tmp").mkdir()
    (site.folder / name).write_text("left by an earlier run\n")
    code, said = site.run()
    assert code == 4, said
    assert f"it writes {name}, a file of your folder that all tasks share" in said
    (site.folder / name).unlink()
    if name == "tmp/scratch":
        (site.folder / "tmp").rmdir()
        tool(site, f'mkdir -p tmp; {SEEN} "$1" > {name}; sleep 0.01; cat {name} > "$2"')
    code, said = site.run("--fresh")
    assert code == 0, said
    assert site.output.read_bytes() == site.expected


#: Writes the first record's name into ``state`` by way of mapped memory, of which the kernel tells nobody.
MAPPED = """python3 -c 'import mmap, sys
with open("state", "r+b") as file, mmap.mmap(file.fileno(), 0) as shown: shown[:9] = open(sys.argv[1], "rb").read(9)' "$1"
"""


@pytest.mark.slow
def test_file_written_by_mmap_is_named(site: Site) -> None:
    tool(site, f'{MAPPED}{SEEN} "$1" > "$2"')
    (site.folder / "state").write_text("left by an earlier run\n")
    code, said = site.run()
    # The first task may find what it writes there already; it is right, and the others are put aside.
    assert code in (3, 4), said
    assert "it writes state, a file of your folder that all tasks share" in said


def test_file_opened_but_not_written_is_no_failure(site: Site) -> None:
    tool(site, f'exec 5<> state; touch state; {SEEN} "$1" > "$2"')
    (site.folder / "state").write_text("old\n")
    code, said = site.run()
    assert code == 0, said
    assert site.output.read_bytes() == site.expected


def test_file_written_by_others_does_not_stop_the_run(site: Site) -> None:
    """Notes by an editor, the log of a batch system, the output of another program; all while tasks run."""
    tool(site, f'sleep 0.02; {SEEN} "$1" > "$2"')
    (site.folder / "others").mkdir()
    for name in ("notes", "others/notes", "log.txt"):
        (site.folder / name).write_text("old\n")
    # Some start while the run lasts, and end before.
    writing = (
        "while :; do echo x >> notes; echo x > others/notes; date > others/$$.$RANDOM; sleep 0.005; done >> log.txt"
    )
    other = subprocess.Popen(["bash", "-c", writing], cwd=site.folder)
    try:
        code, said = site.run()
    finally:
        other.kill()
        other.wait()
    assert code == 0, said
    assert site.output.read_bytes() == site.expected
    assert (site.folder / "notes").read_text().startswith("old\nx\n")


def test_replaced_file_is_restored_for_the_next_task(site: Site) -> None:
    tool(site, f'[ "$(cat state)" = old ] || exit 3; rm state; echo new > state; {SEEN} "$1" > "$2"')
    (site.folder / "state").write_text("old\n")
    code, said = site.run()
    assert code == 0, said
    assert "also wrote state, which is not kept" in said
    assert site.output.read_bytes() == site.expected
    assert (site.folder / "state").read_text() == "old\n"


def test_an_output_may_be_a_link_to_a_file_beside_it(site: Site) -> None:
    tool(site, f'{SEEN} "$1" > real; ln -s real "$2"')
    code, said = site.run()
    assert code == 0, said
    assert site.output.read_bytes() == site.expected and not site.output.is_symlink()


def test_tool_that_opens_the_terminal_fails_without_one(site: Site) -> None:
    tool(site, "read answer < /dev/tty || exit 7")
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *site.command()], cwd=site.folder, env={**os.environ, "TERM": "dumb"},
        stdin=follower, stdout=follower, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    said = b""
    deadline = time.monotonic() + harness.LONGEST_SECONDS
    os.set_blocking(leader, False)
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        try:
            said += os.read(leader, 65536)
        except OSError:
            if ended:  # and all that it said before is read
                break
            time.sleep(0.02)
    process.kill()
    os.close(leader)
    assert process.wait() == 4, said
    assert b"/dev/tty: No such device or address" in said
