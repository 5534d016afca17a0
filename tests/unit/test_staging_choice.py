"""Which nodes keep copies of the databases, where, and why not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.errors import RefusedError
from millrace.core.job import check_stage
from millrace.storage import staging_choice
from millrace.storage.staging_choice import DatabaseFile, StagingNode, StagingPlace

GB = 10**9


def file(name: str = "db.psq", size: int = GB, mtime_ns: int = 1) -> DatabaseFile:
    return DatabaseFile(path=f"/data/{name}", size=size, mtime_ns=mtime_ns, inode=7, mode=0o644, ctime_ns=9)


def node(
    host: str = "a", ram: StagingPlace | None = None, disk: StagingPlace | None = None, **more: object
) -> StagingNode:
    empty = StagingPlace(folder="/dev/shm/x", free=8 * GB, busy=0, idle=0)
    made = StagingNode(host=host, memory=16 * GB, available=12 * GB, ram=ram or empty, disk=disk)
    return msgspec.structs.replace(made, **more)


def place(free: int = 8 * GB, busy: int = 0, idle: int = 0, *held: DatabaseFile) -> StagingPlace:
    return StagingPlace(folder="/scratch/x", free=free, busy=busy, idle=idle, held=frozenset(each.key for each in held))


def test_a_changed_file_has_another_key() -> None:
    assert file().key == file().key
    assert len({file().key, file(mtime_ns=2).key, file(size=5).key, file("other.psq").key}) == 4
    assert "/" not in file().key


def test_databases_go_to_memory_if_they_fit_else_to_disk() -> None:
    small = node("small", memory=2 * GB - 2, disk=place())
    roomy, none = staging_choice.choose_staging_places(
        "auto", [file()], [node(), msgspec.structs.replace(small, disk=None)]
    )
    assert (roomy.place, roomy.missing) == ("ram", {file().key})
    assert none.place == ""
    assert "half of its memory" in none.why
    assert "no local disk" in none.why
    assert staging_choice.choose_staging_places("auto", [file()], [small])[0].place == "disk"


def test_memory_used_by_others_is_not_planned() -> None:
    files = [file(size=3 * GB)]
    assert staging_choice.choose_staging_places("ram", files, [node(ram=place(busy=6 * GB))])[0].place == ""
    assert staging_choice.choose_staging_places("ram", files, [node(ram=place(busy=4 * GB))])[0].place == "ram"
    assert staging_choice.choose_staging_places("ram", files, [node(ram=place(free=GB))])[0].place == ""
    assert (
        staging_choice.choose_staging_places("ram", files, [node(ram=place(free=GB, idle=2 * GB))])[0].place == "ram"
    ), "idle ones may go"
    assert staging_choice.choose_staging_places("ram", files, [node(available=GB)])[0].place == ""


def test_place_with_existing_copies_is_preferred() -> None:
    kept = node(ram=place(), disk=place(0, 0, 0, file()))
    (choice,) = staging_choice.choose_staging_places("auto", [file()], [kept])
    assert (choice.place, choice.missing) == ("disk", frozenset())


def test_node_without_mounts_reads_in_place() -> None:
    nodes = [node("a"), node("b", why_not="not permitted"), node("c")]
    choices = staging_choice.choose_staging_places("ram", [file()], nodes)
    assert [choice.place for choice in choices] == ["ram", "", "ram"]
    assert staging_choice.describe_staging([file()], nodes, choices) == [
        "databases: 1.0 GB in 1 file, to be copied to the memory of 2 nodes",
        "databases: b reads them in place: not permitted",
    ]


@given(
    sizes=st.lists(st.integers(1, 4 * GB), min_size=1, max_size=5), memory=st.integers(1, 20 * GB),
    free=st.integers(0, 20 * GB), busy=st.integers(0, 8 * GB), idle=st.integers(0, 8 * GB), n_held=st.integers(0, 5),
)  # fmt: skip
def test_copies_are_limited_to_a_share_of_the_memory(
    sizes: list[int], memory: int, free: int, busy: int, idle: int, n_held: int
) -> None:
    files = [file(f"db{k}", size) for k, size in enumerate(sizes)]
    (choice,) = staging_choice.choose_staging_places(
        "ram", files, [node(ram=place(free, busy, idle, *files[:n_held]), memory=memory)]
    )
    if choice.place:
        assert busy + sum(sizes) <= choice.budget <= staging_choice.MEMORY_SHARE * memory
        assert sum(each.size for each in files if each.key in choice.missing) <= free + idle
    else:
        assert choice.why


def test_files_are_listed_once_without_links_and_folders(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x" * 10)
    (tmp_path / "bigger").write_bytes(b"x" * 20)
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to("real")
    names = [Path(name) for name in ("link", "real", "bigger", "empty", ".", "absent")]
    found = staging_choice.list_database_files(names, tmp_path)
    assert [each.path for each in found] == [str(tmp_path / "bigger"), str(tmp_path / "real")]


def test_invalid_place_is_refused() -> None:
    check_stage("/scratch")
    with pytest.raises(RefusedError, match="--stage rma"):
        check_stage("rma")
