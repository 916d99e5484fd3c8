#!/bin/sh
# onnx.save with external data takes the weights out of the model in memory; a second save writes a model without any.
#
# One would expect: saving does not change what is saved. A program saves a model, goes on with it, and saves it again
# elsewhere.
# What happens: save_as_external_data moves each weight into the data file and leaves the object with a relative
# reference. A second onnx.save of the same object into another folder writes the references alone, with
# save_as_external_data too: the data file is not there, nothing is raised, and it is noticed where somebody loads the
# copy. numpy_helper.to_array fails on the object that was just saved.
# Versions: onnx 1.23.2.
# What follows: save a copy (CopyFrom), or load the file again after saving. weir names the missing file when such a model
# is loaded.
set -u
packages="onnx==1.23.2 numpy==2.4.6"
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
from onnx import TensorProto, helper, numpy_helper

print("onnx", onnx.__version__)
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1000]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:],
                          [numpy_helper.from_array(np.ones(1000, np.float32), "w")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
how = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
with tempfile.TemporaryDirectory() as folder:
    folders = [os.path.join(folder, name) for name in ("first", "second")]
    sizes = []
    for place in folders:
        os.mkdir(place)
        sizes.append(len(model.graph.initializer[0].raw_data))
        onnx.save(model, os.path.join(place, "m.onnx"), **how)
    listing = [sorted(os.listdir(place)) for place in folders]
    print("bytes of the weight in memory before each save: expected [4000, 4000], seen", sizes)
    print("files of the second save: expected ['m.onnx', 'weights.bin'], seen", listing[1])
    loaded = []
    for place in folders:
        try:
            loaded.append(numpy_helper.to_array(onnx.load(os.path.join(place, "m.onnx")).graph.initializer[0]).size)
        except Exception as error:
            loaded.append(type(error).__name__)
    print("values that each file gives: expected [1000, 1000], seen", loaded)
sys.exit(not (sizes == [4000, 0] and listing == [["m.onnx", "weights.bin"], ["m.onnx"]] and loaded[0] == 1000 and loaded[1] != 1000))
EOF
