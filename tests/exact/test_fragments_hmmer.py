"""HMMER with its targets in fragments writes the bytes of the serial run: the real programs, driven task after task."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from fragment_driver import unequal
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_batches import cut, still

from millrace import _core
from millrace.adapters import database_backend
from millrace.adapters.adapter_base import DatabaseFacts
from millrace.adapters.hmmer.command_line import VOLATILE
from millrace.adapters.hmmer.fragments import ADAPTER
from millrace.core.tool_use import ArgumentToken, DatabaseArg, InputArg, OutputArg, ToolUse, UserCommand

pytestmark = pytest.mark.skipif(shutil.which("hmmsearch") is None, reason="hmmer is not installed")

#: One process, as the tasks have it: with more, which hits HMMER keeps for a while, and so the widths of columns,
#: may differ from one serial run to the next.
ENVIRON = {**os.environ, "HMMER_NCPU": "0"}
#: Longer than any column is wide.
LONG_NAME = b"a_name_that_is_" + b"very_" * 9 + b"long"
MILLRACE = [sys.executable, "-m", "millrace", "run", "-q", "--progress", "none"]
TABLES = ("-o", "out.txt", "--tblout", "hits.tbl", "--domtblout", "domains.tbl", "--pfamtblout", "pfam.tbl")


def command_of(argv: Sequence[str], cwd: Path) -> UserCommand:
    exe = shutil.which(argv[0])
    assert exe is not None
    return UserCommand(argv=tuple(argv), cwd=cwd, environ=ENVIRON, exe=Path(exe))


def fragmentable(argv: Sequence[str], cwd: Path) -> DatabaseFacts:
    command = command_of(argv, cwd)
    found = ADAPTER.examine_database(ADAPTER.understand_command(command), command)
    return found.count() if found.count else found


def understand(argv: Sequence[str], cwd: Path, n: int) -> ToolUse:
    command = command_of(argv, cwd)
    use = ADAPTER.understand_command(command)
    assert ADAPTER.examine_database(use, command).why_not == ""
    return ADAPTER.plan_fragments(use, command, unequal(n))


def execute(tokens: Sequence[ArgumentToken], use: ToolUse, database: str, folder: Path) -> bytes:
    argv = []
    for token in tokens:
        match token:
            case InputArg():
                argv.append(token.prefix + use.inputs[token.index].path)
            case OutputArg():
                argv.append(token.prefix + use.outputs[token.index].path)
            case DatabaseArg():
                argv.append(token.prefix + database)
            case _:
                argv.append(token)
    done = subprocess.run(argv, cwd=folder, env=ENVIRON, capture_output=True, check=False)
    assert done.returncode == 0, (argv, done.stdout[-300:], done.stderr)
    return done.stdout


def in_fragments(use: ToolUse, size: int, cwd: Path, folder: Path) -> dict[str, bytes]:
    """The joined bytes of every output when ``size`` records make a batch."""
    assert use.fragmented is not None
    kind = database_backend.find_backend(use.fragmented)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "fragments").mkdir(parents=True)
    databases = kind.prepare_fragments(use.fragmented, folder / "fragments", cwd, ENVIRON)
    source = use.inputs[0]
    text = (cwd / source.path).read_bytes()
    records = cut(text, "fasta") if source.format == "fasta" else re.findall(rb"^HMMER(?:.*\n)+?//\n", text, re.M)
    blocks: dict[str, list[tuple[int, bytes]]] = {output.name: [] for output in use.outputs}
    for first in range(0, len(records), size):
        batch = records[first : first + size]
        slot = folder / f"slot{first}"
        (slot / ".candidates").mkdir(parents=True)
        hidden = [source.path, *(output.path for output in use.outputs)]
        for path in cwd.iterdir():
            if not any(path.name.startswith(name) for name in hidden):
                (slot / path.name).symlink_to(path)
        (slot / source.path).write_bytes(b"".join(batch))
        found = [
            execute(fragment.argv, use, database, slot)
            for fragment, database in zip(use.fragmented.fragments, databases, strict=True)
        ]
        name = kind.make_candidates(use.fragmented, slot / ".candidates", cwd, ENVIRON, found, len(batch))
        stdout = execute(use.fragmented.finish, use, f".candidates/{name}", slot)
        patches = {index: (how, side) for index, how, side in kind.list_patches(use.fragmented, slot / ".candidates")}
        for index, output in enumerate(use.outputs):
            data = stdout if output.stdout else (slot / output.path).read_bytes()
            data = data.replace(f".candidates/{name}".encode(), use.fragmented.database.encode())
            data = data.replace(os.fsencode(slot), os.fsencode(cwd))
            if index in patches:
                how, side = patches[index]
                data = _core.patch(how, Path(side).read_bytes(), data)
            blocks[output.name].append((len(batch), data))
    return {output.name: _core.join(output.join, blocks[output.name]) for output in use.outputs}


def serial(argv: Sequence[str], use: ToolUse, cwd: Path) -> dict[str, bytes]:
    """The outputs of the command, as they are without what `HMMER_NCPU` adds."""
    stdout = execute(argv, use, "", cwd)
    blocks = {out.name: stdout if out.stdout else (cwd / out.path).read_bytes() for out in use.outputs}
    for output in use.outputs:
        (cwd / output.path).unlink(missing_ok=True)
    n = blocks["out"].count(b"\n//\n") if "out" in blocks else 1
    return {output.name: _core.join(output.join, [(n, blocks[output.name])]) for output in use.outputs}


def check(argv: Sequence[str], cwd: Path, folder: Path, plans: Sequence[tuple[int, int]]) -> dict[str, bytes]:
    """Compares the serial outputs with those of (fragments, records a batch)."""
    expected: dict[str, bytes] = {}
    for n, size in plans:
        use = understand(argv, cwd, n)
        expected = expected or serial(argv, use, cwd)
        joined = in_fragments(use, size, cwd, folder)
        for output in use.outputs:
            a, b = (still(text[output.name], output.volatile) for text in (joined, expected))
            assert a == b, f"{output.name} of {argv} in {n} fragments, batches of {size}"
    return expected


def rows(table: bytes) -> list[list[bytes]]:
    return [line.split() for line in table.splitlines() if not line.startswith(b"#")]


@pytest.fixture(scope="module")
def bench(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Targets with hits of all kinds; many are there twice, with the same or another name."""
    folder = tmp_path_factory.mktemp("user")
    chosen = random.Random(5)
    proteins = cut((data / "proteins_db.faa").read_bytes(), "fasta")[::24]
    profiles = re.findall(rb"^HMMER(?:.*\n)+?//\n", (data / "profiles.hmm").read_bytes(), re.M)[:17]
    names = re.findall(rb"(?m)^NAME  (fam\d+)$", b"".join(profiles))
    families = [cut((data / "families" / f"{name.decode()}.faa").read_bytes() + b"\n", "fasta") for name in names]
    members = [member for family in families[:9] for member in family[:6]]
    proteins += members
    proteins += chosen.sample(members, 15)
    proteins += [re.sub(rb"^>\S+", rb">" + LONG_NAME, each) for each in chosen.sample(members, 2)]
    proteins += [re.sub(rb"^>\S+", b">twin", each) for each in chosen.sample(members, 9)]
    proteins += [b">nothing\n", b">twin of nothing\n\n", b"> \tspaced  out\r\nMKVLAAGLLLAAQPAMA\r\n"]
    chosen.shuffle(proteins)
    (folder / "db.faa").write_bytes(b"".join(proteins).rstrip(b"\n"))
    profiles[2] = re.sub(rb"(?m)^NAME  \S+", b"NAME  " + LONG_NAME, profiles[2])
    profiles[5] = profiles[5].replace(b"\nALPH", b"\nACC   PF00005.2\nALPH", 1)
    profiles = [re.sub(rb"(?m)^STATS", b"GA    25.00 20.00;\nSTATS", each, count=1) for each in profiles]
    (folder / "p.hmm").write_bytes(b"".join(profiles))
    shutil.copy(folder / "p.hmm", folder / "q.hmm")
    subprocess.run(["hmmpress", "p.hmm"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    queries = cut((data / "proteins_queries.faa").read_bytes(), "fasta")[:3]
    queries += chosen.sample(members, 6)
    (folder / "q.faa").write_bytes(b"".join(queries))
    (folder / "q3.faa").write_bytes(b"".join(queries[2:5]))
    return folder


OPTIONS = [
    "",
    "--noali --acc",
    "--notextw -E 1000",
    "-E 1e-10 --domE 1e-5 --incE 1e-3 --incdomE 1e-4",
    "-T 30 --domT 10 --incT 50 --incdomT 20",
    "--cut_ga",
    "-Z 10000 --domZ 20",
    "-Z 7 --nobias --nonull2 --seed 7",
    "--F1 0.1 --F2 0.01 --F3 0.001 -E 1e6",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_hmmsearch_all_outputs(options: str, bench: Path, tmp_path: Path) -> None:
    argv = ("hmmsearch", *TABLES, "-A", "all.sto", *options.split(), "q.hmm", "db.faa")
    expected = check(argv, bench, tmp_path / "run", [(3, 7)])
    assert len(rows(expected["tblout"])) > 15


@pytest.mark.parametrize("options", OPTIONS[1::2])
def test_hmmscan_all_outputs(options: str, bench: Path, tmp_path: Path) -> None:
    argv = ("hmmscan", *TABLES, *options.split(), "p.hmm", "q.faa")
    expected = check(argv, bench, tmp_path / "run", [(3, 5)])
    assert rows(expected["tblout"])


@pytest.mark.parametrize(
    ("command", "n", "batch"),
    [
        ("hmmsearch -A a.sto -o out.txt {tables} q.hmm db.faa", 2, "1"),
        ("hmmsearch --cut_ga --acc {tables} q.hmm db.faa", 7, "3"),
        ("hmmsearch {tables} -E 1000 -Z 3 --domZ 5 q.hmm db.faa", 16, "auto"),
        ("hmmsearch --cpu 0 {tables} - db.faa", 3, "5"),
        ("hmmscan -o out.txt {tables} p.hmm q.faa", 2, "1"),
        ("hmmscan -T 20 {tables} --notextw p.hmm q.faa", 7, "2"),
        ("hmmscan {tables} p.hmm q.faa", 100, "auto"),
        ("phmmer -A a.sto {tables} --noali q3.faa db.faa", 3, "2"),
    ],
)
def test_command_line(command: str, n: int, batch: str, bench: Path, tmp_path: Path) -> None:
    argv = command.format(tables="--tblout hits.tbl --domtblout domains.tbl --pfamtblout pfam.tbl").split()
    written = []
    for folder, before in (
        (tmp_path / "serial", []),
        (tmp_path / "parallel", [*MILLRACE, "--slots", "2", "--batch", batch, "--fragments", str(n), "--"]),
    ):
        folder.mkdir()
        for path in bench.glob("*.[fh]*"):
            (folder / path.name).symlink_to(path)
        inputs = {path.name for path in folder.iterdir()}
        stdin = (bench / "q.hmm").read_bytes() if "-" in argv else b""
        done = subprocess.run([*before, *argv], cwd=folder, env=ENVIRON, input=stdin, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        outputs = {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in inputs}
        volatile = [pattern for patterns in VOLATILE.values() for pattern in patterns]
        written.append({name: still(text, [*volatile, "^# Current dir: .*$"]) for name, text in outputs.items()})
        written[-1]["-"] = still(done.stdout, volatile)
    assert written[0] == written[1]


def test_without_filters_every_target_may_be_a_candidate(bench: Path, tmp_path: Path) -> None:
    argv = ("hmmsearch", *TABLES, "--max", "-E", "1e9", "--noali", "one.hmm", "few.faa")
    (bench / "one.hmm").write_bytes((bench / "q.hmm").read_bytes().partition(b"//\n")[0] + b"//\n")
    (bench / "few.faa").write_bytes(b"".join(cut((bench / "db.faa").read_bytes(), "fasta")[:80]))
    expected = check(argv, bench, tmp_path / "run", [(3, 1)])
    assert len(rows(expected["tblout"])) > 40


@pytest.mark.parametrize("program", ["hmmsearch", "hmmscan"])
def test_nothing_found(program: str, bench: Path, tmp_path: Path) -> None:
    files = ("q.hmm", "db.faa") if program == "hmmsearch" else ("p.hmm", "q.faa")
    expected = check((program, *TABLES, "-E", "1e-300", *files), bench, tmp_path / "run", [(3, 7)])
    assert not rows(expected["domtblout"])


@pytest.mark.parametrize("options", ["", "--mx BLOSUM45 --popen 0.03 -A all.sto", "--cpu 0 --incE 1e-20"])
def test_phmmer(options: str, bench: Path, tmp_path: Path) -> None:
    check(("phmmer", *TABLES, *options.split(), "q3.faa", "db.faa"), bench, tmp_path / "run", [(3, 2)])


def test_hit_that_is_dropped_later_still_widens_the_columns(bench: Path, tmp_path: Path) -> None:
    """HMMER keeps hits by the number of targets so far, and makes columns as wide as the longest name of those kept."""
    (bench / "one.hmm").write_bytes((bench / "q.hmm").read_bytes().partition(b"//\n")[0] + b"//\n")
    targets = cut((bench / "db.faa").read_bytes() + b"\n", "fasta")
    found = rows(
        check(("hmmsearch", "--tblout", "t", "one.hmm", "db.faa"), bench, tmp_path / "run", [(2, 1)])["tblout"]
    )
    names = [each[1:].split()[0] for each in targets]
    worst = next(row for row in reversed(found) if names.count(row[0]) == 1)
    dropped = targets.pop(names.index(worst[0]))
    renamed = re.sub(rb"^>\S+", b">" + LONG_NAME * 2, dropped)
    (bench / "first.faa").write_bytes(b"".join([renamed, *targets]))
    threshold = str(float(worst[4]) / 2)
    argv = ("hmmsearch", *TABLES, "-E", threshold, "one.hmm", "first.faa")
    expected = check(argv, bench, tmp_path / "run", [(1, 1), (2, 1), (5, 1)])
    assert LONG_NAME * 2 not in expected["tblout"]
    # Never kept: the columns are narrower.
    argv = ("hmmsearch", *TABLES, "-E", threshold, "-Z", str(len(targets) + 1), "one.hmm", "first.faa")
    narrow = check(argv, bench, tmp_path / "run", [(2, 1)])
    assert len(expected["tblout"].splitlines()[1]) > len(narrow["tblout"].splitlines()[1])


NAMES = [b"a", b"b", b"twin", b"sp|P1|X_Y", LONG_NAME, b"#hash", b"------", b"[No"]


@st.composite
def target_sets(draw: st.DrawFn) -> list[tuple[bytes, str, int, int]]:
    """(name, kind, which, where it is cut) of each target."""
    kind = st.sampled_from(["member", "piece", "noise", "repeat", "empty", "giant"])
    return draw(st.lists(st.tuples(st.sampled_from(NAMES), kind, st.integers(0, 40), st.integers(1, 9)), min_size=1))


@given(
    targets=target_sets(),
    n=st.integers(1, 9),
    size=st.integers(1, 3),
    options=st.sampled_from(["", "-E 1e-20", "-E 1e5 --F3 0.01", "-T 5", "--max", "--cut_ga", "-Z 3 --domZ 2"]),
)
@settings(max_examples=20)
def test_adversarial_targets(
    bench: Path, tmp_path_factory: pytest.TempPathFactory, targets: list[tuple[bytes, str, int, int]], n: int,
    size: int, options: str,
) -> None:  # fmt: skip
    pool = [b"".join(each.splitlines()[1:]) for each in cut((bench / "db.faa").read_bytes(), "fasta")]
    members = [b"".join(each.splitlines()[1:]) for each in cut((bench / "q.faa").read_bytes(), "fasta")[3:]]
    text = []
    for name, kind, which, part in targets:
        member = members[which % len(members)]
        residues = {
            "member": member,
            "piece": member[: len(member) * part // 10],
            "noise": pool[which % len(pool)],
            "repeat": member[:part] * 40,
            "empty": b"",
            "giant": b"".join(members) * 3,
        }[kind]
        text.append(b">" + name + b" " + kind.encode() + b"\n" + residues + b"\n")
    folder = tmp_path_factory.mktemp("adversary")
    (folder / "t.faa").write_bytes(b"".join(text))
    profiles = re.findall(rb"^HMMER(?:.*\n)+?//\n", (bench / "q.hmm").read_bytes(), re.M)
    (folder / "q.hmm").write_bytes(b"".join(profiles[:3]))
    check(("hmmsearch", *TABLES, *options.split(), "q.hmm", "t.faa"), folder, folder / "run", [(n, size)])


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("jackhmmer q.faa db.faa", "each round"),
        ("nhmmer --dna q.faa db.faa", "nearly all would be candidates"),
        ("hmmsearch --restrictdb_stkey a --restrictdb_n 3 q.hmm db.faa", "already searches a part"),
        ("hmmsearch --tformat embl q.hmm db.faa", "only FASTA"),
        ("hmmscan --max p.hmm q.faa", "first filter"),
        ("hmmscan --F1 1.5 p.hmm q.faa", "first filter"),
        ("hmmsearch q.hmm within.faa", "'>' within a line"),
        ("hmmsearch q.hmm nameless.faa", "no name"),
        ("hmmsearch q.hmm q.hmm", "does not begin as FASTA"),
    ],
)
def test_refused_by_name(command: str, reason: str, bench: Path) -> None:
    (bench / "within.faa").write_bytes(b">a\nMKV>b\nMKV\n")
    (bench / "nameless.faa").write_bytes(b">a\nMKV\n> \nMKV\n")
    assert reason in fragmentable(command.split(), bench).why_not
