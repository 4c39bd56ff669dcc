"""Models in files: arrays and JSON in one file, without pickle."""

from softmargin.persistence.files import load, save

__all__ = ["load", "save"]
