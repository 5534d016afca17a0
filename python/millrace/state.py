"""The user's state folder: small things that outlive a run, none of them needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from millrace.own import is_own


def folder(environ: Mapping[str, str]) -> Path | None:
    """Where they are, there or not; None for a user without a home of his own."""
    try:
        home = Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:
        return None
    found = home / "millrace"
    # Where ``sudo`` keeps HOME, it is another user's, who could make anything there.
    return found if home.is_absolute() and is_own(found) else None
