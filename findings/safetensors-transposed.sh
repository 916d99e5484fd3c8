#!/bin/sh
# safetensors writes a transposed numpy array with its numbers in another order.
#
# One would expect: safetensors.numpy.save(x) and load give x back, whatever its strides, as numpy's own save does, or
# refuse it, as safetensors.torch does for what is not contiguous.
# What happens: the bytes are taken from the array's memory in the order in which they lie there, and the shape from the
# array. x.T, a Fortran-ordered array and a slice of columns come back with the right shape and wrong numbers, silently.
# Versions: safetensors 0.8.0; 0.7.0 wrote the right numbers.
# What follows: numpy.ascontiguousarray before saving; files that 0.8.0 wrote from transposed weights are to be made
# again. weir's Python copies what is not in row-major order before it takes the bytes.
set -u
packages="safetensors==0.8.0 numpy==2.4.6"
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
if ! { python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install --quiet --disable-pip-version-check $packages; } >&2; then
    echo "not tried: $packages cannot be had here"
    exit 77
fi
"$folder/venv/bin/python" - <<'EOF'
import io
import sys
import numpy as np
import safetensors
from safetensors.numpy import load, save

print("safetensors", safetensors.__version__, "numpy", np.__version__)
x = np.arange(6, dtype=np.float32).reshape(2, 3)
as_described = True
for name, array, equal in (("in C's order", x, True), ("transposed", x.T, False), ("in Fortran's order", np.asfortranarray(x), False),
                           ("first two columns", x[:, :2], False), ("first row", x[:1], True)):
    seen = load(save({"x": array}))["x"]
    file = io.BytesIO()
    np.save(file, array)
    file.seek(0)
    assert np.array_equal(np.load(file), array)  # numpy's own
    print(f"{name}: expected {array.tolist()}, seen {seen.tolist()}")
    as_described &= seen.shape == array.shape and np.array_equal(seen, array) == equal
sys.exit(not as_described)
EOF
