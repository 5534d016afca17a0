"""The user's folders of small files that outlive a run; none of them is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from millrace.own import is_own_folder


def find_state_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of facts learnt from runs, existing or not; None for a user without a home folder."""
    return _find_user_folder(environ, "XDG_STATE_HOME", Path(".local", "state"))


def find_cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of data that can be measured again, existing or not; None for a user without a home folder."""
    return _find_user_folder(environ, "XDG_CACHE_HOME", Path(".cache"))


def _find_user_folder(environ: Mapping[str, str], variable: str, usual: Path) -> Path | None:
    try:
        home = Path(environ.get(variable) or Path.home() / usual)
    except RuntimeError:
        return None
    found = home / "millrace"
    # Where ``sudo`` keeps HOME, it belongs to another user, who could make any file there.
    return found if home.is_absolute() and is_own_folder(found) else None
