#!/bin/sh
# A numpy array of int4 becomes other numbers in an OrtValue, with zeros between them.
#
# One would expect: OrtValue.ortvalue_from_numpy_with_onnx_type is there for types that numpy does not have itself. With
# ml_dtypes' bfloat16 and float8 it gives the numbers of the array, and so it does with ml_dtypes' int4; or refuses it.
# What happens: ml_dtypes holds an int4 in a byte of its own, ONNX Runtime two of them in one, and the memory is taken as
# it is: 1, -2, 3, 4 becomes 1, 0, -2, 0, and the second half is dropped. Nor does packing before help: the shape is that
# of the array, which then is half as long.
# Versions: onnxruntime 1.31.1 with ml_dtypes 0.6.0; 1.32.0 too.
# What follows: give int8 and let the graph cast, or put 4-bit data into the model as an initializer. weir's tensors have
# no type below eight bits.
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
from onnx import TensorProto, helper

print("onnxruntime", ort.__version__, "ml_dtypes", ml_dtypes.__version__)


def through(kind, array):
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], "g",
                              [helper.make_tensor_value_info("x", kind, [None])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, kind)
    return session.run_with_ort_values(None, {"x": value})[0].numpy().tolist()


numbers = [1, 2, 3, 4, 5, 6]
seen = {}
for name, kind, small in (("bfloat16", TensorProto.BFLOAT16, ml_dtypes.bfloat16),
                          ("float8_e4m3fn", TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
                          ("int4", TensorProto.INT4, ml_dtypes.int4), ("uint4", TensorProto.UINT4, ml_dtypes.uint4)):
    seen[name] = through(kind, np.array(numbers).astype(small))
    print(f"{name}: expected {numbers}, seen {seen[name]}")
packed = through(TensorProto.UINT4, np.array([0x21, 0x43, 0x65], np.uint8))
print(f"uint4, packed before: expected {numbers}, seen {packed}")
sys.exit(not (seen["bfloat16"] == seen["float8_e4m3fn"] == numbers
              and seen["int4"] == seen["uint4"] == [1, 0, 2, 0, 3, 0] and packed == [1, 2, 3]))
EOF
