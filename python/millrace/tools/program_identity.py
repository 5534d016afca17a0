"""Identity of a program that has the name of a known tool: binary, the tool's own script, wrapper, or another script.

A binary is trusted: it is asked for its version, and an untested version is verified. A script is one of three: the
tool itself, where that is a script (MAFFT); a *plain wrapper*, whose last command is the tool with the arguments of the
wrapper; or another script. ``millrace.plan.wrapper_probe`` observes the commands that a wrapper starts.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Most bytes of a script that are read.
_MAX_SCRIPT_BYTES = 1 << 20

#: Patterns that the text of a tool's own script matches, by family.
_OWN_SCRIPTS = {"mafft": (rb'(?m)^version="v\d+\.\d+', rb"\bMAFFT_BINARIES\b", rb"\bdisttbfast\b")}

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
