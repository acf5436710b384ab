"""The command line: simulate, fit, evaluate, report, demo."""

from crlearn.exceptions import import_extra

import_extra("typer", "cli")

from crlearn.cli._app import app  # noqa: E402 - after the check of what it needs

__all__ = ["app"]
