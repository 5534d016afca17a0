"""minimap2, with reads in batches and the whole reference.

*Exactness.* Each read is mapped by itself: ties are broken by its name, occurrences of a seed are counted in the
reference, and neither ``-K`` nor ``-t`` changes a byte. So PAF is concatenated, and SAM keeps its header once
(``tests/exact/test_minimap2_join.py``). The header shows the command line; the join removes the threads that Millrace
has added.

A reference that is indexed in several parts (``-I``) is mapped part by part, all reads each time, so it is refused. In
fragment mode (``-x sr``) neighbouring reads of one name belong together: two files of mates are cut together, and one
file is refused, as a batch could separate two mates.
"""

from __future__ import annotations

import gzip
import re
import struct
from collections.abc import Sequence
from pathlib import Path

from millrace.adapters import joins
from millrace.adapters.option_reader import (
    CommandTokens,
    CommandWord,
    OptionTable,
    find_last_use,
    find_only_use,
    parse_count,
    scan_options,
    split_words,
)
from millrace.adapters.program_identity import read_version_line
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.core.tool_use import STANDSTILL_SECONDS, CostHint, InputUse, OutputUse, ThreadsArg, ToolUse, UserCommand

#: Options of 2.24, without those that print debugging output of minimap2.
OPTIONS = OptionTable(
    dashes="tell",
    equals=True,
    together=True,
    ends=True,
    flags=split_words(
        """2 sam S no-self H X c Q help L Y y all-chain version no-kalloc no-long-join sr no-pairing idx-no-seq for-only
        rev-only MD eqx paf-no-hit no-end-flt hard-mask-level sam-hit-only qstrand no-hash-name secondary-seq splice"""
    ),
    values=split_words(
        """w k K t r f v g G I d T s x p M n z A B b O E m N u R F C o e U bucket-bits mb-size seed max-chain-skip
        min-dp-len cost-non-gt-ag frag secondary end-bonus splice-flank end-seed-pen heap-sort dual max-clip-ratio
        min-occ-floor lj-min-ratio score-N split-prefix cap-sw-mem max-qlen max-chain-iter junc-bed junc-bonus
        chain-gap-scale alt alt-drop mask-len cap-kalloc q-occ-frac chain-skip-scale max-intron-len min-count
        min-chain-score mask-level min-dp-score"""
    ),
    optional=split_words("cs rmq"),
    aliases={"a": "sam", "D": "no-self", "P": "all-chain", "h": "help", "V": "version"},
)
REFUSED = {
    "d": ("writes the index of the reference", "run that once without millrace, and name the index as the reference"),
    "split-prefix": ("merges the results of an index in several parts", "give -I a size above that of the reference"),
    "help": ("only prints information", "run it without millrace"),
    "version": ("only prints information", "run it without millrace"),
}
#: Presets that map each read by itself, and those with fragments of several reads.
ALONE = split_words(
    """map-pb map-ont map10k map-hifi map-ccs asm5 asm10 asm20 splice splice:hq splice-hq cdna ava-pb ava-ont lr:hq
    map-iclr"""
)
TOGETHER = split_words("sr short")
#: Bases from which on a reference is indexed in parts, without ``-I``; later releases index more in one part.
PART_BASES = 4_000_000_000
INDEX = b"MMI\2"
#: Maximum compression ratio of gzip.
MAX_GZIP_RATIO = 1032
#: Flag of an index without sequences (``--idx-no-seq``).
NO_SEQUENCES = 2
FORMATS = ("fasta", "fastq")


class Minimap2Adapter:
    """Adapter for ``minimap2 -ax map-ont ref.fa reads.fq > out.sam``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        found = scan_options(command.argv, OPTIONS, "minimap2")
        for word in found:
            if word.name in REFUSED:
                why, hint = REFUSED[word.name]
                raise RefusedError(f"minimap2: {word.typed} {why}", hint)
        operands = [word for word in found if not word.name]
        reference = _find_reference(operands, found, command)
        tokens = CommandTokens(command.argv)
        is_sam = find_last_use(found, "sam") is not None
        inputs = _find_queries(operands[1:], _has_fragments(found), is_sam, command, tokens)
        threads = find_last_use(found, "t")
        join = joins.SAM if is_sam else joins.CONCAT
        if threads is None and is_sam:
            join = joins.combine_joins(joins.SAM, joins.make_restore_join(r"^@PG\t.*?\tCL:.*?( -t [0-9]+)"))
        output = _find_output(found, join, tokens)
        if threads is None:
            tokens.insert(1, "-t", ThreadsArg())
        size = reference.stat().st_size
        return ToolUse(
            adapter="minimap2",
            still_seconds=STANDSTILL_SECONDS,
            argv=tokens.build_arguments(),
            inputs=inputs,
            outputs=(output,),
            databases=(reference, *(command.cwd / word.value for word in found if word.name in ("junc-bed", "alt"))),
            threads=max(1, parse_count(threads, "minimap2")) if threads else 0,
            # Measured: the index of a million bases takes 0.1 s of CPU, as long as half a million bases of reads.
            cost=CostHint(unit="residues", startup_seconds=0.01 + size * 1e-7, start_units=1 + size // 2),
            # After a record that it cannot parse, minimap2 drops the following reads with only a warning.
            failures_said=(
                r"(failed to parse the|wrong) FASTA/FASTQ record",
                r"query files have different number of records",
            ),
            version=read_version_line(command, "--version"),
            tested=("2.24-r1122",),
        )


def _has_fragments(found: Sequence[CommandWord]) -> bool:
    preset, asked = find_last_use(found, "x"), find_last_use(found, "frag")
    if preset is not None and preset.value not in ALONE | TOGETHER:
        raise RefusedError(
            f"minimap2: -x {preset.value} is not known to map each read by itself",
            f"use one of {', '.join(sorted(ALONE))}",
        )
    if asked is None:
        return preset is not None and preset.value in TOGETHER
    if asked.value not in ("yes", "no"):
        raise RefusedError(f"minimap2: {asked.typed} {asked.value} is neither yes nor no", "write --frag=no")
    return asked.value == "yes"


# The reference


def _find_reference(operands: Sequence[CommandWord], found: Sequence[CommandWord], command: UserCommand) -> Path:
    if len(operands) < 2:
        raise RefusedError("minimap2: needs a reference and reads", "as in: minimap2 -x map-ont ref.fa reads.fq")
    name = operands[0].value
    path = command.cwd / name
    if not path.is_file():
        raise RefusedError(f"minimap2: reference {name}: no such file", "name a file; each task reads it anew")
    limit = find_last_use(found, "I")
    most = _parse_base_count(limit) if limit else PART_BASES
    if _is_index(path):
        if _has_several_parts(path):
            raise RefusedError(
                f"minimap2: {name} is an index in several parts, each of which is mapped before the next",
                f"make it in one, in the serial run too: minimap2 -I 100G -d {name} REFERENCE",
            )
    elif _may_exceed_bases(path, most):
        raise RefusedError(
            f"minimap2: {name} may have {most} bases or more, and is then mapped in parts, one before the next",
            "give -I a size above that, in the serial run too: -I 100G",
        )
    return path


def _parse_base_count(word: CommandWord) -> int:
    number = re.fullmatch(r"(\d+(?:\.\d*)?)([GgMmKk]?)", word.value)
    if not number:
        raise RefusedError(f"minimap2: {word.typed} needs a number, found '{word.value}'")
    return int(float(number[1]) * {"g": 1e9, "m": 1e6, "k": 1e3, "": 1}[number[2].lower()])


def _is_index(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == INDEX


def _may_exceed_bases(path: Path, most: int) -> bool:
    """Tell whether a file of sequences may have ``most`` bases or more, by its number of uncompressed bytes."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            return size >= most
    if size * MAX_GZIP_RATIO < most:
        return False
    left = most
    with gzip.open(path) as unpacked:
        while left > 0 and (piece := unpacked.read(1 << 20)):
            left -= len(piece)
    return left <= 0


def _has_several_parts(path: Path) -> bool:
    """Tell whether an index has more than one part; the first is skipped as ``mm_idx_load`` reads it."""
    with path.open("rb") as file:
        file.read(4)
        _, _, bits, n_sequences, flags = struct.unpack("<5I", file.read(20))
        bases = 0
        for _ in range(n_sequences):
            file.seek(file.read(1)[0], 1)
            bases += struct.unpack("<I", file.read(4))[0]
        for _ in range(1 << bits):
            file.seek(8 * struct.unpack("<I", file.read(4))[0], 1)
            file.seek(16 * struct.unpack("<I", file.read(4))[0], 1)
        if not flags & NO_SEQUENCES:
            file.seek(4 * ((bases + 7) // 8), 1)
        return file.tell() < path.stat().st_size


# Reads and output


def _find_queries(
    operands: Sequence[CommandWord], together: bool, is_sam: bool, command: UserCommand, tokens: CommandTokens
) -> tuple[InputUse, ...]:
    if len(operands) > (2 if together else 1):
        raise RefusedError(
            f"minimap2: {len(operands)} files of reads, which it maps one file after the other",
            "give them as one: cat FILES | millrace run --format fastq -- minimap2 ... ref.fa -",
        )
    if together and len(operands) == 1:
        raise RefusedError(
            "minimap2: in fragment mode neighbouring reads of one name are mates, which batches could part",
            "give mates as two files, or, for single reads, add --frag=no, in the serial run too",
        )
    inputs = []
    for index, word in enumerate(operands):
        inputs.append(_find_query(word, is_sam, command, operands))
        if word.value != "-":
            tokens.mark_input(word, index)
    return tuple(inputs)


def _find_query(word: CommandWord, is_sam: bool, command: UserCommand, operands: Sequence[CommandWord]) -> InputUse:
    if word.value == "-":
        if not command.stdin_is_data:
            raise RefusedError("minimap2: no reads: nothing comes in on standard input", "redirect a file: < FILE")
        if command.format not in FORMATS:
            raise RefusedError(
                "minimap2: the format of standard input is not said", "add --format fastq, or --format fasta, before --"
            )
        return InputUse(path="-", format=command.format, stdin=True)
    path = command.cwd / word.value
    if not path.exists():
        raise RefusedError(f"minimap2: {word.value}: no such file")
    if not path.is_file():
        raise RefusedError(
            f"minimap2: {word.value} is no file, and its format cannot be told",
            "pipe it in: PROGRAM | millrace run --format fasta -- minimap2 REFERENCE -",
        )
    form = record_formats.detect_format(str(path))
    if form not in FORMATS:
        raise RefusedError(f"minimap2: {word.value} is neither FASTA nor FASTQ", "name a file of reads")
    with path.open("rb") as file:
        packed = file.read(4)
    if is_sam and (packed[:2] == b"\x1f\x8b" or path.suffix in record_formats.COMPRESSED):
        raise RefusedError(
            f"minimap2: {word.value} is compressed, and the header of SAM shows its name, which batches do not have",
            f"zcat {word.value} | millrace run --format {form} -- minimap2 ... ref.fa -"
            if len(operands) == 1
            else f"unpack both first, as standard input can be one of them: gunzip -k {' '.join(each.value for each in operands)}",
        )
    return InputUse(path=word.value, format=form)


def _find_output(found: Sequence[CommandWord], join: str, tokens: CommandTokens) -> OutputUse:
    word = find_only_use(found, "o", "minimap2")
    if word is None:
        return OutputUse(name="stdout", path="-", stdout=True, join=join)
    if word.value == "-":
        raise RefusedError("minimap2: -o - writes a file of this name", "leave it out for standard output")
    tokens.mark_output(word, 0)
    return OutputUse(name="out", path=word.value, join=join)


ADAPTER = Minimap2Adapter()
