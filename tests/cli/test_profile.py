"""What tools read and write, as the kernel counts it for each task, and as their calls on each file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import harness
import pytest

#: Has children that end at once.
CHILDREN = """#!/bin/sh
sed '' "$1" > "$2"
head -c 300000 /dev/zero | cat > /dev/null
"""

#: Opens, reads and writes without the C library.
STATIC = """
#include <fcntl.h>
#include <unistd.h>
int main(int n, char **a) {
    char text[4096]; int from = open(a[1], O_RDONLY), to = open(a[2], O_WRONLY | O_CREAT | O_TRUNC, 0666); ssize_t got;
    while ((got = read(from, text, sizeof text)) > 0) if (write(to, text, got) != got) return 1;
    return 0;
}
"""


def millrace(folder: Path, verb: str, *words: str) -> tuple[dict[str, Any], str]:
    """The summary of a run as JSON, and all that was said."""
    done = subprocess.run(
        [sys.executable, "-m", "millrace", verb, "--json", *words], cwd=folder, capture_output=True, text=True, timeout=harness.LONGEST_SECONDS
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr  # results of the tool may go to standard output
    summary: dict[str, Any] = json.JSONDecoder().raw_decode(text, text.index("{\n"))[0]
    return summary, done.stderr


def files_of(summary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What was done with each file, by its name."""
    return {Path(each["path"]).name: each for each in summary["io"]["files"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tool, and four records of 50 kB."""
    (tmp_path / "tool").write_text(CHILDREN)
    (tmp_path / "tool").chmod(0o755)
    (tmp_path / "in.fa").write_text("".join(f">r{k}\n{'A' * 50_000}\n" for k in range(4)))
    return tmp_path


#: A record is a task.
TOOL = ("--batch", "1", "--verify", "0", "--input", "in.fa", "--output", "out.fa", "--", "./tool", "in.fa", "out.fa")


def test_task_io_has_children_that_end_at_once(folder: Path) -> None:
    summary, _ = millrace(folder, "run", "--profile-io", "--keep-run-dir", *TOOL)
    events = [json.loads(line) for line in (folder / "out.fa.millrace" / "events.jsonl").read_text().splitlines()]
    tasks = [event["io"] for event in events if event["event"] == "task"]
    assert len(tasks) == 4
    for io in tasks:
        # The record, and the zeros from one child to the next; programs that start read some of their libraries.
        assert 650_000 <= io["read"] < 750_000 and 650_000 <= io["written"] < 660_000, io
        assert io["reads"] >= 2 * 300_000 / 65_536 and "hidden" not in io, io
    totals = summary["io"]["totals"]
    assert totals["written"] == sum(io["written"] for io in tasks)
    assert summary["io"]["compute"] + summary["io"]["wait"] > 0 and not summary["io"]["files"]
    assert (folder / "out.fa").read_bytes() == (folder / "in.fa").read_bytes()


def test_run_without_profile_has_no_io_in_its_log(folder: Path) -> None:
    summary, said = millrace(folder, "run", "--keep-run-dir", *TOOL)
    assert summary["io"] is None and "I/O" not in said
    assert '"io"' not in (folder / "out.fa.millrace" / "events.jsonl").read_text()


def test_profile_counts_calls_of_children_by_file(folder: Path) -> None:
    summary, said = millrace(folder, "profile", *TOOL)
    size = (folder / "in.fa").stat().st_size
    files = files_of(summary)
    assert files["in.fa"]["read"]["bytes"] == size and files["in.fa"]["tasks"] == 4, files["in.fa"]
    assert files["out.fa"]["written"]["bytes"] == size, files["out.fa"]
    assert "jumps" not in files["in.fa"]["read"], "from the begin to the end"
    assert files["pipes"]["read"]["bytes"] >= 4 * 300_000
    assert summary["io"]["seen"] > 0.9, summary["io"]
    assert "sequential" in said and "in.fa" in said
    assert (folder / "out.fa").read_bytes() == (folder / "in.fa").read_bytes()


@pytest.mark.parametrize("program", ["blastp", "hmmscan"])
def test_profile_of_a_real_tool_is_exact(program: str, tmp_path: Path, data: Path) -> None:
    """BLAST maps its database and reads its queries by calls; HMMER reads its profiles by streams of the C library."""
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    make = {
        "blastp": lambda: harness.blastp(tmp_path, data, 6, 800),
        "hmmscan": lambda: harness.hmmscan(tmp_path, data, 12),
    }
    case = make[program]()
    case.serial()
    summary, said = millrace(tmp_path, "profile", "--verify", "0", *case.options, "--", *case.tool)
    assert not case.differing(), said
    files = files_of(summary)
    assert files["q.faa"]["read"]["bytes"] >= (tmp_path / "q.faa").stat().st_size
    assert all(files[name]["written"]["bytes"] >= (tmp_path / name).stat().st_size for name in case.outputs), files
    assert all(files[name]["written"]["seconds"] > 0 for name in case.outputs)
    tasks = summary["n_tasks"]
    if program == "blastp":
        assert files["db.psq"]["mapped"] >= tasks * (tmp_path / "db.psq").stat().st_size
    else:
        assert files["profiles.hmm.h3f"]["read"]["bytes"] >= (tmp_path / "profiles.hmm.h3f").stat().st_size
    assert "cannot" not in said and "not counted" not in said, said
    # What the loader reads, 78 kB of each blastp, counts as seen.
    assert summary["io"]["seen"] > 0.95 and "account for" not in said, said


def test_static_program_is_said_not_to_be_seen(folder: Path) -> None:
    (folder / "tool.c").write_text(STATIC)
    if not shutil.which("cc") or subprocess.run(["cc", "-static", "-o", "tool", "tool.c"], cwd=folder).returncode:
        pytest.skip("no compiler, or no static library")
    summary, said = millrace(folder, "profile", *TOOL)
    assert "a static program" in said and not summary["io"]["files"], said
    assert summary["io"]["totals"]["written"] == (folder / "in.fa").stat().st_size
    assert (folder / "out.fa").read_bytes() == (folder / "in.fa").read_bytes()


def test_report_of_a_profile_has_files_nodes_and_charts(folder: Path) -> None:
    millrace(folder, "profile", "--keep-run-dir", *TOOL)
    subprocess.run(
        [sys.executable, "-m", "millrace", "report", "out.fa.millrace", "-o", "r.html"], cwd=folder, check=True
    )
    page = (folder / "r.html").read_text()
    for head in ("Reads and writes", "Computing and waiting", "Reads and writes by node", "Reads and writes by file"):
        assert f"<h2>{head}</h2>" in page
    shown = json.loads(page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])["io"]
    width = shown["x"][1] - shown["x"][0]
    written = sum(shown["written"][:-1]) * width
    assert written == pytest.approx(4 * 650_000, rel=0.1), "the area is what was written"


def test_resumed_run_adds_to_the_profile(folder: Path) -> None:
    """The second start reads what the first has not."""
    tool = folder / "tool"
    tool.write_text(CHILDREN + f'[ -e {folder}/go ] || ! grep -q r3 "$1" || exit 7\n')
    failing = subprocess.run(
        [sys.executable, "-m", "millrace", "profile", "--retries", "0", "--on-failure", "stop", *TOOL], cwd=folder, capture_output=True
    )  # fmt: skip
    assert failing.returncode == 1, failing.stderr
    (folder / "go").touch()
    summary, _ = millrace(folder, "profile", *TOOL)
    assert summary["n_runs"] == 2
    assert files_of(summary)["in.fa"]["read"]["bytes"] > (folder / "in.fa").stat().st_size, "one record was read twice"
    assert (folder / "out.fa").read_bytes() == (folder / "in.fa").read_bytes()
