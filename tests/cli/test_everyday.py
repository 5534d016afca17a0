"""What people have installed and Millrace does not know: each command right, or refused with what works instead.

Those that are right with a join, or on a folder, run with the real program in ``tests/exact``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Shell

from millrace.adapters.registry import find_adapter
from millrace.core.errors import RefusedError
from millrace.core.tool_use import ToolUse, UserCommand

# fmt: off
REFUSED = [
    ("prodigal -i in.fa -o out.gbk", "trains on the whole input", "--input FOLDER"),
    ("prodigal -p meta -f gff -i in.fa", "numbers its sequences even with -p meta", "'OUT/{stem}.gff'"),
    ("bwa mem ref.fa in.fa", "draws among equal hits by the number of the read", "minimap2 -ax sr"),
    ("bwa mem ref.fa in.fa mates.fq", "learns the insert sizes", "two files of mates"),
    ("bowtie2 -x ref -U in.fa", "writes a SAM header at each start", "--no-hd"),
    ("bowtie2 --no-hd -p 4 -x ref -U in.fa", "in the order in which they are done", "--reorder"),
    ("hisat2 -x ref -U in.fa", "uses splice sites", "--no-temp-splicesite"),
    ("hisat2 --no-temp-splicesite -x ref -U in.fa", "writes a SAM header at each start", "--join sam"),
    ("hisat2 --no-temp-splicesite --no-hd -p 4 -x ref -U in.fa", "in the order in which they are done", "--reorder"),
    ("porechop -i in.fa", "decides from the first reads", "cutadapt"),
    ("primer3_core settings.txt", "takes what one record sets", "--p3_settings_file"),
    ("primer3_core --p3_settings_file in.fa settings.txt", "takes what one record sets", "--p3_settings_file"),
    ("lastal db in.fa", "counts the queries of the run", "give the command alone"),
    ("exonerate in.fa db.faa", "orders the hits of all queries", "--input FOLDER"),
    ("cd-hit -i in.fa -o out.fa", "compares all records", "threads of its own"),
    ("iqtree2 -s in.fa", "infers one tree", "'OUT/{stem}.treefile' -- iqtree2 -s FOLDER --prefix 'OUT/{stem}' -seed 1"),
    ("raxml-ng --msa in.fa", "infers one tree", "'OUT/{stem}.raxml.bestTree' -- raxml-ng --msa FOLDER --prefix 'OUT/{stem}'"),
    ("raxmlHPC -s in.fa -n x", "infers one tree", "-- SCRIPT FOLDER 'OUT/{stem}.nwk'"),
    ("fasttree -nt in.fa", "infers one tree", "--input FOLDER"),
    ("seqkit stats in.fa", "counts or numbers", "| seqkit"),
    ("seqkit fx2tab -nlH in.fa", "with -H writes a header", "--join header"),
    ("seqkit range -r 1:5 in.fa", "counts or numbers", "| seqkit"),
    ("seqkit replace -p .+ -r s{nr} in.fa", "with {nr} counts", "| seqkit"),
    ("seqkit -j 1 locate -p MKV in.fa", "writes a header at each start", "--join header"),
    ("seqtk rename in.fa p", "counts or numbers", "| seqtk"),
    ("seqtk sample in.fa 10", "draws at random", "| seqtk"),
    ("seqtk seq -1 in.fa", "takes every other record", "| seqtk"),
    ("seqtk seq -f 0.5 in.fa", "draws at random", "| seqtk"),
    ("seqtk dropse in.fa", "compares neighbours", "| seqtk"),
    ("bedtools merge -i in.fa", "orders or compares", "| bedtools"),
    ("awk BEGIN{print(1)}{print} in.fa", "with BEGIN prints at each start", "--join header"),
    ("sed -Ei.old s/a/b/ in.fa", "with -i changes its input", "sed ... > OUT"),
    ("sed --in-place s/a/b/ in.fa", "with -i changes its input", "sed ... > OUT"),
    ("sed --in s/a/b/ in.fa", "with -i changes its input", "sed ... > OUT"),
    ("gawk --inc=inplace {print($1)} in.fa", "with inplace changes its input", "gawk ... > OUT"),
    ("nawk BEGIN{print(1)}{print} in.fa", "with BEGIN prints at each start", "--join header"),
    ("perl -pi -e s/a/b/ in.fa", "with -i changes its input", "perl ... > OUT"),
    ("gawk -i inplace {print($1)} in.fa", "with inplace changes its input", "gawk ... > OUT"),
    ("dos2unix -q -c mac in.fa", "changes its input", "dos2unix < FILE > OUT"),
    ("mlr -I --inidx --ifs tab --onidx cat in.fa", "with -I changes its input", "mlr ... > OUT"),
    ("mogrify -resize 50% in.fa", "changes its files", "-- convert FOLDER"),
    ("grep --max=1 x in.fa", "with -c, -n, -b or -m", "| grep"),
    ("zgrep -m1 x in.fa", "with -c, -n, -b or -m", "| zgrep"),
    ("grep --aft=1 x in.fa", "context lines", "| grep"),
    ("grep -2 x in.fa", "context lines", "| grep"),
    ("egrep -i02 -e x in.fa", "context lines", "| egrep"),
    ("zgrep -e x -1 in.fa", "context lines", "| zgrep"),
    ("tr -s \\n in.fa", "squeezes line breaks", "| tr"),
    ("tr -cs A-Za-z _ in.fa", "squeezes line breaks", "| tr"),
    ("tee -a log in.fa", "adds to what is there", ">> FILE"),
    ("seqkit grep -n -r --delete-matched -p x in.fa", "for each pattern once", "| seqkit"),
    ("mlr --inidx --ifs tab --onidx nest --ivar ; -f 2 in.fa", "compares the whole input", "| mlr"),
    ("mlr --inidx --ifs tab --onidx put -f s.mlr in.fa", "compares the whole input", "| mlr"),
    ("grep -vc x in.fa", "with -c", "| grep"),
    ("cat -n in.fa", "with -n", "| cat"),
    ("jq -cs . in.fa", "one result for the whole input", "| jq"),
    ("csvgrep -c 1 -m x in.fa", "first line of the input", "csv+header --join csv"),
    ("csvcut -c id,name in.fa", "first line of the input", "name columns by numbers"),
    ("csvstat in.fa", "one result for the whole input", "| csvstat"),
    ("bcftools view in.vcf", "writes the time", "--no-version"),
    ("bcftools view --no-version in.fa", "reads a header before the variants", "--input FILE:vcf"),
    ("bcftools merge a.vcf in.fa", "orders or compares", "| bcftools"),
    ("csvcut -l -c 1 in.fa", "numbers through the whole input", "millrace run -- ... | csvcut"),
    ("mlr --icsv --ojson cat in.fa", "first line of the input", "--implicit-csv-header"),
    ("mlr --icsv --hi --ojson sort -f a in.fa", "compares the whole input", "millrace run -- ... | mlr"),
    ("mlr --inidx --ifs tab --ojson put $z=NR in.fa", "compares the whole input", "millrace run -- ... | mlr"),
    ("zcat in.fa", "is no sooner done in parts", "share out what follows it: zcat FILE.gz | millrace run"),
    ("fastp -i in.fa -o out.fq", "guesses the adapter", "--disable_adapter_trimming"),
    ("fastp -a auto -i in.fa -o out.fq", "guesses the adapter", "--disable_adapter_trimming"),
    ("fastp --adapter_fasta in.fa -i in.fa -o out.fq", "guesses the adapter", "--disable_adapter_trimming"),
    ("seqkit replace -p .+ -r s{NR} in.fa", "with {nr} counts", "| seqkit"),
    ("cutadapt -a ACGT -o out.fq in.fa", "reports totals", "--quiet"),
    ("TrimmomaticSE in.fa out.fq MINLEN:30", "guesses the encoding", "-phred33"),
    ("vsearch --cluster_fast in.fa --id 0.9", "compares all records", "threads of its own"),
    ("samtools sort in.fa", "orders or compares", "| samtools"),
    ("fasta36 -m 8 in.fa db.fa", "the queries before", "ssearch36"),
    ("vsearch --usearch_global in.fa --db ref.fa --id 0.9", "in the order in which they are done", "--threads 1"),
    ("seqkit locate -p MKV -p AA in.fa", "in another order in each run", "one pattern"),
    ("vsearch --sintax in.fa --db tax.fa --tabbedout o", "with --sintax draws", "behind other reads"),
    ("bwa samse ref.fa in.sai in.fa", "from one stream", "minimap2"),
    ("maskseq -auto -sequence in.fa -outseq o.fa", "first record", "file of its own"),
    ("seqkit -t dna stats in.fa", "counts or numbers", "| seqkit"),
    ("seqkit -o out.fa rmdup -s in.fa", "orders or compares", "| seqkit"),
    ("seqkit grep -nC -p x in.fa", "with -C counts", "| seqkit"),
    ("seqkit seq -k in.fa", "draws colours", "leave it out"),
    ("seqkit seq -rp in.fa", "guesses the alphabet", "--seq-type"),
    ("seqkit translate -t auto in.fa", "guesses the alphabet", "--seq-type"),
    ("seqkit convert in.fa", "guesses the encoding", "--from Sanger"),
    ("seqkit sliding -gc -s 5 -W 9 in.fa", "what is left of other sequences", "leave it out"),
    ("seqkit locate --pattern=MKV,AA in.fa", "in another order in each run", "one pattern"),
    ("seqtk seq -A2 in.fa", "takes every other record", "| seqtk"),
    ("seqtk seq -s 3 -f0.5 in.fa", "draws at random", "| seqtk"),
    ("seqtk mergefa -r in.fa b.fa", "with -r draws", "| seqtk"),
    ("bowtie -u 20 -x ref in.fa", "takes or leaves out the first reads", "cut the input"),
    ("bowtie -p 4 -x ref in.fa", "in the order in which they are done", "--reorder"),
    ("bowtie2 --no-hd --skip 3 -x ref -U in.fa", "takes or leaves out the first reads", "cut the input"),
    ("hisat2 --no-temp-splicesite --no-hd -u9 -x ref -U in.fa", "takes or leaves out the first reads", "cut the input"),
    ("centrifuge --report-file /dev/null --upto=9 -x cf -U in.fa", "takes or leaves out the first reads", "cut the input"),
    ("fastp -A -j /dev/null -h /dev/null --reads_to_process 20 -i in.fa -o out.fq", "takes the first reads", "cut the input"),
    ("fastp -A -j out.json -h /dev/null -i in.fa -o out.fq", "writes reports", "-h /dev/null"),
    ("cutadapt --quiet --json=o.json -a ACGT -o out.fq in.fa", "reports totals", "leave it out"),
    ("vsearch --makeudb_usearch in.fa --output o", "one index", "before"),
    ("vsearch --fastx_revcomp in.fa --fastaout o --log l", "writes the time", "leave it out"),
    ("csvcut -H -c 1 in.fa", "writes names of columns", "--join csv"),
    ("samtools import in.fa -O SAM", "how they are paired", "-0 reads.fq"),
    ("samtools import -0 in.fa -O SAM", "writes a SAM header", "--join sam"),
    ("bowtie2 --no-hd -x ref --interleaved in.fa", "reads mates from nei", "seqtk seq -1"),
    ("fastp -A -j /dev/null -h /dev/null --interleaved_in -i in.fa", "reads mates from nei", "seqtk seq -1"),
    ("sickle pe -c in.fa -t sanger -m out.fq -s o", "reads mates from nei", "seqtk seq -1"),
    ("flash -c --interleaved-input in.fa", "reads mates from nei", "seqtk seq -1"),
    ("sga preprocess -p 2 in.fa", "reads mates from nei", "seqtk seq -1"),
    ("khmer split-paired-reads in.fa", "reads mates from nei", "seqtk seq -1"),
    ("tantan -f 2 in.fa", "with -f 2 counts", "leave it out"),
    ("mash dist refs.msh in.fa", "whole file for one sequence", "add -i"),
    ("seqmagick convert --squeeze in.fa out.fa", "compares the whole input", "| seqmagick"),
    ("seqmagick convert --head=3 in.fa out.fa", "compares the whole input", "| seqmagick"),
    ("pullseq -i in.fa -t -m 30", "or -t counts", "leave it out"),
    ("AdapterRemoval --file1 in.fa --discarded /dev/null --settings o", "totals of the run", "--settings /dev/null"),
    ("ssearch36 -q -m 8 in.fa db.fa", "several threads", "-T 1"),
    ("ssearch36 -T 1 -d 8 in.fa db.fa", "with a report", "-m 8"),
    ("gsnap -d g in.fa", "otherwise behind other reads", "minimap2"),
    ("STAR --runThreadN 4 --readFilesIn in.fa", "in the order in which they are done", "--runThreadN"),
    ("smalt map ref in.fa", "draws among equal hits", "-r -1"),
    ("bcftools head -n 3 in.vcf", "beginning or end", "| bcftools"),
    ("bcftools query -l in.vcf", "lists the samples once", "by itself"),
    ("mlr --inidx --ifs tab --oxtab cat in.fa", "puts lines between records", "--ocsv"),
    ("mlr --inidx --ifs tab --onidx gap -n 4 in.fa", "compares the whole input", "| mlr"),
    ("samtools view -q 30 in.sam", "reads a header before the alignments", "-@"),
]
SOUND = [
    "awk $2>500 in.fa", "awk BEGIN{OFS=FS}{$1=$1}1 in.fa", "awk -F: {for(i=1;i<=NF;i++)print($i)} in.fa", "sed s/1d/x/ in.fa", "sed -es/-i/x/ in.fa", "perl -MList::Util=sum -pe s/-i// in.fa",
    "sed -n /x/p in.fa", "grep -v x in.fa", "grep -Ei x in.fa", "grep -e -2 in.fa", "grep -- -2 in.fa", "grep -we5 in.fa", "grep --color=never x in.fa", "tr -s _ in.fa", "tr -d x in.fa", "rg x in.fa", "cat in.fa", "jq -c .a in.fa", "jq -c .input in.fa", "jq --arg v input .a in.fa",
    "seqkit seq -r in.fa",
    "seqkit replace -p ^ -r x_ in.fa", "seqkit fx2tab -n -l in.fa", "seqtk seq -A in.fa", "bedtools intersect -a in.fa -b g.bed",
    "bowtie2 --no-hd -p 1 -x ref -U in.fa", "cutadapt --quiet -a ACGT -o o in.fa",
    "sickle pe -f in.fa -r m.fq -t sanger -o o -p p -s s", "mash dist -i refs.msh in.fa", "tantan -f 3 in.fa", "smalt map -r -1 ref in.fa",
    "fastp -A -j /dev/null -h /dev/null -i in.fa", "seqkit seq -t dna -rp in.fa", "seqkit grep -s -p ACGTC in.fa", "bowtie -p 1 --un o in.fa", "bowtie2 --no-hd -very-sensitive -x ref -U in.fa", "perl -pe s/a$/b/ in.fa", "TrimmomaticSE -phred33 in.fa out.fq MINLEN:30",
    "dos2unix -O in.fa", "primer3_core --p3_settings_file settings.txt tags.txt", "mogrify -path out in.fa",
    "vsearch --usearch_global in.fa --db ref.fa --id 0.9 --threads 1", "vsearch --usearch_global in.fa --db ref.fa --id 0.9 --threads=1",
]
JOINED = [
    ("bowtie2 -x ref -U in.fa", ["-=sam"]), ("hisat2 --no-temp-splicesite -x ref -U in.fa", ["-=sam"]), ("seqkit fx2tab -H in.fa", ["header:^#"]),
    ("awk BEGIN{print(1)}{print} in.fa", ["stdout=header"]),
]
# fmt: on


def understand(folder: Path, line: str, **more: tuple[str, ...]) -> ToolUse:
    argv = tuple(line.split())
    (folder / "in.fa").write_text(">a\nM\n")
    (folder / "settings.txt").write_text(
        "SEQUENCE_ID=a\nSEQUENCE_TEMPLATE=ACGT\nPRIMER_OPT_SIZE=20\n=\nSEQUENCE_ID=b\n=\n"
    )
    (folder / "tags.txt").write_text("SEQUENCE_ID=a\nSEQUENCE_TEMPLATE=ACGT\n=\nSEQUENCE_ID=b\nP3_COMMENT=x\n=\n")
    given = {"inputs": ("in.fa",), **more}
    return find_adapter(argv[0]).understand_command(
        UserCommand(argv=argv, cwd=folder, environ={}, exe=Path("/bin/true"), **given)
    )


@pytest.mark.parametrize(("line", "why", "instead"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_unknown_command_is_refused_with_one_that_works(tmp_path: Path, line: str, why: str, instead: str) -> None:
    with pytest.raises(RefusedError) as caught:
        understand(tmp_path, line)
    assert why in caught.value.message
    assert instead in caught.value.hint


@pytest.mark.parametrize("line", SOUND)
def test_sound_calls_are_not_refused(tmp_path: Path, line: str) -> None:
    understand(tmp_path, line)


@pytest.mark.parametrize(("line", "joins"), JOINED, ids=[line for line, _ in JOINED])
def test_matching_join_makes_output_exact(tmp_path: Path, line: str, joins: list[str]) -> None:
    assert understand(tmp_path, line, joins=tuple(joins)).outputs[-1].join != "concat"


def test_wrong_join_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="writes a SAM header"):
        understand(tmp_path, "bowtie2 -x ref -U in.fa", joins=("csv",))


def test_file_per_record_is_a_whole_input(tmp_path: Path) -> None:
    (tmp_path / "genomes").mkdir()
    (tmp_path / "genomes" / "a.fna").write_text(">a\nACGT\n")
    line = "prodigal -f gff -i genomes -o out/{stem}.gff"
    use = understand(tmp_path, line, inputs=("genomes",), outputs=("out/{stem}.gff",))
    assert use.cost.max_records == 1
    with pytest.raises(RefusedError, match="trains on the whole input"):
        understand(tmp_path, "prodigal -i genomes", inputs=("genomes",))


def test_refusal_on_the_command_line(shell: Shell) -> None:
    shell.tool("cd-hit", "echo started >&2")
    ended = shell.run("millrace run --input in.fa -- cd-hit -i in.fa -o out.fa")
    assert ended.code == 2 and not ended.out, ended.shown
    assert "cd-hit compares all records with each other: its results on parts" in ended.err, ended.shown
    assert "started" not in ended.err, ended.shown
