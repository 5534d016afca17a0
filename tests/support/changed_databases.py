"""Made-up databases, and changes of them such as months bring: entries added, removed, changed, copied, in another order."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

#: Letters of each kind of sequence, and how often relatives differ from each other.
ALPHABETS = {"prot": "ACDEFGHIKLMNPQRSTVWY", "nucl": "ACGT"}
RATES = {"prot": (0.2, 0.75), "nucl": (0.02, 0.2)}

#: What may happen to a database.
CHANGES = ("add", "remove", "change", "copy", "shuffle", "volumes", "ids", "none")

#: One codon of each amino acid.
CODONS = dict(
    zip(
        ALPHABETS["prot"],
        [
            "GCT",
            "TGC",
            "GAT",
            "GAA",
            "TTC",
            "GGC",
            "CAT",
            "ATC",
            "AAA",
            "CTG",
            "ATG",
            "AAC",
            "CCG",
            "CAG",
            "CGT",
            "TCC",
            "ACC",
            "GTG",
            "TGG",
            "TAC",
        ],
        strict=True,
    )
)


class SequenceMaker:
    """Sequences of one kind, many of them relatives of a few ancestors, which may be given."""

    def __init__(self, seed: int, kind: str = "prot", families: int = 12, ancestors: Sequence[str] = ()) -> None:
        self.random, self.kind = random.Random(seed), kind
        self._ancestors = ancestors or [self._make_random(self.random.randint(80, 300)) for _ in range(families)]

    def _make_random(self, length: int) -> str:
        return "".join(self.random.choices(ALPHABETS[self.kind], k=length))

    def make_relative(self) -> str:
        """Make a sequence with a random distance from an ancestor."""
        rate = self.random.uniform(*RATES[self.kind])
        letters = ALPHABETS[self.kind]
        found = self.random.choice(self._ancestors)
        return "".join(self.random.choice(letters) if self.random.random() < rate else letter for letter in found)

    def make_entries(self, number: int) -> list[str]:
        """Make relatives and strangers, half and half."""
        return [
            self.make_relative() if self.random.random() < 0.5 else self._make_random(self.random.randint(60, 400))
            for _ in range(number)
        ]

    def make_ties(self, entry: str, number: int) -> list[str]:
        """Make entries with the same alignments: copies, and others of the same length that only end in another way."""
        return [entry if at % 2 else entry[:-8] + self._make_random(8) for at in range(number)]

    def change_entries(self, entries: list[str], change: str) -> list[str]:
        """Return the entries of a database after a change of ``CHANGES``."""
        entries, n = list(entries), max(1, len(entries) // 30)
        places = self.random.sample(range(len(entries)), n)
        if change == "add":
            entries += self.make_entries(n)
        elif change == "remove":
            entries = [entry for at, entry in enumerate(entries) if at not in places]
        elif change == "change":
            for at in places:
                entries[at] = self.make_relative()
        elif change == "copy":
            entries += [entries[at] for at in places]
        elif change == "shuffle":
            self.random.shuffle(entries)
        return entries


class GeneMaker(SequenceMaker):
    """Genes of proteins, in up to four exons, on both strands."""

    def make_relative(self) -> str:
        """Make the gene of a protein with a random distance from an ancestor."""
        return self.encode_gene(super().make_relative())

    def make_protein(self) -> str:
        """Make a protein with a random distance from an ancestor."""
        return super().make_relative()

    def make_entries(self, number: int) -> list[str]:
        """Make genes of relatives, and stretches without a gene, half and half."""
        return [
            self.make_relative() if self.random.random() < 0.5 else self._make_bases(self.random.randint(60, 1200))
            for _ in range(number)
        ]

    def make_ties(self, entry: str, number: int) -> list[str]:
        """See ``SequenceMaker.make_ties``."""
        return [entry if at % 2 else entry[:-8] + self._make_bases(8) for at in range(number)]

    def encode_gene(self, protein: str) -> str:
        """Write a protein as a gene with flanks, and with introns that sums of hits may bridge, or not."""
        cuts = sorted(self.random.sample(range(1, len(protein)), self.random.randrange(4)))
        exons = [protein[first:last] for first, last in zip([0, *cuts], [*cuts, len(protein)], strict=True)]
        gene = self._make_bases(self.random.randint(0, 60))
        for exon in exons:
            gene += "".join(CODONS[letter] for letter in exon) + self._make_bases(self.random.randint(1, 160))
        return gene if self.random.random() < 0.5 else gene[::-1].translate(str.maketrans("ACGT", "TGCA"))

    def _make_bases(self, length: int) -> str:
        return "".join(self.random.choices(ALPHABETS["nucl"], k=length))


def write_records(path: Path, sequences: list[str], prefix: str) -> None:
    """Write FASTA with made-up names."""
    path.write_text("".join(f">{prefix}{at} {prefix} of {at}\n{each}\n" for at, each in enumerate(sequences)))


def make_database(
    folder: Path, name: str, entries: list[str], kind: str, *, ids: bool = False, volumes: int = 1
) -> None:
    """Make a database of one or several volumes."""
    share = -(-len(entries) // volumes)
    names = [name if volumes == 1 else f"{name}.part{number}" for number in range(volumes)]
    for number, part in enumerate(names):
        write_records(folder / f"{part}.fasta", entries[number * share : (number + 1) * share], f"{part}-")
        command = ["makeblastdb", "-in", f"{part}.fasta", "-dbtype", kind, "-out", part, "-title", name]
        subprocess.run(
            [*command, *(["-parse_seqids"] if ids else [])], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
    if volumes > 1:
        command = ["blastdb_aliastool", "-dbtype", kind, "-dblist", " ".join(names), "-out", name, "-title", name]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
