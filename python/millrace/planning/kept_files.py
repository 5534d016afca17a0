"""Files that a tool opens and reads again for each record, and that stay open for it: where, and which."""

from __future__ import annotations

from pathlib import Path

from millrace.core.tool_use import ToolUse
from millrace.host import memory_limits


def list_kept_files(use: ToolUse, cwd: Path, slots: int) -> list[Path]:
    """List the files that stay open for the tool on a node with so many slots; empty: it opens all files itself.

    Each process maps a whole file. The pages are those of the page cache, which all share, but batch systems may count
    them for each process. A warm tool is left alone: its forks open their files anew.
    """
    if not use.reread_suffix or use.warm:
        return []
    files = [path for path in use.databases if path.name.endswith(use.reread_suffix) and (cwd / path).is_file()]
    mapped_bytes = slots * sum((cwd / path).stat().st_size for path in files)
    return files if mapped_bytes <= memory_limits.read_usable_memory()[0] else []


def describe_kept_files(use: ToolUse, cwd: Path, slots: int) -> str:
    """Describe them for the plan; empty: there are none.

    >>> describe_kept_files(ToolUse(adapter="hmmer", argv=("hmmscan",), inputs=(), outputs=()), Path(), 1)
    ''
    """
    names = ", ".join(path.name for path in list_kept_files(use, cwd, slots))
    return names and f"{names} stays open from record to record: same output, less CPU"
