"""A file that is touched while the coordinator lives, for the supervisor that started it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

#: Name of the variable that names the file.
VARIABLE = "MILLRACE_HEARTBEAT"

#: Seconds between touches.
PERIOD = 1.0

#: Seconds without a turn of the loop after which it is not touched any more.
LONGEST_TURN = 10.0


class Heartbeat:
    """Touches ``path`` in a thread of its own, except while a loop that should turn does not; nothing without one."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        #: When the loop turned last; None: no loop is running, what goes on may take any time.
        self._turned: float | None = None
        if self._path:
            threading.Thread(target=self._serve, name="heartbeat", daemon=True).start()

    def turned(self) -> None:
        """The loop has turned."""
        self._turned = time.monotonic()

    def over(self) -> None:
        """The loop has come to its end."""
        self._turned = None

    def _serve(self) -> None:
        assert self._path
        while True:
            turned = self._turned
            if turned is None or time.monotonic() - turned < LONGEST_TURN:
                with suppress(OSError):  # whoever started us may have gone
                    self._path.touch()
            time.sleep(PERIOD)
