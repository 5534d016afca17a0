"""Results of the benchmarks for each release of Millrace: ``bench/results/NAME-VERSION.json``, one entry for each command line."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from bench import table
from millrace import __version__

#: Where the results are kept; empty: nowhere, as in tests.
FOLDER = os.environ.get("MILLRACE_BENCH_RESULTS", str(Path(__file__).resolve().parent / "results"))


def show_table(name: str, head: Sequence[str], rows: Sequence[Sequence[str]], part: str = "table") -> None:
    """Print a table as Markdown, and keep it as ``part`` of the results."""
    print(table.markdown(head, rows))
    keep_figures(name, **{part: {"head": head, "rows": rows}})


def keep_figures(name: str, **figures: object) -> None:
    """Keep figures with what they depend on, in the place of earlier ones of the same benchmark, command line and release."""
    if not FOLDER:
        return
    folder = Path(FOLDER)
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{__version__}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    # Paths say nothing to a reader on another machine.
    command = shlex.join([name, *(Path(word).name if word.startswith("/") else word for word in sys.argv[1:])])
    kept[command] = {**kept.get(command, {}), **describe_machine(), **figures}
    text = json.dumps(dict(sorted(kept.items())), indent=1)
    path.write_text(text.replace(f"{Path(sys.executable).parent}/", "") + "\n")


def describe_machine() -> dict[str, object]:
    """Describe what figures depend on."""
    return {
        "when": datetime.now().astimezone().isoformat(timespec="seconds"), "cpu": _find_processor(),
        "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg(), "python": platform.python_version(),
    }  # fmt: skip


def _find_processor() -> str:
    with open("/proc/cpuinfo") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.processor()
