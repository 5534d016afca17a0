"""Too little memory: the run takes fewer slots, and nothing is put aside that works alone. With real control groups."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cgroups import HOLD, Group, memory_group
from parameter_choice import some

MB = 1 << 20

#: Takes as many megabytes as the first argument says (records named ``hog`` 1000 more), and writes in capitals what it reads.
TOOL = """#!{python} -SE
{hold}
import sys
text = open(sys.argv[2]).read()
megabytes = int(sys.argv[1])
held = hold(megabytes, {folder!r}) if megabytes > 100 else bytearray((megabytes + 1000 * text.count('hog')) << 20)
sys.stdout.write(text.upper())
"""

#: How a wrapper may hide that its child was killed; the last one hides it altogether.
WRAPPERS = {
    "137": '{tool} "$@"',
    "1": '{tool} "$@" || exit 1',
    "0": '{tool} "$@" | cat',
}


def write(folder: Path, names: list[str], wrapper: str = "") -> None:
    met = folder.with_name(
        f"{folder.name}.met"
    )  # where tools meet: the files of the working directory are each one's own
    met.mkdir()
    tool = folder / "tool"
    tool.write_text(TOOL.format(python=sys.executable, hold=HOLD, folder=str(met)))
    if wrapper:
        tool = tool.rename(folder / "inner")
        (folder / "tool").write_text(f"#!/bin/sh\n{WRAPPERS[wrapper].format(tool=tool)}\n")
    for path in folder.iterdir():
        path.chmod(0o755)
    (folder / "in.fa").write_text("".join(f">{name}\nacgt\n" for name in names))


def run(folder: Path, group: Group, megabytes: int, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*group.enter, sys.executable, "-m", "millrace", "run", "--slots", "2", "--batch", "2", "--progress", "none",
         *options, "--input", "in.fa", "--", "./tool", str(megabytes), "in.fa"],
        cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("wrapper", some(["", *WRAPPERS], "", "137"))
def test_tools_that_fit_only_alone_run_one_after_the_other(wrapper: str, tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(12)]
    write(tmp_path, names, wrapper)
    with memory_group("fewer", 320 * MB) as group:
        done = run(tmp_path, group, 170)
        kills = group.kills
    assert done.returncode == 0, done.stderr
    assert done.stdout == (tmp_path / "in.fa").read_text().upper()
    assert "memory ran out with 2 tools side by side" in done.stderr and "going on with 1 slot" in done.stderr
    assert 1 <= kills <= 8, "what was killed shows that fewer run: each two tasks at most before, and some retries"


def test_only_records_that_fail_alone_are_quarantined(tmp_path: Path) -> None:
    names = [f"hog{number}" if number == 5 else f"r{number}" for number in range(8)]
    write(tmp_path, names)
    with memory_group("hogs", 320 * MB) as group:
        done = run(tmp_path, group, 10)
    assert done.returncode == 3, done.stderr
    assert done.stdout == "".join(f">{name}\nacgt\n".upper() for name in names if "hog" not in name)
    assert "hog5): killed by SIGKILL, as memory ran out though nothing ran beside it" in done.stderr
    assert "1 record quarantined" in done.stderr


def test_run_with_too_little_memory_stops_with_a_reason(tmp_path: Path) -> None:
    write(tmp_path, ["r0", *(f"hog{number}" for number in range(11))])
    with memory_group("never", 320 * MB) as group:
        done = run(tmp_path, group, 10, "--batch", "1", "--retries", "0")
    assert done.returncode == 1
    assert "tool needs more memory than there is: killed by SIGKILL, as memory ran out" in done.stderr
    assert "hint: give it more" in done.stderr


def test_other_kill_is_not_reported_as_out_of_memory(tmp_path: Path) -> None:
    write(tmp_path, ["r0", "r1", "r2"])
    (tmp_path / "tool").write_text('#!/bin/sh\ncase $(cat "$2") in *r1*) kill -9 $$;; esac; tr a-z A-Z < "$2"\n')
    with memory_group("other", 320 * MB) as group:
        done = run(tmp_path, group, 10, "--batch", "1")
    assert done.returncode == 3
    assert "killed by SIGKILL\n" in done.stderr and "memory ran out" not in done.stderr and "limit" not in done.stderr
