"""The program that ``millrace.map`` runs: it calls a function for each record."""

from __future__ import annotations

import multiprocessing.spawn
import pickle
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from millrace.api import function_transfer, serving
from millrace.api.mapping import FunctionFailure, digest_call


def main(path: str, digest: str) -> None:
    """Load the function in a file and call it for each record; exit if the digest differs, as loading runs code."""
    call = Path(path).read_bytes()
    if digest_call(call) != digest:
        sys.exit(f"{path}: is not the function that millrace.map was called with")
    surroundings, pickled, is_raw = pickle.loads(call)
    multiprocessing.spawn.prepare(surroundings)
    function: Callable[[Any], Any] = pickle.loads(pickled)
    for record in serving.records():
        value = record if is_raw else pickle.loads(b64decode(record))
        serving.write(b64encode(_compute_answer(function, value)) + b"\n")


def _compute_answer(function: Callable[[Any], Any], value: Any) -> bytes:
    """Call the function and return the pickled result, or its exception as a pickled ``FunctionFailure``."""
    try:
        return function_transfer.pickle_result(function(value))
    except Exception as error:
        try:
            found = pickle.dumps(FunctionFailure(error))
            pickle.loads(found)  # not all exceptions can be unpickled
        except Exception:
            return pickle.dumps(FunctionFailure(RuntimeError(f"{type(error).__name__}: {error}")))
        return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
