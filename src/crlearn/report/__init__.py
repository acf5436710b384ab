"""Reports: one self-contained HTML page about a fit, or about a study."""

from crlearn.exceptions import import_extra

import_extra("matplotlib", "report")
import_extra("jinja2", "report")

from crlearn.report._fit import write_report  # noqa: E402 - after the check of what it needs
from crlearn.report._study import write_study_report  # noqa: E402

__all__ = ["write_report", "write_study_report"]
