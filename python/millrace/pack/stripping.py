"""What was regenerated without what may be otherwise each time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.pack import difference
from millrace.pack.codec import Codec
from millrace.plan.plan import Plan


def stripped(codec: Codec, plan: Plan, paths: Sequence[Path]) -> list[Path]:
    """The outputs of a plan, in ``paths``, without dates, times, and the like; beside them."""
    return [
        strip(codec, plan, number, path, path.with_name(path.name + ".stripped")) for number, path in enumerate(paths)
    ]


def strip(codec: Codec, plan: Plan, number: int, path: Path, dest: Path) -> Path:
    """One output, in ``path``, likewise, in ``dest``."""
    use = plan.use.outputs[number]
    difference.strip(path, (*use.volatile, *codec.volatile(use)), dest)
    return dest
