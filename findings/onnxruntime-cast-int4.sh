#!/bin/sh
# ONNX Runtime's Cast of a float to int4 rounds, where the one to int8 truncates, and so 7.6 becomes -8.
#
# One would expect: Cast to an integer cuts the fraction off, as C and numpy do, whatever the width: 7.6 is 7 in int4,
# which goes to 7, and 15.6 is 15 in uint4.
# What happens: int8 and wider truncate. int4, uint4, int2 and uint2 round half away from zero, and only then keep the low
# bits: what is in range before is out of range after it, and comes out at the other end. 7.6 is -8, 15.6 is 0. ONNX's own
# reference evaluator truncates for all of them.
# Versions: onnxruntime 1.31.1 with onnx 1.23.2; 1.32.0 too.
# What follows: weights that are packed into 4 bits by a Cast differ between two runtimes, and the largest ones change
# sign. Floor and Clip come before such a Cast. weir hands on what the engine made of it.
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
import onnxruntime as ort
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

print("onnxruntime", ort.__version__)
as_described = True
for name, values, seen_before in (("INT8", [0.5, 1.7, -1.7, 7.6, 126.9], [0, 1, -1, 7, 126]),
                                  ("INT4", [0.5, 1.7, -1.7, 7.4, 7.6], [1, 2, -2, 7, -8]),
                                  ("UINT4", [0.5, 1.7, 2.5, 15.4, 15.6], [1, 2, 3, 15, 0])):
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["small"], to=getattr(TensorProto, name)),
                               helper.make_node("Cast", ["small"], ["y"], to=TensorProto.FLOAT)],
                              "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {"x": np.array(values, np.float32)}
    seen = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)[0].tolist()
    reference = ReferenceEvaluator(model).run(None, feeds)[0].tolist()
    print(f"{name:5} of {values}: expected {[int(value) for value in values]}, reference {reference}, seen {seen}")
    as_described &= seen == seen_before
sys.exit(not as_described)
EOF
