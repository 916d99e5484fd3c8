"""weir.torch as bench/torch_run.py uses it."""

import os
import types

import torch

from . import OPTIONS


class Weir(torch.Own):
    def held(self, live):
        return live


class Used:
    complete = True

    def client(self):
        """As it is where `use` comes too late: FAKE_BROKEN=use has no memory of the client's."""
        stats = torch.chosen.stats()
        runtime = types.SimpleNamespace(stats=lambda: types.SimpleNamespace(
            peak_held=stats["reserved_bytes.all.peak"], held=stats["reserved_bytes.all.current"], driver_calls=5))
        live = 0 if os.environ.get("FAKE_BROKEN") == "use" else stats["allocated_bytes.all.current"]
        return types.SimpleNamespace(runtime=runtime, stats=lambda: types.SimpleNamespace(live=live))


def use(budget=None):
    mine = Weir()
    budget = budget or OPTIONS["budget"]
    if budget:
        mine.cap = int(budget.removesuffix("MiB")) * torch.MIB
    torch.chosen = mine
    return Used()
