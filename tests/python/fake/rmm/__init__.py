"""A stand-in for RMM: resources that call back into Python, and the one of each device."""

from . import mr

__all__ = ["mr"]
