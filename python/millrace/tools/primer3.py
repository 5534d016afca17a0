"""What a record of Primer3's input (Boulder-IO) says beyond its own sequence (the manual of 2.6.1)."""

from __future__ import annotations

import re

from millrace.tools.calls import Call

#: Options whose value stands in the next word.
_WITH_VALUE = re.compile(r"--?(default_version|format_output|io_version|p3_settings_file|output|error)$")

#: What a line says of its record alone, or of none: a tag of the sequence, a comment, the end of the record, nothing.
_OF_RECORD = re.compile(r"SEQUENCE_\w+=|P3_COMMENT=|=?\s*$")


def sets_for_all(call: Call) -> bool:
    """Whether a record may set what holds for those behind it, too: global tags do, and what cannot be read may hold some.

    >>> def of(text: str, *arguments: str) -> bool:
    ...     return sets_for_all(Call("primer3_core", arguments, (), read=lambda name: text))
    >>> of("SEQUENCE_ID=a\\nSEQUENCE_TEMPLATE=ACGT\\n=\\n"), of("SEQUENCE_ID=a\\nPRIMER_NUM_RETURN=1\\n=\\n", "in.txt"), of("")
    (False, True, True)
    """
    names = [
        word for before, word in call.pairs
        if not word.startswith("-") and not _WITH_VALUE.match(before)
    ]  # fmt: skip
    texts = [call.read(name) for name in names or ["-"]]
    return not all(texts) or any(not _OF_RECORD.match(line) for text in texts for line in text.splitlines())
