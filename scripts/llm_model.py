"""Writes models for ONNX Runtime GenAI: llamas with random weights, and a tokenizer that joins bytes.

    llm_model.py OUT [--shape tiny|small|1b] [--cache shared|concat|paged] [--type f32|f16] [--seed N] [--device cpu|cuda] [--layers N]

OUT becomes a folder with genai_config.json, model.onnx (beside it model.onnx.data, where that is large), tokenizer.json and
tokenizer_config.json. The same words give the same bytes: every matrix has a generator of its own, seeded by its name. All
caches are the same function of the same weights: shared has GroupQueryAttention write into one buffer, concat has standard
operators append to the past, and paged has PagedAttention write into blocks that GenAI's engine hands out to the sequences,
whose tokens follow one another without padding; it is for cuda and f16 alone. Without --type the device decides: f32 on a cpu,
f16 on cuda.
"""

import argparse
import concurrent.futures
import itertools
import json
import math
import os
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

FLOAT, INT32, INT64, BOOL, HALF = 1, 6, 7, 9, 10    # kinds of elements
KINDS = {"f32": (FLOAT, np.dtype("<f4")), "f16": (HALF, np.dtype("<f2"))}
IR, OPSET, MICROSOFT = 8, 17, "com.microsoft"
ROWS = 1 << 22                                      # values that are made at a time
INSIDE = 8 << 20                                    # bytes of weights up to which they lie in model.onnx
PAGE = 4096
EPSILON, THETA = 1e-5, 10000.0
BLOCK, TOGETHER = 256, 8                            # tokens in a block of a paged cache; sequences there are blocks for
SPREAD = 4.0                                        # the deviation of logits: some tokens are clearly likelier than others


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
    def head(self):
        return self.width // self.heads

    @property
    def kv_width(self):
        return self.head * self.kv_heads


SHAPES = {"tiny": Shape(2, 64, 4, 2, 192, 256, 448), "small": Shape(4, 512, 8, 4, 1536, 2048, 2000),
          "1b": Shape(16, 2048, 32, 8, 8192, 8192, 32000)}


# ---- the file's form -------------------------------------------------------------------------------------------------

def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(field, value):
    return varint(field << 3) + varint(value)


def real(field, value):
    return varint(field << 3 | 5) + struct.pack("<f", value)


def message(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def attribute(name, value):
    head = message(1, name)
    if isinstance(value, float):
        return head + real(2, value) + integer(20, 1)
    if isinstance(value, int):
        return head + integer(3, value) + integer(20, 2)
    return head + b"".join(integer(8, each) for each in value) + integer(20, 7)


def value_info(name, kind, extents):
    shape = b"".join(message(1, message(2, each) if isinstance(each, str) else integer(1, each)) for each in extents)
    return message(1, name) + message(2, message(1, integer(1, kind) + message(2, shape)))


def tensor_head(name, kind, extents):
    return b"".join(integer(1, each) for each in extents) + integer(2, kind) + message(8, name)


def entry(key, value):
    return message(13, message(1, key) + message(2, str(value)))


# ---- the graph -------------------------------------------------------------------------------------------------------

@dataclass
class Matrix:
    """Weights that are made when they are written; the columns in silent are 0."""
    name: str
    rows: int
    columns: int
    deviation: float
    silent: tuple = ()


class Graph:
    def __init__(self, kind):
        self.kind, self.dtype = KINDS[kind]
        self.nodes, self.constants, self.matrices, self.inputs, self.outputs = [], {}, [], [], []

    def input(self, name, kind, *extents):
        self.inputs.append(value_info(name, kind, extents))
        return name

    def output(self, name, kind, *extents):
        self.outputs.append(value_info(name, kind, extents))
        return name

    def constant(self, name, values, dtype=None):
        """An array that lies in model.onnx, as weights' kind unless a dtype is given; a name stands for one array."""
        kinds = {np.dtype("<i8"): INT64, np.dtype("<i4"): INT32}
        array = np.asarray(values, dtype or self.dtype)
        head = tensor_head(name, kinds.get(array.dtype, self.kind), array.shape)
        self.constants[name] = head + message(9, array.tobytes())
        return name

    def integers(self, *values):
        return self.constant("ints" + "".join(f"_{each}" for each in values), values, "<i8")

    def matrix(self, name, rows, columns, gain=1.0, silent=()):
        self.matrices.append(Matrix(name, rows, columns, gain / math.sqrt(rows), silent))
        return name

    def node(self, op, name, *inputs, outputs=None, domain="", **attributes):
        """Adds a node and answers the name of its first output, which is the node's unless outputs are given."""
        outputs = outputs or (name,)
        data = b"".join(message(1, each) for each in inputs) + b"".join(message(2, each) for each in outputs)
        data += message(3, name) + message(4, op)
        data += b"".join(message(5, attribute(*each)) for each in attributes.items())
        self.nodes.append(data + (message(7, domain) if domain else b""))
        return outputs[0]


def shared_lengths(graph, mask):
    """What GroupQueryAttention asks for: the last place of each sequence, and the longest sequence's length."""
    count = graph.node("ReduceSum", "mask/sum", mask, graph.integers(1), keepdims=0)
    last = graph.node("Sub", "mask/last", count, graph.integers(1))
    total = graph.node("Gather", "mask/total", graph.node("Shape", "mask/shape", mask),
                       graph.constant("one", 1, "<i8"), axis=0)
    return (graph.node("Cast", "seqlens_k", last, to=INT32), graph.node("Cast", "total_sequence_length", total, to=INT32))


def visible(graph, mask, ids):
    """Which places each token sees, as (batch, 1, 1, tokens, places): those up to its own that are no padding."""
    zero, one = graph.constant("zero", 0, "<i8"), graph.constant("one", 1, "<i8")
    total = graph.node("Gather", "seen/total", graph.node("Shape", "seen/places", mask), one, axis=0)
    new = graph.node("Gather", "seen/new", graph.node("Shape", "seen/tokens", ids), one, axis=0)
    past = graph.node("Sub", "seen/past", total, new)
    places = graph.node("Range", "seen/columns", zero, total, one)
    tokens = graph.node("Unsqueeze", "seen/rows", graph.node("Range", "seen/at", past, total, one), graph.integers(1))
    before = graph.node("LessOrEqual", "seen/before", places, tokens)
    real_ones = graph.node("Unsqueeze", "seen/mask", graph.node("Cast", "seen/real", mask, to=BOOL), graph.integers(1, 2, 3))
    return graph.node("And", "seen", before, real_ones)


def rotations(shape):
    """The cosines and sines by which each place turns the pairs of a head's values."""
    speeds = THETA ** (-np.arange(0, shape.head, 2, dtype=np.float64) / shape.head)
    angles = np.arange(shape.context, dtype=np.float64)[:, None] * speeds
    return np.cos(angles), np.sin(angles)


def turned(graph, name, values, cosine, sine):
    """Rotary positions: the first and the second half of each head are the pairs."""
    first, second = f"{name}/first", f"{name}/second"
    graph.node("Split", f"{name}/halves", values, outputs=(first, second), axis=-1)

    def times(part, by, half):
        return graph.node("Mul", f"{name}/{part}", half, by)

    left = graph.node("Sub", f"{name}/left", times("fc", cosine, first), times("ss", sine, second))
    right = graph.node("Add", f"{name}/right", times("sc", cosine, second), times("fs", sine, first))
    return graph.node("Concat", f"{name}/turned", left, right, axis=-1)


class Padded:
    """Sequences of a batch are rows, which are filled up to the longest: what the caches without blocks have in common."""
    rows = asked_rows = "batch_size", "sequence_length"     # of input_ids and of logits

    @staticmethod
    def extents(shape):
        """Of the keys or values of the past, and of those of the present."""
        return (("batch_size", shape.kv_heads, "past_sequence_length", shape.head),
                ("batch_size", shape.kv_heads, "total_sequence_length", shape.head))

    def asked(self, stream):
        """Of which tokens there are logits: of all."""
        return stream


class Shared(Padded):
    """GroupQueryAttention: turns, stores and attends in one operator, in a buffer that is as long as the context."""

    def __init__(self, graph, shape, ids):
        mask = graph.input("attention_mask", INT64, "batch_size", "total_sequence_length")
        cosines, sines = rotations(shape)
        self.graph, self.shape = graph, shape
        self.tables = graph.constant("cosines", cosines), graph.constant("sines", sines)
        self.lengths = shared_lengths(graph, mask)

    def attend(self, name, layer, query, key, value):
        return self.graph.node(
            "GroupQueryAttention", f"{name}/attention", query, key, value, f"past_key_values.{layer}.key",
            f"past_key_values.{layer}.value", *self.lengths, *self.tables, domain=MICROSOFT,
            outputs=(f"{name}/attention", f"present.{layer}.key", f"present.{layer}.value"), num_heads=self.shape.heads,
            kv_num_heads=self.shape.kv_heads, scale=1 / math.sqrt(self.shape.head), do_rotary=1, rotary_interleaved=0)


class Concat(Padded):
    """Standard operators: the present is the past with the new keys and values behind it."""

    def __init__(self, graph, shape, ids):
        self.graph, self.shape = graph, shape
        mask = graph.input("attention_mask", INT64, "batch_size", "total_sequence_length")
        positions = graph.input("position_ids", INT64, "batch_size", "sequence_length")
        self.turns = [graph.node("Unsqueeze", f"turns/{name}", graph.node(
            "Gather", f"turns/of_{name}", graph.constant(name, table), positions, axis=0), graph.integers(1))
            for name, table in zip(("cosines", "sines"), rotations(shape))]
        self.seen = visible(graph, mask, ids)
        self.lowest = graph.constant("lowest", float(np.finfo(graph.dtype).min))

    def split(self, name, values, heads):
        """(batch, tokens, width) as (batch, heads, tokens, head)."""
        parts = self.graph.node("Reshape", f"{name}/parts", values, self.graph.integers(0, 0, heads, self.shape.head))
        return self.graph.node("Transpose", f"{name}/heads", parts, perm=(0, 2, 1, 3))

    def stored(self, layer, what, new):
        present = self.graph.node("Concat", f"present.{layer}.{what}", f"past_key_values.{layer}.{what}", new, axis=2)
        return self.graph.node("Unsqueeze", f"layer{layer}/{what}/all", present, self.graph.integers(2))

    def attend(self, name, layer, query, key, value):
        graph, shape = self.graph, self.shape
        query = turned(graph, f"{name}/q", self.split(f"{name}/q", query, shape.heads), *self.turns)
        key = turned(graph, f"{name}/k", self.split(f"{name}/k", key, shape.kv_heads), *self.turns)
        keys = self.stored(layer, "key", key)
        values = self.stored(layer, "value", self.split(f"{name}/v", value, shape.kv_heads))
        # The heads that share keys and values are an axis of their own: (batch, kv heads, sharing, tokens, head).
        query = graph.node("Reshape", f"{name}/q/groups", query,
                           graph.integers(0, shape.kv_heads, shape.heads // shape.kv_heads, -1, shape.head))
        keys = graph.node("Transpose", f"{name}/k/turned_over", keys, perm=(0, 1, 2, 4, 3))
        scores = graph.node("Mul", f"{name}/scores", graph.node("MatMul", f"{name}/products", query, keys),
                            graph.constant("scale", 1 / math.sqrt(shape.head)))
        weights = graph.node("Softmax", f"{name}/weights",
                             graph.node("Where", f"{name}/seen", self.seen, scores, self.lowest), axis=-1)
        mixed = graph.node("MatMul", f"{name}/mixed", weights, values)
        flat = graph.node("Reshape", f"{name}/joined", mixed, graph.integers(0, shape.heads, -1, shape.head))
        across = graph.node("Transpose", f"{name}/across", flat, perm=(0, 2, 1, 3))
        return graph.node("Reshape", f"{name}/attention", across, graph.integers(0, 0, shape.width))


class Paged:
    """PagedAttention: the tokens of all sequences follow one another, and a table has the blocks of each.

    GenAI looks at the name of the logits' first extent: with batch_size they have a row for each sequence, of its last token.
    """
    rows, asked_rows = ("num_tokens",), ("batch_size",)

    def __init__(self, graph, shape, ids):
        self.graph, self.shape = graph, shape
        self.ends = graph.input("cumulative_sequence_lengths", INT32, "batch_size + 1")
        past = graph.input("past_sequence_lengths", INT32, "batch_size")
        table = graph.input("block_table", INT32, "batch_size", "max_num_blocks")
        self.bounds = graph.input("attention_metadata", INT32, 3)
        cosines, sines = rotations(shape)
        self.places = self.ends, past, table, graph.constant("cosines", cosines), graph.constant("sines", sines)

    @staticmethod
    def extents(shape):
        return (("num_blocks", BLOCK, shape.kv_heads, shape.head),) * 2

    def attend(self, name, layer, query, key, value):
        between = "slot_mapping", "head_sink", "q_norm_weight", "k_norm_weight", "k_scale", "v_scale"
        return self.graph.node(
            "PagedAttention", f"{name}/attention", query, key, value, f"past_key_values.{layer}.key",
            f"past_key_values.{layer}.value", *self.places, *("" for _ in between), self.bounds, domain=MICROSOFT,
            outputs=(f"{name}/attention", f"present.{layer}.key", f"present.{layer}.value"), num_heads=self.shape.heads,
            kv_num_heads=self.shape.kv_heads, scale=1 / math.sqrt(self.shape.head), do_rotary=1, rotary_interleaved=0)

    def asked(self, stream):
        graph = self.graph
        ends = graph.node("Slice", "ends", self.ends, graph.integers(1), graph.integers(1 << 30))
        last = graph.node("Sub", "last_of_each", ends, graph.constant("one_int32", 1, "<i4"))
        return graph.node("Gather", "last_tokens", stream, last, axis=0)


CACHES = {"shared": Shared, "concat": Concat, "paged": Paged}


def layer_of(graph, shape, cache, layer, stream):
    name, width = f"layer{layer}", shape.width

    def linear(of, part, rows, columns):
        return graph.node("MatMul", f"{name}/{part}", of, graph.matrix(f"{name}/{part}/weight", rows, columns))

    past, present = cache.extents(shape)
    for what in ("key", "value"):
        graph.input(f"past_key_values.{layer}.{what}", graph.kind, *past)
        graph.output(f"present.{layer}.{what}", graph.kind, *present)
    normed = norm(graph, f"{name}/before_attention", stream, width)
    attended = cache.attend(name, layer, linear(normed, "query", width, width),
                            linear(normed, "key", width, shape.kv_width), linear(normed, "value", width, shape.kv_width))
    stream = graph.node("Add", f"{name}/attended", stream, linear(attended, "out", width, width))
    normed = norm(graph, f"{name}/before_mlp", stream, width)
    gate = linear(normed, "gate", width, shape.wide)
    gate = graph.node("Mul", f"{name}/swish", gate, graph.node("Sigmoid", f"{name}/sigmoid", gate))
    wide = graph.node("Mul", f"{name}/gated", gate, linear(normed, "up", width, shape.wide))
    return graph.node("Add", f"{name}/done", stream, linear(wide, "down", shape.wide, width))


def norm(graph, name, values, width):
    weight = graph.constant(f"{name}/weight", np.ones(width))
    return graph.node("SimplifiedLayerNormalization", name, values, weight, axis=-1, epsilon=EPSILON, stash_type=1)


def graph_of(shape, kind, cache, silent):
    graph, way = Graph(kind), CACHES[cache]
    ids = graph.input("input_ids", INT64, *way.rows)
    graph.output("logits", FLOAT, *way.asked_rows, shape.words)
    table = graph.matrix("embedding", shape.words, shape.width, math.sqrt(shape.words))
    stream = graph.node("Gather", "embedded", table, ids, axis=0)
    made = way(graph, shape, ids)
    for layer in range(shape.layers):
        stream = layer_of(graph, shape, made, layer, stream)
    normed = norm(graph, "last_norm", made.asked(stream), shape.width)
    head = graph.matrix("head", shape.width, shape.words, SPREAD, silent)
    if graph.kind == FLOAT:
        graph.node("MatMul", "logits", normed, head)
    else:
        graph.node("Cast", "logits", graph.node("MatMul", "half_logits", normed, head), to=FLOAT)
    return graph


# ---- weights and model.onnx ------------------------------------------------------------------------------------------

def parts_of(matrix, dtype, seed):
    """A matrix's bytes, some rows at a time."""
    generator = np.random.Generator(np.random.SFC64([seed, zlib.crc32(matrix.name.encode())]))
    width = math.sqrt(12) * matrix.deviation    # of even numbers with that deviation
    step = max(1, ROWS // matrix.columns)
    for first in range(0, matrix.rows, step):
        values = generator.random((min(step, matrix.rows - first), matrix.columns), dtype=np.float32)
        values -= 0.5
        values *= width
        values[:, list(matrix.silent)] = 0
        yield values.astype(dtype).tobytes()


def write_matrix(file, at, matrix, dtype, seed):
    for data in parts_of(matrix, dtype, seed):
        os.pwrite(file, data, at)
        at += len(data)


def write_weights(path, graph, seed):
    """The matrices in a file of their own, and the initializers that name their places there."""
    initializers, places, end = [], [], 0
    for matrix in graph.matrices:
        size = matrix.rows * matrix.columns * graph.dtype.itemsize
        initializers.append(tensor_head(matrix.name, graph.kind, (matrix.rows, matrix.columns))
                            + entry("location", path.name) + entry("offset", end) + entry("length", size) + integer(14, 1))
        places.append(end)
        end += -(-size // PAGE) * PAGE
    with open(path, "wb") as file:
        file.truncate(end)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for done in [pool.submit(write_matrix, file.fileno(), at, matrix, graph.dtype, seed)
                         for at, matrix in zip(places, graph.matrices)]:
                done.result()
    return initializers


def write_model(folder, graph, seed):
    """Answers the number of parameters."""
    parameters = sum(matrix.rows * matrix.columns for matrix in graph.matrices)
    data = folder / "model.onnx.data"
    data.unlink(missing_ok=True)
    if parameters * graph.dtype.itemsize > INSIDE:
        initializers = write_weights(data, graph, seed)
    else:
        initializers = [tensor_head(matrix.name, graph.kind, (matrix.rows, matrix.columns))
                        + message(9, b"".join(parts_of(matrix, graph.dtype, seed))) for matrix in graph.matrices]
    initializers += graph.constants.values()
    body = b"".join(message(1, each) for each in graph.nodes) + message(2, "llm")
    for field, values in ((5, initializers), (11, graph.inputs), (12, graph.outputs)):
        body += b"".join(message(field, each) for each in values)
    sets = message(8, message(1, "") + integer(2, OPSET)) + message(8, message(1, MICROSOFT) + integer(2, 1))
    (folder / "model.onnx").write_bytes(integer(1, IR) + message(2, "weir") + message(7, body) + sets)
    return parameters


# ---- the tokenizer ---------------------------------------------------------------------------------------------------

SPECIAL = ("<|bos|>", "<|eos|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|im_start|>", "<|im_end|>")
BOS, EOS, PAD = 0, 1, 2
# Words that are joined first, and the syllables that fill a large vocabulary.
WORDS = ("the and of to in is was for that with as on be at by this from or it are not an have we can which one all "
         "there when their she he you his her model memory device page token cache number what how who").split()
CONSONANTS, VOWELS = "bcdfghjklmnpqrstvwxyz", "aeiou"
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
            "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def byte_symbols():
    """A visible character for each byte, as GPT-2 has it: printable ones stand for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def joints():
    """Pairs of symbols that are joined, the earlier ones first."""
    space = byte_symbols()[32]
    for word in [space + word for word in WORDS] + WORDS:
        for length in range(1, len(word)):
            yield word[:length], word[length]
    syllables = [a + b for a in CONSONANTS for b in VOWELS]
    yield from ((space, letter) for letter in CONSONANTS + VOWELS)
    yield from syllables
    yield from ((space, each) for each in syllables)
    yield from itertools.product(syllables, syllables)
    yield from ((space, a + b) for a, b in itertools.product(syllables, syllables))
    yield from ((a + b, c) for a, b, c in itertools.product(syllables, syllables, syllables))


def vocabulary(words):
    """All tokens in the order of their numbers, and the joints that lead to them."""
    tokens, merges = dict.fromkeys([*SPECIAL, *byte_symbols()]), []
    for left, right in joints():
        if len(tokens) == words:
            break
        if left + right not in tokens:
            tokens[left + right] = None
            merges.append([left, right])
    return list(tokens), merges


def silent_of(tokens):
    """The tokens that are never the likeliest: special ones and bytes that aren't ASCII text."""
    return tuple(i for i, token in enumerate(tokens) if token in SPECIAL or (
        len(token) == 1 and not token.isascii() and token != byte_symbols()[32]))


def added(number, token):
    return {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}


def tokenizer_of(tokens, merges):
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(i, token) for i, token in enumerate(SPECIAL)], "normalizer": None,
            "pre_tokenizer": level, "post_processor": level, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)}, "merges": [" ".join(pair) for pair in merges]}}


def tokenizer_config(shape):
    fixed = {str(i): {key: value for key, value in added(i, token).items() if key != "id"} for i, token in enumerate(SPECIAL)}
    return {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": False, "add_prefix_space": False,
            "clean_up_tokenization_spaces": False, "model_max_length": shape.context, "bos_token": SPECIAL[BOS],
            "eos_token": SPECIAL[EOS], "pad_token": SPECIAL[PAD], "added_tokens_decoder": fixed, "chat_template": TEMPLATE}


# ---- the folder ------------------------------------------------------------------------------------------------------

INPUTS = {"shared": ("input_ids", "attention_mask"), "concat": ("input_ids", "attention_mask", "position_ids"),
          "paged": ("input_ids", "cumulative_sequence_lengths", "past_sequence_lengths", "block_table", "attention_metadata")}


def config_of(shape, cache, device):
    inputs = {"past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value"}
    inputs.update((name, name) for name in INPUTS[cache])
    outputs = {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"}
    decoder = {"filename": "model.onnx", "head_size": shape.head, "hidden_size": shape.width,
               "num_attention_heads": shape.heads, "num_hidden_layers": shape.layers, "num_key_value_heads": shape.kv_heads,
               "session_options": {"provider_options": [{"cuda": {}}] if device == "cuda" else []},
               "inputs": inputs, "outputs": outputs}
    blocks = {"block_size": BLOCK, "num_blocks": TOGETHER * -(-shape.context // BLOCK), "max_batch_size": TOGETHER}
    return {**({"engine": {"dynamic_batching": blocks}} if cache == "paged" else {}),
            "model": {"type": "llama", "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD,
                      "vocab_size": shape.words, "context_length": shape.context, "decoder": decoder},
            "search": {"max_length": shape.context, "do_sample": False, "num_beams": 1, "top_k": 50, "top_p": 1.0,
                       "temperature": 1.0, "past_present_share_buffer": cache != "concat"}}


def write(folder, shape, cache, kind, seed, device):
    """Answers the number of parameters."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokens, merges = vocabulary(shape.words)
    for name, content in (("genai_config", config_of(shape, cache, device)), ("tokenizer", tokenizer_of(tokens, merges)),
                          ("tokenizer_config", tokenizer_config(shape))):
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return write_model(folder, graph_of(shape, kind, cache, silent_of(tokens)), seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--shape", choices=SHAPES, default="tiny")
    parser.add_argument("--cache", choices=CACHES, default="shared")
    parser.add_argument("--type", choices=KINDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--layers", type=int)
    given = parser.parse_args()
    shape = SHAPES[given.shape]
    if given.layers is not None:
        if given.layers < 1:
            parser.error("--layers must be at least 1")
        shape = replace(shape, layers=given.layers)
    if given.cache == "paged" and (given.device != "cuda" or given.type == "f32"):
        parser.error("--cache paged is for --device cuda and f16: ONNX Runtime has PagedAttention for nothing else")
    kind = given.type or ("f16" if given.device == "cuda" else "f32")
    parameters = write(given.out, shape, given.cache, kind, given.seed, given.device)
    size = sum(each.stat().st_size for each in Path(given.out).iterdir() if each.is_file())
    print(f"{given.out}: {parameters / 1e6:.1f} million parameters, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
