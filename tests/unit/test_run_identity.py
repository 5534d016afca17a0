"""What makes two runs the same, wherever their files lie."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from millrace.core.tool_use import InputArg, InputUse, OutputArg, OutputUse, ToolUse
from millrace.planning.run_identity import (
    PlannedRun,
    digest_identity,
    find_unknown_file,
    has_same_words,
    list_moved_paths,
    pair_fingerprints,
)


def search(
    cwd: str = "/w", query: str = "q.faa", database: str = "nr", out: str = "o", evalue: str = "10"
) -> PlannedRun:
    """Return a search with these paths."""
    argv = ("blastp", "-query", query, "-db", database, "-evalue", evalue, "-out", out)
    files = tuple(Path(f"{database}.{suffix}") for suffix in ("phr", "pin"))
    use = ToolUse(
        adapter="blast", argv=(*argv[:2], InputArg(index=0), *argv[3:8], OutputArg(index=0)),
        inputs=(InputUse(path=query, format="fasta"),), outputs=(OutputUse(name="out", path=out),), databases=files,
    )  # fmt: skip
    found = {"program /usr/bin/blastp": "2.12", f"input {query}": "7 bytes"}
    found |= {f"database {path}": f"{path.suffix} changed 1" for path in files}
    return PlannedRun(argv=argv, cwd=cwd, use=use, record_start="", record_end="", fingerprints=found)


def test_run_under_other_paths_is_the_same() -> None:
    here, there = search(), search("/v", "data/in.dat", "../db/nr", "/r/hits")
    assert has_same_words(here, there) and digest_identity(here) == digest_identity(there)
    assert list_moved_paths(here, there) == {"input", "output", "database", "folder"}
    assert list_moved_paths(here, search("/v")) == {"folder"} and not list_moved_paths(here, search())
    assert all(was == is_now for _, was, is_now in pair_fingerprints(here, there))


def test_option_that_looks_like_a_path_is_compared() -> None:
    """The input is called 10, as is the threshold: both become 20, and only one of them is a path."""
    assert digest_identity(search(query="10")) != digest_identity(search(query="20", evalue="20"))


@pytest.mark.parametrize("changed", ["evalue", "input", "database", "program", "join"])
def test_run_with_a_difference_is_another_one(changed: str) -> None:
    here, there = search(), search("/v", "in.faa")
    fingerprints = dict(there.fingerprints)
    if changed == "evalue":
        there = search("/v", "in.faa", evalue="1")
        assert not has_same_words(here, there)
    elif changed == "join":
        outputs = (replace(there.use.outputs[0], join="csv"),)
        there = replace(there, use=replace(there.use, outputs=outputs))
    else:
        name = {"input": "input in.faa", "database": "database nr.pin", "program": "program /usr/bin/blastp"}[changed]
        there = replace(there, fingerprints={**fingerprints, name: "other"})
        assert [pair for pair in pair_fingerprints(here, there) if pair[1] != pair[2]] == [
            (name, here.fingerprints[name.replace("in.faa", "q.faa")], "other")
        ]
    assert digest_identity(here) != digest_identity(there)


def test_file_without_fingerprint_is_found_by_its_path(tmp_path: Path) -> None:
    run = search(str(tmp_path))
    listed = replace(run, use=replace(run.use, argv=(*run.use.argv, "-gilist", "ids.txt")))
    assert not find_unknown_file(run) and not find_unknown_file(listed)
    (tmp_path / "ids.txt").write_text("1\n")
    assert find_unknown_file(listed) == "ids.txt"
