"""``--write coordinator``: the coordinator alone writes all outputs, not only those that are no concatenations."""

from __future__ import annotations

from millrace.cluster.write.strategy import WriteStrategy


class CoordinatorWriteStrategy(WriteStrategy):
    """The strategy ``coordinator``; see the module."""

    shares = False
