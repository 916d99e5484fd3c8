#!/usr/bin/env bash
# ONNX Runtime resolves the path of a file of weights three times for every weight in it.
#
# One would expect: weights that lie in a file beside the model ("external data", which models of over 2 GB must use) name that file, and
# a load checks once that the file lies in the model's folder, however many weights it holds.
# What happens: each weight is checked by itself, with three calls of realpath, and each call asks the system about every folder of the
# path. A model of 400 weights in one file makes 1,200 of them. Weights inside the model make none.
# Versions: onnxruntime 1.31.1, whose calls are counted by a library that is preloaded; the model is made by onnx 1.23.2.
# What follows: the time of a load grows with the number of weights times the depth of the folder, most on a file system over a network. A
# model of less than 2 GB is better saved as one file. weir answers for a model's own files, which it has opened behind all links.
set -u
packages="onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6"
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
cat >"$folder/count.c" <<'EOF'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>

static atomic_long calls;

long calls_of_realpath(void)
{
    return atomic_exchange(&calls, 0);
}

char *realpath(const char *path, char *room)
{
    char *(*next)(const char *, char *) = (char *(*)(const char *, char *))dlsym(RTLD_NEXT, "realpath");
    atomic_fetch_add(&calls, 1);
    return next(path, room);
}
EOF
if ! { "${CC:-cc}" -shared -fPIC -o "$folder/count.so" "$folder/count.c" -ldl && python3 -m venv "$folder/venv" &&
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check $packages; } >&2; then
    echo "not tried: a C compiler or $packages cannot be had here"
    exit 77
fi
cd "$folder" || exit 77
LD_PRELOAD="$folder/count.so" "$folder/venv/bin/python" - <<'EOF'
import ctypes
import sys
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

print("onnx", onnx.__version__, "onnxruntime", ort.__version__)
calls = ctypes.CDLL("./count.so").calls_of_realpath
calls.restype = ctypes.c_long
FLOATS = 64


def load(count, outside):
    """How often realpath is called while a chain of additions is loaded, and what it answers."""
    weights = [numpy_helper.from_array(np.full(FLOATS, i, np.float32), f"w{i}") for i in range(count)]
    nodes = [helper.make_node("Add", [f"x{i}" if i else "x", f"w{i}"], [f"x{i + 1}"]) for i in range(count)]
    of = [FLOATS]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, of)],
                              [helper.make_tensor_value_info(f"x{count}", TensorProto.FLOAT, of)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    name = f"{'outside' if outside else 'inside'}{count}.onnx"
    onnx.save(model, name, save_as_external_data=outside, all_tensors_to_one_file=True, location=f"{name}.data", size_threshold=0)
    onnx.checker.check_model(name)
    calls()
    session = ort.InferenceSession(name, providers=["CPUExecutionProvider"])
    made = calls()
    return made, float(session.run(None, {"x": np.zeros(FLOATS, np.float32)})[0][0])


as_described = True
for count in (100, 400):
    (inside, one), (outside, other) = load(count, False), load(count, True)
    print(f"{count} weights: {inside} calls of realpath with all inside the model, {outside} with all in one file beside it")
    as_described &= one == other == count * (count - 1) / 2 and inside <= 3 and 3 * count <= outside <= 3 * count + 10
print("as described" if as_described else "NOT as described: look at it again")
sys.exit(not as_described)
EOF
