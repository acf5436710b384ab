"""What `EmpiricalBayesCRL`, `StructuralPriorCRL` and `EBCRL` share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from crlearn import EmpiricalBayesCRL, StructuralPriorCRL
from crlearn.data import make_multi_domain
from crlearn.exceptions import AssumptionWarning
from crlearn.published import EBCRL


@pytest.fixture(scope="module")
def data() -> Any:
    return make_multi_domain(n_latents=3, n_features=10, n_samples=300, random_state=1)


@pytest.fixture(scope="module", params=[EmpiricalBayesCRL, StructuralPriorCRL, EBCRL])
def model(request: Any, data: Any) -> Any:
    known = {"graph": data.truth.graph, "targets": data.known_targets}
    if request.param is EBCRL:
        known |= {"mixing": data.truth.mixing.matrix}
    if request.param is StructuralPriorCRL:
        known |= {"n_steps": 200, "n_restarts": 1, "random_state": 0}
    return request.param(**known).fit(data.X, data.y)


def test_transform_gives_the_means_of_the_posterior(data: Any, model: Any):
    for y in (data.y, None):
        np.testing.assert_array_equal(model.transform(data.X, y), model.posterior(data.X, y).mean)


def test_fit_transform_is_told_the_labels(data: Any, model: Any):
    unfitted: Any = clone(model)
    found = unfitted.fit_transform(data.X, data.y)
    np.testing.assert_array_equal(found, model.transform(data.X, data.y))
    assert not np.allclose(found, model.transform(data.X))


def test_labels_say_more_than_none(data: Any, model: Any):
    true = data.truth.Z
    with_labels, without = (
        ((model.transform(data.X, y) - true) ** 2).mean() for y in (data.y, None)
    )
    noisy = data.X @ data.truth.mixing.matrix  # whose columns are orthonormal
    assert with_labels < without < ((noisy - true) ** 2).mean()


def test_labels_that_are_not_known(data: Any, model: Any):
    with pytest.raises(ValueError, match=r"y names .* not .*: 9. Known are 1, 2, 3"):
        model.transform(data.X[:2], [1, 9])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.transform(data.X[:2], [1])


def test_rows_far_outside_the_range_of_the_fit(data: Any, model: Any):
    message = f"{type(model).__name__}: 2 of 3 rows have latents far outside"
    with pytest.warns(AssumptionWarning, match=message):
        model.transform(data.X[:3] * [[100], [1], [-100]])
    with pytest.warns(AssumptionWarning, match=message):
        model.posterior(data.X[:3] * [[100], [1], [-100]])
