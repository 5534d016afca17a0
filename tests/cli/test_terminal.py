"""Names from inputs, run directories and descriptions do not steer the terminal on which they are shown."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest
from shell import Shell

#: Sets the title of a terminal; and clears it, by the one character that begins a sequence in 8 bits.
EVIL = "\x1b]0;owned\x07\x9b2Jeight"

#: A tool that fails on the record of this name, whose name it says; gives up no other.
FAILS = """text=$(cat); case $text in *owned*) echo "cannot do $text" >&2; exit 7;; esac; printf "%s\\n" "$text\""""


#: Keeps a run whose directory and output have this name.
MKRUN = 'mkrun() { millrace run -q --keep-run-dir --run-dir "$EVIL.millrace" --input in.fa --output "$EVIL" -- tee2 in.fa "$EVIL"; }'


def shown(shell: Shell, line: str) -> bytes:
    """What a shell line writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "TERM": "xterm", "EVIL": EVIL}
    environ["XDG_STATE_HOME"] = str(shell.root / "state")
    process = subprocess.Popen(
        ["bash", "-c", line], cwd=shell.work, env=environ, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    found = b""
    try:
        while block := os.read(ours, 1 << 16):
            found += block
    except OSError:
        pass  # nobody has the other end any more
    finally:
        os.close(ours)
        process.wait(300)
    return found


def is_harmless(text: bytes) -> bool:
    """Whether the name is shown, and sends nothing: neither of its sequences, nor the end of a title."""
    return b"owned" in text and not any(each in text for each in (b"\x1b]", b"\x07", "\x9b".encode(), b"\x9b2J"))


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("millrace run --format fasta -- fails < evil.fa > out", id="a record"),
        pytest.param("millrace run --progress bar --format fasta -- fails < evil.fa > out", id="a record below a bar"),
        pytest.param("millrace run --progress json --format fasta -- fails < evil.fa > out", id="a record in JSON"),
        pytest.param("millrace run -vv --input in.fa -- copy in.fa \"$EVIL\"", id="an argument"),
        pytest.param("millrace plan --run-dir \"$EVIL\" --input in.fa -- copy in.fa", id="a plan"),
        pytest.param("millrace status \"$EVIL\"", id="an error"),
        pytest.param("millrace --\"$EVIL\"", id="an option"),
        pytest.param("millrace \"$EVIL\"", id="a verb"),
        pytest.param("millrace tool list", id="a description"),
        pytest.param("mkrun; millrace status \"$EVIL.millrace\"", id="status"),
        pytest.param("mkrun; millrace watch \"$EVIL.millrace\"", id="watch"),
        pytest.param("mkrun; millrace watch \"$EVIL.millrace\" | cat", id="watch in a pipe"),
        pytest.param("mkrun; millrace report \"$EVIL.millrace\" -o \"$EVIL.html\"", id="report"),
        pytest.param("mkrun; millrace gather \"$EVIL.millrace\" --stream \"$EVIL\"", id="gather"),
        pytest.param("mkrun; mv \"$EVIL.millrace\" x; millrace runs", id="runs"),
    ],
)  # fmt: skip
def test_control_characters_in_names_are_escaped(shell: Shell, line: str) -> None:
    shell.tool("fails", FAILS)
    (shell.work / "evil.fa").write_text(f">one\nMKV\n>r{EVIL}\nMKV\n>two\nMKV\n")
    (shell.work / "millrace-tools").mkdir()
    (shell.work / "millrace-tools" / "evil.toml").write_text(f'programs = ["evil"]\nabout = {json.dumps(EVIL)}\n')
    text = shown(shell, f"{MKRUN}\n{line}")
    assert is_harmless(text), text


def test_json_output_keeps_control_characters(shell: Shell) -> None:
    name = f"a\xa0{EVIL}\u202e\U000e0041.millrace"
    (shell.work / "name").write_text(name)
    ended = shell.run('millrace run -q --keep-run-dir --run-dir "$(cat name)" --input in.fa -- copy in.fa > out')
    assert ended.code == 0, ended.shown
    ended = shell.run('millrace status --json "$(cat name)"')
    assert ended.code == 0 and not {"\x1b", "\x9b", "\u202e"} & set(ended.out), ended.shown
    assert json.loads(ended.out)["journals"] == [f"{name}/journal.mrj"]


def test_non_utf_8_names_are_piped_unchanged(shell: Shell) -> None:
    """A script that reads what is printed finds the file by it."""
    (shell.work / "folder").mkdir()
    done = subprocess.run(
        [b"bash", b"-c", b"mkdir 'f\xff'; cd 'f\xff'; cp ../in.fa .; PATH=%s:$PATH millrace plan --input in.fa -- copy in.fa" % os.fsencode(shell.root / "bin")],
        cwd=shell.work, capture_output=True, check=True,
    )  # fmt: skip
    assert b"/f\xff/" in done.stdout
