"""``python -m bench.records``: programs that take records one by one (C, C++, Python, awk) with a long start, by the share of
the slots' time that is theirs; and `millrace.map` over many short records beside `multiprocessing.Pool.imap` and joblib."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import measure
from bench.results import show_table

#: What a program does to be a program of that language; START and RECORD: seconds that it sleeps.
SOURCES = {
    "c": """#include "millrace.h"
#include <unistd.h>
int main(void) {
    const char *record; size_t length;
    usleep(START * 1e6);
    while (millrace_next(&record, &length)) { usleep(RECORD * 1e6); millrace_write(record, length); }
    return 0;
}
""",
    "cpp": """#include "millrace.h"
#include <unistd.h>
int main() {
    usleep(START * 1e6);
    std::istringstream record;
    while (millrace::next(record)) { usleep(RECORD * 1e6); millrace::out() << record.str(); }
}
""",
    "python": """import time, millrace
time.sleep(START)
for record in millrace.records():
    time.sleep(RECORD)
    millrace.write(record)
""",
    "awk": r"""BEGIN { system("sleep START") }
{
    number = $1; left = $2 + 1; record = ""
    while (left > 0) { if ((getline line) <= 0) exit 1; left -= length(line) + 1; record = record line "\n" }
    system("sleep RECORD"); record = substr(record, 1, length(record) - 1)
    printf "%d %d\n%s\n", number, length(record), record; fflush()
}
""",
}
MAKE = {
    "c": ('cc -O2 -I"$(millrace tool include-dir)" -x c prog.c -o c.out', "./c.out"),
    "cpp": ('c++ -O2 -I"$(millrace tool include-dir)" prog.cpp -o cpp.out', "./cpp.out"),
    "python": ("true", f"{sys.executable} prog.python"),
    "awk": ("true", "awk $(awk -W version 2>&1 | grep -q mawk && echo -W interactive) -f prog.awk"),
}


def efficiency(folder: Path, language: str, n_records: int, slots: int, seconds: tuple[float, float]) -> float:
    """Wall time that the programs alone would need, as a share of that of the run; the bytes are compared.

    Args:
        seconds: Of a start, and of a record. They sleep, so that other work on the machine counts less; what the
            clock adds to each is measured with the program by itself.
    """
    source = SOURCES[language].replace("START", str(seconds[0])).replace("RECORD", str(seconds[1]))
    (folder / f"prog.{language}").write_text(source)
    make, command = MAKE[language]
    subprocess.run(make, shell=True, cwd=folder, check=True)
    (folder / "in.txt").write_text("".join(f"record {k}\n" for k in range(n_records)))
    line = "exec millrace run -q --records --format lines --verify 0 --slots {} -- {} < {} > out.txt"
    few = n_records // 20
    (folder / "few.txt").write_text("".join(f"record {k}\n" for k in range(few)))
    start = _alone(folder, command, 1)
    each = (_alone(folder, command, few) - start) / (few - 1)
    wall = measure.run(line.format(slots, command, "in.txt"), folder).wall
    assert (folder / "out.txt").read_bytes() == (folder / "in.txt").read_bytes()
    return (start + each * n_records / slots) / wall


def _alone(folder: Path, command: str, n_records: int) -> float:
    """Wall seconds of the program by itself, given all records at once."""
    frames = "".join(f"{k + 1} {len(f'record {k}') + 1}\nrecord {k}\n\n" for k in range(n_records))
    (folder / "frames").write_text(frames)
    begun = time.monotonic()
    with (folder / "frames").open("rb") as frames_of:
        subprocess.run(
            ["sh", "-c", f"exec {command}"], cwd=folder, stdin=frames_of, stdout=subprocess.DEVNULL, check=True,
            env={**os.environ, "MILLRACE_RECORDS": "1"},
        )  # fmt: skip
    return time.monotonic() - begun


def work(number: int) -> int:
    """A short function over a short record."""
    return number * number % 97


def by_millrace(numbers: range, slots: int) -> Iterator[int]:
    import millrace

    return millrace.map(work, numbers, slots=slots)


def by_pool(numbers: range, slots: int) -> Iterator[int]:
    import multiprocessing

    with multiprocessing.Pool(slots) as pool:
        yield from pool.imap(work, numbers)


def by_joblib(numbers: range, slots: int) -> Iterator[int]:
    from joblib import Parallel, delayed  # type: ignore[import-not-found, import-untyped, unused-ignore]

    found: Iterator[int] = Parallel(slots, return_as="generator")(delayed(work)(number) for number in numbers)
    return found


WAYS: dict[str, Callable[[range, int], Iterator[int]]] = {
    "millrace.map": by_millrace,
    "Pool.imap": by_pool,
    "joblib, in order as they come": by_joblib,
}


def mapped(n_records: int, slots: int, repeats: int) -> list[dict[str, Any]]:
    """Microseconds of wall and of CPU a record, least of the repeats, interleaved."""
    found: dict[str, list[tuple[float, float]]] = {}
    want = [work(number) for number in range(n_records)]
    for _ in range(repeats):
        for name, way in WAYS.items():
            try:
                begun, cpu = time.monotonic(), _cpu()
                assert list(way(range(n_records), slots)) == want, name
            except ImportError:
                print(f"{name}: not installed, left out")
                continue
            found.setdefault(name, []).append((time.monotonic() - begun, _cpu() - cpu))
    return [
        {
            "name": name,
            "wall_us": min(wall for wall, _ in runs) / n_records * 1e6,
            "cpu_us": min(cpu for _, cpu in runs) / n_records * 1e6,
        }
        for name, runs in found.items()
    ]


def _cpu() -> float:
    """CPU seconds of this process and all that have ended below it."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> int:
    """Measure; prints tables. The exit code says whether a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=2, help="processes side by side (2)")
    parser.add_argument("--records", type=int, default=5000, help="records of the programs (5000)")
    parser.add_argument("--mapped", type=int, default=100_000, help="records of the function (100000)")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of the function (3)")
    options = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    lines, missed = [], False
    for language in SOURCES:
        if language != "python" and not shutil.which(MAKE[language][0].split()[0]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            share = efficiency(Path(folder), language, options.records, options.slots, (2.0, 0.005))
        missed |= share < 0.95
        lines.append((language, f"{share:.1%}"))
    show_table("records", ("program", "of the slots' time"), lines, "programs")
    rows = mapped(options.mapped, options.slots, options.repeats)
    missed |= any(row["cpu_us"] > 100 for row in rows if row["name"] == "millrace.map")
    show_table(
        "records", ("", "wall, us a record", "CPU, us a record"),
        [(row["name"], f"{row['wall_us']:.1f}", f"{row['cpu_us']:.1f}") for row in rows],
        "mapping",
    )  # fmt: skip
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
