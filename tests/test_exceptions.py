from __future__ import annotations

import json

import pytest

from crlearn.exceptions import IdentifiabilityError, MissingExtraError, import_extra


def test_import_extra_returns_the_module():
    assert import_extra("json", "frames") is json


def test_import_extra_says_how_to_install_what_is_missing():
    with pytest.raises(MissingExtraError, match=r"pip install 'crlearn\[frames\]'"):
        import_extra("a_package_that_nobody_has", "frames")


def test_identifiability_errors_are_value_errors():
    assert issubclass(IdentifiabilityError, ValueError)
