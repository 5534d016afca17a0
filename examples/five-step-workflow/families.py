from itertools import groupby
from pathlib import Path


def of_each_query(rows, targets, evalue):
    """(name, FASTA) for each query with three hits or more."""
    records = Path(targets).read_text().lstrip(">").split("\n>")
    sequences = {record.split(None, 1)[0]: f">{record.rstrip()}\n" for record in records}
    columns = (row.decode().split("\t") for row in rows)
    for number, (_, of_query) in enumerate(groupby(columns, key=lambda row: row[0])):
        hits = dict.fromkeys(row[1] for row in of_query if float(row[10]) <= evalue)
        if len(hits) >= 3:
            yield f"{number:06}.faa", "".join(sequences[hit] for hit in hits)
