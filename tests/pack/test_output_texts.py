"""The texts of a pack whose result was never computed: paths as typed, and the ends of outputs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millrace.core.errors import CorruptError
from millrace.core.tool_use import InputUse, OutputUse, ToolUse
from millrace.extensions.pack import difference, layout, output_texts
from millrace.extensions.pack.hmmer_codec import CODEC
from millrace.extensions.pack.layout import EndingText, OriginalOutput, PackedTexts, PackRecipe

USE = ToolUse(
    adapter="hmmer", argv=("hmmscan",), inputs=(InputUse(path="my q.faa", format="fasta"),),
    outputs=(OutputUse(name="t", path="/data/t"),),
)  # fmt: skip
RECIPE = PackRecipe(codec="hmmer", millrace="0", outputs=(OriginalOutput(name="t", bytes=0, sha256=layout.UNKNOWN),))
KEY = "-0123456789abcdef"
TABLE = b"# Current dir: of a row\nrow queries%s\n# Target file: %s %s\n# Current dir:     %s\n"


def write(texts: PackedTexts, folder: Path, content: bytes) -> bytes:
    (folder / "there").write_bytes(content)
    output_texts.write_outputs(texts, CODEC, USE, KEY, [folder / "there"], [folder / "dest"])
    return (folder / "dest").read_bytes()


@pytest.mark.parametrize("n_rows", [0, 3, 4000])
def test_names_and_last_lines_are_those_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_rows: int
) -> None:
    """A name may stand at the border of what is read at a time, and the line in question may look like an earlier one."""
    monkeypatch.setattr(difference, "READ_BYTES", 37)
    rows = b"".join(b"a row of queries%s\n" % KEY.encode() for _ in range(n_rows))
    here, there = tmp_path / "here", tmp_path / "there"
    sample = tmp_path / "sample"
    sample.write_bytes(TABLE % (KEY.encode(), b"x", b"y", bytes(here)))
    texts = output_texts.collect_texts(CODEC, USE, Path("/home/me"), [sample], here)
    content = rows + TABLE % (KEY.encode(), f"queries{KEY}".encode(), f"out0{KEY}".encode(), bytes(there))
    expected = (rows + TABLE % (KEY.encode(), b"my q.faa", b"/data/t", b"/home/me")).replace(
        f"queries{KEY}".encode(), b"my q.faa"
    )
    assert write(texts, tmp_path, content) == expected


def test_malformed_texts_are_refused(tmp_path: Path) -> None:
    texts = PackedTexts(queries="q", outputs=("t",), endings=(EndingText(output=0, pattern=0, text="x"),))
    for wrong in (
        b"{}",
        msgspec.json.encode(msgspec.structs.replace(texts, outputs=("t", "u"))),
        msgspec.json.encode(msgspec.structs.replace(texts, endings=(EndingText(output=1, pattern=0, text="x"),))),
    ):
        with pytest.raises(CorruptError):
            layout.decode_texts(RECIPE, wrong)
    assert layout.decode_texts(RECIPE, layout.encode_texts(texts)) == texts
    far = msgspec.structs.replace(texts, endings=(EndingText(output=0, pattern=99, text="x"),))
    for one, content in ((texts, b"no such line\n"), (far, b"# Current dir: x\n")):
        with pytest.raises(CorruptError, match="does not end as"):
            write(one, tmp_path, content)
        assert not (tmp_path / "dest").exists()
