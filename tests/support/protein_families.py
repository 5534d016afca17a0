"""Families of proteins that are much alike, as a database and queries, drawn from a seed."""

from __future__ import annotations

import random

#: A format of BLAST with titles.
COLUMNS = "7 qaccver saccver stitle evalue bitscore"


def draw_families(seed: int, families: int, members: int) -> tuple[str, str]:
    """Return (database, queries): of each family some members, and one more."""
    chance = random.Random(seed)
    letters = "ACDEFGHIKLMNPQRSTVWY"

    def like(text: str) -> str:
        return "".join(chance.choice(letters) if chance.random() < 0.3 else letter for letter in text)

    database, queries = [], []
    for family in range(families):
        first = "".join(chance.choices(letters, k=chance.randint(80, 300)))
        database += [f">f{family}m{member} of {family}\n{like(first)}\n" for member in range(members)]
        queries.append(f">q{family}\n{like(first)}\n")
    chance.shuffle(database)
    return "".join(database), "".join(queries)
