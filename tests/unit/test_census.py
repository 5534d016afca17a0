"""The census of programs: its page and list are those of its results, no result is wrong, and what it refuses is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from census import page, refusal_list
from census.measurement import CommandResult
from census.program_files import CensusCommand, list_names, read_census_file
from census.records import cut_sizes, describe_difference, join_blocks, split_records
from census.result_files import list_suites, read_all_results

from millrace.adapters.call_rules import ProgramCall
from millrace.adapters.known_refusals import find_refusal, is_in_census
from millrace.adapters.registry import find_adapter
from millrace.core.tool_use import UserCommand

#: Programs with a result.
MIN_PROGRAMS = 450


def list_results(suite: str = "") -> list[tuple[CensusCommand, CommandResult]]:
    results = read_all_results(suite)
    commands = {(name, each.run): each for name in results for _, each in read_census_file(name).list_commands()}
    return [
        (commands[name, seen.command], seen)
        for name in results
        for seen in results[name].commands
        if (name, seen.command) in commands
    ]


def test_census_page_is_that_of_its_results() -> None:
    assert page.PAGE.read_text() == page.format_page(read_all_results(), page.read_suites()), "python -m census --page"


def test_census_list_is_that_of_its_files() -> None:
    assert refusal_list.LIST.read_text() == refusal_list.format_refusal_list(), "python -m census --page"


@pytest.mark.parametrize("suite", ["", *list_suites()])
def test_census_has_no_wrong_and_no_unexpected_result(suite: str) -> None:
    odd = [
        (seen.command, seen.verdict, command.get_expected(suite))
        for command, seen in list_results(suite)
        if seen.verdict != command.get_expected(suite)
    ]
    assert not odd
    assert all(seen.verdict in ("exact", "refused") or command.note or suite for command, seen in list_results(suite))
    assert all(seen.verdict != "wrong" for _, seen in list_results(suite))


def test_census_covers_what_its_page_promises() -> None:
    seen = [each for _, each in list_results()]
    assert len({each.program for each in seen}) >= MIN_PROGRAMS


@pytest.mark.parametrize("suite", ["", *list_suites()])
def test_census_commands_with_other_bytes_are_not_exact(suite: str) -> None:
    """Where pieces give other bytes, joined as the file says, Millrace must not claim success by luck."""
    lucky = [
        seen.command
        for command, seen in list_results(suite)
        if seen.verdict == "exact"
        and not command.known
        and seen.n_records
        and not seen.is_sum_of_parts
        and not command.note
    ]
    assert not lucky


def test_calls_of_the_census_are_refused_as_it_says() -> None:
    named = {
        program for name in list_names() for each in read_census_file(name).refused for program in each.programs.split()
    }
    for command, seen in list_results():
        if seen.program in named:
            ways = {how.partition(":")[0].rpartition("=")[2] for how in command.join}
            words = command.format_line().split()
            formats = frozenset(Path(name).suffix[1:] for name in command.inputs)
            call = ProgramCall(words[0], words[1:], ways, lambda formats=formats: formats)
            assert bool(find_refusal(call)) == (seen.verdict == "refused"), command.run


def test_plan_names_a_program_that_is_not_in_the_census(tmp_path: Path) -> None:
    (tmp_path / "in.fa").write_text(">a\nM\n")
    notes = dict[str, str]()
    for program in ("biosed", "mytool"):
        use = find_adapter(program).understand_command(
            UserCommand(argv=(program, "in.fa"), cwd=tmp_path, environ={}, exe=Path("/bin/true"), inputs=("in.fa",))
        )
        notes[program] = "\n".join(use.notes)
    assert is_in_census("biosed") and not is_in_census("mytool")
    assert "mytool is not in the census" in notes["mytool"]
    assert "census" not in notes["biosed"]


@pytest.mark.parametrize("size", [1, 7, 16, 400])
def test_pieces_cover_all_records_once(size: int) -> None:
    for n_records in (1, 6, 30, 160):
        sizes = cut_sizes(n_records, size)
        assert sum(sizes) == n_records and min(sizes) > 0


def test_records_and_header_make_the_file_again(tmp_path: Path) -> None:
    for name, text in (
        ("a.fa", b">x\nAC\n>y\nG\n"), ("a.fq", b"@x\nA\n+\nI\n@y\nC\n+\n@\n"), ("a.vcf", b"##x\n#y\n1\t2\n3\t4\n"),
        ("a.sdf", b"m\n$$$$\nn\n$$$$\n"), ("a.mgf", b"BEGIN IONS\nEND IONS\nBEGIN IONS\nEND IONS\n"), ("a.txt", b"1\n2\n"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(text)
        header, records = split_records(tmp_path / name)
        assert len(records) == 2 and header + b"".join(records) == text


def test_join_keeps_one_header_or_says_that_they_differ() -> None:
    assert join_blocks([b"#a\n1\n", b"#a\n2\n"], "header:^#") == b"#a\n1\n2\n"
    assert join_blocks([b"a\n1\n", b"a\n2\n", b""], "header") == b"a\n1\n2\n"
    assert join_blocks([b"#a\n1\n", b"#b\n2\n"], "header:^#") is None
    assert join_blocks([b"<r>\n1\n</r>\n", b"<r>\n2\n</r>\n"], "xml:r") == b"<r>\n1\n2\n</r>\n"


def test_difference_is_named_by_its_kind() -> None:
    assert describe_difference(b"1\n2\n", b"1\n2\n") == "same"
    assert describe_difference(b"1\n2\n", b"2\n1\n") == "the same lines in another order"
    assert describe_difference(b"1\n", b"1\n1\n") == "the same lines, some more often"
    assert describe_difference(b"1\n3\n", b"1\n2\n") == "line 2: '3', in pieces '2'"
