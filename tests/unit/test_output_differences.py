"""What a difference is taken for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.scheduler.output_differences import explain_difference, find_first_difference, format_line

CASES = [
    ([b"id,n\n1,2\n", b"id,n\n3,4\n"], [b"id,n\n1,2\n3,4\n"], "a header", "--join csv"),
    ([b"#h\n#i\n1\n", b"#h\n#i\n3\n"], [b"#h\n#i\n1\n3\n"], "a header", "--join header:2 "),
    ([b"#h,i\n#i\n1\n", b"#h,i\n#i\n3\n"], [b"#h,i\n#i\n1\n3\n"], "a header", "--join header:2 "),
    ([b"1\nx\nend\n", b"2\nx\nend\n"], [b"1\n2\nx\nend\n"], "a footer", "--join footer:2 "),
    ([b"@SQ\tx\n1\n", b"@SQ\tx\n3\n"], [b"@SQ\tx\n1\n3\n"], "a header", "--join sam"),
    ([b"1\n2\n", b"1\n2\n"], [b"1\n2\n1\n"], "", ""),
    ([b"1\nend\n", b"2\nend\n"], [b"1\n2\nend\n"], "a footer", "--join footer"),
    ([b"<x a='1'>\n1\n</x>\n", b"<x a='1'>\n2\n</x>\n"], [b"<x a='1'>\n1\n2\n</x>\n"], "a header and a footer", "--join xml:x"),
    ([b"a\nb\nn=2\n", b"c\nn=1\n"], [b"a\nb\nc\nn=3\n"], "a total", "without it"),
    ([b"1 a\n2 b\n", b"1 c\n"], [b"1 a\n2 b\n3 c\n"], "numbers that run on", ""),
    ([b"b\nc\n", b"a\n"], [b"a\nb\nc\n"], "sorts, or reorders", ""),
    ([b"a\nb\n", b"b\nc\n"], [b"a\nb\nc\n"], "some results depend on others", ""),
    ([b"a x\n", b"b x\n"], [b"a x\n", b"b y\n"], "learnt from the whole", ""),
    ([b"\x1f\x8ba", b"\x1f\x8bb"], [b"\x1f\x8bc"], "one compressed stream", "compress it afterwards"),
    ([b"", b"b x\n"], [b"b y\n"], "learnt from the whole", ""),
]  # fmt: skip


@pytest.mark.parametrize(("then", "now", "what", "hint"), CASES)
def test_cause_of_a_difference_is_explained(then: list[bytes], now: list[bytes], what: str, hint: str) -> None:
    look = explain_difference(then, now, repeatable=True)
    assert what in look.what and hint in look.hint
    assert "random numbers" in explain_difference(then, now, repeatable=False).what


@given(st.text("ab\n"), st.text("ab\n"))
def test_the_first_line_that_differs(one: str, other: str) -> None:
    if one == other:
        return
    found = find_first_difference(one.encode(), other.encode())
    before, after = one.split("\n"), other.split("\n")
    assert before[: found.line] == after[: found.line]
    assert one[: found.offset] == other[: found.offset]
    assert (found.then, found.now) != (None, None)
    if found.then is not None:
        assert before[found.line] == found.then.decode()


def test_line_is_shown_on_one_line() -> None:
    assert format_line(b"a\tb\x00c") == "a\\tb?c"
    assert len(format_line(b"x" * 1000)) < 120 and format_line(None) == "(nothing)"
