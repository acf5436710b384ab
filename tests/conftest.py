from __future__ import annotations

import os

import pytest
from hypothesis import settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from crlearn.config import set_config

settings.register_profile("crlearn", derandomize=True, deadline=None)
settings.load_profile("crlearn")


@pytest.fixture(autouse=True)
def _no_progress_bars() -> None:
    set_config(progress=False)
