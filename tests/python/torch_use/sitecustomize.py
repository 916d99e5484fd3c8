"""A folder for PYTHONPATH: where WEIR_TORCH_USE is set, PyTorch has its memory from weir as soon as it is imported, in this process and
in those that it starts. Programs and tests stay as they are."""

import importlib.util
import os
import sys


class AfterTorch:
    """Lets the others find torch, once, and adds to what its import does."""

    def find_spec(self, name, _path=None, _target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                import weir.torch
                weir.torch.use()
            spec.loader.exec_module = exec_module
        return spec


if os.environ.get("WEIR_TORCH_USE"):
    sys.meta_path.insert(0, AfterTorch())
