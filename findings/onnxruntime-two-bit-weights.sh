#!/bin/sh
# ONNX Runtime multiplies by 2-bit weights wrongly if the matrix's columns are no multiple of 4.
#
# One would expect: DequantizeLinear of int2 or uint2 (opset 25) into MatMul is the product with the dequantized matrix,
# at each level of optimization alike.
# What happens: from the level extended on, so by default, the two nodes become one, MatMulNBits, which packs the weights
# anew, four to a byte. If the columns do not fill their bytes the answers have nothing to do with the right ones, and are
# others in each process. With 4 or 8 columns they are right, with int4 and int8 always, and at the level basic, too.
# Versions: onnxruntime 1.31.1 with onnx 1.23.2; 1.32.0 too.
# What follows: pad the columns to 4, or load such models at the level basic. weir's setting for that is
# optimization=basic.
set -u
packages="onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6 ml_dtypes==0.6.0"
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
import ml_dtypes
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

print("onnxruntime", ort.__version__)
rows = 32
x = np.random.default_rng(1).integers(-9, 9, (1, rows)).astype(np.float32)


def product(columns, kind, low, level):
    weights = np.random.default_rng(2).integers(low, low + 4, (rows, columns))
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["q", "scale"], ["w"], axis=0, block_size=rows), helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, columns])],
        [helper.make_tensor("q", kind, [rows, columns], weights.flatten().tolist()),
         numpy_helper.from_array(np.ones((1, columns), np.float32), "scale")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # float32: no other rounding plays a part
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return (x @ weights.astype(np.float32))[0], session.run(None, {"x": x})[0][0]


levels = ort.GraphOptimizationLevel
as_described = True
for name, kind, low in ("int2", TensorProto.INT2, -2), ("uint2", TensorProto.UINT2, 0):
    for columns in 8, 6, 3:
        for level in levels.ORT_ENABLE_BASIC, levels.ORT_ENABLE_EXTENDED:
            expected, seen = product(columns, kind, low, level)
            equal = np.allclose(expected, seen, atol=1e-3)
            print(f"{name}, {columns} columns, {level.name}: expected {expected.tolist()}")
            print(f"    {'the same' if equal else 'seen ' + str(seen.tolist())}")
            as_described &= equal == (columns % 4 == 0 or level == levels.ORT_ENABLE_BASIC)
sys.exit(not as_described)
EOF
