"""Figures as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HEAD = ("", "wall, median s", "best s", "wall / millrace", "CPU s", "CPU / millrace", "serial's bytes")


def text(rows: Sequence[dict[str, Any]]) -> str:
    """One line a contender, ratios to Millrace."""
    lines = [
        (
            str(row["name"]),
            f"{row['wall']:.2f}",
            f"{row['best']:.2f}",
            f"{row['wall_ratio']:.2f}",
            f"{row['cpu']:.2f}",
            f"{row['cpu_ratio']:.2f}",
            "yes" if row["same"] else "no",
        )
        for row in rows
    ]
    return markdown(HEAD, lines)


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table whose columns line up in plain text too; numbers to the right."""
    widths = [max(len(line[k]) for line in [head, *lines]) for k in range(len(head))]
    rule = [("-" if k == 0 else "-" * (widths[k] - 1) + ":").ljust(widths[k], "-") for k in range(len(head))]
    cells = [head, rule, *lines]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(widths[k]) if k == 0 else cell.rjust(widths[k]) for k, cell in enumerate(line))
        + " |"
        for line in cells
    )
