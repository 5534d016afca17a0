"""Millrace from Python: docs/python.md."""

from __future__ import annotations

import doctest
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import wait_until
from parameter_choice import again
from shell import Shell

import millrace
from millrace.api import notebook, running
from millrace.core.errors import RefusedError

PYTHON = shlex.quote(sys.executable)

PROGRAM = """
import os, sys, time
import millrace


def twice(n):
    return 2 * n


def no_70(n):
    if n == 70:
        raise ValueError("no 70")
    if n == -1:
        os.abort()
    return n


def stops_once(n):
    with open("../calls", "a") as file:
        file.write("x")
    if n == 2000 and not os.path.exists(os.environ["MARK"] + "/go"):
        open(os.environ["MARK"] + "/there", "w").close()
        os.read(os.pipe()[0], 1)
    return n


if __name__ == "__main__":
    """


def program(shell: Shell, body: str) -> str:
    (shell.work / "prog.py").write_text(
        PROGRAM.replace("../calls", f"{shell.root}/calls") + body.replace("\n", "\n    ")
    )
    return f"{PYTHON} -W error prog.py"


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_RUN_PROGRESS", "none")


def test_results_come_in_the_order_of_the_records(shell: Shell) -> None:
    ended = shell.run(
        program(shell, "print(list(millrace.map(twice, range(3000), slots=2)) == list(range(0, 6000, 2)))")
    )
    assert (ended.code, ended.out) == (0, "True\n"), ended.shown


def test_records_of_a_file_come_as_bytes(shell: Shell) -> None:
    ended = shell.run(program(shell, "print(list(millrace.map(bytes.split, 'in.fa')), list(millrace.map(len, [])))"))
    assert (ended.code, ended.out) == (0, "[[b'>r1', b'MKV'], [b'>r2', b'MAA'], [b'>r3', b'MLL']] []\n"), ended.shown


def test_function_error_is_raised_at_its_record(shell: Shell) -> None:
    body = "got = []\ntry:\n    for n in millrace.map(no_70, range(90)): got.append(n)\nexcept ValueError as error: print(len(got), error)"
    ended = shell.run(program(shell, body))
    assert (ended.code, ended.out) == (0, "70 no 70\n"), ended.shown


def test_killed_process_ends_the_iteration(shell: Shell) -> None:
    body = "try: list(millrace.map(no_70, [1, -1, 2]))\nexcept millrace.RunError as error: print(error.code, error)"
    ended = shell.run(program(shell, body))
    assert ended.code == 0 and ended.out[0] in "14" and "SIGABRT" in ended.out, ended.shown


def test_killed_call_resumes_when_repeated(shell: Shell) -> None:
    n = 4000
    command = program(
        shell, f"print(list(millrace.map(stops_once, range({n}), run_dir='kept', slots=1)) == list(range({n})))"
    )
    environ = {**os.environ, "MARK": str(shell.root)}
    started = subprocess.Popen(
        shlex.split(command), cwd=shell.work, env=environ, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert wait_until((shell.root / "there").exists)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    (shell.root / "go").touch()
    ended = shell.run(command)
    assert (ended.code, ended.out) == (0, "True\n"), ended.shown
    assert (shell.root / "calls").stat().st_size < 2 * n, "what was done is not done again"


def test_lines_of_a_command_come_while_it_runs(shell: Shell, quiet: None) -> None:
    run = millrace.run([str(shell.root / "bin" / "copy"), "in.fa"], cwd=shell.work, input="in.fa", slots=1)
    assert b"".join(run) == (shell.work / "in.fa").read_bytes()
    assert "status" in run.said
    piped = millrace.run([str(shell.root / "bin" / "copy")], cwd=shell.work, stdin="in.fa", format="fasta", fresh=True)
    assert len(list(piped)) == 6


def test_a_command_may_be_a_text_as_in_a_job_file(shell: Shell, quiet: None) -> None:
    (shell.work / "a b.fa").write_bytes((shell.work / "in.fa").read_bytes())
    run = millrace.run(f"{shell.root}/bin/copy 'a b.fa'", cwd=shell.work, input="a b.fa", slots=1)
    assert b"".join(run) == (shell.work / "in.fa").read_bytes()
    with pytest.raises(RefusedError, match="No closing quotation"):
        millrace.run("copy 'a b.fa", cwd=shell.work, input="a b.fa")


def test_abandoned_iterator_stops_its_run_with_a_warning(shell: Shell) -> None:
    """Its run directory stays, as after a signal, and the same call goes on."""
    shell.tool("hold", 'text=$(cat "$1"); case $text in *r2*) until [ -e "$MARK/go" ]; do sleep 0.05; done;; esac; echo "$text"')  # fmt: skip
    call = "millrace.run(['hold', 'in.fa'], input='in.fa', batch=1, slots=1, verify=0, run_dir='kept')"
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    words = shlex.split(program(shell, f"for line in {call}: break").replace("error", "default"))
    left = subprocess.run(words, cwd=shell.work, env=environ, capture_output=True, text=True)
    assert left.returncode == 0 and "hold in.fa: the run was left before its end" in left.stderr, left
    (shell.root / "go").touch()
    assert wait_until(lambda: "running" not in shell.run("millrace status kept").out)
    done = shell.run(program(shell, f"print(b''.join({call}).decode(), end='')"))
    assert (done.code, done.out) == (0, (shell.work / "in.fa").read_text()), done.shown
    assert not (shell.work / "kept").exists()


def test_refusal_is_an_error_with_its_message(shell: Shell, quiet: None) -> None:
    with pytest.raises(millrace.RunError, match="orders or compares") as raised:
        millrace.run(["sort", "in.fa"], cwd=shell.work, input="in.fa").wait()
    assert raised.value.code == 2 and "pipe" in raised.value.hint


def test_examples() -> None:
    assert sum(doctest.testmod(each).failed for each in (running, notebook, running)) == 0


def test_public_names_of_the_package_exist() -> None:
    for name in millrace.__all__:
        assert getattr(millrace, name) is not None
    with pytest.raises(AttributeError):
        millrace.nothing  # noqa: B018
    assert Path(millrace.__file__).is_file()


def test_program_exit_during_map_is_reported(shell: Shell) -> None:
    body = "import time\nleft = millrace.map(time.sleep, [0.05] * 8000, slots=1)\nnext(left)"
    words = shlex.split(program(shell, body).replace("error", "default"))
    ended = subprocess.run(words, cwd=shell.work, capture_output=True, text=True)
    assert ended.returncode == 0 and "millrace.map(sleep, ...): was left before its last result" in ended.stderr, ended
    assert "nothing of it is kept" in ended.stderr


def test_slow_line_does_not_delay_other_tasks(shell: Shell) -> None:
    """The tool waits for what another task of the same program does."""
    shell.tool("hold", 'until [ -e "$MARK/go" ]; do sleep 0.05; done; cat "$1"')
    body = """import asyncio, pathlib
async def lines():
    run = millrace.run(["hold", "in.fa"], input="in.fa", slots=1, verify=0)
    return b"".join([line async for line in run])
async def go():
    await asyncio.sleep(0)
    pathlib.Path(os.environ["MARK"], "go").touch()
async def both():
    return (await asyncio.gather(lines(), go()))[0]
print(asyncio.run(both()).decode(), end="")"""
    ended = shell.run(program(shell, body))
    assert (ended.code, ended.out) == (0, (shell.work / "in.fa").read_text()), ended.shown


NOTEBOOK = """
import json, nbclient, nbformat
code = "import millrace\\nrun = millrace.run(['copy', 'in.fa'], input='in.fa', slots=1MORE)\\nprint(len(list(run)), 'status' in run.said)"
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
print(json.dumps(book.cells[0].outputs))
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", again(", bar=False")], ids=["bar", "no_bar"])
def test_a_notebook_shows_a_bar(shell: Shell, more: str) -> None:
    pytest.importorskip("ipykernel")
    pytest.importorskip("nbclient")
    (shell.work / "book.py").write_text(NOTEBOOK.replace("MORE", more))
    ended = shell.run(f"JUPYTER_PLATFORM_DIRS=1 {PYTHON} -W ignore book.py")
    assert ended.code == 0, ended.shown
    outputs = {each["output_type"]: each for each in json.loads(ended.out)}
    assert outputs["stream"]["text"] == "6 True\n", ended.shown
    assert ("display_data" in outputs) == (not more)
    if not more:
        assert outputs["display_data"]["data"]["text/html"].startswith(
            '<progress value="1.0000"></progress> 100 %, 3 records'
        )


def test_records_and_results_are_objects_of_biopython(shell: Shell) -> None:
    pytest.importorskip("Bio")
    body = """from Bio import SeqIO
from Bio.SeqRecord import SeqRecord
for each in millrace.map(SeqRecord.reverse_complement, SeqIO.parse("n.fa", "fasta"), slots=1): print(each.seq)"""
    (shell.work / "n.fa").write_text(">a\nAACG\n>b\nGGT\n")
    ended = shell.run(program(shell, body))
    assert (ended.code, ended.out) == (0, "CGTT\nACC\n"), ended.shown


def test_records_and_results_are_objects_of_pyhmmer(shell: Shell) -> None:
    pytest.importorskip("pyhmmer")
    body = """from pyhmmer.easel import Alphabet, DigitalSequence, SequenceFile
with SequenceFile("in.fa", digital=True, alphabet=Alphabet.amino()) as file:
    for each in millrace.map(DigitalSequence.textize, file, slots=1): print(each.sequence)"""
    ended = shell.run(program(shell, body))
    assert (ended.code, ended.out) == (0, "MKV\nMAA\nMLL\n"), ended.shown
