"""Working folders for Vina and DOCK 6, and the stand-in of the latter."""

from __future__ import annotations

import shutil
from pathlib import Path

#: DOCK itself is licensed.
STAND_IN_DOCK6 = Path(__file__).with_name("stand_in_dock6")
DOCK_IN = """conformer_search_type   flex
ligand_atom_file        lib/ligands.mol2
receptor_site_file      spheres.sph
grid_score_grid_prefix  grid
write_orientations      yes
rank_ligands            no
ligand_outfile_prefix   out
"""

BOX = """center_x = 15.19
center_y = 53.903
center_z = 16.917
size_x = 10
size_y = 10
size_z = 10
exhaustiveness = 1
max_evals = 500
"""
#: 3D molecules are made from SMILES at random, so these were made once: water-like, small and quick to dock.
LIGANDS = {
    "methanol": "C 0.000 0.000 0.000|O 1.400 0.000 0.000",
    "glycol": "C 0.000 0.000 0.000|C 1.520 0.000 0.000|O 2.030 1.340 0.000",
    "acetone": "C 0.000 0.000 0.000|C 1.510 0.000 0.000|O 2.130 1.050 0.000|C 2.260 -1.300 0.000",
}


def make_dock6_folder(data: Path, folder: Path) -> None:
    """Put a library, a parameter file and what it names into ``folder``."""
    (folder / "lib").mkdir()
    shutil.copyfile(data / "ligands.mol2", folder / "lib" / "ligands.mol2")
    for name in ("spheres.sph", "grid.nrg", "grid.bmp"):
        (folder / name).write_text("x")
    (folder / "dock.in").write_text(DOCK_IN)


def format_pdbqt(atoms: str) -> str:
    lines = ["ROOT"]
    for number, atom in enumerate(atoms.split("|"), 1):
        element, x, y, z = atom.split()
        kind = "OA" if element == "O" else element
        lines.append(
            f"ATOM  {number:5d}  {element:<3s} LIG A   1    {float(x):8.3f}{float(y):8.3f}{float(z):8.3f}"
            f"  1.00  0.00    +0.000 {kind:<2s}"
        )
    return "\n".join([*lines, "ENDROOT", "TORSDOF 0", ""])


def make_vina_folder(data: Path, folder: Path) -> None:
    """Put a receptor, a box and three ligands into ``folder``."""
    shutil.copy(data / "1iep_receptor.pdbqt", folder / "r.pdbqt")
    (folder / "box.txt").write_text(BOX)
    (folder / "ligands").mkdir()
    for name, atoms in LIGANDS.items():
        (folder / "ligands" / f"{name}.pdbqt").write_text(format_pdbqt(atoms))
