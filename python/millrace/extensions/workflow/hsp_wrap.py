"""Job files of HSP-Wrap, read as the values of an equal job file in TOML.

Its published code reads no job file, so the thesis is all there is to go by: see ``hsp_grammar``.
"""

from __future__ import annotations

import codecs
import glob
import heapq
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from millrace.adapters import registry
from millrace.core import record_formats
from millrace.core.errors import RefusedError
from millrace.extensions.workflow.hsp_grammar import MAX_SHOWN, NUMBER, SIZE, HspParser, HspStatement, HspText
from millrace.extensions.workflow.workflow_description import check_phase_name

#: Most bytes of a job file: far above any real one.
MAX_JOB_BYTES = 1 << 20

_WILDCARD = re.compile(r"(\*+|\?)")

#: Words for the direction of a stream: whether the tool reads it.
WAYS = {"in": True, "input": True, "read": True, "out": False, "output": False, "write": False}


class HspProgram(NamedTuple):
    """The program of a phase on one architecture, its arguments, and the statement that gives them."""

    exe: str
    words: tuple[str, ...]
    at: int


class HspStream(NamedTuple):
    """A stream: its name in the arguments, its file, the format of its records, whether it is read, and its place."""

    name: str
    path: str
    format: str
    is_input: bool
    at: int

    @property
    def typed(self) -> str:
        """The file and its format, as after ``--input``."""
        return f"{self.path}:{self.format}" if self.format else self.path


class HspReader:
    """A reader of one job file.

    Args:
        where: The file, for messages.
        cwd: The working folder, to which paths in the file are relative.
        machine: The architecture whose command is run, as named by ``uname -m``; empty: that of this machine.
    """

    def __init__(self, where: str, cwd: Path, machine: str = "") -> None:
        self._where, self._cwd = where, cwd
        self._machine = machine or os.uname().machine
        #: Notes on statements of the file that have no effect here, with the reason.
        self.notes: list[str] = []

    def read_values(self, text: str) -> dict[str, Any]:
        """Return the job as the values of an equal TOML file.

        Raises:
            RefusedError: The text is invalid, or asks for something unsupported; with line and column.
        """
        self._text = HspText(self._where, text)
        job = HspParser(self._text).parse()
        phases = dict[str, HspStatement]()
        for each in job:
            if each.key == "master":
                self._check_size(each)
            else:
                self._check_phase_name(each, phases)
                phases[each.values[0]] = each
        if not phases:
            raise self._text.build_error(0, "no phase", 'say: phase NAME { exe-file "PROGRAM"; exe-args "OPTIONS"; };')
        #: Outputs of all phases, which need not be there yet.
        self._made = [
            stream.path for phase in phases.values() for stream in self._list_streams(phase) if not stream.is_input
        ]
        return {"phase": {name: self._read_phase(phases[name]) for name in self._sort_phases(phases)}}

    def _add_note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def _check_phase_name(self, phase: HspStatement, known: Collection[str]) -> None:
        name = phase.values[0]
        if name in known:
            raise self._text.build_error(phase.at, f"phase {name} is there twice", "give it another name")
        try:
            check_phase_name(name)
        except RefusedError as error:
            raise self._text.build_error(phase.places[0], f"phase {name}: {error.message}", error.hint) from error

    def _check_size(self, master: HspStatement) -> None:
        if size := master.find_inner("bcast-chunk-size"):
            self._check_value(size, SIZE, "a size: digits, and K, M or G")
            self._add_note("bcast-chunk-size has no effect: copies go in pieces of measured size")

    def _check_value(self, statement: HspStatement, form: re.Pattern[str], words: str) -> None:
        if not form.fullmatch(statement.values[0]):
            message = f"{statement.key}: {statement.values[0]!r} is not {words}"
            raise self._text.build_error(
                statement.places[0], message, "as in: bcast-chunk-size 1M; prefetch-ratio 0.5;"
            )

    def _sort_phases(self, phases: Mapping[str, HspStatement]) -> list[str]:
        """Sort the names of the phases: as in the file, but each after those on which it depends."""
        places, names = {name: place for place, name in enumerate(phases)}, list(phases)
        waits = {name: {*self._list_dependencies(phase, phases)} for name, phase in phases.items()}
        waiting: dict[str, list[str]] = {name: [] for name in names}
        for name, others in waits.items():
            for other in others:
                waiting[other].append(name)
        ready, found = [place for name, place in places.items() if not waits[name]], list[str]()
        while ready:
            name = names[heapq.heappop(ready)]
            found.append(name)
            for other in waiting[name]:
                waits[other].remove(name)
                if not waits[other]:
                    heapq.heappush(ready, places[other])
        if left := [name for name in names if waits[name]]:
            message = f"phases depend on each other: {', '.join(left[:8])}"
            at = phases[left[0]].list_inner("depends-on")[0].at
            raise self._text.build_error(at, message, "none can begin: remove one depends-on")
        return found

    def _list_dependencies(self, phase: HspStatement, names: Collection[str]) -> Iterator[str]:
        """Yield the names of the phases on which a phase depends."""
        for each in phase.list_inner("depends-on"):
            for name in get_phase_names(each):
                if name not in names:
                    hint = f"phases are: {', '.join(list(names)[:8])}"
                    raise self._text.build_error(each.at, f"no phase {name[:MAX_SHOWN]}", hint)
                yield name

    def _read_phase(self, phase: HspStatement) -> dict[str, Any]:
        """Return the table of one phase."""
        programs = self._read_programs(phase)
        first = next(iter(programs.values()))
        is_known = registry.has_adapter(first.exe)
        files = dict[str, str]()
        shared = [path for file in phase.list_inner("file") for path in self._map_files(file, files)]
        streams = self._list_streams(phase)
        for stream in streams:
            self._check_is_named(stream, first, is_known=is_known)
        paths = {stream.name: stream.path for stream in streams}
        table: dict[str, Any] = {"command": [first.exe, *(_rename_word(word, paths, files) for word in first.words)]}
        if "" not in programs:
            table["arch"] = {name: {"exe": program.exe} for name, program in programs.items()}
        if not is_known:
            table["input"] = [stream.typed for stream in streams if stream.is_input]
            table |= {"output": [stream.path for stream in streams if not stream.is_input], "shared": shared}
        if after := [name for each in phase.list_inner("depends-on") for name in get_phase_names(each)]:
            table["after"] = after
        return table

    def _read_programs(self, phase: HspStatement) -> dict[str, HspProgram]:
        """Return the programs that run the same command, by architecture (empty: any); one is for this machine."""
        found = dict[str, HspProgram]()
        for arch in phase.list_inner("arch"):
            if arch.values[0] in found:
                raise self._text.build_error(arch.at, f"arch {arch.values[0]} is there twice", "give both in one")
            found[arch.values[0]] = self._read_program(arch, phase)
        if not found:
            return {"": self._read_program(phase, phase)}
        if self._machine not in found:
            if not (phase.find_inner("exe-file") and phase.find_inner("exe-args")):
                message = f"no arch for this machine, {self._machine}"
                hint = f'say: arch {self._machine} {{ exe-file "PROGRAM"; }};'
                raise self._text.build_error(phase.at, message, hint)
            found[self._machine] = self._read_program(phase, phase)
        own = _strip_threads(found[self._machine])
        same = {name: program for name, program in found.items() if _strip_threads(program) == own}
        for name in sorted(found.keys() - same.keys()):
            self._add_note(
                f"arch {name}: its exe-args are not those of {self._machine}, and may give another output: "
                f"nodes of {name} are refused"
            )
        return same

    def _read_program(self, place: HspStatement, phase: HspStatement) -> HspProgram:
        """Read program and arguments of an architecture; those of the phase are the default."""
        exe = place.get_value("exe-file") or phase.get_value("exe-file")
        args = place.find_inner("exe-args") or phase.find_inner("exe-args")
        if not exe:
            raise self._text.build_error(place.at, f"{place.key}: no exe-file", 'say: exe-file "PROGRAM";')
        if not args:
            raise self._text.build_error(place.at, f"{place.key}: no exe-args", 'say: exe-args "OPTIONS";')
        if len(args.values) > 1:
            return HspProgram(exe, args.values, args.at)
        try:
            return HspProgram(exe, tuple(shlex.split(args.values[0])), args.at)
        except ValueError as error:
            raise self._text.build_error(args.at, f"exe-args: {error}", "close the quotation") from error

    def _list_streams(self, phase: HspStatement) -> list[HspStream]:
        """List the streams of a phase."""
        found = dict[str, HspStream]()
        for each in phase.list_inner("stream"):
            stream = self._read_stream(each)
            if stream.name in found:
                raise self._text.build_error(each.at, f"stream {stream.name} is there twice", "give it another name")
            found[stream.name] = stream
        return list(found.values())

    def _read_stream(self, stream: HspStatement) -> HspStream:
        """Read the name of a stream, its file, its format and its direction; without a direction it is an input."""
        names = list(stream.values)
        ways = [each.key for each in stream.inner if each.key in ("input", "output")]
        if said := stream.find_inner("type"):
            ways.append(said.values[0].lower())
        if len(names) == 2:
            ways.append(names.pop(0 if names[0].lower() in WAYS else 1).lower())
        if len(ways) > 1 or not {*ways} <= WAYS.keys():
            hint = 'say: stream "NAME" { path "FILE"; format fasta; }; or: stream "NAME" { output; path "FILE"; };'
            raise self._text.build_error(stream.at, "a stream has one name and one direction", hint)
        if ratio := stream.find_inner("prefetch-ratio"):
            self._check_value(ratio, NUMBER, "a number")
            self._add_note("prefetch-ratio has no effect: what is read ahead follows from measured times")
        form = stream.get_value("format").lower()
        if form and form not in record_formats.FORMATS:
            hint = f"formats are {', '.join(record_formats.FORMATS)}"
            raise self._text.build_error(stream.list_inner("format")[0].at, f"unknown record format '{form}'", hint)
        path = stream.get_value("path") or names[0]
        return HspStream(names[0], path, form, not ways or WAYS[ways[0]], stream.at)

    def _check_is_named(self, stream: HspStream, program: HspProgram, *, is_known: bool) -> None:
        """Refuse a stream that the tool would not read or write, as its arguments do not name it."""
        is_named = any(stream.name in (word, word.partition("=")[2]) for word in program.words)
        if not is_named and (is_known or stream.name != stream.path):
            raise self._text.build_error(
                stream.at,
                f"stream {stream.name} is not in exe-args",
                f"the tool gets {stream.path} by this name: name it there as a word, or as OPTION={stream.name}",
            )

    def _map_files(self, file: HspStatement, names: dict[str, str]) -> list[str]:
        """Return the shared files of a statement; add those that have another name for the tool to ``names``."""
        name = file.values[0]
        pattern = file.get_value("path") or name
        found = self._find_files(pattern)
        if not found:
            hint = "check the path, relative to the working folder"
            raise self._text.build_error(file.at, f"{pattern}: no files there", hint)
        if pattern == name:
            return found
        for path in found:
            if (virtual := _move_wildcards(path, pattern, name)) is None:
                message = f"file {name}: its wildcards are not those of its path {pattern}"
                raise self._text.build_error(file.at, message, "each file has one name: write the same * and ? in both")
            names[virtual] = path
        return found

    def _find_files(self, pattern: str) -> list[str]:
        """Return the files that match a pattern, also those that a phase will write; a name may begin those of several."""
        if glob.has_magic(pattern):
            there = glob.glob(pattern, root_dir=self._cwd)
            return sorted({*there, *(path for path in self._made if fnmatchcase(path, pattern))})
        is_there = os.path.exists(self._cwd / pattern) or pattern in self._made
        return [pattern] if is_there or glob.glob(f"{glob.escape(pattern)}.*", root_dir=self._cwd) else []


def get_phase_names(depends: HspStatement) -> tuple[str, ...]:
    """Return the names in ``depends-on phase NAME``; the word ``phase`` may be left out."""
    return depends.values[1:] if depends.values[0] == "phase" and len(depends.values) > 1 else depends.values


def _strip_threads(program: HspProgram) -> list[str]:
    """Return the arguments without the number of threads, where it changes no byte of the output."""
    if registry.MODULES.get(Path(program.exe).name) != "blast":
        return list(program.words)
    from millrace.extensions.pack.blast_codec import remove_options  # few jobs name several architectures

    with suppress(RefusedError):  # the plan says what is wrong
        return remove_options([program.exe, *program.words], {"num_threads", "mt_mode"})[1:]
    return list(program.words)


def _rename_word(word: str, streams: Mapping[str, str], files: Mapping[str, str]) -> str:
    """Return a word of the arguments with the path of the file that it names.

    Args:
        streams: Paths of streams, by name.
        files: Paths of shared files, by name. A word may also be the beginning of their names, as that of a database.

    >>> files = {"db/nr.pin": "/data/nr.pin", "db/nr.phr": "/data/nr.phr"}
    >>> [_rename_word(word, {"q": "in.fa"}, files) for word in ("-query", "q", "--in=q", "db/nr", "db/n", "qq")]
    ['-query', 'in.fa', '--in=in.fa', '/data/nr', 'db/n', 'qq']
    """
    for option, sign, name in (("", "", word), word.partition("=")):
        if path := streams.get(name) or files.get(name):
            return f"{option}{sign}{path}"
        begins = {
            path.removesuffix(known.removeprefix(name))
            for known, path in files.items()
            if name and known.startswith((f"{name}.", f"{name}/")) and path.endswith(known.removeprefix(name))
        }
        if len(begins) == 1:
            return f"{option}{sign}{begins.pop()}"
    return word


def _move_wildcards(path: str, pattern: str, name: str) -> str | None:
    """Return ``name`` with what the wildcards of ``pattern`` stand for in ``path``; None: it has other wildcards.

    >>> _move_wildcards("/data/nr.00.pin", "/data/nr.*.p?n", "db/*.p?n")
    'db/00.pin'
    """
    parts, named = _WILDCARD.split(pattern), _WILDCARD.split(name)
    forms = {"*": "([^/]*)", "?": "([^/])"}
    found = re.fullmatch("".join(forms[part[0]] if n % 2 else re.escape(part) for n, part in enumerate(parts)), path)
    if not found or parts[1::2] != named[1::2]:
        return None
    named[1::2] = found.groups()
    return "".join(named)


def read_hsp_job(content: bytes, where: str, cwd: Path, machine: str = "") -> tuple[dict[str, Any], list[str]]:
    """Read the content of a job file: values named as in a TOML file, and notes on statements without effect.

    Args:
        where: The file, for messages.
        machine: See ``HspReader``.

    Raises:
        RefusedError: The content is invalid, or asks for something unsupported; with line and column.
    """
    if len(content) > MAX_JOB_BYTES:
        raise RefusedError(f"{where}: is larger than {MAX_JOB_BYTES} bytes", "this is no job file of HSP-Wrap")
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        text = content[: error.start].decode()
        wrong = f"byte {content[error.start]:#04x} is not UTF-8"
        raise HspText(where, text).build_error(len(text), wrong, "a job file is plain text") from error
    reader = HspReader(where, cwd, machine)
    return reader.read_values(text), reader.notes
