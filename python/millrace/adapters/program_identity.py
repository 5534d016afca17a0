"""Identity and version of a program that has the name of a known tool: binary, script or wrapper.

A binary is trusted: it is asked for its version, and an untested version is verified. A script is one of three: the
tool itself, where that is a script (MAFFT); a *plain wrapper*, whose last command is the tool with the arguments of
the wrapper; or another script. ``millrace.planning.wrapper_probe`` observes the commands that a wrapper starts.
Programs that run a script named in their arguments, such as shells, are never asked for their version. Answers are
cached for each build of a program: BLAST takes 50 ms to answer.
"""

from __future__ import annotations

import os
import re
import subprocess
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from millrace.core.errors import RefusedError
from millrace.core.tool_use import UserCommand
from millrace.host.permissions import is_own_folder, replace_file

_NAMES = (
    "sh ash bash dash ksh mksh rbash zsh fish csh tcsh busybox toybox python pypy perl ruby node nodejs deno bun lua luajit php R "
    "Rscript julia java groovy scala kotlin tclsh wish expect awk gawk mawk nawk sed ed ex vi vim emacs guile racket sbcl clisp ghc "
    "runghc ocaml go cargo make cmake ninja gdb env sudo su doas runuser setpriv nice ionice nohup timeout stdbuf taskset numactl "
    "setsid chrt chroot unshare nsenter flock xargs find parallel watch time ssh srun mpirun mpiexec docker podman apptainer "
    "singularity git"
)

#: Their names, without version numbers.
INTERPRETERS = frozenset(_NAMES.split())


def is_interpreter(name: str) -> bool:
    """Tell whether a program of this name runs a script or program named in its arguments.

    >>> [is_interpreter(name) for name in ("sh", "python3.11", "perl5.36-x86_64-linux-gnu", "blastp", "samtools")]
    [True, True, True, False, False]
    """
    return name in INTERPRETERS or re.sub(r"[-.0-9].*", "", name) in INTERPRETERS


def can_run_scripts(exe: Path) -> bool:
    """Tell whether a program is an interpreter, by its name or by that of the target of its links."""
    return is_interpreter(exe.name) or is_interpreter(os.path.basename(os.path.realpath(exe)))


#: Most bytes of a script that are read.
_MAX_SCRIPT_BYTES = 1 << 20

#: Patterns that the text of a tool's own script matches, by family.
_OWN_SCRIPTS = {
    "mafft": (rb'(?m)^version="v\d+\.\d+', rb"\bMAFFT_BINARIES\b", rb"\bdisttbfast\b"),
    # Debian's, which starts the program for the processor.
    "mmseqs": (rb"(?m)^BASE=/usr/bin/mmseqs$", rb"(?m)^for SIMD in .*; do test_and_run "),
}

#: Suffixes of names under which packages keep a program that their wrapper starts.
_KEPT_AS = r"(?:[.-]?(?:real|bin|orig|wrapped)|[-._](?:sse|ssse|avx|neon|amd64|x86|native|generic|v?\d)[\w.+-]*)?"

#: All arguments of a script, in a shell.
_ALL_ARGUMENTS = r"""(?:"\$@"|\$@|"\$\{@\}"|\$\{1\+"\$@"\})"""
#: The name of the script itself, in a shell.
_OWN_NAME = r"""(?:"?\$\{0##\*/\}"?|"?\$\(\s*basename\s+(?:--\s+)?"?\$\{?0\}?"?\s*\)"?|`basename "?\$\{?0\}?"?`|"?\$\{?BINNAME\}?"?)"""
#: Commands after which the last command of a script may not be the last one, or may be another.
_NOT_PLAIN = re.compile(r"(?m)^\s*(?:trap|alias|eval)\b|^\s*(?:function\s+)?[\w.+-]+\s*\(\s*\)")
_SHELLS = re.compile(r"#!\s*(?:/usr)?(?:/local)?/bin/(?:env\s+(?:-S\s+)?)?(?:ba|da|z|k)?sh\b")


def is_binary_program(path: Path) -> bool:
    """Tell whether a file is an ELF binary."""
    return _read_first_bytes(path, 4) == b"\x7fELF"


def is_tool_script(path: Path, family: str) -> bool:
    """Tell whether a file is the tool of ``family`` itself, which is a script."""
    marks = _OWN_SCRIPTS.get(family)
    if not marks:
        return False
    text = _read_first_bytes(path, _MAX_SCRIPT_BYTES)
    return text.startswith(b"#!") and all(re.search(mark, text) for mark in marks)


def is_plain_wrapper(path: Path, name: str) -> bool:
    """Tell whether a file is a shell script whose last command is the tool ``name`` with all of its arguments."""
    try:
        text = _read_first_bytes(path, _MAX_SCRIPT_BYTES).decode()
    except UnicodeDecodeError:
        return False
    return bool(_SHELLS.match(text)) and is_pass_through_script(text, name)


def is_pass_through_script(text: str, name: str) -> bool:
    r"""Tell whether the last command of a shell script is ``name`` with all of its arguments and nothing else.

    >>> is_pass_through_script('#!/bin/sh\nmodule load blast\nexec /opt/blast/bin/blastp "$@"\n', "blastp")
    True
    >>> is_pass_through_script('#!/bin/sh\nsingularity exec -B /data /img.sif blastp "$@"\n', "blastp")
    True
    >>> is_pass_through_script('#!/bin/sh\nexec blastp -outfmt 6 "$@"\n', "blastp")
    False
    >>> is_pass_through_script('#!/bin/sh\nblastp "$@" | sort\n', "blastp")
    False
    """
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    last = re.split(r";|&&|\|\|", lines[-1])[-1].strip() if lines else ""
    if _is_infernal_wrapper(lines, name):
        return True
    if not last or _NOT_PLAIN.search(text):
        return False
    tool = rf"""(?:["']?(?:\$\{{?\w+\}}?|[^\s"'|;&<>]*)["']?/)?(?:["']?{re.escape(name)}{_KEPT_AS}["']?|{_OWN_NAME})|["']?{re.escape(name)}["']?"""
    # Words before the tool are a program that starts it: `exec`, `conda run`, `singularity exec`.
    return re.fullmatch(rf"(?:[^\s|;&<>`()]+\s+)*(?:{tool})\s+{_ALL_ARGUMENTS}", last) is not None


def _is_infernal_wrapper(lines: list[str], name: str) -> bool:
    """Tell whether the script is Debian's, which starts Infernal's programs on processors that can run them."""
    return name in ("cmscan", "cmsearch") and "/usr/lib/infernal/$BINNAME $@" in lines and len(lines) < 12


def has_tool_name(program: str, name: str) -> bool:
    """Tell whether a program's file name is the tool's, or one under which a package keeps the tool.

    >>> has_tool_name("blastp", "blastp"), has_tool_name(".blastp-wrapped", "blastp"), has_tool_name("hmmscan-avx2", "hmmscan")
    (True, True, True)
    >>> has_tool_name("blastpgp", "blastp"), has_tool_name("dash", "blastp")
    (False, False)
    """
    return re.fullmatch(rf"\.?{re.escape(name)}{_KEPT_AS}", program) is not None


def _read_first_bytes(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError:
        return b""


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


def read_checked_help(command: UserCommand, arguments: Sequence[str], mark: str, package: str) -> str:
    """Run a program with the user's options and one for help, so that it checks them; return its help page.

    Args:
        arguments: All of them, in the order in which it checks the options before it prints its help.
        mark: A line that every help page of the package has.

    Raises:
        RefusedError: It cannot be started, or does not accept the options.
    """
    name = command.tool
    try:
        answer = subprocess.run(
            [command.argv[0], *arguments], executable=command.exe, cwd=command.cwd, env=command.environ,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RefusedError(f"{name} cannot be started: {error}", f"check that {package} is installed") from error
    if answer.returncode != 0 or mark not in answer.stdout:
        said = (answer.stderr.strip() or answer.stdout.strip() or "no answer").splitlines()
        problem = said[0].removeprefix("Failed to parse command line: ").rstrip(".")
        raise RefusedError(f"{name} does not take these options: {problem}", f"see {name} -h")
    return answer.stdout


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
