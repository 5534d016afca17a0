"""Results that are sound alone and do not fit together: named, and computed again by the same command."""

from __future__ import annotations

import pytest
from crash_site import Site

#: Writes a header, which is another one in batches with a record that $ODD names.
TOOL = """#!/bin/sh
echo "$$" >> "$LOG"
head='# made by tool'
[ -z "$ODD" ] || ! grep -Eq "$ODD" "$1" || head=$WORDS
{ [ -z "$head" ] || echo "$head"; [ -e nothing ] || sed 's/^>/>seen /' "$1"; } > "$2"
"""


@pytest.fixture
def framed(site: Site) -> Site:
    (site.folder / "tool").write_text(TOOL)
    site.options = (*site.options, "--verify", "0", "--join", "header:^#")
    return site


@pytest.mark.parametrize(
    ("odd", "n_odd"), [("record0$", 1), ("record22$", 1), ("record1?[0-9]$", 5), ("record(0|39)$", 2)]
)
def test_what_does_not_fit_the_rest_is_computed_again_when_the_cause_is_gone(
    framed: Site, odd: str, n_odd: int
) -> None:
    for _ in range(2):  # as long as the cause is there
        code, said = framed.run(ODD=odd, WORDS="# warning: slow disk")
        assert code == 5 and "out.fa: records " in said and "differs between batches" in said, said
        assert "'# warning: slow disk'" in said and "the same command computes again what does not fit" in said
    executions = framed.executions
    code, said = framed.run()
    assert code == 0 and "did not fit the others" in said, said
    assert framed.executions - executions == (n_odd if n_odd < 5 else 10), (
        "no more than what was odd; all, where half were"
    )
    assert framed.output.read_bytes() == b"# made by tool\n" + framed.expected


def test_the_kept_journal_gives_what_fits(framed: Site) -> None:
    assert framed.run(ODD="record0$", WORDS="# other")[0] == 5
    framed.options = (*framed.options, "--keep-run-dir")
    assert framed.run()[0] == 0
    framed.output.unlink()
    code, said = framed.run()  # from the journal
    assert code == 0, said
    assert framed.output.read_bytes() == b"# made by tool\n" + framed.expected
