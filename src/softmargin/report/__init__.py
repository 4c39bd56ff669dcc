"""Reports: one HTML page about a fitted model."""

from softmargin.report.document import Report, report

__all__ = ["Report", "report"]
