from . import _utils, memory

waited = []


class Allocator:
    """Takes all functions, and calls none."""

    def __getattr__(self, name):
        return lambda function: None


def synchronize(device):
    waited.append(device)


def is_initialized():
    return False


def device_count():
    return 1


__all__ = ["_utils", "memory", "synchronize", "waited"]
