"""Variational engines: Gaussian, mean field, stochastic, and mixtures over a scale."""
