"""Description of one execution of a tool, ready for a slot."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

#: (stream, ``stdout`` or ``file`` or ``folder``, path, name of the block, optional).
ExecutionOutput = tuple[int, str, str, bytes, bool]

#: (``batch`` or ``stdin`` or ``folder`` or ``make_broadcast_link`` or ``before`` or ``before whole``, from, to); or (``ended``, "", ""):
#: a pipe at its end on standard input; or (compression of a batch, from, to), with ``again`` or
#: ``members`` after the compression for other bytes, and no ``to`` on standard input.
ExecutionPlacement = tuple[str, str, str]


class ToolExecution(msgspec.Struct, frozen=True):
    """Arguments and files of one execution; see ``millrace._core.Pool.submit``."""

    argv: Sequence[bytes]
    placements: Sequence[ExecutionPlacement]
    outputs: Sequence[ExecutionOutput]
    #: Another program than the user's; None: the user's.
    exe: str | None = None
    #: (private text, the user's text).
    substitutions: Sequence[tuple[bytes, bytes]] = ()
    #: (stream, kind of patch, its argument).
    patches: Sequence[tuple[int, str, str]] = ()
    #: (working directory, ``PWD``) of a task that works in the user's own folder; None: it works where its slot does.
    own_folder: tuple[str, bytes | None] | None = None
    #: (column of the subject, of the bits, of the E-value if it ranks, lowest rank, highest) of the rows of a slice.
    within: tuple[int, int, int | None, float, float] | None = None
