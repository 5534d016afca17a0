"""What is packed otherwise than as a wheel says what the package says of itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import jinja2
import pytest

from millrace import __version__

REPO = Path(__file__).resolve().parent.parent.parent
PACKAGE = tomllib.loads((REPO / "pyproject.toml").read_text())
PROJECT = PACKAGE["project"]
#: An extra that is others together, and what needs a device that containers do not have.
ALL_OF_STORAGE, NOT_IN_IMAGES = ("storage",), ("mount",)
IMAGES = [REPO / "packaging" / name for name in ("Dockerfile", "millrace.def")]


def recipe() -> dict[str, Any]:
    """The recipe for conda, as its own tools read it."""
    yaml = pytest.importorskip("yaml")
    text = jinja2.Template((REPO / "packaging/conda/meta.yaml").read_text()).render(
        PYTHON="python", compiler=lambda language: f"{language}_compiler", pin_subpackage=lambda name, max_pin: name
    )
    return dict(yaml.safe_load(text))


def plain(requirements: list[str]) -> list[str]:
    return sorted(re.sub(r"\s", "", each) for each in requirements)


def test_recipe_has_requirements_and_scripts_of_the_package() -> None:
    made = recipe()
    assert made["package"] == {"name": PROJECT["name"], "version": __version__}
    python = f"python{PROJECT['requires-python']}"
    assert plain(made["requirements"]["run"]) == plain([python, *PROJECT["dependencies"]])
    assert plain(made["requirements"]["host"]) == plain([python, "pip", *PACKAGE["build-system"]["requires"]])
    assert made["build"]["entry_points"] == [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]


def installed(image: Path) -> tuple[list[str], list[str]]:
    """Programs of Debian, and extras of Millrace, that an image has."""
    text = image.read_text()
    programs = re.findall(r"--no-install-recommends (.*?)(?: \\)?$", text, re.MULTILINE)
    extras = re.findall(r'"\$wheel\[(.*?)\]"', text)
    assert len(programs) == len(extras) == 1
    return programs[0].split(), extras[0].split(",")


def test_both_images_have_the_same_tools_and_the_extras() -> None:
    docker, apptainer = (installed(image) for image in IMAGES)
    assert docker == apptainer
    programs, extras = docker
    known = (REPO / "scripts" / "install-tools").read_text()
    assert [name for name in programs if name not in known and not name.startswith("python3")] == []
    assert sorted(extras) == sorted(PROJECT["optional-dependencies"].keys() - {*ALL_OF_STORAGE, *NOT_IN_IMAGES})


def test_install_page_lists_each_extra() -> None:
    section = (REPO / "docs" / "install.md").read_text().partition("| extra |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in section.splitlines()[2:]))) == sorted(
        PROJECT["optional-dependencies"]
    )
