"""Files that are slightly irregular, and valid: blank lines, trailing blanks, other line ends, comments, missing ends."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable

Choose = random.Random


def line_ends(choose: Choose, text: str) -> bytes:
    """With the line ends of another system, or without the last one."""
    if choose.random() < 0.3:
        text = text.replace("\n", "\r\n")
    if choose.random() < 0.3:
        text = text.rstrip("\r\n") if choose.random() < 0.5 else text.removesuffix("\n")
    return text.encode()


def blanks(choose: Choose) -> str:
    return choose.choice(["", "", "", " ", "\t", "   "])


def gaps(choose: Choose) -> str:
    return choose.choice(["", "", "", "\n", " \n", "\n\n", "\t\n"])


def sequence(choose: Choose, letters: str) -> str:
    return "".join(choose.choices(letters, k=choose.randrange(60, 200)))


def wrapped(choose: Choose, text: str) -> str:
    width = choose.choice([20, 60, 70, 1000])
    lines = [text[at : at + width] for at in range(0, len(text), width)]
    return "".join(f"{line}{blanks(choose)}\n{'' if choose.random() < 0.9 else gaps(choose)}" for line in lines)


def fasta(choose: Choose, letters: str) -> str:
    found = gaps(choose)
    for each in range(choose.randrange(2, 5)):
        name = choose.choice([f"s{each}", f"s{each} some words", f"s{each}\tx >y", f"s{each}|a;b"])
        text = sequence(choose, letters)
        text = text.lower() if choose.random() < 0.2 else text
        found += f">{name}{blanks(choose)}\n{wrapped(choose, text)}{gaps(choose)}"
    return found


def fastq(choose: Choose, letters: str) -> str:
    found = ""
    for each in range(choose.randrange(2, 5)):
        text = sequence(choose, letters)
        quality = "".join(choose.choices("@+I#>5", k=len(text)))
        plus = choose.choice(["", f"r{each}"])
        found += f"@r{each}{choose.choice(['', ' x', '/1'])}\n{text}\n+{plus}\n{quality}\n"
    return found + gaps(choose)


ATOMS = ("C", "N", "O")


def sdf(choose: Choose, _: str) -> str:
    found = ""
    for each in range(choose.randrange(2, 5)):
        title = choose.choice([f"m{each}", f"m{each} <x>", "", "$ m"])
        atoms = "".join(f"{x:10.4f}{0:10.4f}{0:10.4f} {atom:<3} 0  0  0  0\n" for x, atom in enumerate(ATOMS))
        bonds = "  1  2  1  0\n  2  3  1  0\n"
        found += f"{title}\n  made\n{choose.choice(['', 'a remark'])}\n  3  2  0  0  0  0  0  0  0  0999 V2000\n{atoms}{bonds}M  END{blanks(choose)}\n"
        for item in range(choose.randrange(3)):
            value = choose.choice(["1", "two\nlines", "a < b", "", "> 3", "$$ 5"])
            end = choose.choice(["\n", "\n", " \n", "\t\n", "\n\n", ""])
            found += f">  <K{item}>{choose.choice(['', ' (1)'])}\n{value}\n{end}"
        found += f"$$$${blanks(choose)}\n"
    return found


def mol2(choose: Choose, _: str) -> str:
    found = choose.choice(["", "# made by hand\n", "\n"])
    for each in range(choose.randrange(2, 5)):
        found += choose.choice(["", "", "########## Name: x\n", "# a comment\n\n"])
        atoms = "".join(
            f" {at + 1} {atom}{at} {1.4 * at:.4f} 0.0 0.0 {atom}.3 1 LIG 0.0\n" for at, atom in enumerate("CNO")
        )
        found += (
            f"@<TRIPOS>MOLECULE{blanks(choose)}\nm{each}\n 3 2 1 0 0\nSMALL\nNO_CHARGES\n{gaps(choose)}"
            f"@<TRIPOS>ATOM\n{atoms}@<TRIPOS>BOND\n 1 1 2 1\n 2 2 3 1\n{gaps(choose)}"
        )
    return found


def smiles(choose: Choose, _: str) -> str:
    found = ""
    for each in range(choose.randrange(2, 7)):
        line = choose.choice(["CCO", "c1ccccc1", "CC(=O)O", "[NH4+].[Cl-]"])
        found += line + choose.choice(["", f" m{each}", f"\tm{each}", f" m{each} more\twords", " ", "\t"]) + "\n"
        found += choose.choice(["", "", "", "", "# a comment\n", "\n" if choose.random() < 0.2 else ""])
    return found


def profiles(choose: Choose, model: str) -> str:
    return "".join(model.replace("NAME  m", f"NAME  m{each}") + gaps(choose) for each in range(choose.randrange(2, 4)))


def text_lines(choose: Choose, _: str) -> str:
    return "".join(
        choose.choice(["a b", "", " ", "# c", "\tx", "d,e", "\x0b"]) + "\n" for _ in range(choose.randrange(1, 7))
    )


GENERATORS: dict[str, Callable[[Choose, str], str]] = {
    "fasta": fasta, "fastq": fastq, "sdf": sdf, "mol2": mol2, "smiles": smiles, "hmm": profiles, "lines": text_lines,
}  # fmt: skip


def make(form: str, seed: int, letters: str, *, packed: bool = False) -> bytes:
    """A file of that format; ``packed``: as gzip of one or several members."""
    choose = random.Random(f"{form} {seed}")
    data = line_ends(choose, GENERATORS[form](choose, letters))
    if not packed:
        return data
    cuts = sorted(choose.randrange(len(data) + 1) for _ in range(choose.randrange(3)))
    parts = [data[first:last] for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return b"".join(gzip.compress(part, 1, mtime=0) for part in parts)
