"""Numba's layer over the driver."""
