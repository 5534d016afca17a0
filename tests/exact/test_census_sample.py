"""A sample of the census, measured again: programs that the other tests have installed."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from census.__main__ import CensusSite
from census.program_files import read_census_file

#: Files of the census, and commands of each that are measured.
SAMPLE = {
    "seqkit": 9, "seqtk": 6, "bedtools": 12, "blast": 4, "text": 24,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("name", SAMPLE)
def test_sample_of_the_census_is_as_it_was(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = msgspec.structs.replace(read_census_file(name), debian=[])
    commands = [each for each in file.list_commands() if shutil.which(each[1].run.split()[0])][: SAMPLE[name]]
    assert commands, "none of its programs is installed"
    site = CensusSite(file, None, tmp_path, "")
    seen = [(site.measure(program, command), command) for program, command in commands]
    assert not [(each.command, each.verdict, each.words) for each, command in seen if each.verdict != command.expect]
