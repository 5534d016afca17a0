"""On which filesystem a path is."""

from __future__ import annotations

from pathlib import Path

#: Filesystems, by the kernel's name, that come over a network: what each node reads of them crosses it.
SHARED = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "afs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "panfs",
     "pvfs2", "orangefs", "wekafs", "daos", "dvs", "gfs2", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph",
     "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.juicefs", "fuse.moosefs", "fuse.dfuse", "fuse.hdfs", "fuse.millrace"]
)  # fmt: skip

#: Filesystems whose files are in memory.
IN_MEMORY = frozenset(["tmpfs", "ramfs"])


def is_in_user_space(kind: str) -> bool:
    """Whether a process of some user answers for it, as sshfs does: many have the kernel keep nothing of what was read."""
    return kind.startswith("fuse")


def is_of_any_speed(kind: str) -> bool:
    """Whether the name tells nothing of what reading costs: what comes over a network, or from a process in user space.

    >>> is_of_any_speed("nfs4"), is_of_any_speed("fuse.other"), is_of_any_speed("fuse"), is_of_any_speed("xfs")
    (True, True, True, False)
    """
    return kind in SHARED or is_in_user_space(kind)


def kind(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The kernel's name of the filesystem that holds ``path``, which need not be there; empty if it is not told."""
    return mount(path, mounts)[1]


def mount(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> tuple[str, str]:
    """Where the filesystem that holds ``path`` is mounted, and its `kind`."""
    best, found = "", ""
    real = str(path.resolve())
    for line in mounts.read_text(errors="surrogateescape").splitlines():
        fields, _, after = line.partition(" - ")
        point = fields.split()[4].replace("\\040", " ")
        # A later line of the same place is mounted over the one before.
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, found = point, after.split()[0]
    return best, found
