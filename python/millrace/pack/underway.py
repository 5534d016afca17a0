"""The folder in which a result is packed; the same command resumes from the files of an interrupted start."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace import lock
from millrace.errors import CorruptError, MillraceError, RefusedError, ToolError
from millrace.pack import places, regenerate
from millrace.pack.codec import NotPackableError

#: Longest wait for a process that only probes the lock.
LOCK_WAIT_SECONDS = 2.0

#: Errors that the same command would raise again: nothing is kept to resume.
_FINAL = (NotPackableError, RefusedError, ToolError, CorruptError)


@contextmanager
def open_packing_folder(dest: Path, of: str) -> Iterator[Path]:
    """Make and lock the folder in which ``dest`` is packed; remove it on exit unless it can be resumed.

    Args:
        of: Key of the result; those of others are removed.

    Raises:
        MillraceError: Another process is packing into ``dest``.
    """
    place = dest.with_name(f".{dest.name}.pack")
    # Neither may be a refusal, after which the result would be packed as plain bytes.
    try:
        places.claim_folder(place)
        held = places.wait_for_lock(place / "lock", LOCK_WAIT_SECONDS)
    except RefusedError as error:
        raise MillraceError(error.message, error.hint) from error
    except lock.LockHeldError as error:
        raise MillraceError(f"{dest}: another millrace ({error.words}) is packing into it", "wait for it") from error
    done = True
    try:
        work = place / of
        for other in place.iterdir():
            if other.is_dir() and other != work:
                shutil.rmtree(other)
        work.mkdir(exist_ok=True)
        yield work
    except _FINAL:
        raise
    except BaseException:
        done = not (place / of / regenerate.RUN).exists()
        raise
    finally:
        if done:
            shutil.rmtree(place, ignore_errors=True)
        held.close()
        if done:
            places.remove_emptied_folder(place)
