"""A task that is killed in the middle, and tried again by the workflow engine itself, goes on where it was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import harness
import pytest
from moved_runs import TOOLS, MovedRun, make_inputs
from tool_batches import need

SNAKEFILE = """
rule search:
    input: "q.faa"
    output: "hits.tsv"
    shadow: {shadow!r}
    retries: 1
    shell: "{python} -m millrace run --slots 2 --batch 2 -- blastp -query {{input}} -db {database} -evalue 1e-3 -outfmt 6 -out {{output}}"
"""

#: What Nextflow does for each try of a task: a new folder, links to the inputs, and its variable.
NEXTFLOW = """#!/bin/bash
for try in 1 2; do
    folder=work/$try$try/$RANDOM
    mkdir -p $folder
    ln -s "$PWD"/q.faa "$PWD"/db.* $folder
    (cd $folder && export NXF_TASK_WORKDIR=$PWD &&
     exec {python} -m millrace run --slots 2 --batch 2 -- blastp -query q.faa -db db -evalue 1e-3 -outfmt 6 -out hits.tsv)
    code=$?
    [ $code = 0 ] && mv $folder/hits.tsv . && exit
    [ $code -gt 128 ] || exit $code
done
exit 1
"""


@pytest.fixture
def run(data: Path, tmp_path: Path) -> MovedRun:
    """The folder of a pipeline, with queries and database."""
    need("blastp")
    make_inputs(tmp_path / "inputs", data)
    made = MovedRun(TOOLS["blastp-rows"], tmp_path / "inputs" / "blastp-rows", tmp_path)
    folder = made.prepare_folder("pipeline", "q.faa", "db")
    (folder / "hits.tsv").unlink(missing_ok=True)
    made.environ = {"MILLRACE_STORE": str(tmp_path / "store")}
    return made


def check_retry(run: MovedRun, command: list[str], number: signal.Signals, *, moves: bool = True) -> None:
    """Run a pipeline, end its Millrace once by a signal, and compare; ``moves``: the second try has another folder."""
    folder = run.root / "pipeline"
    words = run.fill_words("q.faa", "db", ("hits.tsv",))
    expected = run.compute_serially(folder, words, "q.faa", ("hits.tsv",))
    environ = {**run.make_environ("q.faa", hold=4), "PYTHONPATH": os.pathsep.join(sys.path)}
    pipeline = subprocess.Popen(
        command,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    killed = threading.Event()

    def end_first_try() -> None:
        # The third and the fourth may count one another, and both wait.
        harness.wait_until(lambda: len(run.executions) >= 4 and find_coordinators(str(run.root)), pipeline)
        for pid in find_coordinators(str(run.root)):
            run.log.with_name(f"{run.log.name}.go").touch()
            os.kill(pid, number)
            killed.set()

    killer = threading.Thread(target=end_first_try)
    killer.start()
    said = pipeline.communicate(timeout=harness.LONGEST_SECONDS)[0]
    killer.join()
    assert killed.is_set(), said
    assert pipeline.returncode == 0, said
    assert ("goes on here" in said) == moves
    assert (folder / "hits.tsv").read_bytes() == expected[0]
    # Each batch is searched, and finished, as the store keeps what is found.
    assert run.computed_twice <= len(set(run.executions)) + 2 * run.slots, run.executions
    assert [path.name for path in (run.root / "store").iterdir()] == ["candidates"]


def find_coordinators(mark: str) -> list[int]:
    """Return the processes that are ``millrace run`` itself, not its watchdog or tools."""
    found = []
    for pid in harness.marked(mark):
        try:
            words = (Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
            parent = int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
            above = (Path("/proc") / str(parent) / "cmdline").read_bytes() if parent else b""
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended just now
        if words[1:4] == [b"-m", b"millrace", b"run"] and b"millrace\0run" not in above:
            found.append(pid)
    return found


@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGTERM])
def test_retry_in_a_new_work_folder_goes_on(run: MovedRun, number: signal.Signals) -> None:
    """As Nextflow does it; a script stands in for Nextflow."""
    script = run.root / "nextflow.sh"
    script.write_text(NEXTFLOW.format(python=sys.executable))
    check_retry(run, ["bash", str(script)], number)


@pytest.fixture(scope="session")
def snakemake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snakemake, from PATH or from PyPI."""
    if found := shutil.which("snakemake"):
        return Path(found)
    folder, uv = tmp_path_factory.mktemp("snakemake"), Path(sys.executable).with_name("uv")
    for words in (["venv", "-q", folder], ["pip", "install", "-q", "--python", folder / "bin/python", "snakemake"]):
        done = subprocess.run([uv, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"Snakemake cannot be installed: {done.stderr}")
    return folder / "bin" / "snakemake"


@pytest.mark.slow
@pytest.mark.parametrize("shadow", ["minimal", None], ids=["shadow", "in_place"])
def test_snakemake_retry_goes_on(run: MovedRun, snakemake: Path, shadow: str | None) -> None:
    """Snakemake deletes what a killed task has left, and starts it again; with ``shadow`` in a new folder."""
    folder = run.root / "pipeline"
    text = SNAKEFILE.format(shadow=shadow, python=sys.executable, database=folder / "db")
    (folder / "Snakefile").write_text(text)
    check_retry(run, [str(snakemake), "-c2", "hits.tsv"], signal.SIGKILL, moves=shadow is not None)
