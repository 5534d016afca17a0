"""Errors, and the exit code of each."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of ``millrace``; a signal ends it with 128 + its number."""

    #: Everything was done; the output is the serial tool's.
    DONE = 0
    #: The run stopped before it was done (disk full, a task that cannot be placed...); the same command resumes it.
    STOPPED = 1
    #: Wrong use, or a command that cannot be answered exactly: refused before anything started.
    REFUSED = 2
    #: Done, except for quarantined records, which the summary names.
    QUARANTINED = 3
    #: The tool itself cannot run as asked (missing database, bad option), or writes more than is collected; its own
    #: message is shown.
    TOOL = 4
    #: A journal or an input differs from the bytes once committed or read, or the tool's output depends on where its
    #: input is cut.
    CORRUPT = 5


class MillraceError(Exception):
    """An error that ends the command: place and problem, and a hint.

    Args:
        message: Place and problem, lower case, no full stop.
        hint: A remedy, or empty.
    """

    exit_code = ExitCode.STOPPED
    #: Whether the results so far stay valid, so that the same command continues from there.
    keeps_results = True

    def __init__(self, message: str, hint: str = "") -> None:
        # Both fields, in order: pickle rebuilds an exception from its args.
        super().__init__(message, hint)
        self.message, self.hint = message, hint

    @property
    def status(self) -> int:
        """The exit status of a command that ends with this error."""
        return self.exit_code

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


def split_hint(text: str) -> tuple[str, str]:
    """Split the text of a ``MillraceError`` into message and hint; the hint may be empty."""
    message, _, hint = text.partition("\n\nhint: ")
    return message, hint


class RefusedError(MillraceError):
    """Wrong use, or a command that cannot be exact; nothing was started."""

    exit_code = ExitCode.REFUSED


class LostError(MillraceError):
    """A process or node of the run is lost; a new start continues from the journals."""


class ToolError(MillraceError):
    """The tool cannot run at all, whatever the record."""

    exit_code = ExitCode.TOOL


class CorruptError(MillraceError):
    """Stored or read bytes have changed."""

    exit_code = ExitCode.CORRUPT


class UnservedError(CorruptError):
    """A filesystem does not answer, as its server is down; it may come back."""

    exit_code = ExitCode.STOPPED


class MisfitError(CorruptError):
    """Results that are valid alone cannot be joined."""


class UnverifiedError(MillraceError):
    """The tool gave other bytes for the same records cut elsewhere: its output cannot be the serial one."""

    exit_code = ExitCode.CORRUPT


class LostOutputError(ToolError):
    """The tool wrote output that is not collected: the results of the run are incomplete."""

    keeps_results = False


class TogetherError(UnverifiedError):
    """The tool fails on records together, and on no part of them: the parts' results are not the serial output."""

    keeps_results = False


class UnequalError(UnverifiedError):
    """The tool gave other bytes in a fork than in a process of its own: no result of the run is valid."""

    keeps_results = False
