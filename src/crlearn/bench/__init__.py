"""Studies: published tables as data, run safely at any scale, paper and ours side by side."""

from crlearn.exceptions import import_extra

import_extra("filelock", "bench")

from crlearn.bench._execute import Record  # noqa: E402 - after the check of what it needs
from crlearn.bench._image_codes import OnImageCodes  # noqa: E402
from crlearn.bench._plan import Cell, Plan, Run  # noqa: E402
from crlearn.bench._references import ExactPosterior, GaussianPosterior, NoisePosterior  # noqa: E402
from crlearn.bench._runner import run_study  # noqa: E402
from crlearn.bench._study import SlopeAlong, Study, list_studies, load_study  # noqa: E402
from crlearn.bench._summary import Row, read_summary, summarise, summary_schema  # noqa: E402
from crlearn.bench._sweep import Sweep, is_sweep  # noqa: E402
from crlearn.bench._table import ComparisonTable, Line, Value, compare  # noqa: E402

__all__ = [
    "Cell",
    "ComparisonTable",
    "ExactPosterior",
    "GaussianPosterior",
    "Line",
    "NoisePosterior",
    "OnImageCodes",
    "Plan",
    "Record",
    "Row",
    "Run",
    "SlopeAlong",
    "Study",
    "Sweep",
    "Value",
    "compare",
    "is_sweep",
    "list_studies",
    "load_study",
    "read_summary",
    "run_study",
    "summarise",
    "summary_schema",
]
