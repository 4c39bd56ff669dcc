"""Comparisons with other software: ``python -m benchmarks.<name>``."""
