"""Second looks: a sample of batches is run again and its bytes are compared with the committed ones."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field


@dataclass
class Sampler:
    """Chooses batches by their first record, so that a resumed run chooses alike; counts what came of it."""

    fraction: float
    run_id: bytes
    compared: int = 0
    #: What differed, in words.
    different: list[str] = field(default_factory=list)

    def takes(self, first: int) -> bool:
        if self.fraction <= 0:
            return False
        digest = hashlib.blake2b(first.to_bytes(8, "little"), key=self.run_id, digest_size=8).digest()
        return int.from_bytes(digest, "little") < self.fraction * 2**64

    def seen(self, first: int, last: int, failure: str, streams: list[str]) -> None:
        """Note the outcome of one comparison."""
        self.compared += 1
        if failure:
            self.different.append(f"records {first + 1} to {last}: the second run failed ({failure})")
        elif streams:
            self.different.append(f"records {first + 1} to {last}: {', '.join(streams)} differ")
