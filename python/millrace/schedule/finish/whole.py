"""The strategy in which one task runs the user's command with all candidates as the database."""

from __future__ import annotations

from millrace.schedule.finish.way import Ready, Slots, Way
from millrace.schedule.orders import Order
from millrace.tasks import Finish


class Whole(Way):
    """Finishes any batch."""

    def begin(self, ready: Ready, slots: Slots) -> list[Order]:
        return [self.order(ready)]

    def order(self, ready: Ready) -> Order:
        """Make the one task, which goes before those that wait: it ends a batch."""
        return Order(ready.batch, Finish(), ready.attempt, True, ready.found)
