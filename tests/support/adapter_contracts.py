"""What each tool adds to the contract of adapters: a command, the forms of its options, what it must refuse."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Owes:
    """One program, in the folder of `exact_cases.make_bench`."""

    #: A command; ``OUT`` is where an output option stands in one of its `forms`.
    line: str
    #: Options for one output, in each form that the tool takes; the file is ``out``.
    forms: tuple[str, ...]
    #: Commands that must be refused before anything starts.
    refused: tuple[str, ...]
    #: What is cut, by its place in the command; for several files, each is a record.
    source: str
    #: A record that the tool finds nothing for; empty: it has a result for each.
    nothing: str = ""
    #: Records that are enough to be cut badly.
    records: int = 9
    #: Whether the tool itself, asked by the adapter, or only when it runs, judges options that are not known.
    judges_itself: bool = False
    #: Whether its batches are run here; not where one run takes long, a record is a file, or the node makes a database.
    is_cut: bool = True

    @property
    def program(self) -> str:
        return self.line.split()[0]

    def command(self, form: str = "") -> list[str]:
        return self.line.replace("OUT", form or self.forms[0]).split()


_NO_PROTEIN = ">nothing\nGSGSGSGSGSGSGSGSGSGSGSGSGSGS\n"
_NO_GENE = ">nothing\n" + "ACGTTGCAAT" * 3 + "\n"

# fmt: off
OWED = (
    Owes("blastp OUT -query q.faa -db prot -outfmt 7 -evalue 1e-5", ("-out out", "-out=out"),
         ("blastp -query q.faa -db prot -outfmt 17 -out out", "blastp -query none -db prot", "blastp -query q.faa -db none"),
         "q.faa", _NO_PROTEIN, judges_itself=True),
    Owes("hmmscan OUT p.hmm q.faa", ("-o out", "-oout"),
         ("hmmscan -o out --seed 0 p.hmm q.faa", "hmmscan p.hmm none", "hmmscan none q.faa"), "q.faa", _NO_PROTEIN),
    Owes("hmmsearch OUT p.hmm prot.faa", ("--tblout out", "--tblout=out", "--tblo out"),
         ("hmmsearch --stall p.hmm prot.faa", "hmmsearch none prot.faa", "hmmsearch p.hmm none"), "p.hmm"),
    Owes("diamond blastp -q q.faa OUT -d dmnd --quiet", ("-o out", "-oout", "--out out"),
         ("diamond blastp -q q.faa -d dmnd -f 100", "diamond blastp -q none -d dmnd", "diamond blastp -q q.faa -d none"),
         "q.faa", _NO_PROTEIN),
    Owes("mmseqs easy-search q.faa prot.faa OUT tmp -k 5 --alph-size aa:13,nucl:5 -v 1", ("out",),
         ("mmseqs easy-search q.faa prot.faa out tmp --split 2", "mmseqs easy-search none prot.faa out tmp", "mmseqs easy-search q.faa none out tmp"),
         "q.faa", is_cut=False),
    Owes("minimap2 nucl.fna OUT q.fna -c", ("-o out", "-oout"),
         ("minimap2 -x sr nucl.fna q.fna", "minimap2 nucl.fna none", "minimap2 none q.fna"), "q.fna", _NO_GENE),
    Owes("minimap2 -a OUT nucl.fna q.fna", ("-o out", "-oout"), ("minimap2 -ad x nucl.fna q.fna",), "q.fna", _NO_GENE),
    Owes("prodigal -q -p meta -f sco -i q.fna OUT", ("-o out", "-O out"),
         ("prodigal -i q.fna", "prodigal -p meta -i none", "prodigal -p meta -i q.fna -t x"), "q.fna"),
    Owes("cmscan OUT models.cm hairpins.fa", ("-o out", "-oout"),
         ("cmscan --seed 0 models.cm hairpins.fa", "cmscan models.cm none", "cmscan none hairpins.fa"), "hairpins.fa", _NO_GENE),
    Owes("cmsearch OUT models.cm hairpins.fa", ("--tblout out", "--tblout=out", "-A out"),
         ("cmsearch models.cm -", "cmsearch none hairpins.fa", "cmsearch models.cm none"), "models.cm"),
    Owes("obabel ligands.mol2 OUT -osdf", ("-O out.sdf", "-Oout.sdf"),
         ("obabel ligands.mol2 -O out.sdf --sort MW", "obabel none.mol2 -O out.sdf"), "ligands.mol2"),
    Owes("muscle3 -quiet -in fams OUT", ("-out families/", "-OUT families/"),
         ("muscle3 -in fams -maxhours 1", "muscle3 -in none", "muscle3 -in1 a -in2 b -profile"), "fams", is_cut=False),
    Owes("mafft --quiet OUT fams", ("--out families/",),
         ("mafft --add x fams", "mafft none", "mafft --auto --thread 4 fams"), "fams", is_cut=False),
    Owes("vina --receptor q.faa --seed 1 --ligand fams OUT --center_x -5", ("--out families/", "--out=families/"),
         ("vina --receptor q.faa --ligand fams --out families/", "vina --receptor none --seed 1 --ligand fams --out families/"), "fams",
         is_cut=False),
)
# fmt: on

#: Families of which there is nothing here, with the reason.
WITHOUT = {"dock6": "is licensed, so that there is no real program to compare with"}
