"""What onnx does not compute: the operators of ONNX Runtime in the models of scripts/llm_model.py, as their documentation has them.

PagedAttention's is in ContribOperators.md of ONNX Runtime.
"""

import numpy as np
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class SimplifiedLayerNormalization(OpRun):
    def _run(self, values, scale, axis=None, epsilon=None, stash_type=None):
        wide = values.astype(np.float32)
        return ((wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + epsilon)).astype(values.dtype) * scale,)


def turned(heads, cosine, sine):
    first, second = np.split(heads, 2, axis=-1)
    return np.concatenate([cosine * first - sine * second, cosine * second + sine * first], axis=-1)


class PagedAttention(OpRun):
    op_domain = "com.microsoft"

    def _run(self, query, key, value, keys, values, ends, past, table, cosines, sines, *rest, num_heads=None, kv_num_heads=None,
             scale=None, do_rotary=None, rotary_interleaved=None):
        if [each is None for each in rest] != [True] * 6 + [False] or rest[6].shape != (3,) or not do_rotary or rotary_interleaved:
            raise ValueError("the inputs behind the tables, or the attributes, are others")
        keys, values, out = keys.copy(), values.copy(), np.empty_like(query)
        size, head = keys.shape[1], keys.shape[3]
        for i, (first, end) in enumerate(zip(ends, ends[1:])):
            for token in range(first, end):
                place = past[i] + token - first
                at, turn = (table[i][place // size], place % size), (cosines[place], sines[place])
                keys[at] = turned(key[token].reshape(kv_num_heads, head), *turn)
                values[at] = value[token].reshape(kv_num_heads, head)
                seen = [(table[i][each // size], each % size) for each in range(place + 1)]
                group = turned(query[token].reshape(num_heads, head), *turn).reshape(kv_num_heads, -1, head)
                scores = np.einsum("kgh,pkh->kgp", group, np.stack([keys[each] for each in seen])) * scale
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                out[token] = np.einsum("kgp,pkh->kgh", weights, np.stack([values[each] for each in seen])).reshape(-1)
        return out, keys, values


def evaluator(path):
    """Answers a function of inputs by name to outputs by name."""
    made = ReferenceEvaluator(str(path), new_ops=[SimplifiedLayerNormalization, PagedAttention])
    return lambda inputs: dict(zip(made.output_names, made.run(None, inputs)))
