"""MAFFT: one alignment per family.

*Exactness.* A record is a file with one family, a task is one ordinary execution on one file. Alignments on
standard output follow one another in the order of the inputs, as in ``for f in families/*; do mafft $f;
done > out``. Progressive alignment is the same for any number of threads; iterative refinement with several
threads differs from run to run (and with ``--thread 1`` from no ``--thread``), so it is refused then
(``tests/exact/test_msa_join.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.adapters.adapter_base import describe_record_output, expand_file_records
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

OPTIONS = OptionTable(
    flags=split_words(
        """6merpair 6mermultipair 10merpair 10mermultipair adhoc0 adhoc1 adhoc2 adjustdirection
        adjustdirectionaccurately alga algq allowshift amino anysymbol auto averagelinkage bestfirst
        blastpair bunkatsunashi clustalout compactmapout contrafold core coreext dafs dafspair dash debug
        distout dpparttree excludehomologs fastapair fastaparttree fastswpair fft fmodel focus
        foldalignglobalpair foldalignlocalpair foldalignpair genafpair globalgenafpair globalpair help
        hybridpair info inputorder keeplength lara larapair large last_once last_subopt lastmultipair
        lastpair leavegappyregion legacygappenalty localgenafpair localpair longshortpair mapout mccaskill
        memsave memsavetree memsavetreex minimumlinkage mpi multipair nodeout nofft nomemsave noscore nuc
        nwildcard nzero oldgenafpair oneiteration originalseqonly outnum parttree phylipout pileup
        preservecase quiet randomchain reorder ribosum rnaalifold scarnapair scoreout shortlongpair
        simplehillclimbing slarapair smoothing sp stepadd termgappenalty text treeout unweight version
        youngestlinkage"""
    ),
    values=split_words(
        """GEXP GOP LEXP LOP aamatrix add addfragments addfull addlong addprofile addtotop anchors bl codonpos
        codonscore compactmapoutfile corethr corewin dashserver ep exp gep gexp gop groupsize jtt kappa
        kimura laraparams last_e last_m lep lexp lhlimit lop mapoutfile maxambiguous maxiterate merge
        minimumweight mixedlinkage namelength op opdist out partsize progress randomseed rep retree rop seed
        seedtable shiftpenalty similaritylevel skipanchorsremoterthan skipiterate sparsepickup strdir
        textmatrix thread threadit threadtb tm topin treein unalignlevel weighti weightm weightr"""
    ),
)
_ONE_FAMILY = "names a file that belongs to one family, and there are many"
_BESIDE = "writes a file beside each input by itself"
REFUSED = {
    **dict.fromkeys(split_words("add addfragments addfull addlong addprofile addtotop"), "adds to one alignment"),
    **dict.fromkeys(split_words("anchors merge seed seedtable treein topin mapoutfile compactmapoutfile"), _ONE_FAMILY),
    **dict.fromkeys(split_words("treeout nodeout distout mapout compactmapout debug progress"), _BESIDE),
    **dict.fromkeys(split_words("dash dashserver"), "asks a server, whose answer changes with time"),
    "randomchain": "chooses the order of sequences at random",
    "mpi": "starts processes of its own on other nodes",
    **dict.fromkeys(split_words("help info version"), "only prints information"),
}
#: Programs that refine by default.
REFINING = split_words("linsi ginsi einsi fftnsi nwnsi qinsi xinsi")
PROGRESSIVE = split_words("mafft fftns nwns")


class MafftAdapter:
    """``mafft --auto families/ > alignments`` and ``mafft --out aln/ families/``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        program = command.tool
        found = scan_options(command.argv, OPTIONS, program)
        for word in found:
            if word.name in REFUSED:
                raise RefusedError(
                    f"{program}: {word.typed} {REFUSED[word.name]}",
                    "leave it out, or run mafft family by family",
                )
        source, files = _find_families(found, command, program)
        tokens = CommandTokens(command.argv)
        tokens.mark_input(source)
        threads, notes = _choose_threads(found, command, program, tokens)
        out = find_only_use(found, "out", program)
        if out is None:
            output = OutputUse(name="stdout", path="-", stdout=True)
        else:
            output = describe_record_output("out", out.value, files, command)
            tokens.mark_output(out, 0)
        shared = [word.value for word in found if word.name in ("aamatrix", "textmatrix")]
        return ToolUse(
            adapter="mafft",
            still_seconds=STANDSTILL_SECONDS,
            argv=tokens.build_arguments(),
            inputs=(InputUse(path=source.value, format="files"),),
            outputs=(output,),
            databases=tuple(command.cwd / name for name in shared),
            threads=threads,
            # A shell script of many small programs.
            cost=CostHint(unit="bytes", startup_seconds=0.15, max_records=1),
            version=read_version_line(command, "--version"),
            tested=("7.505",),
            notes=("one family a task: MAFFT aligns one file per run", *notes),
        )


def _find_families(
    found: Sequence[CommandWord], command: UserCommand, program: str
) -> tuple[CommandWord, Sequence[str]]:
    operands = [word for word in found if not word.name]
    if not operands or operands[-1].value == "-":
        raise RefusedError(
            f"{program}: standard input is one family, so there is nothing to spread",
            f"put each family in a file of its own and name the folder: {program} families/",
        )
    if len(operands) > 1:
        raise RefusedError(
            f"{program}: takes one file, found {', '.join(word.value for word in operands)}",
            "name a folder, or put the glob in quotes",
        )
    source = operands[0]
    files = expand_file_records(source.values, command)
    if files is None:
        if not (command.cwd / source.value).exists():
            raise RefusedError(f"{program}: {source.value}: no such file or folder")
        raise RefusedError(
            f"{program}: {source.value} is one family, which is one alignment: nothing to spread",
            "give a folder of families, a glob in quotes, or a file with their names",
        )
    if not files:
        raise RefusedError(f"{program}: {source.value} has no files in it", "one file a family is expected there")
    return source, files


def _choose_threads(
    found: Sequence[CommandWord], command: UserCommand, program: str, tokens: CommandTokens
) -> tuple[int, tuple[str, ...]]:
    """Return the threads of one task, and notes; may replace ``--thread`` in the arguments.

    Raises:
        RefusedError: Refinement with several threads, which differs from run to run.
    """
    word = find_last_use(found, "thread")
    if word is None:
        return 1, ()
    n_threads = parse_count(word, program)
    if n_threads in (0, 1):
        # MAFFT treats 0 and 1 differently, but both are deterministic, so the option stays as typed.
        return 1, ()
    one = find_last_use(found, "threadit")
    iterations = find_last_use(found, "maxiterate")
    refines = (
        program.removeprefix("mafft-") in REFINING
        or find_last_use(found, "auto") is not None
        or (iterations is not None and parse_count(iterations, program) > 0)
    )
    if refines and (one is None or parse_count(one, program) != 0):
        raise RefusedError(
            f"{program}: {word.typed} {word.value}: refinement with several threads differs from run to run",
            "leave --thread out (millrace fills the cores with families), or add --threadit 0",
        )
    if n_threads > 1:
        return n_threads, ()
    # -1 means all cores: families fill them better, and the alignment is the same.
    tokens.drop_option(word)
    tokens.insert(1, "--thread", "0" if refines else "1")
    return 1, ("--thread -1 becomes one thread a family: the alignment is the same, and families fill the cores",)


ADAPTER = MafftAdapter()
