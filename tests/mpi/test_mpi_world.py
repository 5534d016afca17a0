"""A world that changes and tools that misbehave, in jobs of several processes: the serial bytes, or a stop with the reason."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from crash_site import Site
from mpi_jobs import Mpi
from outside_writer import ASK, beside, prepare
from parameter_choice import some
from test_mpi_failures import N, whole

SEEN = "sed 's/^>/>seen /'"

#: Asks for the change once, when six tools have begun.
ONCE = f"""echo "$$" >> "$LOG"
if [ $(wc -l < "$LOG") -ge 6 ]; then
{ASK.format("$MARKS", "change")}
fi
"""

CHANGES = {
    "input cut short": ("head -c 300 in.fa > x; cat x > in.fa", "input in.fa: had"),
    "database replaced": ("echo new > x; mv x db", "/db: "),
    "program replaced": ("cp tool x; echo >> x; mv x tool", "program "),
}

MISDEEDS = {
    "a pipe for a result": ('mkfifo "$2"', "it left out.fa as a named pipe"),
    "a file of the user's": (f'{SEEN} "$1" > scratch; sleep 0.01; cat scratch > "$2"', "it writes scratch, a file of your folder"),
    "a file by way of memory": (
        "python3 -c 'import mmap, sys\nwith open(\"scratch\", \"r+b\") as file, mmap.mmap(file.fileno(), 0) as shown:"
        f" shown[:9] = open(sys.argv[1], \"rb\").read(9)' \"$1\"; {SEEN} \"$1\" > \"$2\"",
        "it writes scratch, a file of your folder",
    ),
}  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, n=N)


def tool(site: Site, body: str) -> None:
    (site.folder / "tool").write_text(f"#!/bin/bash\n{body}\n")


@pytest.mark.slow
@pytest.mark.parametrize("change", some(CHANGES, "input cut short"))
def test_changed_file_stops_the_job_and_undoing_it_resumes(openmpi: Mpi, site: Site, change: str) -> None:
    line, words = CHANGES[change]
    (site.folder / "db").write_text("old\n")
    tool(site, f'{ONCE}{SEEN} "$1" > "$2"; sleep 0.2')
    kept = {
        name: shutil.copy2(site.folder / name, site.folder.with_name(f"{site.folder.name}.{name}"))
        for name in ("in.fa", "db", "tool")
    }
    options, expected = ("--verify", "0", "--shared", "db"), site.expected
    marks = site.folder.with_name(f"{site.folder.name}.marks")

    def run(line: str) -> None:
        subprocess.run(["bash", "-c", line], cwd=site.folder, check=True)

    with beside(marks, run):
        prepare(marks, "change", line)
        code, text = whole(openmpi, 3, site, *options, MARKS=str(marks))
    assert code == 5 and words in text and "changed while the run was on" in text, text
    assert not site.output.exists() or expected.startswith(site.output.read_bytes()), "wrong bytes were passed on"
    for name, path in kept.items():
        shutil.copy2(path, site.folder / "back")
        (site.folder / "back").rename(site.folder / name)
    code, text = whole(openmpi, 3, site, *options, MARKS=str(marks))
    assert code == 0, text
    assert site.output.read_bytes() == expected


def test_background_children_are_awaited(openmpi: Mpi, site: Site) -> None:
    tool(site, f'(setsid bash -c \'sleep 0.05; {SEEN.replace(chr(39), chr(34))} "$0" > "$1"\' "$1" "$2" &)')
    code, text = whole(openmpi, 3, site)
    assert code == 0, text
    assert site.output.read_bytes() == site.expected


@pytest.mark.slow
@pytest.mark.parametrize("misdeed", some(MISDEEDS, "a pipe for a result", "a file of the user's"))
def test_misbehaviour_of_a_tool_is_reported(openmpi: Mpi, site: Site, misdeed: str) -> None:
    body, words = MISDEEDS[misdeed]
    (site.folder / "scratch").write_text("left by an earlier run\n")
    tool(site, body)
    code, text = whole(openmpi, 3, site)
    # A task may find what it writes there already: it is right, and the others are put aside.
    assert code in ((3, 4) if "memory" in misdeed else (4,)) and words in text, text
    assert code == 3 or not site.output.exists() or site.expected.startswith(site.output.read_bytes())


@pytest.mark.slow
def test_kept_job_is_not_reused_for_another_input(openmpi: Mpi, site: Site) -> None:
    assert whole(openmpi, 2, site, "--keep-run-dir")[0] == 0
    expected = site.expected
    (site.folder / "in.fa").write_bytes((site.folder / "in.fa").read_bytes().replace(b"record1\n", b"RECORD1\n"))
    code, text = whole(openmpi, 2, site, "--keep-run-dir")
    assert code == 2 and "input in.fa: was" in text, text
    assert site.output.read_bytes() == expected
