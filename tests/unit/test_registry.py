"""The registry sends each program to the adapter that knows it."""

from __future__ import annotations

import pytest

from millrace.adapters import mafft, registry
from millrace.adapters.hmmer.command_line import PROGRAMS

#: Families that `registry` knows by programs which their adapter tells apart by name.
TOLD_APART = {
    "hmmer": set(PROGRAMS),
    "mafft": {prefix + name for prefix in ("", "mafft-") for name in (*mafft.PROGRESSIVE, *mafft.REFINING)},
}


@pytest.mark.parametrize("family", TOLD_APART)
def test_adapter_covers_exactly_the_listed_programs(family: str) -> None:
    assert set(registry.FAMILIES[family]) == TOLD_APART[family]


def test_a_program_belongs_to_one_family_alone() -> None:
    assert len(registry.MODULES) == sum(map(len, registry.FAMILIES.values()))


@pytest.mark.parametrize("family", registry.FAMILIES)
def test_each_family_has_its_own_adapter_by_name_and_by_path(family: str) -> None:
    for program in registry.FAMILIES[family]:
        adapter = registry.find_adapter(f"/opt/bin/{program}")
        assert adapter is registry.find_adapter(program)
        assert f"{type(adapter).__module__}.".startswith(f"millrace.adapters.{family}.")


def test_any_other_program_has_the_generic_adapter() -> None:
    assert type(registry.find_adapter("./my-tool")).__module__ == "millrace.adapters.generic"
