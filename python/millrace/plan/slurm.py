"""Readers of Slurm's environment variables, in its packed forms. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from millrace.errors import RefusedError

#: Steps below this number are a user's ``srun``; Slurm keeps those above for itself (batch script, interactive shell).
_FIRST_OF_SLURM = 0xFFFF_FFF0


def is_user_step(environ: Mapping[str, str]) -> bool:
    """Tell whether this process is in a step that was started with ``srun``."""
    step = environ.get("SLURM_STEP_ID", "")
    return step.isdigit() and int(step) < _FIRST_OF_SLURM


def list_het_groups(environ: Mapping[str, str]) -> list[str]:
    """Return the packed node lists of the components of a heterogeneous job, by number; empty: it has none.

    >>> list_het_groups({"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]"})
    ['n1', 'n[2-3]']
    """
    n = int(environ.get("SLURM_HET_SIZE", "0") or 0)
    return [environ.get(f"SLURM_JOB_NODELIST_HET_GROUP_{group}", "") for group in range(n)]


def find_het_group(environ: Mapping[str, str], node: str) -> int | None:
    """Return the number of the component of a heterogeneous job with ``node``; None: there is none."""
    return next(
        (number for number, text in enumerate(list_het_groups(environ)) if node in expand_node_list(text)), None
    )


def parse_node_counts(text: str) -> list[int]:
    """Return the number for each node from a packed list; empty if it cannot be parsed.

    >>> parse_node_counts("4(x2),2"), parse_node_counts("16"), parse_node_counts("?")
    ([4, 4, 2], [16], [])
    """
    found: list[int] = []
    for part in text.split(","):
        matched = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if not matched:
            return []
        found += [int(matched[1])] * int(matched[2] or 1)
    return found


def expand_node_list(text: str) -> Iterator[str]:
    """Yield the names in a packed node list.

    >>> list(expand_node_list("login,n[1-3,08-10],r[1-2]c[1,3]"))
    ['login', 'n1', 'n2', 'n3', 'n08', 'n09', 'n10', 'r1c1', 'r1c3', 'r2c1', 'r2c3']

    Raises:
        RefusedError: It is not such a list.
    """
    # A comma within brackets belongs to them.
    for part in re.findall(r"(?:\[[^\]]*\]|[^,\[\]])+", text):
        yield from _expand_node_range(part)


def _expand_node_range(text: str) -> Iterator[str]:
    before, bracket, rest = text.partition("[")
    if not bracket:
        yield before
        return
    ranges, _, after = rest.partition("]")
    for each in ranges.split(","):
        matched = re.fullmatch(r"(\d+)(?:-(\d+))?", each)
        if not matched:
            raise RefusedError(f"{text}: not a list of nodes as Slurm writes it", "name the nodes with --hosts")
        first, last = matched[1], matched[2] or matched[1]
        for number in range(int(first), int(last) + 1):
            for tail in _expand_node_range(after):
                yield f"{before}{number:0{len(first)}}{tail}"
