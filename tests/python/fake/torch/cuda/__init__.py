from . import memory

waited = []


def synchronize(device):
    waited.append(device)


__all__ = ["memory", "synchronize", "waited"]
