"""A run that is killed in one folder goes on in another, with other names of its files, and with the serial bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import harness
import pytest
from moved_runs import TOOLS, MovedRun, make_inputs
from tool_batches import need


@pytest.fixture(scope="module")
def inputs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for tool in TOOLS.values():
        need(tool.words[0])
    folder = tmp_path_factory.mktemp("moved") / "inputs"
    make_inputs(folder, data)
    return folder


#: The other tools, with all of these in ``make slow``.
USUAL = ("blastp-rows", "hmmscan", "minimap2")


@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in TOOLS]
)
def test_run_goes_on_under_other_paths(inputs: Path, tmp_path: Path, name: str) -> None:
    """The folder, the input, the database and all outputs have other names, and the first folder is gone."""
    tool = TOOLS[name]
    run = MovedRun(tool, inputs / name, tmp_path, ("--run-dir", str(tmp_path / "state")))
    first, outputs = run.prepare_folder("one", "in.fa", "db"), tuple(f"out{k}" for k in range(tool.n_outputs))
    process = run.start(first, run.fill_words("in.fa", "db", outputs), "in.fa", hold=4)
    said = run.kill_at(process, 4)
    assert process.returncode == -9, said
    assert not harness.left_over(str(tmp_path))
    shutil.rmtree(first)

    database = "../other/db" if tool.moves_database else "db"
    there = run.prepare_folder("two", "data/dataset_1.dat", database)
    outputs = tuple(f"results/dataset_{k}.dat" for k in range(tool.n_outputs))
    (there / "results").mkdir()
    words = run.fill_words("data/dataset_1.dat", database, outputs)
    expected = run.compute_serially(there, words, "data/dataset_1.dat", outputs)
    code, said = run.run(there, words, "data/dataset_1.dat")
    assert code == 0, said
    assert f"a run that was begun in {first} goes on here" in said
    assert run.read_outputs(there, words, outputs) == expected
    assert run.computed_twice <= run.slots + tool.is_framed, run.executions
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("blastp-rows", ("--store", "store"), marks=pytest.mark.slow),
        ("blastp-rows", ("--run-dir", "state", "--fragments", "3")),
        pytest.param("hmmscan", ("--run-dir", "state", "--fragments", "3"), marks=pytest.mark.slow),
    ],
    ids=["kept candidates", "fragments", "fragments of profiles"],
)
def test_candidates_are_used_for_a_moved_database(
    inputs: Path, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    """What was found in a database is that of the same database under another path."""
    place, where, *more = options
    run = MovedRun(TOOLS[name], inputs / name, tmp_path, (place, str(tmp_path / where), *more))
    first, outputs = (
        run.prepare_folder("one", "in.fa", "../other/db"),
        tuple(f"o{k}" for k in range(run.tool.n_outputs)),
    )
    process = run.start(first, run.fill_words("in.fa", "../other/db", outputs), "in.fa", hold=8)
    said = run.kill_at(process, 8)
    assert process.returncode == -9, said
    assert not harness.left_over(str(tmp_path))
    there = run.prepare_folder("two", "in.fa", "db")
    words = run.fill_words("in.fa", "db", outputs)
    expected = run.compute_serially(there, words, "in.fa", outputs)
    code, said = run.run(there, words, "in.fa")
    assert code == 0 and "goes on here" in said, said
    assert run.read_outputs(there, words, outputs) == expected


@pytest.mark.slow
def test_path_shown_in_each_record_is_refused(inputs: Path, tmp_path: Path) -> None:
    """BLAST's XML has the name of the database."""
    run = MovedRun(TOOLS["blastp-xml"], inputs / "blastp-xml", tmp_path, ("--run-dir", str(tmp_path / "state")))
    first = run.prepare_folder("one", "in.fa", "db")
    process = run.start(first, run.fill_words("in.fa", "db", ("out",)), "in.fa", hold=4)
    run.kill_at(process, 4)
    there = run.prepare_folder("two", "in.fa", "other/db")
    code, said = run.run(there, run.fill_words("in.fa", "other/db", ("out",)), "in.fa")
    assert code == 2 and "(blastp may show it in its output)" in said, said
    code, said = run.run(there, run.fill_words("in.fa", "other/db", ("out",)), "in.fa")
    assert code == 2, "the refusal has changed nothing"
    assert run.run(first, run.fill_words("in.fa", "db", ("out",)), "in.fa")[0] == 0
    assert run.computed_twice <= run.slots


def test_second_move_has_the_frame_of_the_last_folder(inputs: Path, tmp_path: Path) -> None:
    """Results of three forms of the command stand in one table and one report."""
    run = MovedRun(TOOLS["hmmscan"], inputs / "hmmscan", tmp_path, ("--run-dir", str(tmp_path / "state")))
    for k, hold in enumerate((3, 6)):
        folder = run.prepare_folder(f"w{k}", f"in{k}.fa", "db")
        process = run.start(folder, run.fill_words(f"in{k}.fa", "db", (f"t{k}", f"o{k}")), f"in{k}.fa", hold=hold)
        said = run.kill_at(process, hold)
        assert process.returncode == -9, said
        assert not harness.left_over(str(tmp_path))
    last, outputs = run.prepare_folder("last", "in.fa", "db"), ("t", "o")
    words = run.fill_words("in.fa", "db", outputs)
    expected = run.compute_serially(last, words, "in.fa", outputs)
    code, said = run.run(last, words, "in.fa")
    assert code == 0, said
    assert run.read_outputs(last, words, outputs) == expected
