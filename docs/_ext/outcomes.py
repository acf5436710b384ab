"""Sphinx extension: directive `outcomes`, a figure of fits along one parameter of a stored study.

    ```{outcomes} data-quality
    :axis: n_samples
    :values: [300, 1000]
    :title: rows of each environment
    :where: intervention = "soft"; share = 0.5

    A caption.
    ```

Numbers come from `results/NAME/summary.json`; other parameters have the values of the usual
setting, or those of `where`. An empty text stands for a parameter that is not set.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from outcome_figure import outcome_figure, places_along
from sphinx.util.docutils import SphinxDirective

from crlearn.bench import read_summary

RESULTS = Path(__file__).parents[2] / "results"


class Outcomes(SphinxDirective):
    """One figure; the text of this file has an example."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {
        "axis": directives.unchanged_required,
        "values": directives.unchanged_required,
        "title": directives.unchanged_required,
        "method": directives.unchanged,
        "metric": directives.unchanged,
        "where": directives.unchanged,
        "labels": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        """Return the figure and its caption."""
        path = RESULTS / self.arguments[0] / "summary.json"
        self.env.note_dependency(str(path))
        given = self.options.get
        values = [_or_unset(value) for value in _toml(given("values", "[]"))]
        method, metric = given("method", "LinearInterventionCRL"), given("metric", "mcc")
        where = tomllib.loads(given("where", "").replace(";", "\n"))
        where = {name: _or_unset(value) for name, value in where.items()}
        places = places_along(read_summary(path), method, self.options["axis"], values, where)
        labels = _toml(given("labels", "[]")) or [f"{value:,}" for value in values]
        plot = outcome_figure(places, metric, self.options["title"], labels)
        caption = nodes.paragraph()
        self.state.nested_parse(self.content, self.content_offset, caption)
        return [
            nodes.raw("", f'<figure class="outcomes">{plot.svg}<figcaption>', format="html"),
            *caption.children,
            nodes.raw("", "</figcaption></figure>", format="html"),
        ]


def _toml(value: str) -> list[Any]:
    return tomllib.loads(f"value = {value}")["value"]


def _or_unset(value: Any) -> Any:
    return None if value == "" else value


def setup(app: Any) -> dict[str, Any]:
    """Register the extension."""
    app.add_directive("outcomes", Outcomes)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
