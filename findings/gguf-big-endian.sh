#!/bin/sh
# Two tools of the gguf package make different big-endian files of one model, and its dequantize reads half of each.
#
# One would expect: GGUFWriter(endianess=BIG) and gguf-convert-endian agree on what a big-endian file is, and what
# GGUFReader gives, gguf.quants.dequantize understands.
# What happens: the converter swaps the scale of each quantized block, and bfloat16; the writer swaps arrays of float16
# and float32 alone, and leaves blocks and bfloat16, which it has as bytes, little-endian in a file that says big.
# dequantize takes the writer's blocks for right, so a round trip on one machine passes; the converter's scales it reads
# reversed, and float16 and float32 of either file, whose dtype GGUFReader has marked rightly, become garbage as well.
# Versions: gguf 0.19.0, on a little-endian machine.
# What follows: make big-endian files by the converter, and swap back before numbers are looked at. weir takes
# little-endian files alone.
set -u
packages="gguf==0.19.0 numpy==2.4.6"
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
if ! { python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install --quiet --disable-pip-version-check $packages; } >&2; then
    echo "not tried: $packages cannot be had here"
    exit 77
fi
"$folder/venv/bin/python" - <<'EOF'
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import numpy as np
import gguf
from gguf import GGMLQuantizationType as Kind, quants

print("gguf", importlib.metadata.version("gguf"))
values = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 32)
kinds = [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0]


def written(path, order):
    writer = gguf.GGUFWriter(path, "llama", endianess=order)
    for kind in kinds:
        plain = {Kind.F32: values, Kind.F16: values.astype(np.float16)}.get(kind)
        writer.add_tensor(kind.name, quants.quantize(values, kind) if plain is None else plain, raw_dtype=kind if plain is None else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def right(tensor):
    with np.errstate(all="ignore"):
        return bool(np.allclose(quants.dequantize(tensor.data, tensor.tensor_type), values, atol=0.01))


with tempfile.TemporaryDirectory() as folder:
    little = written(os.path.join(folder, "little.gguf"), gguf.GGUFEndian.LITTLE)
    before = {tensor.name: right(tensor) for tensor in gguf.GGUFReader(little).tensors}
    big = written(os.path.join(folder, "big.gguf"), gguf.GGUFEndian.BIG)
    subprocess.run([os.path.join(os.path.dirname(sys.executable), "gguf-convert-endian"), little, "big"], input="YES\n", text=True,
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    writers, converters = gguf.GGUFReader(big).tensors, gguf.GGUFReader(little).tensors
    print("little-endian, dequantize is right:", before)
    seen = {}
    for a, b in zip(writers, converters):
        seen[a.name] = a.data.tobytes() == b.data.tobytes(), right(a), right(b)
        print(f"{a.name}: expected equal bytes, both dequantized rightly; seen {'equal' if seen[a.name][0] else 'other'} bytes, "
              f"the writer's {'right' if seen[a.name][1] else 'garbage'}, the converter's {'right' if seen[a.name][2] else 'garbage'}")
plain, blocks = (True, False, False), (False, True, False)
sys.exit(not all(before.values()) or seen != {"F32": plain, "F16": plain, "BF16": blocks, "Q8_0": blocks})
EOF
