#!/usr/bin/env bash
# A NaN in an array of bfloat16 makes numpy's sort leave the other numbers unsorted: 3 1 NaN 2 becomes 1 3 NaN 2.
#
# One would expect: NaN comes last and all other numbers are in order, as numpy documents it and does for float16, float32 and
# float64; median, percentile, unique, searchsorted and partition build on that.
# What happens: for the types of ml_dtypes a NaN is equal to every number while numpy sorts. It stays where it is met, and
# parts the array: what is before it is not compared with what is after it. argsort gives an order that sorts nothing, and
# unique tells equal numbers several times.
# Versions: numpy 2.4.6 with ml_dtypes 0.6.0 (also 0.5.4).
# What follows: the largest logits of bfloat16, taken by sort or argsort, can be any others once one is NaN; sort in
# float32. weir sorts no numbers of a tensor.
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


def in_order(array):
    """Whether NaN comes last and the rest is sorted."""
    array = array.astype(np.float32)
    count = int(np.isnan(array).sum())
    rest = array[:len(array) - count]
    return not np.isnan(rest).any() and bool((rest[1:] >= rest[:-1]).all())


def seen(kind):
    random, bad = np.random.default_rng(5), 0
    for _ in range(100):
        numbers = random.integers(0, 16, 12).astype(np.float32)
        numbers[random.integers(0, 12)] = np.nan
        bad += not in_order(np.sort(numbers.astype(kind)))
    few = np.array([3, 1, np.nan, 2], np.float32).astype(kind)
    many = np.array([2, np.nan, 1, 2], np.float32).astype(kind)
    return bad, np.sort(few).astype(np.float32).tolist(), np.argsort(few).tolist(), np.unique(many).astype(np.float32).tolist()


found = {kind: seen(kind) for kind in (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)}
for kind, (bad, few, order, unique) in found.items():
    print(f"{np.dtype(kind).name:14} unsorted: {bad:3} of 100; 3 1 NaN 2: sort {few}, argsort {order}; 2 NaN 1 2: unique {unique}")
own, wide = found[np.float16], found[ml_dtypes.bfloat16]
as_described = (own[0] == 0 and own[2] == [1, 3, 0, 2] and len(own[3]) == 3 and wide[0] > 50 and wide[2] == [1, 0, 2, 3]
                and found[ml_dtypes.float8_e4m3fn][0] > 50 and len(wide[3]) == 4)
print("as described" if as_described else "NOT as described: look at it again")
sys.exit(0 if as_described else 1)
EOF
