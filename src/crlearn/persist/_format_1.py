"""Files of format 1 in terms of format 2: JSON in, JSON out.

Format 1 named a class by its module, as it was then; `details` held what are fields of `Result`
now; and an estimator had the published algorithm behind ``estimator="paper"``.
"""

from __future__ import annotations

from typing import Any

from crlearn.exceptions import CorruptFileError

_TAGS = {
    ("crlearn.result", "Check"): "result/check",
    ("crlearn.result", "Guarantee"): "result/guarantee",
    ("crlearn.result", "LinearDecoder"): "decoder/linear",
    ("crlearn.result", "LinearEncoder"): "encoder/linear",
    ("crlearn.result", "Result"): "result",
    ("crlearn.nets", "MLP"): "net/mlp",
    ("crlearn.nets", "NetworkMap"): "encoder/network",
    ("crlearn.scores._splines", "CubicSplines"): "score/cubic-splines",
    ("crlearn.scores._structured", "StructuredScore"): "score/structured",
    ("crlearn.methods._denoiser", "Denoiser"): "encoder/denoiser",
    ("crlearn.likelihood._observational", "Mechanism"): "noise/mechanism",
    ("crlearn.likelihood._observational", "Mechanisms"): "noise/mechanisms",
    ("crlearn.methods._layer_regression", "Basis"): "noise/basis",
    ("crlearn.methods._layer_regression", "Regression"): "noise/regression",
    ("crlearn.methods._observational", "MechanismNoise"): "noise/of-mechanisms",
    ("crlearn.methods._score_layers", "NoiseEncoder"): "noise/of-layers",
    ("crlearn.data._dataset", "Dataset"): "data/dataset",
    ("crlearn.data._dataset", "Truth"): "data/truth",
    ("crlearn.data._images", "BallRendering"): "mixing/ball-rendering",
    ("crlearn.data._layer", "Layer"): "mixing/layer",
    ("crlearn.data._mechanisms", "Linear"): "mechanism/linear",
    ("crlearn.data._mechanisms", "MLP"): "mechanism/mlp",
    ("crlearn.data._mechanisms", "NormSquared"): "mechanism/norm-squared",
    ("crlearn.data._mechanisms", "QuadraticForm"): "mechanism/quadratic-form",
    ("crlearn.data._mechanisms", "Scaled"): "mechanism/scaled",
    ("crlearn.data._mechanisms", "Sine"): "mechanism/sine",
    ("crlearn.data._mechanisms", "TanhCubic"): "mechanism/tanh-cubic",
    ("crlearn.data._mixing", "Mixing"): "mixing",
    ("crlearn.data._node", "Node"): "scm/node",
    ("crlearn.data._noise", "Exponential"): "distribution/exponential",
    ("crlearn.data._noise", "Fixed"): "distribution/fixed",
    ("crlearn.data._noise", "Gaussian"): "distribution/gaussian",
    ("crlearn.data._noise", "Gumbel"): "distribution/gumbel",
    ("crlearn.data._noise", "Laplace"): "distribution/laplace",
    ("crlearn.data._scm", "SCM"): "scm",
}

# Entries of `details` that are fields of `Result` now.
_FIELDS = ("layers", "blocks", "noise_encoder", "edge_p_values", "encoder_standard_errors")

# The estimators that had the published algorithm behind estimator="paper", and its name now.
PUBLISHED = {
    "LinearInterventionCRL": "LSCALEI",
    "MultiNodeCRL": "UMNICRL",
    "ObservationalCRL": "ScoreLayers",
    "EmpiricalBayesCRL": "EBCRL",
}


def upgraded(content: Any) -> Any:
    """Return the content of a file of format 1 as format 2 has it."""
    if isinstance(content, list):
        return [upgraded(item) for item in content]
    if not isinstance(content, dict):
        return content
    if "$record" not in content:
        return {key: upgraded(item) for key, item in content.items()}
    tag = _tag(*content["$record"])
    fields = {name: upgraded(field) for name, field in content["fields"].items()}
    return _record(tag, _with_typed_fields(fields) if tag == "result" else fields)


def class_now(name: str, parameters: dict[str, Any], known: Any) -> str:
    """Return what the class of an old estimator is called now, if that is among the known names."""
    published = PUBLISHED.get(name, name)
    return published if parameters.get("estimator") == "paper" and published in known else name


def _tag(module: str, name: str) -> str:
    if (module, name) not in _TAGS:
        raise CorruptFileError(f"The file names a class '{name}' that crlearn does not read.")
    return _TAGS[module, name]


def _record(tag: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {"$record": tag, "fields": fields}


def _with_typed_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Move entries of `details` to the fields that they have become."""
    details = dict(fields["details"]["$dict"])
    moved = {name: details.pop(name) for name in _FIELDS if name in details}
    if "rivals" in details:
        rivals = details.pop("rivals")["$tuple"]
        moved["alternatives"] = {"$tuple": [_alternative(dict(r["$dict"])) for r in rivals]}
    if "likelihood_ratio" in details:
        moved["goodness_of_fit"] = _goodness_of_fit(details)
    return {**fields, **moved, "details": {"$dict": [list(entry) for entry in details.items()]}}


def _alternative(rival: dict[str, Any]) -> dict[str, Any]:
    fields = {name: rival[name] for name in ("adjacency", "layers", "agreement")}
    return _record("result/alternative", {**fields, "gap": rival["evidence_gap"]})


def _goodness_of_fit(details: dict[str, Any]) -> dict[str, Any] | None:
    """Take the test of the fit out of `details`."""
    entries = {"ratio": "likelihood_ratio", "freedom": "degrees_of_freedom", "p_value": "p_value"}
    fields = {field: details.pop(entry) for field, entry in entries.items()}
    if fields["ratio"] is None:
        return None
    return _record("result/goodness-of-fit", fields)
