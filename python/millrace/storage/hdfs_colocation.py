"""Colocation of files in a new HDFS folder: a group's files share one DataNode, and groups are spread evenly.

HDFS places each file by itself, but the first copy on the DataNode that writes it. WebHDFS writes through a DataNode
that the NameNode draws; here it is chosen. The NameNode places the other copies.

Source: the WebHDFS REST API of Apache Hadoop (``CREATE``), and the list of DataNodes that its own web pages show
(``NameNodeInfo`` of ``/jmx``).
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from millrace.core.errors import MillraceError, RefusedError
from millrace.core.replica_rules import redact_place
from millrace.storage import hdfs_blocks
from millrace.storage.clients.base import PIECE_BYTES, UnreachableError
from millrace.storage.clients.hdfs import HdfsLocation

#: Groups that are written at the same time.
MAX_CONCURRENT_WRITES = 8

#: Timeout of a DataNode for one step of a write.
TIMEOUT_SECONDS = 300.0

_ELSE = "make a folder of this machine, and copy that: hdfs dfs -put, which places each file by itself"


class DataNode(NamedTuple):
    """A DataNode that takes new blocks."""

    name: str
    #: Address of its WebHDFS.
    address: str
    free: int


class GroupPlacement(NamedTuple):
    """The placement that was achieved."""

    #: Number of groups that each DataNode has written.
    on: list[int]
    #: Number of groups with all their blocks on one DataNode.
    n_together: int


class NewHdfsFolder:
    """A new HDFS folder: complete when ``write_groups`` returns, otherwise absent. Use as a context.

    Args:
        url: Of HDFS; at most an empty folder may exist there.
        environ: Names the folder of the Hadoop settings.

    Raises:
        MillraceError: It cannot be written there, and why; nothing is left.
    """

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        self._url, self._shown, self._environ = url.rstrip("/"), redact_place(url), environ
        self._folder = HdfsLocation(self._url, self._shown)
        self._stops = False
        known = hdfs_blocks.read_hadoop_settings(environ)
        self._begun = self._folder.create_unfinished_folder()
        try:
            self._redirect, name_node = self._find_redirect(hdfs_blocks.list_name_nodes(self._url, known))
            self._nodes = parse_data_nodes(_read_live_nodes(name_node, self._shown), urlsplit(self._redirect).scheme)
            if not self._nodes:
                raise UnreachableError(f"{self._shown}: no DataNode takes new blocks", "see: hdfs dfsadmin -report")
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> NewHdfsFolder:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(MillraceError):  # if it cannot be removed now, the next run does it
            self._folder.discard_write(self._begun)

    def _find_redirect(self, name_nodes: Sequence[str]) -> tuple[str, str]:
        """Return the URL to which a NameNode redirects a write, and the address of that NameNode."""
        why = "no NameNode is known of it"
        for node in name_nodes:
            try:
                where = hdfs_blocks.request_write_redirect(f"{node}/webhdfs/v1{quote(self._begun)}/x", "CREATE")
            except (OSError, ValueError) as error:
                why = f"{node}: {error}"
                continue
            if "namenoderpcaddress=" in where:
                return where, node
            why = f"{node}: it is no NameNode, but a gateway"
        raise RefusedError(f"{self._shown}: which DataNode gets a file cannot be chosen: {why}", f"set dfs.namenode.http-address in HADOOP_CONF_DIR/hdfs-site.xml; or {_ELSE}")  # fmt: skip

    def write_groups(self, groups: Sequence[Sequence[Path]], others: Sequence[Path]) -> GroupPlacement:
        """Write each group through one DataNode, check that all files are complete, and publish the folder.

        Args:
            others: Files without a group.

        Raises:
            MillraceError: A file cannot be written, and why.
        """
        chosen = spread_groups([sum(path.stat().st_size for path in files) for files in groups], self._nodes)
        with ThreadPoolExecutor(MAX_CONCURRENT_WRITES) as pool:
            try:
                written = [pool.submit(self._write_files, *each) for each in zip(groups, chosen, strict=True)]
                nodes = [each.result() for each in written]
                self._write_files(others, self._nodes[0])
            except BaseException:
                self._stops = True
                pool.shutdown(cancel_futures=True)
                raise
        wanted = {path.name: path.stat().st_size for files in (*groups, others) for path in files}
        if self._folder.list_sizes(self._begun) != wanted:
            raise UnreachableError(f"{self._shown}: not all that was sent has arrived", "try again")
        self._folder.publish_folder(self._begun)
        return GroupPlacement([*Counter(nodes).values()], self._count_colocated(groups))

    def _write_files(self, files: Sequence[Path], node: DataNode) -> str:
        """Write through ``node``, or through another one if it does not answer; return the name of the writer."""
        others = [each for each in self._nodes if each != node]
        for each in (node, *others):
            try:
                for path in files:
                    self._write_file(path, each)
                return each.name
            except urllib.error.HTTPError as error:
                raise self._translate_error(error) from error
            except OSError as error:
                why = f"{each.name}: {error}"
        raise UnreachableError(f"{self._shown}: no DataNode could be written to: {why}", "see: hdfs dfsadmin -report")

    def _write_file(self, path: Path, node: DataNode) -> None:
        parts = urlsplit(self._redirect)
        query = parts.query.replace("overwrite=false", "overwrite=true")  # a part left by another DataNode
        query = query.replace("createparent=true", "createparent=false")  # a late write after the folder was removed
        place = parts._replace(
            netloc=node.address, path=f"/webhdfs/v1{quote(self._begun)}/{quote(path.name)}", query=query
        )
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(path.stat().st_size)}
        request = urllib.request.Request(urlunsplit(place), self._read_pieces(path), headers, method="PUT")
        with hdfs_blocks.OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
            answer.read()

    def _read_pieces(self, path: Path) -> Iterator[bytes]:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(PIECE_BYTES):
                if self._stops:
                    raise InterruptedError("another file could not be written")
                yield piece

    def _translate_error(self, error: urllib.error.HTTPError) -> MillraceError:
        """Translate the error of a DataNode into a message of Millrace."""
        with error:
            said = error.read()
        try:
            found: dict[str, Any] = json.loads(said)["RemoteException"]
            return self._folder.make_refusal_error(f"{found['exception']}: {found['message'].strip().splitlines()[0]}")
        except (ValueError, LookupError, TypeError):
            return self._folder.make_refusal_error(str(error))

    def _count_colocated(self, groups: Sequence[Sequence[Path]]) -> int:
        urls = [[f"{self._url}/{quote(path.name)}" for path in files] for files in groups]
        found = hdfs_blocks.locate_blocks([url for own in urls for url in own], self._environ)
        return sum(bool(hdfs_blocks.find_common_hosts(found[url] for url in own)) for own in urls)


def _read_live_nodes(name_node: str, place: str) -> str:
    """Ask a NameNode for its live DataNodes; return its JSON text."""
    question = f"{name_node}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
    try:
        with hdfs_blocks.OPENER.open(question, timeout=hdfs_blocks.TIMEOUT_SECONDS) as answer:
            live: str = json.load(answer)["beans"][0]["LiveNodes"]
            return live
    except (OSError, ValueError, LookupError) as error:
        raise RefusedError(
            f"{place}: which DataNodes there are cannot be told: {name_node}/jmx: {error}", _ELSE
        ) from error


def parse_data_nodes(live: str, scheme: str) -> list[DataNode]:
    """Parse a NameNode's list of live DataNodes; keep those that take new blocks. Pure.

    >>> parse_data_nodes('{"n1:9866": {"infoAddr": "10.0.0.1:9864", "remaining": 7, "adminState": "In Service"}, "n2:9866": '
    ...     '{"infoAddr": "10.0.0.2:9864", "remaining": 7, "adminState": "Decommissioned"}}', "http")
    [DataNode(name='n1', address='10.0.0.1:9864', free=7)]
    """
    key = "infoSecureAddr" if scheme == "https" else "infoAddr"
    return [
        DataNode(name.partition(":")[0], about[key], int(about["remaining"]))
        for name, about in json.loads(live).items()
        if about.get("adminState") == "In Service" and about.get(key)
    ]


def spread_groups(sizes: Sequence[int], nodes: Sequence[DataNode]) -> list[DataNode]:
    """Choose a DataNode for each group of files: sizes balanced, more free space preferred. Pure.

    >>> one, two = DataNode("one", "", 100), DataNode("two", "", 200)
    >>> [each.name for each in spread_groups([10, 10, 8, 9], [one, two])]
    ['two', 'one', 'one', 'two']
    """
    given = dict.fromkeys(nodes, 0)
    chosen: dict[int, DataNode] = {}
    for k in sorted(range(len(sizes)), key=lambda k: (-sizes[k], k)):
        roomy = [node for node in nodes if node.free - given[node] > sizes[k]] or nodes
        chosen[k] = min(roomy, key=lambda each: (given[each], given[each] - each.free, each.name))
        given[chosen[k]] += sizes[k]
    return [chosen[k] for k in range(len(sizes))]
