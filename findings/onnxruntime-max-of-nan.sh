#!/usr/bin/env bash
# With a NaN among 8 numbers ONNX Runtime's ReduceMax gives neither NaN nor the largest of the others.
#
# One would expect: the maximum of numbers among which there is a NaN is NaN, as in numpy and in ONNX's reference
# evaluator; or else, as by C's fmaxf, the largest of the other numbers. Wherever the NaN stands.
# What happens: only a NaN that stands first makes the result NaN. Anywhere else it is dropped, and what was in the same
# place of a vector register before it goes with it: of 0, NaN, 2, 3, 4, 5, 6, 7 the maximum is 6. ArgMax of the same
# numbers tells the place of the NaN, and Max of two tensors is NaN where either is.
# Versions: onnxruntime 1.31.1 with onnx 1.23.2.
# What follows: a test of a model's outputs by their maximum does not see NaN, nor does a softmax that is built of
# ReduceMax, Sub and Exp take away the largest exponent. weir hands on what the engine made of it.
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
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

print("onnxruntime", ort.__version__)


def both(operator, result):
    """What ONNX Runtime and the reference say, a NaN at each place of 0 to 7 in turn."""
    graph = helper.make_graph([helper.make_node(operator, ["x"], ["y"], keepdims=0)], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
                              [helper.make_tensor_value_info("y", result, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    reference, seen, right = ReferenceEvaluator(model), [], []
    for place in range(8):
        x = np.arange(8, dtype=np.float32)
        x[place] = np.nan
        seen.append(session.run(None, {"x": x})[0].item())
        right.append(np.asarray(reference.run(None, {"x": x})[0]).item())
    return seen, right


largest, reference = both("ReduceMax", TensorProto.FLOAT)
place, _ = both("ArgMax", TensorProto.INT64)
print("ReduceMax, the NaN at 0 to 7:", largest)
print("the reference:               ", reference)
print("ArgMax:                      ", place)
lost = [at for at in range(1, 7) if largest[at] < 7]
as_described = (np.isnan(largest[0]) and not np.isnan(largest[1:]).any() and lost and np.isnan(reference).all()
                and place == list(range(8)))
print(f"the NaN at {lost}: neither NaN nor 7")
print("as described" if as_described else "NOT as described: look at it again")
sys.exit(0 if as_described else 1)
EOF
