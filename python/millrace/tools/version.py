"""What a program says of its own version, asked once for each build of it: BLAST takes 50 ms to answer."""

from __future__ import annotations

import os
import subprocess
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from contextlib import suppress
from pathlib import Path

from millrace.model import Command
from millrace.own import is_own, replace_whole

#: Seconds that a program has for its answer: without it, what was begun is not gone on with.
PATIENCE = 120.0


def first_line(command: Command, *arguments: str) -> str:
    """The first line that a program prints when asked, empty if it says nothing in time.

    Args:
        command: The user's, which says which program in which environment.
        arguments: How to ask, such as ``-version``.
    """
    kept = _kept(command.exe, arguments)
    if kept:
        with suppress(OSError):
            if line := kept.read_text().rstrip("\n"):
                return line
    try:
        answer = subprocess.run(
            [command.exe, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=command.environ,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = answer.stdout.decode(errors="replace").splitlines()
    line = next((line.strip() for line in lines if line.strip()), "")
    # What could not be loaded today may work tomorrow.
    if kept and line and answer.returncode == 0:
        _keep(kept, line)
    return line


def _kept(exe: Path, arguments: tuple[str, ...]) -> Path | None:
    """Where the answer of this very file lies; None for a script, which may start another program tomorrow, and where
    another user could have written it, as where ``sudo`` keeps ``HOME``."""
    try:
        with exe.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                return None
            found = os.fstat(file.fileno())
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except (OSError, RuntimeError):
        return None
    what = (exe, arguments, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    folder = home / "millrace" / "versions"
    if not is_own(folder):
        return None
    return folder / blake2b(repr(what).encode(), digest_size=16).hexdigest()


def _keep(path: Path, line: str) -> None:
    """A folder that cannot be written only costs the next run its time."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(path, f"{line}\n".encode())
