"""Samplers of the coefficients."""
