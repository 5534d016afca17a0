"""``python -m bench [NAME...]``: measure; prints tables, writes ``bench/results/NAME-VERSION.json``."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import diamond, event_traces, fragments, inputs, known_tools, pack, results, send_kills
from bench.compare import compare
from bench.startup import startup
from bench.tools import CASES
from bench.trivial import overhead, throughput

FRAGMENTS = {
    "fragments-one-query": fragments.one_query,
    "fragments-one-pass": fragments.one_pass,
    "fragments-many-hits": fragments.many_hits,
    "fragments-memory": fragments.memory,
    "fragments-candidates": fragments.candidates,
}
NAMES = (*CASES, "throughput", "overhead", "startup", *FRAGMENTS)
PROGRAMS = {"blastp": "blastp", "blastn": "blastn", "hmmscan": "hmmscan", "muscle3": "muscle3"}


def main() -> int:
    """Run the benchmarks that were named, or all."""
    if sys.argv[1:2] == ["known-tools"]:
        return known_tools.main(sys.argv[2:])
    if sys.argv[1:2] == ["diamond"]:
        return diamond.main(sys.argv[2:])
    if sys.argv[1:2] == ["pack"]:
        return pack.main(sys.argv[2:])
    if sys.argv[1:2] == ["send-kills"]:
        return send_kills.main(sys.argv[2:])
    if sys.argv[1:2] == ["pack-traces"]:
        return event_traces.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m bench", description="Millrace against its peers, side by side.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--repeats", type=int, default=3, help="interleaved repeats (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the inputs; 1 is about 12 s of serial work")
    parser.add_argument(
        "--slots",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="processes side by side (default: cores)",
    )
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are: {', '.join(NAMES)}")
    if not inputs.DATA.is_dir():
        parser.error(f"test data: no folder {inputs.DATA} (set MILLRACE_TEST_DATA)")
    # Compiled modules, as an installed program has them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    millrace = f"{Path(sys.executable).parent / 'millrace'} run -q --slots {options.slots} --"
    print(f"{platform.node()}: {options.slots} slots, load {os.getloadavg()[0]:.1f}, {datetime.now():%Y-%m-%d %H:%M}")
    found = []
    for name in options.names or NAMES:
        if name in PROGRAMS and not shutil.which(PROGRAMS[name]):
            print(f"\n## {name}: skipped, {PROGRAMS[name]} is not installed")
            continue
        for figures in _measure(name, options, millrace):
            results.keep_figures(figures["case"].replace(" ", "-"), slots=options.slots, **figures)
            found.append(figures)
    print("\n## Goals\n")
    for figures in found:
        print(f"- {figures['case']}: {figures['verdict']}")
    return int(any("MISSED" in figures["verdict"] or "NOT" in figures["verdict"] for figures in found))


def _measure(name: str, options: argparse.Namespace, millrace: str) -> list[dict[str, Any]]:
    slots, scale, repeats = options.slots, options.scale, options.repeats
    places = [None, "/dev/shm"] if name == "throughput" else [None]
    found = []
    for place in places:
        with tempfile.TemporaryDirectory(prefix="millrace-bench-", dir=place) as folder:
            if name in CASES:
                found.append(compare(CASES[name](Path(folder), slots, scale, millrace), repeats))
            else:
                measure = {"throughput": throughput, "overhead": overhead, "startup": startup, **FRAGMENTS}[name]
                found.append(measure(Path(folder), slots, scale, millrace, repeats))
    return found


if __name__ == "__main__":
    sys.exit(main())
