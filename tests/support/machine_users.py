"""Two users of one machine, who are not root: processes that root starts as them, and folders of theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

#: Numbers that no account has, and no other worker of the tests uses.
VICTIM = 100_000 + 2 * os.getpid()
STRANGER = VICTIM + 1

#: What ``millrace run`` imports besides itself.
NEEDED = ("click", "msgspec", "rich", "pygments", "markdown_it", "mdurl")

#: What `install` leaves out of a Python that has to be copied.
LEFT_OUT = shutil.ignore_patterns("site-packages", "test", "config-*", "*.a", "idlelib", "lib2to3", "ensurepip")


@dataclass(frozen=True)
class User:
    """A user with a home of his own; `python` can import millrace."""

    uid: int
    home: Path
    python: Path
    packages: Path
    #: Numbers of groups besides his own.
    groups: tuple[int, ...] = ()

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "PYTHONPATH": str(self.packages), "LC_ALL": "C.UTF-8",
            "MILLRACE_RUN_PROGRESS": "none", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def start(self, *words: object, cwd: Path | None = None, **environ: str) -> subprocess.Popen[str]:
        """Start a command as this user; ``environ`` is added to his."""
        return subprocess.Popen(
            [str(word) for word in words], cwd=cwd or self.home, env={**self.environ, **environ}, user=self.uid, group=self.uid,
            extra_groups=self.groups, umask=0o022, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *words: object, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a command as this user to its end."""
        with self.start(*words, cwd=cwd, **environ) as process:
            try:
                out, err = process.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def sh(self, line: str, cwd: Path | None = None, **environ: str) -> str:
        """Run a shell line that must succeed; its output."""
        done = self.run("sh", "-ec", line, cwd=cwd, **environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def millrace(self, *words: object, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.python, "-P", "-m", "millrace", *words, cwd=cwd, **environ)

    def start_millrace(self, *words: object, cwd: Path | None = None, **environ: str) -> subprocess.Popen[str]:
        return self.start(self.python, "-P", "-m", "millrace", *words, cwd=cwd, **environ)


@dataclass(frozen=True)
class Machine:
    """What all users of a machine see."""

    user: User
    stranger: User
    #: As /tmp is: everybody may write, nobody may rename what is another's.
    shared: Path


def install(folder: Path) -> tuple[Path, Path]:
    """Put millrace where everybody can read it, whatever folder this repository is in: (Python, packages)."""
    packages = folder / "packages"
    for name in ("millrace", *NEEDED):
        source = Path(import_module(name).__file__ or "").parent
        shutil.copytree(source, packages / name, copy_function=link_or_copy)
    python = Path(sys.executable).resolve()
    return python if is_for_all(python) else copy_python(folder / "python"), packages


def is_for_all(python: Path) -> bool:
    """Whether a user who is not root can run it."""
    try:
        return not subprocess.run([python, "-c", ""], user=STRANGER, group=STRANGER, check=False).returncode
    except OSError:
        return False


def copy_python(folder: Path) -> Path:
    """Copy the Python that runs this, which only root can read; it finds its library beside it."""
    base, library = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    copied = folder / library.relative_to(base)
    shutil.copytree(library, copied, symlinks=True, ignore=LEFT_OUT, copy_function=link_or_copy)
    for shared in (base / "lib").glob("libpython*.so*"):
        shutil.copy(shared, folder / "lib" / shared.name)
    python = folder / "bin" / Path(sys.executable).resolve().name
    python.parent.mkdir()
    shutil.copy(Path(sys.executable).resolve(), python)
    return python


def link_or_copy(source: str, to: str) -> None:
    """A link is made in no time, where both are on one disk."""
    try:
        os.link(source, to)
    except OSError:
        shutil.copy2(source, to)
