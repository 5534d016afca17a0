"""The stretches of the input that verification runs again at other batch boundaries. Pure.

A stretch is a run of records whose batches are committed: as a rule two neighbours. The tool's outputs for the same
records in other pieces must join to the same bytes. The first two batches, more if these are a few records, and the
last two always are a stretch; others are chosen by their first record, so that a resumed run chooses alike. Stretches
overlap: if all batches are chosen, each border between two of them is within one.
"""

from __future__ import annotations

import math
from _blake2 import blake2b  # as hashlib has it, which would load OpenSSL at each start
from collections.abc import Sequence

import msgspec

#: First record and the one after the last.
RecordExtent = tuple[int, int]

#: Share of the input that is verified, besides both ends, if the user sets none.
SHARE = 0.1

#: Maximum factor by which a busy machine is slower than an idle one: see ``estimate_effort``.
MAX_BUSY_FACTOR = 10.0

#: Maximum cost of verification, as a share of the tool's time, and the seconds that are free.
MAX_COST_SHARE, FREE_SECONDS = 0.01, 0.2

#: Up to this CPU time and time of the tool in all, and bytes of input, all of the input is run again in one piece, if
#: the user sets no share: that is the serial run itself. On a busy machine a task takes long, and does no more work.
MAX_WHOLE_CPU_SECONDS, MAX_WHOLE_SECONDS, MAX_WHOLE_BYTES = 0.5, 5.0, 1 << 20

#: The start takes further batches up to this many records, if the user sets no share: two records show little.
MAX_START_RECORDS = 12

#: Maximum time that the start waits for further batches, as from a slow pipe.
START_PATIENCE_SECONDS = 1.0

#: Bytes after which a batch that is to be verified is closed, if the user sets no share.
MAX_SHORT_BATCH_BYTES = 16 << 10

#: Maximum time, and number, of records that are run alone in a stretch.
MAX_ALONE_SECONDS, MAX_ALONE_RECORDS = 0.5, 8

#: From this time on, a stretch is run again in one way only, and has two batches.
MIN_SLOW_SECONDS = 5.0


def estimate_effort(seconds: float, cpu_seconds: float) -> float:
    """Estimate the seconds that the tool would have taken on an idle machine.

    A busy machine makes the tool slow, not its work larger. A tool that only waits, for a server say, takes long on any
    machine.
    """
    return max(min(seconds, cpu_seconds), seconds / MAX_BUSY_FACTOR)


def is_stretch_chosen(first: int, share: float, key: bytes) -> bool:
    """Tell whether a stretch begins with the batch whose first record is ``first``."""
    digest = blake2b(first.to_bytes(8, "little"), key=key, digest_size=8).digest()
    # A chosen batch takes its neighbour with it, which may be chosen, too.
    return first == 0 or int.from_bytes(digest, "little") < (1 - math.sqrt(1 - share)) * 2**64


class StretchChoice(msgspec.Struct):
    """Choice of the batches, in input order and by their first record, that are part of a stretch.

    Args:
        share: Share of the input that is verified.
        key: As in ``VerificationStretches``.
        start: Records up to which the start goes on after its second batch.
    """

    share: float
    key: bytes
    start: int = MAX_START_RECORDS
    #: Number of batches of the start so far; 0: it is over.
    _n_of_start: int = 0
    #: Whether a stretch begins with the previous batch.
    _has_begun: bool = False

    def add_batch(self, first: int) -> bool:
        """Advance to the batch from record ``first``; return whether it is part of a stretch."""
        is_part = self.is_in_start(first) or self._has_begun or self.is_stretch_start(first)
        self._n_of_start = self._n_of_start + 1 if first == 0 or self.is_in_start(first) else 0
        self._has_begun = self.is_stretch_start(first)
        return is_part

    def is_stretch_start(self, first: int) -> bool:
        """Tell whether a stretch begins with the batch from record ``first``."""
        return is_stretch_chosen(first, self.share, self.key)

    def is_in_start(self, first: int) -> bool:
        """Tell whether the batch from record ``first`` belongs to the start, as the previous one does."""
        return self._n_of_start == 1 or (self._n_of_start > 1 and first < self.start)

    def skip_records(self) -> None:
        """Note that records committed by an earlier run were skipped."""
        self._n_of_start, self._has_begun = 0, False


class VerificationStretches(msgspec.Struct):
    """Chooses stretches from batches that are cut, in input order, and committed, in any order.

    Args:
        share: Share of the input that is verified; None: ``SHARE``, if it costs little; 0: none.
        key: Random key on which the choice of this run depends.
        divisible: Whether the tool takes more than one record at a time.
        one_is_serial: Whether a task for all of the input is the serial run itself.
    """

    share: float | None
    key: bytes
    divisible: bool = True
    one_is_serial: bool = True
    #: The committed batches that are or may be needed, and their ``estimate_effort``.
    kept: dict[RecordExtent, float] = msgspec.field(default_factory=dict)
    #: Batches whose bytes are the same at other boundaries: see ``mark_equal``.
    checked: set[RecordExtent] = msgspec.field(default_factory=set)
    n_committed: int = 0
    _choice: StretchChoice = msgspec.field(default_factory=lambda: StretchChoice(0.0, b""))
    #: Batches of the start, while it is being cut.
    _head: list[RecordExtent] = msgspec.field(default_factory=list)
    #: The previous batch, if a stretch begins with it.
    _before: RecordExtent | None = None
    #: Chosen stretches that are not yet fully committed.
    _open: list[RecordExtent] = msgspec.field(default_factory=list)
    _given_out: list[RecordExtent] = msgspec.field(default_factory=list)
    #: The last two committed batches.
    _last: list[RecordExtent] = msgspec.field(default_factory=list)
    #: Time since when all of the start is committed, if it is.
    _idle_since: float | None = None
    _has_begun: bool = False
    _has_end: bool = False
    _spent: float = 0.0
    _seconds: float = 0.0
    _cpu_seconds: float = 0.0
    _effort: float = 0.0
    _bytes: int = 0
    #: Batches on which the tool failed, and was then run on parts of them.
    _suspects: list[RecordExtent] = msgspec.field(default_factory=list)
    #: All stretches that were issued.
    _looked_at: set[RecordExtent] = msgspec.field(default_factory=set)

    def __post_init__(self) -> None:
        self._choice = (
            StretchChoice(SHARE, self.key) if self.share is None else StretchChoice(self.share, self.key, start=0)
        )

    # Batches as they are cut

    def add_batch(self, first: int, last: int) -> bool:
        """Add the next batch in input order; return whether it is part of a stretch."""
        self._has_begun = True
        if self.share == 0 or first == last:
            return False
        is_of_start = first == 0 or self._choice.is_in_start(first)
        if not is_of_start:
            self._close_start()
        if self._before:
            self._open.append((self._before[0], last))
        is_part = self._choice.add_batch(first)
        if is_of_start:
            self._head.append((first, last))
            self._idle_since = None
        is_within_start = is_of_start and self._choice.is_in_start(last)
        self._before = (first, last) if self._choice.is_stretch_start(first) and not is_within_start else None
        if not is_within_start:
            self._close_start()
        return is_part

    def skip_batch(self, first: int, last: int) -> None:
        """Skip the next batch in input order, whose bytes cannot be verified."""
        self._has_begun = True
        self._choice.skip_records()
        self._before = None
        self._close_start()

    def _close_start(self) -> None:
        if self._head:
            self._open.append((self._head[0][0], self._head[-1][1]))
            self._head = []

    # Batches as they are committed

    def record_commit(self, first: int, last: int, seconds: float, n_bytes: int = 0, cpu_seconds: float = 0.0) -> None:
        """Note that a batch of ``n_bytes`` is committed, and the time and CPU time that the tool took for it."""
        if self.share == 0 or first == last:
            return
        self.n_committed += 1
        self._seconds += seconds
        self._cpu_seconds += cpu_seconds
        self._bytes += n_bytes
        extent = (first, last)
        self._last = sorted([*self._last, extent])[-2:]
        spent = estimate_effort(seconds, cpu_seconds)
        self._effort += spent
        if self._is_wanted(extent):
            self.kept[extent] = spent
        self._drop_unneeded()

    def drop_records(self, first: int, last: int) -> None:
        """Drop stretches with records that have no result, except for the start before them."""
        if self._head and first < self._head[-1][1] and self._head[0][0] < last:
            self._choice.skip_records()
            self._close_start()
        if self._before and first < self._before[1] and self._before[0] < last:
            self._before = None
        self._suspects = [each for each in self._suspects if last <= each[0] or each[1] <= first]
        hit = [each for each in self._open if first < each[1] and each[0] < last]
        self._open = [each for each in self._open if each not in hit]
        if any(each[0] == 0 for each in hit) and first > 1:
            self._open.append((0, first))

    def add_suspect(self, first: int, last: int) -> None:
        """Note that the tool failed on a batch and runs on parts of it: once they are done, the whole is run again."""
        if self.share == 0 or any(each[0] <= first and last <= each[1] for each in self._suspects):
            return  # verification is off, or it is part of a suspect batch
        self._suspects.append((first, last))
        if not any(each[0] <= first and last <= each[1] for each in self._unfinished):
            self._open.append((first, last))

    def has_suspect(self, first: int, last: int) -> bool:
        """Tell whether these records contain a batch on which the tool has failed, though not yet on its parts."""
        return any(first <= each[0] and each[1] <= last for each in self._suspects)

    @property
    def _is_small(self) -> bool:
        """Whether all that is committed of the input can be verified."""
        is_short = self._cpu_seconds <= MAX_WHOLE_CPU_SECONDS and self._seconds <= MAX_WHOLE_SECONDS
        is_free = is_short and self._bytes <= MAX_WHOLE_BYTES
        return self.share is None and self.divisible and is_free and not self._has_end

    def _is_wanted(self, extent: RecordExtent) -> bool:
        first, last = extent
        return (
            self._is_small
            or extent in self._last
            or any(each[0] <= first and last <= each[1] for each in self._unfinished)
        )

    def _drop_unneeded(self) -> None:
        self.kept = {extent: seconds for extent, seconds in self.kept.items() if self._is_wanted(extent)}

    # Stretches

    @property
    def is_start_open(self) -> bool:
        """Whether the start of the input is still to be verified."""
        if self.share == 0:
            return False
        return not self._has_begun or any(first == 0 for first, _ in self._unfinished)

    @property
    def _unfinished(self) -> tuple[RecordExtent, ...]:
        return *self._open, *self._given_out, *self._head, *([self._before] if self._before else [])

    def pop_ready_stretches(self, total: int | None, now: float, *, done: bool) -> list[tuple[RecordExtent, ...]]:
        """Return the stretches to verify now, each as its batches; release each in the end with ``release_stretch``.

        Args:
            total: Number of records of the input, once all of it is cut; None before.
            now: Seconds since the run began.
            done: Everything is committed or quarantined.
        """
        if total is not None:
            self._has_begun = True
            self._before = None
            self._close_start()
        elif len(self._head) > 1 and all(each in self.kept for each in self._head):
            self._idle_since = now if self._idle_since is None else self._idle_since
            if now - self._idle_since >= START_PATIENCE_SECONDS:
                self._choice.skip_records()
                self._close_start()
        found = self._issue_stretches(total)
        if total is not None:
            self._add_end_stretch(total, done=done)
            found += self._issue_stretches()
        if done:
            self._open.clear()
        self._drop_unneeded()
        return found

    def _issue_stretches(self, end_total: int | None = None) -> list[tuple[RecordExtent, ...]]:
        """Issue the stretches that are committed, except for one batch up to ``end_total``: it belongs to the end."""
        found = []
        for stretch in list(self._open):
            if batches := self._list_batches(stretch):
                self._open.remove(stretch)
                if batches != ((0, end_total),) and self._is_worth_its_cost(batches):
                    extent = (batches[0][0], batches[-1][1])
                    self._given_out.append(extent)
                    self._looked_at.add(extent)
                    found.append(batches)
        return found

    def _list_batches(self, stretch: RecordExtent) -> tuple[RecordExtent, ...]:
        """Return the committed batches of a stretch, two of a slow start; none if one is missing."""
        found, seconds = list[RecordExtent](), 0.0
        for extent in sorted(each for each in self.kept if stretch[0] <= each[0] and each[1] <= stretch[1]):
            if extent[0] != (found[-1][1] if found else stretch[0]):
                return ()
            found.append(extent)
            seconds += self.kept[extent]
            if self.share is None and stretch[0] == 0 and len(found) == 2 and seconds >= MIN_SLOW_SECONDS:
                return tuple(found)
        return tuple(found) if found and found[-1][1] == stretch[1] else ()

    def _add_end_stretch(self, total: int, *, done: bool) -> None:
        """Add the last two batches as a stretch, once they are known to be the last."""
        if not self._last or self._has_end or (self._is_small and not done):
            return
        is_all = self._is_small and len(self._list_batches((0, total))) > 1
        if is_all:
            self._has_end = True
            if (0, total) not in (*self._looked_at, *self._open):
                self._open.append((0, total))
            return
        before, last = self._last[0], self._last[-1]
        are_neighbours = before[1] == last[0]
        known = (*self._open, *self._given_out)
        if not (done or (are_neighbours and last[1] == total and not self.is_start_open)):
            return
        self._has_end = True
        is_serial = last == (0, total) and self.one_is_serial
        if (
            not is_serial
            and last not in self.checked
            and not any(each[0] <= last[0] and last[1] <= each[1] for each in known)
        ):
            self._open.append((before[0] if are_neighbours else last[0], last[1]))

    def _is_worth_its_cost(self, batches: Sequence[RecordExtent]) -> bool:
        if self.has_suspect(batches[0][0], batches[-1][1]):
            return True
        seconds = sum(self.kept[each] for each in batches)
        at_an_end = batches[0][0] == 0 or self._last[-1] in batches
        affordable = max(FREE_SECONDS, MAX_COST_SHARE * self._effort)
        if self.share is None and not at_an_end and self._spent + seconds > affordable:
            return False
        self._spent += seconds
        return True

    def mark_equal(self, batches: Sequence[RecordExtent]) -> None:
        """Note that a stretch has the same output at other boundaries."""
        self.checked.update(batches)

    def release_stretch(self, batches: Sequence[RecordExtent]) -> None:
        """Release the bytes of a stretch."""
        self._given_out.remove((batches[0][0], batches[-1][1]))
        self._drop_unneeded()


def list_variants(
    batches: Sequence[RecordExtent], seconds: float, *, at_start: bool, at_end: bool, whole: bool
) -> list[list[int]]:
    """Return the ways to run a stretch again, each as the numbers of records of its pieces.

    One piece for all shows what the tool writes at each start or end, counts, or carries over the boundary; records of
    their own at both ends of the input show what it carries over each record, and what it does at its first. A last
    record that is a batch of its own is run behind others.

    Args:
        seconds: Time of the tool for these batches, by ``estimate_effort``.
        whole: Whether the tool takes more than one record at a time.

    >>> list_variants([(0, 3), (3, 9)], 0.1, at_start=True, at_end=False, whole=True)
    [[9], [1, 1, 1, 1, 1, 1, 1, 1, 1]]
    >>> list_variants([(40, 50), (50, 90)], 0.4, at_start=False, at_end=True, whole=True)
    [[48, 1, 1]]
    >>> list_variants([(0, 4), (4, 9)], 10.0, at_start=True, at_end=False, whole=True)
    [[9]]
    >>> list_variants([(4, 5)], 0.4, at_start=False, at_end=True, whole=True)
    [[1]]
    >>> list_variants([(36, 39), (39, 40)], 0.1, at_start=False, at_end=True, whole=True)
    [[4]]
    """
    sizes = [last - first for first, last in batches]
    n = sum(sizes)
    if not whole or n == 1:
        return [sizes]
    found = [[n]] if len(sizes) > 1 else [[n // 2, n - n // 2]]
    alone = min(n - 1, MAX_ALONE_RECORDS, max(1, int(MAX_ALONE_SECONDS * len(sizes) / max(seconds, 1e-3))))
    if at_start and seconds < MIN_SLOW_SECONDS:
        found.append([*[1] * alone, n - alone])
    elif at_end and alone > 1 and sizes[-1] > 1:
        found = [[n - alone, *[1] * alone]]  # once: batches here may be large, and the run waits for it
    return [each for at, each in enumerate(found) if each != sizes and each not in found[:at]] or [sizes]
