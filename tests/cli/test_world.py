"""What others change while a run lasts: the run stops and says what, keeps what was done before, and never uses what came after."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator

import pytest
from outside_writer import ASK, beside, prepare
from shell import Shell

#: Looks its answer up in the database, and is told by the record when somebody else does something.
TOOL = rf"""
text=$(cat "$1"); name=$(printf %s "$text" | sed -n 's/^>//p')
{ASK.format("$MARK/marks", "$name")}
echo "$name $(cat "$2")"
"""

N = 8

EXPECTED = "".join(f"r{k} old\n" for k in range(N))


@pytest.fixture
def lookup(shell: Shell) -> Iterator[Shell]:
    shell.tool("lookup", TOOL)
    (shell.work / "db").write_text("old\n")
    (shell.root / "new").write_text("new\n")
    (shell.work / "in.fa").write_text("".join(f">r{k}\nMKV\n" for k in range(N)))
    with beside(shell.root / "marks", shell.run):
        yield shell


RUN = "millrace run --slots 1 --batch 1 --verify 0 --input in.fa --shared db -- lookup in.fa db > out.txt"


def at(shell: Shell, record: str, line: str, then: str = ":") -> None:
    """When this record is at work, somebody runs ``line`` in the user's folder, and its tool then runs ``then``."""
    prepare(shell.root / "marks", record, line, then)


#: Writes over a file of four bytes, at no moment of which it is shorter.
WRITE = "dd if=../new conv=notrunc status=none of="

#: Nobody looks between the change and the end of the run.
UNSEEN = RUN.replace("run ", "run --sync 3600 ", 1)

CHANGES = {
    "input cut short": ("head -c 30 in.fa > x; cat x > in.fa", "input in.fa: had"),
    "input emptied": (": > in.fa", "input in.fa: had"),
    "input goes on": ("printf '>r9\\nMKV\\n' >> in.fa", "input in.fa: had"),
    "another input in its place": ("cp -p in.fa x; mv x in.fa", "input in.fa: is another file now"),
    "input gone": ("rm in.fa", "input in.fa: is gone"),
    "database written over": (f"{WRITE}db", "/db: has been written"),
    "another database in its place": ("echo new > x; touch -r db x; mv x db", "/db: is another file now"),
    "another database, and the old one again": (
        "ln db kept; echo new > x; mv x db; lookup in.fa db > y; mv kept db; rm y",
        "/db: was moved away and back",
    ),
    "tool replaced": ("cp ../bin/lookup x; echo >> x; mv x ../bin/lookup", "had"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_file_stops_the_run_and_undoing_it_resumes(lookup: Shell, change: str) -> None:
    """What was done before is kept, and nothing of what came after is used."""
    line, words = CHANGES[change]
    at(lookup, "r3", line)
    keep = {name: (lookup.root / name).read_bytes() for name in ("work/in.fa", "work/db", "bin/lookup")}
    stats = {name: (lookup.root / name).stat() for name in keep}
    ended = lookup.run(UNSEEN if change.endswith("again") else RUN)
    assert ended.code == 5, ended.shown
    assert words in ended.err and "changed while the run was on" in ended.err, ended.shown
    assert EXPECTED.startswith((lookup.work / "out.txt").read_text()), "wrong bytes were passed on"
    for name, content in keep.items():
        (lookup.root / name).write_bytes(content)
        (lookup.root / name).chmod(stats[name].st_mode)
        os.utime(lookup.root / name, ns=(stats[name].st_atime_ns, stats[name].st_mtime_ns))
    again = lookup.run(RUN)
    assert again.code == 0, again.shown
    assert (lookup.work / "out.txt").read_text() == EXPECTED


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("mv db kept", "/db: is gone"),
        ("chmod 000 db", "/db: was moved away and back, or has another name, owner or mode"),
    ],
    ids=["deleted", "permission"],
)
def test_unreadable_database_quarantines_no_record(lookup: Shell, line: str, words: str) -> None:
    lookup.tool("strict", 'cat db > /dev/null || exit 1; [ "$(stat -c %a db)" != 0 ] || exit 1; exec lookup "$@"')
    at(lookup, "r3", line, then="exit 1")
    run = RUN.replace("run ", "run --sync 3600 ", 1).replace("-- lookup", "-- strict")
    ended = lookup.run(run)
    assert ended.code == 5 and words in ended.err and "quarantined" not in ended.err, ended.shown
    assert EXPECTED.startswith((lookup.work / "out.txt").read_text())
    again = lookup.run(f"[ ! -e kept ] || mv kept db; chmod 644 db; {run}")
    assert again.code == 0, again.shown
    assert (lookup.work / "out.txt").read_text() == EXPECTED


@pytest.mark.parametrize(
    ("away", "back"),
    [
        ("cp -p db kept; ln kept other; mv db kept; echo new > db", "mv kept db"),
        (
            "sed '/^echo/s/cat/wc -c/' ../bin/lookup > x; chmod +x x; mv ../bin/lookup ../bin/kept; mv x ../bin/lookup",
            "mv ../bin/kept ../bin/lookup",
        ),
    ],
    ids=["database", "program"],
)
def test_kill_does_not_hide_a_replaced_and_restored_file(lookup: Shell, away: str, back: str) -> None:
    at(lookup, "r2", away)
    at(lookup, "r6", back, then="kill -9 $PPID")
    # No look comes between: what was found in the other database is in the journal.
    ended = lookup.run(UNSEEN)
    assert ended.code == -9 or ended.code == 137, ended.shown
    assert (lookup.work / "db").read_text() == "old\n"
    again = lookup.run(RUN)
    assert again.code == 0, again.shown
    assert (lookup.work / "out.txt").read_text() == EXPECTED


@pytest.mark.parametrize("way", ["< in.fa", "gzip"])
def test_unnamed_or_compressed_input_is_checked_for_change(lookup: Shell, way: str) -> None:
    whole = (lookup.work / "in.fa").read_bytes()
    if way == "gzip":
        (lookup.work / "in.fa").write_bytes(gzip.compress(whole))
    content = (lookup.work / "in.fa").read_bytes()
    lookup.tool("filter", "cat > x.$$; lookup x.$$ db; rm x.$$")
    piped = "millrace run --slots 1 --batch 1 --verify 0 --format fasta --shared db -- filter < in.fa > out.txt"
    lookup.tool("unpack", 'zcat "$1" | filter')
    line = RUN.replace("-- lookup", "-- unpack") if way == "gzip" else piped
    at(lookup, "r3", "head -c 40 in.fa > x; cat x > in.fa")
    ended = lookup.run(line)
    assert ended.code == 5 and "had" in ended.err, ended.shown
    (lookup.work / "in.fa").write_bytes(content)
    again = lookup.run(line)
    assert again.code == 0, again.shown
    assert (lookup.work / "out.txt").read_text() == EXPECTED


def test_single_record_file_is_checked_after_its_result(lookup: Shell) -> None:
    (lookup.work / "d").mkdir()
    for k in range(N):
        (lookup.work / f"d/{k}.fa").write_text(f">r{k}\nMKV\n")
    at(lookup, "r3", "printf '>r3\\nMKVV\\n' > d/3.fa")
    line = RUN.replace("in.fa", "d")
    ended = lookup.run(line)
    assert ended.code == 5 and "d/3.fa: is not what it was" in ended.err, ended.shown
    assert EXPECTED.startswith((lookup.work / "out.txt").read_text()), "wrong bytes were passed on"


def test_shared_folder_means_all_its_files(lookup: Shell) -> None:
    (lookup.work / "m" / "deep").mkdir(parents=True)
    (lookup.work / "m" / "deep" / "db").write_text("old\n")
    at(lookup, "r3", f"{WRITE}m/deep/db")
    line = RUN.replace("--shared db", "--output m/out --shared m").replace(
        "in.fa db > out.txt", "in.fa m/deep/db > m/out"
    )
    line = line.replace("lookup in.fa", "sh -c 'lookup $0 $1 > $2' in.fa").replace("> m/out", "m/out")
    ended = lookup.run(line)
    assert ended.code == 5 and "/m/deep/db: has been written" in ended.err, ended.shown
    ended = lookup.run(line)
    assert ended.code == 2 and "/m/deep/db: was" in ended.err, ended.shown
    (lookup.work / "m" / "deep" / "db").write_text("new\n")
    ended = lookup.run(line.replace("--shared m", "--fresh --shared m"))
    assert ended.code == 0 and (lookup.work / "m/out").read_text() == EXPECTED.replace("old", "new"), ended.shown


def test_script_argument_is_part_of_the_command(lookup: Shell) -> None:
    (lookup.work / "script").write_text('lookup "$1" db > "$2"\n')
    at(lookup, "r3", "sed -i 's/lookup/echo new;&/' script")
    line = "millrace run --slots 1 --batch 1 --verify 0 --input in.fa --output out -- sh script in.fa out"
    ended = lookup.run(line)
    assert ended.code == 5 and "/script: had" in ended.err, ended.shown
    ended = lookup.run(line)
    assert ended.code == 2 and "/script: was" in ended.err, ended.shown
    ended = lookup.run(f"sed -i 's/echo new;//' script; {line.replace('run', 'run --fresh', 1)}")
    assert ended.code == 0 and (lookup.work / "out").read_text() == EXPECTED, ended.shown


def test_plan_suggests_shared_for_a_folder_argument(lookup: Shell) -> None:
    (lookup.work / "m").mkdir()
    (lookup.work / "m" / "db").write_text("old\n")
    plan = "millrace plan --input in.fa {} -- lookup in.fa db m"
    words = "m is a folder: if lookup reads files in it, --shared m"
    assert words in " ".join(lookup.run(plan.format("")).out.split())
    assert words not in " ".join(lookup.run(plan.format("--shared m")).out.split())


@pytest.mark.parametrize("command", ["tee copy.txt < in.fa", "./convert in.fa copy.txt"])
@pytest.mark.parametrize("place", ["", "elsewhere/"], ids=["in the folder", "elsewhere"])
def test_undeclared_output_file_is_reported(shell: Shell, command: str, place: str) -> None:
    """It is there since a run by hand, so it was taken for a file that the program reads."""
    (shell.work / "in.fa").write_text("".join(f">r{k}\nMKV\n" for k in range(2 * N)))
    (shell.work / "convert").write_text('#!/bin/sh\ncat "$1" > "$2"\n')
    (shell.work / "convert").chmod(0o755)
    path = f"{shell.root}/{place}copy.txt" if place else "copy.txt"
    copy = shell.work / path
    copy.parent.mkdir(exist_ok=True)
    copy.write_text("of yesterday\n")
    command = command.replace("copy.txt", path)
    own = "--input in.fa " if command.startswith("./") else ""
    run = f"millrace run --batch 1 {own}--format fasta"
    planned = shell.run(f"millrace plan {own}--format fasta -- {command}")
    assert f"file:      {path}\n" in planned.out.replace(f"{shell.work}/", ""), planned.shown
    ended = shell.run(f"{run} -- {command} > out.txt")
    if place:  # what a task writes there, it writes there
        assert ended.code == 5, ended.shown
        assert f"file {path}: " in ended.err, ended.shown
        assert "if the command writes it, say so and start over: --output " in ended.err, ended.shown
    else:
        assert ended.code == 4, ended.shown
        assert "it writes copy.txt, a file of your folder" in ended.err, ended.shown
        assert "or name it with --output to collect it" in ended.err, ended.shown
        assert copy.read_text() == "of yesterday\n"
    mended = shell.run(f"{run} --output {path} --fresh -- {command} > out.txt")
    assert mended.code == 0, mended.shown
    assert copy.read_bytes() == (shell.work / "in.fa").read_bytes()
