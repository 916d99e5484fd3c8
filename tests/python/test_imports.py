"""What `import weir` takes with it, and that it does not matter in which order a program imports its libraries."""

import importlib.util
import json
import os
import platform
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from common import SOURCE, missing, model_path, run_python

import weir

# What takes long to import, or compile, and few programs need.
LATER = {"asyncio", "dataclasses", "html", "inspect", "numpy", "pathlib", "queue", "re", "typing", "weir._c.dlpack",
         "weir._c.inspection", "weir._c.seams", "weir.choice", "weir.machine", "weir.model", "weir.picture", "weir.statistics",
         "weir.tensors", "weir.trace"}

IMPORTED = """
import sys
before = set(sys.modules)
import weir
now = set(sys.modules)
import json
print(json.dumps(sorted(now - before)))
"""

MEMORY = """
with weir.Runtime("host", budget="64MiB", own=True) as runtime, runtime.client("a") as client, client.alloc(4096) as block:
    array = numpy.from_dlpack(block.tensor(weir.Type.F32, (4, 8)))
    array[:] = 2
    assert block.memory[:4].cast("f")[0] == 2
    del array
"""

# The model by both, the one that was imported first first; weir's keeps running beside the other's.
SESSIONS = """
inputs = {{"input_ids": [[101, 7592, 102]], "attention_mask": [[1, 1, 1]], "token_type_ids": [[0, 0, 0]]}}
def by_weir():
    model = weir.load({path!r}, maximum="512MiB")
    return lambda: model(inputs)["sentence_embedding"]
def by_onnxruntime():
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession({path!r}, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(["sentence_embedding"], {{name: numpy.array(ids) for name, ids in inputs.items()}})[0]
runs = [load() for load in ({loads})]
found = [run() for run in runs + runs]
assert all(each.shape == (1, 384) and numpy.allclose(each, found[0], atol=1e-4) for each in found)
"""


def onnxruntime_place(folder):
    """What makes Python's own onnxruntime importable: nothing, or the folder with the wheel that the store was filled from."""
    if importlib.util.find_spec("onnxruntime"):
        return ""
    pin = json.loads((SOURCE / "scripts/pins.json").read_text())["onnxruntime"]["files"][platform.machine()]["name"]
    wheel = Path(os.environ.get("WEIR_HOME") or "/nonexistent", "downloads", pin)
    if "-cp%d%d-" % sys.version_info[:2] not in pin or not wheel.exists():
        missing(f"onnxruntime for Python {sys.version_info[0]}.{sys.version_info[1]}")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


class Imports(unittest.TestCase):
    def good(self, code, **environment):
        ended = run_python(code, **environment)
        self.assertEqual(0, ended.returncode, f"{code}\n{ended.stdout}")
        return ended.stdout

    def test_import_weir_takes_nothing_that_few_programs_need(self):
        ended = run_python(IMPORTED, "-S")  # without what an environment imports for itself
        self.assertEqual(0, ended.returncode, ended.stdout)
        self.assertEqual(set(), LATER & set(json.loads(ended.stdout)))

    def test_every_name_is_there_and_is_listed(self):
        for name in weir.__all__:
            self.assertIsNotNone(getattr(weir, name), name)
        self.assertLessEqual(set(weir.__all__), set(dir(weir)))
        with self.assertRaisesRegex(AttributeError, "no attribute 'lode'"):
            weir.lode  # pylint: disable=pointless-statement,no-member
        self.assertEqual("weir.model weir.refusal\n", self.good("from weir import *; print(load.__module__, Refusal.__module__)"))

    def test_numpy_before_and_after(self):
        if not importlib.util.find_spec("numpy"):
            missing("numpy")
        for first, second in (("weir", "numpy"), ("numpy", "weir")):
            self.good(f"import {first}, {second}\n{MEMORY}")

    def test_onnxruntime_before_and_after(self):
        if not importlib.util.find_spec("numpy"):
            missing("numpy")
        path = str(model_path("minilm.onnx"))
        with tempfile.TemporaryDirectory() as folder:
            variables = {"PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE / "python"), onnxruntime_place(folder)]))}
            for order in (("weir", "numpy", "onnxruntime"), ("onnxruntime", "weir", "numpy"), ("numpy", "onnxruntime", "weir")):
                loads = ", ".join(f"by_{name}" for name in order if name != "numpy")
                self.good(f"import {', '.join(order)}\n{SESSIONS.format(path=path, loads=loads)}{MEMORY}", **variables)


if __name__ == "__main__":
    unittest.main()
