#!/bin/sh
# On the CPU jax.device_put copies a numpy array or goes on using its memory, up to its address, may_alias=False or not.
#
# One would expect: what the function's text says, "a copy of x", and that may_alias=False forces one; so that a buffer
# may be written again when the array is ready. Or else that memory is always shared, which a test would tell.
# What happens: where the numpy array begins at a multiple of 64 bytes its memory is JAX's array, and a later write
# changes that array, with may_alias=False, too; elsewhere it is copied. numpy aligns to 16, so it is a matter of luck:
# the test passes, and the buffer that is filled anew for each batch is wrong now and then. from_dlpack is the same: asked
# for in order to save the copy, it copies without a word what does not lie at 64.
# Versions: jax and jaxlib 0.10.2 with numpy 2.4.6.
# What follows: jax.numpy.array where the buffer is written again; an aligned buffer where no copy is wanted. weir's
# blocks begin at multiples of 256, so JAX takes them as they are.
set -u
packages="jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6"
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
import jax
import jax.numpy as jnp

print("jax", jax.__version__, "numpy", np.__version__)


def at(offset):
    """16 zeros that begin that many bytes behind a multiple of 64."""
    memory = np.zeros(16 * 4 + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    return memory[begin:begin + 64].view(np.float32)


def shared(make, offset):
    array = at(offset)
    taken = make(array)
    taken.block_until_ready()
    array[:] = 7
    return float(taken[0]) == 7


ways = {"device_put": jax.device_put, "device_put, may_alias=False": lambda a: jax.device_put(a, may_alias=False),
        "jax.numpy.array": jnp.array, "jax.dlpack.from_dlpack": jax.dlpack.from_dlpack}
EXPECTED = {"device_put, may_alias=False": ", False", "jax.numpy.array": ", False"}
seen = {name: [shared(make, offset) for offset in (0, 16, 32, 48)] for name, make in ways.items()}
for name, answers in seen.items():
    print(f"{name}: shared at 0, 16, 32, 48 bytes behind a multiple of 64: expected the same at each{EXPECTED.get(name, '')}, seen {answers}")
mixed, never = [True, False, False, False], [False] * 4
sys.exit(list(seen.values()) != [mixed, mixed, never, mixed])
EOF
