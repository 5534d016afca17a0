"""The real tools: what a biologist would type today, against the same command behind ``millrace run --``."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench import inputs
from bench.compare import Case, Contender

#: Lines of HMMER's report that differ between serial runs: times, threads, names of files.
HMMER_VOLATILE = rb"^# (CPU time|Mc/sec|number of worker threads|query sequence file|output directed to file): .*\n"


def _made(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def _spread(tool: str, stdin: str, name: str, sizes: Sequence[int], slots: int) -> list[Contender]:
    """GNU parallel in its tuned sizes: ``tool`` reads records on standard input."""
    return [
        Contender(
            f"parallel -N {size}",
            f"parallel -j{slots} -k --pipe --recstart '>' -N {size} {tool} {stdin} < {name} > out",
            family="parallel",
        )
        for size in sizes
    ]


def _presplit(tool: str, option: str, sizes: Sequence[int], slots: int) -> list[Contender]:
    """xargs over files that were split beforehand, which is not counted; joining them is."""
    return [
        Contender(
            f"xargs, {size} a file",
            f"ls split-{size}/*.fa | xargs -P{slots} -I{{}} sh -c '{tool} {option} {{}} > {{}}.out' "
            f"&& cat split-{size}/*.out > out",
            family="xargs",
            prepare=partial(_clean, name=f"split-{size}"),
        )
        for size in sizes
    ]


def _clean(folder: Path, name: str) -> None:
    for path in (folder / name).glob("*.out"):
        path.unlink()


def _write(folder: Path, name: str, records: list[bytes], sizes: Sequence[int]) -> None:
    (folder / name).write_bytes(b"".join(records))
    for size in sizes:
        inputs.split(records, size, folder / f"split-{size}")


def _threads(command: str, slots: int) -> list[Contender]:
    """BLAST's own threads, which share the database or the queries."""
    ways = (f"-num_threads {slots}", f"-num_threads {slots} -mt_mode 1")
    return [Contender(way, f"{command} {way}") for way in ways]


def blastp(folder: Path, slots: int, scale: float, millrace: str) -> Case:
    """Proteins against proteins, tabular."""
    sizes = (15, 40, 125)
    queries = list(
        inputs.copies(inputs.records(inputs.DATA / "proteins_queries.faa"), max(1, int(500 * scale)), inputs.AMINO)
    )
    _write(folder, "q.faa", queries, sizes)
    subjects = inputs.records(inputs.DATA / "proteins_db.faa")[::3]
    (folder / "db.faa").write_bytes(b"".join(subjects))
    _made(["makeblastdb", "-in", "db.faa", "-dbtype", "prot", "-out", "db"], folder)
    tool = "blastp -db db -outfmt 6"
    return Case("blastp", f"{len(queries)} proteins against {len(subjects)}", folder, [
        Contender("millrace", f"{millrace} {tool} -query q.faa -out out"),
        Contender("serial", f"{tool} -query q.faa -out out"),
        *_threads(f"{tool} -query q.faa -out out", slots),
        *_spread(tool, "-query -", "q.faa", sizes, slots),
        *_presplit(tool, "-query", sizes, slots),
    ])  # fmt: skip


def blastn(folder: Path, slots: int, scale: float, millrace: str) -> Case:
    """A genome's contigs against genes; few records, of very different lengths."""
    sizes = (1, 4, 12)
    queries = list(inputs.copies(inputs.records(inputs.DATA / "contigs.fna"), max(1, int(168 * scale)), inputs.BASES))
    _write(folder, "q.fna", queries, sizes)
    _made(["makeblastdb", "-in", str(inputs.DATA / "genes_db.fna"), "-dbtype", "nucl", "-out", "db"], folder)
    tool = "blastn -task blastn -db db -outfmt 6 -evalue 1e-3"
    return Case("blastn", f"{len(queries)} contigs against 2,701 genes", folder, [
        Contender("millrace", f"{millrace} {tool} -query q.fna -out out"),
        Contender("serial", f"{tool} -query q.fna -out out"),
        *_threads(f"{tool} -query q.fna -out out", slots),
        *_spread(tool, "-query -", "q.fna", sizes, slots),
        *_presplit(tool, "-query", sizes, slots),
    ])  # fmt: skip


def hmmscan(folder: Path, slots: int, scale: float, millrace: str) -> Case:
    """Many proteins against a small profile library."""
    sizes = (100, 500, 2500)
    queries = list(
        inputs.copies(inputs.records(inputs.DATA / "proteins_queries.faa"), max(1, int(20_000 * scale)), inputs.AMINO)
    )
    _write(folder, "q.faa", queries, sizes)
    (folder / "p.hmm").write_bytes((inputs.DATA / "profiles.hmm").read_bytes())
    _made(["hmmpress", "p.hmm"], folder)
    one = "hmmscan --cpu 0 p.hmm"
    return Case("hmmscan", f"{len(queries)} proteins against 60 profiles", folder, [
        Contender("millrace", f"{millrace} hmmscan -o out p.hmm q.faa"),
        Contender("serial (--cpu 0)", "hmmscan --cpu 0 -o out p.hmm q.faa"),
        Contender(f"--cpu {slots}", f"hmmscan --cpu {slots} -o out p.hmm q.faa"),
        *_spread(one, "-", "q.faa", sizes, slots),
        *_presplit(one, "", sizes, slots),
    ], volatile=HMMER_VOLATILE)  # fmt: skip


def muscle3(folder: Path, slots: int, scale: float, millrace: str) -> Case:
    """Many small families, one file each."""
    families = sorted((inputs.DATA / "families").glob("*.faa"))
    number = max(1, int(960 * scale))
    (folder / "families").mkdir()
    for index in range(number):
        generation, which = divmod(index, len(families))
        records = inputs.records(families[which])
        with (folder / "families" / f"{families[which].stem}.{generation}.faa").open("wb") as file:
            # Every generation lets another record change, and is otherwise the family.
            rng = random.Random(index)
            file.writelines(
                inputs.mutated(record, generation, inputs.AMINO, rng) if generation else record for record in records
            )

    def fresh(folder: Path) -> None:
        (folder / "out").mkdir()

    each, loop, xargs = "muscle3 -quiet -in {} -out {}", ("$f", "../out/$f"), ("families/{}", "out/{}")
    return Case("muscle3", f"{number} families", folder, [
        Contender("millrace", f"{millrace} muscle3 -quiet -in families -out out/", prepare=fresh),
        Contender("serial", f"cd families && for f in *; do {each.format(*loop)}; done", prepare=fresh),
        Contender("parallel", f"ls families | parallel -j{slots} {each.format(*xargs)}", prepare=fresh),
        Contender("xargs", f"ls families | xargs -P{slots} -I{{}} {each.format(*xargs)}", prepare=fresh),
    ])  # fmt: skip


CASES = {"blastp": blastp, "blastn": blastn, "hmmscan": hmmscan, "muscle3": muscle3}
