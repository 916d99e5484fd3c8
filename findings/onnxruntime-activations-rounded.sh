#!/bin/sh
# Quantized weights make ONNX Runtime round the activations to 8 bits, too.
#
# One would expect: a model whose weights alone are quantized (DequantizeLinear into MatMul, the activations float32 all
# the way) is computed in float32; a level of optimization changes the last bits at most.
# What happens: from the level extended on, so by default, the two nodes become MatMulNBits with "accuracy level 4": each
# block of activations is rounded to int8 by its largest value. The usual error is half a percent. One large value beside
# small ones, as language models have them, makes the small ones zero. Nothing in the model or the log says so.
# Versions: onnxruntime 1.31.1; 1.32.0 too.
# What follows: set session.qdq_matmulnbits_accuracy_level to 1 where float32 is meant, and compare runs of one level of
# optimization alone. With weir optimization=basic keeps float32.
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
rows, columns = 32, 8
weights = np.ones((rows, columns), np.int8)
weights[0] = 0  # meets the large activation, so that it adds nothing
x = np.full((1, rows), 0.9, np.float32)
x[0, 0] = 300
graph = helper.make_graph(
    [helper.make_node("DequantizeLinear", ["q", "scale"], ["w"], axis=0, block_size=rows), helper.make_node("MatMul", ["x", "w"], ["y"])],
    "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, rows])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])],
    [helper.make_tensor("q", TensorProto.INT4, [rows, columns], weights.flatten().tolist()),
     numpy_helper.from_array(np.ones((1, columns), np.float32), "scale")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()


def first(level, accuracy=None):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    if accuracy:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", accuracy)
    return float(ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0][0, 0])


levels = ort.GraphOptimizationLevel
right = 31 * 0.9
basic, default, float32 = first(levels.ORT_ENABLE_BASIC), first(levels.ORT_ENABLE_ALL), first(levels.ORT_ENABLE_ALL, "1")
print(f"expected: 31 * 0.9 = {right:.2f}")
print(f"seen: basic {basic:.2f}, default {default:.2f}, default with accuracy level 1 {float32:.2f}")
sys.exit(not (abs(basic - right) < 0.01 and abs(float32 - right) < 0.01 and abs(default - right) > 5))
EOF
