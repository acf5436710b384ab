"""Sphinx configuration."""

import os
import sys
import warnings
from pathlib import Path

from sphinx.errors import ExtensionError
from sphinx_gallery.sorting import ExplicitOrder

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
sys.path.insert(0, str(HERE / "_ext"))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import crlearn  # noqa: E402 - after the platform was chosen
from crlearn.exceptions import AssumptionWarning  # noqa: E402

project = "crlearn"
author = "The crlearn developers"
copyright = author
release = crlearn.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "results",
    "outcomes",
    "papers",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_build", "methods/_template.md"]
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
default_role = "code"
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]  # for the glossary

sphinx_gallery_conf = {
    "examples_dirs": [str(EXAMPLES)],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": ExplicitOrder(
        [
            "simulated_world.py",
            "interventions_and_graph.py",
            "compare_with_baselines.py",
            "chance_levels.py",
            "pipeline_and_frames.py",
            "small_study.py",
            "*",
        ]
    ),
    # Building the pages is what tests the examples: each runs, whether it has changed or not.
    "abort_on_example_error": True,
    "run_stale_examples": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "reference_url": {"crlearn": None},
    "doc_module": ("crlearn",),
    "image_srcset": ["2x"],
}
# Figures are shown by plt.show(), which has nothing to show to.
warnings.filterwarnings("ignore", message=".*non-interactive", category=UserWarning)
# Examples show warnings on purpose or not at all.
warnings.filterwarnings("error", category=AssumptionWarning)


def setup(app):
    app.connect("build-finished", refuse_what_examples_left)


def refuse_what_examples_left(app, exception):
    """Examples run in their own folder, and clean up behind themselves."""
    left = [path.name for path in EXAMPLES.iterdir() if path.suffix not in (".py", ".rst")]
    if left:
        raise ExtensionError(f"Examples have left files behind: {', '.join(left)}.")


html_theme = "pydata_sphinx_theme"
html_title = "crlearn"
html_static_path = ["_static"]
html_show_sourcelink = False
html_css_files = ["wide.css"]
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}
# No list of pages beside those that have none below them, nor beside code and wide tables.
html_sidebars = {
    name: []
    for name in ("getting_started", "choosing", "papers", "good_enough", "gallery/*", "results/*")
}
