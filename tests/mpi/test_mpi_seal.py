"""Processes of one job know each other by its key; who has another is refused by name, and tools never see it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from crash_site import Site
from mpi_jobs import Mpi
from test_mpi_failures import N, whole

#: What a rank is started by: another key for rank 1 than for the others, and no key but for rank 1.
OTHER_KEY = 'MILLRACE_KEY=key-$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} % 2)) exec "$@"'
ONE_KEY = '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || export MILLRACE_KEY=key; exec "$@"'


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, n=N)


@pytest.mark.parametrize("way", [OTHER_KEY, ONE_KEY], ids=["another", "the only one"])
def test_rank_with_another_key_is_refused_by_host_and_rank(an_mpi: Mpi, site: Site, way: str) -> None:
    mpi = replace(an_mpi, before=("sh", "-c", way, "sh"))
    code, text = whole(mpi, 3, site)
    assert code == 5, text
    host = re.escape(os.uname().nodename)
    words = rf"{host} \(rank 0\): a message in the name of rank 1 does not bear the seal of this run"
    assert re.search(words, text), text
    assert not site.output.exists() or not site.output.stat().st_size


def test_inherited_key_is_hidden_from_tools(an_mpi: Mpi, site: Site) -> None:
    key = "5ea1" * 16
    (site.folder / "tool").write_text(
        f'#!/bin/sh\ntr "\\0" "\\n" < /proc/self/environ >> "$LOG"\n'
        f'grep -la [5]{key[1:]} /proc/[0-9]*/cmdline >> "$LOG"\n'
        'sed "s/^>/>seen /" "$1" > "$2"\n'
    )
    mpi = replace(an_mpi, before=("sh", "-c", 'read -r MILLRACE_KEY < "$0"; export MILLRACE_KEY; exec "$@"', "key"))
    (site.folder / "key").write_text(f"{key}\n")
    code, text = whole(mpi, 3, site, "--shared", "key")
    assert code == 0, text
    assert site.output.read_bytes() == site.expected
    noted = site.log.read_text()
    assert "LOG=" in noted and key not in noted and "MILLRACE_KEY" not in noted and "/cmdline" not in noted
