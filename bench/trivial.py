"""A tool that does nothing: what is left is Millrace (or its peer) itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from bench import inputs, measure, table
from bench.compare import Case, Contender, compare

#: Reads its standard input to the end and says nothing; static, so that its own start costs next to nothing.
TRIVIAL_C = """
#include <unistd.h>
int main(void) { char b[65536]; while (read(0, b, sizeof b) > 0) ; return 0; }
"""


def throughput(folder: Path, slots: int, scale: float, millrace: str, repeats: int) -> dict[str, Any]:
    """Bytes through ``cat``, and the most memory Millrace takes for it."""
    size = int((1 << 30) * scale)
    number = inputs.write_fasta(folder / "big.fa", size)
    spread = f"exec parallel -j{slots} -k --pipe --recstart '>'"
    case = Case(f"throughput {_kind(folder)}", f"cat of {size >> 20} MB, {number} records", folder, [
        Contender("millrace", f"exec {_with(millrace, '--format fasta')} cat < big.fa > out"),
        Contender("serial", "exec cat < big.fa > out"),
        Contender("parallel --block 10M", f"{spread} --block 10M cat < big.fa > out"),
        Contender("parallel -N 1000", f"{spread} -N 1000 cat < big.fa > out"),
    ])  # fmt: skip
    found = compare(case, repeats, watch=True)
    rows = found["rows"]
    for row in rows:
        row["megabytes_per_second"] = size / row["wall"] / 1e6
    print("; ".join(f"{row['name']}: {row['megabytes_per_second']:.0f} MB/s" for row in rows))
    peak = rows[0]["peak_bytes"]
    found["verdict"] += f"; peak memory: {peak / 1e6:.0f} MB (goal 300): {'met' if peak < 300e6 else 'MISSED'}"
    print(f"peak memory of millrace: {peak / 1e6:.0f} MB")
    (folder / "big.fa").unlink()
    return found


def _with(millrace: str, options: str) -> str:
    """The command with more options before its ``--``."""
    return f"{millrace.removesuffix('--')}{options} --"


def _kind(folder: Path) -> str:
    return "in memory" if str(folder).startswith("/dev/shm") else "on disk"


def overhead(folder: Path, slots: int, scale: float, millrace: str, repeats: int) -> dict[str, Any]:
    """Milliseconds that one task costs beyond its tool: single-record tasks of trivial tools."""
    n_tasks = max(1, int(10_000 * scale))
    proteins = inputs.records(inputs.DATA / "proteins_db.faa")
    (folder / "q.fa").write_bytes(b"".join(proteins[k % len(proteins)] for k in range(n_tasks)))
    (folder / "one.fa").write_bytes(proteins[0])
    print(f"\n## overhead: {n_tasks} tasks of one record each\n", flush=True)
    lines: list[tuple[str, ...]] = []
    figures: list[dict[str, Any]] = []
    for tool in ["cat", *_static_tool(folder)]:
        behind = f"exec {_with(millrace, '--format fasta --batch 1')} {tool} < q.fa > out"
        peer = f"exec parallel -j{slots} -k --pipe --recstart '>' -N1 {tool} < q.fa > out"
        runs: dict[str, measure.Series] = {"millrace": measure.Series(), "parallel -N1": measure.Series()}
        own = []
        for _ in range(repeats):
            own.append(own_seconds(folder, tool, slots))
            for name, command in (("millrace", behind), ("parallel -N1", peer)):
                runs[name].runs.append(measure.run(command, folder, watch=name == "millrace"))
        for name, series in runs.items():
            wall = series.median * slots / n_tasks
            beyond = (wall - min(own)) * 1e3
            figures.append({
                "tool": tool, "name": name, "wall": series.median, "cpu": series.cpu, "tasks": n_tasks,
                "own_ms": min(own) * 1e3, "overhead_ms": beyond, "cpu_ms": series.cpu / n_tasks * 1e3,
                "peak_bytes": max(run.peak_bytes for run in series.runs),
            })  # fmt: skip
            lines.append((
                f"{tool}, {name}", f"{series.median:.2f}", f"{min(own) * 1e3:.2f}", f"{beyond:.2f}",
                f"{series.cpu / n_tasks * 1e3:.2f}",
            ))  # fmt: skip
    print(table.markdown(("", "wall, median s", "the tool itself ms", "overhead ms a task", "CPU ms a task"), lines))
    worst = max(float(figure["overhead_ms"]) for figure in figures if figure["name"] == "millrace")
    verdict = f"overhead: {worst:.2f} ms a task (goal 2): {'met' if worst < 2 else 'MISSED'}"
    print(f"\n{verdict}", flush=True)
    return {"case": "overhead", "rows": figures, "verdict": verdict}


def own_seconds(folder: Path, tool: str, slots: int, number: int = 400) -> float:
    """Slot seconds of one execution of ``tool`` started as cheaply as can be, with ``slots`` side by side."""
    stdin = os.open(folder / "one.fa", os.O_RDONLY)
    null = os.open(os.devnull, os.O_WRONLY)
    exe = shutil.which(tool, path=f"{os.environ['PATH']}:{folder}") or str(folder / tool)
    actions = [(os.POSIX_SPAWN_DUP2, stdin, 0), (os.POSIX_SPAWN_DUP2, null, 1)]
    begun, running = time.perf_counter(), 0
    for _ in range(number):
        if running == slots:
            os.wait()
            running -= 1
        os.lseek(stdin, 0, os.SEEK_SET)
        os.posix_spawn(exe, [tool], os.environ, file_actions=actions)
        running += 1
    for _ in range(running):
        os.wait()
    seconds = time.perf_counter() - begun
    os.close(stdin)
    os.close(null)
    return seconds * slots / number


def _static_tool(folder: Path) -> list[str]:
    """A static trivial program, if there is a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return []
    (folder / "trivial.c").write_text(TRIVIAL_C)
    made = subprocess.run(
        [compiler, "-O2", "-static", "-o", "trivial", "trivial.c"],
        cwd=folder,
        check=False,
        stderr=subprocess.DEVNULL,
    )
    return [] if made.returncode else ["./trivial"]
