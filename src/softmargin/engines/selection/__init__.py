"""Samplers that move between sets of columns."""
