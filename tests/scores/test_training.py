from __future__ import annotations

import pytest

from crlearn.scores._training import steps_to_settings


@pytest.mark.parametrize(
    ("n_rows", "held_out", "epochs"), [(1000, 0.1, 112), (50_000, 0.0, 11), (10, 0.1, 1000)]
)
def test_there_are_enough_steps(n_rows: int, held_out: float, epochs: int):
    # 900 training rows are one batch of 512 a pass but 100 fit 9 times; ten rows are one batch.
    batch_size = {1000: 100, 50_000: 512, 10: 512}[n_rows]
    settings = steps_to_settings(1000, n_rows, batch_size, 1e-3, held_out)
    assert settings.max_epochs == epochs
    assert settings.validation_fraction == held_out
    assert settings.patience is None
