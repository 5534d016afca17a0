"""What is said of a run that was begun otherwise."""

from __future__ import annotations

from pathlib import Path
from random import Random

from msgspec.structs import replace
from run_histories import fragmented

from millrace.core.tool_use import ToolUse
from millrace.execution.run_comparison import describe_changes
from millrace.rundir.paths import RunManifest


def begun(n_fragments: int, database: str = "nr", argv: tuple[str, ...] = ("blastp",)) -> RunManifest:
    use = ToolUse(adapter="blast", argv=(), inputs=(), outputs=(), databases=(Path("nr"),))
    if n_fragments:
        use = replace(use, fragmented=replace(fragmented(Random(1), n_fragments), database=database))
    return RunManifest(
        version=1, millrace="1", run_id="0" * 32, argv=argv, cwd="/", exe="/blastp", use=use, record_start="", record_end="", fingerprints={},
    )  # fmt: skip


def test_refusal_of_fragments_names_the_difference() -> None:
    """It said "--fragments: was 1, now 1"."""
    assert describe_changes(begun(2), begun(2)) == []
    assert describe_changes(begun(4), begun(3)) == ["--fragments: was 4, now 3"]
    assert describe_changes(begun(0), begun(2)) == ["--fragments: was 1, now 2"]
    for earlier, now in ((begun(0), begun(1)), (begun(2), begun(2, "other"))):
        assert [each.split(",")[0] for each in describe_changes(earlier, now)] == ["--fragments: as many"]
    [only] = describe_changes(begun(2), begun(2, "other", ("blastp", "-task")))
    assert only.startswith("command: was blastp\n")
