"""DOCK 6: molecules docked one after another, by a parameter file.

*Exactness.* DOCK 6 is licensed, so this was tested with a stand-in that reads ``dock.in`` and writes the
files that the manual names (``tests/exact/test_dock6_join.py``), never with DOCK itself. Each batch is a
MOL2 file of the same relative name in the task's own directory, so ``dock.in`` is used unchanged. Ranking
compares all molecules and is refused; the log has times and totals and is not promised to be the serial
one.
"""

from __future__ import annotations

from pathlib import Path

from millrace.adapters.option_reader import CommandTokens, OptionTable, find_only_use, scan_options, split_words
from millrace.core.errors import RefusedError
from millrace.core.tool_use import STANDSTILL_SECONDS, CostHint, InputUse, OutputUse, ToolUse, UserCommand

OPTIONS = OptionTable(flags=split_words("v verbose help"), values=split_words("i o"))
#: Files that DOCK writes for each prefix, and the parameter that enables each (empty: always written).
OUTPUTS = {"scored": "", "conformers": "write_conformations", "orients": "write_orientations"}
#: Parameters that depend on other molecules: the accepted value, and the reason to refuse others.
ACROSS = {
    "rank_ligands": ("no", "orders all molecules by their score"),
    "limit_max_ligands": ("no", "counts molecules through the whole input"),
    "skip_molecule": ("no", "counts molecules through the whole input"),
}


class Dock6Adapter:
    """``dock6 -i dock.in -o dock.out``."""

    def understand_command(self, command: UserCommand) -> ToolUse:
        """See ``ToolAdapter.understand_command``."""
        found = scan_options(command.argv, OPTIONS, "dock6")
        source, log = find_only_use(found, "i", "dock6"), find_only_use(found, "o", "dock6")
        if source is None:
            raise RefusedError("dock6: no parameter file", "name it with -i dock.in")
        parameters = read_parameters(source.value, command)
        for name, (fine, why) in ACROSS.items():
            if parameters.get(name, fine).lower() != fine:
                raise RefusedError(
                    f"{source.value}: {name} {parameters[name]}: {why}",
                    f"set {name} to {fine}; the scores are in the scored file, and can be sorted afterwards",
                )
        ligands = _require_relative_path(parameters, "ligand_atom_file", source.value)
        prefix = _require_relative_path(parameters, "ligand_outfile_prefix", source.value)
        if not (command.cwd / ligands).is_file():
            raise RefusedError(f"{source.value}: ligand_atom_file {ligands}: no such file")
        outputs = [
            # A batch without any pose writes no file.
            OutputUse(name=name, path=f"{prefix}_{name}.mol2", optional=True)
            for name, asked_by in OUTPUTS.items()
            if not asked_by
            or parameters.get(asked_by, "no").lower() == "yes"
            or (name == "conformers" and parameters.get("num_scored_conformers", "1") not in ("0", "1"))
        ]
        tokens = CommandTokens(command.argv)
        # The log has times and totals of each batch, so none of it is promised to equal the serial log.
        volatile = (r"^.*\n?",)
        if log is not None:
            tokens.mark_output(log, len(outputs))
            outputs.append(OutputUse(name="log", path=log.value, volatile=volatile, optional=True))
        outputs.append(OutputUse(name="stdout", path="-", stdout=True, volatile=volatile))
        return ToolUse(
            adapter="dock6",
            still_seconds=STANDSTILL_SECONDS,
            argv=tokens.build_arguments(),
            # In no argument: dock.in names it, so each task finds its batch at this relative path.
            inputs=(InputUse(path=ligands, format="mol2"),),
            outputs=tuple(outputs),
            databases=_list_shared_files(source.value, parameters, ligands, command),
            cost=CostHint(unit="bytes", startup_seconds=1.0),
            notes=(
                f"{source.value} is used as it is: each task has its molecules in {ligands}",
                "warning: tested with a stand-in only; compare a small run with serial DOCK 6 first",
                "warning: the log is that of each batch, one after another, with times and totals of batches",
            ),
        )


def read_parameters(name: str, command: UserCommand) -> dict[str, str]:
    """Read the parameters of a ``dock.in``: a name, blanks and a value on each line.

    Raises:
        RefusedError: It cannot be read.
    """
    try:
        lines = (command.cwd / name).read_text(errors="replace").splitlines()
    except OSError as error:
        raise RefusedError(f"dock6: -i {name}: cannot be read ({error.strerror})") from error
    pairs = (line.split(None, 1) for line in lines if not line.lstrip().startswith("#"))
    return {pair[0]: pair[1].strip() if len(pair) > 1 else "" for pair in pairs if pair}


def _require_relative_path(parameters: dict[str, str], key: str, name: str) -> str:
    value = parameters.get(key, "")
    if not value:
        raise RefusedError(f"{name}: no {key}", "add it: dock6 would ask for it on the terminal")
    if Path(value).is_absolute():
        raise RefusedError(
            f"{name}: {key} {value} is an absolute path, which is the same for every task",
            "write it relative to the folder in which the command runs",
        )
    return value


def _list_shared_files(source: str, parameters: dict[str, str], ligands: str, command: UserCommand) -> tuple[Path, ...]:
    names = [
        source,
        *(value for key, value in parameters.items() if value != ligands and not key.endswith("prefix")),
    ]
    found = [command.cwd / name for name in names if name and (command.cwd / name).is_file()]
    for key, value in parameters.items():
        if key.endswith("grid_prefix") and value:
            grid = command.cwd / value
            found += sorted(path for path in grid.parent.glob(f"{grid.name}.*") if path.is_file())
    return tuple(found)


ADAPTER = Dock6Adapter()
