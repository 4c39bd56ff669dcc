"""The Gaussian by conjugate gradients, for very many columns."""
