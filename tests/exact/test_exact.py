"""The promise itself: for every tool the command line gives the serial tool's bytes, whatever the slots and batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from exact_cases import CASES, MILLRACE, Case, differing, run, serially

#: Go all ways: one case for each way to read, to join and to write. A format more, or an option of the tool, goes the
#: way that cuts worst, and the others with ``-m slow``: slots and batches do not know of formats.
ALL_WAYS = (
    "blastp-0",
    "blastp-6",
    "blastp-stdin",
    "hmmscan",
    "obabel-sdf",
    "filter",
    "tool-with-files",
    "muscle3",
)


def cases_and_ways() -> Iterator[Any]:
    """Each case with the ways that it goes."""
    for case in CASES:
        n_others = 0 if case.name in ALL_WAYS else len(case.ways) - 1
        yield pytest.param(case, case.ways[n_others:], id=case.name)
        if n_others:
            yield pytest.param(case, case.ways[:n_others], id=f"{case.name}-other-ways", marks=pytest.mark.slow)


@pytest.mark.parametrize(("case", "ways"), list(cases_and_ways()))
def test_output_is_the_serial_tools(
    case: Case, ways: tuple[tuple[int, str], ...], bench_of: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    words, serial = serially(case, bench_of, folder)
    for slots, batch in ways:
        command = ["run", "-q", "--slots", str(slots), "--batch", batch, *case.options, "--", *words]
        run([*MILLRACE, *command], folder, case)
        assert not differing(case, folder, serial), f"with {slots} slots, batch {batch}"
        assert not [path.name for path in folder.iterdir() if path.name.endswith(".millrace")]
        for name in serial:
            (folder / name).unlink()
