"""What a job file with phases may say, and what is refused."""

from __future__ import annotations

import tomllib

import pytest

from millrace.core.errors import RefusedError
from millrace.extensions.workflow.workflow_description import WorkflowDescription, parse_workflow


def described(text: str) -> WorkflowDescription:
    return parse_workflow(tomllib.loads(text), "job.toml")


def test_options_for_all_hold_for_each() -> None:
    flow = described('nice = 5\n[phase.a]\ncommand = "cat"\nnice = 7\n[phase.b]\ncommand = "cat"\nafter = "a"')
    assert [phase.job.nice for phase in flow.phases] == [7, 5]
    assert flow.get_phase("b").after == ("a",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[phase.a]\ncomand = "cat"', "job.toml: phase a: unknown key 'comand'"),
        ("[phase.a]\nslots = 2", "unknown key 'slots'"),
        ("[phase.a]\nretries = 2", "phase a: nothing to run"),
        ('[phase.a]\ncommand = "cat"\nfilter = "cat"', "command and filter"),
        ('[phase.a]\ncommand = "cat"\nafter = "b"', "after: unknown key 'b'"),
        ('[phase.a]\ncommand = "cat"\nafter = "b"\n[phase.b]\ncommand = "cat"', "which comes later in the file"),
        ('[phase.a]\nfilter = "cat"\ninput = "x"', "reads one input and writes one output"),
        ('[phase.a]\nfilter = "cat"\ninput = "x"\noutput = "y/"', "a filter writes one file"),
        ('[phase.a]\npython = "f.py"\ninput = "x"\noutput = "y"', "names no function"),
        ('[phase.a]\nfilter = "cat"\ninput = "x"\noutput = "y"\nbatch = "9"', "batch belongs to a command"),
        ('[phase.a]\ncommand = "cat"\noptions = { x = 1 }', "arguments of a Python function"),
        ('[phase."a/b"]\ncommand = "cat"', "not a name"),
        ('[phase.done]\ncommand = "cat"', "beside lock, workflow, done and *.json"),
        ('[phase."a.out"]\ncommand = "cat"', "not a name"),
        ('input = "x"\n[phase.a]\ncommand = "cat"', "input: belongs to one phase"),
        ('command = "cat"\n[phase.a]\ncommand = "cat"', "a command beside phases"),
        ("phase = 3", "expected tables"),
    ],
)
def test_invalid_description_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(RefusedError) as caught:
        described(text)
    assert words in str(caught.value)
    assert caught.value.hint
