"""Nodes of several architectures in one job: each runs the program that is named for its own.

The kernel's personality of 32 bits makes a rank's machine an i686 for all that it can see, and all that it starts.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import harness
import pytest
from mpi_jobs import Mpi, end, ranks, said

pytestmark = [
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="only an x86_64 can be an i686 too"),
    pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler"),
    pytest.mark.skipif(not shutil.which("setarch"), reason="setarch is not installed"),
]

#: Marks its records; built in several ways it says which it is in a log, and writes the same.
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char **words)
{
    FILE *in = fopen(words[1], "r"), *out = fopen(words[2], "w"), *log = fopen(getenv("LOG"), "a");
    if (!in || !out || !log) return 1;
    fprintf(log, "%s\n", BUILD);
    fclose(log);
    if (getenv("SLEEP")) usleep(1e6 * atof(getenv("SLEEP")));
    for (int c; (c = getc(in)) != EOF; ) fputs(c == '>' ? ">seen " : (char[]){c, 0}, out);
    return fclose(out);
}
"""

JOB = """
command = ["./tool", "in.fa", "out.fa"]
slots = 1
batch = 2
input = "in.fa"
output = "out.fa"
keep-run-dir = true
"""

ARCHITECTURES = """
[arch.x86_64]
exe = "./tool"
[arch.i686]
exe = "./tool-i686"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a job of 40 records and two builds of one tool."""
    (tmp_path / "tool.c").write_text(SOURCE)
    for name, build, option in (("tool", "x86_64", "-O2"), ("tool-i686", "i686", "-O0")):
        command = ["cc", option, f'-DBUILD="{build}"', "-o", name, "tool.c"]
        subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "in.fa").write_text("".join(f">record{k}\n{'ACDEFGHIKL' * 5}\n" for k in range(40)))
    (tmp_path / "job.toml").write_text(JOB)
    return tmp_path


def of_32_bits(mpi: Mpi, place: Path, ranks: Sequence[int], others: str = "") -> Mpi:
    """The same with ``ranks`` on machines that are i686; ``others`` is shell for the last of them."""
    script = place / "start"
    names = "|".join(map(str, ranks))
    script.write_text(f"""#!/bin/sh
case $OMPI_COMM_WORLD_RANK$PMI_RANK in
{ranks[-1]}) {others or ":"} ;;
esac
case $OMPI_COMM_WORLD_RANK$PMI_RANK in
{names}) exec setarch i686 "$@" ;;
esac
exec "$@"
""")
    script.chmod(0o755)
    return replace(mpi, before=(str(script),))


def run(mpi: Mpi, n: int, place: Path, **environ: str) -> tuple[int, str]:
    return mpi.run(n, ["run", "job.toml"], place, LOG=str(log_of(place)), **environ)


def log_of(place: Path) -> Path:
    """What the tool notes, outside its working directory, whose files are each task's own."""
    return place.with_name(f"{place.name}.log")


def builds(place: Path) -> set[str]:
    return set(log_of(place).read_text().split()) if log_of(place).exists() else set()


def expected(place: Path) -> bytes:
    return (place / "in.fa").read_bytes().replace(b">", b">seen ")


def test_unnamed_architecture_is_refused(mpi: Mpi, place: Path) -> None:
    """The message has the setting that names its program."""
    code, text = run(of_32_bits(mpi, place, [1]), 2, place)
    assert code == 2
    assert "(rank 1) is of architecture i686, the coordinator of x86_64" in text
    assert '[arch.i686] exe = "./tool"' in text
    (place / "job.toml").write_text(JOB + ARCHITECTURES.replace("x86_64", "vax"))
    code, text = run(of_32_bits(mpi, place, [1]), 2, place)
    assert code == 2
    assert "(rank 0) is of architecture x86_64, the job's programs are for vax, i686" in text
    assert not builds(place)


def test_each_node_runs_the_program_of_its_architecture(mpi: Mpi, place: Path) -> None:
    (place / "job.toml").write_text(JOB + ARCHITECTURES)
    code, text = run(of_32_bits(mpi, place, [1, 3]), 4, place, SLEEP="0.05")
    assert code == 0, text
    assert (place / "out.fa").read_bytes() == expected(place)
    assert builds(place) == {"x86_64", "i686"}


@pytest.mark.slow
def test_nodes_of_one_architecture_share_one_program(openmpi: Mpi, place: Path) -> None:
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    (place / "job.toml").write_text(JOB + ARCHITECTURES)
    swap = f'exec unshare --mount sh -c \'mount --bind {place}/tool {place}/tool-i686; exec setarch i686 "$@"\' sh "$@"'
    code, text = run(of_32_bits(openmpi, place, [1, 2], swap), 3, place)
    assert code == 4, text
    assert "is not the program that other nodes of i686 have under this name" in text
    assert not builds(place)


@pytest.mark.slow
def test_coordinator_of_another_architecture_resumes_the_run(openmpi: Mpi, place: Path) -> None:
    (place / "job.toml").write_text(JOB + ARCHITECTURES)
    mpi, mark = of_32_bits(openmpi, place, [1]), f"{place.name}-{os.getpid()}"
    process = mpi.start(2, ["run", "job.toml"], place, mark, LOG=str(log_of(place)), SLEEP="0.3")
    try:
        assert harness.wait_until(
            lambda: len(log_of(place).read_text().split()) > 6 if builds(place) else False, process
        )
        os.kill(ranks(mark)[1], signal.SIGKILL)
        process.wait(harness.LONGEST_SECONDS)
    finally:
        end(process, mark)
    assert not harness.left_over(mark), said(place)
    code, text = run(of_32_bits(openmpi, place, [0, 2]), 3, place)
    assert code == 0, text
    assert "by earlier runs" in text
    assert (place / "out.fa").read_bytes() == expected(place)
    # The file that was used before is the one that counts, whoever comes with another.
    (place / "out.fa").unlink()
    shutil.copy(place / "tool", place / "tool-i686")
    code, text = run(of_32_bits(openmpi, place, [1]), 2, place)
    assert code == 4
    assert "(rank 1): " in text
