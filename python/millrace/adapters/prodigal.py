"""Prodigal 2.6: with ``-p meta`` on one file, sequence by sequence; else by its description, a folder of genomes.

*Exactness.* With ``-p meta`` Prodigal does not train: each sequence gets the built-in model that fits it best.
Sequences are numbered through the input, and the join continues the numbers (``tests/exact/test_prodigal_join.py``,
``crates/millrace-core/src/join/prodigal.rs``). Without it Prodigal trains on the whole input.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from millrace.adapters.adapter_base import expand_file_records
from millrace.adapters.described_tool import DescribedAdapter
from millrace.adapters.option_reader import CommandTokens, CommandWord, OptionTable, find_only_use, scan_options
from millrace.adapters.program_identity import read_version_line
from millrace.adapters.tool_description import read_description
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.tool_use import STANDSTILL_SECONDS, CostHint, InputUse, OutputUse, ToolUse, UserCommand

OPTIONS = OptionTable(flags=frozenset("cmnq"), values=frozenset("adfgiops"), dashes="one", fold_case=True)
#: Joins of the main output by ``-f``.
MAIN = {"gbk": "prodigal:gbk", "gff": "prodigal:gff", "sco": "prodigal:sequences"}
JOINS = {"a": "prodigal:genes", "d": "prodigal:genes", "s": "prodigal:sequences"}
#: Description for genomes one by one, with the refusals.
DESCRIPTION = Path(__file__).with_name("described") / "prodigal.toml"


class ProdigalAdapter:
    """``prodigal -p meta -i contigs.fa -o genes.gff -f gff -a proteins.faa``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        if not _is_single_file_command(command):
            return make_genome_adapter().understand_command(command)
        found = scan_options(command.argv, OPTIONS, "prodigal")
        mode, form, source = (find_only_use(found, name, "prodigal") for name in "pfi")
        assert source and mode
        if mode.value != "meta":
            raise RefusedError(f"prodigal: -p {mode.value} is not known to millrace", "say -p meta")
        kind = form.value if form else "gbk"
        if kind not in MAIN:
            raise RefusedError(f"prodigal: -f {kind} is not known to millrace", f"say one of {', '.join(MAIN)}")
        path = command.cwd / source.value
        if not path.is_file():
            raise RefusedError(f"prodigal: {source.value}: no such file", "check the path of -i")
        if record_formats.detect_format(str(path)) != "fasta":
            raise RefusedError(f"prodigal: {source.value} is not FASTA, and nothing else is cut", "convert it first")
        tokens = CommandTokens(command.argv)
        tokens.mark_input(source)
        return ToolUse(
            adapter="prodigal",
            still_seconds=STANDSTILL_SECONDS,
            inputs=(InputUse(path=source.value, format="fasta"),),
            outputs=_build_outputs(found, tokens, MAIN[kind], command),
            argv=tokens.build_arguments(),
            cost=CostHint(unit="residues", startup_seconds=0.05),
            version=read_version_line(command, "-v"),
            tested=("2.6.3",),
        )


def _is_single_file_command(command: UserCommand) -> bool:
    """Tell whether the command seems to find genes in one file without training; its options are checked later."""
    argv = command.argv
    if command.inputs or command.outputs or command.joins:
        return False
    pairs = dict(pairwise(argv))
    name = pairs.get("-i") or pairs.get("-I", "")
    return (
        bool(name)
        and pairs.get("-p", pairs.get("-P", "")).startswith("m")
        and expand_file_records([name], command) is None
    )


def _build_outputs(
    found: Sequence[CommandWord], tokens: CommandTokens, main: str, command: UserCommand
) -> tuple[OutputUse, ...]:
    """Build the outputs: the main one, which alone shows an early stop of Prodigal, then proteins, genes and starts."""
    outputs = list[OutputUse]()
    if find_only_use(found, "o", "prodigal") is None:
        outputs.append(OutputUse(name="stdout", path="-", stdout=True, join=main))
    taken = set[Path]()
    for word in found:
        if word.name not in ("o", *JOINS):
            continue
        find_only_use(found, word.name, "prodigal")
        path = (command.cwd / word.value).resolve()
        if path in taken or word.value == "-" or word.value.startswith("/dev/") or path.is_fifo():
            raise RefusedError(f"prodigal: {word.typed} {word.value} is not a file of its own", "name another file")
        taken.add(path)
        tokens.mark_output(word, len(outputs))
        outputs.append(OutputUse(name=word.name, path=word.value, join=JOINS.get(word.name, main)))
    return tuple(outputs)


def make_genome_adapter() -> DescribedAdapter:
    """Return the adapter for a folder of genomes, made from Prodigal's description."""
    return DescribedAdapter(read_description(DESCRIPTION), ours=True)


ADAPTER = ProdigalAdapter()
