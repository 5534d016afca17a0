"""Where the blocks of a file in HDFS are: the DataNodes that hold them, as the NameNode tells by WebHDFS.

Nothing is read there but names: files are read by `millrace.storage.clients.hdfs`, which has no such question.

Source: the WebHDFS REST API of Apache Hadoop (``GETFILEBLOCKLOCATIONS``, since 3.0; ``GET_BLOCK_LOCATIONS`` before), and
``hdfs-default.xml`` for the addresses of the NameNodes.
"""

from __future__ import annotations

import getpass
import http
import json
import os
import socket
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlsplit

from millrace.errors import MillraceError
from millrace.model import Fetched

#: Seconds that a NameNode may take for an answer.
PATIENCE_SECONDS = 10.0

#: Files that are asked for at the same time.
ASKED_AT_ONCE = 8

#: Questions about distance that may stay without an answer.
QUESTIONS = 3

#: Port of WebHDFS, if the settings name none.
PORT, SECURE_PORT = 9870, 9871

#: A proxy is for the world outside.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Block(NamedTuple):
    """A block of a file: bytes ``[offset, offset + length)``, and names and addresses of the DataNodes that hold it."""

    offset: int
    length: int
    hosts: frozenset[str]


def settings(environ: Mapping[str, str]) -> dict[str, str]:
    """What ``core-site.xml`` and ``hdfs-site.xml`` say, of ``HADOOP_CONF_DIR`` or ``HADOOP_HOME``."""
    folder = environ.get("HADOOP_CONF_DIR") or os.path.join(environ.get("HADOOP_HOME", ""), "etc/hadoop")
    found: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml"):
        path = Path(folder) / name
        if not path.is_file():
            continue
        try:
            items = list(ElementTree.parse(path).getroot().iter("property"))
        except ElementTree.ParseError:
            continue  # hdfs-native says what is wrong with it
        found |= {item.findtext("name", "").strip(): item.findtext("value", "").strip() for item in items}
    return found


def name_nodes(url: str, known: Mapping[str, str]) -> list[str]:
    """Where the NameNodes of a URL answer WebHDFS, the first one to be asked first. Pure.

    >>> name_nodes("hdfs://nn:8020/db", {}), name_nodes("hdfs://nn/db", {"dfs.namenode.http-address": "0.0.0.0:50070"})
    (['http://nn:9870'], ['http://nn:50070'])
    >>> name_nodes("hdfs://site/db", {"dfs.nameservices": "site", "dfs.ha.namenodes.site": "a,b",
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
            continue  # no name that could be asked
        found.append(f"{scheme}://{host if there in ('', '0.0.0.0') else there}:{number or port}")
    return found


def of_files(urls: Iterable[str], environ: Mapping[str, str]) -> dict[str, list[Block]]:
    """The blocks of files in HDFS, by URL, asked for side by side.

    Raises:
        MillraceError: No NameNode answers, or a file is not there.
    """
    known = settings(environ)
    wanted = list(dict.fromkeys(urls))
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return dict(zip(wanted, pool.map(lambda url: _of_file(url, known), wanted), strict=True))


def within(found: Iterable[Block], first: int, last: int) -> list[Block]:
    """What blocks of a file hold of a half-open range of it. Pure.

    >>> within([Block(0, 10, frozenset()), Block(10, 5, frozenset()), Block(15, 5, frozenset())], 8, 12)
    [Block(offset=8, length=2, hosts=frozenset()), Block(offset=10, length=2, hosts=frozenset())]
    """
    edges = ((max(first, each.offset), min(last, each.offset + each.length), each.hosts) for each in found)
    return [Block(begin, end - begin, hosts) for begin, end, hosts in edges if begin < end]


def _of_file(url: str, known: Mapping[str, str]) -> list[Block]:
    why = "no NameNode is known of it"
    path = quote(unquote(urlsplit(url).path))
    for node in name_nodes(url, known):
        for question in ("GETFILEBLOCKLOCATIONS", "GET_BLOCK_LOCATIONS"):
            try:
                return parse(_ask(f"{node}/webhdfs/v1{path}", question))
            except (OSError, ValueError, KeyError, TypeError) as error:
                why = f"{node}: {error}"
                if not isinstance(error, urllib.error.HTTPError):
                    break  # nobody there; else it may know the older question, or be a standby
    raise MillraceError(f"{url}: where its blocks are cannot be told: {why}", "set dfs.namenode.http-address in HADOOP_CONF_DIR/hdfs-site.xml")  # fmt: skip


def _ask(address: str, question: str) -> dict[str, Any]:
    with OPENER.open(_asking(address, question), timeout=PATIENCE_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def _asking(address: str, question: str) -> str:
    user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    return f"{address}?{urlencode({'op': question, 'user.name': user})}"


def redirected(address: str, question: str) -> str:
    """Where a NameNode sends who would write.

    Raises:
        OSError: It does not answer, or refuses.
        ValueError: It sends nobody anywhere.
    """
    try:
        with OPENER.open(urllib.request.Request(_asking(address, question), method="PUT"), timeout=PATIENCE_SECONDS):
            raise ValueError("it writes by itself")
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.HTTPStatus.TEMPORARY_REDIRECT:
                return str(error.headers["Location"])
            raise


def parse(answer: Mapping[str, Any]) -> list[Block]:
    """The blocks that either answer tells of. Pure.

    Raises:
        KeyError: It is another answer.
    """
    if "BlockLocations" in answer:
        blocks = answer["BlockLocations"]["BlockLocation"]
        return [_block(one["offset"], one["length"], [*one["hosts"], *one["names"]]) for one in blocks]
    found = []
    for one in answer["LocatedBlocks"]["locatedBlocks"]:
        names = [name for place in one["locations"] for name in (place["hostName"], place["ipAddr"])]
        found.append(_block(one["startOffset"], one["block"]["numBytes"], names))
    return found


def _block(offset: int, length: int, names: Iterable[str]) -> Block:
    return Block(int(offset), int(length), frozenset(name.partition(":")[0].lower() for name in names))


def elsewhere(found: Iterable[Block], ranges: Iterable[tuple[int, int]], here: frozenset[str]) -> int:
    """Bytes of half-open ranges of a file that no DataNode by one of the names of this host holds. Pure.

    >>> elsewhere([Block(0, 10, frozenset({"a"})), Block(10, 5, frozenset({"b"}))], [(8, 12), (14, 15)], frozenset({"a"}))
    3
    """
    ranges = list(ranges)
    near = [block for block in found if any({host, short(host)} & here for host in block.hosts)]
    held = sum(
        max(0, min(last, block.offset + block.length) - max(first, block.offset))
        for first, last in ranges
        for block in near
    )
    return sum(last - first for first, last in ranges) - held


class Distance:
    """How much of what this host reads from HDFS comes from others.

    What cannot be told counts as far. Where no NameNode answers, some times over, it is not asked any more.
    """

    def __init__(self) -> None:
        self._left = QUESTIONS

    def far(self, file: Fetched, ranges: Sequence[tuple[int, int]]) -> int:
        """How much of half-open ranges of a file came from DataNodes of other hosts."""
        found: list[Block] = []
        if self._left:
            try:
                found = of_files([file.place], os.environ)[file.place]
            except MillraceError:
                self._left -= 1
        return elsewhere(found, ranges, names_of(socket.gethostname()))


def short(host: str) -> str:
    """A name without its domain; an address as it is."""
    return host if host.replace(".", "").isdigit() else host.partition(".")[0]


def names_of(host: str) -> frozenset[str]:
    """By which a DataNode may call a host: its names, whole and without the domain, and its addresses."""
    found = {host.lower(), host.lower().partition(".")[0]}
    with suppress(OSError):
        name, others, addresses = socket.gethostbyname_ex(host)
        found |= {name.lower(), *map(str.lower, others), *(each for each in addresses if not each.startswith("127."))}
    return frozenset(found)


def holders(files: Iterable[list[Block]]) -> dict[str, int]:
    """Bytes of these files that each DataNode holds, by each of its names. Pure.

    >>> holders([[Block(0, 10, frozenset({"a"})), Block(10, 5, frozenset({"a", "b"}))]]) == {"a": 15, "b": 5}
    True
    """
    found: dict[str, int] = {}
    for blocks in files:
        for block in blocks:
            for host in block.hosts:
                found[host] = found.get(host, 0) + block.length
    return found


def common(files: Iterable[list[Block]]) -> frozenset[str]:
    """The names of the DataNodes that hold all blocks of these files. Pure.

    >>> sorted(common([[Block(0, 10, frozenset({"a", "b"}))], [Block(0, 5, frozenset({"b", "c"}))], []]))
    ['b']
    """
    held = [block.hosts for blocks in files for block in blocks]
    return frozenset.intersection(*held) if held else frozenset()
