"""MUSCLE and MAFFT: one alignment a family, the same for any number of threads, or refused."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from parameter_choice import again
from tool_batches import arguments_of, call, need, still, understand

from millrace import _core
from millrace.core.tool_use import ToolUse


@pytest.fixture
def families(data: Path, tmp_path: Path) -> Path:
    """A working directory with four families."""
    (tmp_path / "families").mkdir()
    for path in sorted((data / "families").glob("*.faa"))[:4]:
        shutil.copy(path, tmp_path / "families")
    return tmp_path


def names(cwd: Path) -> list[str]:
    return sorted(f"families/{path.name}" for path in (cwd / "families").iterdir())


def joined(use: ToolUse, cwd: Path, stream: str) -> bytes:
    """What the tasks write to one stream, joined."""
    blocks = []
    index = [output.name for output in use.outputs].index(stream)
    for name in names(cwd):
        stdout, _ = call(arguments_of(use, {0: [name]}), cwd, use)
        blocks.append((1, stdout if use.outputs[index].stdout else (cwd / use.outputs[index].path).read_bytes()))
    return _core.join(use.outputs[index].join, blocks)


@pytest.mark.parametrize("options", [[], ["-clw"], ["-maxiters", "2"], ["-html"]], ids=" ".join)
def test_muscle3_to_standard_output(families: Path, options: list[str]) -> None:
    need("muscle3")
    use = understand(["muscle3", "-in", "families", "-quiet", *options], families)
    serial = b"".join(call(["muscle3", "-in", name, "-quiet", *options], families)[0] for name in names(families))
    assert joined(use, families, "stdout") == serial


def test_muscle3_outputs_and_log(families: Path) -> None:
    need("muscle3")
    command = ["-out", "all.afa", "-clwout", "all.clw", "-log", "log"]
    use = understand(["muscle3", "-in", "families/*.faa", *command], families)
    serial = {"out": b"", "clwout": b"", "log": b""}
    for name in names(families):
        call(["muscle3", "-in", name, *command], families)
        for stream, file in (("out", "all.afa"), ("clwout", "all.clw"), ("log", "log")):
            serial[stream] += (families / file).read_bytes()
    for stream, expected in serial.items():
        volatile = next(output.volatile for output in use.outputs if output.name == stream)
        assert still(joined(use, families, stream), volatile) == still(expected, volatile)


@pytest.mark.parametrize(
    "options",
    [[], ["-perturb", "3"], ["-stratified", "-replicates", "1"], ["-diversified", "-replicates", "2"]],
    ids=" ".join,
)
def test_muscle5_is_the_same_for_any_number_of_threads(families: Path, options: list[str]) -> None:
    need("muscle")
    use = understand(["muscle", "-align", "families", "-output", "all.afa", *options], families)
    serial = b""
    for name in names(families):
        call(["muscle", "-align", name, "-output", "one.afa", *options], families)
        serial += (families / "one.afa").read_bytes()
    assert joined(use, families, "output") == serial


@pytest.mark.slow
def test_muscle5_super5_with_one_thread_repeats_itself(families: Path) -> None:
    need("muscle")
    chance = random.Random(1)
    letters = "ACDEFGHIKLMNPQRSTVWY"
    base = [chance.choice(letters) for _ in range(60)]
    with (families / "big.faa").open("w") as big:
        for number in range(70):
            row = "".join(chance.choice(letters) if chance.random() < 0.6 else letter for letter in base)
            big.write(f">s{number}\n{row}\n")
    runs = set()
    for _ in range(2):
        call(["muscle", "-super5", "big.faa", "-output", "out", "-threads", "1"], families)
        runs.add((families / "out").read_bytes())
    assert len(runs) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        again([]),
        again(["--auto"]),
        again(["--thread", "2"]),
        ["--thread", "-1", "--threadit", "0", "--maxiterate", "2"],
        again(["--clustalout"]),
    ],
    ids=" ".join,
)
def test_mafft_to_standard_output(families: Path, options: list[str]) -> None:
    need("mafft")
    use = understand(["mafft", "--quiet", *options, "families"], families)
    serial = b"".join(call(["mafft", "--quiet", *options, name], families)[0] for name in names(families))
    assert joined(use, families, "stdout") == serial


def test_mafft_out(families: Path) -> None:
    need("mafft")
    (families / "aln").mkdir()
    use = understand(["mafft", "--quiet", "--out", "aln/", "families"], families)
    assert (use.outputs[0].path, use.outputs[0].layout) == ("aln/{name}", "record")
    name = names(families)[0]
    call(arguments_of(use, {0: [name]}, {0: "aln/one"}), families, use)
    assert (families / "aln" / "one").read_bytes() == call(["mafft", "--quiet", name], families)[0]
