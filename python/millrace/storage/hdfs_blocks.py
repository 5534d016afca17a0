"""Locations of HDFS blocks: the DataNodes that hold them, asked from the NameNode over WebHDFS.

Only metadata is read here. ``millrace.storage.clients.hdfs`` reads the files; its client has no call for locations.

Source: the WebHDFS REST API of Apache Hadoop (``GETFILEBLOCKLOCATIONS``, since 3.0; ``GET_BLOCK_LOCATIONS`` before),
and ``hdfs-default.xml`` for the addresses of the NameNodes.
"""

from __future__ import annotations

import getpass
import http
import json
import math
import os
import socket
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from millrace.core.errors import MillraceError
from millrace.core.tool_use import FetchedFile

#: Timeout of one request to a NameNode.
TIMEOUT_SECONDS = 10.0

#: Files whose blocks are asked for at the same time.
MAX_CONCURRENT_QUERIES = 8

#: Unanswered requests for block locations after which no more are sent.
MAX_FAILED_QUERIES = 3

#: Time for which block locations count as known.
MAX_AGE_SECONDS = 10.0

#: Ports of WebHDFS (HTTP, HTTPS) if the settings name none.
PORT, SECURE_PORT = 9870, 9871

#: Uses no proxy: NameNodes and DataNodes are on the site's own network.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HdfsBlock(NamedTuple):
    """A block of a file: bytes ``[offset, offset + length)``, and names and addresses of the DataNodes that hold it."""

    offset: int
    length: int
    hosts: frozenset[str]


def read_hadoop_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Read ``core-site.xml`` and ``hdfs-site.xml`` of ``HADOOP_CONF_DIR`` or ``HADOOP_HOME`` into one dict."""
    folder = environ.get("HADOOP_CONF_DIR") or os.path.join(environ.get("HADOOP_HOME", ""), "etc/hadoop")
    found: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml"):
        path = Path(folder) / name
        if not path.is_file():
            continue
        try:
            items = list(ElementTree.parse(path).getroot().iter("property"))
        except ElementTree.ParseError:
            continue  # hdfs-native reports the syntax error
        found |= {item.findtext("name", "").strip(): item.findtext("value", "").strip() for item in items}
    return found


def list_name_nodes(url: str, known: Mapping[str, str]) -> list[str]:
    """List the WebHDFS addresses of a URL's NameNodes, in the order in which to ask them. Pure.

    >>> list_name_nodes("hdfs://nn:8020/db", {}), list_name_nodes("hdfs://nn/db", {"dfs.namenode.http-address": "0.0.0.0:50070"})
    (['http://nn:9870'], ['http://nn:50070'])
    >>> list_name_nodes("hdfs://site/db", {"dfs.nameservices": "site", "dfs.ha.namenodes.site": "a,b",
    ...     "dfs.namenode.http-address.site.a": "one:9870", "dfs.namenode.http-address.site.b": "two:9870"})
    ['http://one:9870', 'http://two:9870']
    """
    secure = known.get("dfs.http.policy") == "HTTPS_ONLY"
    scheme, port = ("https", SECURE_PORT) if secure else ("http", PORT)
    key = f"dfs.namenode.{scheme}-address"
    host = urlsplit(url).hostname or ""
    services = [name.strip() for name in known.get("dfs.nameservices", "").split(",")]
    suffixes = [""]
    if host in services:
        members = [name.strip() for name in known.get(f"dfs.ha.namenodes.{host}", "").split(",") if name.strip()]
        suffixes = [f".{host}.{name}" for name in members] or [f".{host}"]
    found = []
    for suffix in suffixes:
        there, _, number = known.get(f"{key}{suffix}", "").rpartition(":")
        if suffix and not there:
            continue  # no address is configured
        found.append(f"{scheme}://{host if there in ('', '0.0.0.0') else there}:{number or port}")
    return found


def locate_blocks(urls: Iterable[str], environ: Mapping[str, str]) -> dict[str, list[HdfsBlock]]:
    """Locate the blocks of HDFS files, by URL; the files are asked for in parallel.

    Raises:
        MillraceError: No NameNode answers, or a file does not exist.
    """
    known = read_hadoop_settings(environ)
    wanted = list(dict.fromkeys(urls))
    with ThreadPoolExecutor(MAX_CONCURRENT_QUERIES) as pool:
        return dict(zip(wanted, pool.map(lambda url: _locate_file_blocks(url, known), wanted), strict=True))


def cut_to_range(found: Sequence[HdfsBlock], first: int, last: int) -> list[HdfsBlock]:
    """Cut the blocks of a file, in order, to the half-open range ``[first, last)``. Pure.

    >>> cut_to_range([HdfsBlock(0, 10, frozenset()), HdfsBlock(10, 5, frozenset()), HdfsBlock(15, 5, frozenset())], 8, 12)
    [HdfsBlock(offset=8, length=2, hosts=frozenset()), HdfsBlock(offset=10, length=2, hosts=frozenset())]
    """
    begin = bisect_right(found, first, key=lambda each: each.offset + each.length)
    near = takewhile(lambda each: each.offset < last, islice(found, begin, None))
    edges = ((max(first, each.offset), min(last, each.offset + each.length), each.hosts) for each in near)
    return [HdfsBlock(begin, end - begin, hosts) for begin, end, hosts in edges if begin < end]


def _locate_file_blocks(url: str, known: Mapping[str, str]) -> list[HdfsBlock]:
    why = "no NameNode is known of it"
    path = quote(unquote(urlsplit(url).path))
    for node in list_name_nodes(url, known):
        for question in ("GETFILEBLOCKLOCATIONS", "GET_BLOCK_LOCATIONS"):
            try:
                return parse_block_locations(_query_webhdfs(f"{node}/webhdfs/v1{path}", question))
            except (OSError, ValueError, KeyError, TypeError) as error:
                why = f"{node}: {error}"
                if not isinstance(error, urllib.error.HTTPError):
                    break  # no server; an HTTP error may mean an older release or a standby
    raise MillraceError(f"{url}: where its blocks are cannot be told: {why}", "set dfs.namenode.http-address in HADOOP_CONF_DIR/hdfs-site.xml")  # fmt: skip


def _query_webhdfs(address: str, question: str) -> dict[str, Any]:
    with OPENER.open(_make_query_url(address, question), timeout=TIMEOUT_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _make_query_url(address: str, question: str) -> str:
    user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    return f"{address}?{urlencode({'op': question, 'user.name': user})}"


def request_write_redirect(address: str, question: str) -> str:
    """Return the DataNode URL to which a NameNode redirects a write.

    Raises:
        OSError: It does not answer, or refuses.
        ValueError: It does not redirect.
    """
    try:
        with OPENER.open(
            urllib.request.Request(_make_query_url(address, question), method="PUT"), timeout=TIMEOUT_SECONDS
        ):
            raise ValueError("it writes by itself")
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.TEMPORARY_REDIRECT:
                return str(error.headers["Location"])
            raise


def parse_block_locations(answer: Mapping[str, Any]) -> list[HdfsBlock]:
    """Parse the answer of either request into blocks. Pure.

    Raises:
        KeyError: The answer has neither form.
    """
    if "BlockLocations" in answer:
        blocks = answer["BlockLocations"]["BlockLocation"]
        return [_make_block(one["offset"], one["length"], [*one["hosts"], *one["names"]]) for one in blocks]
    found = []
    for one in answer["LocatedBlocks"]["locatedBlocks"]:
        names = [name for place in one["locations"] for name in (place["hostName"], place["ipAddr"])]
        found.append(_make_block(one["startOffset"], one["block"]["numBytes"], names))
    return found


def _make_block(offset: int, length: int, names: Iterable[str]) -> HdfsBlock:
    return HdfsBlock(int(offset), int(length), frozenset(name.partition(":")[0].lower() for name in names))


def count_bytes_elsewhere(found: Iterable[HdfsBlock], ranges: Iterable[tuple[int, int]], here: frozenset[str]) -> int:
    """Count the bytes of half-open ranges that no DataNode on this host holds; ``here``: the host's names. Pure.

    >>> count_bytes_elsewhere([HdfsBlock(0, 10, frozenset({"a"})), HdfsBlock(10, 5, frozenset({"b"}))], [(8, 12), (14, 15)], frozenset({"a"}))
    3
    """
    ranges = list(ranges)
    near = [block for block in found if any({host, strip_domain(host)} & here for host in block.hosts)]
    held = sum(
        max(0, min(last, block.offset + block.length) - max(first, block.offset))
        for first, last in ranges
        for block in near
    )
    return sum(last - first for first, last in ranges) - held


class HdfsLocality:
    """Counter of the bytes that this host reads from DataNodes of other hosts.

    Bytes of unknown location count as remote. After ``MAX_FAILED_QUERIES`` requests without an answer no more are sent.
    An answer counts for ``MAX_AGE_SECONDS``.
    """

    def __init__(self) -> None:
        self._left = MAX_FAILED_QUERIES
        #: Time of the answer, and the blocks, by file.
        self._known: dict[str, tuple[float, list[HdfsBlock]]] = {}

    def count_remote_bytes(self, file: FetchedFile, ranges: Sequence[tuple[int, int]]) -> int:
        """Return how many bytes of half-open ranges of a file came from DataNodes of other hosts; all, if it is elsewhere."""
        if not file.place.startswith("hdfs://"):
            return sum(last - first for first, last in ranges)
        when, found = self._known.get(file.place, (-math.inf, []))
        if self._left and time.monotonic() - when > MAX_AGE_SECONDS:
            try:
                found = locate_blocks([file.place], os.environ)[file.place]
                self._known[file.place] = time.monotonic(), found
            except MillraceError:
                self._left -= 1
        return count_bytes_elsewhere(found, ranges, list_host_names(socket.gethostname()))


def strip_domain(host: str) -> str:
    """Return a host name without its domain; an address unchanged."""
    return host if host.replace(".", "").isdigit() else host.partition(".")[0]


def list_host_names(host: str) -> frozenset[str]:
    """List the names by which a DataNode may call a host: full name, name without domain, addresses."""
    found = {host.lower(), host.lower().partition(".")[0]}
    with suppress(OSError):
        name, others, addresses = socket.gethostbyname_ex(host)
        found |= {name.lower(), *map(str.lower, others), *(each for each in addresses if not each.startswith("127."))}
    return frozenset(found)


def sum_bytes_by_host(files: Iterable[list[HdfsBlock]]) -> dict[str, int]:
    """Sum the bytes of these files that each DataNode holds, by each of its names. Pure.

    >>> sum_bytes_by_host([[HdfsBlock(0, 10, frozenset({"a"})), HdfsBlock(10, 5, frozenset({"a", "b"}))]]) == {"a": 15, "b": 5}
    True
    """
    found: dict[str, int] = {}
    for blocks in files:
        for block in blocks:
            for host in block.hosts:
                found[host] = found.get(host, 0) + block.length
    return found


def find_common_hosts(files: Iterable[list[HdfsBlock]]) -> frozenset[str]:
    """Return the names of the DataNodes that hold all blocks of these files. Pure.

    >>> sorted(find_common_hosts([[HdfsBlock(0, 10, frozenset({"a", "b"}))], [HdfsBlock(0, 5, frozenset({"b", "c"}))], []]))
    ['b']
    """
    held = [block.hosts for blocks in files for block in blocks]
    return frozenset.intersection(*held) if held else frozenset()
