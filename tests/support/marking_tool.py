"""A folder with an input and a small tool of our own that marks its records: what is hurt in tests of crashes and clusters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass
class Site:
    """A working directory with an input of ``n`` records and an executable ``tool``."""

    #: Of the tool, which copies its records and puts ``seen`` before the name of each.
    script: ClassVar[str]
    #: Letters of a record.
    letters: ClassVar[int]

    folder: Path
    n: int

    def __post_init__(self) -> None:
        tool = self.folder / "tool"
        tool.write_text(self.script)
        tool.chmod(0o755)
        self.write_input()

    def write_input(self, letter: str = "A") -> None:
        records = (f">record{k}\n{letter * self.letters}\n" for k in range(self.n))
        (self.folder / "in.fa").write_text("".join(records))

    @property
    def expected(self) -> bytes:
        return (self.folder / "in.fa").read_bytes().replace(b">", b">seen ")

    @property
    def output(self) -> Path:
        return self.folder / "out.fa"

    @property
    def run_dir(self) -> Path:
        return self.folder / "out.fa.millrace"
