"""Whether a program is the tool whose name it bears: a name alone makes no adapter.

A binary is believed: it is asked for its version, and one that was never tested is checked. A script is one of three: the
tool itself, where that is a script (MAFFT); a *plain wrapper*, whose last command is the tool with the arguments of the
wrapper; or anything else. What a wrapper really starts is looked at by `millrace.plan.wrapper_probe`.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Most bytes of a script that are looked at.
_MAX_SCRIPT_BYTES = 1 << 20

#: What all texts of a tool that is a script have, by the family.
_OWN_SCRIPTS = {"mafft": (rb'(?m)^version="v\d+\.\d+', rb"\bMAFFT_BINARIES\b", rb"\bdisttbfast\b")}

#: Ends of the names under which packages keep a program that a wrapper of theirs starts.
_KEPT_AS = r"(?:[.-]?(?:real|bin|orig|wrapped)|[-._](?:sse|ssse|avx|neon|amd64|x86|native|generic|v?\d)[\w.+-]*)?"

#: How a shell names all arguments of a script.
_ALL_ARGUMENTS = r"""(?:"\$@"|\$@|"\$\{@\}"|\$\{1\+"\$@"\})"""
#: How a shell names the script itself.
_OWN_NAME = r"""(?:"?\$\{0##\*/\}"?|"?\$\(\s*basename\s+(?:--\s+)?"?\$\{?0\}?"?\s*\)"?|`basename "?\$\{?0\}?"?`|"?\$\{?BINNAME\}?"?)"""
#: What would let something happen after the last command of a script, or let it be another.
_NOT_PLAIN = re.compile(r"(?m)^\s*(?:trap|alias|eval)\b|^\s*(?:function\s+)?[\w.+-]+\s*\(\s*\)")
_SHELLS = re.compile(r"#!\s*(?:/usr)?(?:/local)?/bin/(?:env\s+(?:-S\s+)?)?(?:ba|da|z|k)?sh\b")


def is_binary(path: Path) -> bool:
    """Whether a file is a program of the machine, not a text for another program."""
    return _first_bytes(path, 4) == b"\x7fELF"


def is_own_script(path: Path, family: str) -> bool:
    """Whether a script is the tool itself."""
    marks = _OWN_SCRIPTS.get(family)
    if not marks:
        return False
    text = _first_bytes(path, _MAX_SCRIPT_BYTES)
    return text.startswith(b"#!") and all(re.search(mark, text) for mark in marks)


def is_plain_wrapper(path: Path, name: str) -> bool:
    """Whether the last command of a shell script is the tool ``name``, with the script's arguments as they are."""
    try:
        text = _first_bytes(path, _MAX_SCRIPT_BYTES).decode()
    except UnicodeDecodeError:
        return False
    return bool(_SHELLS.match(text)) and passes_arguments_on(text, name)


def passes_arguments_on(text: str, name: str) -> bool:
    r"""Whether the last command of a text for a shell is ``name`` with all arguments and nothing else.

    >>> passes_arguments_on('#!/bin/sh\nmodule load blast\nexec /opt/blast/bin/blastp "$@"\n', "blastp")
    True
    >>> passes_arguments_on('#!/bin/sh\nsingularity exec -B /data /img.sif blastp "$@"\n', "blastp")
    True
    >>> passes_arguments_on('#!/bin/sh\nexec blastp -outfmt 6 "$@"\n', "blastp")
    False
    >>> passes_arguments_on('#!/bin/sh\nblastp "$@" | sort\n', "blastp")
    False
    """
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    last = re.split(r";|&&|\|\|", lines[-1])[-1].strip() if lines else ""
    if _is_of_infernal(lines, name):
        return True
    if not last or _NOT_PLAIN.search(text):
        return False
    tool = rf"""(?:["']?(?:\$\{{?\w+\}}?|[^\s"'|;&<>]*)["']?/)?(?:["']?{re.escape(name)}{_KEPT_AS}["']?|{_OWN_NAME})|["']?{re.escape(name)}["']?"""
    # Words before the tool are those of a program that starts it: `exec`, `conda run`, `singularity exec`.
    return re.fullmatch(rf"(?:[^\s|;&<>`()]+\s+)*(?:{tool})\s+{_ALL_ARGUMENTS}", last) is not None


def _is_of_infernal(lines: list[str], name: str) -> bool:
    """Whether it is the script by which Debian starts Infernal's programs where the processor can run them."""
    return name in ("cmscan", "cmsearch") and "/usr/lib/infernal/$BINNAME $@" in lines and len(lines) < 12


def bears_name(program: str, name: str) -> bool:
    """Whether the last part of a program's path is that of the tool, or one under which a package keeps it.

    >>> bears_name("blastp", "blastp"), bears_name(".blastp-wrapped", "blastp"), bears_name("hmmscan-avx2", "hmmscan")
    (True, True, True)
    >>> bears_name("blastpgp", "blastp"), bears_name("dash", "blastp")
    (False, False)
    """
    return re.fullmatch(rf"\.?{re.escape(name)}{_KEPT_AS}", program) is not None


def _first_bytes(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError:
        return b""
