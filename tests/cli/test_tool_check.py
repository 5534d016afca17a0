"""`millrace tool check`: what is exact passes, and what was made inexact is found and told in words."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from harness import wait_until
from shell import Shell

from millrace import _core
from millrace.cli.tool import list_job_options
from millrace.core.job import JobSpec
from millrace.core.tool_use import InputUse, ToolUse
from millrace.extensions.check import exactness_check
from millrace.extensions.check.check_folder import write_reversed_records

#: A fault, what the tool does for it, and words that must be said.
FAULTS = {
    "count": ('grep -c ">" "$1"', "line 1 is"),
    "header": ('echo "# mytool"; cat "$1"', "serially"),
    "random": ('cat "$1"; echo $$', "line 9 is"),
    "state": ("awk '/>/ { n++ } { print n, $0 }' \"$1\"", "serially '2 >r1'"),
    "order": ('grep ">" "$1" | sort -r', "standard output: "),
    "last": ('grep ">" "$1"; tail -n 1 "$1"', "serially"),
    "whole": ('[ "$(grep -c ">" "$1")" -gt 1 ] || exit 3; cat "$1"', "batches of 1"),
    "silent": ('[ "$(grep -c ">" "$1")" -gt 1 ] && cat "$1"; true', "fewer than serially"),
    "neighbours": ('grep ">" "$1" | tr -d 0-9 | uniq', "more than serially"),
    "best": ('grep ">" "$1" | sort | tail -n 1', "more than serially"),
    "threads": ('for n in 1 0; do grep ">" "$1" | awk "NR % 2 == $n"; done', "serially"),
    "join": ('cat "$1"', "serially"),
    "database": ('n=$(grep -c ">" db.fa); sed "s/$/ of $n/" "$1"', "serially"),
}
QUICK = ("state",)

#: What the user, or a description, says wrongly of the tool.
SAID = {"join": "--join header:1 --input q.fa", "database": "--input q.fa --input db.fa"}


@pytest.fixture
def sample(shell: Shell) -> Shell:
    (shell.work / "q.fa").write_text("".join(f">r{k}\n{'ACGT'[k]}\n" for k in range(4)))
    return shell


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each in QUICK else pytest.mark.slow) for each in FAULTS]
)
def test_check_detects_inexact_tool(sample: Shell, name: str) -> None:
    body, words = FAULTS[name]
    sample.tool("mytool", body)
    (sample.work / "db.fa").write_bytes((sample.work / "q.fa").read_bytes())
    ended = sample.run(
        f"MILLRACE_STORE={sample.root}/store millrace tool check {SAID.get(name, '--input q.fa')} -- mytool q.fa db.fa"
    )
    assert ended.code == 1 and words in ended.out, ended.shown
    assert not (sample.root / "store").exists()  # it might know what is to be compared


def test_check_passes_exact_tool_and_writes_nothing(sample: Shell) -> None:
    before = sorted(path.name for path in sample.work.iterdir())
    sample.tool("tee3", 'cat "$1" > "$2"; exit 3')
    ended = sample.run("millrace tool check --ok-status 3 --input q.fa --output o -- tee3 q.fa o")
    assert ended.code == 0, ended.shown
    rounds = [line.split("  ")[0] for line in ended.out.splitlines()]
    assert rounds[0] == "serially, twice" and rounds[-2:] == ["records the other way round", "killed and resumed"]
    assert all(line.endswith(" equal") for line in ended.out.splitlines())
    assert sorted(path.name for path in sample.work.iterdir()) == before


@pytest.mark.slow
def test_check_runs_are_not_listed_as_user_runs(sample: Shell) -> None:
    (sample.root / "state").mkdir()
    keeps = f"XDG_STATE_HOME={sample.root}/state"
    sample.run(f"{keeps} millrace run --input q.fa -- cat q.fa; {keeps} millrace tool check --input q.fa -- cat q.fa")
    assert sample.run(f"{keeps} millrace runs").out.count("cat q.fa") == 1


@pytest.mark.parametrize(("start", "number"), [(1, signal.SIGINT), (3, signal.SIGTERM)], ids=["serially", "parallel"])
def test_signal_leaves_no_files_of_a_check(sample: Shell, start: int, number: signal.Signals) -> None:
    hangs, scratch = sample.root / "hangs", sample.root / "tmp"
    scratch.mkdir()
    more = f'[ "$(wc -l < "$COUNT")" -lt {start} ] && exec cat "$1"'
    sample.tool("mytool", f'echo x >> "$COUNT"; {more}; : > {shlex.quote(str(hangs))}; sleep 900')
    environ = {**os.environ, "PATH": f"{sample.root / 'bin'}:{os.environ['PATH']}", "MARK": str(sample.root),
               "COUNT": str(sample.root / "count"), "TMPDIR": str(scratch)}  # fmt: skip
    line = ["millrace", "tool", "check", "--input", "q.fa", "--", "mytool", "q.fa"]
    with subprocess.Popen(
        line, cwd=sample.work, env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert wait_until(hangs.exists)
        process.send_signal(number)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 128 + number, said
    assert f"stopped by {number.name}".encode() in said
    assert not [*scratch.iterdir()], "the folder of the check is left"


@pytest.mark.parametrize("compression", ["", "gzip", "bgzf", "zstd", "bzip2", "xz"])
def test_check_samples_the_first_records_of_a_large_file(tmp_path: Path, compression: str) -> None:
    """Each record is a start of the tool, several times over."""
    use = ToolUse(
        adapter="generic",
        argv=(),
        inputs=(InputUse("q.fq", "fastq"), InputUse("-", "lines")),
        outputs=(),
        databases=(),
    )
    plain, packed = tmp_path / "plain", tmp_path / "q.fq"
    plain.write_bytes(b"@r\nA\n+\nI\n" * 101)
    if compression:
        _core.compress_file(plain, packed, compression)
    else:
        plain.rename(packed)
    stdin = tmp_path / "stdin"
    stdin.write_bytes(b"a\n" * 100)
    folder = tmp_path / "check"
    folder.mkdir()
    made = exactness_check.ExactnessCheck(["mytool"], use, tmp_path, folder, stdin, (), ("", ""))
    assert made.shortened == ("of q.fq: the first 100 records",)
    sample, unpacked = folder / "sample-0", tmp_path / "unpacked"
    assert _core.compression(sample.read_bytes()) == compression
    assert _core.Reader([sample], "fastq").cut(unpacked, 0, 0, 0)
    assert unpacked.read_bytes() == b"@r\nA\n+\nI\n" * 100


@pytest.mark.parametrize("compression", ["", "gzip", "bgzf", "zstd", "bzip2", "xz"])
def test_reversed_input_keeps_its_compression(tmp_path: Path, compression: str) -> None:
    plain, packed, turned = tmp_path / "plain", tmp_path / "packed", tmp_path / "turned"
    plain.write_bytes(b"head\na\nb")
    _core.compress_file(plain, packed, compression) if compression else plain.rename(packed)
    write_reversed_records(packed, "lines+header", ("", ""), turned)
    assert _core.compression(turned.read_bytes()) == compression
    reader = _core.Reader([turned], "lines")
    assert reader.cut(plain, 0, 0, 0) and plain.read_bytes() == b"head\nb\na\n"


def test_check_options_reach_its_runs() -> None:
    job = JobSpec(
        command=("a",), input=("q:fasta",), ok_status=(1, 3), record_timeout=2.5, record_start="^>", format="regex"
    )
    words = "--input q:fasta --ok-status 1 --ok-status 3 --format regex --record-start ^> --record-timeout 2.5"
    assert list_job_options(job) == words.split()


def test_check_leaves_files_in_folders_unchanged(sample: Shell) -> None:
    """They were written through the link to their folder: an earlier result lost, the sample turned round."""
    for name in ("in", "out"):
        (sample.work / name).mkdir()
    (sample.work / "in/q.fa").write_bytes((sample.work / "q.fa").read_bytes())
    (sample.work / "out/o").write_text("an earlier result\n")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in sample.work.rglob("*") if path.is_file()}
    ended = sample.run("millrace tool check --input in/q.fa --output out/o -- tee2 in/q.fa out/o")
    assert ended.code == 0, ended.shown
    assert "records the other way round        equal" in ended.out
    after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in sample.work.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--input q.fa --output {work}/o -- tee2 q.fa {work}/o", "is outside the working folder"),
        ("--input {work}/q.fa -- tee2 {work}/q.fa", "is outside the working folder"),
        ("--input ../q.fa -- tee2 ../q.fa", "is outside the working folder"),
        ("-- fasttree -out out/{{stem}}.nwk in/", "is a record, and no batch cuts it"),
    ],
)
def test_check_refuses_outputs_that_it_cannot_compare(sample: Shell, line: str, words: str) -> None:
    for place in ("in/a.fa", "in/b.fa", "../q.fa", "o"):
        path = sample.work / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(">r\nACGT\n")
    ended = sample.run(f"millrace tool check {line.format(work=sample.work)}")
    assert ended.code == 2 and words in ended.err, ended.shown
    assert (sample.work / "o").read_text() == ">r\nACGT\n"


@pytest.mark.slow
@pytest.mark.parametrize("line", ["seqkit seq -r q.fa", "seqkit fx2tab -n -l q.fa", "seqkit grep -p r1 q.fa -o o"])
def test_shipped_tools_pass_the_check(sample: Shell, line: str) -> None:
    ended = sample.run(f"millrace tool check -- {line}")
    assert ended.code == 0, ended.shown


def test_failing_serial_command_is_reported(sample: Shell) -> None:
    ended = sample.run("millrace tool check --input q.fa -- segv q.fa")
    assert ended.code == 1, ended.shown
    assert "the serial command ends" in ended.err


def test_differences_are_reported_in_words() -> None:
    assert (
        exactness_check.find_first_difference({"o": b"a\nb\n"}, {"o": b"b\na\n"})
        == "o: has the same lines in another order"
    )
    assert exactness_check.find_first_difference({"o": b"a\n"}, {}) == "o: is not written"
    assert exactness_check.find_first_difference({"o": b"a\n"}, {"o": b"a"}) == "o: ends otherwise"


def test_job_in_phases_is_checked_per_command(sample: Shell) -> None:
    (sample.work / "job.toml").write_text('[phase.a]\ncommand = "cat q.fa"\nstdout = "o"\n')
    ended = sample.run("millrace tool check job.toml")
    assert ended.code == 2 and "check the command of each" in ended.err, ended.shown
