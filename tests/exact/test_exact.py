"""The promise itself: for every tool the command line gives the serial tool's bytes, whatever the slots and batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from exact_cases import CASES, MILLRACE, Case, collect, masked, run, serially


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_output_is_the_serial_tools(case: Case, bench_of: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    words, serial, volatile = serially(case, bench_of, folder)
    for slots, batch in case.ways:
        for name in serial:
            (folder / name).unlink()
        run(
            [*MILLRACE, "run", "-q", "--slots", str(slots), "--batch", batch, *case.options, "--", *words], folder, case
        )
        ours = collect(folder, case)
        assert ours.keys() == serial.keys()
        for name, expected in serial.items():
            if ours[name] != expected:
                assert masked(ours[name], volatile.get(name, [])) == masked(expected, volatile.get(name, [])), (
                    f"{name} differs with {slots} slots, batch {batch}"
                )
        left = [path.name for path in folder.iterdir() if path.name.endswith(".millrace")]
        assert not left
