"""What README, docstrings and metadata say is what the code does."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import crlearn

ROOT = Path(__file__).parents[1]
MODULES = [
    module.name
    for module in pkgutil.walk_packages(crlearn.__path__, "crlearn.")
    if not module.name.endswith("__main__")
]

quiet = pytest.mark.filterwarnings("ignore::crlearn.exceptions.AssumptionWarning")


@quiet
@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str):
    module = importlib.import_module(name)
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert doctest.testmod(module, optionflags=options).failed == 0


@quiet
@pytest.mark.parametrize("page", ["README.md", "docs/getting_started.md"])
def test_code_examples_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)  # examples may write files
    exec("\n".join(blocks), {})


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/getting_started.md"])
def test_make_targets_that_a_page_names_exist(page: str):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z]+)`?$|`make ([a-z]+)`", (ROOT / page).read_text(), re.M))
    assert {target for pair in named for target in pair if target} <= targets


def test_public_names_exist_and_are_documented():
    for name in crlearn.__all__:
        thing = getattr(crlearn, name)
        assert name == "__version__" or thing.__doc__


def test_changelog_and_citation_name_this_version():
    assert f"## {crlearn.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {crlearn.__version__}" in (ROOT / "CITATION.cff").read_text()
