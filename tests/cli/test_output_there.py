"""A program that does not simply write over its output: what is there is not lost in silence."""

from __future__ import annotations

import pytest
from parameter_choice import crossed, some
from shell import Shell

RUN = "millrace run -q --format lines --batch 5 --input in.txt --output o.txt --"

WRITES = 'cat "$1" > "$2"'
ADDS = 'cat "$1" >> "$2"'
OTHERS = {
    "adds": ADDS,
    "leaves": '[ -s "$2" ] || cat "$1" > "$2"',
    "refuses": 'set -C; cat "$1" > "$2"',
    "writes_into": 'cat "$1" 1<> "$2" >&1',
    "keeps": 'cp --backup "$1" "$2"',
    "moves": '[ ! -e "$2" ] || mv "$2" "$2.1"; cat "$1" > "$2"',
}


@pytest.fixture(autouse=True)
def inputs(shell: Shell) -> None:
    shell.run("seq 30 > in.txt; seq 900 940 > before.txt")


@pytest.mark.parametrize(
    ("name", "before"),
    crossed(OTHERS, ["cp before.txt o.txt", "seq 30000000 30140000 > o.txt", "ln -s before.txt o.txt"]),
)
def test_appended_output_that_exists_refuses_the_run(shell: Shell, name: str, before: str) -> None:
    shell.tool("tool", OTHERS[name])
    shell.run(f"{before}; cp o.txt copy.txt")
    done = shell.run(f"{RUN} tool in.txt o.txt")
    assert (
        done.code == 5 and "o.txt: is there already, and tool does not simply" in done.err and "rm o.txt" in done.err
    ), done.shown
    assert shell.run("cmp o.txt copy.txt").code == 0
    # What the hint says.
    again = shell.run(f"rm o.txt; {RUN} tool in.txt o.txt; cmp in.txt o.txt")
    assert again.code == 0, again.shown
    over = shell.run(f"cp before.txt o.txt; {RUN.replace('-q', '-q --verify 0')} tool in.txt o.txt && cmp in.txt o.txt")
    assert over.code == 0, over.shown


@pytest.mark.parametrize("name", OTHERS)
def test_empty_input_with_old_output_is_the_serial_run(shell: Shell, name: str) -> None:
    shell.tool("tool", OTHERS[name])
    shell.run(": > in.txt; cp before.txt o.txt; cp before.txt serial.txt; ")
    alone, through = shell.run("tool in.txt serial.txt"), shell.run(f"{RUN} tool in.txt o.txt")
    assert through.code == 0 or alone.code or name in ("keeps", "moves"), through.shown
    assert shell.run(f"cmp o.txt {'before.txt' if through.code else 'serial.txt'}").code == 0


@pytest.mark.parametrize(
    ("body", "link"),
    crossed(
        ["cat $1 >> $2", "exit 7", 'echo $$$(date +%N) > "$2"', "true", 'echo x >> "$1"', 'cat "$1" > "$2.tmp"'],
        ["true", "mv o.txt t; ln -s t o.txt", "ln o.txt t"],
    ),
)
def test_run_that_writes_nothing_keeps_the_existing_file(shell: Shell, body: str, link: str) -> None:
    shell.tool("tool", body)
    done = shell.run(f"cp before.txt o.txt; {link}; {RUN} tool in.txt o.txt")
    assert done.code in (4, 5), done.shown
    assert shell.run("cmp before.txt o.txt").code == 0
    gone = shell.run(f"rm o.txt; {RUN} tool in.txt o.txt; ls o.txt")
    assert gone.code == (0 if ">> $2" in body else 2), gone.shown


@pytest.mark.parametrize("how", ["TERM", "KILL"])
def test_run_stopped_before_its_first_write_resumes(shell: Shell, how: str) -> None:
    shell.tool("tool", 'until [ -e "$MARK/go" ]; do touch "$MARK/on"; sleep 0.1; done; set -C; cat "$1" > "$2"')
    first = shell.run(
        f'{RUN} tool in.txt o.txt & pid=$!; until [ -e "$MARK/on" ]; do sleep 0.1; done; kill -{how} $pid; wait $pid'
    )
    assert first.code == {"TERM": 143, "KILL": 137}[how], first.shown
    done = shell.run(f'touch "$MARK/go"; {RUN} tool in.txt o.txt; cmp in.txt o.txt')
    assert done.code == 0, done.shown


def test_one_record_refuses_an_existing_output(shell: Shell) -> None:
    shell.tool("tool", ADDS)
    shell.run("echo one > in.txt; cp before.txt o.txt")
    done = shell.run(f"{RUN} tool in.txt o.txt")
    assert done.code == 5 and "is there already" in done.err, done.shown
    again = shell.run(f"rm o.txt; {RUN} tool in.txt o.txt; cmp in.txt o.txt")
    assert again.code == 0, again.shown


@pytest.mark.parametrize("before", ["cp before.txt o.txt", "true", "touch o.txt"])
def test_overwritten_output_is_accepted(shell: Shell, before: str) -> None:
    shell.tool("tool", WRITES)
    done = shell.run(f"{before}; {RUN} tool in.txt o.txt; cmp in.txt o.txt")
    assert done.code == 0, done.shown


@pytest.mark.parametrize("body", some([WRITES, ADDS], ADDS))
def test_own_partial_output_is_not_an_existing_file(shell: Shell, body: str) -> None:
    """It is interrupted after the first results are written, and resumed."""
    shell.tool(
        "slow",
        f"""
        case $(cat "$1") in *30*) until [ -e "$MARK/go" ]; do sleep 0.1; done;; esac
        {body}""",
    )
    first = shell.run(f"{RUN} slow in.txt o.txt & pid=$!; until [ -s o.txt ]; do sleep 0.1; done; kill $pid; wait $pid")
    assert first.code == 143, first.shown
    done = shell.run(f'touch "$MARK/go"; {RUN} slow in.txt o.txt; cmp in.txt o.txt')
    assert done.code == 0, done.shown


def test_file_written_by_two_batches_is_reported(shell: Shell) -> None:
    shell.tool("tool", 'while read x; do echo "$x" > "$2/$(($x % 10)).txt"; done < "$1"')
    run = "millrace run -q --verify 0 --format lines --input in.txt --output out/ --batch"
    done = shell.run(f"mkdir out; {run} 5 -- tool in.txt out/")
    assert done.code == 5, done.shown
    assert "1.txt: records 1-5 and records 11-15 both write it, and not the same" in done.err, done.shown
    whole = shell.run(f"{run} 30 --fresh -- tool in.txt out/; mkdir serial; tool in.txt serial; diff -r serial out")
    assert whole.code == 0, whole.shown


def test_quarantined_record_keeps_no_earlier_file(shell: Shell) -> None:
    """A file of an earlier run by that name is removed."""
    shell.tool("tool", 'grep -q bad "$1" && exit 3; cat "$1" > "$2"')
    run = "millrace run -q --input d --output 'out/{stem}.out' -- tool d 'out/{stem}.out'"
    first = shell.run(f"mkdir d out; for n in a b c; do echo $n > d/$n.txt; done; {run}; cat out/*.out")
    assert (first.code, first.out) == (0, "a\nb\nc\n"), first.shown
    again = shell.run(f"echo bad > d/b.txt; {run}; echo $?; cat out/*.out; ls out".replace("run -q", "run -q --fresh"))
    assert again.out == "3\na\nc\na.out\nc.out\n", again.shown


@pytest.mark.parametrize("body", ["exec head -c 2000000 /dev/zero > $2", "head -c 2000000 /dev/zero > $2 || exit"])
def test_file_size_limit_quarantines_no_record(shell: Shell, body: str) -> None:
    """SIGXFSZ is the limit's doing: the run stops, and resumes once the limit is raised."""
    shell.tool("tool", f'if grep -qx 17 "$1"; then {body}; else cat "$1" > "$2"; fi')
    run = "millrace run -q --verify 0 --format lines --input in.txt --output o.txt --batch 1 -- tool in.txt o.txt"
    done = shell.run(f"ulimit -Sf 1000; {run}")
    assert done.code == 4 and ("SIGXFSZ" in done.err or "153" in done.err), done.shown
    assert "raise the limit (ulimit -f), then type the same command again: it resumes" in done.err, done.shown
    assert not [*shell.work.glob("*.millrace/quarantine/*")]
    again = shell.run(f"{run}; tr -d '\\0' < o.txt | cmp - <(grep -vx 17 in.txt)")
    assert again.code == 0, again.shown


@pytest.mark.parametrize("number", ["INT", "TERM"])
def test_unread_named_pipe_waits_until_a_signal(shell: Shell, number: str) -> None:
    shell.tool("tool", 'cat "$1" > "$2"')
    run = RUN.replace("o.txt", "pipe")
    code = "import signal, subprocess, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); sys.exit(subprocess.call(sys.argv[1:]))"
    done = shell.run(f"""
        mkfifo pipe
        python3 -c '{code}' {run} tool in.txt pipe & pid=$!
        until [ -e pipe.millrace/journal.mrj ]; do sleep 0.1; done
        pkill -{number} -P $pid -f millrace; wait $pid""")
    assert done.code == {"INT": 130, "TERM": 143}[number], done.shown
    whole = shell.run(f"{run} tool in.txt pipe & cmp in.txt pipe; r=$?; wait $! && exit $r")
    assert whole.code == 0, whole.shown
