"""The network interfaces of this machine that reach no other node."""

from __future__ import annotations

from pathlib import Path

#: The kernel's description of each interface (Linux, Documentation/ABI/testing/sysfs-class-net).
SYS = Path("/sys/class/net")


def list_inner_bridges(net: Path = SYS) -> list[str]:
    """Return the bridges that lead to no other machine: those of containers and virtual machines, such as ``docker0``.

    Open MPI takes the address of each interface for a route to this node. These bridges have the same addresses on many
    nodes, and come and go while a job runs: then a message is lost, and both sides wait.
    """
    return sorted(each.parent.name for each in net.glob("*/bridge") if not _has_outside_port(net, each.parent))


def _has_outside_port(net: Path, bridge: Path) -> bool:
    """Tell whether a port of a bridge is a device, or is made of others, as bonds and VLANs are."""
    ports = (net / port.name for port in (bridge / "brif").glob("*"))
    return any((port / "device").exists() or any(port.glob("lower_*")) for port in ports)
