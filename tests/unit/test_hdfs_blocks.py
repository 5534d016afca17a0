"""What NameNodes say of blocks, and which nodes that means."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cluster.node_staging import find_volume_holders
from millrace.core.errors import MillraceError
from millrace.core.tool_use import FetchedFile, StorageRead
from millrace.node.node_volumes import FilledExtents, SparseFile
from millrace.storage import hdfs_blocks

#: As Hadoop 3.5 and 2.10 answer.
NEW = {
    "BlockLocations": {
        "BlockLocation": [
            {"offset": 0, "length": 8, "hosts": ["N1.site", "n2.site"], "names": ["10.0.0.1:9866", "10.0.0.2:9866"]},
            {"offset": 8, "length": 4, "hosts": ["n2.site"], "names": ["10.0.0.2:9866"]},
        ]
    }
}
OLD = {
    "LocatedBlocks": {
        "locatedBlocks": [
            {"startOffset": 0, "block": {"numBytes": 8}, "locations": [{"hostName": "n1.site", "ipAddr": "10.0.0.1"}, {"hostName": "n2.site", "ipAddr": "10.0.0.2"}]},
            {"startOffset": 8, "block": {"numBytes": 4}, "locations": [{"hostName": "n2.site", "ipAddr": "10.0.0.2"}]},
        ]
    }
}  # fmt: skip


def test_answers_of_both_protocols_are_parsed_alike() -> None:
    found = hdfs_blocks.parse_block_locations(NEW)
    assert found == hdfs_blocks.parse_block_locations(OLD)
    assert hdfs_blocks.sum_bytes_by_host([found]) == {"n1.site": 8, "10.0.0.1": 8, "n2.site": 12, "10.0.0.2": 12}


def test_node_with_half_of_a_volume_holds_it_by_any_name() -> None:
    held = hdfs_blocks.sum_bytes_by_host([hdfs_blocks.parse_block_locations(NEW)])
    by_name = {1: frozenset({"n1"}), 2: frozenset({"n2.site"}), 3: frozenset({"n3"})}
    assert find_volume_holders(held, 12, by_name) == {1: 0.7, 2: 1.0}
    assert find_volume_holders(held, 12, {1: frozenset({"10.0.0.1"}), 2: frozenset({"10.0.0.9"})}) == {1: 0.7}
    assert find_volume_holders(held, 17, by_name) == {2: 0.7}, "the other has less than half"
    assert find_volume_holders({}, 0, by_name) == {}


def test_bytes_of_remote_blocks_are_counted() -> None:
    found = hdfs_blocks.parse_block_locations(NEW)
    assert hdfs_blocks.count_bytes_elsewhere(found, [(0, 12)], frozenset({"n1"})) == 4
    assert hdfs_blocks.count_bytes_elsewhere(found, [(6, 10), (11, 12)], frozenset({"10.0.0.1"})) == 3
    assert hdfs_blocks.count_bytes_elsewhere(found, [(0, 12)], frozenset({"n2"})) == 0
    assert hdfs_blocks.count_bytes_elsewhere(found, [(0, 12)], frozenset({"n3", "10.0.0.3"})) == 12
    assert hdfs_blocks.count_bytes_elsewhere([], [(2, 12)], frozenset({"n2"})) == 10, "where they are is not known"


def test_a_host_has_its_short_name() -> None:
    assert {"node7.no-such-site.invalid", "node7"} <= hdfs_blocks.list_host_names("Node7.no-such-site.invalid")


def test_addresses_come_from_the_settings_of_hadoop(tmp_path: Path) -> None:
    text = (
        "<configuration><property><name>dfs.namenode.http-address</name><value>nn:1</value></property></configuration>"
    )
    (tmp_path / "hdfs-site.xml").write_text(text)
    (tmp_path / "core-site.xml").write_text("<configuration><")
    known = hdfs_blocks.read_hadoop_settings({"HADOOP_CONF_DIR": str(tmp_path)})
    assert hdfs_blocks.list_name_nodes("hdfs://other:8020/x", known) == ["http://nn:1"]
    assert hdfs_blocks.read_hadoop_settings({}) == {}


def test_unanswered_namenode_is_reported_with_a_hint() -> None:
    with pytest.raises(MillraceError, match="where its blocks are cannot be told") as error:
        hdfs_blocks.locate_blocks(["hdfs://127.0.0.1:1/x"], {"HADOOP_CONF_DIR": "/no/such/folder"})
    assert "dfs.namenode.http-address" in error.value.hint


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=20), st.integers(0, 40), st.integers(0, 12))
def test_lacking_extents_are_those_not_added(parts: list[tuple[int, int]], first: int, length: int) -> None:
    there, line = FilledExtents(), set()
    for begin, n in parts:
        there.add_extent(begin, begin + n)
        line |= {*range(begin, begin + n)}
    lacking = there.find_lacking(first, first + length)
    assert {place for begin, end in lacking for place in range(begin, end)} == {*range(first, first + length)} - line
    assert all(begin < end for begin, end in lacking)


def test_copy_is_read_to_the_end_of_the_wanted_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.node.node_volumes.PIECE_BYTES", 7)
    whole, holes = tmp_path / "whole", tmp_path / "holes"
    whole.write_bytes(bytes(range(1, 101)))
    file = FetchedFile(name="whole", place="hdfs://127.0.0.1:1/whole", key="k", size=100, version="1", mtime_ns=0)
    made = SparseFile(holes, file, hdfs_blocks.HdfsLocality())
    assert made.fill_ranges([(3, 40), (50, 51)], whole) == StorageRead()
    assert holes.read_bytes() == bytes(at + 1 if 3 <= at < 40 or at == 50 else 0 for at in range(100))


@pytest.mark.process  # it waits for an answer
def test_short_copy_does_not_count_as_filled(tmp_path: Path) -> None:
    file = FetchedFile(name="short", place="hdfs://127.0.0.1:1/short", key="k", size=100, version="1", mtime_ns=0)
    (tmp_path / "short").write_bytes(b"x" * 20)
    made = SparseFile(tmp_path / "holes", file, hdfs_blocks.HdfsLocality())
    with pytest.raises(MillraceError):  # nobody is there who could be asked for the rest
        made.fill_ranges([(10, 30)], tmp_path / "short")
