"""What every adapter owes, whatever its tool; the tools are real."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from adapter_contracts import OWED, WITHOUT, Owes
from exact_cases import MILLRACE
from parameter_choice import again
from tool_batches import arguments_of, call, cut, need, still, understand

from millrace import _core
from millrace.adapters.joins import OF_ONE_TOOL
from millrace.adapters.registry import FAMILIES, MODULES
from millrace.core.errors import RefusedError
from millrace.core.tool_use import STANDSTILL_SECONDS, InputArg, OutputArg, ToolUse

pytestmark = pytest.mark.process

DOCS = Path(__file__).resolve().parents[2] / "docs"


def tools(owed: list[Owes], elsewhere: Collection[str] = ()) -> pytest.MarkDecorator:
    """The test is run for these; those of programs that are cut ``elsewhere`` have their turn with ``-m slow``."""
    return pytest.mark.parametrize(
        "owes", [again(owes) if owes.program in elsewhere else owes for owes in owed], ids=[owes.line for owes in owed]
    )


all_tools = tools([*OWED])


def test_each_adapter_family_is_in_the_contract() -> None:
    assert {MODULES[owes.program] for owes in OWED} | WITHOUT.keys() == FAMILIES.keys()


@all_tools
def test_input_and_output_are_recognised_in_each_form(owes: Owes, bench_of: Path) -> None:
    """All other arguments stay as typed."""
    need(owes.program)
    for form in owes.forms:
        typed = owes.command(form)
        use = understand(typed, bench_of)
        places = [token for token in use.argv if isinstance(token, InputArg | OutputArg)]
        assert sum(isinstance(token, InputArg) for token in places) == 1, form
        named = {use.outputs[token.index].path for token in places if isinstance(token, OutputArg)}
        assert any(path.startswith(("out", "families")) for path in named), form
        again = arguments_of(use, {0: [owes.source]}, {k: _typed(output.path) for k, output in enumerate(use.outputs)})
        rest = iter(again)
        assert all(word in rest for word in typed), f"{form}: {again}"


def _typed(path: str) -> str:
    return path.removesuffix("{name}")


@all_tools
def test_pages_name_the_compared_releases(owes: Owes, bench_of: Path) -> None:
    need(owes.program)
    tested = [version.rstrip("+").partition("-")[0] for version in understand(owes.command(), bench_of).tested]
    for page in (DOCS / "tools" / f"{MODULES[owes.program]}.md", DOCS / "exactness.md"):
        text = page.read_text()
        assert tested and [version for version in tested if version not in text] == [], page


@all_tools
def test_computing_tool_has_a_standstill_limit(owes: Owes, bench_of: Path) -> None:
    need(owes.program)
    assert understand(owes.command(), bench_of).still_seconds == STANDSTILL_SECONDS


def test_unknown_program_has_no_standstill_limit(bench_of: Path) -> None:
    assert understand(["sh", "-c", "sleep 99; exec cat q.faa"], bench_of, inputs=("q.faa",)).still_seconds is None


@all_tools
def test_unsupported_use_is_refused_with_a_reason(owes: Owes, bench_of: Path) -> None:
    """The refusal comes before anything starts, and leaves no file."""
    need(owes.program)
    before = {path.name for path in bench_of.iterdir()}
    for line in owes.refused:
        with pytest.raises(RefusedError) as caught:
            understand(line.split(), bench_of)
        assert caught.value.message and not caught.value.message.endswith("."), line
    assert {path.name for path in bench_of.iterdir()} == before


@all_tools
def test_unknown_option_is_refused_or_left_to_the_tool(owes: Owes, bench_of: Path) -> None:
    need(owes.program)
    typed = owes.command()
    at = 2 if owes.program == "diamond" else 1
    try:
        understand([*typed[:at], "--no-such-option-of-it", *typed[at:]], bench_of)
    except RefusedError:
        return
    assert owes.judges_itself


@all_tools
def test_joins_of_an_adapter_are_in_the_list_of_joins(owes: Owes, bench_of: Path) -> None:
    need(owes.program)
    parts = {"concat", "header", "header-first", "footer", "restore", "csv", "sam", "jsonl", "xml"}
    for output in understand(owes.command(), bench_of).outputs:
        names = {part.partition(":")[0] for part in output.join.split("\n")}
        assert names <= parts | OF_ONE_TOOL.keys()
        _core.join(output.join, [])  # raises if there is none of that name


# What batches add up to


@pytest.fixture
def place(bench_of: Path, tmp_path: Path) -> Place:
    return Place(bench_of, tmp_path)


class Place:
    """Folders that look like the bench, each with an input of its own."""

    def __init__(self, bench: Path, root: Path) -> None:
        self.bench, self.root = bench, root

    def run(self, owes: Owes, use: ToolUse | None, text: bytes) -> dict[str, bytes]:
        """What the tool writes for ``text``: the user's command, or with ``use`` that of a task."""
        # Always of the same name, as all tasks see the folder of the command.
        folder = self.root / "work"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        plain = understand(owes.command(), self.bench)
        hidden = {owes.source, *(owes.source + suffix for suffix in plain.inputs[0].hide)}
        for path in self.bench.iterdir():
            if path.name not in hidden:
                (folder / path.name).symlink_to(path)
        (folder / owes.source).write_bytes(text)
        stdout, _ = call(arguments_of(use) if use else owes.command(), folder, use)
        return {
            output.name: stdout if output.stdout else (folder / output.path).read_bytes() for output in plain.outputs
        }

    def check(self, owes: Owes, batches: list[list[bytes]]) -> None:
        """The join of what tasks write for ``batches`` is what the tool writes for all of them."""
        use = understand(owes.command(), self.bench)
        serial = self.run(owes, None, b"".join(b"".join(batch) for batch in batches))
        written = [(len(batch), self.run(owes, use, b"".join(batch))) for batch in batches]
        for output in use.outputs:
            joined = _core.join(output.join, [(n, blocks[output.name]) for n, blocks in written])
            assert still(joined, output.volatile) == still(serial[output.name], output.volatile), output.name


def some_records(owes: Owes, bench: Path) -> list[bytes]:
    text = (bench / owes.source).read_bytes()
    form = understand(owes.command(), bench).inputs[0].format
    records = [part + b"//\n" for part in text.split(b"//\n")[:-1]] if form == "hmm" else cut(text, form)
    return [record for record in records if record.count(b"\n") > 1][: owes.records]


def cuts(n: int) -> Iterator[list[int]]:
    """Each record alone, all together, and two ways by chance."""
    dice = random.Random(n)
    yield [1] * n
    yield [n]
    for _ in range(2):
        sizes: list[int] = []
        while sum(sizes) < n:
            sizes.append(min(dice.randrange(1, 5), n - sum(sizes)))
        yield sizes


#: What `tests/exact` cuts in ways of its own.
cut_tools = tools([owes for owes in OWED if owes.is_cut], elsewhere=("blastp", "diamond", "minimap2", "cmsearch"))


@cut_tools
def test_any_cut_of_the_input_writes_serial_bytes(owes: Owes, bench_of: Path, place: Place) -> None:
    need(owes.program)
    records = some_records(owes, bench_of)
    for sizes in cuts(len(records)):
        rest = iter(records)
        place.check(owes, [[next(rest) for _ in range(size)] for size in sizes])


@tools([owes for owes in OWED if owes.is_cut and owes.nothing])
def test_batch_without_a_result_joins_first_last_and_alone(owes: Owes, bench_of: Path, place: Place) -> None:
    need(owes.program)
    nothing, records = owes.nothing.encode(), some_records(owes, bench_of)[:2]
    for batches in ([[nothing], records], [records, [nothing, nothing]], [[nothing], [nothing]]):
        place.check(owes, batches)


@tools([owes for owes in OWED if owes.is_cut])
def test_empty_input_is_treated_as_by_the_tool(owes: Owes, bench_of: Path, tmp_path: Path) -> None:
    need(owes.program)
    ended = []
    for way, before in (("serial", []), ("millrace", [*MILLRACE, "run", "-q", "--slots", "2", "--"])):
        folder = shutil.copytree(bench_of, tmp_path / way)
        for path in folder.glob(f"{owes.source}.*"):
            if owes.program in ("hmmsearch", "cmsearch"):
                path.unlink()  # the pressed form of what is empty now
        (folder / owes.source).write_bytes(b"")
        done = subprocess.run([*before, *owes.command()], cwd=folder, capture_output=True, check=False, timeout=300)
        files = {name: (folder / name).read_bytes() for name in ("out", "out.sdf") if (folder / name).exists()}
        ended.append((done.returncode, files, done.stderr))
    (serial, expected, _), (code, files, said) = ended
    if code == 0:
        volatile = understand(owes.command(), bench_of).outputs[0].volatile
        assert serial == 0, said
        assert {name: still(text, volatile) for name, text in files.items()} == {
            name: still(text, volatile) for name, text in expected.items()
        }
    else:
        assert b"\nhint: " in said or serial != 0, said
