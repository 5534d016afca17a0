"""``coordinator``: the first process alone writes, as it does anyway with outputs that are not blocks one after the other."""

from __future__ import annotations

from millrace.cluster.write.strategy import WriteStrategy


class Coordinator(WriteStrategy):
    """See above."""

    shares = False
