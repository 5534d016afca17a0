"""Slots need descriptors; the usual limit is for fewer of them than a node may have."""

from __future__ import annotations

from shell import Shell


def test_more_slots_than_the_soft_limit_has_descriptors_for(shell: Shell) -> None:
    (shell.work / "many.fa").write_text("".join(f">r{k}\nMKV\n" for k in range(300)))
    shell.tool("limits", 'ulimit -Sn >> "$COUNT"; cat')
    ended = shell.run(
        "ulimit -Sn 128; millrace run --slots 100 --batch 3 --verify 0 --format fasta -- limits < many.fa > out"
    )
    assert ended.code == 0, ended.shown
    assert (shell.work / "out").read_text() == (shell.work / "many.fa").read_text()
    # A tool has the limit that it has without us.
    assert set((shell.root / "count").read_text().split()) == {"128"}
