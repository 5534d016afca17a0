"""`millrace.map` with any function and any iterable, its types, and callers that were killed: docs/python.md."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from harness import wait_until
from shell import Shell

import millrace
from millrace.api.running import RunOptions
from millrace.cli.run import command as run_command

PYTHON = shlex.quote(sys.executable)

#: Works in all ways of having no file; its second call, from another process, finds what the first has done.
NO_FILE = """
import millrace
class Point:
    def __init__(self, x): self.x = x
    def double(self): return Point(2 * self.x)
class Odd(Exception): pass
letters = {"A", "C", "G", "T"}
def twice(point):
    if point.x == 7: raise Odd("seven")
    open(CALLS, "a").write("x")
    return point.double() if "A" in letters else None
got = []
try:
    for each in millrace.map(twice, (Point(n) for n in range(10)), slots=1, run_dir="kept"): got.append(each)
except Odd as error: print("odd", error)
print([type(each) is Point and each.x for each in got])
"""

EXPECTED = "odd seven\n[0, 2, 4, 6, 8, 10, 12]\n"


@pytest.mark.parametrize("way", ["-c", "-"])
def test_map_runs_functions_of_a_program_without_file(shell: Shell, way: str) -> None:
    """Functions and classes, and what they computed is not computed again."""
    code = NO_FILE.replace("CALLS", repr(str(shell.root / "calls")))
    line = f"{PYTHON} -c {shlex.quote(code)}" if way == "-c" else f"{PYTHON} - <<'END'\n{code}\nEND"
    for seed in (1, 2):  # by which sets are in another order
        ended = shell.run(f"export PYTHONHASHSEED={seed}; {line}")
        assert (ended.code, ended.out) == (0, EXPECTED), ended.shown
        assert (shell.root / "calls").stat().st_size <= 9, "what was done is not done again"
    changed = line.replace("self.x = x", "self.x = x + 1")
    ended = shell.run(changed)
    assert ended.code == 1 and "call: was" in ended.err and "RunError" in ended.err, ended.shown


NOTEBOOK = """
import json, nbclient, nbformat
cells = [nbformat.v4.new_code_cell(code) for code in CODE.split("# cell")]
book = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
print("".join(each["text"] for cell in book.cells for each in cell.outputs if each.get("name") == "stdout"), end="")
"""


def test_map_runs_functions_and_classes_of_notebook_cells(shell: Shell) -> None:
    pytest.importorskip("ipykernel")
    pytest.importorskip("nbclient")
    code = NO_FILE.replace("CALLS", repr(str(shell.root / "calls"))).replace("got = []", "# cell\ngot = []")
    for before in ("", "# one more line, and another kernel\n"):
        (shell.work / "book.py").write_text(NOTEBOOK.replace("CODE", repr(before + code)))
        ended = shell.run(f"JUPYTER_PLATFORM_DIRS=1 {PYTHON} -W ignore book.py")
        assert (ended.code, ended.out) == (0, EXPECTED), ended.shown
    assert (shell.root / "calls").stat().st_size <= 9, "what was done is not done again"


PROGRAM = """
import os, pathlib, time, millrace
def outer(step):
    def inner(n): return n + step
    return inner
n_read = 0
def numbers(n):
    global n_read
    for number in range(n):
        n_read += 1
        yield number
def waits(n):
    while n >= 2000 and not os.path.exists(os.environ["MARK"] + "/go"): time.sleep(0.02)
    return n
def forever(n):
    pathlib.Path(os.environ["MARK"], "calls").open("a").write("x")
    if n == 500 and not os.path.exists(os.environ["MARK"] + "/go"):
        open(os.environ["MARK"] + "/there", "w").close()
        os.read(os.pipe()[0], 1)
    return n
def polls(n):
    while n == 500 and not os.path.exists(os.environ["MARK"] + "/go"):
        open(os.environ["MARK"] + "/there", "w").close()
        time.sleep(0.02)
    return n
if __name__ == "__main__":
    """


def program(shell: Shell, body: str) -> str:
    (shell.work / "prog.py").write_text(PROGRAM + body.replace("\n", "\n    "))
    return f"{PYTHON} -W error prog.py"


def test_map_runs_lambdas_and_nested_functions(shell: Shell) -> None:
    body = "print(list(millrace.map(lambda n: n * n, range(4))), list(millrace.map(outer(3), range(4))))"
    ended = shell.run(program(shell, body))
    assert (ended.code, ended.out) == (0, "[0, 1, 4, 9] [3, 4, 5, 6]\n"), ended.shown


def test_map_function_with_a_lock_is_refused(shell: Shell) -> None:
    body = """import threading
lock = threading.Lock()
try: list(millrace.map(lambda n: lock.locked(), [1]))
except millrace.RefusedError as error: print(error.message, error.hint)"""
    ended = shell.run(program(shell, body))
    assert ended.code == 0 and "cannot be sent to another process" in ended.out, ended.shown
    assert "inside the function" in ended.out


def test_map_reads_a_generator_lazily(shell: Shell) -> None:
    body = """results = millrace.map(waits, numbers(1_000_000), slots=2)
first = next(results)
print(first, n_read < 500_000)
open(os.environ["MARK"] + "/go", "w").close()
for n in results:
    if n == 5000: break
results.close()
print(n_read < 1_000_000)"""
    ended = shell.run(program(shell, body))
    assert (ended.code, ended.out) == (0, "0 True\nTrue\n"), ended.shown


def test_map_raises_generator_error_after_earlier_results(shell: Shell) -> None:
    body = """def some():
    yield from range(300)
    raise ValueError("no more")
got = []
try:
    for n in millrace.map(outer(0), some()): got.append(n)
except ValueError as error: print(got == list(range(300)), error)"""
    ended = shell.run(program(shell, body))
    assert (ended.code, ended.out) == (0, "True no more\n"), ended.shown


@pytest.mark.parametrize("what", ["map", "run"])
def test_call_after_killed_caller_waits_for_the_old_run(shell: Shell, what: str) -> None:
    """The run that has lost its caller may still have the run directory, as its task does not end."""
    if what == "map":
        body = "print(list(millrace.map(forever, range(1000), run_dir='kept', slots=1)) == list(range(1000)))"
    else:
        hold = 'text=$(cat "$1"); case $text in *r2*) : > "$MARK/there"; until [ -e "$MARK/go" ]; do sleep 0.05; done;; esac'
        shell.tool("hold", f'{hold}; echo "$text"')
        call = "millrace.run(['hold', 'in.fa'], input='in.fa', batch=1, slots=1, verify=0, run_dir='kept')"
        body = f"print(b''.join({call}) == open('in.fa', 'rb').read())"
    command = program(shell, body)
    environ = {**os.environ, "MARK": str(shell.root), "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}"}
    caller = subprocess.Popen(shlex.split(command), cwd=shell.work, env=environ, stderr=subprocess.DEVNULL)
    assert wait_until((shell.root / "there").exists)
    os.kill(caller.pid, signal.SIGKILL)
    caller.wait()
    (shell.root / "go").touch()
    ended = shell.run(command)
    assert (ended.code, ended.out) == (0, "True\n"), ended.shown
    if what == "map":
        assert (shell.root / "calls").stat().st_size < 2000, "what was done is not done again"


def test_concurrent_call_of_a_live_caller_is_refused(shell: Shell) -> None:
    command = program(shell, "list(millrace.map(polls, range(1000), run_dir='kept', slots=1))")
    environ = {**os.environ, "MARK": str(shell.root)}
    caller = subprocess.Popen(shlex.split(command), cwd=shell.work, env=environ, stderr=subprocess.DEVNULL)
    assert wait_until((shell.root / "there").exists)
    ended = shell.run(command)
    assert ended.code == 1 and "is running this now" in ended.err, ended.shown
    (shell.root / "go").touch()
    assert caller.wait(120) == 0


def test_tools_do_not_see_the_caller(shell: Shell) -> None:
    shell.tool("shows", 'cat > /dev/null; env | grep -c "^MILLRACE_CALLER=" || true')
    body = "print(next(iter(millrace.run(['shows'], stdin='in.fa', format='fasta', slots=1, verify=0))))"
    ended = shell.run(program(shell, body))
    assert (ended.code, ended.out) == (0, "b'0\\n'\n"), ended.shown


def test_run_accepts_path_objects(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_RUN_PROGRESS", "none")
    program_, file = shell.root / "bin" / "copy", shell.work / "in.fa"
    run = millrace.run([program_, file], cwd=shell.work, input=file, run_dir=shell.root / "run", slots=1)
    assert b"".join(run) == file.read_bytes()
    run = millrace.run(program_, cwd=shell.work, stdin=file, format="fasta", slots=1)
    assert b"".join(run) == file.read_bytes()


def test_run_options_are_those_of_the_command_line() -> None:
    """All but the job file, and the summary in the place of the results."""
    named = {option.lstrip("-").replace("-", "_") for each in run_command.params for option in each.opts if option.startswith("--")}  # fmt: skip
    assert named - {"json"} == {name.rstrip("_") for name in RunOptions.__annotations__}
    choices = {each.name: list(each.type.choices) for each in run_command.params if hasattr(each.type, "choices")}
    hints = get_type_hints(RunOptions).items()
    assert {name: [*get_args(hint)] for name, hint in hints if get_origin(hint) is Literal} == choices


USER = """
from pathlib import Path
from collections.abc import Iterator
import millrace


def length(record: bytes) -> int:
    return len(record)


def double(n: int) -> str:
    return str(2 * n)


numbers: Iterator[int] = millrace.map(length, Path("q.faa"), slots=2)
texts: Iterator[str] = millrace.map(double, range(3), run_dir=Path("kept"))
lines: list[bytes] = list(millrace.run(["blastp", "-query", Path("q.faa")], input=Path("q.faa"), on_failure="stop", slots=4))
try:
    millrace.run("blastp", bar=False, stdin=Path("q.faa"), output=["a", Path("b")]).wait()
except millrace.RunError as error:
    code: int = error.code
except millrace.RefusedError as refused:
    hint: str = refused.hint
"""

#: What is wrong in a user's program, and what the type checker says of it.
WRONG = {
    'millrace.run("blastp", slot=4)': '"slot"',
    'millrace.run("blastp", slots="4")': "expected",
    'millrace.run("blastp", on_failure="halt")': "on_failure",
    "millrace.map(length, [1, 2])": "incompatible type",
}


@pytest.mark.slow
def test_user_program_passes_strict_type_check(tmp_path: Path) -> None:
    """As installed: by the file ``py.typed``."""
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER)
    for number, line in enumerate(WRONG):
        (tmp_path / f"wrong{number}.py").write_text(USER + line + "\n")
    names = ["user.py", *(f"wrong{number}.py" for number, _ in enumerate(WRONG))]
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *names]
    checked = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert len(said) == len(WRONG), checked.stdout + checked.stderr
    for number, words_ in enumerate(WRONG.values()):
        assert any(line.startswith(f"wrong{number}.py") and words_ in line for line in said), said
