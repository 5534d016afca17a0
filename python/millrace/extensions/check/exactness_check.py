"""The rounds of a check: twice serially, then by Millrace in awkward batches, with the records reversed, and killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from millrace.adapters.description_lookup import copy_confirmations
from millrace.core.errors import MillraceError
from millrace.core.tool_use import ToolUse
from millrace.extensions.check.check_folder import (
    MAX_RECORDS,
    is_file_path,
    link_user_folder,
    refuse_uncheckable,
    run_process,
    write_first_records,
    write_reversed_records,
)
from millrace.host.python_launch import make_python_command

#: Sizes of batches, as arguments of ``--batch``: one record, few records of awkward number, and the choice of Millrace.
BATCHES = ("1", "2", "3", "7", "auto")

#: Name of the output that a command writes to standard output.
STDOUT = "standard output"


class RoundResult(NamedTuple):
    """The result of one round."""

    round: str
    #: The first difference, for the user; empty: all bytes are equal.
    difference: str


Bytes = dict[str, bytes]


def find_first_difference(serial: Bytes, parallel: Bytes) -> str:
    """Describe the first difference between outputs, for the user; empty: all are equal.

    >>> find_first_difference({"out": b"a\\nb\\n"}, {"out": b"a\\nc\\n"})
    "out: line 2 is 'c', and serially 'b'"
    >>> find_first_difference({"out": b"a\\n"}, {"out": b"a\\nc\\n"})
    'out: has 1 line more than serially'
    """
    for name, wanted in serial.items():
        if (found := parallel.get(name)) is None:
            return f"{name}: is not written"
        if found == wanted:
            continue
        before, after = wanted.splitlines(), found.splitlines()
        if sorted(before) == sorted(after) and before != after:
            return f"{name}: has the same lines in another order"
        for number, (was, now) in enumerate(zip(before, after, strict=False), start=1):
            if was != now:
                return f"{name}: line {number} is {_quote_line(now)}, and serially {_quote_line(was)}"
        n = abs(len(after) - len(before))
        how = "more" if len(after) > len(before) else "fewer"
        return f"{name}: has {n} line{'s' if n > 1 else ''} {how} than serially" if n else f"{name}: ends otherwise"
    return ""


def _quote_line(line: bytes) -> str:
    text = line.decode(errors="replace")
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


class ExactnessCheck:
    """The check of one command on one sample.

    Args:
        command: The serial command.
        use: Its inputs and outputs.
        cwd: The user's working folder, in which nothing is written.
        folder: An empty folder for the check.
        stdin: A file for the command's standard input.
        options: Further options of ``millrace run``.
        patterns: Regular expressions of the first and last line of a record, or empty.

    Raises:
        RefusedError: It would write outside ``folder``, or there is nothing to compare.
    """

    def __init__(
        self, command: Sequence[str], use: ToolUse, cwd: Path, folder: Path, stdin: Path | None, options: Sequence[str],
        patterns: tuple[str, str],
    ) -> None:  # fmt: skip
        refuse_uncheckable(use)
        self.command, self.use, self.cwd, self.folder = list(command), use, cwd, folder
        self.options, self._patterns = list(options), patterns
        self._inputs = [item for item in use.inputs if item.path == "-" or is_file_path(item.path)]
        self._n_places = 0
        #: The file from which each input is read, by the path in the command.
        self._samples = {item.path: stdin if item.path == "-" and stdin else cwd / item.path for item in self._inputs}
        self.shortened = tuple(self._shorten_inputs())

    def _shorten_inputs(self) -> Iterator[str]:
        """Replace large inputs by their first records; yield a sentence for each."""
        for number, item in enumerate(self._inputs):
            cut = self.folder / f"sample-{number}"
            if write_first_records(self._samples[item.path], item.format, self._patterns, cut):
                self._samples[item.path] = cut
                yield f"of {'standard input' if item.path == '-' else item.path}: the first {MAX_RECORDS} records"

    def run_rounds(self) -> Iterator[RoundResult]:
        """Run all rounds in turn; yield the result of each as soon as it has ended.

        Raises:
            MillraceError: The serial command itself fails.
        """
        serial = self._run_serial(self._make_round_folder())
        again = find_first_difference(serial, self._run_serial(self._make_round_folder()))
        yield RoundResult("serially, twice", again)
        if again:
            return  # outputs that change by themselves cannot be compared
        for size in BATCHES:
            name = f"batches of {size}" if size != "auto" else "batches as Millrace chooses them"
            yield RoundResult(name, self._compare_run(serial, self._make_round_folder(), ["--batch", size]))
        if self._inputs:
            straight, self._samples = self._samples, self._reverse_samples()
            turned = self._run_serial(self._make_round_folder())
            yield RoundResult(
                "records the other way round", self._compare_run(turned, self._make_round_folder(), ["--batch", "2"])
            )
            self._samples = straight
        yield RoundResult("killed and resumed", self._kill_and_resume(serial))

    def _compare_run(self, serial: Bytes, place: Path, options: Sequence[str]) -> str:
        code, said = self._run_millrace(place, options)
        if code:
            words = said.strip().removeprefix("millrace: ").partition("\n\n")[0]
            return f"the run ended with exit code {code}: {words}"
        return find_first_difference(serial, self._read_outputs(place))

    def _kill_and_resume(self, serial: Bytes) -> str:
        place = self._make_round_folder()
        arguments = self._build_arguments(["--batch", "1", "--sync", "0", "--progress", "json"])
        with self._start_process(arguments, place, tidy=True) as process:
            assert process.stderr is not None  # a pipe was asked for
            process.stderr.readline()  # it has begun
            process.send_signal(signal.SIGKILL)
        return self._compare_run(serial, place, ["--batch", "1"])

    def _make_round_folder(self) -> Path:
        """Make a folder with links to the files of the user's folder, with the samples and without the outputs."""
        self._n_places += 1
        place = self.folder / str(self._n_places)
        place.mkdir()
        outputs = {os.path.normpath(output.path) for output in self.use.outputs if is_file_path(output.path)}
        link_user_folder(
            self.cwd, place / "work", outputs, {os.path.normpath(path) for path in self._samples if path != "-"}
        )
        for path, sample in self._samples.items():
            shown = place / ".stdin" if path == "-" else place / "work" / path
            shown.unlink(missing_ok=True)
            shutil.copyfile(sample, shown)
        for item in self._inputs:  # indexes of all records, older than the sample
            for ending in item.hide:
                (place / "work" / f"{item.path}{ending}").unlink(missing_ok=True)
        return place

    def _reverse_samples(self) -> dict[str, Path]:
        """Write the samples with their records in reverse order."""
        found = {}
        for number, item in enumerate(self._inputs):
            found[item.path] = self.folder / f"turned-{number}"
            write_reversed_records(self._samples[item.path], item.format, self._patterns, found[item.path])
        return found

    def _run_serial(self, place: Path) -> Bytes:
        with self._start_process(self.command, place, tidy=False) as process:
            _, said = process.communicate()
        if process.returncode and process.returncode not in self.use.ok_statuses:
            last = said.decode(errors="replace").strip().splitlines()[-1:]
            raise MillraceError(
                f"the serial command ends with exit status {process.returncode}: {''.join(last)}",
                "mend it, or the sample; a status that means no failure is named with --ok-status",
            )
        return self._read_outputs(place)

    def _run_millrace(self, place: Path, options: Sequence[str]) -> tuple[int, str]:
        with self._start_process(self._build_arguments([*options, "-q"]), place, tidy=True) as process:
            _, said = process.communicate()
        return process.returncode, said.decode(errors="replace")

    @contextmanager
    def _start_process(self, command: Sequence[str], place: Path, *, tidy: bool) -> Iterator[subprocess.Popen[bytes]]:
        """Start a process in ``place``; see ``millrace.extensions.check.check_folder.run_process``."""
        environ = dict(os.environ)
        if tidy:  # ``millrace runs`` should not list the runs of a check
            environ["XDG_STATE_HOME"] = str(place / ".state")
            copy_confirmations(os.environ, environ)
        with (
            (place / ".stdout").open("wb") as out,
            self._open_input(place) as source,
            run_process(command, place / "work", environ, source, out, tidy=tidy) as process,
        ):
            yield process

    def _build_arguments(self, options: Sequence[str]) -> list[str]:
        ours = ["--no-store", "--slots", "2", "--verify", "0", "--retries", "0", *self.options, *options]
        return make_python_command("-m", "millrace", "run", *ours, "--", *self.command)

    def _open_input(self, place: Path) -> BinaryIO:
        return (place / ".stdin" if "-" in self._samples else Path(os.devnull)).open("rb")

    def _read_outputs(self, place: Path) -> Bytes:
        """Return the outputs without the volatile text of the adapter (dates, times) and the path of the folder."""
        found: Bytes = {STDOUT: (place / ".stdout").read_bytes()}
        for output in self.use.outputs:
            name = STDOUT if output.path == "-" else output.path
            path = place / "work" / output.path
            if name != STDOUT and output.layout == "file" and path.is_file():
                found[name] = path.read_bytes()
            if name in found:
                found[name] = found[name].replace(os.fsencode(place / "work"), os.fsencode(self.cwd))
                for pattern in output.volatile:
                    found[name] = re.sub(pattern.encode(), b"", found[name], flags=re.MULTILINE)
        return found
