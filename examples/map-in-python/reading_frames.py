"""Print the length of the longest open reading frame of each contig."""

import random
import re
import sys
from collections.abc import Iterator

import millrace

FRAME = re.compile(r"(?=(ATG(?:...)*?(?:TAA|TAG|TGA)))")


def measure_frame(contig: tuple[str, str]) -> tuple[str, int]:
    """Return the name of a contig, and the codons of its longest reading frame."""
    name, letters = contig
    return name, max((len(found[1]) // 3 for found in FRAME.finditer(letters)), default=0)


def make_contigs(n_contigs: int) -> Iterator[tuple[str, str]]:
    """Yield (name, letters) of made-up contigs, always the same ones."""
    chance = random.Random(7)
    for number in range(n_contigs):
        yield f"contig{number}", "".join(chance.choices("ACGT", k=chance.randrange(500, 5000)))


if __name__ == "__main__":
    apply = millrace.map if sys.argv[1] == "millrace" else map
    for name, n_codons in apply(measure_frame, make_contigs(400)):
        print(name, n_codons, sep="\t")
