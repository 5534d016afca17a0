"""Text of outputs that another machine does not give: the paths as typed, and what stands once at the end.

The queries and outputs of a regeneration have unique names, which stand in its outputs where the tool prints paths. They are
replaced by the paths as typed. Of the lines at the end of an output that differ elsewhere, such as a folder or a day,
the pack keeps the text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from millrace.core.errors import CorruptError
from millrace.core.text_format import escape_unprintable
from millrace.core.tool_use import OutputUse, ToolUse
from millrace.extensions.pack import difference, layout, regeneration_run
from millrace.extensions.pack.layout import EndingText, PackedTexts, PackRecipe
from millrace.extensions.pack.result_codec import NotPackableError, ResultCodec

#: Bytes at the end of an output in which its ending is.
ENDING_BYTES = 1 << 16


def make_name_key(made: PackRecipe) -> str:
    """Return the key of the names in a regeneration of a pack with texts; see ``regeneration_run.get_output_name``."""
    return f"-{layout.digest_recipe(made)[:16]}"


def collect_texts(
    codec: ResultCodec, use: ToolUse, cwd: Path, regenerated: Sequence[Path], folder: Path
) -> PackedTexts:
    """Collect the texts of a result from a regeneration for some of its queries, which ran in ``folder``.

    Args:
        use: The user's command, which runs in ``cwd``.

    Raises:
        NotPackableError: A text is no UTF-8.
    """
    endings = [
        EndingText(output=number, pattern=index, text=os.fsdecode(text).replace(str(folder), str(cwd)))
        for number, (output, path) in enumerate(zip(use.outputs, regenerated, strict=True))
        for index, text in _find_endings(codec, output, _read_ending(path))
    ]
    typed = (use.inputs[0].path, *("" if each.path == "-" else each.path for each in use.outputs))
    if any(text != text.encode(errors="replace").decode() for text in (*typed, *(each.text for each in endings))):
        raise NotPackableError("the name of a file is no UTF-8, and does not travel")
    return PackedTexts(queries=typed[0], outputs=typed[1:], endings=tuple(endings))


def _read_ending(path: Path) -> bytes:
    """Return the last whole lines of a file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - ENDING_BYTES, 0))
        data = file.read()
    return data if size <= ENDING_BYTES else data.partition(b"\n")[2]


def _find_endings(codec: ResultCodec, output: OutputUse, ending: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the index of each pattern that matches, and its last match."""
    for index, pattern in enumerate(difference.compile_patterns(codec.list_volatile_patterns(output))):
        if matches := list(pattern.finditer(ending)):
            yield index, matches[-1][0]


def write_outputs(
    texts: PackedTexts, codec: ResultCodec, use: ToolUse, key: str, regenerated: Sequence[Path], dests: Sequence[Path]
) -> None:
    """Write regenerated outputs to ``dests`` with the texts of the pack.

    Args:
        key: See ``make_name_key``.

    Raises:
        CorruptError: An output does not end as that of the command.
    """
    names = _map_names(texts, key)
    for number, (path, dest) in enumerate(zip(regenerated, dests, strict=True)):
        patterns = difference.compile_patterns(codec.list_volatile_patterns(use.outputs[number]))
        ending = old = _read_ending(path)
        for each in texts.endings:
            if each.output == number:
                ending = _replace_last(ending, patterns[each.pattern : each.pattern + 1], os.fsencode(each.text))
        with path.open("rb") as source, dest.open("xb") as out:
            for lines in difference.read_line_blocks(source, path.stat().st_size - len(old)):
                out.write(_replace_names(lines, names))
            out.write(_replace_names(ending, names))


def _map_names(texts: PackedTexts, key: str) -> Mapping[bytes, bytes]:
    names = {regeneration_run.QUERIES + key: texts.queries}
    names |= {regeneration_run.get_output_name(index, key): path for index, path in enumerate(texts.outputs)}
    return {os.fsencode(name): os.fsencode(typed) for name, typed in names.items()}


def _replace_names(lines: bytes, names: Mapping[bytes, bytes]) -> bytes:
    for name, typed in names.items():
        lines = lines.replace(name, typed)
    return lines


def _replace_last(ending: bytes, patterns: Sequence[re.Pattern[bytes]], text: bytes) -> bytes:
    """Replace the last match of the one pattern.

    Raises:
        CorruptError: There is no such pattern, or no match.
    """
    matches = [match.span() for pattern in patterns for match in pattern.finditer(ending)]
    if not matches:
        raise CorruptError(
            f"what is regenerated here does not end as the packed result, with {escape_unprintable(os.fsdecode(text))}",
            "the tool here may differ from that of the packed result",
        )
    first, last = matches[-1]
    return ending[:first] + text + ending[last:]
