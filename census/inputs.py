"""Inputs of the census: the same bytes at every run, small enough that each command takes below five CPU seconds.

What must show dependence on neighbours is in them: repeats of a reference (equal hits), adapters in some reads, reads that
match nothing, families of similar proteins, sequences with ambiguous letters and lower case.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("MILLRACE_TEST_DATA") or REPO / ".tools" / "data")

#: Adapter of Illumina's kits, at the end of one read in five.
ADAPTER = "AGATCGGAAGAGCACACGTCTGAACTCCAGTCA"

#: Bases of the reference before repeats are put into it.
REFERENCE_BASES = 60_000

_COMPLEMENT = str.maketrans("ACGTN", "TGCAN")


def write_inputs(folder: Path) -> None:
    """Write all inputs into an empty folder."""
    rng = random.Random(53)
    for write in (_write_sequences, _write_reads, _write_intervals, _write_molecules, _write_tables, _write_spectra):
        write(folder, rng)


def _read_fasta(name: str) -> list[tuple[str, str]]:
    parts = (DATA / name).read_text().split(">")[1:]
    split = (part.partition("\n") for part in parts)
    return [(head.split()[0], text.replace("\n", "").upper()) for head, _, text in split]


def _format_fasta(records: list[tuple[str, str]], width: int = 60) -> str:
    return "".join(
        f">{name}\n" + "".join(f"{text[at : at + width]}\n" for at in range(0, len(text), width))
        for name, text in records
    )


def _reverse(text: str) -> str:
    return text.translate(_COMPLEMENT)[::-1]


def _change(text: str, share: float, letters: str, rng: random.Random) -> str:
    return "".join(rng.choice(letters) if rng.random() < share else letter for letter in text)


def _write_sequences(folder: Path, rng: random.Random) -> None:
    """Write proteins, genes, families and a reference with repeats."""
    queries = [each for each in _read_fasta("proteins_queries.faa") if 60 < len(each[1]) < 400]
    proteins = rng.sample(queries, 28)
    entries = [each for each in _read_fasta("proteins_db.faa") if len(each[1]) < 600]
    copies = [
        (f"{name}_like{k}", _change(text, 0.25, "ACDEFGHIKLMNPQRSTVWY", rng))
        for name, text in proteins[:24]
        for k in range(3)
    ]
    database = rng.sample(entries, 1200) + copies
    genes = [each for each in _read_fasta("genes_db.fna") if 200 < len(each[1]) < 1200]
    dna = rng.sample(genes, 28)
    dna[5] = (dna[5][0], dna[5][1][:60] + "NNNNNNNNNN" + dna[5][1][70:])
    near = [(f"{name}_like", _change(text, 0.06, "ACGT", rng)) for name, text in dna]
    contig = max(_read_fasta("contigs.fna"), key=lambda each: len(each[1]))[1]
    repeat = contig[70_000:70_600]
    quarters = [contig[at : at + REFERENCE_BASES // 8] for at in range(0, REFERENCE_BASES, REFERENCE_BASES // 8)]
    reference = [("chr1", repeat.join(quarters[:4])), ("chr2", repeat.join([*quarters[4:], ""]))]
    contigs = [(f"contig{k}", contig[at : at + 9_000]) for k, at in enumerate(range(0, 54_000, 9_000))]
    family = _read_fasta("families/fam000.faa")
    for name, records in (
        ("proteins.fa", proteins), ("proteindb.fa", database), ("dna.fa", dna), ("dnadb.fa", rng.sample(genes, 400) + near),
        ("ref.fa", reference), ("contigs.fa", contigs), ("family.fa", family[:8]),
    ):  # fmt: skip
        (folder / name).write_text(_format_fasta(records))
    aligned = [(name, _change(text[:120].ljust(120, "A"), 0.1, "ACGT-", rng)) for name, text in [dna[0]] * 8]
    (folder / "aligned.fa").write_text(_format_fasta([(f"{name}{k}", text) for k, (name, text) in enumerate(aligned)]))
    profiles = (DATA / "profiles.hmm").read_text().split("//\n")[:12]
    (folder / "profiles.hmm").write_text("".join(f"{each}//\n" for each in profiles))
    for k in range(5):
        (folder / "families").mkdir(exist_ok=True)
        (folder / "families" / f"fam{k}.fa").write_text(_format_fasta(_read_fasta(f"families/fam{k:03}.faa")[:6]))


def _format_fastq(name: str, text: str, rng: random.Random) -> str:
    qualities = "".join(chr(33 + max(2, min(40, int(rng.gauss(36 - k * 14 / len(text), 4))))) for k in range(len(text)))
    return f"@{name}\n{text}\n+\n{qualities}\n"


def _write_reads(folder: Path, rng: random.Random) -> None:
    """Write short reads, pairs, long reads, and alignments of the short ones."""
    reference = dict(_parse(folder / "ref.fa"))
    short, first, second, long, rows = [], [], [], [], []
    for k in range(160):
        name = rng.choice(list(reference))
        text = reference[name]
        at = rng.randrange(len(text) - 500)
        span = rng.randrange(80, 320)
        insert = _change(text[at : at + span], 0.01, "ACGTN" if k % 40 == 7 else "ACGT", rng)
        if k % 29 == 11:
            insert = "".join(rng.choices("ACGT", k=span))
        forward, backward = ((each + ADAPTER)[:100] for each in (insert, _reverse(insert)))
        short.append(_format_fastq(f"read{k}", forward if k % 2 else backward, rng))
        if k < 100:
            first.append(_format_fastq(f"pair{k}/1", forward, rng))
            second.append(_format_fastq(f"pair{k}/2", backward, rng))
        size = min(100, span)
        quality = rng.choice((0, 3, 20, 60))
        rows.append(
            (
                name,
                at,
                f"read{k}\t{16 * (k % 2)}\t{name}\t{at + 1}\t{quality}\t{size}M\t*\t0\t0\t{insert[:size]}\t{'I' * size}\n",
            )
        )
    for k in range(24):
        text = reference[rng.choice(list(reference))]
        at = rng.randrange(len(text) - 1600)
        long.append(
            _format_fastq(f"long{k}", _change(text[at : at + rng.randrange(600, 1600)], 0.06, "ACGT", rng), rng)
        )
    head = "@HD\tVN:1.6\tSO:coordinate\n" + "".join(f"@SQ\tSN:{n}\tLN:{len(t)}\n" for n, t in reference.items())
    (folder / "aln.sam").write_text(head + "".join(row for _, _, row in sorted(rows, key=lambda row: row[:2])))
    pairs = [each for pair in zip(first, second, strict=True) for each in pair]
    named = {"reads.fq": short, "r1.fq": first, "r2.fq": second, "pairs.fq": pairs, "long.fq": long}
    for name, reads in named.items():
        (folder / name).write_text("".join(reads))
    fasta = [tuple(each.split("\n")[:2]) for each in short]
    (folder / "reads.fa").write_text("".join(f">{name[1:]}\n{text}\n" for name, text in fasta))


def _parse(path: Path) -> list[tuple[str, str]]:
    parts = (part.partition("\n") for part in path.read_text().split(">")[1:])
    return [(head, text.replace("\n", "")) for head, _, text in parts]


def _write_intervals(folder: Path, rng: random.Random) -> None:
    """Write variants, intervals and genes on the reference."""
    reference = dict(_parse(folder / "ref.fa"))
    (folder / "sizes.txt").write_text("".join(f"{name}\t{len(text)}\n" for name, text in reference.items()))
    head = ["##fileformat=VCFv4.2", '##FILTER=<ID=PASS,Description="All filters passed">']
    head += [f"##contig=<ID={name},length={len(text)}>" for name, text in reference.items()]
    head += [
        '##INFO=<ID=DP,Number=1,Type=Integer,Description="Depth">',
        '##INFO=<ID=AF,Number=A,Type=Float,Description="Frequency">',
    ]
    head += [
        '##INFO=<ID=AC,Number=A,Type=Integer,Description="Count">',
        '##INFO=<ID=AN,Number=1,Type=Integer,Description="Alleles">',
    ]
    head += [
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">',
        '##FORMAT=<ID=DP,Number=1,Type=Integer,Description="Depth">',
    ]
    rows = ["\t".join(["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", "s1", "s2", "s3"])]
    for name, text in reference.items():
        for at in sorted(rng.sample(range(100, len(text) - 100), 30)):
            size = rng.choice((1, 1, 1, 1, 2, 3))
            old = text[at : at + size]
            new = rng.choice([base for base in "ACGT" if base != old[0]]) + (rng.choice(("", "AC")) if size > 1 else "")
            if rng.random() < 0.15:
                new += "," + rng.choice([base for base in "ACGT" if base not in (old[0], new[0])])
            calls = [rng.choice(("0/0", "0/1", "1/1", "./.")) for _ in range(3)]
            n_called = sum(2 for call in calls if call != "./.")
            counts = ",".join(str(sum(call.count(str(k)) for call in calls)) for k in range(1, new.count(",") + 2))
            shares = ",".join(f"{int(each) / max(1, n_called):.3f}" for each in counts.split(","))
            info = f"DP={rng.randrange(5, 90)};AC={counts};AN={n_called};AF={shares}"
            fields = [name, str(at + 1), ".", old, new, str(rng.randrange(5, 90)), "PASS", info, "GT:DP"]
            rows.append("\t".join([*fields, *(f"{call}:{rng.randrange(3, 40)}" for call in calls)]))
    (folder / "variants.vcf").write_text("\n".join([*head, *rows]) + "\n")
    for name, number in (("a.bed", 60), ("b.bed", 40)):
        spans = []
        for k in range(number):
            chrom = rng.choice(list(reference))
            at = rng.randrange(len(reference[chrom]) - 900)
            spans.append(
                (chrom, at, at + rng.randrange(20, 800), f"{name[0]}{k}", rng.randrange(1000), rng.choice("+-"))
            )
        (folder / name).write_text("".join("\t".join(map(str, span)) + "\n" for span in sorted(spans)))
    lines = []
    for k, (chrom, at, end, _, _, strand) in enumerate(sorted(spans)):
        ids = f'gene_id "g{k}"; transcript_id "t{k}";'
        lines += [
            f"{chrom}\tmade\t{kind}\t{at + 1}\t{end}\t.\t{strand}\t{'0' if kind == 'CDS' else '.'}\t{ids}\n"
            for kind in ("transcript", "exon", "CDS")
        ]
    (folder / "genes.gtf").write_text("".join(lines))


def _write_molecules(folder: Path, rng: random.Random) -> None:
    """Write molecules as SMILES, MOL2 and SDF, and structures as PDB."""
    (folder / "mols.smi").write_text("".join((DATA / "drugs.smi").read_text().splitlines(keepends=True)[:24]))
    blocks = (DATA / "ligands.mol2").read_text().split("@<TRIPOS>MOLECULE")[1:13]
    (folder / "mols.mol2").write_text("".join(f"@<TRIPOS>MOLECULE{each}" for each in blocks))
    (folder / "mols.sdf").write_text("".join(map(_format_sdf, blocks)))
    lines = [each for each in (DATA / "1iep_receptor.pdbqt").read_text().splitlines() if each.startswith("ATOM")]
    chain = [line for line in lines if line[21] == lines[0][21]]
    parts = folder / "structures"
    parts.mkdir()
    for k in range(4):
        atoms = [line for line in chain if 20 * k < int(line[22:26]) - int(chain[0][22:26]) <= 20 * k + 60]
        rows = [_format_atom(line, number + 1, rng) for number, line in enumerate(atoms) if line[77] != "H"]
        (parts / f"part{k}.pdb").write_text("".join(rows) + "TER\nEND\n")


def _format_atom(line: str, number: int, rng: random.Random) -> str:
    element = line[12:16].strip().lstrip("0123456789")[0]
    return f"ATOM  {number:5}{line[11:54]}  1.00{rng.uniform(5, 60):6.2f}          {element:>2}\n"


def _format_sdf(block: str) -> str:
    """Return a molecule of MOL2 as one of SDF, its atoms spread over a grid."""
    lines = block.strip().splitlines()
    atoms = block.partition("@<TRIPOS>ATOM\n")[2].partition("@<TRIPOS>BOND")[0].splitlines()
    bonds = block.partition("@<TRIPOS>BOND\n")[2].splitlines()
    orders = {"1": 1, "2": 2, "3": 3, "ar": 4, "am": 1}
    text = [lines[0], "  census", "", f"{len(atoms):3}{len(bonds):3}  0  0  0  0  0  0  0  0999 V2000"]
    for k, atom in enumerate(atoms):
        element = atom.split()[5].partition(".")[0]
        text.append(
            f"{1.2 * (k % 5):10.4f}{1.2 * (k // 5):10.4f}{0.3 * (k % 3):10.4f} {element:<3} 0  0  0  0  0  0  0  0  0  0  0  0"
        )
    pairs = (bond.split() for bond in bonds)
    text += [f"{int(a):3}{int(b):3}{orders.get(kind, 1):3}  0" for _, a, b, kind in pairs]
    return "\n".join([*text, "M  END", "> <weight>", str(len(atoms)), "", "$$$$"]) + "\n"


def _write_tables(folder: Path, rng: random.Random) -> None:
    """Write lines of words and a table."""
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    rows = [[f"id{k}", rng.choice(words), str(rng.randrange(1000)), f"{rng.random():.4f}"] for k in range(120)]
    (folder / "table.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    (folder / "table.csv").write_text("id,word,number,share\n" + "".join(",".join(row) + "\n" for row in rows))
    (folder / "text.txt").write_text(
        "".join(" ".join(rng.choices(words, k=rng.randrange(3, 12))) + "\n" for _ in range(120))
    )
    (folder / "values.jsonl").write_text(
        "".join(f'{{"id":"{row[0]}","word":"{row[1]}","n":{row[2]}}}\n' for row in rows)
    )
    (folder / "names.txt").write_text("".join(f"{name}\n" for name, _ in _parse(folder / "dna.fa")[::2]))


#: Masses of residues, in daltons.
_MASSES: dict[str, float] = {
    "G": 57.02146, "A": 71.03711, "S": 87.03203, "P": 97.05276, "V": 99.06841, "T": 101.04768, "L": 113.08406,
    "N": 114.04293, "D": 115.02694, "Q": 128.05858, "E": 129.04259, "M": 131.04049, "H": 137.05891, "F": 147.06841,
    "R": 156.10111, "Y": 163.06333, "I": 113.08406, "K": 128.09496, "W": 186.07931, "C": 103.00919,
}  # fmt: skip
_PROTON, _WATER = 1.00728, 18.01056


def _write_spectra(folder: Path, rng: random.Random) -> None:
    """Write spectra of tryptic peptides of the proteins, with noise."""
    peptides = [
        part
        for _, text in _parse(folder / "proteins.fa")
        for part in text.replace("K", "K ").replace("R", "R ").split()
        if 7 <= len(part) <= 18 and set(part) <= _MASSES.keys()
    ]
    format_peak: Callable[[float, float], str] = "{:.4f} {:.1f}".format
    text = []
    for k, peptide in enumerate(rng.sample(peptides, 40)):
        masses = [_MASSES[letter] for letter in peptide]
        peaks = []
        for cut in range(1, len(masses)):
            peaks.append(sum(masses[:cut]) + _PROTON)
            peaks.append(sum(masses[cut:]) + _WATER + _PROTON)
        peaks += [rng.uniform(120, 1600) for _ in range(30)]
        lines = [format_peak(mass, rng.uniform(50, 5000)) for mass in sorted(peaks)]
        mass = (sum(masses) + _WATER + 2 * _PROTON) / 2
        head = f"BEGIN IONS\nTITLE=scan{k}\nSCANS={k + 1}\nPEPMASS={mass:.5f} 1000.0\nCHARGE=2+\nRTINSECONDS={60 + k}\n"
        text.append(head + "\n".join(lines) + "\nEND IONS\n")
    (folder / "spectra.mgf").write_text("".join(text))
