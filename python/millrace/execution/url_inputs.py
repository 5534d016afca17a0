"""The files that a command names by URLs, fetched to this node before the run is planned."""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from millrace.adapters import registry
from millrace.adapters.adapter_base import FileNamePatterns, MultiFileAdapter
from millrace.core import record_formats, replica_rules
from millrace.core.errors import MillraceError, RefusedError
from millrace.core.job import JobSpec
from millrace.core.text_format import format_count, format_size
from millrace.core.tool_use import FetchedFile, RemoteFileView
from millrace.host import memory_limits
from millrace.node import url_view
from millrace.storage import locations, unpacked_copies, url_files
from millrace.storage.cache import cache_download
from millrace.storage.cache.copy_cache import NodeCache
from millrace.storage.staging_choice import MEMORY_SHARE

#: First bytes of an input that is not fetched, by which it is planned.
HEAD_BYTES = 64 << 10


class WantedUrl(NamedTuple):
    """A URL of the command, and the database parts that it stands for; None: a single file."""

    url: str
    parts: FileNamePatterns | None


class UrlFiles:
    """The files behind the URLs of a command, held on this node until ``UrlFiles.close``.

    Args:
        job: The command, with URLs checked by ``millrace.core.replica_rules.check_url_arguments``.
        apart: Whether volumes of databases are left to the nodes that search them: those in HDFS, and others if the
            user asks for it or the database is too large for a node. They are in ``RemoteFileView.later``.
        cuts: Whether an input in HDFS is left to the nodes, which cut it; see ``RemoteFileView.cut_by_nodes``.
        message: Called with messages for the user.

    Raises:
        MillraceError: A file does not exist, cannot be read, or does not fit.
    """

    def __init__(
        self, job: JobSpec, cwd: Path, message: Callable[[str], None], *, apart: bool = False, cuts: bool = False
    ) -> None:
        self._apart, self._later = apart, dict[str, FetchedFile]()
        #: Places of the volumes of databases that are too large for the memory of a node.
        self._large = set[str]()
        #: The input that nodes cut, if there is one.
        self._cut: url_files.UrlFile | None = None
        self._cuts = cuts
        self._job, self._cwd, self._message = job, cwd, message
        self._adapter = registry.find_adapter(job.known_as or Path(job.command[0]).name)
        self._wanted: dict[str, WantedUrl] = {}
        self._cache: NodeCache | None = None
        self._found: list[url_files.UrlFile] = []
        for name in job.output:
            if name.startswith(replica_rules.FETCHED):
                raise RefusedError(f"{replica_rules.redact_place(name)}: cannot be written", "name a file, hdfs://, s3:// or sftp://")  # fmt: skip
        argv = [job.command[0], *(self._replace_argument_urls(at) for at in range(1, len(job.command)))]
        inputs, shared = ([self._replace_path_url(each) for each in words] for words in (job.input, job.shared))
        #: The files that the tool sees; None: the command names no URLs.
        self.view = self._build_view(argv, inputs, shared) if self._wanted else None
        if apart and not self._later:
            self._report_whole_downloads()

    def _report_whole_downloads(self) -> None:
        """Report files in HDFS that every node fetches whole, because they are not searched in place."""
        pieces = {each.place for each in self._found if self.view and each.name in self.view.in_pieces}
        read = [url for url, wanted in self._wanted.items() if wanted.parts or url in self._job.shared]
        for url in (each for each in read if each.startswith("hdfs://") and each not in pieces):
            self._message(
                f"{replica_rules.redact_place(url)}: fetched as a whole and passed on from node to node; only volumes of a BLAST database "
                "(NAME.00 ...) and sequences for hmmsearch and phmmer are searched by the nodes that hold them"
            )

    def _replace_argument_urls(self, at: int) -> str:
        """Return an argument with names in place of URLs."""
        word = self._job.command[at]
        option = replica_rules.find_option_prefix(word)
        parts = self._find_database_parts(at, "x")
        # One option may name several databases.
        each = word[len(option) :].split(" ") if parts and parts.packed else [word[len(option) :]]
        return option + " ".join(
            self._choose_local_name(part, at) if part.startswith(replica_rules.FETCHED) else part for part in each
        )

    def _replace_path_url(self, typed: str) -> str:
        """Return ``FILE[:FORMAT]`` with a name in place of a URL."""
        if not typed.startswith(replica_rules.FETCHED):
            return typed
        path, _, form = typed.rpartition(":")
        return (
            f"{self._choose_local_name(path)}:{form}"
            if form in record_formats.FORMATS
            else self._choose_local_name(typed)
        )

    def _find_database_parts(self, at: int, name: str) -> FileNamePatterns | None:
        return (
            self._adapter.describe_argument_files(self._job.command, at, name)
            if isinstance(self._adapter, MultiFileAdapter)
            else None
        )

    def _choose_local_name(self, url: str, at: int = 0) -> str:
        name = cache_download.extract_base_name(url)
        if url.endswith("/") or name.startswith(("-", ".")) or "\0" in name:
            raise RefusedError(f"{replica_rules.redact_place(url)}: names no file", "as in: https://host/folder/file")
        self._wanted[url] = WantedUrl(
            url, self._find_database_parts(at, name) if at and not unpacked_copies.is_packed(name) else None
        )
        return unpacked_copies.strip_packed_suffix(name)

    def _build_view(self, argv: Sequence[str], inputs: Sequence[str], shared: Sequence[str]) -> RemoteFileView:
        asked = [
            each
            for wanted in self._wanted.values()
            for each in self._select_read_files(url_files.find_url_files(*wanted))
            if not self._is_cut_by_nodes(each)
        ]
        self._cache = NodeCache(
            url_files.choose_cache_folder(
                self._job.stage, sum(each.bytes for each in asked if not self._is_left_to_nodes(each))
            ),
            fetched=True,
        )
        try:
            files = self._fetch_files(asked, {})
            view = url_view.plan_view(
                argv,
                self._cwd,
                files.values(),
                inputs,
                shared,
                self._later.values(),
                self._job.stage,
                self._count_file_blocks(),
                self._describe_cut_input(),
            )
            url_view.build_view(view, self._cwd, self.map_copies(view))
        except BaseException:
            self.close()
            raise
        return view

    def _is_cut_by_nodes(self, found: url_files.UrlFile) -> bool:
        """Tell whether a file is the one input, which nodes may cut where its blocks are."""
        typed = [name for name in self._job.input if name == found.place or name.startswith(f"{found.place}:")]
        is_large = 0 < found.about.block_bytes < found.about.size
        if not (self._cuts and is_large and found.place.startswith("hdfs://") and typed == [*self._job.input]):
            return False
        self._cut = None if unpacked_copies.is_packed(found.name) else found
        return self._cut is not None

    def _describe_cut_input(self) -> tuple[FetchedFile | None, int, bytes]:
        """Describe the input that nodes cut, with its block size and first bytes."""
        if not self._cut:
            return None, 0, b""
        with closing(locations.open_location(self._cut.place)) as location:
            head = location.read_bytes(0, min(HEAD_BYTES, self._cut.about.size), self._cut.about)
        return url_files.describe_before_copy(self._cut), self._cut.about.block_bytes, head

    def _count_file_blocks(self) -> dict[str, int]:
        """Return the number of blocks of each file with more than one block that nodes may fetch in pieces, by name."""
        found = [each for each in self._found if self._apart and each.in_pieces and each.place.startswith("hdfs://")]
        counted = {each.name: math.ceil(each.about.size / each.about.block_bytes) for each in found}
        return {name: n for name, n in counted.items() if n > 1}

    def _fetch_files(self, found: Sequence[url_files.UrlFile], have: dict[str, FetchedFile]) -> dict[str, FetchedFile]:
        """Fetch files, and the files that these name; return all, by name."""
        assert self._cache
        found = list(dict.fromkeys(each for each in found if each not in self._found))
        self._found += found
        self._later |= {
            each.name: url_files.describe_before_copy(each) for each in found if self._is_left_to_nodes(each)
        }
        found = [each for each in found if not self._is_left_to_nodes(each)]
        before = {entry.path.name for entry in self._cache.list_entries() if entry.is_whole}
        files = url_files.copy_to_cache(found, self._cache)
        if new := [file for file in files if file.key not in before]:
            came = dict.fromkeys(file.place for file in new)
            others = f" and {format_count(len(came) - 1, 'more file')}" if len(came) > 1 else ""
            self._message(f"fetched {next(iter(came))}{others}: {format_size(sum(file.size for file in new))}")
        for file in files:
            if have.setdefault(file.name, file).key != file.key:
                raise RefusedError(
                    f"{file.place}, {have[file.name].place}: would both be {file.name} to the tool",
                    "rename one of them",
                )
        places = {replica_rules.redact_place(each.place): each.place for each in found}
        more = [each for file in files for each in self._find_named_files(file, places[file.place], have)]
        return self._fetch_files(more, have) if more else have

    def _select_read_files(self, found: Sequence[url_files.UrlFile]) -> list[url_files.UrlFile]:
        """Return those of the files of a database that are read."""
        volumes = [each for each in found if each.apart]
        if sum(each.about.size for each in volumes) > MEMORY_SHARE * memory_limits.read_usable_memory()[0]:
            self._large |= {each.place for each in volumes}
        are_left = any(map(self._is_left_to_nodes, found))
        return [each for each in found if not (are_left and each.unread)]

    def _is_left_to_nodes(self, found: url_files.UrlFile) -> bool:
        """Tell whether a file is left to the nodes that search it."""
        if not (self._apart and found.apart):
            return False
        if not found.place.startswith("hdfs://"):
            is_wanted = self._job.replicas is not None or found.place in self._large
            # Nodes know the places without secrets alone.
            can_be = found.about.has_ranges and found.about.version and replica_rules.redact_place(found.place) == found.place  # fmt: skip
            if not (is_wanted and can_be):
                return False
        # BLAST prefers a volume of this name in the working directory to any other.
        return not any(self._cwd.glob(f"{glob.escape(found.name.rpartition('.')[0])}.*"))

    def _find_named_files(
        self, file: FetchedFile, url: str, have: Mapping[str, FetchedFile]
    ) -> list[url_files.UrlFile]:
        """Return the files that a file names and that are not fetched yet."""
        if not isinstance(self._adapter, MultiFileAdapter) or not self._cache:
            return []
        found = []
        for name, parts in self._adapter.read_file_references(
            file.name, (self._cache.folder / file.key).read_bytes
        ).items():
            if "/" in name:
                raise RefusedError(
                    f"{file.place}: {file.name} names {name}, in another folder", "bring it here by hand"
                )
            if not any(re.fullmatch(parts.needed, each) for each in have):
                found += self._select_read_files(url_files.find_url_files(url_files.make_sibling_url(url, name), parts))
        return found

    def map_copies(self, view: RemoteFileView) -> dict[str, str]:
        """Return the paths of the files on this node, by name."""
        assert self._cache
        return {file.name: str(self._cache.folder / file.key) for file in view.files}

    def find_changed_file(self) -> str:
        """Return the URL of a file that has changed at its source; empty: none, as far as the sources tell."""
        for each in (*self._found, *filter(None, [self._cut])):
            with suppress(MillraceError):
                now = locations.query_file_status(each.place)
                if (now.size, now.version) != (each.about.size, each.about.version):
                    return replica_rules.redact_place(each.place)
        return ""

    def close(self) -> None:
        """Release the cached copies."""
        if self._cache:
            self._cache.close()
