"""Replicas in runs: a copy comes from the cheapest place that has the bytes, and the tool finds it under the path of the command."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell import Shell
from web_server import Web

from millrace.storage import cost_table
from millrace.storage.bind_mounts import find_mount_problem
from millrace.storage.reading_costs import MeasuredCost, ReadCost, ReadCostLine

CONTENT = os.urandom(6_000_000)


def measured(place: str, rate: float) -> None:
    cost = ReadCost(lines=(ReadCostLine(readers=1, start_seconds=0.001, seconds_per_byte=1 / rate),))
    cost_table.add_measurement(MeasuredCost(place=place, size=1, cost=cost, checks=(), when=time.time()), os.environ)


@pytest.fixture
def database(web: Web, shell: Shell, environment: Path) -> Iterator[Path]:
    """A file on a disk that is known to be slow, and on a server that is known to be fast."""
    if reason := find_mount_problem(str(shell.root)):
        pytest.skip(reason)
    (shell.root / "copies").mkdir()
    path = shell.root / "db" / "set.bin"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    url = web.put("set.bin", CONTENT)
    (environment / "config" / "millrace.toml").write_text(
        f'[[replica]]\npath = "{path.parent}/*"\nat = ["{web.url}/*"]\n'
    )
    measured(str(path), 1e6)
    measured(url, 1e9)
    shell.tool("who", 'cat > /dev/null; stat -L -c %i "$1"; cksum "$1"')
    yield path
    for copy in Path("/dev/shm").glob(f"millrace-stage-{os.getuid()}/*.{path.stat().st_ino:x}.*-set.bin"):
        assert shell.run(f"millrace data evict {copy}").code == 0


def run(shell: Shell, path: Path, options: str = "--stage auto") -> tuple[str, str, str]:
    """The number of the file that the tool sees, its checksum and path, and what was said."""
    done = shell.run(
        f"TMPDIR={shell.root}/copies millrace run -v {options} --slots 1 --batch 3 --verify 0 --format fasta -- who {path} < in.fa"
    )
    assert done.code == 0, done.shown
    number, rest = done.out.splitlines()
    return number, rest, done.err


def wanted(path: Path) -> str:
    return subprocess.run(["cksum", path], capture_output=True, text=True, check=True).stdout.rstrip("\n")


def test_cheaper_replica_is_copied_to_the_path_of_command(web: Web, shell: Shell, database: Path) -> None:
    number, rest, said = run(shell, database)
    assert rest == wanted(database), "the same bytes under the same path"
    assert number != str(database.stat().st_ino), said
    assert "databases: replica, from http://localhost" in said
    assert web.n_downloads == 1
    run(shell, database, "--fresh")
    assert web.n_downloads == 1, "the copy is kept"


def test_plan_reports_the_cost_of_each_way(web: Web, shell: Shell, database: Path) -> None:
    done = shell.run(f"millrace plan --slots 1 --format fasta -- who {database} < in.fa")
    assert done.code == 0, done.shown
    lines = [line.partition("databases: ")[2] for line in done.out.splitlines() if "databases: " in line]
    assert re.fullmatch(r"6\.0 MB, of which the node lacks 6\.0 MB and reads all about \d+ times", lines[0])
    assert "replica " in lines[1] and "in place 6.0 s" in lines[1] and lines[1].endswith("(measured)")
    assert lines[2].startswith("replica, from http://localhost")
    assert web.n_downloads == 0


@pytest.mark.parametrize("fault", ["other bytes", "other size", "gone"])
def test_a_replica_that_is_not_the_file_is_not_used(fault: str, web: Web, shell: Shell, database: Path) -> None:
    if fault == "gone":
        del web.files["set.bin"]
    else:
        web.put("set.bin", CONTENT[:-1] + (b"" if fault == "other size" else bytes([CONTENT[-1] ^ 1])))
    _, rest, said = run(shell, database)
    assert rest == wanted(database)
    if fault == "other bytes":
        assert "databases: read from where they are after all: " in said and f"is not what {database} is" in said


def test_a_real_transfer_corrects_the_table_of_costs(web: Web, shell: Shell, database: Path) -> None:
    url = f"{web.url}/set.bin"
    before = cost_table.read_cost_table(os.environ)[cost_table.find_server(url)]
    run(shell, database)
    after = cost_table.read_cost_table(os.environ)[cost_table.find_server(url)]
    assert after.when > before.when
    assert after.cost != before.cost
