"""A tool that says what it reads on which node."""

from __future__ import annotations

from cluster_site import NAMES, Cluster, get_marks

#: Says where it runs, device and number of the file that it reads, its checksum, and its name; goes on once it has run on all
#: nodes. Each node keeps what it said: another may do the same task again, and sooner.
TOOL = """#!/bin/sh
line="$(hostname) $(stat -L -c %d-%i "$1") $(cksum < "$1" | cut -d' ' -f1) $1"
echo "$line" > {folder}/new.$(hostname).$$ && mv {folder}/new.$(hostname).$$ {folder}/seen.$(hostname)
until [ $(ls {folder} | grep -c '^seen[.]') -ge {nodes} ]; do sleep 0.05; done
sed "s|^>.*|$line|" > /dev/stdout
"""


def write(cluster: Cluster) -> None:
    """Write it as ``tool``."""
    (cluster.site.folder / "tool").write_text(TOOL.format(folder=get_marks(cluster.site), nodes=len(NAMES) - 1))


def forget(cluster: Cluster) -> None:
    """As if it had run nowhere."""
    for path in get_marks(cluster.site).glob("seen.*"):
        path.unlink()


def seen(cluster: Cluster) -> set[str]:
    """What it said on each node."""
    return {path.read_text().rstrip() for path in get_marks(cluster.site).glob("seen.*")}


def inode(line: str) -> str:
    """The number of the file of a line; its device is that of the view."""
    return line.split()[1].partition("-")[2]
