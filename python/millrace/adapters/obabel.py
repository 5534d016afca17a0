"""Open Babel, with molecules that are converted one by one.

*Exactness.* Open Babel reads, changes and writes one molecule after another. Options that compare several molecules
(sort, unique, join, first and last) or that are random (``--gen3d``) are refused by name; every other option must be in
the tables here. SMILES, MOL2, SDF, XYZ, InChI and the like are concatenated; PDB and PDBQT have running MODEL numbers,
MOL has separators, CML has one header and one footer (``crates/millrace-core/src/join/obabel.rs``,
``tests/exact/test_obabel_join.py``).

Open Babel ends at the first molecule that it cannot read, reports it only on standard error and exits with status 0. So
each task must report that it converted as many molecules as it was given (``ToolUse.records_said``). With ``-e`` it
continues after such a molecule, and the count is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.adapters.adapter_base import expand_file_records, join_names
from millrace.adapters.option_reader import (
    CommandTokens,
    CommandWord,
    OptionErrorTexts,
    OptionTable,
    scan_options,
    split_words,
)
from millrace.adapters.program_identity import read_version_line
from millrace.core.errors import RefusedError
from millrace.core.tool_use import STANDSTILL_SECONDS, CostHint, InputUse, OutputUse, ToolUse, UserCommand

#: Record format of the input formats that can be cut.
RECORDS = {
    "smi": "smiles",
    "smiles": "smiles",
    "can": "smiles",
    "sdf": "sdf",
    "sd": "sdf",
    "mol": "sdf",
    "mdl": "sdf",
    "mol2": "mol2",
    "ml2": "mol2",
    "sy2": "mol2",
}
#: Join by output format.
JOINS = {
    **dict.fromkeys(
        split_words("smi smiles can inchi inchikey sdf sd mol2 ml2 sy2 xyz txt fix report molreport nul"), "concat"
    ),
    **dict.fromkeys(split_words("mol mdl"), "obabel-mol"),
    **dict.fromkeys(split_words("pdb ent"), "obabel-pdb"),
    "pdbqt": "obabel-pdbqt",
    "cml": "obabel-cml",
}
#: The second line of a MOL block has the minute in which it was written.
VOLATILE = dict.fromkeys(split_words("sdf sd mol mdl"), (r"^ OpenBabel\d{10}",))

#: Letters of ``-x`` that only change how each molecule is written, by output format; tested with each format in
#: ``tests/exact/test_obabel_join.py``.
WRITTEN = {
    **dict.fromkeys(split_words("smi smiles"), "acUIhiknrtxRO"),
    "can": "ahinrt",
    **dict.fromkeys(split_words("inchi inchikey"), "KtwalrsFM"),
    **dict.fromkeys(split_words("sdf sd mol mdl"), "3amwvSAEH"),
    **dict.fromkeys(split_words("mol2 ml2 sy2"), "lcu"),
    **dict.fromkeys(split_words("pdb ent"), "no"),
    "pdbqt": "brcphn",
    "cml": "aA",
}
_COMPARED = {
    "u": "compares each molecule with all before it",
    "U": "compares each molecule with all before it, and orders the whole input",
    "e": "compares each molecule with the first",
}
_DRAWN = {"C": "orders atoms at random, which goes on from molecule to molecule"}
#: Letters of ``-x`` with effects beyond one molecule, by output format.
WHOLE = {
    **dict.fromkeys(split_words("inchi inchikey"), _COMPARED),
    **dict.fromkeys(split_words("smi smiles"), _DRAWN),
    "cml": {"1": "writes CML 1, of which one molecule has another form than several"},
}

#: General options of one letter that change each molecule by itself.
LETTERS = frozenset("bcdehkprsv")
#: Options that keep only some molecules, so that the count cannot be checked.
COUNTLESS = split_words("s v filter")
#: Long options (in lower case) that change each molecule by itself and repeat themselves.
LONG = split_words(
    """add addfilename addnonpolarh addpolarh addtotitle append changecell crit cut delete delnonpolarh
    delpolarh energy ff filluc filter gen2d genalias highlight minimize neutralize newton noh partialcharge
    property rvdw rele sd steps title cg log freq errorlevel"""
)
REFUSED = {
    "f": "chooses molecules by their number in the whole input",
    "l": "chooses molecules by their number in the whole input",
    "m": "numbers its output files through the whole input",
    "z": "makes one gzip stream of the whole output",
    "C": "combines molecules of several inputs",
    "j": "joins all molecules into one",
    "t": "takes all input files for one molecule",
    "join": "joins all molecules into one",
    "unique": "compares each molecule with all before it",
    "sort": "orders the whole input",
    "smallest": "compares all molecules",
    "largest": "compares all molecules",
    "align": "aligns to the first molecule of the whole input",
    "addinindex": "numbers molecules through the whole input",
    "addoutindex": "numbers molecules through the whole input",
    "readconformer": "combines neighbouring molecules",
    "split": "writes a file per molecule under names of its own",
    "0xout": "writes a second file",
    "separate": "makes several molecules of one (and never ends together with -e)",
    "writeconformers": "makes several molecules of one",
    "confab": "writes several conformers and progress with running numbers",
    "canonical": "numbers atoms differently depending on the molecules before it",
    "gen3d": "starts at random, so two serial runs differ, and it takes no seed",
    "conformer": "may search at random",
}
HINTS = {
    "gen3d": "make the 3D molecules once without millrace and keep the file, or, if any conformer will do, "
    "put the command into a script: millrace run --verify 0 --input mols.smi --output mols.sdf -- ./gen3d.sh",
    "z": "compress afterwards: obabel ... -osdf | gzip",
    "sort": "run obabel without it under millrace, then once with it on the result",
    "unique": "run obabel without it under millrace, then once with it on the result",
}
#: The rules of obabel. ``-O`` takes the next argument unless at least 3 letters are attached.
_OPTIONS = OptionTable(
    flags=split_words("m"), values=split_words("i o f l O"), greedy=True, least_attached={"O": 3}, operands=("-:",),
    complaints=OptionErrorTexts(no_value=("{program}: {typed} needs a value", "")),
)  # fmt: skip


class ObabelAdapter:
    """Adapter for ``obabel ligands.mol2 -O ligands.sdf`` and ``obabel -ismi -ocan``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        found = scan_options(command.argv, _OPTIONS, "obabel")
        for word in found:
            _check_option(word)
        names = {word.name for word in found}
        operands = [word for word in found if not word.name]
        tokens = CommandTokens(command.argv)
        typed_in, source = _find_input(found, operands, command, tokens)
        output = _find_output(found, tokens)
        countless = [word.typed for word in found if word.name in COUNTLESS]
        counts = source.format != "files" and "e" not in names
        if counts and countless:
            raise RefusedError(
                f"obabel: with {countless[0]} a molecule that cannot be read ends the serial run unnoticed",
                "add -e, with which obabel goes on behind such a molecule",
            )
        _check_force_field(found)
        if not operands and typed_in == "":
            raise RefusedError("obabel: no input file and no input format", "name the format: -ismi, -isdf, -imol2")
        notes = []
        if counts:
            notes.append("each task must report as many molecules as it got: obabel loses molecules with status 0")
        return ToolUse(
            adapter="obabel",
            still_seconds=STANDSTILL_SECONDS,
            argv=tokens.build_arguments(),
            inputs=(source,),
            outputs=(output,),
            # Measured: 23 ms to start, 0.9 ms a molecule.
            cost=CostHint(unit="records", startup_seconds=0.025),
            env={"OMP_NUM_THREADS": "1"},
            records_said=r"^(\d+) molecules? converted\s*$" if counts else "",
            version=read_version_line(command, "-V"),
            tested=("3.1.1",),
            notes=tuple(notes),
        )


def _check_force_field(found: Sequence[CommandWord]) -> None:
    """Refuse force fields whose results differ between serial runs.

    With MMFF94 some molecules (metformin) get other coordinates in each run; with UFF (erlotinib alone) other energies,
    too.
    """
    names = {word.name.lower() for word in found}
    field = next((word.value for word in reversed(found) if word.name.lower() == "ff"), "MMFF94").upper()
    other = "name another force field: --ff GAFF or Ghemical"
    if field.startswith("MMFF94") and "minimize" in names:
        raise RefusedError(
            "obabel: --minimize with MMFF94, its default, gives some molecules other coordinates in each run", other
        )
    if field == "UFF" and names & {"minimize", "energy", "conformer"}:
        raise RefusedError("obabel: UFF gives some molecules other coordinates and energies in each run", other)


def _check_option(word: CommandWord) -> None:
    """Refuse an option that is not known to treat each molecule by itself."""
    name = word.name if len(word.name) == 1 else word.name.lower()
    if name in ("", "i", "o", "O", "a", "x"):
        return
    if name in ("H", "V", "L", "?", "help"):
        raise RefusedError(f"obabel: {word.typed} only prints information", "run it without millrace")
    if name == "z" and word.typed == "-zin":
        return
    if name in REFUSED:
        raise RefusedError(
            f"obabel: {word.typed} {REFUSED[name]}",
            HINTS.get(name, "leave it out, or run this step without millrace"),
        )
    if name not in LONG and name not in LETTERS:
        raise RefusedError(
            f"obabel: {word.typed} is not known to treat each molecule by itself",
            "leave it out, or run this step without millrace",
        )


def _find_input(
    found: Sequence[CommandWord], operands: Sequence[CommandWord], command: UserCommand, tokens: CommandTokens
) -> tuple[str, InputUse]:
    types = [word.value.lower() for word in found if word.name == "i"]
    typed_in = types[-1] if types else ""
    if not operands:
        return typed_in, InputUse(path="-", format=_get_record_format(typed_in), stdin=True)
    if any(word.value.startswith("-:") for word in operands):
        raise RefusedError("obabel: a molecule in the arguments is one molecule: nothing to spread", "put it in a file")
    names = [word.value for word in operands]
    files = expand_file_records(names, command) if len(names) > 1 or _may_be_several_files(names[0], command) else None
    if files is None:
        if not (command.cwd / names[0]).exists():
            raise RefusedError(f"obabel: {names[0]}: no such file")
        tokens.mark_input(operands[0])
        form = typed_in or _get_extension(names[0])
        return typed_in, InputUse(path=names[0], format=_get_record_format(form))
    if not files:
        raise RefusedError(f"obabel: {names[0]} has no files in it")
    if [word.at for word in operands] != list(range(operands[0].at, operands[0].at + len(operands))):
        raise RefusedError(
            "obabel: options stand between the input files", "put all input files together, then the options"
        )
    for word in operands[1:]:
        tokens.drop_option(word)
    tokens.mark_input(operands[0])
    return typed_in, InputUse(path=join_names(names), format="files")


def _may_be_several_files(name: str, command: UserCommand) -> bool:
    return (command.cwd / name).is_dir() or not (command.cwd / name).exists()


def _get_extension(name: str) -> str:
    path = Path(name)
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lstrip(".").lower()


def _get_record_format(form: str) -> str:
    if form not in RECORDS:
        raise RefusedError(
            f"obabel: an input of format '{form}' cannot be cut into molecules",
            f"give several files, or one of: {', '.join(sorted(RECORDS))}",
        )
    return RECORDS[form]


def _find_output(found: Sequence[CommandWord], tokens: CommandTokens) -> OutputUse:
    types = [word.value.lower() for word in found if word.name == "o"]
    files = [word for word in found if word.name == "O"]
    path = files[-1].value if files else "-"
    form = types[-1] if types else _get_extension(path)
    if path.endswith(".gz"):
        raise RefusedError("obabel: a .gz output is one gzip stream of the whole output", HINTS["z"])
    for word in found:
        if word.name == "x":
            _check_write_letters(word.typed.removeprefix("-x"), form)
    if form not in JOINS:
        raise RefusedError(
            f"obabel: output format '{form}' is not known to be joined exactly",
            f"what can be: {', '.join(sorted(JOINS))}",
        )
    volatile = VOLATILE.get(form, ())
    if not files:
        return OutputUse(name="stdout", path="-", stdout=True, join=JOINS[form], volatile=volatile)
    tokens.mark_output(files[-1], 0)
    return OutputUse(name="out", path=path, join=JOINS[form], volatile=volatile)


def _check_write_letters(letters: str, form: str) -> None:
    """Refuse letters of ``-x`` that have effects beyond one molecule."""
    for letter in letters:
        if letter not in WRITTEN.get(form, ""):
            why = WHOLE.get(form, {}).get(letter, f"is not known to treat each molecule of format '{form}' by itself")
            raise RefusedError(f"obabel: -x{letter} {why}", "leave it out, or run this step without millrace")


ADAPTER = ObabelAdapter()
