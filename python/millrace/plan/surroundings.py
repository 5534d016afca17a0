"""The environment of a run: what a program may read of it, and what of that has changed since the run began."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import blake2b

from millrace.report.words import count

#: What is another in each login, job or terminal, and no program makes its output of.
_PASSING = re.compile(
    r"(SLURM|SLURMD|PBS|SGE|LSB|LSF|OMPI|PMI|PMIX|PRTE|HYDRA|MPI|MPIR|MILLRACE|SSH|XDG|DBUS|TMUX|VSCODE|GNOME|KDE|CONDA_P)_\w*"
    r"|_|PWD|OLDPWD|SHLVL|TERM\w*|COLUMNS|LINES|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|STY|WINDOW|WINDOWID|TTY|TMUX|PS\d|LS_COLORS"
    r"|PROMPT_COMMAND|HIST\w+|LESS\w*|MAIL|HOST|HOSTNAME|TMP|TEMP|TMPDIR|LD_PRELOAD|BASH_FUNC_.*|JOB_ID|NSLOTS|NCPUS|JOURNAL_STREAM"
    r"|INVOCATION_ID|GPG_\w+|COLORTERM|EDITOR|VISUAL|PAGER|BROWSER|PYTHONDONTWRITEBYTECODE"
)

#: Most names that are told.
_MOST = 5


#: The name under which the salt of `digests` stands among them: no variable has it.
SALT = ""


def digests(environ: Mapping[str, str], salt: str | None = None) -> dict[str, str]:
    """A short digest of each variable that stays the same from one login to the next; the values are nobody's business.

    Args:
        salt: Digests are told apart by it, so that neither a table nor another run tells which value has which; default: a new one.
            Empty: none, as releases up to 0.3 wrote them.

    >>> digests({"A": "1"}) == digests({"A": "1"}), digests({"A": "1"}, "00") == digests({"A": "1"}, "00")
    (False, True)
    """
    salt = os.urandom(16).hex() if salt is None else salt
    found = {
        name: blake2b(value.encode(errors="surrogateescape"), digest_size=4, key=bytes.fromhex(salt)).hexdigest()
        for name, value in environ.items()
        if not _PASSING.fullmatch(name)
    }
    return {SALT: salt, **found} if salt else found


def changed(was: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Which variables differ, in words; empty: none, or nothing is known of those that were.

    Args:
        was: Their `digests` then.

    >>> changed(digests({"A": "1", "B": "2"}), {"B": "3", "C": "4"})
    'A, B, C: not what the environment had when this run began'
    >>> changed({}, {"A": "1"})
    ''
    """
    if not was:
        return ""
    now = digests(environ, was.get(SALT, ""))
    names = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
    if not names:
        return ""
    more = [count(len(names) - _MOST, "more variable")] if len(names) > _MOST else []
    return f"{', '.join([*names[:_MOST], *more])}: not what the environment had when this run began"
