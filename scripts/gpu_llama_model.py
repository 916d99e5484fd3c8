"""Writes GGUF files of llamas with random weights, for scripts/gpu-llama: a billion parameters in some seconds.

    gpu_llama_model.py OUT [--type f16|q8_0] [--shape 1b|small] [--seed N]

The same words give the same bytes: every matrix has a generator of its own, seeded by its name.
"""

import argparse
import concurrent.futures
import math
import os
import struct
import zlib
from dataclasses import dataclass

import numpy as np

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
U32, I32, F32, TEXT, ARRAY = 4, 5, 6, 8, 9      # kinds of keys
TYPES = {"f32": 0, "f16": 1, "q8_0": 8}         # of tensors
FILE_TYPES = {"f16": 1, "q8_0": 7}
BLOCK = 32                                      # values of q8_0 that share a scale
ROWS = 1 << 22                                  # values that are made at a time
UNKNOWN, CONTROL, NORMAL, BYTE = 2, 3, 1, 6     # kinds of tokens


@dataclass
class Shape:
    layers: int
    width: int
    heads: int
    kv_heads: int
    wide: int
    context: int
    words: int

    @property
    def kv_width(self):
        return self.width // self.heads * self.kv_heads


SHAPES = {"1b": Shape(16, 2048, 32, 8, 8192, 32768, 32000), "small": Shape(4, 256, 4, 2, 768, 4096, 2000)}


# ---- keys ------------------------------------------------------------------------------------------------------------

def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def number(name, value):
    return key(name, U32, struct.pack("<I", value))


def array(name, kind, count, values):
    return key(name, ARRAY, struct.pack("<IQ", kind, count) + values)


def vocabulary(words):
    """As SentencePiece has it: three marks, the bytes, and words that never join into others."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    tokens += [f"\u2581w{i}" for i in range(words - len(tokens))]
    kinds += [NORMAL] * (words - len(kinds))
    return [key("tokenizer.ggml.model", TEXT, text("llama")),
            array("tokenizer.ggml.tokens", TEXT, words, b"".join(map(text, tokens))),
            array("tokenizer.ggml.scores", F32, words, np.arange(0, -words, -1, dtype="<f4").tobytes()),
            array("tokenizer.ggml.token_type", I32, words, np.array(kinds, dtype="<i4").tobytes()),
            number("tokenizer.ggml.bos_token_id", 1), number("tokenizer.ggml.eos_token_id", 2),
            number("tokenizer.ggml.unknown_token_id", 0)]


def keys(shape, kind):
    return [key("general.architecture", TEXT, text("llama")),
            key("general.name", TEXT, text("a llama with random weights")),
            number("general.file_type", FILE_TYPES[kind]),
            number("llama.vocab_size", shape.words), number("llama.context_length", shape.context),
            number("llama.embedding_length", shape.width), number("llama.block_count", shape.layers),
            number("llama.feed_forward_length", shape.wide), number("llama.attention.head_count", shape.heads),
            number("llama.attention.head_count_kv", shape.kv_heads),
            key("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)),
            number("llama.rope.dimension_count", shape.width // shape.heads), *vocabulary(shape.words)]


# ---- tensors ---------------------------------------------------------------------------------------------------------

def tensors(shape, kind):
    """(name, rows, columns, type, deviation); a vector has one row, and is 1 throughout."""
    def matrix(name, rows, columns, gain=1.0):
        return name, rows, columns, kind, gain / math.sqrt(columns)

    def norm(name):
        return name, 1, shape.width, "f32", 0.0

    yield matrix("token_embd.weight", shape.words, shape.width, math.sqrt(shape.width))
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        yield norm(f"{block}.attn_norm.weight")
        yield matrix(f"{block}.attn_q.weight", shape.width, shape.width)
        yield matrix(f"{block}.attn_k.weight", shape.kv_width, shape.width)
        yield matrix(f"{block}.attn_v.weight", shape.kv_width, shape.width)
        yield matrix(f"{block}.attn_output.weight", shape.width, shape.width)
        yield norm(f"{block}.ffn_norm.weight")
        yield matrix(f"{block}.ffn_gate.weight", shape.wide, shape.width)
        yield matrix(f"{block}.ffn_up.weight", shape.wide, shape.width)
        yield matrix(f"{block}.ffn_down.weight", shape.width, shape.wide)
    yield norm("output_norm.weight")
    # Logits with a deviation of 3: some tokens are clearly likelier than others, whatever rounds them.
    yield matrix("output.weight", shape.words, shape.width, 3.0)


def size_of(rows, columns, kind):
    return rows * columns // BLOCK * (2 + BLOCK) if kind == "q8_0" else rows * columns * (4 if kind == "f32" else 2)


def quantised(values):
    """A scale of f16, and 32 integers of a byte, for each block."""
    blocks = values.reshape(-1, BLOCK)
    scales = (np.abs(blocks).max(axis=1) / 127).astype("<f2")
    inverse = 1 / np.maximum(scales.astype(np.float32), 1e-8)
    packed = np.empty(len(blocks), dtype=[("scale", "<f2"), ("values", "i1", BLOCK)])
    packed["scale"] = scales
    packed["values"] = np.clip(np.rint(blocks * inverse[:, None]), -127, 127)
    return packed


def write_tensor(file, at, seed, name, rows, columns, kind, deviation):
    """Its bytes at their place, a part at a time."""
    if kind == "f32":
        os.pwrite(file, np.ones(rows * columns, "<f4").tobytes(), at)
        return
    generator = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))
    width = math.sqrt(12) * deviation  # of even numbers with that deviation
    for first in range(0, rows * columns, ROWS):
        values = generator.random(min(ROWS, rows * columns - first), dtype=np.float32)
        values -= 0.5
        values *= width
        data = quantised(values) if kind == "q8_0" else values.astype("<f2")
        os.pwrite(file, data.tobytes(), at)
        at += data.nbytes


def write(path, shape, kind, seed):
    entries, directory, offset = list(tensors(shape, kind)), b"", 0
    places = []
    for name, rows, columns, of, _ in entries:
        extents = (columns,) if rows == 1 else (columns, rows)
        directory += text(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, TYPES[of], offset)
        places.append(offset)
        offset += -(-size_of(rows, columns, of) // ALIGNMENT) * ALIGNMENT
    known = keys(shape, kind)
    head = MAGIC + struct.pack("<IQQ", VERSION, len(entries), len(known)) + b"".join(known) + directory
    head += bytes(-len(head) % ALIGNMENT)
    with open(path, "wb") as file:
        file.truncate(len(head) + offset)
        file.write(head)
        file.flush()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for done in [pool.submit(write_tensor, file.fileno(), len(head) + at, seed, *entry)
                         for at, entry in zip(places, entries)]:
                done.result()
    return sum(rows * columns for _, rows, columns, _, _ in entries), len(head) + offset


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--type", choices=FILE_TYPES, default="f16")
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    parameters, size = write(given.out, SHAPES[given.shape], given.type, given.seed)
    print(f"{given.out}: {parameters / 1e6:.1f} million parameters, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
