"""Identity of a run: what it computes, wherever its files lie.

A run is known by the tool and its version, its arguments with each path replaced by what it names, and the fingerprints
of inputs and databases; not by its folder, nor by the names of its files. All of it follows from the manifest, so that a
run of an earlier start can be compared. Pure.
"""

from __future__ import annotations

import os
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Iterator, Mapping
from typing import Protocol

from msgspec.structs import replace

from millrace.adapters.printed_paths import DATABASE, FOLDER, INPUT, OUTPUT
from millrace.core.tool_use import ArgumentToken, FrozenValue, InputUse, OutputUse, ToolUse


class DescribedRun(Protocol):
    """The part of a manifest that says what a run computes."""

    @property
    def argv(self) -> tuple[str, ...]: ...
    @property
    def cwd(self) -> str: ...
    @property
    def use(self) -> ToolUse: ...
    @property
    def record_start(self) -> str: ...
    @property
    def record_end(self) -> str: ...
    @property
    def fingerprints(self) -> dict[str, str]: ...


class PlannedRun(FrozenValue, frozen=True):
    """A ``DescribedRun`` that has not begun."""

    argv: tuple[str, ...]
    cwd: str
    use: ToolUse
    record_start: str
    record_end: str
    fingerprints: dict[str, str]


def list_moved_paths(earlier: DescribedRun, now: DescribedRun) -> frozenset[str]:
    """Return the kinds of paths that differ between two runs with the same identity; empty: none."""
    found = set[str]()
    if earlier.cwd != now.cwd:
        found.add(FOLDER)
    if [item.path for item in earlier.use.inputs] != [item.path for item in now.use.inputs]:
        found.add(INPUT)
    if [output.path for output in earlier.use.outputs] != [output.path for output in now.use.outputs]:
        found.add(OUTPUT)
    words = zip(_abstract_words(earlier), _abstract_words(now), earlier.argv, now.argv, strict=False)
    if any(was == is_now and was.startswith("database ") and typed != types for was, is_now, typed, types in words):
        found.add(DATABASE)
    return frozenset(found)


def pair_moved_paths(earlier: DescribedRun, now: DescribedRun) -> dict[str, str]:
    """Return the present path of each folder and database of an earlier run that was elsewhere, as typed and absolute."""
    found = {earlier.cwd: now.cwd} if earlier.cwd != now.cwd else {}
    words = zip(_abstract_words(earlier), _abstract_words(now), earlier.argv, now.argv, strict=False)
    for was, is_now, typed, types in words:
        if was != is_now or not was.startswith("database ") or typed == types:
            continue
        option, equal, value = typed.partition("=")
        if equal and was.startswith(f"database {option}="):
            typed, types = value, types.partition("=")[2]
        before, after = os.path.join(earlier.cwd, typed), os.path.join(now.cwd, types)
        found |= {typed: types, os.path.normpath(before): os.path.normpath(after), before: after}
    return found


def has_same_words(earlier: DescribedRun, now: DescribedRun) -> bool:
    """Tell whether the arguments are the same, or name the same files."""
    if earlier.argv == now.argv:
        return True
    was, is_now = _abstract_words(earlier), _abstract_words(now)
    pairs = list(zip(was, is_now, earlier.argv, now.argv, strict=False))
    return len(was) == len(is_now) and all(a == b or typed == types for a, b, typed, types in pairs)


def _abstract_words(run: DescribedRun) -> list[str]:
    """Return the arguments, in which each path of an input, output or database is replaced by what it names."""
    roles = {output.path: f"output {k}" for k, output in enumerate(run.use.outputs)}
    roles |= {item.path: f"input {k}" for k, item in enumerate(run.use.inputs)}
    files = _map_databases(run)
    return [run.argv[0], *(_abstract_word(word, roles, files, run.cwd) for word in run.argv[1:])]


def _abstract_tokens(run: DescribedRun) -> list[ArgumentToken]:
    """Return the arguments of a task, in which each path of a database is replaced by what it names."""
    files = _map_databases(run)
    return [_abstract_word(each, {}, files, run.cwd) if isinstance(each, str) else each for each in run.use.argv[1:]]


def _map_databases(run: DescribedRun) -> dict[str, str]:
    """Map the path of each file of a database to its fingerprint."""
    return {
        os.path.normpath(os.path.join(run.cwd, path)): run.fingerprints.get(f"database {path}", "")
        for path in run.use.databases
    }


def _abstract_word(word: str, roles: Mapping[str, str], files: Mapping[str, str], cwd: str) -> str:
    option, equal, value = word.partition("=")
    for before, path in (("", word), (option + equal, value)) if equal else (("", word),):
        if role := roles.get(path, ""):
            return f"{role} {before}"
        if path and (named := _describe_database(os.path.normpath(os.path.join(cwd, path)), files)):
            return f"database {before}{named}"
    return f"word {word}"


def _describe_database(path: str, files: Mapping[str, str]) -> str:
    """Return the fingerprints of the files whose names are ``path``, or begin with it; empty: there is none."""
    found = [
        (name[len(path) :], text)
        for name, text in files.items()
        if name == path or name.startswith((f"{path}.", f"{path}/"))
    ]
    return repr(sorted(found)) if found and all(text for _, text in found) else ""


def pair_fingerprints(earlier: DescribedRun, now: DescribedRun) -> Iterator[tuple[str, str, str]]:
    """Yield name, earlier and present fingerprint of each file; files at other paths are paired by their role."""
    was, is_now = earlier.fingerprints, now.fingerprints
    for name in sorted(was.keys() & is_now.keys()):
        yield name, was[name], is_now[name]
    before = {_find_role(name, earlier.use): name for name in was.keys() - is_now.keys()}
    after = {_find_role(name, now.use): name for name in is_now.keys() - was.keys()}
    for role in sorted(before.keys() | after.keys()):
        name = after.get(role) or before[role]
        yield name, was.get(before.get(role, ""), "not there"), is_now.get(after.get(role, ""), "not there")


def _find_role(name: str, use: ToolUse) -> str:
    """Return the role of a fingerprint; the name itself if its file has no other."""
    kind, _, path = name.partition(" ")
    if kind == "program" and not path.startswith("on "):
        return kind
    names = {INPUT: [item.path for item in use.inputs], DATABASE: [str(each) for each in use.databases]}.get(kind, [])
    return f"{kind} {names.index(path)}" if path in names else name


def describe_work(run: DescribedRun) -> tuple[list[InputUse], list[OutputUse], list[ArgumentToken]]:
    """Return inputs, outputs and arguments without paths, and without the pipes and files of one start alone.

    A path with a placeholder for each record stays.
    """
    inputs = [replace(item, path="", piped=False) for item in run.use.inputs]
    outputs = [
        replace(output, to="", part="", path=output.path if output.layout == "record" else "")
        for output in run.use.outputs
    ]
    return inputs, outputs, _abstract_tokens(run)


def find_unknown_file(run: DescribedRun) -> str:
    """Return a relative path in the arguments that names a file or folder without a fingerprint; empty: there is none.

    In another folder it may name another one.
    """
    words = [token for token in _abstract_tokens(run) if isinstance(token, str) and token.startswith("word ")]
    paths = [path for word in words for path in (word[5:], word.partition("=")[2]) if path and not os.path.isabs(path)]
    return next((path for path in paths if "\0" not in path and os.path.exists(os.path.join(run.cwd, path))), "")


def digest_identity(run: DescribedRun) -> str:
    """Return a digest of what a run computes, as a name for its run directory."""
    contents = {_find_role(name, run.use): text for name, text in run.fingerprints.items()}
    parts = (
        [os.path.basename(run.argv[0]), *_abstract_words(run)[1:]], sorted(contents.items()), describe_work(run),
        run.record_start, run.record_end, run.use.ok_statuses,
    )  # fmt: skip
    return blake2b(repr(parts).encode(errors="surrogateescape"), digest_size=10).hexdigest()
