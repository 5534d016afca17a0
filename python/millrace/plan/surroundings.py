"""Digests of the environment variables of a run, to describe those that have changed since it began."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import blake2b

from millrace.report.words import format_count

#: Variables that differ between logins, jobs or terminals, and on which no output depends.
_PASSING = re.compile(
    r"(SLURM|SLURMD|PBS|SGE|LSB|LSF|OMPI|PMI|PMIX|PRTE|HYDRA|MPI|MPIR|MILLRACE|SSH|XDG|DBUS|TMUX|VSCODE|GNOME|KDE|CONDA_P)_\w*"
    r"|_|PWD|OLDPWD|SHLVL|TERM\w*|COLUMNS|LINES|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY|STY|WINDOW|WINDOWID|TTY|TMUX|PS\d|LS_COLORS"
    r"|PROMPT_COMMAND|HIST\w+|LESS\w*|MAIL|HOST|HOSTNAME|TMP|TEMP|TMPDIR|LD_PRELOAD|BASH_FUNC_.*|JOB_ID|NSLOTS|NCPUS|JOURNAL_STREAM"
    r"|INVOCATION_ID|GPG_\w+|COLORTERM|EDITOR|VISUAL|PAGER|BROWSER|PYTHONDONTWRITEBYTECODE"
)

#: Most names in a message.
_MAX_NAMES = 5


#: Key of the salt among the ``digest_environment``: no variable has this name.
SALT = ""


def digest_environment(environ: Mapping[str, str], salt: str | None = None) -> dict[str, str]:
    """Return a short digest of each variable that stays the same from login to login; the values are not kept.

    Args:
        salt: Key of the digests, in hex, so that neither a table nor another run reveals the values; None: a new one.
            Empty: no key, as releases up to 0.3 wrote them.

    >>> digest_environment({"A": "1"}) == digest_environment({"A": "1"}), digest_environment({"A": "1"}, "00") == digest_environment({"A": "1"}, "00")
    (False, True)
    """
    salt = os.urandom(16).hex() if salt is None else salt
    found = {
        name: blake2b(value.encode(errors="surrogateescape"), digest_size=4, key=bytes.fromhex(salt)).hexdigest()
        for name, value in environ.items()
        if not _PASSING.fullmatch(name)
    }
    return {SALT: salt, **found} if salt else found


def describe_changed_variables(was: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Describe which variables have changed, in words; empty: none, or the earlier ones are unknown.

    Args:
        was: Their ``digest_environment`` at the start of the run.

    >>> describe_changed_variables(digest_environment({"A": "1", "B": "2"}), {"B": "3", "C": "4"})
    'A, B, C: not what the environment had when this run began'
    >>> describe_changed_variables({}, {"A": "1"})
    ''
    """
    if not was:
        return ""
    now = digest_environment(environ, was.get(SALT, ""))
    names = sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name))
    if not names:
        return ""
    more = [format_count(len(names) - _MAX_NAMES, "more variable")] if len(names) > _MAX_NAMES else []
    return f"{', '.join([*names[:_MAX_NAMES], *more])}: not what the environment had when this run began"
