"""Searches of HMMER whose candidates are kept, so that a later search of other targets need not find them again.

*Exactness.* What HMMER finds for a query in a target depends on these two and on options of the pipeline, and not on other
targets. So a search for candidates that are kept reports every target that passes the filters, whatever its E-value
(``-E 10 -Z 1``): it is complete for all thresholds and any number of targets. ``hmmscan --cut_ga`` and the like keep
their own thresholds, which are the models'.

The counts of the report are sums over all targets, so those of earlier targets and of new ones add up, if no target is gone.

Profiles that are no candidates cost half of a search each, so ``hmmscan`` searches the candidates alone, with the number of
all targets as ``-Z``. Hits that are kept only as few targets were read before, and are not reported, are then not kept.
They count for the widths of columns alone, so where these could depend on them, nothing is kept. ``docs/reuse.md`` has the
argument.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from millrace import _core
from millrace.adapters.adapter_base import CandidateListReader, QueryCandidates, ReusableSearch
from millrace.adapters.hmmer.backend import get_targets
from millrace.adapters.hmmer.command_line import (
    LOOKS,
    PROGRAMS,
    HmmerCommandLine,
    add_dashes,
    add_searched_files,
    read_copied_targets,
)
from millrace.adapters.option_reader import split_words
from millrace.core.entry_ranges import pack_ranges
from millrace.core.tool_use import (
    ArgumentToken,
    DatabaseFragment,
    FragmentPlan,
    HmmerTargets,
    ToolUse,
    UserCommand,
)

#: Options that choose what is reported of the targets that pass the filters.
_THRESHOLDS = frozenset(split_words("E T domE domT incE incT incdomE incdomT Z domZ"))

#: Thresholds of the models: a search with these ends at a model that has none, as the user's command does.
_CUTOFFS = frozenset(split_words("cut_ga cut_nc cut_tc"))

#: Options with which what is found is not a question of query, target and options alone, or nearly all is found.
_REFUSED = {
    "bgfile": "what it has is in another file",
    "mxfile": "what it has is in another file",
    "max": "without filters nearly every target is a candidate",
}

#: Options without any effect on what is found.
_WITHOUT_EFFECT = frozenset(split_words("cpu qformat tformat"))

#: Depth of all searches: they find all that passes the filters.
_DEPTH = 1.0

#: Comparisons of queries with candidates that take about as long as the start of a task.
_BATCH_COMPARISONS = 500

#: Least widths of the columns with the name and the accession of a target, in tables, and with either in the report.
_TABLE_NAME, _TABLE_ACCESSION, _REPORT_NAME = 20, 10, 8


def describe_reusable_search(use: ToolUse, command: UserCommand, parsed: HmmerCommandLine) -> ReusableSearch:
    """Describe by what the candidates of a search are known; see ``ReusingAdapter.describe_reusable_search``."""
    for name, why in _REFUSED.items():
        if parsed.get_value(name) is not None:
            return ReusableSearch(why_not=f"{add_dashes(name)}: {why}")
    about = get_targets(use.fragmented)
    if about.profiles and (why_not := _explain_widths(about, parsed)):
        return ReusableSearch(why_not=why_not)
    words = sorted(
        " ".join([add_dashes(option.name), *option.values]) for option in parsed.options
        if _counts_for_search(option.name, command) and option.name not in _WITHOUT_EFFECT
    )  # fmt: skip
    return ReusableSearch(
        # Vector units of other kinds round otherwise.
        key=json.dumps([command.tool, use.version, platform.machine(), words, {}]),
        needed_depth=_DEPTH,
        needs_counts=about.report is not None,
        batch_comparisons=_BATCH_COMPARISONS,
    )


def plan_reuse(
    use: ToolUse, command: UserCommand, parsed: HmmerCommandLine, new: Sequence[tuple[int, int]] | None
) -> ToolUse:
    """Return ``use`` searched for all that passes the filters; see ``ReusingAdapter.plan_reuse``.

    Where something is known, fragment 1 is the whole database: what is known stands for its search, and other queries are
    searched in all of it, so that nothing but the new targets is copied.
    """
    parts = use.fragmented
    assert parts  # it is searched in fragments
    options = _build_options(command, parsed)
    n_targets = parts.fragments[-1].last
    if new is None:
        fragments = tuple(
            replace(each, argv=add_searched_files(options, command, use, k, each.last - each.first))
            for k, each in enumerate(parts.fragments)
        )
    else:
        size = sum(fragment.size for fragment in parts.fragments)
        argv = add_searched_files(options, command, use, 0, n_targets)
        whole = DatabaseFragment(first=0, last=n_targets, size=size, argv=argv)
        n_new = sum(last - first for first, last in new)
        alone = argv if PROGRAMS[command.tool].scans else read_copied_targets(argv)
        more = replace(whole, argv=alone, size=max(1, size * n_new // n_targets), only=pack_ranges(new))
        fragments = (whole, more) if new else (whole,)
    # Every batch has candidates.
    plan = replace(parts, fragments=fragments, is_for_tail=False, depth=_DEPTH)
    if PROGRAMS[command.tool].scans:
        plan = _search_alone(plan, use, parsed, n_targets)
    return replace(use, fragmented=plan)


def _search_alone(plan: FragmentPlan, use: ToolUse, parsed: HmmerCommandLine, n_targets: int) -> FragmentPlan:
    """Return ``plan`` with a finish that searches the candidates alone, with the number of all targets."""
    about, finish = replace(get_targets(use.fragmented), alone=True), plan.finish
    if parsed.get_value("Z") is None:
        finish = (finish[0], "-Z", str(n_targets), *finish[1:])
        joins = [output.join for output in use.outputs]
        tables = tuple(at for at, join in enumerate(joins) if join.startswith(("hmmer-table", "hmmer-sections")))
        about = replace(about, added=f"-Z {n_targets}", tables=tables)
    return replace(plan, finish=finish, about=about)


def _build_options(command: UserCommand, parsed: HmmerCommandLine) -> list[ArgumentToken]:
    """Build the arguments of a search for candidates that are kept, without files."""
    argv: list[ArgumentToken] = [command.argv[0]]
    for option in parsed.options:
        if _counts_for_search(option.name, command):
            argv += [add_dashes(option.name), *option.values]
    argv.append("--noali")
    if not (PROGRAMS[command.tool].scans and _uses_cutoffs(parsed)):
        argv += ["-E", "10", "-Z", "1"]
    return argv


def _counts_for_search(name: str, command: UserCommand) -> bool:
    return not (name in LOOKS or name in _THRESHOLDS or (name in _CUTOFFS and not PROGRAMS[command.tool].scans))


def _uses_cutoffs(parsed: HmmerCommandLine) -> bool:
    return any(parsed.get_value(name) is not None for name in _CUTOFFS)


def _explain_widths(about: HmmerTargets, parsed: HmmerCommandLine) -> str:
    """Say why the candidates alone, with ``-Z``, may not have the output of all profiles; empty: they have it."""
    if about.report is not None and any(_is_printed_short(parsed.get_value(name)) for name in ("F1", "F2", "F3")):
        return "the report shows a filter's threshold with fewer digits than it has"
    if _uses_cutoffs(parsed) or parsed.get_value("T") is not None or parsed.get_value("Z") is not None:
        return ""  # all hits that are kept are reported
    most = (_TABLE_NAME if about.report is None else _REPORT_NAME), _TABLE_ACCESSION
    if about.report is not None and parsed.get_value("acc") is not None:
        most = _REPORT_NAME, _REPORT_NAME
    if all(width <= limit for width, limit in zip(_core.profile_widths(about.source), most, strict=True)):
        return ""
    return (
        f"a model has a name of more than {most[0]} letters, or an accession of more than {most[1]}, which may widen columns"
        " without being reported, as thresholds are E-values; with -T, --cut_ga or -Z candidates are kept"
    )


def _is_printed_short(value: str | None) -> bool:
    """Tell whether HMMER prints a threshold with fewer digits than it has, as its report shows what it lets expect."""
    return value is not None and float(f"{float(value):.6g}") != float(value)


def format_candidates(queries: Sequence[QueryCandidates]) -> bytes:
    """Format what is known of a batch, as ``crates/millrace-core/src/database/report.rs`` reads it.

    >>> format_candidates([QueryCandidates([2, 7], (9, 90, 4, 3, 2, 1)), QueryCandidates([])])
    b'# known targets\\n9 90 4 3 2 1: 2 7\\n-:\\n[ok]\\n'
    """
    lines = "".join(
        f"{' '.join(map(str, each.counts)) or '-'}:{''.join(f' {ordinal}' for ordinal in each.entries)}\n"
        for each in queries
    )
    return f"# known targets\n{lines}[ok]\n".encode()


def make_list_reader(fragmented: FragmentPlan) -> CandidateListReader:
    """Return the reader of what a run has found; see ``ReusingAdapter.make_list_reader``."""
    about = get_targets(fragmented)
    return partial(_read_lists, fragmented, _core.TargetNames(about.source, pressed=about.profiles))


def _read_lists(
    fragmented: FragmentPlan, names: _core.TargetNames, found: Sequence[bytes]
) -> list[QueryCandidates | None]:
    lists = [names.find_queries(text) for text in found]
    if len({len(each) for each in lists}) != 1:
        return []
    return [_combine_lists(fragmented, parts) for parts in zip(*lists, strict=True)]


def _combine_lists(
    fragmented: FragmentPlan, found: Sequence[tuple[list[int] | None, list[int]]]
) -> QueryCandidates | None:
    """Return the candidates of one query, from the lists of all fragments; None: a name is not certain."""
    entries = set[int]()
    for ordinals, _ in found:
        if ordinals is None:
            return None
        entries.update(ordinals)
    return QueryCandidates(sorted(entries), *_add_counts(fragmented, [tuple(counts) for _, counts in found]))


def _add_counts(fragmented: FragmentPlan, found: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the counts of all targets, and those of the old ones if they were searched; empty: not known."""
    parts = [counts for fragment, counts in zip(fragmented.fragments, found, strict=True) if not fragment.only]
    if not all(found):
        return (), ()
    sums, new = tuple(map(sum, zip(*parts, strict=True))), found[len(parts) :]
    old = tuple(count - sum(each[at] for each in new) for at, count in enumerate(sums))
    if sums[0] == fragmented.fragments[-1].last:
        return sums, old
    # What is known is that of the old targets alone.
    return tuple(map(sum, zip(*found, strict=True))), ()
