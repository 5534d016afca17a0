"""Results of real tools, packed and unpacked with the command line: the same bytes, or a reason."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from parameter_choice import some
from session_resources import once
from tool_batches import need

from millrace.core.errors import RefusedError
from millrace.core.tool_use import DatabaseArg, InputArg, OutputArg
from millrace.extensions.pack import layout, pack_unpacker
from millrace.extensions.pack.layout import PackWriter, SectionKind, read_sections
from millrace.extensions.pack.regeneration_run import build_command_line

MILLRACE = [sys.executable, "-m", "millrace"]

#: Command, files that it writes, the database, and the queries.
RESULTS = {
    "blastp-0": ("blastp -query q.faa -db prot -outfmt 0 -num_descriptions 500 -num_alignments 500 -out out", ["out"], "prot", "q.faa"),
    "blastp-5": ("blastp -query q.faa -db prot -outfmt 5 -out out", ["out"], "prot", "q.faa"),
    "blastp-6": ("blastp -query q.faa -db prot -outfmt 6 -max_target_seqs 5 -out out", ["out"], "prot", "q.faa"),
    "blastp-7": ("blastp -query q.faa -db prot -outfmt 7 -num_threads 2 -out out", ["out"], "prot", "q.faa"),
    "blastp-15": ("blastp -query q.faa -db prot -outfmt 15 -evalue 1e-3 -out out", ["out"], "prot", "q.faa"),
    "blastn-6": ("blastn -query q.fna -db nucl -outfmt '6 std qlen sseq' -out out", ["out"], "nucl", "q.fna"),
    "tblastn-6": ("tblastn -query q.faa -db nucl -outfmt 6 -out out", ["out"], "nucl", "q.faa"),
    "hmmscan": ("hmmscan -o out --tblout t --domtblout d --pfamtblout f p.hmm q.faa", ["out", "t", "d", "f"], "p.hmm", "q.faa"),
    "hmmsearch": ("hmmsearch -o /dev/null --tblout t --domtblout d p.hmm prot.faa", ["t", "d"], "prot.faa", "p.hmm"),
}  # fmt: skip


def ask(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MILLRACE, *arguments], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=540
    )


def link(bench: Path, folder: Path) -> Path:
    for path in bench.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


def packed(folder: Path, name: str) -> None:
    """Let the outputs of a result be there, and its pack."""
    command = shlex.split(RESULTS[name][0])
    need(command[0])
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    told = ask(folder, "pack", "-o", "result.mrp", "--batch", "7", "--", *command)
    assert told.returncode == 0, told.stderr


def unpack(folder: Path, name: str, *more: str) -> subprocess.CompletedProcess[str]:
    _, outputs, _, queries = RESULTS[name]
    named = [word for each in outputs for word in ("-o", f"again-{each}")]
    return ask(folder, "unpack", "result.mrp", "--yes", "--queries", queries, *more, *named)


def own(path: Path) -> bytes:
    """Let a linked file be one of this folder; what it holds."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    return data


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if "again" in path.name or path.name.endswith(".new")]


@pytest.fixture
def place(bench_of: Path, tmp_path: Path) -> Path:
    return link(bench_of, tmp_path)


@pytest.fixture(scope="session")
def blastp_6(bench_of: Path, session_folder: Path) -> Path:
    """A folder with a packed result, not to be changed."""
    return once(session_folder / "packed", lambda folder: packed(link(bench_of, folder), "blastp-6"))


@pytest.fixture
def result(blastp_6: Path, tmp_path: Path) -> Iterator[Path]:
    yield link(blastp_6, tmp_path)


@pytest.mark.parametrize("name", some(RESULTS, "blastp-0", "hmmscan"))
def test_an_unpacked_result_is_the_original(place: Path, name: str) -> None:
    packed(place, name)
    # By its meaning, not as it is.
    assert pack_unpacker.read_recipe(place / "result.mrp").codec == ("hmmer" if name.startswith("hmm") else "blast")
    told = unpack(place, name)
    assert told.returncode == 0, told.stderr
    for output in RESULTS[name][1]:
        assert (place / f"again-{output}").read_bytes() == (place / output).read_bytes()
    assert sorted(left_behind(place)) == sorted(f"again-{output}" for output in RESULTS[name][1])


@pytest.mark.slow
def test_queries_can_be_included_in_a_pack(place: Path) -> None:
    command = shlex.split(RESULTS["blastp-6"][0])
    subprocess.run(command, cwd=place, check=True)
    assert ask(place, "pack", "--with-queries", "-o", "result.mrp", "--", *command).returncode == 0
    (place / "q.faa").unlink()
    told = ask(place, "unpack", "result.mrp", "--yes", "-o", "again")
    assert told.returncode == 0, told.stderr
    assert (place / "again").read_bytes() == (place / "out").read_bytes()


def database(folder: Path, entries: list[bytes], name: str, *more: str) -> None:
    (folder / f"{name}.faa").write_bytes(b"".join(entries))
    subprocess.run(
        ["makeblastdb", "-in", f"{name}.faa", "-dbtype", "prot", "-out", name, "-title", "another title", *more],
        cwd=folder, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip


def entries_of(result: Path) -> list[bytes]:
    text = (result / "prot.faa").read_bytes().rstrip(b"\n")
    return [b">" + part.removeprefix(b">") + b"\n" for part in text.split(b"\n>")]


def test_renamed_database_volumes_are_the_same_database(result: Path) -> None:
    entries = entries_of(result)
    half = len(entries) // 2
    database(result, entries[:half], "first")
    database(result, entries[half:], "second")
    (result / "both.pal").write_text("TITLE both\nDBLIST first second\n")
    told = unpack(result, "blastp-6", "--db", "both")
    assert told.returncode == 0, told.stderr
    assert (result / "again-out").read_bytes() == (result / "out").read_bytes()


def test_database_with_appended_entries_regenerates_exactly(result: Path) -> None:
    entries = entries_of(result)
    database(result, [*entries, *(entry.replace(b">", b">more_", 1) for entry in entries[:300])], "grown")
    told = unpack(result, "blastp-6", "--db", "grown")
    assert told.returncode == 0, told.stderr
    assert (result / "again-out").read_bytes() == (result / "out").read_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda entries: entries[::-1], "in another order"),
        (lambda entries: entries[:-1], "entries, that one had"),
        (lambda entries: [entries[0][:-2] + b"W\n", *entries[1:]], "some are others"),
        (lambda entries: [*entries[1:], entries[0], entries[0]], "in another order"),
    ],
)
def test_another_database_is_refused_with_the_difference(result: Path, change: object, words: str) -> None:
    database(result, change(entries_of(result)), "other")  # type: ignore[operator]
    told = unpack(result, "blastp-6", "--db", "other")
    assert told.returncode == 2
    assert words in told.stderr
    assert not [name for name in left_behind(result) if not name.endswith(".unpack")]


def test_other_queries_are_refused(result: Path) -> None:
    told = ask(result, "unpack", "result.mrp", "--yes", "--queries", "q3.faa", "-o", "again")
    assert told.returncode == 2
    assert "other queries" in told.stderr
    told = ask(result, "unpack", "result.mrp", "--yes", "-o", "again")
    assert told.returncode == 2
    assert "--queries" in told.stderr


def rewritten(source: Path, dest: Path, **changes: object) -> None:
    """A pack that says something else of itself, well made in all else."""
    import msgspec

    writer = PackWriter(dest)
    for section in read_sections(source):
        if section.kind is SectionKind.RECIPE:
            made = msgspec.structs.replace(layout.decode_recipe(section.unpack_bytes()), **changes)
            writer.add(SectionKind.RECIPE, layout.encode_recipe(made))
        elif section.kind is SectionKind.HITS:
            writer.add(SectionKind.HITS, section.unpack_bytes())
    writer.finish(lambda _: None)


def test_another_version_of_the_tool_is_refused(result: Path) -> None:
    rewritten(result / "result.mrp", result / "other.mrp", version="blastp: 1.0.0")
    told = ask(result, "unpack", "other.mrp", "--yes", "--queries", "q.faa", "-o", "again")
    assert told.returncode == 2
    assert "blastp: 1.0.0" in told.stderr
    # It may be tried; without the differences the result is not the original, so nothing is written.
    told = ask(result, "unpack", "other.mrp", "--yes", "--any-version", "--queries", "q.faa", "-o", "again")
    assert told.returncode == 5
    assert "nothing is written" in told.stderr
    assert not (result / "again").exists()


def test_unpack_without_yes_runs_nothing(result: Path) -> None:
    told = ask(result, "unpack", "result.mrp", "--queries", "q.faa", "-o", "again")
    assert told.returncode == 2
    assert "blastp -query queries -db" in told.stderr
    assert not (result / "again").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"tool": "sh"},
        {"tool": "/bin/blastp"},
        {"tool": "hmmscan"},
        {"arguments": ("-query", "/etc/passwd")},
        {"arguments": ("-logfile", "../log")},
        {"codec": "nobody's"},
    ],
)
def test_foreign_pack_with_another_command_is_refused(result: Path, changes: dict[str, object]) -> None:
    rewritten(result / "result.mrp", result / "strange.mrp", **changes)
    told = ask(result, "unpack", "strange.mrp", "--yes", "--queries", "q.faa", "-o", "again")
    assert told.returncode == 2, told.stderr
    assert not (result / "again").exists()


@pytest.mark.slow
def test_text_of_a_foreign_pack_is_escaped(result: Path) -> None:
    made = pack_unpacker.read_recipe(result / "result.mrp")
    assert made.queries and made.database
    evil = "EVIL\rall fine\n\u202e\x1b[2J"
    queries, base = replace(made.queries, name=evil), replace(made.database, name=evil, title=evil)
    outputs = (replace(made.outputs[0], name=evil),)
    forgeries: list[dict[str, object]] = [
        {"version": evil, "millrace": evil}, {"outputs": outputs}, {"queries": queries}, {"database": base},
        {"tool": evil}, {"codec": evil}, {"arguments": (*made.arguments, "-soft_masking", evil)},
        {"arguments": (InputArg(5), *made.arguments)},
    ]  # fmt: skip
    for number, changes in enumerate(forgeries):
        rewritten(result / "result.mrp", result / f"{number}.mrp", **changes)
        # All are listed alike, and asked for alike before they begin.
        asked = [["--list"], ["-o", "again"], ["-o", "x", "-o", "y"]] if number % 3 == 0 else [["--list"]]
        for more in (*asked, ["-o", "again", "--yes", "--queries", "q.faa"]):
            told = ask(result, "unpack", f"{number}.mrp", *more)
            assert not {"\r", "\u202e", "\x1b"} & set(told.stdout + told.stderr)
            assert "\nall" not in told.stdout + told.stderr
            assert "InputArg" not in told.stdout + told.stderr
            assert "EVIL" not in told.stdout + told.stderr or r"EVIL\r" in told.stdout + told.stderr
    assert not (result / "again").exists() or (result / "again").read_bytes() == (result / "out").read_bytes()


def test_a_pack_lists_its_command(result: Path) -> None:
    told = ask(result, "unpack", "--list", "result.mrp")
    assert "command: blastp -query QUERIES -db DATABASE -outfmt 6 -max_target_seqs 5 -out OUTPUT\n" in told.stdout


def test_foreign_pack_option_writes_no_user_file(result: Path) -> None:
    made = pack_unpacker.read_recipe(result / "result.mrp")
    (result / "precious").write_text("precious")
    arguments = (*made.arguments, "-export_search_strategy", "precious")
    rewritten(result / "result.mrp", result / "strange.mrp", arguments=arguments)
    told = ask(result, "unpack", "strange.mrp", "--yes", "--queries", "q.faa", "-o", "again")
    assert told.returncode != 0
    assert (result / "precious").read_text() == "precious"


@pytest.mark.parametrize(
    "token", [OutputArg(0, "../"), OutputArg(0, "-out=../"), InputArg(0, "/etc/"), DatabaseArg("-out=x/../")]
)
def test_pack_prefix_cannot_leave_the_folder(result: Path, token: OutputArg | InputArg | DatabaseArg) -> None:
    made = pack_unpacker.read_recipe(result / "result.mrp")
    before = sorted(path.name for path in result.iterdir())
    rewritten(result / "result.mrp", result / "strange.mrp", arguments=(*made.arguments[:-1], token))
    told = ask(result, "unpack", "strange.mrp", "--yes", "--queries", "q.faa", "-o", "again")
    assert told.returncode == 2 and "belongs to no such command" in told.stderr, told.stderr
    assert sorted(path.name for path in result.iterdir()) == sorted([*before, "strange.mrp"])


@pytest.mark.parametrize("token", [InputArg(0), DatabaseArg(), "precious"])
def test_pack_writes_only_names_chosen_by_millrace(result: Path, token: InputArg | DatabaseArg | str) -> None:
    """Where the queries stand in the place of the output, the file of the user would be written over."""
    made = pack_unpacker.read_recipe(result / "result.mrp")
    before = (result / "q.faa").read_bytes()
    rewritten(result / "result.mrp", result / "strange.mrp", arguments=(*made.arguments[:-1], token))
    told = ask(result, "unpack", "strange.mrp", "--yes", "--queries", "q.faa", "-o", "again")
    assert told.returncode == 2, told.stderr
    assert (result / "q.faa").read_bytes() == before and not (result / "again").exists()


def test_path_in_pack_arguments_is_refused() -> None:
    for text in ("/x", "a/b", "..", "~/x", "a\0b"):
        with pytest.raises(RefusedError):
            build_command_line("blastp", [text], "db")


def test_a_damaged_pack_writes_nothing(result: Path) -> None:
    text = bytearray((result / "result.mrp").read_bytes())
    (result / "result.mrp").unlink()
    text[len(text) // 2] ^= 4
    (result / "result.mrp").write_bytes(text)
    told = unpack(result, "blastp-6")
    assert told.returncode == 5
    assert left_behind(result) == []


@pytest.mark.parametrize("name", ["out", "q.faa"])
def test_pack_does_not_overwrite_result_or_queries(result: Path, name: str) -> None:
    before = own(result / name)
    told = ask(result, "pack", "-o", name, "--", *shlex.split(RESULTS["blastp-6"][0]))
    assert told.returncode == 2
    assert "would be written over" in told.stderr
    assert (result / name).read_bytes() == before


@pytest.mark.parametrize("name", ["result.mrp", "q.faa"])
def test_unpack_does_not_overwrite_pack_or_queries(result: Path, name: str) -> None:
    before = own(result / name)
    told = ask(result, "unpack", "result.mrp", "--yes", "--queries", "q.faa", "-o", name)
    assert told.returncode == 2
    assert "would be written over" in told.stderr
    assert (result / name).read_bytes() == before


def test_result_that_cannot_be_regenerated_is_compressed(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("b\na\n" * 500)
    (tmp_path / "out").write_text("B\nA\n" * 500)
    command = ["--", "tr", "a-z", "A-Z"]
    with (tmp_path / "in").open() as source:
        told = subprocess.run(
            [*MILLRACE, "pack", "out", "-o", "p.mrp", *command],
            cwd=tmp_path,
            stdin=source,
            capture_output=True,
            text=True,
        )
    assert told.returncode == 0, told.stderr
    assert "compressed with zstd" in told.stderr
    assert (tmp_path / "p.mrp").stat().st_size < 1000
    assert ask(tmp_path, "unpack", "p.mrp", "-o", "again").returncode == 0
    assert (tmp_path / "again").read_bytes() == (tmp_path / "out").read_bytes()


@pytest.mark.slow
def test_a_result_of_another_command_is_still_packed_losslessly(place: Path) -> None:
    """The command is not what made the result: what is regenerated differs, so the result is compressed as it is."""
    need("blastp")
    (place / "out").write_bytes(os.urandom(4000).hex().encode())
    command = shlex.split(RESULTS["blastp-6"][0].replace("-outfmt 6", "-outfmt 7"))
    told = ask(place, "pack", "-o", "result.mrp", "--", *command)
    assert told.returncode == 0, told.stderr
    told = ask(place, "unpack", "result.mrp", "--yes", "--queries", "q.faa", "-o", "again")
    assert told.returncode == 0, told.stderr
    assert (place / "again").read_bytes() == (place / "out").read_bytes()


def test_a_stopped_unpacking_is_resumed(result: Path) -> None:
    """What a killed start has left is taken up, and gone in the end."""
    words = [*MILLRACE, "unpack", "result.mrp", "--yes", "--queries", "q.faa", "-o", "again"]
    process = subprocess.Popen(words, cwd=result, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not [*result.glob("again.*.unpack/run/job.json")]:
        pass
    process.kill()
    process.wait()
    told = ask(result, *words[3:])
    assert told.returncode == 0, told.stderr
    assert (result / "again").read_bytes() == (result / "out").read_bytes()
    assert left_behind(result) == ["again"]


@pytest.fixture(autouse=True)
def tools() -> None:
    if shutil.which("blastp") is None:
        pytest.skip("blastp is not installed")


def test_plan_compares_three_packings_and_writes_nothing(result: Path) -> None:
    command = shlex.split(RESULTS["blastp-6"][0])
    before = {path.name for path in result.iterdir()}
    for bandwidth, best in (("1", "packed"), ("1000000G", "as it is")):
        told = ask(result, "pack", "--plan", "--bandwidth", bandwidth, "--", *command)
        assert told.returncode == 0, told.stderr
        assert f"best: {best}" in told.stdout
    assert {path.name for path in result.iterdir()} == before
    assert ask(result, "pack", "--plan", "--", *command).returncode == 2
