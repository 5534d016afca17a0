"""Planning of a search in fragments, where the user asks for it or it pays."""

from __future__ import annotations

import msgspec

from millrace.errors import RefusedError
from millrace.job import JobSpec
from millrace.model import ArgumentToken, ToolUse, UserCommand
from millrace.plan import fragments, memory
from millrace.plan.programs import find_program
from millrace.plan.queries import QueryEstimate
from millrace.tools.base import DatabaseFacts, FragmentingAdapter, ToolAdapter

#: Note for a file in HDFS that nodes cannot fetch in pieces.
_PASSED_ON = "; the file in HDFS is fetched as a whole and passed on from node to node"


def should_sample_queries(job: JobSpec, use: ToolUse, adapter: ToolAdapter) -> bool:
    """Tell whether the plan needs query sizes: for the number of fragments, or for batches of measured size."""
    if not use.inputs:
        return False
    fragments_open = isinstance(adapter, FragmentingAdapter) and job.fragment_size == (0, 0)
    return fragments_open or (job.batch_size == (0, 0) and use.cost.max_records != 1)


def plan_fragments(
    job: JobSpec, use: ToolUse, command: UserCommand, adapter: ToolAdapter, slots: int, queries: QueryEstimate | None
) -> tuple[ToolUse, str]:
    """Plan the search of the database in fragments where asked for or faster; return the use and the reason.

    Raises:
        RefusedError: The user asks for fragments where the result would not be exact.
    """
    asked = job.fragment_size
    wanted = asked[0] > 1 or asked[1] > 0
    if not isinstance(adapter, FragmentingAdapter):
        if wanted:
            raise RefusedError(
                f"--fragments {job.fragments}: {command.argv[0]} has no database that is known to be exact in fragments",
                "leave --fragments out",
            )
        return use, ""
    if asked == (1, 0):
        return use, "fragments: 1, as asked"
    database = adapter.examine_database(use, command)
    if command.view and command.view.later:
        return _fragment_by_volumes(use, command, adapter, database)
    if command.view and command.view.in_pieces:
        return _fragment_by_blocks(job, use, command, adapter, database, slots, queries)
    known = (queries, slots, memory.read_usable_memory()[0], use.cost, job.batch_size[0], _find_pass_residues(use))
    decision = None if database.why_not else fragments.decide_by_queries(asked, database, *known)
    if decision is None and database.count:
        database = database.count()
    if database.why_not:
        if wanted:
            raise RefusedError(f"--fragments {job.fragments}: {database.why_not}", "leave --fragments out")
        return use, f"fragments: 1; {database.why_not}"
    decision = decision or fragments.decide_fragments(asked, database, *known)
    if decision.n == 1:
        return use, f"fragments: 1; {decision.why}"
    use = resolve_fragment_programs(adapter.plan_fragments(use, command, decision.sizes), command)
    n = len(use.fragmented.fragments) if use.fragmented else 1
    return use, f"fragments: {n}; {decision.why}"


def _find_pass_residues(use: ToolUse) -> int:
    return use.inputs[0].pass_residues if use.inputs else 0


def _fragment_by_volumes(
    use: ToolUse, command: UserCommand, adapter: FragmentingAdapter, database: DatabaseFacts
) -> tuple[ToolUse, str]:
    """Plan one search for each volume of a database in HDFS, each at the node that reads it best."""
    if database.why_not:
        return use, f"fragments: 1; {database.why_not}"
    use = resolve_fragment_programs(adapter.plan_fragments(use, command, ()), command)
    return (
        use,
        f"fragments: {use.n_fragments}; the volumes in HDFS, each searched by a node that holds it where one does",
    )


def _fragment_by_blocks(
    job: JobSpec, use: ToolUse, command: UserCommand, adapter: FragmentingAdapter, database: DatabaseFacts, slots: int, queries: QueryEstimate | None
) -> tuple[ToolUse, str]:  # fmt: skip
    """Plan one search or more for each block of a file in HDFS, each at the node that reads it best."""
    assert command.view
    database = database.count() if database.count else database
    if database.why_not:
        return use, f"fragments: 1; {database.why_not}{_PASSED_ON}"
    known = (queries, slots, memory.read_usable_memory()[0], use.cost, job.batch_size[0], _find_pass_residues(use))
    wanted = fragments.decide_fragments((0, 0), database, *known)
    n = fragments.count_block_fragments(max(command.view.in_pieces.values()), max(wanted.n, slots), database.entries)
    use = resolve_fragment_programs(adapter.plan_fragments(use, command, (1,) * n), command)
    return (
        use,
        f"fragments: {use.n_fragments}; the blocks in HDFS, each searched by a node that holds it where one does",
    )


def resolve_fragment_programs(use: ToolUse, command: UserCommand) -> ToolUse:
    """Resolve the programs that search fragments and candidates, where they differ from the user's program.

    Raises:
        ToolError: One is not found.
    """
    parts = use.fragmented
    if not parts:
        return use

    def found(argv: tuple[ArgumentToken, ...]) -> tuple[ArgumentToken, ...]:
        if argv[0] == use.argv[0]:
            return argv
        return (str(find_program(str(argv[0]), command.cwd, command.environ)), *argv[1:])

    replace = msgspec.structs.replace
    parts = replace(
        parts,
        fragments=tuple(replace(part, argv=found(part.argv)) for part in parts.fragments),
        finish=found(parts.finish),
    )
    return replace(use, fragmented=parts)
