"""A stand-in for Numba: the classes of its interface for memory managers, version 1."""
