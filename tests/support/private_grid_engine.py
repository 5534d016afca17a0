"""A private Grid Engine on nodes that are namespaces: its own root, ports and spool, nothing in system folders. Root only."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from namespace_nodes import Nodes

#: Where `scripts/install-tools` unpacks the programs: packages that are installed would start daemons for everybody.
UNPACKED = Path(__file__).resolve().parents[2] / ".tools" / "gridengine"

#: Where the programs look for each other below their root.
ARCH = "lx-amd64"

BOOTSTRAP = """\
admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {root}/default/common;{root}/spool
binary_path {root}/bin
qmaster_spool_dir {root}/spool
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
jvm_threads 0
"""

QUEUE = """\
qname all.q
hostlist {hosts}
seq_no 0
load_thresholds NONE
suspend_thresholds NONE
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:00:01
processors UNDEFINED
qtype BATCH INTERACTIVE
ckpt_list again
pe_list spread
rerun TRUE
slots {cpus}
tmpdir {root}/tmp
shell /bin/bash
prolog NONE
epilog NONE
shell_start_mode unix_behavior
starter_method NONE
suspend_method NONE
resume_method NONE
terminate_method NONE
notify 00:00:30
owner_list NONE
user_lists NONE
xuser_lists NONE
subordinate_list NONE
complex_values NONE
projects NONE
xprojects NONE
calendar NONE
initial_state default
s_rt INFINITY
h_rt INFINITY
s_cpu INFINITY
h_cpu INFINITY
s_fsize INFINITY
h_fsize INFINITY
s_data INFINITY
h_data INFINITY
s_stack INFINITY
h_stack INFINITY
s_core INFINITY
h_core INFINITY
s_rss INFINITY
h_rss INFINITY
s_vmem INFINITY
h_vmem INFINITY
"""

#: A parallel environment whose jobs get the same number of cores on each host, and start processes there by ``qrsh -inherit``.
PARALLEL = """\
pe_name spread
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule {cpus}
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""

#: Jobs that are moved to another host, or suspended, end and start again.
CHECKPOINT = """\
ckpt_name again
interface userdefined
ckpt_command NONE
migr_command NONE
restart_command NONE
clean_command NONE
ckpt_dir {root}/tmp
signal USR2
when xs
"""


def reason_not() -> str:
    """Why there can be no Grid Engine here; empty if there can."""
    if os.geteuid() != 0:
        return "a private Grid Engine needs root"
    return "" if (UNPACKED / "usr/lib/gridengine/sge_qmaster").exists() else "no Grid Engine: make tools"


@dataclass
class GridEngine:
    """Its master is at the first of ``hosts``, which are nodes, and jobs run at the others; use as a context."""

    nodes: Nodes
    folder: Path
    hosts: tuple[str, ...]
    cpus: int = 2
    port: int = 6444

    @property
    def environ(self) -> dict[str, str]:
        """What tells the programs where all is."""
        return {
            "SGE_ROOT": str(self.folder), "SGE_CELL": "default", "SGE_QMASTER_PORT": str(self.port), "SGE_EXECD_PORT": str(self.port + 1),
            "LD_LIBRARY_PATH": "/usr/lib/gridengine", "PATH": f"{self.folder}/bin/{ARCH}:{os.environ['PATH']}",
        }  # fmt: skip

    def __enter__(self) -> GridEngine:
        common = self.folder / "default" / "common"
        for path in (
            common,
            self.folder / "spool" / "job_scripts",
            self.folder / "tmp",
            self.folder / "bin",
            self.folder / "execd",
        ):
            path.mkdir(parents=True)
        programs = UNPACKED / "usr/lib/gridengine"
        for name in ("bin", "utilbin", "lib"):
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / ARCH).symlink_to(programs)
        shutil.copytree(UNPACKED / "usr/share/gridengine/util", self.folder / "util")
        (self.folder / "util" / "arch").write_text(f"#!/bin/sh\necho {ARCH}\n")
        (common / "bootstrap").write_text(BOOTSTRAP.format(root=self.folder))
        (common / "act_qmaster").write_text(f"{self.hosts[0]}\n")
        (common / "accounting").touch()
        share = UNPACKED / "usr/share/gridengine"
        settings = (share / "default-configuration").read_text()
        for old, new in (("execd_spool_dir        /var/spool/gridengine/execd", f"execd_spool_dir {self.folder}/execd"),
                         ("min_uid                1000", "min_uid 0"), ("min_gid                1000", "min_gid 0"),
                         ("load_report_time       00:00:40", "load_report_time 00:00:05"),
                         ("max_unheard            00:05:00", "max_unheard 00:00:15"),
                         ("reschedule_unknown     00:00:00", "reschedule_unknown 00:00:05")):  # fmt: skip
            assert old in settings
            settings = settings.replace(old, new)
        (self.folder / "settings").write_text(settings)
        self.mount(self.hosts[0])
        for words in (
            f"spoolinit classic libspoolc '{self.folder}/default/common;{self.folder}/spool' init",
            f"spooldefaults.bin configuration {self.folder}/settings",
            f"spooldefaults.bin complexes {share}/util/resources/centry",
            f"spooldefaults.bin usersets {share}/util/resources/usersets",
            "spooldefaults.bin managers root",
        ):
            self.run(f"{self.folder}/utilbin/{ARCH}/{words}")
        self.run("sge_qmaster")
        self.wait(lambda: "root" in self.ask("qconf -sm"), "master")
        for host in self.hosts:
            self.ask(f"qconf -ah {host}; qconf -as {host}")
        for host in self.hosts[1:]:
            self.start(host)
        self.configure("-Ap", PARALLEL.format(cpus=self.cpus))
        self.configure("-Ackpt", CHECKPOINT.format(root=self.folder))
        self.configure("-Aq", QUEUE.format(hosts=" ".join(self.hosts[1:]), cpus=self.cpus, root=self.folder))
        scheduling = self.ask("qconf -ssconf").replace(
            "schedule_interval                 0:0:15", "schedule_interval 0:0:1"
        )
        scheduling = scheduling.replace("flush_submit_sec                  0", "flush_submit_sec 1").replace(
            "flush_finish_sec                  0", "flush_finish_sec 1"
        )
        self.configure("-Msconf", scheduling)
        self.wait(
            lambda: (
                self.ask("qstat -f").count(f"0/0/{self.cpus}") == len(self.hosts) - 1
                and " au" not in self.ask("qstat -f")
            ),
            "hosts",
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing: what runs dies with its node."""

    def configure(self, option: str, text: str) -> None:
        """Give a description to ``qconf``."""
        path = self.folder / "given"
        path.write_text(text)
        self.run(f"qconf {option} {path}")

    def mount(self, host: str) -> None:
        """Put what is unpacked where the programs look for their libraries, at this host alone."""
        self.run(f"mount -t overlay overlay -o lowerdir={UNPACKED.resolve()}/usr/lib:/usr/lib /usr/lib", host)

    def start(self, host: str) -> None:
        """Start a host's daemon, on a node that was switched on."""
        self.mount(host)
        self.run("sge_execd", host)

    def command(self, words: str, host: str = "", folder: str = "/") -> list[str]:
        """The command that runs a line of shell at a host; at the master's by default."""
        variables = " ".join(f"{name}={value}" for name, value in self.environ.items())
        return self.nodes.command(host or self.hosts[0], f"cd {folder}; export {variables}; {words}")

    def run(self, words: str, host: str = "") -> str:
        """What a line of shell says that ends well."""
        done = subprocess.run(
            self.command(words, host), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr, self.messages())
        return done.stdout

    def ask(self, words: str, folder: str = "/") -> str:
        """What a line of shell says, whatever becomes of it."""
        done = subprocess.run(
            self.command(words, "", folder), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )
        return done.stdout + done.stderr

    def messages(self) -> str:
        """What the daemons have to say."""
        paths = [*self.folder.glob("spool/messages"), *self.folder.glob("execd/*/messages")]
        return "\n".join(f"{path}:\n{path.read_text(errors='replace')[-3000:]}" for path in paths)

    def wait(self, condition, what: str, seconds: float = 300.0) -> None:  # type: ignore[no-untyped-def]
        """Wait for a condition, at most so long."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"no {what}: {self.ask('qstat -f')}\n{self.messages()}"
            time.sleep(0.1)
