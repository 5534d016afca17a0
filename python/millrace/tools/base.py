"""What every adapter does, and the few helpers that all of them need."""

from __future__ import annotations

from typing import Protocol

from millrace.model import Command, ToolUse


class Adapter(Protocol):
    """One family of programs."""

    #: Names of the programs (the last part of the path) that it knows.
    programs: frozenset[str]

    def understand(self, command: Command) -> ToolUse:
        """Find input, outputs and databases in the tool's own arguments, and how its outputs join exactly.

        May look at files and may ask the tool for its version; starts nothing else.

        Raises:
            RefusedError: The command cannot be answered exactly; says why and what to use instead.
        """
        ...
