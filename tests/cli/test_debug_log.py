"""The debug log: what came, what was decided and why; nothing private, and nothing at all when it is off."""

from __future__ import annotations

import os
import re

from shell import Shell

RUN = "millrace run --slots 1 --batch 3 --verify 0 --format fasta"

#: How each line begins.
BEGIN = re.compile(
    rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{{3}} {re.escape(os.uname().nodename)} - pid \d+ millrace\.(\w+): "
)


def test_log_has_the_reason_of_a_quarantined_record(shell: Shell) -> None:
    ended = shell.run(f"MILLRACE_LOG=log {RUN} -- bad2 < in.fa > o")
    assert ended.code == 3 and "millrace.decision" not in ended.err, ended.shown
    lines = (shell.work / "log").read_text().splitlines()
    found = [(match[1], line[match.end() :]) for line in lines if (match := BEGIN.match(line))]
    assert len(found) == len(lines)
    told = [text for part, text in found if part == "slots"]
    assert any(text.startswith("submit_task(") and "first=0, last=3" in text for text in told)
    assert any(text.startswith("TaskEnded(") and "exit_status=7" in text for text in told)
    decided = [text for part, text in found if part == "decision"]
    assert any("TaskFailed(" in text and "FAILED" in text and "-> [ReportRetry(" in text for text in decided)
    assert any("TaskFailed(" in text and "FAILED" in text and "-> [SplitBatch(" in text for text in decided)
    assert any("TaskFailed(" in text and "FAILED" in text and "-> [QuarantineBatch(" in text for text in decided)
    assert any(part == "event" and "QuarantineEvent(" in text and "cannot do r2" in text for part, text in found)
    assert any(part == "plan" and text.startswith("slots: 1, as asked") for part, text in found)
    # The same on standard error, and what is in records or the environment nowhere.
    said = shell.run(f"SECRET=hush {RUN} --fresh -vv -- bad2 < in.fa > p").err
    assert "millrace.decision: TaskFailed(" in said
    assert not re.search("MKV|MAA|hush", said + "\n".join(lines))


def test_unwritable_log_is_refused(shell: Shell) -> None:
    """A log that is off does not import logging."""
    ended = shell.run(f"MILLRACE_LOG=no/log {RUN} -- copy < in.fa")
    assert ended.code == 2 and "MILLRACE_LOG: no/log: No such file or directory" in ended.err, ended.shown
    ended = shell.run(f"PYTHONPROFILEIMPORTTIME=1 {RUN} -- copy < in.fa")
    assert (
        ended.code == 0
        and "millrace.host.debug_log" in ended.err
        and not re.search(r"\| +logging$", ended.err, re.MULTILINE)
    )
