"""Open Babel in batches gives the bytes of one serial run, in every format that is accepted."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from parameter_choice import again, some
from tool_batches import SIZES, call, cut, in_batches, need, still, understand

from millrace import _core
from millrace.adapters.obabel import JOINS, WRITTEN


@pytest.mark.parametrize("form", some(sorted(JOINS), "cml", "mol2", "pdb", "report", "sdf", "smi", "txt", "xyz"))
def test_every_output_format_joins_exactly(data: Path, tmp_path: Path, form: str) -> None:
    need("obabel")
    name = "ligands.mol2"
    (tmp_path / name).write_bytes(b"".join(cut((data / name).read_bytes(), "mol2")[:15]))
    use = understand(["obabel", name, "-O", f"out.{form}"], tmp_path)
    call(["obabel", name, "-O", f"out.{form}"], tmp_path)
    serial = still((tmp_path / f"out.{form}").read_bytes(), use.outputs[0].volatile)
    for size in SIZES:
        joined = in_batches(use, (tmp_path / name).read_bytes(), size, tmp_path)["out"]
        assert still(joined, use.outputs[0].volatile) == serial, size


@pytest.mark.parametrize("form", sorted(JOINS))
def test_one_molecule_alone_joins_exactly(data: Path, tmp_path: Path, form: str) -> None:
    need("obabel")
    text = b"CCO ethanol\n"
    (tmp_path / "one.smi").write_bytes(text)
    use = understand(["obabel", "one.smi", "-O", f"out.{form}"], tmp_path)
    call(["obabel", "one.smi", "-O", f"out.{form}"], tmp_path)
    serial = still((tmp_path / f"out.{form}").read_bytes(), use.outputs[0].volatile)
    assert still(in_batches(use, text, 1, tmp_path)["out"], use.outputs[0].volatile) == serial


@pytest.mark.parametrize(
    "options",
    some(
        [
            ["-osdf", "--minimize", "--steps", "5", "--ff", "GAFF"],
            ["-osdf", "--energy"],
            ["-osdf", "--gen2d"],
            ["-osdf", "-h"],
            ["-osmi", "-p", "7.4"],
            ["-omol2", "--partialcharge", "gasteiger"],
            ["-ocan", "--append", "MW logP"],
            ["-osmi", "-e", "--filter", "MW>200"],
            ["-opdb", "-e", "--filter", "MW>200"],
            ["-opdbqt", "-e", "--filter", "MW>400"],
            ["-ocml", "-e", "--filter", "MW>400"],
            ["-omol", "-e", "--filter", "MW>200"],
            ["-osmi", "-e", "-s", "c1ccccc1"],
        ],
        ["-osdf", "-h"],
        ["-ocan", "--append", "MW logP"],
        ["-osmi", "-e", "--filter", "MW>200"],
        ["-ocml", "-e", "--filter", "MW>400"],
    ),
    ids=" ".join,
)
def test_options_that_treat_each_molecule_alone_join_exactly(data: Path, tmp_path: Path, options: list[str]) -> None:
    need("obabel")
    (tmp_path / "drugs.smi").write_bytes(b"".join(cut((data / "drugs.smi").read_bytes(), "smiles")[:15]))
    use = understand(["obabel", "drugs.smi", *options], tmp_path)
    serial, _ = call(["obabel", "drugs.smi", *options], tmp_path)
    for size in SIZES:
        joined = in_batches(use, (tmp_path / "drugs.smi").read_bytes(), size, tmp_path)["stdout"]
        assert still(joined, use.outputs[0].volatile) == still(serial, use.outputs[0].volatile), size


#: Half of the formats, each with one of the inputs: the others go the same way.
WAYS = [(form, name) for form in sorted(WRITTEN) for name in ("drugs.smi", "ligands.mol2")]


@pytest.mark.parametrize(("form", "name"), [each if at % 8 in (0, 3) else again(*each) for at, each in enumerate(WAYS)])
def test_output_options_of_a_format_join_exactly(data: Path, tmp_path: Path, form: str, name: str) -> None:
    need("obabel")
    text = b"".join(cut((data / name).read_bytes(), "smiles" if name.endswith("smi") else "mol2")[:15])
    for letter in WRITTEN[form]:
        folder = tmp_path / letter
        folder.mkdir()
        (folder / name).write_bytes(text)
        command = ["obabel", name, f"-o{form}", f"-x{letter}"]
        use = understand(command, folder)
        serial, _ = call(command, folder)
        joined = in_batches(use, text, 4, folder)["stdout"]
        assert still(joined, use.outputs[0].volatile) == still(serial, use.outputs[0].volatile), command


def test_standard_input_joins_exactly(data: Path, tmp_path: Path) -> None:
    need("obabel")
    text = (data / "ligands.mol2").read_bytes()
    use = understand(["obabel", "-imol2", "-ocan"], tmp_path, stdin_is_data=True)
    serial, _ = call(["obabel", "-imol2", "-ocan"], tmp_path, stdin=text)
    for size in SIZES:
        assert in_batches(use, text, size, tmp_path)["stdout"] == serial


def test_bad_molecule_with_status_0_is_reported(tmp_path: Path) -> None:
    need("obabel")
    (tmp_path / "bad.smi").write_bytes(b"CCO a\nC1CC( b\nCCC c\n")
    use = understand(["obabel", "bad.smi", "-osmi"], tmp_path)
    serial, _ = call(["obabel", "bad.smi", "-osmi"], tmp_path)
    assert serial == b"CCO\ta\n"
    with pytest.raises(AssertionError, match="converted"):
        in_batches(use, (tmp_path / "bad.smi").read_bytes(), 2, tmp_path)


def test_bad_molecule_with_e_is_skipped(tmp_path: Path) -> None:
    need("obabel")
    (tmp_path / "bad.smi").write_bytes(b"CCO a\nC1CC( b\nCCC c\nCCN d\n")
    use = understand(["obabel", "bad.smi", "-osmi", "-e"], tmp_path)
    serial, _ = call(["obabel", "bad.smi", "-osmi", "-e"], tmp_path)
    for size in SIZES:
        assert in_batches(use, (tmp_path / "bad.smi").read_bytes(), size, tmp_path)["stdout"] == serial


@pytest.mark.slow
def test_gen3d_at_its_default_is_not_reproducible(data: Path, tmp_path: Path) -> None:
    """Why it is refused; should Open Babel ever repeat itself, the refusal can go."""
    need("obabel")
    text = b"".join((data / "drugs.smi").read_bytes().splitlines(keepends=True)[:2])
    runs = {
        still(
            subprocess.run(["obabel", "-ismi", "-oxyz", "--gen3d"], input=text, capture_output=True, check=True).stdout,
            (),
        )
        for _ in range(4)
    }
    assert len(runs) > 1


@pytest.mark.parametrize("spec", ["obabel-pdb", "obabel-cml"])
def test_cut_block_is_never_joined(spec: str) -> None:
    whole = {
        "obabel-pdb": b"MODEL        1\nATOM\nENDMDL\nEND\n",
        "obabel-cml": b'<?xml version="1.0"?>\n<cml xmlns="http://www.xml-cml.org/schema">\n <molecule>\n </molecule>\n</cml>\n',
    }[spec]
    assert _core.join(spec, [(1, whole)]) == whole
    with pytest.raises(ValueError, match="cannot join"):
        _core.join(spec, [(1, whole[: whole.rindex(b"\n", 0, -1) + 1])])
