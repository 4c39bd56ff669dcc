"""Posterior modes: interior point, dual descent, active sets, and the certificate of each."""
