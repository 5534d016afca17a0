"""What a script carries from one record to the next."""

from __future__ import annotations

from typing import NamedTuple


class Carried(NamedTuple):
    """Something that a script carries from line to line."""

    #: Completes "the script ...".
    why: str
    #: Records of several lines may have all of it within them.
    is_local: bool = True
    #: It counts from the first line, or waits for the last: parts that are shorter than the count do not show it.
    is_counted: bool = False


class Separator(NamedTuple):
    """What ends a record, where it is not the end of a line."""

    #: As it is said in the command.
    word: str
    is_nul: bool = False
