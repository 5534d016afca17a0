"""AutoDock Vina: one docking per ligand.

*Exactness.* With ``--seed N`` each ligand's poses are the same alone, in a ``--batch`` of any company, and
for any ``--cpu`` (``tests/exact/test_vina_join.py``), so batches of ligands add up to the serial run.
Without a seed two serial runs differ, and the command is refused. The log of ``--batch`` has one head,
which names the number of ligands (``crates/millrace-core/src/join/vina.rs``); logs of ``--ligand`` runs
follow one another, as in ``for l in ligands/*; do vina --ligand $l ...; done``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from millrace.adapters.adapter_base import describe_record_output, expand_file_records, join_names
from millrace.adapters.option_reader import (
    CommandTokens,
    CommandWord,
    OptionTable,
    find_only_use,
    scan_options,
    split_words,
)
from millrace.adapters.program_identity import read_version_line
from millrace.core.errors import RefusedError
from millrace.core.tool_use import (
    STANDSTILL_SECONDS,
    ArgumentToken,
    CostHint,
    InputArg,
    InputUse,
    OutputArg,
    OutputUse,
    ToolUse,
    UserCommand,
)

OPTIONS = OptionTable(
    equals=True,
    flags=split_words(
        """score_only local_only no_refine randomize_only autobox force_even_voxels help help_advanced version
        keep_nonpolar_hydrogens"""
    ),
    values=split_words(
        """receptor flex scoring center_x center_y center_z size_x size_y size_z out dir write_maps cpu seed
        exhaustiveness max_evals num_modes min_rmsd energy_range spacing verbosity config maps weight_gauss1
        weight_gauss2 weight_repulsion weight_hydrophobic weight_hydrogen weight_rot weight_vinardo_gauss1
        weight_vinardo_repulsion weight_vinardo_hydrophobic weight_vinardo_hydrogen weight_vinardo_rot
        weight_ad4_vdw weight_ad4_hb weight_ad4_elec weight_ad4_dsolv weight_ad4_rot weight_glue"""
    ),
    many=split_words("ligand batch"),
)


class VinaSettings:
    """Options from the arguments and the configuration file; arguments take precedence, as in Vina."""

    def __init__(self, command: UserCommand) -> None:
        self.words = scan_options(command.argv, OPTIONS, "vina")
        for word in self.words:
            if not word.name:
                raise RefusedError(f"vina: '{word.typed}' stands alone", "name ligands with --ligand or --batch")
            if word.name in ("help", "help_advanced", "version"):
                raise RefusedError(f"vina: {word.typed} only prints information", "run it without millrace")
        config = self.find_word("config")
        self.config = _read_vina_config(config.value, command) if config else {}

    def find_word(self, name: str) -> CommandWord | None:
        """Return the word of an option in the arguments; None: it is not there."""
        return find_only_use(self.words, name, "vina")

    def list_values(self, name: str) -> tuple[str, ...]:
        """Return the values of an option, from arguments or file; empty: it is not set."""
        word = self.find_word(name)
        if word is not None:
            return word.values or ("true",)
        return self.config.get(name, ())

    def read_value(self, name: str) -> str:
        """Return the value of an option, from arguments or file; empty: it is not set.

        Raises:
            RefusedError: It has several values.
        """
        values = self.list_values(name)
        if len(values) > 1:
            raise RefusedError(f"vina: {name} is given twice", "give it once")
        return values[0] if values else ""

    def read_whole_number(self, name: str) -> int:
        """Return the value of an option as an integer; 0 if it is not set, as in Vina.

        Raises:
            RefusedError: It is not an integer.
        """
        text = self.read_value(name)
        try:
            return int(text or "0")
        except ValueError:
            raise RefusedError(f"vina: {name} needs a whole number, found '{text}'") from None

    def is_on(self, name: str) -> bool:
        """Tell whether a switch is on."""
        return self.read_value(name).lower() in ("true", "1", "yes", "on")


def _read_vina_config(name: str, command: UserCommand) -> dict[str, tuple[str, ...]]:
    try:
        text = (command.cwd / name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(f"vina: --config {name}: cannot be read ({error})") from error
    found: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.partition("#")[0].strip()
        if not bare:
            continue
        key, equal, value = (part.strip() for part in bare.partition("="))
        if not equal or key not in OPTIONS.flags | OPTIONS.values | OPTIONS.many:
            raise RefusedError(f"{name}:{number}: expected 'option = value', found '{bare}'")
        found[key] = (*found.get(key, ()), value)
    return found


class VinaAdapter:
    """``vina --receptor r.pdbqt --ligand ligands/ --out docked/ --config box.txt --seed 1``, ``--batch``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        settings = VinaSettings(command)
        _check_settings(settings)
        tokens = CommandTokens(command.argv)
        by_batch = bool(settings.list_values("batch"))
        name = "batch" if by_batch else "ligand"
        typed, files = _find_ligands(settings, name, command)
        added: list[ArgumentToken] = []
        _mark_place(settings.find_word(name), f"--{name}", InputArg(index=0), tokens, added)
        outputs: list[OutputUse] = []
        if not settings.is_on("score_only"):
            outputs.append(_build_results(settings, by_batch, files, command))
            option = "dir" if by_batch else "out"
            _mark_place(settings.find_word(option), f"--{option}", OutputArg(index=0), tokens, added)
        cpu = settings.read_whole_number("cpu")
        notes = [f"--seed {settings.read_value('seed')}: a ligand's poses do not depend on the others"]
        if cpu <= 0:
            word = settings.find_word("cpu")
            if word is not None:
                tokens.drop_option(word)
            added += ["--cpu", "1"]
            notes.append("--cpu 1 is given to each task: the poses are the same for any number of threads")
        tokens.append(*added)
        join = _choose_log_join(by_batch, len(files), cpu, settings)
        outputs.append(OutputUse(name="stdout", path="-", stdout=True, join=join))
        return ToolUse(
            adapter="vina",
            still_seconds=STANDSTILL_SECONDS,
            argv=tokens.build_arguments(),
            inputs=(InputUse(path=join_names(typed), format="files"),),
            outputs=tuple(outputs),
            databases=_list_shared_files(settings, command),
            threads=max(1, cpu),
            # Measured: 0.7 to 1.4 s for receptor and maps.
            cost=CostHint(unit="bytes", startup_seconds=1.0, max_records=0 if by_batch else 1),
            version=read_version_line(command, "--version"),
            tested=("1.2.3",),
            notes=tuple(notes),
        )


def _mark_place(
    word: CommandWord | None,
    option: str,
    place: InputArg | OutputArg,
    tokens: CommandTokens,
    added: list[ArgumentToken],
) -> None:
    """Mark the option in the arguments; add one from the configuration file, which arguments override."""
    if word is None:
        added += [option, place]
    elif isinstance(place, InputArg):
        tokens.mark_input(word, place.index)
    else:
        tokens.mark_output(word, place.index)


def _check_settings(settings: VinaSettings) -> None:
    if settings.read_value("write_maps"):
        raise RefusedError(
            "vina: --write_maps writes the same files in every task",
            "write the maps once, then dock with --maps PREFIX",
        )
    steady = settings.is_on("score_only") or settings.is_on("local_only")
    if not steady and settings.read_whole_number("seed") == 0:
        raise RefusedError(
            "vina: without a seed the search starts at random, so two serial runs differ",
            "add --seed N with any N but 0, and use the same N in the serial run",
        )
    if settings.list_values("batch") and settings.read_whole_number("verbosity") > 1:
        raise RefusedError(
            "vina: --verbosity 2 prints energies of the first ligand of a --batch with fewer digits",
            "leave it at 1, or use --ligand FOLDER",
        )
    if settings.list_values("batch") and settings.list_values("ligand"):
        raise RefusedError("vina: --ligand and --batch exclude each other", "use one of them")
    if settings.list_values("batch") and (steady or settings.is_on("randomize_only")):
        raise RefusedError("vina: --batch is for docking alone", "use --ligand FOLDER with --score_only and the like")


def _find_ligands(settings: VinaSettings, name: str, command: UserCommand) -> tuple[Sequence[str], Sequence[str]]:
    """Return the ligands as typed, and their files.

    Raises:
        RefusedError: There are none, or they would not be docked one by one.
    """
    typed = settings.list_values(name)
    if not typed:
        raise RefusedError("vina: no ligands", "name them: --ligand FOLDER --out FOLDER, or --batch FILES --dir FOLDER")
    if name == "ligand" and len(typed) > 1:
        raise RefusedError(
            f"vina: --ligand with {len(typed)} files docks them together, as one",
            "to dock each by itself: --batch FILES --dir FOLDER, or --ligand FOLDER, or a glob in quotes",
        )
    files = expand_file_records(typed, command)
    if files is None:
        if not (command.cwd / typed[0]).exists():
            raise RefusedError(f"vina: {typed[0]}: no such file")
        if name == "ligand":
            raise RefusedError(
                f"vina: {typed[0]} is one ligand: nothing to spread",
                "give a folder, a glob in quotes, or a file with the names of ligands",
            )
        files = list(typed)
    if not files:
        raise RefusedError(f"vina: {typed[0]} has no files in it")
    return typed, files


def _build_results(settings: VinaSettings, by_batch: bool, files: Sequence[str], command: UserCommand) -> OutputUse:
    if not by_batch:
        out = settings.read_value("out")
        if not out:
            raise RefusedError(
                "vina: no --out; the poses would be written beside the ligands",
                "name a folder for them: --out docked/",
            )
        return describe_record_output("out", out, files, command)
    folder = settings.read_value("dir")
    if not folder:
        raise RefusedError("vina: --batch needs --dir", "name a folder for the poses: --dir docked/")
    stems: dict[str, str] = {}
    for file in files:
        stem = Path(file).stem
        if stem in stems:
            raise RefusedError(f"{stems[stem]} and {file} would both be written to {stem}_out.pdbqt", "rename one")
        stems[stem] = file
    return OutputUse(name="dir", path=folder, layout="directory")


def _choose_log_join(by_batch: bool, n_ligands: int, cpu: int, settings: VinaSettings) -> str:
    quiet = settings.read_value("verbosity") == "0"
    if settings.is_on("score_only"):
        # The end of its head is unknown; nothing has to be changed if the user sets the threads.
        parts = [f"cpu={cpu}"] if cpu <= 0 else []
    else:
        parts = [f"n={n_ligands}"] if by_batch else []
        parts += [f"cpu={cpu}"] if cpu <= 0 and not quiet else []
    if not parts:
        return "concat"
    return "vina-log:" + ",".join([*parts, *(["quiet"] if quiet else [])])


def _list_shared_files(settings: VinaSettings, command: UserCommand) -> tuple[Path, ...]:
    names = [settings.read_value(option) for option in ("receptor", "flex", "config")]
    found = [command.cwd / name for name in names if name]
    for path in found:
        if not path.is_file():
            raise RefusedError(f"vina: {path.name}: no such file")
    maps = settings.read_value("maps")
    if maps:
        prefix = command.cwd / maps
        found += sorted(prefix.parent.glob(f"{prefix.name}*.map"))
    return tuple(found)


ADAPTER = VinaAdapter()
