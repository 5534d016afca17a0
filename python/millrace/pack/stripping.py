"""Removal of volatile text (dates, times) from outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.pack import difference
from millrace.pack.codec import Codec
from millrace.plan.plan import Plan


def stripped(codec: Codec, plan: Plan, paths: Sequence[Path]) -> list[Path]:
    """Write each output of ``plan``, in ``paths``, without volatile text to a file beside it; return these files."""
    return [
        strip(codec, plan, number, path, path.with_name(path.name + ".stripped")) for number, path in enumerate(paths)
    ]


def strip(codec: Codec, plan: Plan, number: int, path: Path, dest: Path) -> Path:
    """Write an output, in ``path``, without volatile text to ``dest``; return ``dest``."""
    use = plan.use.outputs[number]
    difference.strip(path, (*use.volatile, *codec.volatile(use)), dest)
    return dest
