"""What the tests on a GPU share: they are skipped, with words, where a library or a GPU is missing, and fail there with
WEIR_REQUIRE_CUDA=1. A library that this machine's Python has not is skipped in any case."""

import importlib.util
import os
import sys
import unittest
from pathlib import Path

SOURCE = Path(os.environ.get("WEIR_TEST_SOURCE") or Path(__file__).resolve().parent.parent.parent)
sys.path[:0] = [str(SOURCE / "python"), str(Path(__file__).resolve().parent)]
SKIPPED = 77
MIB = 1 << 20


def needed(*libraries):
    """Ends the program where one of them is not here, or no GPU is."""
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            print(f"not here: {library}")
            sys.exit(SKIPPED)
    import weir  # pylint: disable=import-outside-toplevel
    if not any(device.runtime == "cuda:0" and device.usable for device in weir.devices()):
        print("no GPU: weir.devices() has no usable cuda:0")
        sys.exit(1 if os.environ.get("WEIR_REQUIRE_CUDA") == "1" else SKIPPED)


def main():
    unittest.main(verbosity=2)
