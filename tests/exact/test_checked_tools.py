"""`millrace tool check` over the tools that come along: each passes on a sample of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from exact_cases import make_variants, records
from shell import Shell
from tool_batches import need

#: Commands whose input is cut.
COMMANDS = (
    "blastp -query few.faa -db prot -outfmt 7 -evalue 1e-3 -out out",
    "blastn -query few.fna -db nucl -outfmt 0 -out out",
    "hmmscan -o out --tblout t --domtblout d p.hmm few.faa",
    "hmmsearch -o out --tblout t p.hmm few.faa",
    "phmmer -o out --tblout t few.faa prot.faa",
    "cmscan -o out --tblout t models.cm hairpins.fa",
    "cmsearch --tblout t -o out models.cm hairpins.fa",
    "diamond blastp -q few.faa -d dmnd -o out --quiet",
    "minimap2 -c nucl.fna few.fna",
    "obabel drugs.smi -O out.sdf",
    "bowtie2 --quiet -f -x bt -U few.fna -S out",
    "lastal ld few.fna",
    "fastp -A -G --dont_eval_duplication -j /dev/null -h /dev/null -i few.fq -o out",
    "seqkit seq -rp -t dna few.fna",
    "seqkit fx2tab -n -l few.faa",
    "seqkit translate --seq-type dna few.fna",
    "seqkit subseq -r 2:40 few.fna",
    "seqkit grep -r -p 1 few.fq",
    "seqkit replace -p ^ -r x_ few.faa",
    "seqkit fq2fa few.fq",
    "samtools import -0 few.fq -O sam",
    "bcftools view --no-version -i 'QUAL>20' few.vcf",
    "bcftools query -f '%POS\\n' few.vcf",
)


@pytest.fixture
def desk(shell: Shell, bench_of: Path) -> Shell:
    """The databases of the tools, and a few records of each kind."""
    shutil.copytree(bench_of, shell.work, dirs_exist_ok=True)
    for end in ("faa", "fna"):
        (shell.work / f"few.{end}").write_bytes(b"".join(records(bench_of / f"q.{end}")[:5]))
    reads = "".join(f"@r{k}\n{'ACGTT'[k % 5 :] * 20}\n+\n{'I' * 20 * (5 - k % 5)}\n" for k in range(5))
    (shell.work / "few.fq").write_text(reads)
    make_variants(shell.work / "few.vcf", 6)
    (shell.work / "drugs.smi").write_bytes(b"".join(records(bench_of / "drugs.smi", b"")[:5]))
    return shell


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_shipped_tool_passes_its_check(desk: Shell, line: str) -> None:
    need(line.split()[0])
    if line.startswith("lastal"):
        assert desk.run("lastdb ld nucl.fna").code == 0
    ended = desk.run(f"millrace tool check -- {line}")
    assert ended.code == 0 and "killed and resumed" in ended.out, ended.shown
    assert all(each.endswith(" equal") for each in ended.out.splitlines()), ended.shown
