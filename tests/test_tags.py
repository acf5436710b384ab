from __future__ import annotations

from dataclasses import dataclass

import pytest

from crlearn.data import Dataset
from crlearn.exceptions import CorruptFileError
from crlearn.result import LinearEncoder
from crlearn.tags import class_of, stored, tag_of


def test_a_class_and_its_tag():
    assert tag_of(LinearEncoder) == "encoder/linear"
    assert class_of("encoder/linear") is LinearEncoder
    assert class_of("data/dataset") is Dataset


def test_classes_without_a_tag_have_none():
    class Derived(LinearEncoder):
        pass

    assert tag_of(dict) is None
    assert tag_of(Derived) is None


def test_an_unknown_tag_is_the_fault_of_the_file():
    with pytest.raises(CorruptFileError, match="a class 'os/system' that crlearn does not read"):
        class_of("os/system")


def test_a_tag_belongs_to_one_class_for_good():
    with pytest.raises(ValueError, match=r"'encoder/linear' belongs to crlearn\.result\.LinearEn"):

        @stored("encoder/linear")
        @dataclass
        class Usurper:
            pass

    assert class_of("encoder/linear") is LinearEncoder
