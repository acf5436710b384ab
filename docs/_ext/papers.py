"""Sphinx extension: role `study`, the name of a study, with its page of results if it is stored.

In a page: {study}`welch2024-table2`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxRole

RESULTS = Path(__file__).parents[2] / "results"


class StudyRole(SphinxRole):
    """The name in the type of code, as a link where there is a page."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the node."""
        name = nodes.literal(self.text, self.text)
        if not (RESULTS / self.text / "summary.json").exists():
            return [name], []
        page = self.env.app.builder.get_relative_uri(self.env.docname, f"results/{self.text}")
        link = nodes.reference("", "", name, internal=True, refuri=page)
        return [link], []


def setup(app: Any) -> dict[str, Any]:
    """Register the extension."""
    app.add_role("study", StudyRole())
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
