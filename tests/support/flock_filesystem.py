"""A filesystem whose ``flock`` says what a test wants: there is none, or each process may have everything."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from session_resources import once

#: What flock says below a folder: an error, or always yes, as where only the processes of one machine hear of it.
FLOCK = r"""
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
int flock(int fd, int how) {
    char name[64], path[4096];
    const char *below = getenv("FLOCK_BELOW"), *answer = getenv("FLOCK_ANSWER");
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path - 1);
    if (n > 0 && below && answer && !strncmp(path, below, strlen(below))) {
        errno = atoi(answer);
        return errno ? -1 : 0;
    }
    return syscall(SYS_flock, fd, how);
}
"""


def told_flock(session_folder: Path, below: Path, answer: int = 0) -> dict[str, str]:
    """The environment in which ``flock`` gives ``answer`` for files below a folder: an error number, or 0 for always yes."""

    def build(folder: Path) -> None:
        (folder / "flock.c").write_text(FLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "flock.so", "flock.c"], cwd=folder, check=True)

    if not shutil.which("cc"):
        pytest.skip("no cc")
    library = once(session_folder / "flock", build) / "flock.so"
    return {"LD_PRELOAD": str(library), "FLOCK_BELOW": str(below.resolve()), "FLOCK_ANSWER": str(answer)}
