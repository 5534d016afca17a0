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

from millrace.errors import RefusedError
from millrace.model import (
    STANDSTILL_SECONDS,
    Command,
    CostHint,
    InputArg,
    InputUse,
    OutputArg,
    OutputUse,
    Token,
    ToolUse,
)
from millrace.tools.base import file_records, join_names, record_output
from millrace.tools.options import Options, Tokens, Word, once, scan, words
from millrace.tools.version import first_line

OPTIONS = Options(
    equals=True,
    flags=words(
        """score_only local_only no_refine randomize_only autobox force_even_voxels help help_advanced version
        keep_nonpolar_hydrogens"""
    ),
    values=words(
        """receptor flex scoring center_x center_y center_z size_x size_y size_z out dir write_maps cpu seed
        exhaustiveness max_evals num_modes min_rmsd energy_range spacing verbosity config maps weight_gauss1
        weight_gauss2 weight_repulsion weight_hydrophobic weight_hydrogen weight_rot weight_vinardo_gauss1
        weight_vinardo_repulsion weight_vinardo_hydrophobic weight_vinardo_hydrogen weight_vinardo_rot
        weight_ad4_vdw weight_ad4_hb weight_ad4_elec weight_ad4_dsolv weight_ad4_rot weight_glue"""
    ),
    many=words("ligand batch"),
)


class Settings:
    """Options from the arguments and the configuration file; arguments take precedence, as in Vina."""

    def __init__(self, command: Command) -> None:
        self.words = scan(command.argv, OPTIONS, "vina")
        for word in self.words:
            if not word.name:
                raise RefusedError(f"vina: '{word.typed}' stands alone", "name ligands with --ligand or --batch")
            if word.name in ("help", "help_advanced", "version"):
                raise RefusedError(f"vina: {word.typed} only prints information", "run it without millrace")
        config = self.word("config")
        self.config = _read_config(config.value, command) if config else {}

    def word(self, name: str) -> Word | None:
        """Return the word of an option in the arguments; None: it is not there."""
        return once(self.words, name, "vina")

    def all(self, name: str) -> tuple[str, ...]:
        """Return the values of an option, from arguments or file; empty: it is not set."""
        word = self.word(name)
        if word is not None:
            return word.values or ("true",)
        return self.config.get(name, ())

    def one(self, name: str) -> str:
        """Return the value of an option, from arguments or file; empty: it is not set.

        Raises:
            RefusedError: It has several values.
        """
        values = self.all(name)
        if len(values) > 1:
            raise RefusedError(f"vina: {name} is given twice", "give it once")
        return values[0] if values else ""

    def whole(self, name: str) -> int:
        """Return the value of an option as an integer; 0 if it is not set, as in Vina.

        Raises:
            RefusedError: It is not an integer.
        """
        text = self.one(name)
        try:
            return int(text or "0")
        except ValueError:
            raise RefusedError(f"vina: {name} needs a whole number, found '{text}'") from None

    def on(self, name: str) -> bool:
        """Tell whether a switch is on."""
        return self.one(name).lower() in ("true", "1", "yes", "on")


def _read_config(name: str, command: Command) -> dict[str, tuple[str, ...]]:
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


class Vina:
    """``vina --receptor r.pdbqt --ligand ligands/ --out docked/ --config box.txt --seed 1``, ``--batch``."""

    def understand(self, command: Command) -> ToolUse:
        """See ``Adapter.understand``."""
        settings = Settings(command)
        _check(settings)
        tokens = Tokens(command.argv)
        by_batch = bool(settings.all("batch"))
        name = "batch" if by_batch else "ligand"
        typed, files = _ligands(settings, name, command)
        added: list[Token] = []
        _place(settings.word(name), f"--{name}", InputArg(index=0), tokens, added)
        outputs: list[OutputUse] = []
        if not settings.on("score_only"):
            outputs.append(_results(settings, by_batch, files, command))
            option = "dir" if by_batch else "out"
            _place(settings.word(option), f"--{option}", OutputArg(index=0), tokens, added)
        cpu = settings.whole("cpu")
        notes = [f"--seed {settings.one('seed')}: a ligand's poses do not depend on the others"]
        if cpu <= 0:
            word = settings.word("cpu")
            if word is not None:
                tokens.drop(word)
            added += ["--cpu", "1"]
            notes.append("--cpu 1 is given to each task: the poses are the same for any number of threads")
        tokens.append(*added)
        join = _log_join(by_batch, len(files), cpu, settings)
        outputs.append(OutputUse(name="stdout", path="-", stdout=True, join=join))
        return ToolUse(
            adapter="vina",
            still_seconds=STANDSTILL_SECONDS,
            argv=tokens.done(),
            inputs=(InputUse(path=join_names(typed), format="files"),),
            outputs=tuple(outputs),
            databases=_shared(settings, command),
            threads=max(1, cpu),
            # Measured: 0.7 to 1.4 s for receptor and maps.
            cost=CostHint(unit="bytes", startup_seconds=1.0, max_records=0 if by_batch else 1),
            version=first_line(command, "--version"),
            tested=("1.2.3",),
            notes=tuple(notes),
        )


def _place(word: Word | None, option: str, place: InputArg | OutputArg, tokens: Tokens, added: list[Token]) -> None:
    """Mark the option in the arguments; add one from the configuration file, which arguments override."""
    if word is None:
        added += [option, place]
    elif isinstance(place, InputArg):
        tokens.input(word, place.index)
    else:
        tokens.output(word, place.index)


def _check(settings: Settings) -> None:
    if settings.one("write_maps"):
        raise RefusedError(
            "vina: --write_maps writes the same files in every task",
            "write the maps once, then dock with --maps PREFIX",
        )
    steady = settings.on("score_only") or settings.on("local_only")
    if not steady and settings.whole("seed") == 0:
        raise RefusedError(
            "vina: without a seed the search starts at random, so two serial runs differ",
            "add --seed N with any N but 0, and use the same N in the serial run",
        )
    if settings.all("batch") and settings.whole("verbosity") > 1:
        raise RefusedError(
            "vina: --verbosity 2 prints energies of the first ligand of a --batch with fewer digits",
            "leave it at 1, or use --ligand FOLDER",
        )
    if settings.all("batch") and settings.all("ligand"):
        raise RefusedError("vina: --ligand and --batch exclude each other", "use one of them")
    if settings.all("batch") and (steady or settings.on("randomize_only")):
        raise RefusedError("vina: --batch is for docking alone", "use --ligand FOLDER with --score_only and the like")


def _ligands(settings: Settings, name: str, command: Command) -> tuple[Sequence[str], Sequence[str]]:
    """Return the ligands as typed, and their files.

    Raises:
        RefusedError: There are none, or they would not be docked one by one.
    """
    typed = settings.all(name)
    if not typed:
        raise RefusedError("vina: no ligands", "name them: --ligand FOLDER --out FOLDER, or --batch FILES --dir FOLDER")
    if name == "ligand" and len(typed) > 1:
        raise RefusedError(
            f"vina: --ligand with {len(typed)} files docks them together, as one",
            "to dock each by itself: --batch FILES --dir FOLDER, or --ligand FOLDER, or a glob in quotes",
        )
    files = file_records(typed, command)
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


def _results(settings: Settings, by_batch: bool, files: Sequence[str], command: Command) -> OutputUse:
    if not by_batch:
        out = settings.one("out")
        if not out:
            raise RefusedError(
                "vina: no --out; the poses would be written beside the ligands",
                "name a folder for them: --out docked/",
            )
        return record_output("out", out, files, command)
    folder = settings.one("dir")
    if not folder:
        raise RefusedError("vina: --batch needs --dir", "name a folder for the poses: --dir docked/")
    stems: dict[str, str] = {}
    for file in files:
        stem = Path(file).stem
        if stem in stems:
            raise RefusedError(f"{stems[stem]} and {file} would both be written to {stem}_out.pdbqt", "rename one")
        stems[stem] = file
    return OutputUse(name="dir", path=folder, layout="directory")


def _log_join(by_batch: bool, n_ligands: int, cpu: int, settings: Settings) -> str:
    quiet = settings.one("verbosity") == "0"
    if settings.on("score_only"):
        # The end of its head is unknown; nothing has to be changed if the user sets the threads.
        parts = [f"cpu={cpu}"] if cpu <= 0 else []
    else:
        parts = [f"n={n_ligands}"] if by_batch else []
        parts += [f"cpu={cpu}"] if cpu <= 0 and not quiet else []
    if not parts:
        return "concat"
    return "vina-log:" + ",".join([*parts, *(["quiet"] if quiet else [])])


def _shared(settings: Settings, command: Command) -> tuple[Path, ...]:
    names = [settings.one(option) for option in ("receptor", "flex", "config")]
    found = [command.cwd / name for name in names if name]
    for path in found:
        if not path.is_file():
            raise RefusedError(f"vina: {path.name}: no such file")
    maps = settings.one("maps")
    if maps:
        prefix = command.cwd / maps
        found += sorted(prefix.parent.glob(f"{prefix.name}*.map"))
    return tuple(found)


ADAPTER = Vina()
