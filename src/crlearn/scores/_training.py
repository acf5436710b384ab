"""How long score networks are trained."""

from __future__ import annotations

from math import ceil

from crlearn.train import Settings


def steps_to_settings(
    n_steps: int, n_rows: int, batch_size: int, learning_rate: float, held_out: float
) -> Settings:
    """Return how to train for at least `n_steps` steps, whatever the number of rows."""
    n_training_rows = n_rows - int(held_out * n_rows)
    steps_per_epoch = max(1, n_training_rows // batch_size)
    return Settings(
        max_epochs=ceil(n_steps / steps_per_epoch),
        batch_size=batch_size,
        learning_rate=learning_rate,
        validation_fraction=held_out,
        patience=None,
    )
