"""The environment of a run: what a program may read of it, and what of that has changed since the run began."""

from __future__ import annotations

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


def digests(environ: Mapping[str, str]) -> dict[str, str]:
    """A short digest of each variable that stays the same from one login to the next; the values are nobody's business."""
    return {
        name: blake2b(value.encode(errors="surrogateescape"), digest_size=4).hexdigest()
        for name, value in environ.items()
        if not _PASSING.fullmatch(name)
    }


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
    now = digests(environ)
    names = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
    if not names:
        return ""
    more = [count(len(names) - _MOST, "more variable")] if len(names) > _MOST else []
    return f"{', '.join([*names[:_MOST], *more])}: not what the environment had when this run began"
