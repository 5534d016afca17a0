"""AutoDock Vina: with a seed, ligands do not depend on each other or on threads, and logs join exactly."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docking_folders import BOX, LIGANDS, make_vina_folder
from parameter_choice import again, some
from tool_batches import arguments_of, call, need, understand

from millrace import _core
from millrace.core.tool_use import ToolUse


@pytest.fixture
def docking(data: Path, tmp_path: Path) -> Path:
    """A working directory for Vina."""
    need("vina")
    make_vina_folder(data, tmp_path)
    (tmp_path / "out").mkdir()
    return tmp_path


def run(use: ToolUse, files: list[str], out: str, cwd: Path) -> bytes:
    (cwd / out).mkdir(exist_ok=True) if use.outputs[0].layout == "directory" else None
    return call(arguments_of(use, {0: files}, {0: out}), cwd, use)[0]


@pytest.mark.parametrize("options", some([[], ["--cpu", "2"], ["--verbosity", "0"]], []), ids=" ".join)
def test_batch_joins_exactly(docking: Path, options: list[str]) -> None:
    files = sorted(f"ligands/{name}.pdbqt" for name in LIGANDS)
    command = ["vina", "--receptor", "r.pdbqt", "--config", "box.txt", "--seed", "7", *options]
    use = understand([*command, "--batch", *files, "--dir", "out"], docking)
    serial, _ = call([*command, "--batch", *files, "--dir", "out"], docking)
    for cuts in ([1, 2], [2]):
        parts = [files[a:b] for a, b in zip([0, *cuts], [*cuts, 3], strict=True)]
        logs = [(len(part), run(use, part, f"part{cuts}{k}", docking)) for k, part in enumerate(parts)]
        assert _core.join(use.outputs[-1].join, logs) == serial
        for k, part in enumerate(parts):
            for file in part:
                name = f"{Path(file).stem}_out.pdbqt"
                assert (docking / f"part{cuts}{k}" / name).read_bytes() == (docking / "out" / name).read_bytes()


@pytest.mark.slow
def test_ligand_by_ligand_joins_exactly(docking: Path) -> None:
    command = ["vina", "--receptor", "r.pdbqt", "--config", "box.txt", "--seed", "7"]
    use = understand([*command, "--ligand", "ligands", "--out", "out/{stem}.pdbqt"], docking)
    assert (use.outputs[0].layout, use.cost.max_records) == ("record", 1)
    serial, logs = b"", []
    for name in sorted(LIGANDS):
        file = f"ligands/{name}.pdbqt"
        serial += call([*command, "--ligand", file, "--out", "serial.pdbqt"], docking)[0]
        logs.append((1, run(use, [file], "task.pdbqt", docking)))
        assert (docking / "task.pdbqt").read_bytes() == (docking / "serial.pdbqt").read_bytes()
    assert _core.join(use.outputs[-1].join, logs) == serial


def test_added_options_override_the_configuration_file(docking: Path) -> None:
    (docking / "all.txt").write_text(f"{BOX}receptor = r.pdbqt\nligand = ligands\nout = out\nseed = 7 # lucky\n")
    use = understand(["vina", "--config", "all.txt"], docking)
    assert use.outputs[0].path == "out/{name}"
    run(use, ["ligands/methanol.pdbqt"], "task.pdbqt", docking)
    call(
        [
            "vina",
            "--receptor",
            "r.pdbqt",
            "--config",
            "box.txt",
            "--seed",
            "7",
            "--ligand",
            "ligands/methanol.pdbqt",
            "--out",
            "serial.pdbqt",
        ],
        docking,
    )
    assert (docking / "task.pdbqt").read_bytes() == (docking / "serial.pdbqt").read_bytes()


def test_log_without_header_is_not_joined() -> None:
    with pytest.raises(ValueError, match="without its head"):
        _core.join("vina-log:n=2", [(1, b"AutoDock Vina v1.2.3\n")])
    assert _core.join("vina-log:n=2,quiet", [(1, b"AutoDock Vina v1.2.3\n")] * 2) == b"AutoDock Vina v1.2.3\n"


@pytest.mark.slow
@pytest.mark.parametrize(("slots", "batch"), [again(1, "1"), (2, "auto"), again(7, "2")])
def test_batch_option_on_the_command_line(docking: Path, slots: int, batch: str) -> None:
    files = sorted(f"ligands/{name}.pdbqt" for name in LIGANDS)
    command = ["vina", "--receptor", "r.pdbqt", "--config", "box.txt", "--seed", "7", "--batch", *files, "--dir", "out"]
    log = subprocess.run(command, cwd=docking, stdout=subprocess.PIPE, check=True).stdout
    serial = {path.name: path.read_bytes() for path in (docking / "out").iterdir()}
    shutil.rmtree(docking / "out")
    (docking / "out").mkdir()
    millrace = [sys.executable, "-m", "millrace", "run", "-q", "--slots", str(slots), "--batch", batch, "--", *command]
    assert subprocess.run(millrace, cwd=docking, stdout=subprocess.PIPE, check=True).stdout == log
    assert {path.name: path.read_bytes() for path in (docking / "out").iterdir()} == serial
