"""weir.torch as bench/torch_run.py uses it."""

import types

import torch

from . import OPTIONS


class Weir(torch.Own):
    def held(self, live):
        return live


class Used:
    complete = True

    def client(self):
        stats = torch.chosen.stats()
        runtime = types.SimpleNamespace(stats=lambda: types.SimpleNamespace(
            peak_held=stats["reserved_bytes.all.peak"], held=stats["reserved_bytes.all.current"], driver_calls=5))
        return types.SimpleNamespace(runtime=runtime)


def use(budget=None):
    mine = Weir()
    budget = budget or OPTIONS["budget"]
    if budget:
        mine.cap = int(budget.removesuffix("MiB")) * torch.MIB
    torch.chosen = mine
    return Used()
