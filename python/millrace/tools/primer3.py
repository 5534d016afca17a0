"""Records of Primer3's input (Boulder-IO) that set more than their own sequence (manual of 2.6.1)."""

from __future__ import annotations

import re

from millrace.tools.calls import ProgramCall

#: Options whose value is the next word.
_WITH_VALUE = re.compile(r"--?(default_version|format_output|io_version|p3_settings_file|output|error)$")

#: Lines without effect on other records: a tag of the sequence, a comment, the end of the record, an empty line.
_OF_RECORD = re.compile(r"SEQUENCE_\w+=|P3_COMMENT=|=?\s*$")


def has_global_settings(call: ProgramCall) -> bool:
    """Tell whether a record may set global tags, which hold for later records too; true if the input is unreadable.

    >>> def of(text: str, *arguments: str) -> bool:
    ...     return has_global_settings(ProgramCall("primer3_core", arguments, (), read=lambda name: text))
    >>> of("SEQUENCE_ID=a\\nSEQUENCE_TEMPLATE=ACGT\\n=\\n"), of("SEQUENCE_ID=a\\nPRIMER_NUM_RETURN=1\\n=\\n", "in.txt"), of("")
    (False, True, True)
    """
    names = [
        word for before, word in call.pairs
        if not word.startswith("-") and not _WITH_VALUE.match(before)
    ]  # fmt: skip
    texts = [call.read(name) for name in names or ["-"]]
    return not all(texts) or any(not _OF_RECORD.match(line) for text in texts for line in text.splitlines())
