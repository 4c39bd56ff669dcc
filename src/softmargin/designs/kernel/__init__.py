"""Designs made from covariance functions."""
