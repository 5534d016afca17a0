"""The options of ``millrace.run``, with their types, and their form on the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal, TypeAlias, TypedDict

#: A path, as text or as an object.
StrPath: TypeAlias = str | os.PathLike[str]


class RunOptions(TypedDict, total=False):
    """Options of ``millrace run`` under their names there, with ``_`` for ``-``.

    An option that may be repeated takes one value or several.
    """

    slots: int
    run_dir: StrPath
    work_dir: StrPath
    fresh: bool
    as_: str
    input: StrPath | Sequence[StrPath]
    output: StrPath | Sequence[StrPath]
    join: str | Sequence[str]
    shared: StrPath | Sequence[StrPath]
    ok_status: int | Sequence[int]
    format: str
    records: bool
    warm: bool
    record_start: str
    record_end: str
    batch: str | int
    fragments: str | int
    retries: int
    record_timeout: float
    on_failure: Literal["quarantine", "stop"]
    max_quarantined: str | int
    retry_quarantined: bool
    keep_run_dir: bool
    sync: float
    verify: float
    independent: bool
    progress: Literal["auto", "bar", "plain", "json", "none"]
    hosts: str
    partition_size: int
    stage: StrPath
    write: Literal["merge", "individual", "collective", "coordinator"]
    nice: int
    quiet: bool
    verbose: bool
    pack_to: StrPath
    with_queries: bool


def format_option(name: str, value: object) -> list[str]:
    """Return an option as the words of a command line.

    >>> format_option("run_dir", "r"), format_option("fresh", True), format_option("fresh", False)
    (['--run-dir', 'r'], ['--fresh'], [])
    >>> format_option("output", ["a", "b"]), format_option("as_", "blastp")
    (['--output', 'a', '--output', 'b'], ['--as', 'blastp'])
    """
    option = f"--{name.rstrip('_').replace('_', '-')}"
    if value is True:
        return [option]
    if value is False or value is None:
        return []
    several = value if isinstance(value, list | tuple) else [value]
    return [word for each in several for word in (option, str(each))]
