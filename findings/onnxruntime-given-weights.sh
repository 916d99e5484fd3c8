#!/bin/sh
# A weight given to ONNX Runtime by add_initializer is used in the wrong layout, and the answer is wrong.
#
# One would expect: SessionOptions.add_initializer hands a tensor to a session under the name of a weight of the model, so
# that sessions share it. Where it has the very bytes of the model, the answers are those without it.
# What happens: in Transpose, Add(weight), Transpose the optimizer moves the transpositions into the weight, which keeps
# its name. The given tensor takes its place afterwards, untransposed. With a square weight the numbers are wrong without
# a word; with another one the run fails in a broadcast. From the level basic on, so by default.
# Versions: onnxruntime 1.31.1 with onnx 1.23.2; 1.32.0 too. C's AddInitializer is the same function.
# What follows: give only weights that no optimizer can turn, or switch optimization off. weir looks at how each weight is
# used, and leaves those that meet a transposition in the model.
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
import sys
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

print("onnxruntime", ort.__version__)
weight = np.arange(9, dtype=np.float32).reshape(1, 3, 3)
shape = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 3]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 3])
graph = helper.make_graph([helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 2, 1]),
                           helper.make_node("Add", ["turned", "w"], ["sum"]),
                           helper.make_node("Transpose", ["sum"], ["y"], perm=[0, 2, 1])],
                          "g", shape[:1], shape[1:], [numpy_helper.from_array(weight, "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
given = ort.OrtValue.ortvalue_from_numpy(weight)


def answer(level, with_given):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    if with_given:
        options.add_initializer("w", given)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.zeros((1, 3, 3), np.float32)})[0][0].tolist()


right = weight[0].T.tolist()
levels = ort.GraphOptimizationLevel
print("expected, whatever the level:", right)
seen = {(name, with_given): answer(getattr(levels, name), with_given)
        for name in ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL") for with_given in (False, True)}
for (name, with_given), numbers in seen.items():
    print(f"seen: {name:16} {'weight given ' if with_given else 'weight of file'} {numbers}")
wrong = {key for key, numbers in seen.items() if numbers != right}
sys.exit(wrong != {("ORT_ENABLE_BASIC", True), ("ORT_ENABLE_ALL", True)})
EOF
