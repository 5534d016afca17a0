"""What travels between the processes of a job is data: each message arrives as it was, and nothing else arrives."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import types
import typing
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path, PosixPath
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace import _core
from millrace.cluster import messages as say
from millrace.cluster.transport import message_encoding
from millrace.core import tasks
from millrace.core.errors import CorruptError, ExitCode, MillraceError, RefusedError, UnequalError
from millrace.node.batch_files import SpooledBatch

pytestmark = pytest.mark.process

KINDS = typing.get_args(say.Message)

NUMBERS = st.integers(0, 2**32 - 1)
NAMES = st.binary(max_size=20).map(lambda name: os.fsdecode(name.replace(b"\0", b"")))
BLOCKS = st.tuples(
    st.integers(0, 2**16 - 1), st.binary(max_size=9), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), NUMBERS
)

SIMPLE = {
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    str: st.text(max_size=20) | NAMES,
    bytes: st.binary(max_size=200),
    type(None): st.none(),
    Path: NAMES.map(Path),
    _core.BlockRef: st.builds(_core.BlockRef, NAMES, BLOCKS),
    _core.OutputPiece: st.builds(
        _core.OutputPiece,
        NAMES,
        BLOCKS,
        st.integers(0, 2**32 - 1),
        st.none() | st.tuples(st.integers(0, 2**63), st.lists(st.integers(0, 2**63 - 1), max_size=3), st.booleans()),
        st.integers(0, 2**63),
    ),
    _core.TaskRef: st.builds(
        _core.TaskRef,
        NAMES,
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), NUMBERS),
        st.booleans(),
        st.lists(st.tuples(st.integers(0, 2**64 - 1), NUMBERS), max_size=2),
        st.lists(BLOCKS, max_size=2),
    ),
}


@cache
def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """All values of a type, as far as messages may contain them."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in SIMPLE:
        return SIMPLE[hint]
    if isinstance(hint, typing.NewType):
        return values_of(hint.__supertype__)
    if origin is typing.Annotated:
        limits = [limit for limit in parts[1:] if isinstance(limit, msgspec.Meta)]
        if any(limit.gt is not None for limit in limits):
            return st.integers(1, 9) if parts[0] is int else st.floats(1e-3, 1e9)
        return st.tuples(*[values_of(typing.get_args(parts[0])[0])] * max(limit.min_length or 0 for limit in limits))
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values_of, parts))
    if origin is tuple and parts[-1] is not ...:
        return st.tuples(*map(values_of, parts))
    if origin in (list, Sequence, tuple, frozenset):
        several = st.lists(values_of(parts[0]), max_size=2)
        return several.map(origin) if origin in (tuple, frozenset) else several
    if origin is dict:
        return st.dictionaries(values_of(parts[0]), values_of(parts[1]), max_size=2)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    assert issubclass(hint, msgspec.Struct) or hasattr(hint, "_fields"), f"{hint} is in a message, and not known here"
    return st.deferred(lambda: st.builds(hint, **{name: values_of(each) for name, each in fields_of(hint).items()}))


def fields_of(kind: type) -> dict[str, Any]:
    names = getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", ())
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in names}


def spelled(value: Any) -> Any:
    """A value as one that can be compared: all types by name, all fields."""
    if isinstance(value, _core.BlockRef | _core.TaskRef | _core.OutputPiece):
        return type(value).__name__, spelled(value.values)
    if names := getattr(value, "__struct_fields__", None) or getattr(value, "_fields", None):
        return type(value).__name__, [spelled(getattr(value, name)) for name in names]
    if isinstance(value, list | tuple):
        return [spelled(each) for each in value]
    if isinstance(value, dict):
        return sorted((spelled(key), spelled(each)) for key, each in value.items())
    return type(value).__name__, value


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_each_message_round_trips(kind: type, data: st.DataObject) -> None:
    message = data.draw(values_of(kind))
    assert spelled(message_encoding.decode_message(message_encoding.encode_message(message))) == spelled(message)


def test_text_of_another_encoding_round_trips() -> None:
    name = os.fsdecode(b"Pr\xfcfung \xff.fa")
    assert "\udcfc" in name
    message = say.ForwardedFromMember(
        2,
        say.NodeStorageReport(
            say.staging_choice.StagingNode("h", 1, 2, say.staging_choice.StagingPlace(name, 1, 2, 3), None, "ü\ud800")
        ),
    )
    assert spelled(message_encoding.decode_message(message_encoding.encode_message(message))) == spelled(message)


#: The number of each message, its fields in order. A number is never given to another one; a release with other fields is
#: told by `ProcessJoined`, which stays as it is.
ON_THE_WIRE = """
1 SetUpNode use cwd program command environ nice run_dir run_id journal sync slots first_slot name staged shared world view copies profile_io
2 RunAssignments assignments
3 WriteOutputPart part
4 WriteHeldPart stream number
5 OpenCollectiveOutputs streams
6 CloseCollectiveOutputs
7 WithdrawFromNode
8 KillNodeTools
9 PingAgent
10 AllBatchesSubmitted
11 StopNode whole
12 LeaveJob
13 QueryNodeStorage files way are_copies
14 FetchCopies files choice before after
15 ForwardToMember rank message
16 ForwardToPartition message
17 IndexInputPiece request
18 SetUpWorker use cwd program environ nice run_dir slots name machine contents folders view
19 RunWorkerTask assignment files found
33 ProcessJoined host process cores source machine millrace
34 NodeReady exe content version sees keeps shares_folder
35 TaskEventsReport events
36 RankSlotsChanged rank slots why
37 OutputPartsWritten written
38 CollectiveWriteReady stream
39 NodeTasksWithdrawn tasks
40 AgentFailed kind message hint exit_code
41 SignalReceived number
42 ProcessLost why tasks
43 AgentHeartbeat
44 NodeStopped changed read against
45 ProcessLeft
46 NodeStorageReport node
47 NodeCopiesFetched why_not
48 ForwardedFromMember rank message
49 InputPieceIndexed index
50 WorkerTaskEnded ended slots why
64 BytewiseMessage message
1 WholeTask
2 SearchTask fragment
3 FinishTask
4 RankTask number of
5 SliceTask number of
6 CompareTask over reversed
1 TaskStarted task slot ago_seconds
2 TaskEnded task slot ago_seconds ending exit_status signal detail disk_full cpu_seconds wall_seconds peak_rss_bytes out_of_memory side_by_side stderr extra is_warm saved_seconds cold committed io files contents
None SlotTask id batch kind attempt urgent alone timeout_seconds cpu_limit_seconds found
None SpooledBatch first last units bytes digests spooled files offset has_members source
"""


def test_numbers_and_fields_of_the_protocol_are_frozen() -> None:
    others = (
        message_encoding.BytewiseMessage,
        *typing.get_args(tasks.TaskKind),
        tasks.TaskStarted,
        tasks.TaskEnded,
        tasks.SlotTask,
        SpooledBatch,
    )
    kinds = [*sorted(KINDS, key=lambda kind: kind.__struct_config__.tag), *others]
    found = [" ".join([str(kind.__struct_config__.tag), kind.__name__, *kind.__struct_fields__]) for kind in kinds]
    assert all(kind.__struct_config__.array_like for kind in kinds)
    assert found == ON_THE_WIRE.split("\n")[1:-1]


def test_hello_of_any_release_is_readable() -> None:
    hello = say.ProcessJoined("n1", 2, 3, "cores", "x86_64", "9.0")
    content = b"\x97\x21\xa2n1\x02\x03\xa5cores\xa6x86_64\xa39.0"
    assert message_encoding.encode_message(hello) == content and message_encoding.decode_message(content) == hello


class Runs:
    def __init__(self, what: Any, *words: object) -> None:
        self.what, self.words = what, words

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.what, self.words


@pytest.mark.parametrize("protocol", [0, 2, 5])
@pytest.mark.parametrize(
    ("what", "words"),
    [(subprocess.check_call, ["touch"]), (Path.touch, []), (eval, []), (setattr, [say.PingAgent, "__doc__"])],
    ids=["a command", "a method", "eval", "an attribute of a class"],
)
def test_a_pickle_is_no_message(
    what: Any, words: list[Any], protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorruptError, match="is not understood"):
        message_encoding.decode_message(pickle.dumps(Runs(what, *words, "made"), protocol=protocol))
    assert not any(tmp_path.iterdir()) and say.PingAgent.__doc__ == "A heartbeat of the coordinator, or of a leader."


@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_a_message(content: bytes) -> None:
    with suppress(CorruptError):
        assert isinstance(message_encoding.decode_message(content), KINDS)


@given(data=st.data())
def test_a_message_with_a_changed_byte_is_refused_or_a_message(data: st.DataObject) -> None:
    content = message_encoding.encode_message(data.draw(st.one_of(*map(values_of, KINDS))))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with suppress(CorruptError):
        assert isinstance(message_encoding.decode_message(content), KINDS)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([63], "Invalid value 63"),
        ([9, "more"], "at most length 0, got 1"),
        ([15, 1, [15, 1, [9]]], "Invalid value 15"),
        ([35, [[1, 1, 1]]], "length 4"),
        ([35, [[2, 1, 2, 0.5, "eaten"]]], "Invalid enum value 'eaten'"),
        ([40, "OSError", "text", "", 99], "Invalid enum value 99"),
        ([2, [[[1, 2, [1], 1, False, False, None, None, [["journal", [70000, b"", 1, 2, 3]]]], [], []]]], "BlockRef: "),
        ([2, [[[1, 2, [1], 1, False, False, None, None, ["journal"]], [], []]]], "BlockRef: "),
        ([64, [9, "more"]], "at most length 0, got 1"),
        ([64, [41, "\u1234"]], "latin-1"),
    ],
)
def test_value_of_a_wrong_type_is_refused_by_name(values: list[Any], words: str) -> None:
    with pytest.raises(CorruptError, match="is not understood") as refused:
        message_encoding.decode_message(msgspec.msgpack.encode(values))
    assert words in str(refused.value)


def test_unserialisable_value_is_an_error_at_its_sender() -> None:
    with pytest.raises(NotImplementedError, match="object does not travel"):
        message_encoding.encode_message(say.ProcessLost(object(), 1))  # type: ignore[arg-type]
    assert isinstance(
        message_encoding.decode_message(message_encoding.encode_message(say.SetUpNode(**SETUP))).use.databases[0],
        PosixPath,
    )  # type: ignore[union-attr]


SETUP: dict[str, Any] = {
    "use": say.ToolUse(adapter="generic", argv=("tool",), inputs=(), outputs=(), databases=(Path("/db"),)), "cwd": "/",
    "program": "tool", "command": None, "environ": {}, "nice": 0, "run_dir": "/", "run_id": b"", "journal": "", "sync": 1.0,
    "slots": 1, "first_slot": 0, "name": "", "staged": [], "shared": {}, "world": [], "view": None, "copies": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", say.AgentFailed.ERRORS.values(), ids=lambda kind: kind.__name__)
def test_error_round_trips_with_its_class(kind: type[MillraceError]) -> None:
    error = kind("no room", "make some")
    arrived = message_encoding.decode_message(message_encoding.encode_message(say.AgentFailed.from_error(error)))
    assert isinstance(arrived, say.AgentFailed)
    again = arrived.rebuild_error("n1 (rank 1)")
    assert type(again) is kind and again.exit_code is error.exit_code and again.keeps_results == error.keeps_results
    assert (again.message, again.hint) == ("n1 (rank 1): no room", "make some")


def test_unknown_error_arrives_as_its_nearest_known_class() -> None:
    class OwnError(UnequalError):
        exit_code = ExitCode.TOOL

    told = say.AgentFailed.from_error(OwnError("other bytes"))
    assert told.kind == "UnequalError" and told.rebuild_error("n1").exit_code is ExitCode.TOOL
    with pytest.raises(CorruptError, match="n1: tells of an error of no known kind: KeyError: x"):
        say.AgentFailed("KeyError", "x", "", ExitCode.DONE).rebuild_error("n1")
    imitated = type("RefusedError", (MillraceError,), {})
    assert (
        say.AgentFailed.from_error(imitated("x")).kind == "MillraceError"
        and RefusedError is say.AgentFailed.ERRORS["RefusedError"]
    )


def test_statuses_of_slots_are_those_of_task_endings() -> None:
    """What Rust gives, what its stub for Python says, and what Python reads."""
    repo = Path(__file__).resolve().parents[2]
    given_by_rust = re.findall(r'=> "(\w+)",', (repo / "crates/millrace-py/src/node.rs").read_text())
    stub = (repo / "python/millrace/_core.pyi").read_text()
    named = re.findall(r"``(\w+)``", re.findall(r'def status\(self\) -> str:\s+"""(.*?)"""', stub, re.DOTALL)[0])
    read = {ending.value for ending in tasks.TaskEnding} - {tasks.TaskEnding.FILESYSTEM_GONE.value}  # made in Python
    assert set(named) == read and read <= set(given_by_rust)
