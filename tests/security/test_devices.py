"""Outputs that are devices, where the folder of devices is root's."""

from __future__ import annotations

import pytest
from machine_users import Machine

FASTA = ">r1\nMKV\n>r2\nMAA\n"


@pytest.mark.parametrize(
    ("device", "expected"),
    [("/dev/null", ""), ("/dev/stdout", FASTA), ("/dev/fd/1", FASTA), ("/proc/self/fd/1", FASTA)],
)
def test_device_output_works_without_write_access_to_dev(machine: Machine, device: str, expected: str) -> None:
    user = machine.user
    (user.home / "in.fa").write_text(FASTA)
    user.sh("! test -w /dev")
    # A pipe of his own: whoever opens standard output by its number must be allowed to.
    run = f"{user.python} -P -m millrace run -q --input in.fa --output {device}"
    done = user.run("bash", "-o", "pipefail", "-c", f"{run} -- sh -c 'cat in.fa > $0' {device} | cat")
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
    assert not [*user.home.glob("*.millrace")]
