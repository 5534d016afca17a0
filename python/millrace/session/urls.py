"""The files that a command names by URLs, fetched to this node before the run is planned."""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from millrace import formats, replicas
from millrace.errors import MillraceError, RefusedError
from millrace.job import Job
from millrace.model import Fetched, View
from millrace.node import names
from millrace.storage import fetch, locations, unpack, urls
from millrace.storage.cache import Cache
from millrace.tools import registry
from millrace.tools.base import Gathering, Parts
from millrace.words import count, size


class Wanted(NamedTuple):
    """A URL of the command, and the database parts that it stands for; None: a single file."""

    url: str
    parts: Parts | None


class Named:
    """The files behind the URLs of a command, held on this node until ``Named.close``.

    Args:
        job: The command, with URLs checked by ``millrace.replicas.check_named``.
        apart: Whether volumes of databases in HDFS are left to the nodes that search them; they are in ``View.later``.
        message: Called with messages for the user.

    Raises:
        MillraceError: A file does not exist, cannot be read, or does not fit.
    """

    def __init__(self, job: Job, cwd: Path, message: Callable[[str], None], *, apart: bool = False) -> None:
        self._apart, self._later = apart, dict[str, Fetched]()
        self._job, self._cwd, self._message = job, cwd, message
        self._adapter = registry.find(job.known_as or Path(job.command[0]).name)
        self._wanted: dict[str, Wanted] = {}
        self._cache: Cache | None = None
        self._found: list[urls.Found] = []
        for name in job.output:
            if name.startswith(replicas.FETCHED):
                raise RefusedError(f"{replicas.shown(name)}: cannot be written", "name a file, hdfs://, s3:// or sftp://")  # fmt: skip
        argv = [job.command[0], *(self._word(at) for at in range(1, len(job.command)))]
        inputs, shared = ([self._path(each) for each in words] for words in (job.input, job.shared))
        #: The files that the tool sees; None: the command names no URLs.
        self.view = self._view(argv, inputs, shared) if self._wanted else None
        if apart and not self._later:
            self._tell_of_whole()

    def _tell_of_whole(self) -> None:
        """Report files in HDFS that every node fetches whole, because they are not searched in place."""
        pieces = {each.place for each in self._found if self.view and each.name in self.view.in_pieces}
        read = [url for url, wanted in self._wanted.items() if wanted.parts or url in self._job.shared]
        for url in (each for each in read if each.startswith("hdfs://") and each not in pieces):
            self._message(
                f"{replicas.shown(url)}: fetched as a whole and passed on from node to node; only volumes of a BLAST database "
                "(NAME.00 ...) and sequences for hmmsearch and phmmer are searched by the nodes that hold them"
            )

    def _word(self, at: int) -> str:
        """Return an argument with names in place of URLs."""
        word = self._job.command[at]
        option = replicas.option_of(word)
        parts = self._parts(at, "x")
        # One option may name several databases.
        each = word[len(option) :].split(" ") if parts and parts.packed else [word[len(option) :]]
        return option + " ".join(self._name(part, at) if part.startswith(replicas.FETCHED) else part for part in each)

    def _path(self, typed: str) -> str:
        """Return ``FILE[:FORMAT]`` with a name in place of a URL."""
        if not typed.startswith(replicas.FETCHED):
            return typed
        path, _, form = typed.rpartition(":")
        return f"{self._name(path)}:{form}" if form in formats.FORMATS else self._name(typed)

    def _parts(self, at: int, name: str) -> Parts | None:
        return self._adapter.parts(self._job.command, at, name) if isinstance(self._adapter, Gathering) else None

    def _name(self, url: str, at: int = 0) -> str:
        name = fetch.base_name(url)
        if url.endswith("/") or name.startswith(("-", ".")) or "\0" in name:
            raise RefusedError(f"{replicas.shown(url)}: names no file", "as in: https://host/folder/file")
        self._wanted[url] = Wanted(url, self._parts(at, name) if at and not unpack.is_packed(name) else None)
        return unpack.plain_name(name)

    def _view(self, argv: Sequence[str], inputs: Sequence[str], shared: Sequence[str]) -> View:
        asked = [each for wanted in self._wanted.values() for each in self._read(urls.look(*wanted))]
        self._cache = Cache(
            urls.choose(self._job.stage, sum(each.bytes for each in asked if not self._is_left(each))), fetched=True
        )
        try:
            files = self._bring(asked, {})
            view = names.plan(
                argv,
                self._cwd,
                files.values(),
                inputs,
                shared,
                self._later.values(),
                self._job.stage,
                self._in_pieces(),
            )
            names.build(view, self._cwd, self.copies(view))
        except BaseException:
            self.close()
            raise
        return view

    def _in_pieces(self) -> dict[str, int]:
        """Return the number of blocks of each file with more than one block that nodes may fetch in pieces, by name."""
        found = [each for each in self._found if self._apart and each.in_pieces and each.place.startswith("hdfs://")]
        counted = {each.name: math.ceil(each.about.size / each.about.block_bytes) for each in found}
        return {name: n for name, n in counted.items() if n > 1}

    def _bring(self, found: Sequence[urls.Found], have: dict[str, Fetched]) -> dict[str, Fetched]:
        """Fetch files, and the files that these name; return all, by name."""
        assert self._cache
        found = list(dict.fromkeys(each for each in found if each not in self._found))
        self._found += found
        self._later |= {each.name: urls.later(each) for each in found if self._is_left(each)}
        found = [each for each in found if not self._is_left(each)]
        before = {entry.path.name for entry in self._cache.entries() if entry.is_whole}
        files = urls.bring(found, self._cache)
        if new := [file for file in files if file.key not in before]:
            came = dict.fromkeys(file.place for file in new)
            others = f" and {count(len(came) - 1, 'more file')}" if len(came) > 1 else ""
            self._message(f"fetched {next(iter(came))}{others}: {size(sum(file.size for file in new))}")
        for file in files:
            if have.setdefault(file.name, file).key != file.key:
                raise RefusedError(
                    f"{file.place}, {have[file.name].place}: would both be {file.name} to the tool",
                    "rename one of them",
                )
        places = {replicas.shown(each.place): each.place for each in found}
        more = [each for file in files for each in self._named_in(file, places[file.place], have)]
        return self._bring(more, have) if more else have

    def _read(self, found: Sequence[urls.Found]) -> list[urls.Found]:
        """Return those of the files of a database that are read."""
        are_left = any(map(self._is_left, found))
        return [each for each in found if not (are_left and each.unread)]

    def _is_left(self, found: urls.Found) -> bool:
        """Tell whether a file is left to the nodes that search it."""
        if not (self._apart and found.apart and found.place.startswith("hdfs://")):
            return False
        # BLAST prefers a volume of this name in the working directory to any other.
        return not any(self._cwd.glob(f"{glob.escape(found.name.rpartition('.')[0])}.*"))

    def _named_in(self, file: Fetched, url: str, have: Mapping[str, Fetched]) -> list[urls.Found]:
        """Return the files that a file names and that are not fetched yet."""
        if not isinstance(self._adapter, Gathering) or not self._cache:
            return []
        found = []
        for name, parts in self._adapter.named_in(file.name, (self._cache.folder / file.key).read_bytes).items():
            if "/" in name:
                raise RefusedError(
                    f"{file.place}: {file.name} names {name}, in another folder", "bring it here by hand"
                )
            if not any(re.fullmatch(parts.needed, each) for each in have):
                found += self._read(urls.look(urls.beside(url, name), parts))
        return found

    def copies(self, view: View) -> dict[str, str]:
        """Return the paths of the files on this node, by name."""
        assert self._cache
        return {file.name: str(self._cache.folder / file.key) for file in view.files}

    def changed(self) -> str:
        """Return the URL of a file that has changed at its source; empty: none, as far as the sources tell."""
        for each in self._found:
            with suppress(MillraceError):
                now = locations.about(each.place)
                if (now.size, now.version) != (each.about.size, each.about.version):
                    return replicas.shown(each.place)
        return ""

    def close(self) -> None:
        """Release the cached copies."""
        if self._cache:
            self._cache.close()
