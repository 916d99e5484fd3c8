#!/bin/sh
# ONNX Runtime trusts equal names of dimensions and does not check them, so sizes 7 and 4 run where 4 and 7 fail.
#
# One would expect: two inputs of the shape ["n"] must have the same size in a run. Others are refused at the door, or, if
# the name is only a label, the graph runs whenever its operators can.
# What happens: nothing looks at the inputs, but the plan of memory takes the promise: a buffer of one "n" is used again
# for another. Where that happens and the sizes differ, the run fails inside, at a node that has nothing to do with it
# ("Shape mismatch attempting to re-use buffer"); elsewhere it runs. Which pairs of sizes do is up to the order of nodes.
# Versions: onnxruntime 1.31.1; 1.32.0 too.
# What follows: exporters that call everything "batch" or "n" make models which fail for some inputs only. Names that are
# not meant equal have to differ. weir's plan has one size for a name, too.
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

print("onnxruntime", ort.__version__)


def session(other_name, order):
    nodes = {"Exp": helper.make_node("Exp", ["a"], ["exp"]), "Neg": helper.make_node("Neg", ["exp"], ["neg"]),
             "Abs": helper.make_node("Abs", ["b"], ["other"]), "Concat": helper.make_node("Concat", ["neg", "other"], ["y"], axis=0)}
    graph = helper.make_graph([nodes[name] for name in order.split()], "g",
                              [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["n"]),
                               helper.make_tensor_value_info("b", TensorProto.FLOAT, [other_name])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])])
    options = ort.SessionOptions()
    options.log_severity_level = 4
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


seen = []
for other_name, order in ("n", "Exp Abs Neg Concat"), ("n", "Exp Neg Abs Concat"), ("m", "Exp Abs Neg Concat"):
    for sizes in (4, 7), (7, 4):
        feeds = {name: np.zeros(size, np.float32) for name, size in zip("ab", sizes)}
        try:
            seen.append(f"{len(session(other_name, order).run(None, feeds)[0])} numbers")
        except Exception as error:
            seen.append("re-use refused" if "re-use buffer" in str(error) else str(error))
        expected = "11 numbers" if other_name == "m" else "always refused, or always 11 numbers"
        print(f"a[n], b[{other_name}] of sizes {sizes}, nodes {order}: expected {expected}, seen {seen[-1]}")
sys.exit(seen != ["re-use refused"] + ["11 numbers"] * 5)
EOF
