"""How many nodes keep each volume of a database, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from millrace.core.errors import RefusedError
from millrace.core.job import make_job
from millrace.core.tool_use import FetchedFile, FragmentPlan, OutputUse, ToolUse, VolumeKeeping
from millrace.host import memory_limits
from millrace.planning import run_plan
from millrace.planning.volume_keeping import check_replicas, is_too_large, settle_keeping
from millrace.storage import cost_table


def make_use(n_volumes: int, size: int, max_copies: int | None) -> ToolUse:
    volumes = tuple((FetchedFile(f"nr.{k:02}.psq", "/nfs", "k", size, "v", 0),) for k in range(n_volumes))
    plan = FragmentPlan(
        fragments=(), found=OutputUse(name="found", path="found"), finish=(), database="nr", volumes=volumes,
        kept=VolumeKeeping(max_copies=max_copies),
    )  # fmt: skip
    return ToolUse(adapter="blast", argv=(), inputs=(), outputs=(), fragmented=plan)


@pytest.mark.parametrize(
    ("asked", "nodes", "copies", "share"),
    [(None, 2, 1, 0.5), (None, 8, 4, 0.5), (None, 16, 8, 0.5), (3, 4, 3, 0.75), (9, 4, 4, 1.0)],
)
def test_groups_are_as_many_as_memory_holds(asked: int | None, nodes: int, copies: int, share: float) -> None:
    """Eight volumes of 100 bytes, nodes with 800 bytes of memory of which copies may fill half."""
    use, said = settle_keeping(make_use(8, 100, asked), nodes, 800)
    assert use.fragmented and (use.fragmented.kept.max_copies, use.fragmented.kept.share) == (copies, share)
    assert f"each kept by {copies} node" in said


def test_volumes_in_hdfs_are_fetched_by_any_node() -> None:
    use = make_use(8, 100, 0)
    assert settle_keeping(use, 4, 800) == (use, "") and use.max_copies == 0


def test_database_is_too_large_beyond_half_of_memory() -> None:
    assert is_too_large(51, 100) and not is_too_large(50, 100)


@pytest.mark.parametrize("option", [{"fragments": "4"}, {"dask": "tcp://host:1"}, {"stage": "off"}])
def test_replicas_beside_contradicting_option_are_refused(option: dict[str, str]) -> None:
    job = make_job({"command": ["blastp"], "replicas": 2, **option})
    with pytest.raises(RefusedError, match=f"--replicas 2: .*--{next(iter(option))}"):
        check_replicas(job)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder with queries, and one beside it with a database of one volume and a database of two."""
    if not shutil.which("makeblastdb"):
        pytest.skip("BLAST+ is not installed")
    db = tmp_path / "db"
    db.mkdir()
    (db / "p.faa").write_text("".join(f">p{k}\n{'MKVLAADTGLNWPRH' * (20 + k)}\n" for k in range(40)))
    words = ["makeblastdb", "-in", "p.faa", "-dbtype", "prot", "-out"]
    for more in (["one"], ["two", "-max_file_sz", "10000"]):
        subprocess.run([*words, *more], cwd=db, check=True, stdout=subprocess.DEVNULL)
    work = tmp_path / "work"
    work.mkdir()
    (work / "q.faa").write_text(">q\nMKVLAADTGLNWPRHMKVLAADTGLNWPRH\n")
    return work


def plan(folder: Path, *words: str, replicas: int | None = 2) -> run_plan.RunPlan:
    job = make_job(
        {"command": ["blastp", "-query", "q.faa", "-outfmt", "6", "-out", "o.tsv", *words], "replicas": replicas}
    )
    environ = {"PATH": str(Path(shutil.which("blastp") or "").parent), "HOME": str(folder)}
    return run_plan.make_plan(job, folder, environ, spread=True)


def test_volumes_in_a_mounted_folder_become_fragments(folder: Path) -> None:
    use = plan(folder, "-db", "../db/two").use
    assert use.fragmented and len(use.fragmented.volumes) == use.n_fragments > 1
    names = {file.name for files in use.fragmented.volumes for file in files}
    assert names == {path.name for path in (folder.parent / "db").glob("two.*.p[sh][qr]")}
    assert {*use.fragmented.kept.in_place} == {path.name for path in use.databases} - names
    assert plan(folder, "-db", "../db/two", replicas=None).use.max_copies == 0, "it is small"


@pytest.mark.parametrize(("place", "is_kept"), [("shared", True), ("disk", False)])
def test_large_database_on_shared_storage_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, place: str, is_kept: bool
) -> None:
    """A node with memory for 1 kB cannot hold it; what is on a disk of each node's own is not fetched."""
    monkeypatch.setattr(memory_limits, "read_usable_memory", lambda: (1000, ""))
    monkeypatch.setattr(cost_table, "classify_place", lambda _: place)
    fragmented = plan(folder, "-db", "../db/two", replicas=None).use.fragmented
    assert bool(fragmented and fragmented.volumes) == is_kept
    assert not is_kept or (fragmented and fragmented.kept.max_copies is None)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-db", "../db/one"], "no volumes"),
        (["-db", "../db/two ../db/one"], "not of several|not all of the database"),
        (["-db", "../db/two", "-seqidlist", "ids"], "-seqidlist"),
        (["-db", "../db/two", "-num_threads", "2"], "-num_threads"),
    ],
)
def test_database_that_nodes_cannot_keep_is_refused(folder: Path, words: list[str], why: str) -> None:
    (folder / "ids").write_text("p1\n")
    with pytest.raises(RefusedError, match=f"--replicas 2: .*({why})") as refused:
        plan(folder, *words)
    assert "millrace db split" in refused.value.hint


def test_database_in_the_working_directory_is_refused(folder: Path) -> None:
    """BLAST reads a volume of the working directory in place of any other of its name."""
    for path in (folder.parent / "db").glob("two.*"):
        shutil.copy(path, folder)
    with pytest.raises(RefusedError, match="working directory"):
        plan(folder, "-db", "two")


def test_keeping_survives_a_manifest() -> None:
    use = make_use(2, 100, None)
    assert msgspec.convert(msgspec.to_builtins(use.fragmented.kept), VolumeKeeping) == use.fragmented.kept  # type: ignore[union-attr]
