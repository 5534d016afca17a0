"""Programs that stay alive and take records one by one: those of docs/records.md, and those that do it wrong."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import wait_until
from shell import Shell

REPO = Path(__file__).resolve().parent.parent.parent
PAGE = (REPO / "docs" / "records.md").read_text()

N = 3000
LENGTHS = [1 + k * 7919 % 97 for k in range(N)]
FASTA = "".join(f">r{k}\n{'M' * n}\n" for k, n in enumerate(LENGTHS))
WANT = "".join(f"r{k}\t{n}\n" for k, n in enumerate(LENGTHS))

#: Start of a line that makes the program ``prog``, and the command that runs it.
LANGUAGES = {
    "python": ("true", f"{shlex.quote(sys.executable)} prog.python"),
    "c": ('gcc -std=c99 -Wall -Wextra -Werror -I"$(millrace tool include-dir)" -x c prog.c -o prog', "./prog"),
    "cpp": ('g++ -std=c++11 -Wall -Wextra -Werror -I"$(millrace tool include-dir)" prog.cpp -o prog', "./prog"),
    "perl": ("true", "perl prog.perl"),
    "awk": ("true", "awk $(awk -W version 2>&1 | grep mawk > /dev/null && echo -W interactive) -f prog.awk"),
}

#: The protocol by hand, with what each test does to a record in the place of ACT.
BY_HAND = """
import os, sys
seen = 0
for head in sys.stdin.buffer:
    number, length = map(int, head.split())
    record = sys.stdin.buffer.read(length + 1)[:-1]
    seen += 1
    answer = record
    ACT
    sys.stdout.buffer.write(b"%d %d\\n%s\\n" % (number, len(answer), answer))
    sys.stdout.buffer.flush()
"""


def by_hand(shell: Shell, act: str) -> str:
    """A program of its own; the command that runs it."""
    (shell.work / "hand.py").write_text(BY_HAND.replace("ACT", act))
    return f"{shlex.quote(sys.executable)} hand.py"


def run(shell: Shell, command: str, options: str = "") -> str:
    return f"millrace run --records --slots 2 --input q.fa --output out.txt {options} -- {command}"


@pytest.fixture
def queries(shell: Shell) -> Shell:
    (shell.work / "q.fa").write_text(FASTA)
    return shell


@pytest.mark.parametrize("language", LANGUAGES)
def test_documented_programs_answer_in_order(queries: Shell, language: str) -> None:
    text = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert text
    (queries.work / f"prog.{language}").write_text(text[1])
    make, command = LANGUAGES[language]
    ended = queries.run(f"{make} && export LC_ALL=C && {run(queries, command)}")
    assert ended.code == 0, ended.shown
    assert (queries.work / "out.txt").read_text() == WANT


def test_records_may_come_by_a_pipe_and_hold_anything(shell: Shell) -> None:
    records = [b"", b"a b", b"\xff\r\n", b"x" * 300_000, b"1 5\nabc"]
    (shell.work / "in").write_bytes(b"".join(each + b"\0" for each in records))
    command = by_hand(shell, "answer = b'%d ' % len(record)")
    ended = shell.run(f"cat in | millrace run --records --format nul -- {command} > out")
    assert ended.code == 0, ended.shown
    assert (shell.work / "out").read_text() == "".join(f"{len(each) + 1} " for each in records)


def test_program_starts_once_per_slot(queries: Shell) -> None:
    act = "seen == 1 and open(os.environ['COUNT'], 'a').write('started\\n')"
    ended = queries.run(run(queries, by_hand(queries, act), "--batch 100"))
    assert ended.code == 0, ended.shown
    assert (queries.root / "count").read_text().count("started") <= 2


@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("if b'>r77\\n' in record: sys.exit(3)", "exit status 3"),
        ("if b'>r77\\n' in record: os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("if b'>r77\\n' in record: break", "it ended after 0 of 1 records"),
        ("if b'>r77\\n' in record: answer = record * 2; length = 1; number += 1", "was next"),
        ("if b'>r77\\n' in record: print('hello'); sys.stdout.flush()", "hello"),
    ],
)  # fmt: skip
def test_failing_record_is_isolated(shell: Shell, act: str, words: str) -> None:
    (shell.work / "q.fa").write_text("".join(f">r{k}\nM\n" for k in range(200)))
    ended = shell.run(run(shell, by_hand(shell, act), "--retries 0"))
    assert ended.code == 3, ended.shown
    assert words in ended.err, ended.shown
    assert (shell.work / "out.txt").read_text() == "".join(f">r{k}\nM\n" for k in range(200) if k != 77)


@pytest.mark.parametrize("act", ["if seen == 8: break", "if seen == 8: os.kill(os.getpid(), 9)"])
def test_program_that_exits_is_restarted_without_quarantine(shell: Shell, act: str) -> None:
    """It ends or is killed after eight records, and no record is at fault."""
    records = "".join(f">r{k}\nM\n" for k in range(40))
    (shell.work / "q.fa").write_text(records)
    ended = shell.run(run(shell, by_hand(shell, act), "--verify 0 --retries 0"))
    assert ended.code == 0 and "quarantined" not in ended.err, ended.shown
    assert (shell.work / "out.txt").read_text() == records


PYTHON, C = f"{shlex.quote(sys.executable)} prog", "./prog"


@pytest.mark.parametrize(
    ("program", "command", "words"),
    [
        (BY_HAND.replace("ACT", "pass") + "print('in all', seen, flush=True)", PYTHON, '"in all '),
        (BY_HAND.replace("ACT", "pass") + "sys.exit('no more')", PYTHON, "exit status 1\nno more"),
        (
            "import millrace\nfor record in millrace.records():\n    millrace.write(record)\nmillrace.write('the end')",
            PYTHON, "millrace.write(): there is no record to answer",
        ),
        (
            '#include "millrace.h"\nint main(void)\n{\n    const char *record;\n    size_t length;\n'
            "    while (millrace_next(&record, &length))\n        millrace_write(record, length);\n"
            '    millrace_printf("the end");\n    return 0;\n}\n',
            C, "exit status 71\nmillrace.h: there is no record to answer",
        ),
    ],
    ids=["written", "status", "python", "c"],
)  # fmt: skip
def test_program_that_answers_no_record_is_reported(shell: Shell, program: str, command: str, words: str) -> None:
    (shell.work / "q.fa").write_text("".join(f">r{k}\nM\n" for k in range(20)))
    (shell.work / "prog.c" if command == C else shell.work / "prog").write_text(program)
    make = 'gcc -I"$(millrace tool include-dir)" prog.c -o prog' if command == C else "true"
    ended = shell.run(f"{make} && {run(shell, command)}")
    assert ended.code == 4, ended.shown
    assert "has answered all records, but after the last one" in ended.err and words in ended.err, ended.shown
    assert (shell.work / "out.txt").read_text() == (shell.work / "q.fa").read_text()


def test_signal_stops_programs_that_do_not_exit(shell: Shell) -> None:
    """Each has a minute to end by itself."""
    (shell.work / "q.fa").write_text(">a\nM\n>b\nM\n")
    program = BY_HAND.replace("ACT", "pass") + "open(os.environ['COUNT'], 'a').write('x')\nos.read(os.pipe()[0], 1)"
    (shell.work / "hand.py").write_text(program)
    command = run(shell, f"{shlex.quote(sys.executable)} hand.py", "--batch 1 --verify 0")
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    environ |= {"COUNT": str(shell.root / "count"), "MILLRACE_RUN_PROGRESS": "none"}
    with subprocess.Popen(
        shlex.split(command), cwd=shell.work, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as started:
        assert wait_until((shell.root / "count").exists)
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=300)
    assert started.returncode == 128 + signal.SIGINT, said
    assert "stopped by SIGINT; everything done so far is kept" in said
    ended = shell.run(command)
    assert ended.code == 0, ended.shown
    assert (shell.work / "out.txt").read_text() == ">a\nM\n>b\nM\n"


def test_record_over_its_time_limit_is_ended(shell: Shell) -> None:
    (shell.work / "q.fa").write_text(">a\nM\n>b\nM\n")
    command = by_hand(shell, "if b'>b' in record: os.read(os.pipe()[0], 1)")
    # Long enough for the other one, and for a Python to start, on any machine.
    ended = shell.run(run(shell, command, "--batch 1 --retries 0 --record-timeout 20"))
    assert ended.code == 3, ended.shown
    assert (shell.work / "out.txt").read_text() == ">a\nM\n"


def test_program_with_state_across_records_is_detected(queries: Shell) -> None:
    ended = queries.run(run(queries, by_hand(queries, "answer = b'%d\\n' % seen")))
    assert ended.code == 5, ended.shown
    assert "gave other bytes" in ended.err


@pytest.mark.parametrize(
    "round_", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_record_is_written_once_after_kill_and_resume(queries: Shell, round_: int) -> None:
    """Killed without warning in the middle of a record, early or late."""
    act = (
        (
            "open(os.environ['COUNT'], 'a').write('x')\n"
            "    stop = b'>r%d\\n' % (700 * ROUND) in record and not os.path.exists('../go')\n"
            "    if stop: open('../there', 'w'); os.read(os.pipe()[0], 1)"
        )
        .replace("ROUND", str(round_))
        .replace("../", f"{queries.root}/")
    )
    command = run(queries, by_hand(queries, act), "--batch 50 --sync 0 --verify 0")
    environ = {**os.environ, "PATH": f"{queries.root / 'bin'}:{os.environ['PATH']}", "MARK": str(queries.root)}
    environ |= {"COUNT": str(queries.root / "count"), "MILLRACE_RUN_PROGRESS": "none"}
    started = subprocess.Popen(shlex.split(command), cwd=queries.work, env=environ, stderr=subprocess.DEVNULL)
    assert wait_until((queries.root / "there").exists)
    started.send_signal(signal.SIGKILL)
    started.wait()
    (queries.root / "go").touch()
    ended = queries.run(command)
    assert ended.code == 0, ended.shown
    assert (queries.work / "out.txt").read_text() == FASTA
    # What was committed was not given to the program again.
    assert (queries.root / "count").stat().st_size < 2 * N


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "no input is named"),
        ("--input q.fa --input q.fa", "several --input"),
        ("--input .:files", "files that are one record each"),
        ("--input q.fa --output a --output b", "several --output"),
    ],
)
def test_impossible_record_options_are_refused(queries: Shell, options: str, words: str) -> None:
    ended = queries.run(f"millrace run --records {options} -- cat")
    assert ended.code == 2 and words in ended.err, ended.shown


def test_program_started_by_hand_reports_the_command(shell: Shell) -> None:
    ended = shell.run(f"{shlex.quote(sys.executable)} -c 'import millrace; print(list(millrace.records()))'")
    assert ended.code == 1 and "millrace run --records" in ended.err, ended.shown
