"""Filesystems of paths: kind and mount point, from ``/proc/self/mountinfo``."""

from __future__ import annotations

from pathlib import Path

#: Network filesystems, by the kernel's name: each node's reads cross the network.
SHARED = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "panfs",
     "pvfs2", "orangefs", "wekafs", "daos", "dvs", "gfs2", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
     "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.juicefs", "fuse.moosefs", "fuse.dfuse", "fuse.hdfs", "fuse.millrace"]
)  # fmt: skip

#: Filesystems whose files are in memory.
IN_MEMORY = frozenset(["tmpfs", "ramfs"])


def is_user_space_filesystem(kind: str) -> bool:
    """Tell whether a user process serves the filesystem, as sshfs does; many of these disable the page cache."""
    return kind.startswith("fuse")


def has_unknown_speed(kind: str) -> bool:
    """Tell whether the kind says nothing about the speed of reads: a network filesystem, or one in user space.

    >>> has_unknown_speed("nfs4"), has_unknown_speed("fuse.other"), has_unknown_speed("fuse"), has_unknown_speed("xfs")
    (True, True, True, False)
    """
    return kind in SHARED or is_user_space_filesystem(kind)


def find_filesystem_kind(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the kernel's name of the filesystem of ``path``, which need not exist; empty if unknown."""
    return find_mount(path, mounts)[1]


def find_mount(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> tuple[str, str]:
    """Return the mount point of the filesystem of ``path``, and its kind as ``find_filesystem_kind`` has it."""
    best, found = "", ""
    real = str(path.resolve())
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        fields, _, after = line.partition(" - ")
        point = fields.split()[4].replace("\\040", " ")
        # A later line for the same mount point is mounted over the earlier one.
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, found = point, after.split()[0]
    return best, found
