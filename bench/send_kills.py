"""Kill sender, receiver and link of ``millrace send``, or a run that packs, at moments by chance: each goes on, and the result is the same."""

from __future__ import annotations

import argparse
import filecmp
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from bench import pack
from millrace.core.wait_loop import wait_until
from millrace.extensions.pack.pack_receiver import ReceivingFolder
from millrace.host import file_lock, lock_owner

#: Longest wait for an event, in seconds.
LONG = 600

VICTIMS = ("sender", "receiver", "link")
COMMAND = "blastp -query q.faa -db prot -outfmt 6 -max_target_seqs 5 -out hits"


def main(arguments: list[str]) -> int:
    """Kill so often, and say how it went; 1 if a result is another one."""
    parser = argparse.ArgumentParser(prog="python -m bench send-kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--part", type=int, default=60, help="so many queries")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packing", action="store_true", help="kill runs with --pack-to instead")
    options = parser.parse_args(arguments)
    if options.packing:
        return kill_packing_runs(options.kills, options.part, random.Random(options.seed))
    chance, killed, sent = random.Random(options.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        ends = _Ends(Path(name), options.part)
        usual = ends.undisturbed()
        while killed.total() < options.kills:
            if not ends.send(chance, usual, killed, options.kills):
                print(f"another result after {dict(killed)}")
                return 1
            sent += 1
            print(f"{sent} results, all the same; killed: {dict(killed)}", flush=True)
    return 0


def kill_packing_runs(kills: int, part: int, chance: random.Random) -> int:
    """Kill runs with ``--pack-to``, each so often until it is done, and unpack what they have packed; 1 if a result is another one."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        folder, killed, packed = Path(name), 0, 0
        pack.prepare(folder, part)
        subprocess.run(COMMAND.split(), cwd=folder, check=True)
        run = [pack.MILLRACE, "run", "--pack-to", "hits.mrp", "--with-queries", "--batch", "3", "--", *COMMAND.split()]
        unpack = [pack.MILLRACE, "unpack", "hits.mrp", "--yes", "-o", "again"]
        begun = time.monotonic()
        with (folder / "log").open("ab") as log:
            subprocess.run(run, cwd=folder, check=True, stderr=log)
            usual = time.monotonic() - begun
            while killed < kills:
                (folder / "hits.mrp").unlink(missing_ok=True)
                status: int | None = None
                while status != 0:
                    process = subprocess.Popen(run, cwd=folder, stderr=log, start_new_session=True)
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(chance.uniform(0, usual) if killed < kills else LONG)
                    if process.poll() is None:
                        killed += 1
                        # The process alone, or all of it at once.
                        (os.kill if chance.random() < 0.5 else os.killpg)(process.pid, signal.SIGKILL)
                    status = process.wait(LONG)
                packed += 1
                subprocess.run(unpack, cwd=folder, check=True, stderr=log)
                left = [path.name for path in folder.glob("*hits.mrp*") if path.name != "hits.mrp"]
                if left or not filecmp.cmp(folder / "again", folder / "hits", shallow=False):
                    print(f"another result, or left over: {left}, after {killed} kills")
                    return 1
                print(f"{packed} packs, all with the same result; {killed} kills", flush=True)
    return 0


#: In the place of ssh: whoever kills it cuts the link.
LINK = """#!{0}
import os, subprocess, sys, threading
there = subprocess.Popen(["sh", "-c", sys.argv[4]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
def copy(source, dest):
    try:
        while data := os.read(source, 65536):
            while data:
                data = data[os.write(dest, data):]
    except OSError:
        pass
    os.close(dest)
threading.Thread(target=copy, args=(0, there.stdin.fileno()), daemon=True).start()
copy(there.stdout.fileno(), 1)
os._exit(there.wait())
"""


class _Ends:
    """A pack, and a folder to which it is sent."""

    def __init__(self, folder: Path, part: int) -> None:
        self._folder = folder
        pack.prepare(folder, part)
        subprocess.run(COMMAND.split(), cwd=folder, check=True)
        made = [pack.MILLRACE, "pack", "--with-queries", "--batch", "3", "-o", "hits.mrp", "--", *COMMAND.split()]
        subprocess.run(made, cwd=folder, check=True)
        link = folder / "link"
        link.write_text(LINK.format(sys.executable))
        link.chmod(0o755)
        there = folder / "there"
        there.mkdir()
        self._result, self._place = there / "hits", ReceivingFolder(there / "hits")
        self._send = [
            pack.MILLRACE, "send", "hits.mrp", f"there:{self._result}", "--ssh", str(link), "--millrace", pack.MILLRACE,
            "--db", str(folder / "prot"),
        ]  # fmt: skip
        self._log = folder / "log"

    def undisturbed(self) -> float:
        """Seconds of a send that nobody kills."""
        begun = time.monotonic()
        with self._log.open("ab") as log:
            subprocess.run(self._send, cwd=self._folder, check=True, stderr=log)
        return time.monotonic() - begun

    def send(self, chance: random.Random, usual: float, killed: Counter[str], most: int) -> bool:
        """Send one result, with kills until ``most`` or until it is there; whether it is the same."""
        self._result.unlink()
        while True:
            with self._log.open("ab") as log:
                sender = subprocess.Popen(self._send, cwd=self._folder, stderr=log)
            with sender:
                with suppress(subprocess.TimeoutExpired):
                    sender.wait(chance.uniform(0, usual))
                if killed.total() < most and sender.poll() is None:
                    victim = chance.choice(VICTIMS)
                    if (pid := self._pid(victim, sender)) and sender.poll() is None:
                        os.kill(pid, signal.SIGKILL)
                        killed[victim] += 1
                status = sender.wait(LONG)
            if not wait_until(lambda: not file_lock.is_held(self._place.lock), LONG, nap=0.05):
                sys.exit(f"a receiver does not end: {lock_owner.read_owner(self._place.lock)}")
            if status == 0:
                return (
                    filecmp.cmp(self._result, self._folder / "hits", shallow=False) and not self._place.folder.exists()
                )
            if self._result.exists() and not filecmp.cmp(self._result, self._folder / "hits", shallow=False):
                return False

    def _pid(self, victim: str, sender: subprocess.Popen[bytes]) -> int:
        """The process to kill; 0: it is not there."""
        if victim == "sender":
            return sender.pid
        if victim == "link":
            found = Path(f"/proc/{sender.pid}/task/{sender.pid}/children").read_text().split()
            return int(found[0]) if found else 0
        owner = lock_owner.read_owner(self._place.lock)
        return owner.pid if owner and owner.is_alive_here() else 0
