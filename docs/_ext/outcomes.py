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

from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from outcome_figure import figure_of, summary_of
from sphinx.util.docutils import SphinxDirective

DRAWING = Path(__file__).with_name("outcome_figure.py")


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
        summary = summary_of(self.arguments[0])
        for source in (summary, DRAWING):  # the page is made again when one of them changes
            self.env.note_dependency(str(source))
        plot = figure_of(summary, self.options)
        caption = nodes.paragraph()
        self.state.nested_parse(self.content, self.content_offset, caption)
        return [
            nodes.raw("", f'<figure class="outcomes">{plot.svg}<figcaption>', format="html"),
            *caption.children,
            nodes.raw("", "</figcaption></figure>", format="html"),
        ]


def setup(app: Any) -> dict[str, Any]:
    """Register the extension."""
    app.add_directive("outcomes", Outcomes)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
