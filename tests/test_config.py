from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from crlearn.config import config_context, device_name, get_config, numerics, set_config


def compile_cache_of_jax() -> Any:
    return jax.config.values["jax_compilation_cache_dir"]


def test_context_restores_what_was_before():
    before = get_config()
    with config_context(precision="float64", progress=True) as inside:
        assert inside.precision == "float64"
        assert get_config().progress is True
    assert get_config() == before


def test_context_restores_after_an_error():
    before = get_config()
    with pytest.raises(KeyError), config_context(device="cpu"):
        raise KeyError
    assert get_config() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precison": "float64"}, "Unknown setting 'precison'. The settings are: precision"),
        (
            {"precision": "float16"},
            "'precision' must be one of 'float32', 'float64'. Got 'float16'",
        ),
        ({"device": "tpu"}, "'device' must be one of 'auto', 'cpu', 'gpu'"),
    ],
)
def test_wrong_settings_are_named(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        set_config(**settings)


def test_precision_is_a_context_not_a_global_flag():
    with config_context(precision="float64"), numerics():
        assert jnp.ones(1).dtype == jnp.float64
    assert jnp.ones(1).dtype == jnp.float32


def test_a_device_that_is_not_there():
    with (
        config_context(device="gpu"),
        pytest.raises(RuntimeError, match=r"JAX sees none\. Use device='auto'"),
        numerics(),
    ):
        pass


def test_device_name():
    assert device_name() == "cpu"


def test_compile_cache_reaches_jax_and_is_taken_back(tmp_path: Path):
    before = compile_cache_of_jax()
    with config_context(compile_cache=tmp_path):
        assert compile_cache_of_jax() == str(tmp_path)
    assert compile_cache_of_jax() == before


def test_the_users_own_compile_cache_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = compile_cache_of_jax()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "of the user"))
    with config_context(compile_cache=tmp_path / "of crlearn"):
        pass
    found = compile_cache_of_jax()
    jax.config.update("jax_compilation_cache_dir", before)
    assert found == str(tmp_path / "of the user")


def test_threads_have_their_own_settings():
    seen = []
    with config_context(precision="float64"):
        thread = threading.Thread(target=lambda: seen.append(get_config().precision))
        thread.start()
        thread.join()
    assert seen == ["float32"]
