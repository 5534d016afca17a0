"""What is told of a journal waits until it is on the disk; on which filesystems that matters."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace import _core
from millrace.cluster.journal_visibility import JournalVisibility, is_lazy_filesystem


def test_items_come_in_order_once_the_journal_is_on_the_disk(tmp_path: Path) -> None:
    import threading

    journal = _core.Journal.create(tmp_path / "j.mrj", bytes(16))
    woken = threading.Semaphore(0)
    durable: JournalVisibility[int] = JournalVisibility(journal, woken.release)
    seen: list[int] = []
    for k in range(20):
        journal.quarantine(k, k + 1, 1, [])
        durable.queue_items([2 * k, 2 * k + 1])
        if k == 0:
            assert woken.acquire(timeout=300)
            assert journal.unsynced < 200, "told before it was on the disk"
    while len(seen) < 40:
        seen += durable.pop_visible_items() or ([] if woken.acquire(timeout=300) else pytest.fail(f"only {seen}"))
    assert seen == list(range(40))
    durable.close()


@pytest.mark.parametrize(
    ("path", "lazy"),
    [("/home/a", True), ("/home/fast/a", False), ("/scratch", False), ("/homes", False), ("/my data/x", True)],
)
def test_network_filesystem_is_detected_by_its_mount(tmp_path: Path, path: str, lazy: bool) -> None:
    table = tmp_path / "mountinfo"
    lines = [
        "21 1 0:1 / / rw - ext4 /dev/sda rw",
        "22 21 0:2 / /home rw shared:1 - nfs4 server:/home rw",
        "23 22 0:3 / /home/fast rw - tmpfs tmpfs rw",
        "24 21 0:4 / /scratch rw - lustre fs rw",
        "25 21 0:5 / /my\\040data rw - nfs server:/d rw",
    ]
    table.write_text("\n".join(lines) + "\n")
    assert is_lazy_filesystem(Path(path), table) == lazy
