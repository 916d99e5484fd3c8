#!/usr/bin/env bash
# onnx.version_converter makes other numbers of a Resize, an Upsample or a Hardmax, and says nothing.
#
# One would expect: converted from opset 10 or 11 to a newer one, a model computes what it did before, or the converter
# refuses it. Where a default has changed it writes down the old one, as it does for RoiAlign; where axes mean something
# else it reshapes, as it does for Softmax.
# What happens: Resize-11 took half_pixel for its default where Resize-10 knew asymmetric alone. The converter passes the
# node on as it is, and every image that is enlarged or made smaller comes out shifted; an Upsample, which becomes a
# Resize, likewise. Hardmax-13 looks at one axis where Hardmax-11 looked at all behind it, and it is passed on as it is.
# Versions: onnx 1.23.2 with onnxruntime 1.31.1, which computes both models.
# What follows: a detector that was exported years ago and "only converted" finds boxes half a pixel off. Compare outputs
# after a conversion. weir converts nothing.
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
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper, version_converter

print("onnx", onnx.__version__, "onnxruntime", ort.__version__)
ramp = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
twice = np.array([1, 1, 1, 2], np.float32)
square = np.array([[[1, 3], [2, 0]]], np.float32)


def answers(operator, opset, newer, x, scales=None, **attributes):
    """The node's output before and after a conversion."""
    weights = [] if scales is None else [numpy_helper.from_array(scales, "scales")]
    node = helper.make_node(operator, ["x", *(w.name for w in weights)], ["y"], **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * x.ndim)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    both = []
    for each in (model, version_converter.convert_version(model, newer)):
        session = ort.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"])
        both.append(session.run(None, {"x": x})[0].ravel().tolist())
    return both


as_described = True
for changes, *case in ((True, ("Resize", 10, 11, ramp, twice), {"mode": "linear"}),
                       (True, ("Upsample", 9, 13, ramp, twice), {"mode": "linear"}),
                       (True, ("Hardmax", 11, 13, square), {}),
                       (False, ("Softmax", 11, 13, square), {})):
    words, attributes = case
    before, after = answers(*words, **attributes)
    print(f"{words[0]} from {words[1]} to {words[2]}: {np.round(before, 3).tolist()} becomes {np.round(after, 3).tolist()}")
    as_described &= (not np.allclose(before, after)) == changes
print("as described" if as_described else "NOT as described: look at it again")
sys.exit(not as_described)
EOF
