"""MUSCLE, versions 3 and 5: one alignment per family.

*Exactness.* A record is a file with one family, a task is one ordinary execution on one file, so each
alignment is the one that the serial tool writes. Alignments that go to one file or to standard output
follow one another in the order of the inputs, as in ``for f in families/*; do muscle3 -in $f; done > out``.
MUSCLE 5 ``-align`` writes the same alignment for any number of threads, so it runs with one; ``-super5``
does not even repeat itself with more than one thread, so it is taken only with ``-threads 1``
(``tests/exact/test_msa_join.py``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from millrace.adapters.adapter_base import describe_record_output, expand_file_records, join_names
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
from millrace.core.errors import RefusedError
from millrace.core.tool_use import STANDSTILL_SECONDS, CostHint, InputUse, OutputUse, ToolUse, UserCommand

V3_OUTPUTS = split_words(
    """out log loga tree1 tree2 scorefile fastaout clwout clwstrictout htmlout msfout phyiout physout
    distmx1 distmx2"""
)
V3 = OptionTable(
    fold_case=True,
    flags=split_words(
        """anchors brenner clusteronly clw clwstrict core diags diags1 diags2 dimer fasta group html le
        maketree
        msf
        noanchors nocore pas phyi phys profdb profile quiet refine refinew sp spn stable sv sw tomhydro
        verbose version"""
    ),
    values=V3_OUTPUTS
    | split_words(
        """in in1 in2 maxiters maxhours gapopen gapopen2 gapextend gapextend2 gapambig center smoothscoreceil
        minbestcolscore minsmoothscore objscore smoothwindow refinewindow fromwindow towindow savewindow
        windowoffset firstwindow anchorspacing maxtrees sueff distance distance1 distance2 weight weight1
        weight2 cluster cluster1 cluster2 root1 root2 usetree usetree_nowarn diaglength diagmargin diagbreak
        hydro hydrofactor spscore seqtype maxmb computeweights maxsubfam termgaps matrix"""
    ),
)
V3_OTHER_WORK = split_words("in1 in2 profile profdb pas brenner spscore computeweights")

V5_COMMANDS = split_words("align super5")
V5_OUTPUTS = split_words("output log")
V5 = OptionTable(
    flags=split_words("quiet amino nt verbose stratified diversified input_order tree_order eadist allpairs"),
    values=V5_COMMANDS
    | V5_OUTPUTS
    | split_words(
        """threads consiters refineiters randseed perturb perm replicates paircount maxcoarse maxcols minea
        super5_minea1 super4_minea1 super4_minea2 pctid perturb_var hmmin linkage guidetreein"""
    ),
)

#: Outputs that MUSCLE writes only in some modes: a task may lack them.
MAYBE = V3_OUTPUTS - {"out", "log", "loga"}
#: The log names the time of day and the memory in use.
LOG_VOLATILE = (
    r"^(Started|Finished) .*$",
    r"^(Elapsed time|Max memory) .*$",
    r"^\d\d:\d\d .*$",
    r"^muscle .* built .*$",
)


class MuscleAdapter:
    """``muscle3 -in families/ -out aln/`` and ``muscle -align families/ -output aln/``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        program = command.tool
        typed = {argument.lstrip("-").lower() for argument in command.argv[1:] if argument.startswith("-")}
        # Both versions are called muscle: the options show for which one the command is written.
        is_v5 = program != "muscle3" and "in" not in typed and not typed & {"out", "in1", "in2"}
        return _understand_version5(command, program) if is_v5 else _understand_version3(command, program)


def _understand_version3(command: UserCommand, program: str) -> ToolUse:
    found = scan_options(command.argv, V3, program)
    for word in found:
        if not word.name:
            raise RefusedError(f"{program}: '{word.typed}' stands alone", "name the families with -in FOLDER")
        if word.name in V3_OTHER_WORK:
            raise RefusedError(
                f"{program}: {word.typed} works on two inputs or on an alignment, not on one family a file",
                "run it without millrace, or in a script of your own given to millrace as a generic tool",
            )
        if word.name == "maxhours":
            raise RefusedError(
                f"{program}: {word.typed} stops by the clock, so two serial runs differ",
                "bound the work with -maxiters N instead",
            )
        if word.name == "version":
            raise RefusedError(f"{program}: {word.typed} does no work", f"run {program} -version by itself")
    source = find_only_use(found, "in", program)
    if source is None:
        raise RefusedError(
            f"{program}: no -in; standard input is one family, so there is nothing to spread",
            "put each family in a file of its own and name the folder: -in families/",
        )
    files = _find_families(source, command, program)
    tokens = CommandTokens(command.argv)
    tokens.mark_input(source)
    outputs = _build_outputs(found, V3_OUTPUTS, files, command, tokens, program)
    if not any(each.name == "out" for each in outputs):
        outputs.append(OutputUse(name="stdout", path="-", stdout=True))
    shared = [word.value for word in found if word.name in ("matrix", "usetree", "usetree_nowarn")]
    return ToolUse(
        adapter="muscle",
        still_seconds=STANDSTILL_SECONDS,
        argv=tokens.build_arguments(),
        inputs=(InputUse(path=join_names(source.values), format="files"),),
        outputs=tuple(outputs),
        # A matrix may also be found through MUSCLE's own search path; then it is not watched.
        databases=tuple(command.cwd / name for name in shared if (command.cwd / name).is_file()),
        cost=CostHint(unit="bytes", startup_seconds=0.002, max_records=1),
        # Status 1 is a wrong option; 2 is a fault of the family.
        fatal_statuses=(1,),
        version=read_version_line(command, "-version"),
        tested=("3.8.1551",),
        notes=("one family a task: MUSCLE 3 aligns one file per run",),
    )


def _understand_version5(command: UserCommand, program: str) -> ToolUse:
    # MUSCLE 5 accepts -name and --name alike.
    found = scan_options(command.argv, V5, program) if _has_known_v5_options(command, program) else []
    work = [word for word in found if word.name in V5_COMMANDS]
    if len(work) != 1:
        raise RefusedError(
            f"{program}: needs one of -align and -super5",
            "name the families: muscle -align families/ -output aln/",
        )
    for word in found:
        if not word.name:
            raise RefusedError(f"{program}: '{word.typed}' stands alone", "name the families with -align FOLDER")
    seed = find_last_use(found, "randseed")
    if seed is not None and parse_count(seed, program) == 0:
        raise RefusedError(f"{program}: {seed.typed} 0 takes the seed from the clock", "give another seed, like 1")
    if find_only_use(found, "output", program) is None:
        raise RefusedError(f"{program}: no -output", "name a folder for the alignments: -output aln/")
    source = work[0]
    files = _find_families(source, command, program)
    tokens = CommandTokens(command.argv)
    tokens.mark_input(source)
    outputs = _build_outputs(found, V5_OUTPUTS, files, command, tokens, program)
    notes = ["one family a task: MUSCLE 5 aligns one file per run"]
    threads = find_last_use(found, "threads")
    if source.name == "super5" and (threads is None or parse_count(threads, program) != 1):
        raise RefusedError(
            f"{program}: with several threads -super5 gives another alignment each time",
            "add -threads 1, or use -align, whose result is the same for any number of threads",
        )
    if threads is None:
        tokens.append("-threads", "1")
        notes.append("-threads 1 is added: the alignment is the same for any number of threads")
    shared = [word.value for word in found if word.name in ("hmmin", "guidetreein")]
    return ToolUse(
        adapter="muscle",
        still_seconds=STANDSTILL_SECONDS,
        argv=tokens.build_arguments(),
        inputs=(InputUse(path=join_names(source.values), format="files"),),
        outputs=tuple(outputs),
        databases=tuple(command.cwd / name for name in shared),
        threads=max(1, parse_count(threads, program)) if threads else 1,
        cost=CostHint(unit="bytes", startup_seconds=0.005, max_records=1),
        version=read_version_line(command, "-version"),
        tested=("5.2",),
        notes=tuple(notes),
    )


def _has_known_v5_options(command: UserCommand, program: str) -> bool:
    known = V5.flags | V5.values
    for argument in command.argv[1:]:
        name = argument.lstrip("-")
        if re.fullmatch(r"--?[a-z][a-z0-9_]*", argument) and name not in known:
            raise RefusedError(
                f"{program}: {argument} is not known to work on one family a file",
                "what is known: -align or -super5, -output and the options of one alignment",
            )
    return True


def _find_families(source: CommandWord, command: UserCommand, program: str) -> Sequence[str]:
    files = expand_file_records(source.values, command)
    if files is None:
        if not (command.cwd / source.value).exists():
            raise RefusedError(f"{program}: {source.typed} {source.value}: no such file or folder")
        raise RefusedError(
            f"{program}: {source.value} is one family, which is one alignment: nothing to spread",
            f"give a folder of families, a quoted glob, or a file with their names: {source.typed} families/",
        )
    if not files:
        raise RefusedError(f"{program}: {source.value} has no files in it", "one file a family is expected there")
    return files


def _build_outputs(
    found: Sequence[CommandWord],
    names: frozenset[str],
    files: Sequence[str],
    command: UserCommand,
    tokens: CommandTokens,
    program: str,
) -> list[OutputUse]:
    outputs: list[OutputUse] = []
    for word in found:
        if word.name not in names:
            continue
        find_only_use(found, word.name, program)
        if "@" in word.value:
            raise RefusedError(
                f"{program}: '@' in {word.typed} makes a file per replicate",
                "leave the '@' out: all replicates of a family then go to one EFA file",
            )
        if word.name == "loga" and (command.cwd / word.value).is_file():
            raise RefusedError(f"{program}: {word.typed} would append to {word.value}", "name a new file")
        volatile = LOG_VOLATILE if word.name in ("log", "loga") else ()
        use = describe_record_output(word.name, word.value, files, command, volatile=volatile)
        outputs.append(msgspec.structs.replace(use, optional=word.name in MAYBE))
        tokens.mark_output(word, len(outputs) - 1)
    return outputs


ADAPTER = MuscleAdapter()
