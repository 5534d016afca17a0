"""A run that fetches its database is killed at any moment: the same command gives the serial bytes, and no copy is half."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest
from harness import wait_until
from shell import Shell
from test_view import database, serial
from web_server import Web

SOME, ALL = pytest.param(2), pytest.param(50, marks=pytest.mark.slow)


def killed(line: str, shell: Shell, web: Web, n_pieces: int, n_calls: int) -> None:
    """Start it, and kill it when so many pieces were sent, or the tool was called so many times."""
    held, reached, left = threading.Event(), threading.Event(), iter(range(n_pieces))

    def between() -> None:
        if next(left, None) is None:
            reached.set()
            assert held.wait(300)

    calls = shell.root / "calls"
    calls.write_bytes(b"")
    web.between = between
    environ = {**os.environ, "PATH": f"{shell.root / 'bin'}:{os.environ['PATH']}", "MARK": str(shell.root)}
    with subprocess.Popen(line.split(), cwd=shell.work, env=environ, stderr=subprocess.DEVNULL) as run:
        assert wait_until(lambda: reached.is_set() or calls.stat().st_size >= 2 * n_calls or run.poll() is not None)
        run.send_signal(signal.SIGKILL)
    held.set()
    web.between = None


@pytest.mark.parametrize("n_kills", [SOME, ALL])
def test_run_killed_while_fetching_resumes_exactly(n_kills: int, web: Web, shell: Shell, tmp_path: Path) -> None:
    files, chance = database(shell.work, 3000), random.Random(16)
    for name, content in files.items():
        web.put(f"db/{name}", content)
    wanted = serial(shell.work, "blastp", "-query", "q.faa", "-db", "nr", "-outfmt", "6", "-evalue", "1e-3")
    for name in files:
        (shell.work / name).unlink()
    shell.tool("blastp", f'echo x >> "$MARK/calls"; exec {shutil.which("blastp")} "$@"')
    n_pieces = sum(-(-len(content) // (1 << 16)) for content in files.values())
    n_fetching = 0
    for k in range(n_kills):
        cache = tmp_path / f"cache-{k}"
        cache.mkdir()
        line = f"millrace run --stage {cache} --batch 3 -- blastp -query q.faa -db {web.url}/db/nr -outfmt 6 -evalue 1e-3 -out hits"
        later = k % 4 == 1
        killed(
            line, shell, web, n_pieces if later else chance.randrange(n_pieces), chance.randrange(1, 5) if later else 99
        )
        whole = {path.name.partition("-")[2]: path.read_bytes() for path in cache.glob("*/[!.]*-nr.*")}
        assert all(files[name] == content for name, content in whole.items()), whole.keys()
        n_fetching += len(whole) < len(files)
        done = shell.run(line)
        assert done.code == 0, done.shown
        assert (shell.work / "hits").read_bytes() == wanted
        (shell.work / "hits").unlink()
        shutil.rmtree(cache)
    print(f"{n_kills} kills, {n_fetching} of them while the database was fetched")
    assert 0 < n_fetching < n_kills
