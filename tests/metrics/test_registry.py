"""One contract for all metrics: the truth is perfect, a random rotation is at chance."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ortho_group

from crlearn.metrics import METRICS, evaluate, find_metrics
from crlearn.result import Alternative, Check, Guarantee, LinearEncoder, Result

MIXING = np.random.default_rng(0).normal(size=(6, 4))
GRAPH = np.eye(4, k=1, dtype=bool)
LAYERS = ((3,), (2,), (1,), (0,))
TARGETS = np.eye(4, dtype=bool)
BLOCKS = ((0, 1), (2, 3))
N_ROTATIONS = 200

every = pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))


def whitened(n_rows: int = 400) -> Any:
    """Independent columns, so that their chance level is that of a rotation."""
    rows = np.random.default_rng(1).normal(size=(n_rows, 4))
    rows -= rows.mean(axis=0)
    return np.linalg.qr(rows)[0] * np.sqrt(n_rows)


def world() -> Any:
    """Noises that are also the latents: what is perfect or random of one is so of the other."""
    Z = whitened()
    truth = SimpleNamespace(
        Z=Z,
        noise=Z,
        graph=GRAPH,
        targets=TARGETS,
        mixing=SimpleNamespace(matrix=MIXING),
        blocks=BLOCKS,
        measurement_noise=0.0,
        scms=(),
        score_jacobian=lambda Z: Z[:, :, None] * np.eye(4),
    )
    return SimpleNamespace(X=Z @ MIXING.T, y=np.arange(len(Z)) % 4, covariates=None, truth=truth)


class Answer:
    """A fitted model whose latents are a rotation of the truth, with all that it could state."""

    n_features_in_ = 6

    def __init__(self, rotation: Any = None):
        rotation = np.eye(4) if rotation is None else rotation
        encoder = LinearEncoder(rotation @ np.linalg.pinv(MIXING), np.zeros(6))
        self.result_ = Result(
            encoder,
            Guarantee("scale", "exact", "text"),
            adjacency=GRAPH,
            targets=TARGETS,
            layers=LAYERS,
            blocks=BLOCKS,
            noise_encoder=encoder,
            mechanisms=SimpleNamespace(
                auxiliary=lambda y: (y, np.zeros((len(y), 0))), noises=lambda Z, y: Z
            ),
            alternatives=(Alternative(GRAPH, LAYERS, gap=3.5, agreement=0.2),),
            details={
                "gain_over_gaussian": 12.5,
                "jacobians": {
                    "encoder": np.linalg.pinv(MIXING),
                    "at": whitened(),
                    "values": 1.5 * whitened()[:, :, None] * np.eye(4),
                },
            },
        )

    def transform(self, X: Any) -> Any:
        return self.result_.encoder(X)

    def posterior(self, X: Any, y: Any) -> Any:
        Z = self.transform(X)
        return SimpleNamespace(interval=lambda level: (Z - 1, Z + 1))


@every
def test_the_truth_is_perfect(metric: Any):
    scores = evaluate(Answer(), world(), [metric.name])
    assert scores.perfect == {metric.name: metric.perfect}
    if metric.perfect is not None:
        assert scores[metric.name] == pytest.approx(metric.perfect, abs=1e-9)
    else:
        assert np.isfinite(scores[metric.name])


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.chance])
def test_a_random_rotation_is_at_chance(name: str):
    data = world()
    found = [
        evaluate(Answer(rotation), data, [name])
        for rotation in ortho_group.rvs(4, size=N_ROTATIONS, random_state=2)
    ]
    chance: Any = found[0].chance[name]
    values = np.array([scores[name] for scores in found])
    assert chance == pytest.approx(values.mean(), abs=4 * values.std() / np.sqrt(N_ROTATIONS))
    assert METRICS[name].larger_is_better
    assert chance < 1


@every
def test_an_entry_is_whole(metric: Any):
    assert METRICS[metric.name] is metric
    assert metric.unit
    assert metric.description
    assert metric.description[0].islower()
    assert metric.description[-1] != "."
    assert len(metric.description) < 90


def test_what_is_better_follows_from_what_is_perfect():
    assert METRICS["mcc"].larger_is_better is True
    assert METRICS["shd"].larger_is_better is False
    assert METRICS["coverage"].larger_is_better is None


def test_names_that_are_none():
    with pytest.raises(ValueError, match=r"metrics must be among mcc, .*, evidence_gap. Got 'mmc'"):
        find_metrics(["mcc", "mmc"])
    assert find_metrics("shd") == [METRICS["shd"]]


def test_the_registry_cannot_be_changed():
    with pytest.raises(TypeError):
        METRICS["own"] = METRICS["mcc"]  # type: ignore[index]


def test_a_fit_is_silently_wrong_or_a_false_alarm_by_its_accuracy_and_its_checks():
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    failed = (Check("an assumption", False, "it does not hold"),)
    for model, right in ((Answer(), True), (Answer(rotation), False)):
        for checks in ((), failed):
            model.result_ = replace(model.result_, checks=checks)
            scores = evaluate(
                model, world(), ["accuracy", "warned", "silently_wrong", "false_alarm"]
            )
            assert (scores["accuracy"] >= 0.9) == right
            assert scores["warned"] == len(checks)
            assert scores["silently_wrong"] == (not right and not checks)
            assert scores["false_alarm"] == (right and len(checks) > 0)


def test_accuracy_counts_pairs_with_a_wrong_edge():
    model = Answer()
    model.result_ = replace(model.result_, adjacency=np.zeros((4, 4), dtype=bool))
    scores = evaluate(model, world(), ["accuracy"])
    assert scores["accuracy"] == pytest.approx(1 - GRAPH.sum() / 6)
    soft = Guarantee("parents", "closure", "text")
    model.result_ = replace(Answer().result_, guarantee=soft)
    assert evaluate(model, world(), ["accuracy"])["accuracy"] == 1.0


def test_blocks_of_the_truth():
    mixed = np.eye(4)
    mixed[:2, :2] = [[0.6, 0.8], [-0.8, 0.6]]
    scores = evaluate(Answer(mixed), world(), ["r2_within_blocks", "r2_across_blocks"])
    assert scores["r2_within_blocks"] == pytest.approx(1)
    assert scores["r2_across_blocks"] == pytest.approx(0, abs=1e-9)
    data = world()
    data.truth.blocks = None
    shares = evaluate(Answer(mixed), data, ["r2_within_blocks"])["r2_within_blocks"]
    assert shares == pytest.approx((0.64 + 0.64 + 1 + 1) / 4)
    data.truth.blocks = ((0, 1, 2, 3),)
    with pytest.raises(ValueError, match="all latents are in one block"):
        evaluate(Answer(), data, ["r2_across_blocks"])
