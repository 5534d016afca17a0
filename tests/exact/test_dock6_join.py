"""DOCK 6 by a stand-in (DOCK itself is licensed): what is read and written is where dock.in says."""

from __future__ import annotations

from pathlib import Path

import pytest
from docking_folders import DOCK_IN, STAND_IN_DOCK6, make_dock6_folder
from tool_batches import arguments_of, call, cut

from millrace import _core
from millrace.adapters.dock6 import ADAPTER
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputArg, ToolUse, UserCommand


@pytest.fixture
def docking(data: Path, tmp_path: Path) -> Path:
    """A working directory for DOCK."""
    make_dock6_folder(data, tmp_path)
    return tmp_path


def understand(cwd: Path, text: str = "dock6 -i dock.in -o dock.out") -> ToolUse:
    return ADAPTER.understand_command(UserCommand(argv=tuple(text.split()), cwd=cwd, environ={}, exe=STAND_IN_DOCK6))


@pytest.mark.slow
def test_batches_at_the_same_relative_name_join_exactly(docking: Path) -> None:
    use = understand(docking)
    assert not any(isinstance(token, InputArg) for token in use.argv)
    assert use.inputs[0].path == "lib/ligands.mol2"
    assert {path.name for path in use.databases} == {"dock.in", "spheres.sph", "grid.nrg", "grid.bmp"}
    arguments = [str(STAND_IN_DOCK6), *arguments_of(use)[1:]]
    call(arguments, docking)
    records = cut((docking / "lib" / "ligands.mol2").read_bytes(), "mol2")
    for size in (1, 7, 100):
        blocks: dict[str, list[tuple[int, bytes]]] = {"scored": [], "orients": []}
        for first in range(0, len(records), size):
            task = docking / f"task-{size}-{first}"
            (task / "lib").mkdir(parents=True)
            (task / "dock.in").symlink_to(docking / "dock.in")
            (task / "lib" / "ligands.mol2").write_bytes(b"".join(records[first : first + size]))
            call(arguments, task)
            for name, found in blocks.items():
                found.append((size, (task / f"out_{name}.mol2").read_bytes()))
        for output in use.outputs:
            if output.name in blocks:
                assert _core.join(output.join, blocks[output.name]) == (docking / output.path).read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("rank_ligands            no", "rank_ligands yes", "orders all molecules"),
        ("lib/ligands.mol2", "/lib/ligands.mol2", "absolute path"),
        ("lib/ligands.mol2", "nowhere.mol2", "no such file"),
        ("ligand_outfile_prefix   out", "", "no ligand_outfile_prefix"),
    ],
)
def test_refused_by_name(docking: Path, old: str, new: str, problem: str) -> None:
    (docking / "dock.in").write_text(DOCK_IN.replace(old, new))
    with pytest.raises(RefusedError, match=problem):
        understand(docking)


def test_missing_parameter_file_is_refused(docking: Path) -> None:
    with pytest.raises(RefusedError, match="no parameter file"):
        understand(docking, "dock6 -o dock.out")
    with pytest.raises(RefusedError, match="cannot be read"):
        understand(docking, "dock6 -i nothere.in")
