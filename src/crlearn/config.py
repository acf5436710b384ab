"""Settings of the whole library: precision, device, progress bars, compile cache.

Each thread has its own settings and starts with the defaults.

>>> from crlearn.config import config_context, get_config
>>> with config_context(precision="float64"):
...     get_config().precision
'float64'
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

_CHOICES: dict[str, tuple[object, ...]] = {
    "precision": ("float32", "float64"),
    "device": ("auto", "cpu", "gpu"),
    "progress": ("auto", True, False),
}


@dataclass(frozen=True)
class Config:
    """One set of settings.

    Attributes
    ----------
    precision
        Floating-point type of trained networks. Closed forms always use float64.
    device
        ``"auto"`` takes the accelerator if JAX sees one.
    progress
        ``"auto"`` shows progress bars on a terminal and nothing in a pipeline.
    compile_cache
        Folder in which compiled programs are kept between processes, or None.
    """

    precision: Literal["float32", "float64"] = "float32"
    device: Literal["auto", "cpu", "gpu"] = "auto"
    progress: Literal["auto"] | bool = "auto"
    compile_cache: Path | None = None


_current: ContextVar[Config] = ContextVar("crlearn_config", default=Config())  # noqa: B039


def get_config() -> Config:
    """Return the settings in force."""
    return _current.get()


def set_config(**settings: Any) -> None:
    """Change settings from here on; see `Config` for their names."""
    _switch_to(_checked(settings))


@contextmanager
def config_context(**settings: Any) -> Iterator[Config]:
    """Change settings inside a ``with`` block."""
    before = get_config()
    set_config(**settings)
    try:
        yield get_config()
    finally:
        _switch_to(before)


def _checked(settings: dict[str, Any]) -> Config:
    known = [field.name for field in fields(Config)]
    for name, value in settings.items():
        if name not in known:
            raise ValueError(f"Unknown setting '{name}'. The settings are: {', '.join(known)}.")
        if name in _CHOICES and value not in _CHOICES[name]:
            allowed = ", ".join(repr(choice) for choice in _CHOICES[name])
            raise ValueError(
                f"The setting '{name}' must be one of {allowed}. Got {value!r} instead."
            )
    if settings.get("compile_cache") is not None:
        settings = {**settings, "compile_cache": Path(settings["compile_cache"])}
    return replace(get_config(), **settings)


def _switch_to(config: Config) -> None:
    before = get_config()
    _current.set(config)
    if config.compile_cache != before.compile_cache:
        import jax

        of_user = os.environ.get("JAX_COMPILATION_CACHE_DIR")
        folder = of_user if config.compile_cache is None else str(config.compile_cache)
        jax.config.update("jax_compilation_cache_dir", folder)


@contextmanager
def numerics() -> Iterator[None]:
    """Run JAX on the device and in the precision of the settings."""
    import jax

    config = get_config()
    with ExitStack() as stack:
        if config.device != "auto":
            stack.enter_context(jax.default_device(_first_device(config.device)))
        stack.enter_context(jax.enable_x64(config.precision == "float64"))
        yield


def _first_device(kind: str) -> Any:
    import jax

    try:
        return jax.devices(kind)[0]
    except RuntimeError as error:
        raise RuntimeError(
            f"The setting device='{kind}' asks for a {kind}, but JAX sees none. "
            "Use device='auto', or install JAX for your accelerator: pip install 'crlearn[cuda13]'."
        ) from error


def device_name() -> str:
    """Name the device on which JAX runs under the settings."""
    import jax

    config = get_config()
    device = jax.devices()[0] if config.device == "auto" else _first_device(config.device)
    return device.device_kind if device.platform != "cpu" else "cpu"
