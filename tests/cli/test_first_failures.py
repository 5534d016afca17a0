"""What fails before anything has worked."""

from __future__ import annotations

from shell import Shell


def test_long_failing_first_record_does_not_delay_others(shell: Shell) -> None:
    records = [(">a", "MK"), (">r2", "MKLV" * 20_000), *((f">c{k}", "MK") for k in range(5))]
    (shell.work / "in.fa").write_text("".join(f"{name}\n{letters}\n" for name, letters in records))
    ended = shell.run("timeout 120 millrace run --slots 1 --format fasta -- bad2 < in.fa")
    assert ended.code == 3 and "1 record quarantined" in ended.err, ended.shown
    assert ended.out == ">a\nMK\n" + "".join(f">c{k}\nMK\n" for k in range(5))
