"""The one list of joins: each is there, and an adapter composes them."""

from __future__ import annotations

import pytest

from millrace import _core
from millrace.adapters import joins

#: Parameters without which there is no such join.
PARAMETERS = {"blast-tabular": "columns=1,delim=09", "blast-comments": "columns=0", "prodigal": "gff"}


@pytest.mark.parametrize("name", joins.OF_ONE_TOOL)
def test_each_tool_join_exists(name: str) -> None:
    assert isinstance(_core.join(":".join(filter(None, (name, PARAMETERS.get(name)))), []), bytes)


def test_parts_are_composed() -> None:
    spec = joins.combine_joins(
        joins.make_first_header_join(2),
        joins.make_footer_join("^#"),
        joins.make_restore_join(r"^#.*( -t \d+)$", " -t 8"),
    )
    blocks = [(1, b"h\n-\na\n#x -t 2\n"), (1, b"hh\n--\nbb\n#x -t 3\n")]
    assert _core.join(spec, blocks) == b"h\n-\na\nbb\n#x -t 8\n"
    with pytest.raises(ValueError, match="no line of its header or footer matches"):
        _core.join(spec, [(1, b"h\n-\na\n#x\n")])


def test_user_joins_are_composed_of_the_same_parts() -> None:
    assert (
        joins.make_header_join(2).partition(":")[0] in joins.WAYS
        and joins.make_footer_join("x").partition(":")[0] in joins.WAYS
    )
    assert {joins.CONCAT, joins.SAM} <= joins.WAYS.keys()
    assert not {"header-first", "restore"} & joins.WAYS.keys(), "these two an adapter has to answer for"
