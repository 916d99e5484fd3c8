#!/usr/bin/env python3
"""The reference: all-MiniLM-L6-v2 in plain NumPy and double precision.

    minilm.py SENTENCES.txt OUT.npy    one sentence a line; OUT is float64 [n, 384], rows of length 1

It shares nothing with the ONNX and GGUF files but the published weights, so both
engines can be held against it. Run with the store's Python (scripts/models makes it).
"""

import json
import math
import os
import struct
import sys

try:
    import numpy as np
except ImportError:
    np = None

HEADS, EPSILON = 12, 1e-12


def models_folder():
    home = os.environ.get("WEIR_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "weir")
    return os.path.join(home, "models")


def load_weights(path):
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], "<f4")
            .reshape(entry["shape"]).astype(np.float64)
            for name, entry in header.items()
            if name != "__metadata__" and entry["dtype"] == "F32"}


def load_tokenizer(path):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(path)
    # The published file cuts and pads to 128 tokens; a sentence is its own tokens here.
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    return tokenizer


def erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


class MiniLM:
    def __init__(self, folder=None):
        folder = folder or models_folder()
        self.weights = load_weights(os.path.join(folder, "minilm.safetensors"))
        self.tokenizer = load_tokenizer(os.path.join(folder, "minilm-tokenizer.json"))

    def _dense(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((centred ** 2).mean(-1, keepdims=True) + EPSILON)
        return centred / spread * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def _attention(self, x, name):
        def heads(part):
            y = self._dense(x, f"{name}.self.{part}")
            return y.reshape(len(x), HEADS, -1).swapaxes(0, 1)
        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1])
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return self._dense((shares @ value).swapaxes(0, 1).reshape(x.shape), f"{name}.output.dense")

    def hidden(self, ids):
        """Token ids of one sentence to its last hidden state [tokens, 384]."""
        w = self.weights
        x = (w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][0]
             + w["embeddings.position_embeddings.weight"][: len(ids)])
        x = self._norm(x, "embeddings.LayerNorm")
        number = 0
        while f"encoder.layer.{number}.output.dense.weight" in w:
            name = f"encoder.layer.{number}"
            x = self._norm(x + self._attention(x, name + ".attention"), name + ".attention.output.LayerNorm")
            y = self._dense(x, name + ".intermediate.dense")
            y = y * 0.5 * (1 + erf(y / math.sqrt(2)))
            x = self._norm(x + self._dense(y, name + ".output.dense"), name + ".output.LayerNorm")
            number += 1
        return x

    def token_ids(self, sentence):
        return self.tokenizer.encode(sentence).ids

    def embed(self, sentences):
        """The sentence embeddings [n, 384]: mean over the tokens, length 1."""
        rows = [self.hidden(self.token_ids(sentence)).mean(0) for sentence in sentences]
        return np.array([row / np.linalg.norm(row) for row in rows]).reshape(len(rows), -1)


def embed(sentences, folder=None):
    return MiniLM(folder).embed(sentences)


def main(arguments):
    if len(arguments) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    with open(arguments[0], encoding="utf-8") as file:
        sentences = [line for line in file.read().split("\n") if line]
    np.save(arguments[1], embed(sentences))
    return 0


if __name__ == "__main__":
    python = os.path.join(os.path.dirname(models_folder()), "venv", "bin", "python")
    if np is None and os.path.exists(python) and os.path.realpath(sys.prefix) != os.path.realpath(
            os.path.dirname(os.path.dirname(python))):
        os.execv(python, [python, *sys.argv])
    sys.exit(main(sys.argv[1:]))
