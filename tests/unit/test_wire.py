"""What travels between the processes of a job is values, and nothing that does anything when it arrives."""

from __future__ import annotations

import pickle
import subprocess
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace import _core
from millrace.cluster import keeper as staged
from millrace.cluster import messages as say
from millrace.cluster import wire
from millrace.errors import CorruptError
from millrace.ids import BatchId, SlotId, TaskId
from millrace.model import Command, Fetched, InputArg, InputUse, OutputUse, ToolUse, View
from millrace.node.batch import Batch
from millrace.output.parts import Part, Written
from millrace.plan import staging, world
from millrace.tasks import Ended, Ending, Slice, Started, Task

BLOCK = _core.BlockRef("journal", (0, b"", 3, 1, 7))
TASK = _core.TaskRef("journal", (3, 4, 0), False, [(9, 9)], [(0, b"", 3, 1, 0)])
USE = ToolUse(
    adapter="generic", argv=("tool", InputArg(index=0)), inputs=(InputUse(path="in", format="fasta"),),
    outputs=(OutputUse(name="out", path="out"),), databases=(Path("/db"),),
)  # fmt: skip
COMMAND = Command(argv=("tool",), cwd=Path("/"), environ={"A": "b"}, exe=Path("/bin/tool"))
VIEW = View(
    root=Path("/names"), folder=Path("/names/work"), argv=("tool", "nr"),
    files=(Fetched(name="nr.psq", place="s3://b/nr.psq", key="k", size=1, version="v", mtime_ns=2),),
)  # fmt: skip

SLICE = Task(id=TaskId(1), batch=BatchId(2), kind=Slice(0, 3), timeout_seconds=2.0, found=[BLOCK])
ENDED = Ended(task=TaskId(1), slot=SlotId(2), ago_seconds=0.5, ending=Ending.DONE, stderr=b"said", committed=TASK)

MESSAGES = [
    say.Setup(USE, "/", "tool", COMMAND, {}, 0, "run", b"id", "journal", 1.0, 2, 0, "host (rank 1)", [("a", "b")], {0: 7},
              [world.File("program", "/bin/tool", 1, 2, 3)], VIEW, {"nr.psq": "/dev/shm/copy"}),
    say.Work([say.Assignment(SLICE, Batch(0, 1, 1, 1, ((1, 2),), ()), [b"x" * 200_000, b"\n"])]),
    say.Report([Started(TaskId(1), SlotId(2), 0.5), ENDED]),
    say.From(3, say.Wrote([Written([(0, 1)], [])])),
    say.ForAll(say.Write(Part(0, 1, [(5, BLOCK)]))),
    staged.Room(staging.Node("host", 1, 2, staging.Place("/dev/shm", 1, 2, 3, frozenset({"key"})), None)),
    staged.Fetch((staging.File("/db", 1, 2, 3, 4, 5),), staging.Choice("ram", frozenset({"key"})), None, 2),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was(message: tuple[object, ...]) -> None:
    content = wire.dumps(message)
    arrived = wire.loads(bytearray(content))
    assert type(arrived) is type(message) and wire.dumps(arrived) == wire.dumps(pickle.loads(content))


def classes(of: object, seen: set[type]) -> Iterator[type]:
    """The classes of values that may be in one of a type."""
    for part in typing.get_args(of):
        yield from classes(part, seen)
    if isinstance(of, type) and of.__module__.startswith("millrace") and of not in seen:
        seen.add(of)
        yield of
        for hint in typing.get_type_hints(of).values() if of.__module__ != "millrace._core" else ():
            yield from classes(hint, seen)


def test_all_that_messages_may_contain_can_arrive() -> None:
    seen: set[type] = set()
    for module in (say, staged):
        for of in list(vars(module).values()):
            if isinstance(of, type) and issubclass(of, tuple) and of.__module__ == module.__name__:
                list(classes(of, seen))
    assert ToolUse in seen and len(seen) > 40, "the test looks at them"
    for each in seen:
        assert wire.loads(pickle.dumps(each, protocol=5)) is each


class Runs:
    def __init__(self, what: Callable[..., object], *words: object) -> None:
        self.what, self.words = what, words

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.what, self.words


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize(
    ("what", "words"),
    [(subprocess.check_call, ["touch"]), (Path.touch, []), (eval, []), (say.as_told, []), (staged.Keeper, []), (say.Hello.name, [])],
    ids=["a command", "a method", "eval", "a function", "an object", "a dotted name"],
)  # fmt: skip
def test_what_would_run_something_does_not(
    what: Callable[..., object], words: list[str], protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    content = pickle.dumps(say.From(1, Runs(what, [*words, "made"])), protocol=protocol)
    with pytest.raises(
        CorruptError if protocol == 5 else pickle.UnpicklingError, match=r"no message contains|is not text"
    ):
        wire.loads(content)
    assert not any(tmp_path.iterdir())
