"""What shared storage is spared: small writes, and writes across its stripes."""

from __future__ import annotations

import shlex

from shell import Shell
from written import check, extents, traced

RUN = "millrace run --slots 2 --batch 1 --verify 0 --keep-run-dir --input in.fa"


def large_records(shell: Shell, *sizes: int) -> bytes:
    """An input whose records become results of these sizes."""
    content = b"".join(b">r%d\n%s\n" % (k, b"A" * size) for k, size in enumerate(sizes))
    (shell.work / "in.fa").write_bytes(content)
    return content


def test_outputs_are_written_in_large_pieces_that_do_not_cross_a_stripe(shell: Shell) -> None:
    content = large_records(shell, 2_500_000, 700_000, 99, 1_600_000)
    log, out = shell.root / "log", shell.work / "out"
    done = shell.run(f"{shlex.join(traced(log))} {RUN} --output out -- tee2 in.fa out")
    assert done.code == 0 and out.read_bytes() == content, done.shown
    check(extents(log, out), len(content), most=4)  # one more where a result was shown at once
    again = shell.root / "again"
    done = shell.run(f"{shlex.join(traced(log))} millrace gather out.millrace --stream out -o {again}")
    assert done.code == 0 and again.read_bytes() == content, done.shown
    check(extents(log, again), len(content), most=0)


def test_files_of_their_own_are_written_in_large_pieces(shell: Shell) -> None:
    (shell.work / "in").mkdir()
    (shell.work / "in" / "a.fa").write_bytes(b">r\n" + b"A" * 2_500_000)
    log, out = shell.root / "log", shell.work / "out" / "a.fa"
    out.parent.mkdir()
    line = "millrace run --slots 1 --input in:files --output out/{stem}.fa -- tee2 in out/{stem}.fa"
    done = shell.run(f"{shlex.join(traced(log))} {line}")
    assert done.code == 0 and out.stat().st_size == 2_500_003, done.shown
    check(extents(log, out), 2_500_003, most=0)
