"""Hamiltonian Monte Carlo on the smoothed posterior."""
