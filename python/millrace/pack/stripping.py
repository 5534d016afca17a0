"""Removal of volatile text (dates, times) from outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.pack import difference
from millrace.pack.codec import ResultCodec
from millrace.plan.plan import RunPlan


def strip_outputs(codec: ResultCodec, plan: RunPlan, paths: Sequence[Path]) -> list[Path]:
    """Write each output of ``plan``, in ``paths``, without volatile text to a file beside it; return these files."""
    return [
        strip_output(codec, plan, number, path, path.with_name(path.name + ".stripped"))
        for number, path in enumerate(paths)
    ]


def strip_output(codec: ResultCodec, plan: RunPlan, number: int, path: Path, dest: Path) -> Path:
    """Write an output, in ``path``, without volatile text to ``dest``; return ``dest``."""
    use = plan.use.outputs[number]
    difference.strip_file(path, (*use.volatile, *codec.list_volatile_patterns(use)), dest)
    return dest
