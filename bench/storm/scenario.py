"""What happens in a scenario, drawn from a seed. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

from bench.storm import tools

#: How inputs and outputs stand in the command.
LAYOUTS = ("file", "stdout", "two outputs", "header", "stdin", "folder")

#: Signals with the processes that get them; ``hung`` is not drawn.
SIGNALS = ("KILL", "KILL", "KILL", "TERM", "INT", "QUIT", "HUP", "USR1", "ABRT")
TARGETS = ("millrace", "millrace", "millrace", "group", "watchdog", "tool", "tool", "helpers")

INPUTS = ("input cut", "input goes on", "input replaced", "input touched", "input removed")
DATABASES = ("database replaced", "database written over", "database there and back")
PROGRAMS = ("tool replaced",)
OUTPUTS = ("output removed", "output moved", "output cut", "output written over", "output goes on", "output a folder")
RUN_DIRS = (
    "job.json spoilt", "journal spoilt", "journal cut", "journal goes on", "events spoilt", "events a folder", "lock removed",
    "lock a folder", "complete.json made", "quarantine a file", "run directory removed", "run directory moved",
)  # fmt: skip
OTHERS = ("another start", "another start", "work area full", "disk full", "millrace frozen", "tool frozen")
PARTIES = (INPUTS, DATABASES, PROGRAMS, OUTPUTS, OUTPUTS, RUN_DIRS, OTHERS, OTHERS)


@dataclass(frozen=True)
class Moment:
    """When something is done: so many seconds after the start, or after something can be seen."""

    after: str
    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s after {self.after}"


@dataclass(frozen=True)
class Deed:
    """What is done, to what, and when."""

    what: str
    moment: Moment
    #: Of a kill.
    signal: str = ""
    #: A number that decides the rest, such as which byte.
    dice: int = 0

    def __str__(self) -> str:
        return f"{self.signal and f'SIG{self.signal} to '}{self.what}, {self.moment}"


@dataclass(frozen=True)
class Scenario:
    """All that is decided beforehand."""

    seed: int
    tool: str
    layout: str
    options: tuple[str, ...]
    n_records: int
    #: Seconds that each task sleeps.
    sleep: float
    #: Whether the work directory lies in a small area of the scenario's own.
    own_area: bool
    #: What is done during each of the first starts.
    starts: tuple[tuple[Deed, ...], ...]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.tool}, {self.layout}, {' '.join(self.options)}, {self.n_records} records"]
        lines += (f"  start {k + 1}: {'; '.join(map(str, deeds)) or 'nothing'}" for k, deeds in enumerate(self.starts))
        return "\n".join(lines)


def draw(seed: int) -> Scenario:
    """The scenario of a seed.

    >>> draw(7) == draw(7)
    True
    """
    dice = random.Random(seed)
    tool = dice.choice([*tools.BODIES])
    layout = dice.choice(LAYOUTS if tool in tools.ANYWHERE else ("file", "two outputs", "header"))
    options = ["--slots", str(dice.choice((1, 2, 2, 3))), "--batch", str(dice.choice((1, 2, 3, 7)))]
    if layout == "folder":
        options[3:] = ["1", "--verify", "0"]  # a tool of one file at a time
    options += dice.choice(([], [], ["--verify", "0"], ["--sync", "0.05"], ["--sync", "60"], ["--keep-run-dir"]))
    own_area = dice.random() < 0.8
    starts = tuple(tuple(sorted(_deeds(dice, own_area), key=str)) for _ in range(dice.choice((1, 1, 2, 2, 3))))
    if tool == "deaf to errors" and own_area and dice.random() < 0.7:
        starts = ((Deed("work area full", Moment("the start", dice.uniform(0.3, 1.5)), dice=1),), *starts[1:])
    return Scenario(
        seed, tool, layout, tuple(options), dice.choice((20, 30, 40)), dice.choice((0.01, 0.03, 0.06)), own_area, starts
    )


def _deeds(dice: random.Random, own_area: bool) -> list[Deed]:
    kinds = dice.choice(("kill", "party", "both", "both", "two parties"))
    found = []
    if kinds in ("party", "both", "two parties"):
        found.append(_party(dice, own_area))
    if kinds == "two parties":
        found.append(_party(dice, own_area))
    if kinds in ("kill", "both"):
        target = dice.choice([target for target in TARGETS if own_area or target not in ("watchdog", "helpers")])
        signal = "KILL" if target in ("watchdog", "helpers") else dice.choice(SIGNALS)
        found.append(Deed(target, _moment(dice), signal, dice.randrange(1 << 30)))
    return found


def _party(dice: random.Random, own_area: bool) -> Deed:
    what = dice.choice(dice.choice(PARTIES))
    if what == "work area full" and not own_area:
        what = "disk full"
    return Deed(what, _moment(dice), dice=dice.randrange(1 << 30))


def _moment(dice: random.Random) -> Moment:
    after = dice.choice(("the start", "the start", "the start", "the first result", "the last result", "the end"))
    longest = {
        "the start": dice.choice((0.5, 1.0, 2.0)),
        "the first result": 0.5,
        "the last result": 0.1,
        "the end": 0.02,
    }
    return Moment(after, dice.uniform(0, longest[after]))
