"""Infernal in batches gives the bytes of one serial run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from exact_cases import MODELS, make_hairpins
from parameter_choice import some
from tool_batches import call, in_batches, need, still, understand

from millrace.core.errors import RefusedError


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, pressed too, and sequences with and without hits, with short and long names."""
    need("cmscan")
    folder = tmp_path_factory.mktemp("infernal")
    make_hairpins(folder / "q.fa")
    shutil.copy(MODELS, folder / "m.cm")
    shutil.copy(MODELS, folder / "db.cm")
    call(["cmpress", "db.cm"], folder)
    return folder


@pytest.mark.parametrize(
    "options",
    some(
        [
            "", "--tblout t", "-o out --tblout t", "--tblout=t --fmt 2", "-g --noali", "--rfam", "--hmmonly --tblout t", "-Z 5",
            "--cpu 2 --tblout t", "--acc --notextw", "--seed 3 --cyk", "-T 5 --toponly", "-E 1e-5 --tblout t",
        ],
        "-o out --tblout t", "--tblout=t --fmt 2", "--rfam", "--hmmonly --tblout t", "--cpu 2 --tblout t",
    ),
)  # fmt: skip
def test_cmscan_joins_exactly(search: Path, tmp_path: Path, options: str) -> None:
    check(search, tmp_path, ["cmscan", *options.split(), "../../db.cm", "q.fa"])


@pytest.mark.parametrize(
    "options",
    ["", "-o out --tblout t -A a", "-A a", "--tblout t --noali", "-gZ 3 --tblo t", "--cpu 2", "--toponly --tblout t"],
)
def test_cmsearch_joins_exactly(search: Path, tmp_path: Path, options: str) -> None:
    check(search, tmp_path, ["cmsearch", *options.split(), "m.cm", "../../q.fa"], sizes=(1, 2))


def check(search: Path, tmp_path: Path, command: list[str], sizes: tuple[int, ...] = (1, 4, 7)) -> None:
    serial = tmp_path / "batches" / "serial"
    serial.mkdir(parents=True)
    for path in search.iterdir():
        (tmp_path / path.name).symlink_to(path)
    query = Path(command[-2] if command[0] == "cmsearch" else command[-1]).name
    (serial / query).write_bytes((search / query).read_bytes())
    use = understand(command, serial)
    stdout, _ = call(command, serial)
    text = (serial / query).read_bytes()
    for size in sizes:
        joined = in_batches(use, text, size, tmp_path / "batches")
        for output in use.outputs:
            expected = stdout if output.stdout else (serial / output.path).read_bytes()
            assert expected
            assert still(joined[output.name], output.volatile) == still(expected, output.volatile), (size, output.name)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("cmscan m.cm q.fa", "not pressed, m.cm.i1m is missing"),
        ("cmscan db.cm none.fa", "none.fa not found"),
        ("cmscan db.cm m.cm", "is not FASTA"),
        ("cmscan db.cm -", "no queries on standard input"),
        ("cmscan -h", "only prints help"),
        ("cmscan --devhelp", "only prints help"),
        ("cmscan --seed 0 db.cm q.fa", "another seed in every run"),
        ("cmscan --nope db.cm q.fa", "No such option"),
        ("cmscan --verbose db.cm q.fa", "prints seconds with each hit"),
        ("cmscan --timeF1 db.cm q.fa", "only measures time"),
        ("cmscan db.cm", "needs two files"),
        ("cmscan --cut_ga db.cm q.fa", "model hairpin of db.cm has no GA thresholds, nor have 2 others"),
        ("cmsearch --cut_n m.cm q.fa", "model hairpin of m.cm has no NC thresholds"),
        ("cmscan --qformat embl db.cm q.fa", "only FASTA"),
        ("cmscan -o x --tblout x db.cm q.fa", "not a file of its own"),
        ("cmsearch q.fa q.fa", "not a file of models"),
        ("cmsearch m.cm -", "no plain file of sequences"),
        ("cmsearch - q.fa", "models on standard input are not cut"),
    ],
)
def test_unsupported_command_is_refused_before_the_start(search: Path, line: str, problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        understand(line.split(), search)
