"""Results that are sound alone and do not fit together: named, and computed again by the same command."""

from __future__ import annotations

import harness
import pytest
from crash_site import Site

from millrace import _core

#: Writes a header, which is another one in batches with a record that $ODD names. If $WAITS, the first batch waits.
TOOL = """#!/bin/sh
echo "$$" >> "$LOG"
[ -z "$WAITS" ] || ! grep -q '>record0$' "$1" || until [ -e "$LOG.go" ]; do sleep 0.05; done
head='# made by tool'
[ -z "$ODD" ] || ! grep -Eq "$ODD" "$1" || head=$WORDS
{ [ -z "$head" ] || echo "$head"; [ -e nothing ] || sed 's/^>/>seen /' "$1"; } > "$2"
"""


@pytest.fixture
def framed(site: Site) -> Site:
    (site.folder / "tool").write_text(TOOL)
    site.options = (*site.options, "--verify", "0", "--join", "header:^#")
    return site


def all_done(site: Site, n_batches: int, **environ: str) -> tuple[int, str]:
    """Run it; the first batch, before which nothing is written, ends when the others that are computed are in the journal."""
    journal = site.folder / "out.fa.millrace" / "journal.mrj"

    def n_results() -> int:
        return len(_core.scan(journal, False).tasks) if journal.exists() and journal.stat().st_size else 0

    n_before = n_results()
    process = site.start(WAITS="yes", **environ)
    assert harness.wait_until(lambda: n_results() >= n_before + n_batches - 1, process)
    site.release()
    said = process.communicate()[1]
    site.log.with_name(f"{site.log.name}.go").unlink()
    return process.returncode, said


@pytest.mark.parametrize(
    ("odd", "n_odd"), [("record0$", 1), ("record22$", 1), ("record1?[0-9]$", 5), ("record(0|39)$", 2)]
)
def test_batches_that_do_not_fit_are_computed_again(framed: Site, odd: str, n_odd: int) -> None:
    """The same command does so, once the cause is gone."""
    n_again = n_odd if n_odd < 5 else 10  # no more than what was odd; all, where half were
    for n_batches in (10, n_again):  # as long as the cause is there
        code, said = all_done(framed, n_batches, ODD=odd, WORDS="# warning: slow disk")
        assert code == 5 and "out.fa: records " in said and "differs between batches" in said, said
        assert "'# warning: slow disk'" in said and "the same command computes again what does not fit" in said
    executions = framed.executions
    code, said = framed.run()
    assert code == 0 and "did not fit the others" in said, said
    assert framed.executions - executions == n_again
    assert framed.output.read_bytes() == b"# made by tool\n" + framed.expected


def test_kept_journal_yields_the_fitting_results(framed: Site) -> None:
    assert framed.run(ODD="record0$", WORDS="# other")[0] == 5
    framed.options = (*framed.options, "--keep-run-dir")
    assert framed.run()[0] == 0
    framed.output.unlink()
    code, said = framed.run()  # from the journal
    assert code == 0, said
    assert framed.output.read_bytes() == b"# made by tool\n" + framed.expected
