#!/bin/sh
# An output that ONNX Runtime made for an I/O binding is overwritten by the next run of that binding.
#
# One would expect: bind_output(name) without a buffer leaves the memory to ONNX Runtime, which makes an output for each
# run; the OrtValue from get_outputs() is the result of its run, like those of run().
# What happens: the first run makes the value and leaves it in the binding, where the second run finds it and takes it for
# a buffer of the caller's. The result that was kept changes under its holder. If the second result has another shape, the
# run fails, naming "pre-allocated" outputs, which nobody gave.
# Versions: onnxruntime 1.31.1; 1.32.0 too.
# What follows: bind the output anew before each run, or copy what is kept. weir makes a binding for each run, and counts
# its outputs until they are released.
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
graph = helper.make_graph([helper.make_node("Mul", ["x", "two"], ["y"])], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])], [numpy_helper.from_array(np.float32(2), "two")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
options = ort.SessionOptions()
options.log_severity_level = 4
session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
binding = session.io_binding()


def run(values, anew):
    if anew:
        binding.bind_output("y")
    x = np.array(values, np.float32)
    binding.bind_cpu_input("x", x)
    session.run_with_iobinding(binding)
    return binding.get_outputs()[0]


first = run([1, 2, 3], True)
run([10, 20, 30], False)
print("first result after a second run: expected [2.0, 4.0, 6.0], seen", kept := first.numpy().tolist())
try:
    print("a longer input: expected a result, seen", run([1, 2, 3, 4], False).numpy().tolist())
    refused = False
except Exception as error:
    print("a longer input: expected a result, seen", type(error).__name__)
    refused = True
second = run([5, 6, 7], True)
run([8, 9], True)
print("bound anew each time: expected [10.0, 12.0, 14.0], seen", right := second.numpy().tolist())
sys.exit(not (kept == [20, 40, 60] and refused and right == [10, 12, 14]))
EOF
