#!/bin/sh
# A model that onnx.save wrote does not load in ONNX Runtime, because its last external tensor is empty.
#
# One would expect: a tensor of no elements is valid (an empty list of axes, a cache without a past); what onnx writes,
# checks and reads back, ONNX Runtime loads, wherever the tensor stands.
# What happens: with size_threshold=0 the empty tensor is external, too, with length 0. Behind all others its offset is
# the size of the file, and ONNX Runtime ends with "unexpected end of file"; before another one it loads and runs. So the
# order of initializers decides.
# Versions: onnx 1.23.2, onnxruntime 1.31.1; 1.32.0 too.
# What follows: keep the default threshold, or put empty tensors first. weir refuses such a model in the engine's words.
set -u
packages="onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6"
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
if ! { python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install --quiet --disable-pip-version-check $packages; } >&2; then
    echo "not tried: $packages cannot be had here"
    exit 77
fi
"$folder/venv/bin/python" - <<'EOF'
import os
import sys
import tempfile
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

print("onnx", onnx.__version__, "onnxruntime", ort.__version__)
tensors = {"full": np.arange(1000, dtype=np.float32), "empty": np.zeros(0, np.float32)}


def outcome(order, path):
    graph = helper.make_graph([helper.make_node("Add", ["x", "full"], ["sum"]), helper.make_node("Concat", ["sum", "empty"], ["y"], axis=0)],
                              "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1000])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1000])],
                              [numpy_helper.from_array(tensors[name], name) for name in order])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, path, save_as_external_data=True, location=os.path.basename(path) + ".data", size_threshold=0)
    onnx.checker.check_model(path)
    assert [numpy_helper.to_array(tensor).size for tensor in onnx.load(path).graph.initializer] == [tensors[name].size for name in order]
    try:
        session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        return "loads" if len(session.run(None, {"x": tensors["full"]})[0]) == 1000 else "wrong"
    except Exception as error:
        return "unexpected end of file" if "unexpected end of file" in str(error) else str(error)


with tempfile.TemporaryDirectory() as folder:
    first = outcome(("empty", "full"), os.path.join(folder, "first.onnx"))
    last = outcome(("full", "empty"), os.path.join(folder, "last.onnx"))
print("the empty tensor first: expected loads, seen", first)
print("the empty tensor last:  expected loads, seen", last)
sys.exit((first, last) != ("loads", "unexpected end of file"))
EOF
