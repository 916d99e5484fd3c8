"""What the tests of the Python package share. They are given libweir, the plug-ins, the sources and the store by the environment:
WEIR_LIBRARY, WEIR_ENGINE_PATH, WEIR_TEST_SOURCE, WEIR_HOME (tests.cmake)."""

import gc
import os
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

SOURCE = Path(os.environ.get("WEIR_TEST_SOURCE") or Path(__file__).resolve().parent.parent.parent)
PACKAGE = SOURCE / "python"
sys.path.insert(0, str(PACKAGE))

MIB = 2**20


def run_python(code, *options, **environment):
    """The ended process of a Python of its own with the package; a variable that is None is taken away."""
    variables = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    python = os.environ.get("WEIR_TEST_PYTHON") or sys.executable  # one that an emulator runs cannot be started by its own name
    return subprocess.run([python, *options, "-c", code], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=1000, env={k: v for k, v in variables.items() if v is not None})


def model_path(name):
    """A model of the store. Where it is not there the test is skipped, or fails under WEIR_REQUIRE_ENGINES=1."""
    path = Path(os.environ.get("WEIR_HOME") or "/nonexistent") / "models" / name
    engine = "onnxruntime-genai" if name.startswith("tiny-llm") else "onnxruntime"
    for needed in (path, path.parent.parent / "engines" / engine / "current"):
        if not needed.exists():
            missing(needed)
    return path


def missing(what):
    if os.environ.get("WEIR_REQUIRE_ENGINES") == "1":
        raise AssertionError(f"not here: {what}; WEIR_REQUIRE_ENGINES is set")
    raise unittest.SkipTest(f"not here: {what}")


def dropped(make):
    """The texts of the warnings that come when what `make` answers is dropped unclosed."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        thing = make()
        del thing
        gc.collect()
    return [str(each.message) for each in told if each.category is ResourceWarning]
