"""The adapter reads command lines as HMMER does, and refuses by name what it cannot answer exactly."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from millrace.adapters.hmmer.adapter import HmmerAdapter
from millrace.adapters.hmmer.command_line import parse_c_integer, parse_command_line, parse_help_options
from millrace.core.errors import RefusedError
from millrace.core.tool_use import InputArg, OutputArg, ToolUse, UserCommand

CORES = os.sysconf("SC_NPROCESSORS_ONLN")

#: A help page with every kind of option; a stand-in prints it, so that these tests need no HMMER.
HELP = """\
# {name} :: search
# HMMER 3.3.2 (Nov 2020); http://hmmer.org/
Basic options:
  -h : show brief help on version and usage
  -o <f>           : direct output to file <f>, not stdout
  -A <f>           : save multiple alignment of all hits to file <f>
  --tblout <f>     : save parseable table of per-sequence hits to file <f>
  --domtblout <f>  : save parseable table of per-domain hits to file <f>
  --pfamtblout <f> : save table of hits and domains to file, in Pfam format <f>
  --hmmout <f>     : write produced hmms to file <f>
  --chkhmm <f>     : save HMM checkpoints to files <f>-<iteration>.hmm
  --acc            : prefer accessions over names in output
  --dna            : input alignment is DNA sequence data
  --rna            : input alignment is RNA sequence data
  -E <x>           : report models <= this E-value threshold in output  [10.0]  (x>0)
  --mxfile <f>     : read substitution score matrix from file <f>
  --seed <n>       : set RNG seed to <n> (if 0: one-time arbitrary seed)  [42]
  --qformat <s>    : assert input <seqfile> is in format <s>: no autodetection
  --qsingle_seqs   : force query to be read as individual sequences
  --cpu <n>        : number of parallel CPU workers to use for multithreads  [2]
"""
SEQUENCE = ">q1 a protein\nMKVLAAGLLLAAQPAMA\n"
GENE = ">g1\n" + "ACGTTGCAAC" * 8 + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("hmmscan", "hmmsearch", "phmmer", "jackhmmer", "nhmmer", "nhmmscan"):
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{HELP.format(name=name)}END\n")
        script.chmod(0o755)
    (tmp_path / "q.faa").write_text(SEQUENCE)
    (tmp_path / "q.fna").write_text(GENE)
    (tmp_path / "db.faa").write_text(SEQUENCE)
    for profiles in ("p.hmm", "plain.hmm"):
        (tmp_path / profiles).write_text("HMMER3/f [3.3.2 | Nov 2020]\n//\n")
    for suffix in ("h3m", "h3i", "h3f", "h3p"):
        (tmp_path / f"p.hmm.{suffix}").write_text("pressed")
    return tmp_path


def understand(folder: Path, line: str, *, stdin: bool = False, **environ: str) -> ToolUse:
    argv = tuple(line.split())
    return HmmerAdapter().understand_command(
        UserCommand(
            argv=argv,
            cwd=folder,
            environ={"PATH": os.environ["PATH"], **environ},
            exe=folder / "bin" / argv[0],
            stdin_is_data=stdin,
        )
    )


def test_hmmscan(folder: Path) -> None:
    use = understand(folder, "hmmscan -o out --tblo=t.tbl -E1e-5 --domtblout d p.hmm q.faa")
    assert use.argv == (
        "hmmscan",
        "-o",
        OutputArg(index=0),
        OutputArg(index=1, prefix="--tblo="),
        "-E1e-5",
        "--domtblout",
        OutputArg(index=2),
        "p.hmm",
        InputArg(index=0),
    )
    assert [output.path for output in use.outputs] == ["out", "t.tbl", "d"]
    assert [output.join for output in use.outputs] == ["hmmer-report:--cpu 0", *["hmmer-table:--cpu 0"] * 2]
    assert [path.name for path in use.databases] == [
        "p.hmm",
        "p.hmm.h3m",
        "p.hmm.h3i",
        "p.hmm.h3f",
        "p.hmm.h3p",
    ]
    assert (use.inputs[0].path, use.inputs[0].format, use.cost.unit) == ("q.faa", "fasta", "residues")
    assert (use.threads, use.env, use.version) == (1, {"HMMER_NCPU": "0"}, "HMMER 3.3.2 (Nov 2020)")


def test_report_on_standard_output(folder: Path) -> None:
    use = understand(folder, "hmmsearch -Ahits.sto plain.hmm db.faa")
    assert [(output.name, output.stdout, output.path) for output in use.outputs] == [
        ("stdout", True, "-"),
        ("alignment", False, "hits.sto"),
    ]
    assert use.argv == ("hmmsearch", OutputArg(index=1, prefix="-A"), InputArg(index=0), "db.faa")
    assert (use.inputs[0].format, use.cost.unit, use.outputs[1].join) == ("hmm", "bytes", "concat")


def test_standard_input_stays_a_dash(folder: Path) -> None:
    use = understand(folder, "phmmer - db.faa", stdin=True)
    assert use.argv == ("phmmer", "-", "db.faa")
    assert use.inputs[0].stdin


def test_dev_null_output_is_not_replaced(folder: Path) -> None:
    use = understand(folder, "hmmscan -o /dev/null --tblout t p.hmm q.faa")
    assert use.argv[1:3] == ("-o", "/dev/null")
    assert [output.name for output in use.outputs] == ["tblout"]


@pytest.mark.parametrize(("line", "environ"), [("--cpu 3", {}), ("", {"HMMER_NCPU": "3"})])
def test_thread_option_of_the_user_is_kept(folder: Path, line: str, environ: dict[str, str]) -> None:
    use = understand(folder, f"hmmscan {line} p.hmm q.faa", **environ)
    assert (use.threads, use.env, use.outputs[0].join) == (3, {}, "hmmer-report")


def test_nhmmer_keeps_one_worker_and_the_serial_number(folder: Path) -> None:
    use = understand(folder, "nhmmer plain.hmm db.faa")
    assert use.env == {"HMMER_NCPU": "1"}
    assert use.outputs[0].join == f"hmmer-report:--cpu 1={min(2, CORES)}"


@pytest.mark.parametrize(
    ("options", "added"),
    [
        ("", ("--qsingle_seqs", "--dna")),
        ("--rna", ("--qsingle_seqs",)),
        ("--qformat fasta", ("--dna",)),
        ("--qsingle_seqs --dna", ()),
    ],
)
def test_nhmmer_reads_batches_of_sequences_as_such(folder: Path, options: str, added: tuple[str, ...]) -> None:
    use = understand(folder, f"nhmmer {options} q.fna db.faa")
    assert use.argv == ("nhmmer", *added, *options.split(), InputArg(index=0), "db.faa")
    assert use.outputs[0].join.startswith(":".join(("hmmer-report", ",".join((*added, "--cpu 1")))))


def test_shared_files_are_databases(folder: Path) -> None:
    use = understand(folder, "phmmer --mxfile m q.faa db.faa")
    assert use.databases == (folder / "db.faa", folder / "m")


def test_profile_database_of_pfamdb(folder: Path) -> None:
    shelf = folder / "shelf"
    shelf.mkdir()
    for path in folder.glob("p.hmm*"):
        path.rename(shelf / path.name)
    use = understand(folder, "hmmscan p.hmm q.faa", PFAMDB=f"/nowhere:{shelf}")
    assert use.databases[0] == shelf / "p.hmm"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hmmscan -h", "only prints help"),
        ("hmmscan p.hmm", "needs two files"),
        ("hmmscan p.hmm q.faa -E 1", "needs two files"),
        ("hmmscan --nope p.hmm q.faa", "--nope is not known"),
        ("hmmscan -x p.hmm q.faa", "-x is not known"),
        ("hmmscan plain.hmm q.faa", "not pressed, plain.hmm.h3m is missing"),
        ("hmmscan none.hmm q.faa", "none.hmm not found"),
        ("hmmscan p.hmm none.faa", "none.faa not found"),
        ("hmmscan p.hmm empty.faa", "has no queries"),
        ("hmmscan p.hmm p.hmm", "is not FASTA"),
        ("hmmscan p.hmm -", "standard input, which is empty"),
        ("hmmscan - q.faa", "can read its targets from standard input for a single query only"),
        ("hmmscan --seed 0 p.hmm q.faa", "--seed 0"),
        ("hmmscan --seed=00 p.hmm q.faa", "--seed 0"),
        ("hmmscan --qformat genbank p.hmm q.faa", "only FASTA queries"),
        ("hmmscan -o x --tblout ./x p.hmm q.faa", "both write to"),
        ("hmmscan --tblout /dev/stdout p.hmm q.faa", "is not a regular file"),
        ("hmmsearch --mpi plain.hmm db.faa", "MPI master"),
        ("hmmsearch q.faa db.faa", "is not text profiles"),
        ("hmmsearch stale.hmm db.faa", "stale.hmm.h3m is older"),
        ("hmmsearch plain.hmm db.faa.gz", "cannot read db.faa.gz again"),
        ("hmmsearch plain.hmm none.faa", "none.faa not found"),
        ("jackhmmer --chkhmm x q.faa db.faa", "names its files by iteration"),
        ("nhmmer aln.sto db.faa", "is not text profiles (HMMER3/f) or FASTA"),
        ("nhmmer q.faa db.faa", "cannot be sure of the alphabet"),
        ("nhmmer --qformat fasta - db.faa", "cannot be sure of the alphabet"),
        ("nhmmer --hmmout x plain.hmm db.faa", "writes nothing when the queries are profiles"),
        ("nhmmer --dna same.fna db.faa", "could be either aligned or unaligned: all its sequences have 60 residues"),
        ("nhmmer --dna same.fna.gz db.faa", "could be either aligned or unaligned"),
        ("nhmmer --dna other.a2m db.faa", "takes other.a2m for an alignment by its name"),
    ],
)
def test_refusals(folder: Path, line: str, words: str) -> None:
    (folder / "empty.faa").touch()
    (folder / "aln.sto").write_text("# STOCKHOLM 1.0\n")
    same = ">a\n" + 15 * "ACGT" + "\n\n>b\n" + 30 * "AC" + " \r\n>c\n" + 30 * "G" + "\n" + 30 * "-" + "\n"
    (folder / "same.fna").write_text(same)
    (folder / "same.fna.gz").write_bytes(gzip.compress(same.encode()))
    (folder / "other.a2m").write_text(f"{same}A\n")
    (folder / "db.faa.gz").touch()
    (folder / "stale.hmm").write_text("HMMER3/f\n//\n")
    (folder / "stale.hmm.h3m").touch()
    os.utime(folder / "stale.hmm.h3m", (1, 1))
    with pytest.raises(RefusedError) as caught:
        understand(folder, line, stdin="nhmmer" in line)
    assert words in caught.value.message
    assert caught.value.hint


@pytest.mark.skipif(shutil.which("hmmsearch") is None, reason="hmmer is not installed")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--cut_ga -E 1", "Option -E is incompatible with"),
        ("-E -1", "takes real-valued arg in range x>0"),
        ("--cut", 'Abbreviated option "--cut" is ambiguous'),
    ],
)
def test_option_errors_are_those_of_the_tool(folder: Path, options: str, words: str) -> None:
    shutil.copy(str(shutil.which("hmmsearch")), folder / "bin" / "hmmsearch")
    with pytest.raises(RefusedError, match="hmmsearch does not take these options: ") as caught:
        understand(folder, f"hmmsearch {options} plain.hmm db.faa")
    assert words in caught.value.message


def test_exact_names_are_preferred_to_longer_ones() -> None:
    arguments = {"seed_max_depth": True, "seed": True, "h": False}
    parsed = parse_command_line(("nhmmer", "--seed", "3", "--", "q", "db"), arguments)
    assert (parsed.options[0].name, parsed.get_value("seed"), parsed.files) == ("seed", "3", (4, 5))


def test_option_arguments_match_the_help_page() -> None:
    shown = parse_help_options(HELP)
    assert shown["tblout"] and not shown["acc"] and shown["mx"]


def test_c_integer() -> None:
    assert [parse_c_integer(text) for text in ("42", "0x10", "-0", "")] == [42, 0, 0, 0]


@pytest.mark.parametrize("program", ["hmmsearch", "nhmmer"])
@pytest.mark.parametrize("packed", [False, True])
def test_profiles_of_mixed_alphabets_are_refused(folder: Path, program: str, packed: bool) -> None:
    """Wherever in the file the second alphabet starts."""
    one, other = (b"HMMER3/f [3.3.2]\nNAME  x\nLENG  1\nALPH  %s\nHMM\n//\n" % name for name in (b"DNA", b"RNA"))
    # The line lies across the end of what is read at once.
    filled = (one * ((1 << 20) // len(one) + 1))[: (1 << 20) - other.index(b"PH")]
    name = "mixed.hmm.gz" if packed else "mixed.hmm"
    for text, is_mixed in (
        (one * 3, False),
        (one + other, True),
        (filled[: filled.rindex(b"HMMER3")] + one * 2, False),
    ):
        (folder / name).write_bytes(gzip.compress(text) if packed else text)
        if not is_mixed:
            understand(folder, f"{program} {name} db.faa")
            continue
        with pytest.raises(RefusedError, match=r"several alphabets \(dna, rna\)"):
            understand(folder, f"{program} {name} db.faa")
    for cut in range(12):
        text = filled[: filled.rindex(b"HMMER3")]
        text += b"#" * ((1 << 20) - len(text) - other.index(b"ALPH") - 6 + cut) + b"\n" + other
        (folder / name).write_bytes(gzip.compress(text) if packed else text)
        with pytest.raises(RefusedError, match="several alphabets"):
            understand(folder, f"{program} {name} db.faa")
