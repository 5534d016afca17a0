"""Each folder of ``examples/`` runs by its one command, and compares what it claims to compare."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sftp_server
from tool_batches import need

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: What each needs, and files that it writes: the first one by Millrace, the others, if any, without it.
NEEDS_AND_RESULTS = {
    "blast-on-a-laptop": ("blastp makeblastdb", "hits.tsv serial.tsv"),
    "slurm-job": ("blastp makeblastdb", ""),
    "five-step-workflow": ("blastp makeblastdb muscle3 hmmbuild hmmsearch", "job/hits.tsv serial/hits.tsv"),
    "map-in-python": ("", "frames.tsv serial.tsv"),
    "tool-of-your-own": ("", "stats.tsv serial.tsv"),
    "pack-and-send": ("blastp makeblastdb", "unpacked.txt sent.txt hits.txt"),
}

Start = Callable[..., subprocess.CompletedProcess[str]]

#: The installed command, for programs that stand before it.
MILLRACE = f"{sys.executable} -m millrace"


def add_program(folder: Path, name: str, body: str) -> Path:
    """Write a shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Copy an example and run it with the installed command; programs in ``bin`` come first."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    binaries = tmp_path / "bin"
    binaries.mkdir()
    # Whatever this machine has: the job on a real Slurm is in tests/cluster/test_slurm.py.
    add_program(binaries, "sinfo", "exit 1")

    def run_example(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / name
        shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("out"))
        path = os.pathsep.join([str(binaries), str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run(
            ["./run", *arguments], cwd=folder, env={**os.environ, "PATH": path, "PYTHON": sys.executable}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    return run_example


@pytest.mark.parametrize("name", NEEDS_AND_RESULTS)
def test_example_runs_and_writes_the_serial_bytes(name: str, start: Start, tmp_path: Path) -> None:
    tools, results = NEEDS_AND_RESULTS[name]
    for tool in tools.split():
        need(tool)
    done = start(name)
    assert done.returncode == 0, done.stdout + done.stderr
    contents = [(tmp_path / name / "out" / each).read_bytes() for each in results.split()]
    assert all(len(content) > 100 for content in contents) and len(set(contents)) <= 1
    assert not list((tmp_path / name).rglob("*.millrace"))


def test_slurm_example_without_slurm_prints_its_job_script(start: Start, tmp_path: Path) -> None:
    need("blastp")
    done = start("slurm-job", "--partition", "short")
    assert done.stdout.startswith("#!/bin/bash\n#SBATCH --job-name=example\n"), done.stdout + done.stderr
    assert "#SBATCH --partition=short\n" in done.stdout and "there is no Slurm here" in done.stderr
    assert not (tmp_path / "slurm-job" / "out" / "hits.tsv").exists()


@pytest.mark.slow  # tests/pack/test_send.py has the same link
def test_pack_example_sends_to_another_host_by_ssh(start: Start, tmp_path: Path) -> None:
    if reason := sftp_server.reason_not():
        pytest.skip(reason)
    need("blastp")
    keys, binaries = tmp_path / "keys", tmp_path / "bin"
    keys.mkdir()
    program = add_program(binaries, "remote-millrace", f'PATH={os.environ["PATH"]} exec {MILLRACE} "$@"')
    with sftp_server.serve(keys, binaries) as url:
        ssh = binaries / "ssh"
        ssh.write_text(ssh.read_text().replace('"$@"', f'-p {url.rpartition(":")[2]} "$@"'))
        done = start("pack-and-send", "127.0.0.1", "--millrace", str(program))
    assert done.returncode == 0 and "regenerated on 127.0.0.1" in done.stdout, done.stdout + done.stderr


#: What comes between an example and Millrace, and damages what that has written.
DAMAGES = {
    "blast-on-a-laptop": ("millrace", f'{MILLRACE} "$@" && {{ [ "$1" != run ] || echo damage >> hits.tsv; }}'),
    "map-in-python": ("python3", f'{sys.executable} "$@" && {{ [ "$2" != millrace ] || echo damage; }}'),
}


@pytest.mark.parametrize("name", ["blast-on-a-laptop", pytest.param("map-in-python", marks=pytest.mark.slow)])
def test_example_fails_where_bytes_differ(name: str, start: Start, tmp_path: Path) -> None:
    for each in NEEDS_AND_RESULTS[name][0].split():
        need(each)
    add_program(tmp_path / "bin", *DAMAGES[name])
    done = start(name)
    assert done.returncode == 1 and "the same" not in done.stdout, done.stdout + done.stderr


def test_examples_pages_name_what_is_there() -> None:
    """Every folder is in the index, its page is short and tells the command, and links lead somewhere."""
    folders = {path.parent.name for path in EXAMPLES.glob("*/run")}
    assert folders == set(NEEDS_AND_RESULTS)
    index = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"\]\(([\w-]+)/README\.md\)", index)) == folders
    for name in folders:
        page = EXAMPLES / name / "README.md"
        text = page.read_text()
        assert len(text.splitlines()) <= 25 and "**Needs**" in text and "`./run" in text and "exit code is 0" in text
        links = re.findall(r"\]\(([^)#]+)", text)
        assert [link for link in links if not (page.parent / link).exists()] == []
    root = EXAMPLES.parent
    assert all(f"examples/{name}" in (root / "README.md").read_text() for name in folders)
    assert all(f"`{name}`" in (root / "docs" / "quickstart.md").read_text() for name in folders)
