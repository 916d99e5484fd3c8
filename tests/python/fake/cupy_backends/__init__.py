"""The modules that CuPy calls by C."""
