"""Sphinx configuration."""

import crlearn

project = "crlearn"
author = "The crlearn developers"
release = crlearn.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
exclude_patterns = ["_build"]
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
default_role = "code"

html_theme = "pydata_sphinx_theme"
html_title = "crlearn"
html_static_path = ["_static"]
html_theme_options = {"show_toc_level": 2}
