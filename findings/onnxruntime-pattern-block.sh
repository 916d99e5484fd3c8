#!/bin/sh
# Without prepacking ONNX Runtime reserves a block as large as all weights, and never writes a byte of it.
#
# One would expect: session.disable_prepacking is how memory is saved, as weights are then not held a second time in
# packed form; and the memory pattern plans activations, which are few here.
# What happens: with both (the pattern is on by default) a session asks its allocator for one block of the size of all
# weights, which were read into memory of their own already, and keeps it for life. The system never backs it with pages,
# so RSS does not show it; a device's allocator, an allocator with a budget or a limit on address space takes it for real.
# Versions: onnxruntime 1.31.1 on the CPU; from 1.23 to 1.32.0.
# What follows: switch the memory pattern off together with prepacking. weir does so by itself, as such a block would
# count against the model's budget.
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
import os
import re
import sys
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

print("onnxruntime", ort.__version__)
side, layers = 2048, 6
weights = [numpy_helper.from_array(np.full((side, side), 1 / side, np.float32), f"w{i}") for i in range(layers)]
nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(layers)]
ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, side]) for name in ("x0", f"x{layers}")]
model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights),
                          opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
del weights
size = side * side * 4 * layers >> 20


def status(key):
    with open("/proc/self/status") as file:
        return int(re.search(key + r":\s+(\d+)", file.read()).group(1)) >> 10


def taken(pattern, prepack):
    """MiB of addresses and of memory that a session takes, in a process of its own."""
    read, write = os.pipe()
    if not os.fork():
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = pattern
        options.add_session_config_entry("session.disable_prepacking", "0" if prepack else "1")
        before = status("VmSize"), status("VmRSS")
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for _ in range(2):
            session.run(None, {"x0": np.ones((1, side), np.float32)})
        os.write(write, f"{status('VmSize') - before[0]} {status('VmRSS') - before[1]}".encode())
        os._exit(0)
    os.wait()
    return tuple(map(int, os.read(read, 100).split()))


print(f"weights: {size} MiB. expected without prepacking: as much memory with the pattern as without it")
seen = {(pattern, prepack): taken(pattern, prepack) for prepack in (True, False) for pattern in (False, True)}
for (pattern, prepack), (addresses, memory) in seen.items():
    state = f"prepacking {'on' if prepack else 'off'}, pattern {'on' if pattern else 'off'}"
    print(f"seen: {state}: {addresses} MiB of addresses, {memory} MiB resident")
more = [b - a for a, b in zip(seen[False, False], seen[True, False])]
print(f"the pattern alone: {more[0]} MiB of addresses, {more[1]} MiB resident")
sys.exit(not (0.9 * size < more[0] < 1.2 * size and more[1] < 0.1 * size))
EOF
