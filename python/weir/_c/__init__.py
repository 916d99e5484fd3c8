"""The C interface as the package uses it: `lib` and `check` (library.py) and the structures (structures.py)."""
