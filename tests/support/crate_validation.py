"""Validate a crate with ``roc-validator``, which has to be installed here, as has ``rocrate``: ``crate_validation.py CRATE``.

The validator asks the network for the terms of RO-Crate 1.1. Where there is none, it gets those that ``rocrate`` ships, of
a later version: the terms that our crates use mean the same in both.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import requests
import rocrate
from rocrate.rocrate import ROCrate
from rocrate_validator import models, services
from rocrate_validator.utils.http import HttpRequester

TERMS = "https://w3id.org/ro/crate/1.1/context"


def answer_from_package(get: Any, url: str, *more: Any, **options: Any) -> requests.Response:
    """Answer a request for the terms by those of ``rocrate`` if the network does not."""
    try:
        found: requests.Response = get(url, *more, **options)
        if found.ok or url != TERMS:
            return found
    except requests.ConnectionError:
        if url != TERMS:
            raise
    found = requests.Response()
    found.status_code, found.url = 200, url
    found.headers["Content-Type"] = "application/ld+json"
    found._content = (Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld").read_bytes()
    return found


def main() -> None:
    get = HttpRequester.__getattr__

    def find_method(requester: HttpRequester, name: str) -> Any:
        found = get(requester, name)
        return partial(answer_from_package, found) if name == "get" else found

    HttpRequester.__getattr__ = find_method
    crate = ROCrate(sys.argv[1])
    print(len(crate.get_entities()), "entities read by rocrate")
    result = services.validate(
        services.ValidationSettings(
            rocrate_uri=sys.argv[1],
            profile_identifier="process-run-crate",
            requirement_severity=models.Severity.RECOMMENDED,
            skip_availability_check=True,
        )
    )
    for issue in result.get_issues():
        print(issue.severity.name, issue.check.identifier, issue.message)
    print("valid" if result.passed(models.Severity.REQUIRED) else "not valid")


main()
