"""The command ``millrace demo``: a search, serially and in parallel, killed and resumed.

It searches made-up proteins by blastp.
"""

from __future__ import annotations

import filecmp
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from millrace.core.errors import CorruptError, RefusedError, ToolError
from millrace.host.permissions import claim_private_folder
from millrace.host.python_launch import make_python_command
from millrace.rundir.paths import RunDir

#: Residues with their frequencies in Swiss-Prot, in percent.
RESIDUES = "ARNDCQEGHILKMFPSTWYV"
FREQUENCIES = (8.3, 5.5, 4.1, 5.5, 1.4, 3.9, 6.7, 7.1, 2.3, 5.9, 9.7, 5.8, 2.4, 3.9, 4.7, 6.6, 5.3, 1.1, 2.9, 6.9)


def make_proteins(seed: int, families: int, members: int) -> Iterator[tuple[str, str]]:
    """Make families of mutated homologs, some cut to fragments, some with a stretch of low complexity.

    Yields:
        (name, sequence); the same for the same seed.
    """
    dice = random.Random(seed)
    for family in range(families):
        length = min(2000, max(60, int(dice.lognormvariate(5.7, 0.6))))
        ancestor = dice.choices(RESIDUES, FREQUENCIES, k=length)
        for member in range(members):
            sequence = mutate_sequence(ancestor, dice.uniform(0.05, 0.6), dice)
            if dice.random() < 0.15:
                start = dice.randrange(len(sequence) // 2)
                sequence = sequence[start : start + max(40, len(sequence) // 3)]
            if dice.random() < 0.1:
                at = dice.randrange(len(sequence))
                sequence[at:at] = dice.choices(dice.sample(RESIDUES, 2), k=dice.randrange(15, 60))
            yield f"fam{family:04d}_{member}", "".join(sequence)


def mutate_sequence(ancestor: list[str], divergence: float, dice: random.Random) -> list[str]:
    """Return a mutated copy of a sequence: substitutions, and one insertion or deletion for about ten of them.

    Args:
        divergence: Probability of a substitution for each residue.
    """
    child: list[str] = []
    for residue in ancestor:
        roll = dice.random()
        if roll < divergence:
            child.append(dice.choices(RESIDUES, FREQUENCIES)[0])
            if roll < divergence / 20:
                child.extend(dice.choices(RESIDUES, FREQUENCIES, k=dice.randrange(1, 6)))
        elif roll > 1 - divergence / 20:
            continue
        else:
            child.append(residue)
    return child


def write_fasta(path: Path, records: Iterator[tuple[str, str]]) -> None:
    """Write records with 60 residues a line."""
    with path.open("w") as file:
        for name, sequence in records:
            lines = "\n".join(sequence[k : k + 60] for k in range(0, len(sequence), 60))
            file.write(f">{name} made-up protein\n{lines}\n")


def run_demo(folder: Path, queries: int, environ: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Run the demonstration in ``folder``.

    Raises:
        ToolError: BLAST+ is not installed, or a command failed.
        RefusedError: The folder may be another user's.
        CorruptError: The bytes differ from the serial run; the demonstration has failed.
    """
    for program in ("blastp", "makeblastdb"):
        if not shutil.which(program, path=environ.get("PATH")):
            raise ToolError(
                f"{program}: program not found on PATH", "install BLAST+ (Debian, Ubuntu: apt-get install ncbi-blast+)"
            )
    try:
        claim_private_folder(folder, is_users=True)
    except PermissionError as error:
        raise RefusedError(
            f"{folder}: {(error.strerror or '').lower()}", "name a folder of your own, or one that is not there"
        ) from error
    say(f"1. making proteins in {folder}/ (seeded: the same every time)")
    write_fasta(folder / "db.faa", make_proteins(1, 1300, 6))
    every_fifth = [record for k, record in enumerate(make_proteins(1, 1300, 6)) if k % 6 == 0][:queries]
    write_fasta(folder / "queries.faa", iter(every_fifth))
    subprocess.run(
        ["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    blastp = ["blastp", "-query", "queries.faa", "-db", "db", "-outfmt", "6", "-evalue", "1e-3"]

    say(f"2. serially: {' '.join(blastp)} -out serial.tsv")
    serial = time_command([*blastp, "-out", "serial.tsv"], folder)
    say(f"   {serial:.1f} s")

    say(f"3. the same with `millrace run --` before it, into millrace.tsv, on {len(os.sched_getaffinity(0))} cores")
    millrace = make_python_command(
        "-m", "millrace", "run", "--no-store", "--fresh", "-q", "--", *blastp, "-out", "millrace.tsv"
    )
    ours = time_command(millrace, folder)
    say(f"   {ours:.1f} s: {serial / ours:.2f} times as fast")
    compare_with_serial(folder, "millrace.tsv", say)

    say("4. again into resumed.tsv, killed with SIGKILL in the middle, then resumed by the same command")
    again = make_python_command("-m", "millrace", "run", "--no-store", "-q", "--", *blastp, "-out", "resumed.tsv")
    kill_midway(again, folder, folder / "resumed.tsv.millrace")
    say("   killed; resuming")
    resumed = time_command(again, folder)
    say(f"   {resumed:.1f} s for the rest")
    compare_with_serial(folder, "resumed.tsv", say)


def time_command(command: list[str], folder: Path) -> float:
    """Run ``command`` and return its wall time in seconds.

    Raises:
        ToolError: It ended with another exit code than 0.
    """
    begun = time.monotonic()
    code = subprocess.run(command, cwd=folder, check=False).returncode
    if code:
        raise ToolError(f"{command[0]} ended with exit code {code}", "see what it said above")
    return time.monotonic() - begun


def kill_midway(command: list[str], folder: Path, run_dir: Path) -> None:
    """Start ``command`` and kill it with SIGKILL as soon as its journal has more than 10,000 bytes."""
    shutil.rmtree(run_dir, ignore_errors=True)
    process = subprocess.Popen(command, cwd=folder)
    journal = RunDir(run_dir).journal
    while process.poll() is None:
        if journal.exists() and journal.stat().st_size > 10_000:
            process.send_signal(signal.SIGKILL)
        time.sleep(0.01)
    process.wait()


def compare_with_serial(folder: Path, name: str, say: Callable[[str], None]) -> None:
    """Compare a file with the serial output, byte for byte.

    Raises:
        CorruptError: They differ.
    """
    if not filecmp.cmp(folder / "serial.tsv", folder / name, shallow=False):
        raise CorruptError(f"{folder / name} differs from {folder / 'serial.tsv'}")
    size = (folder / name).stat().st_size
    say(f"   cmp serial.tsv {name}: identical, {size} bytes")


@click.command("demo", short_help="Show the main job on made-up proteins: same bytes, sooner, crash-safe.")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default=Path("demo"), show_default=True, help="Where to work."
)
@click.option("--queries", type=click.IntRange(min=1), default=400, show_default=True, help="Number of queries.")
def command(folder: Path, queries: int) -> None:
    """Make a seeded set of proteins, search it with blastp serially and through Millrace, compare the files byte for
    byte, then kill a second run in the middle and resume it. Opens no network.
    """

    run_demo(folder, queries, dict(os.environ), click.echo)
