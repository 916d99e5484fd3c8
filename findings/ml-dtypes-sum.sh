#!/bin/sh
# The sum of a thousand ones in bfloat16 is 256, and their mean 0.256.
#
# One would expect: what numpy does for its own small types: sums of int8 are made in int64, and the mean of float16 in
# float32, so that both are right.
# What happens: ml_dtypes' types are added in themselves, one after the other. At 256 the next bfloat16 is 258, so adding
# 1 changes nothing for ever; float8_e4m3fn stops at 16, float8_e5m2 at 8; int4 wraps around, a thousand ones are -8.
# mean, which is sum by count, follows, and so do var, std and whatever is made of them. A matrix product is right.
# Versions: ml_dtypes 0.6.0 with numpy 2.4.6.
# What follows: a check of weights by their mean says nonsense; give dtype=numpy.float32 to sum and mean. weir's Python
# hands such arrays over by their bits, and sums none.
set -u
packages="ml_dtypes==0.6.0 numpy==2.4.6"
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

print("ml_dtypes", ml_dtypes.__version__, "numpy", np.__version__)
seen = {}
for kind in np.float16, np.int8, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4:
    ones = np.ones(1000, kind)
    name = np.dtype(kind).name
    seen[name] = float(ones.sum()), round(float(ones.mean()), 3)
    print(f"1000 ones of {name}: expected sum 1000, mean 1; seen sum {seen[name][0]:g}, mean {seen[name][1]:g}")
ones = np.ones((1000, 1), ml_dtypes.bfloat16)
wide = float(ones.sum(dtype=np.float32)), float((ones.T @ ones)[0, 0])
print("bfloat16, with dtype=float32 and as a matrix product: expected 1000, seen", wide)
sys.exit(seen != {"float16": (1000, 1), "int8": (1000, 1),
                  "bfloat16": (256, 0.256), "float8_e4m3fn": (16, 0.016), "float8_e5m2": (8, 0.008), "int4": (-8, 0)}
         or wide != (1000, 1000))
EOF
