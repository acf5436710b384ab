"""Speed of the training loop, as ratios within one run (absolute times depend on the machine).

1. Steps per second of `crlearn.train` against an ordinary Python loop that calls a jitted step: the
   loop of equinox's tutorials, with the same network, loss, optimiser and batch size.
2. Cost of four restarts against one.

Setting: IVAE with 3 hidden layers of 64 units, batch 256, 20 epochs on 10,000 x 20. Compilation is
timed apart: each side runs once before the clock starts.

    python benchmarks/train_speed.py
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from crlearn.config import device_name
from crlearn.methods._ivae import EvidenceBound
from crlearn.train import Settings, train

N_ROWS, N_FEATURES, N_LATENTS, N_ENVIRONMENTS = 10_000, 20, 5, 11
EPOCHS, BATCH_SIZE = 20, 256
REPEATS = 5

OBJECTIVE = EvidenceBound(N_FEATURES, N_LATENTS, N_ENVIRONMENTS, 64, 3, "leaky_relu", 0.03)
SETTINGS = Settings(
    max_epochs=EPOCHS, batch_size=BATCH_SIZE, patience=None, validation_fraction=0.1
)


def make_data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, N_ENVIRONMENTS, N_ROWS).astype(np.int32)
    X = rng.normal(size=(N_ROWS, N_FEATURES)) * (1 + y[:, None] / N_ENVIRONMENTS)
    return X.astype(np.float32), y


optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(1e-3, b2=0.99))


@eqx.filter_jit
def step(model: Any, state: Any, batch: Any, key: Any) -> Any:
    loss, gradient = eqx.filter_value_and_grad(OBJECTIVE.loss)(model, batch, key, jnp.asarray(0.5))
    update, state = optimizer.update(gradient, state, model)
    return eqx.apply_updates(model, update), state, loss


@eqx.filter_jit
def evaluate(model: Any, batch: Any, key: Any) -> Any:
    return OBJECTIVE.loss(model, batch, key, jnp.asarray(1.0))


def ordinary_loop(data: tuple[np.ndarray, np.ndarray]) -> None:
    """Shuffle, slice, step, note the loss; look at the held-out loss after each epoch."""
    n_held_out = N_ROWS // 10
    held_out = jax.tree.map(lambda array: jnp.asarray(array[:n_held_out]), data)
    X, y = jax.tree.map(lambda array: jnp.asarray(array[n_held_out:]), data)
    n_batches = len(X) // BATCH_SIZE
    key = jax.random.key(0)
    model = OBJECTIVE.init(key)
    state = optimizer.init(eqx.filter(model, eqx.is_array))
    losses = []
    for _ in range(EPOCHS):
        key, shuffle_key = jax.random.split(key)
        order = jax.random.permutation(shuffle_key, len(X))
        for i in range(n_batches):
            key, step_key = jax.random.split(key)
            rows = order[i * BATCH_SIZE : (i + 1) * BATCH_SIZE]
            model, state, loss = step(model, state, (X[rows], y[rows]), step_key)
            losses.append(loss.item())
        losses.append(evaluate(model, held_out, key).item())


def crlearn_loop(
    data: tuple[np.ndarray, np.ndarray], n_restarts: int = 1, race: float = 0.2
) -> None:
    train(OBJECTIVE, data, replace(SETTINGS, n_restarts=n_restarts, race=race), seed=0)


def seconds(job: Callable[[], None]) -> tuple[float, float]:
    """First call (with compilation) and the median of the following ones."""
    start = time.perf_counter()
    job()
    first = time.perf_counter() - start
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return first, float(np.median(times))


def main() -> None:
    data = make_data()
    jobs = {
        "ordinary loop": partial(ordinary_loop, data),
        "crlearn, 1 restart": partial(crlearn_loop, data),
        "crlearn, 4 restarts": partial(crlearn_loop, data, n_restarts=4),
        "crlearn, 4 restarts, no race": partial(crlearn_loop, data, n_restarts=4, race=1.0),
    }
    timings = {name: seconds(job) for name, job in jobs.items()}
    steps = EPOCHS * (int(0.9 * N_ROWS) // BATCH_SIZE)
    print(f"device: {device_name()}, {steps} steps")
    for name, (first, later) in timings.items():
        print(
            f"{name:30s} {later:7.3f} s  {1e3 * later / steps:6.3f} ms a step  first {first:6.2f} s"
        )
    one = timings["crlearn, 1 restart"][1]
    ratios = {
        "speed-up over the ordinary loop (asked: >= 5)": timings["ordinary loop"][1] / one,
        "four restarts / one (asked: < 2)": timings["crlearn, 4 restarts"][1] / one,
        "four restarts / one, all to the end": timings["crlearn, 4 restarts, no race"][1] / one,
    }
    print(json.dumps({name: round(ratio, 2) for name, ratio in ratios.items()}, indent=2))


if __name__ == "__main__":
    main()
