"""Rows on a device: arrays of CuPy and Torch, and the kernels that run row formulas on them."""
