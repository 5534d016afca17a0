"""A run in a task of a real HyperQueue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import harness

#: Starts a server and a worker with four cores, and a task that asks for two.
SESSION = """
import sys
from hyperqueue import Job
from hyperqueue.cluster import LocalCluster, WorkerConfig
from hyperqueue.ffi.protocol import ResourceRequest

with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=4))
    client, job = cluster.client(), Job()
    job.program(sys.argv[1:], stdout="said", stderr="errors", resources=ResourceRequest(cpus=2))
    client.wait_for_jobs([client.submit(job)])
"""


def test_hyperqueue_task_uses_its_granted_cores(tmp_path: Path) -> None:
    """Also where its worker is in a Slurm job of several nodes, which is not the task's to use."""
    (tmp_path / "in.fa").write_text(">a\nMKV\n>b\nMKV\n")
    environ = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_CPUS_PER_NODE": "16(x3)"}
    line = "millrace plan --format fasta -- cat < in.fa && millrace run --format fasta -- cat < in.fa > out.fa"
    line = line.replace("millrace", f"{sys.executable} -m millrace")
    words = [
        sys.executable,
        "-c",
        SESSION,
        "env",
        *(f"{name}={value}" for name, value in environ.items()),
        "sh",
        "-c",
        line,
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=harness.LONGEST_SECONDS)
    assert done.returncode == 0, (done.stderr, (tmp_path / "errors").read_text())
    said = (tmp_path / "said").read_text()
    assert "granted by HyperQueue: HQ_CPUS" in said and "slots: 2 " in said, said
    assert (tmp_path / "out.fa").read_bytes() == (tmp_path / "in.fa").read_bytes()
