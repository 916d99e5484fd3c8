#!/usr/bin/env bash
# The mean of a thousand ones is 0.256 if numpy computes it of bfloat16, and 0.016 of float8.
#
# One would expect: numpy sums numbers of a narrow type in a wider one, or at least pairwise, as it does with its own
# float16, of which the mean is 1.0; and a type that numpy prints, compares and multiplies like that one is summed like it.
# What happens: for the types of ml_dtypes each partial sum is rounded to the narrow type, one number after the other. It
# stops growing where a 1 is less than half a step: 256 of bfloat16, 16 of float8_e4m3fn, 8 of float8_e5m2, for sum, mean,
# cumsum, and for the variance and the norm that are built of them: the variance of ones is 0.26. A product a @ a of the same
# bfloat16 numbers is 1000, as it is summed in a wider type.
# Versions: numpy 2.4.6 with ml_dtypes 0.6.0 (also 0.5.4).
# What follows: compare weights or activations of bfloat16 by their mean, or normalise by their sum, only after
# astype(float32). weir reads no numbers of a tensor; its tests compare bytes.
set -u
packages="numpy==2.4.6 ml_dtypes==0.6.0"
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
if ! { python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install --quiet --disable-pip-version-check $packages; } >&2; then
    echo "not tried: $packages cannot be had here"
    exit 77
fi
"$folder/venv/bin/python" - <<'EOF'
import sys
import ml_dtypes
import numpy as np

print("numpy", np.__version__, "ml_dtypes", ml_dtypes.__version__)
seen = {}
for kind in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
    ones = np.ones(1000, kind)
    seen[kind] = float(ones.sum()), float(ones.mean()), float(ones.cumsum()[-1]), float(ones.var())
    print(f"{np.dtype(kind).name:14} sum {seen[kind][0]:6g}  mean {seen[kind][1]:8g}  cumsum {seen[kind][2]:6g}  var {seen[kind][3]:8g}")
ones = np.ones(1000, ml_dtypes.bfloat16)
product = float(ones @ ones)
print("bfloat16, a @ a:", product)
as_described = (seen[np.float16] == (1000, 1, 1000, 0) and product == 1000
                and seen[ml_dtypes.bfloat16] == (256, 0.255859375, 256, 0.255859375)
                and seen[ml_dtypes.float8_e4m3fn] == (16, 0.015625, 16, 0.015625)
                and seen[ml_dtypes.float8_e5m2] == (8, 0.0078125, 8, 0.0078125))
print("as described" if as_described else "NOT as described: look at it again")
sys.exit(0 if as_described else 1)
EOF
