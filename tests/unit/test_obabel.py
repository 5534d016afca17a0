"""What the adapter of Open Babel understands and refuses; no Open Babel is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.adapters.obabel import ADAPTER
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputArg, OutputArg, ToolUse, UserCommand


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    (tmp_path / "l.mol2").write_text("@<TRIPOS>MOLECULE\n")
    (tmp_path / "d.smi").write_text("CCO\n")
    (tmp_path / "pdbs").mkdir()
    (tmp_path / "pdbs" / "a.pdb").write_text("END\n")
    return tmp_path


def understand(cwd: Path, *argv: str) -> ToolUse:
    return ADAPTER.understand_command(UserCommand(argv=("obabel", *argv), cwd=cwd, environ={}, exe=Path("/bin/true")))


@pytest.mark.parametrize(
    ("argv", "expected", "form", "join"),
    [
        (("l.mol2", "-O", "o.sdf"), (InputArg(index=0), "-O", OutputArg(index=0)), "mol2", "concat"),
        (("l.mol2", "-Oo.pdb"), (InputArg(index=0), OutputArg(index=0, prefix="-O")), "mol2", "obabel-pdb"),
        (("-imol2", "l.mol2", "-osmi"), ("-imol2", InputArg(index=0), "-osmi"), "mol2", "concat"),
        (("-i", "smi", "-o", "cml"), ("-i", "smi", "-o", "cml"), "smiles", "obabel-cml"),
        (
            ("d.smi", "-opdbqt", "-p", "7.4", "--gen2d"),
            (InputArg(index=0), "-opdbqt", "-p", "7.4", "--gen2d"),
            "smiles",
            "obabel-pdbqt",
        ),
    ],
)
def test_input_and_output_are_recognised(
    cwd: Path, argv: tuple[str, ...], expected: tuple[object, ...], form: str, join: str
) -> None:
    use = understand(cwd, *argv)
    assert use.argv == ("obabel", *expected)
    assert (use.inputs[0].format, use.outputs[0].join) == (form, join)
    assert use.records_said


def test_several_files_are_records(cwd: Path) -> None:
    use = understand(cwd, "pdbs/a.pdb", "pdbs/b.pdb", "-O", "o.sdf")
    assert use.argv == ("obabel", InputArg(index=0), "-O", OutputArg(index=0))
    assert (use.inputs[0].path, use.inputs[0].format) == ("pdbs/a.pdb\0pdbs/b.pdb", "files")
    assert not use.records_said
    assert understand(cwd, "pdbs/*.pdb", "-osmi").inputs[0].path == "pdbs/*.pdb"


def test_molecules_are_counted_unless_e_is_set(cwd: Path) -> None:
    assert not understand(cwd, "d.smi", "-osmi", "-e").records_said


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (("d.smi", "-O", "o.smi", "-m"), "numbers its output files"),
        (("d.smi", "-osmi", "-f2"), "by their number"),
        (("d.smi", "-osmi", "-l", "2"), "by their number"),
        (("d.smi", "-osmi", "--unique"), "compares each molecule"),
        (("d.smi", "-osmi", "--sort", "MW"), "orders the whole input"),
        (("d.smi", "-osmi", "--AddOutIndex"), "numbers molecules"),
        (("d.smi", "-ocml", "-xa1"), "-x1 writes CML 1"),
        (("d.smi", "-oinchi", "-xtu"), "-xu compares each molecule with all"),
        (("d.smi", "-O", "o.inchikey", "-xe"), "-xe compares each molecule with the first"),
        (("d.smi", "-osmi", "-xC"), "-xC orders atoms at random"),
        (("d.smi", "-ocml", "-xm"), "-xm is not known"),
        (("d.smi", "-oxyz", "-xa"), "-xa is not known"),
        (("d.smi", "-osmi", "--join"), "joins all"),
        (("d.smi", "-osmi", "-j"), "joins all"),
        (("d.smi", "-osmi", "-C"), "combines"),
        (("d.smi", "-osmi", "-z"), "gzip stream"),
        (("d.smi", "-O", "o.smi.gz"), "gzip stream"),
        (("d.smi", "-osdf", "--gen3d"), "at random"),
        (("d.smi", "-osdf", "--gen3D", "fast"), "at random"),
        (("d.smi", "-osdf", "--minimize", "--ff", "uff"), "energies in each run"),
        (("d.smi", "-osdf", "--ff", "UFF", "--energy"), "energies in each run"),
        (("d.smi", "-osdf", "--minimize"), "other coordinates in each run"),
        (("d.smi", "-osdf", "--minimize", "--steps", "5", "--ff", "mmff94s"), "other coordinates in each run"),
        (("d.smi", "-osmi", "--canonical"), "numbers atoms differently"),
        (("d.smi", "-osmi", "--separate"), "several molecules of one"),
        (
            ("d.smi", "-osmi", "--filter", "MW>2"),
            "with --filter a molecule that cannot be read ends the serial run unnoticed",
        ),
        (("d.smi", "-osmi", "--frob"), "--frob is not known"),
        (("d.smi", "-ofps"), "'fps' is not known to be joined"),
        (("x.cif", "-osmi"), "cannot be cut|no such file"),
        (("-osmi",), "format"),
        (("-:CCO", "-osmi"), "one molecule"),
        (("-V",), "only prints information"),
    ],
)
def test_refused_by_name(cwd: Path, argv: tuple[str, ...], problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        understand(cwd, *argv)
