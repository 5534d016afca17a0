"""Version of a program, from its own output, cached for each build of it: BLAST takes 50 ms to answer."""

from __future__ import annotations

import os
import subprocess
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from contextlib import suppress
from pathlib import Path

from millrace.model import UserCommand
from millrace.own import is_own_folder, replace_file

#: Longest wait for the answer; without the version, an earlier run cannot be resumed.
ANSWER_TIMEOUT_SECONDS = 120.0


def read_version_line(command: UserCommand, *arguments: str) -> str:
    """Return the first line that a program prints about its version, from the cache or by starting it.

    Empty if it prints nothing, cannot be started, or exceeds ``ANSWER_TIMEOUT_SECONDS``.

    Args:
        command: The user's command, for program and environment.
        arguments: Arguments that print the version, such as ``-version``.
    """
    kept = _find_cached_answer(command.exe, arguments)
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
            timeout=ANSWER_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = answer.stdout.decode(errors="replace").splitlines()
    line = next((line.strip() for line in lines if line.strip()), "")
    # A failure is not cached: a missing library may be there next time.
    if kept and line and answer.returncode == 0:
        _cache_answer(kept, line)
    return line


def _find_cached_answer(exe: Path, arguments: tuple[str, ...]) -> Path | None:
    """Return the path of the cached answer of this file; None: it must not be cached.

    That is so for a script, which may start another program later, and where another user may write to the cache, as
    where ``sudo`` keeps ``HOME``.
    """
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
    if not is_own_folder(folder):
        return None
    return folder / blake2b(repr(what).encode(), digest_size=16).hexdigest()


def _cache_answer(path: Path, line: str) -> None:
    """Write an answer to the cache, if it is writable; else the next run asks again."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, f"{line}\n".encode())
