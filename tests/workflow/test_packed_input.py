"""Functions over files that are packed: they are given what is in them, as tools are."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable

import pytest
from shell import Shell

#: Each record in brackets, so that it shows where the input is cut.
SOME = "def each(records):\n    for record in records:\n        yield b'[' + record + b']'\n"

RECORDS = b"".join(b">r%d\nMKV\nML\n" % number for number in range(300))

WANTED = b"".join(b"[>r%d\nMKV\nML\n]" % number for number in range(300))


def two_members(content: bytes) -> bytes:
    return gzip.compress(content[:1000]) + gzip.compress(content[1000:])


@pytest.mark.parametrize(("ending", "pack"), [("gz", two_members), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_function_reads_the_content_of_a_packed_file(shell: Shell, ending: str, pack: Callable[[bytes], bytes]) -> None:
    (shell.work / f"q.faa.{ending}").write_bytes(pack(RECORDS))
    (shell.work / "some.py").write_text(SOME)
    (shell.work / "job.toml").write_text(
        f'[phase.a]\npython = "some.py:each"\ninput = "q.faa.{ending}"\noutput = "a.out"\n'
    )
    done = shell.run("millrace run job.toml")
    assert (done.code, (shell.work / "a.out").read_bytes()) == (0, WANTED), done.shown
    assert done.err == "millrace: 1 phase done\n"


def test_packed_file_of_another_phase_is_awaited(shell: Shell) -> None:
    """The function reads it unpacked, and only when it is complete."""
    (shell.work / "q.faa").write_bytes(RECORDS)
    (shell.work / "some.py").write_text(SOME)
    (shell.work / "job.toml").write_text(
        '[phase.pack]\nfilter = "gzip"\ninput = "q.faa"\noutput = "p.faa.gz"\n'
        '[phase.a]\npython = "some.py:each"\ninput = "p.faa.gz"\noutput = "a.out"\n'
        '[phase.b]\nfilter = "zcat"\ninput = "p.faa.gz"\noutput = "b.out"\n'
    )
    plan = shell.run("millrace plan job.toml")
    assert "waits for the end of [pack]: reads p.faa.gz whole" in plan.out, plan.shown
    done = shell.run("millrace run job.toml")
    assert (done.code, (shell.work / "a.out").read_bytes()) == (0, WANTED), done.shown
    assert (shell.work / "b.out").read_bytes() == RECORDS, "a filter reads the file as it is"


def test_truncated_packed_file_ends_the_phase(shell: Shell) -> None:
    (shell.work / "q.faa.gz").write_bytes(gzip.compress(RECORDS)[:-9])
    (shell.work / "some.py").write_text(SOME)
    (shell.work / "job.toml").write_text('[phase.a]\npython = "some.py:each"\ninput = "q.faa.gz"\noutput = "a.out"\n')
    done = shell.run("millrace run job.toml")
    assert done.code == 1, done.shown
    assert "phase a: q.faa.gz: " in done.err and "the gzip data is cut off" in done.err, done.shown
