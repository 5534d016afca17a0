"""Which interfaces Open MPI is told to leave alone, on a network of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from mpi_jobs import Mpi

from millrace.cluster.transport.mpi_start import list_inner_bridges

#: A bridge of a container, and one without ports.
NETWORK = """mount -t sysfs sysfs /sys
ip link add docker9 type bridge && ip link add here type veth peer name there && ip link set here master docker9
ip link add empty type bridge
exec "$@"
"""
SETTLE = "import os, pathlib; from millrace.cluster.transport.mpi_start import set_openmpi_defaults; set_openmpi_defaults(pathlib.Path('/tmp')); print(os.environ['OMPI_MCA_btl_tcp_if_exclude'])"


@pytest.mark.parametrize(("said", "left_alone"), [("", "127.0.0.0/8,docker9,empty"), ("eth7", "eth7")])
def test_bridges_to_no_other_node_are_excluded(openmpi: Mpi, said: str, left_alone: str) -> None:
    """An exclusion list of the user is kept instead."""
    words = ["unshare", "--net", "--mount", "sh", "-ec", NETWORK, "sh"]
    words += ["env", f"OMPI_MCA_btl_tcp_if_exclude={said}"] if said else []
    python = str(Path(openmpi.millrace).parent / "python")
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("no namespaces here")
    done = subprocess.run([*words, python, "-c", SETTLE], capture_output=True, text=True)
    assert done.stdout == f"{left_alone}\n", done.stderr


def test_bridge_over_card_bond_or_vlan_is_used(tmp_path: Path) -> None:
    """As the kernel shows them: few machines have all of these."""
    for bridge, port, shows in (
        ("br0", "eth0", "device"),
        ("br1", "bond0", "lower_eth1"),
        ("virbr0", "vnet0", "tun_flags"),
    ):
        (tmp_path / bridge / "bridge").mkdir(parents=True)
        (tmp_path / bridge / "brif" / port).mkdir(parents=True)
        (tmp_path / port / shows).mkdir(parents=True)
    assert list_inner_bridges(tmp_path) == ["virbr0"]
