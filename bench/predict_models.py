#!/usr/bin/env python3
"""Writes models of usual kinds with random weights into a folder, for bench/predict.py (needs onnx, numpy and gguf).

    predict_models.py FOLDER [TINY-LLAMA.gguf]    of the second, also quantised copies
"""

import sys
from pathlib import Path

import gguf
import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh


class Graph:
    """Nodes and weights under way, each with a name of its own."""

    def __init__(self, name, seed):
        self.name, self.random = name, np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, *shape, scale=0.05):
        name = f"w{len(self.weights)}"
        self.weights.append(nh.from_array((self.random.standard_normal(shape) * scale).astype(np.float32), name))
        return name

    def constant(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(nh.from_array(np.array(values, np.int64), name))
        return name

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(h.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def write(self, folder, inputs, outputs):
        graph = h.make_graph(self.nodes, self.name, inputs, outputs, self.weights)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, folder / f"{self.name}.onnx")


def value(name, kind, shape):
    return h.make_tensor_value_info(name, kind, shape)


def resnet(folder, name, widths, blocks, size):
    """Residual blocks of two convolutions, halved in size at each width."""
    g = Graph(name, 1)

    def convolution(x, came, out, kernel, stride):
        pad = kernel // 2
        return g.op("Conv", x, g.weight(out, came, kernel, kernel), g.weight(out), kernel_shape=[kernel, kernel],
                    pads=[pad] * 4, strides=[stride, stride])

    x, came = g.op("Relu", convolution("image", 3, widths[0], 7, 2)), widths[0]
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for at, out in enumerate(widths):
        for block in range(blocks):
            stride = 2 if at > 0 and block == 0 else 1
            y = g.op("Relu", convolution(x, came, out, 3, stride))
            y = convolution(y, out, out, 3, 1)
            if stride > 1 or came != out:
                x = convolution(x, came, out, 1, stride)
            x, came = g.op("Relu", g.op("Add", y, x)), out
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    g.nodes.append(h.make_node("Gemm", [x, g.weight(came, 1000), g.weight(1000)], ["classes"]))
    g.write(folder, [value("image", T.FLOAT, ["batch", 3, size, size])], [value("classes", T.FLOAT, ["batch", 1000])])


def lstm(folder, name, width, hidden, layers):
    """Layers of LSTM over a sequence."""
    g = Graph(name, 2)
    x, came = g.op("Transpose", "sequence", perm=[1, 0, 2]), width
    for _ in range(layers):
        y = g.op("LSTM", x, g.weight(1, 4 * hidden, came), g.weight(1, 4 * hidden, hidden), g.weight(1, 8 * hidden),
                 outputs=3, hidden_size=hidden)
        x, came = g.op("Squeeze", y[0], g.constant([1])), hidden
    x = g.op("Transpose", x, perm=[1, 0, 2])
    g.nodes.append(h.make_node("MatMul", [x, g.weight(came, width)], ["answer"]))
    g.write(folder, [value("sequence", T.FLOAT, ["batch", "steps", width])],
            [value("answer", T.FLOAT, ["batch", "steps", width])])


def transformer(folder, name, width, heads, layers, wide):
    """An encoder: attention and a feed-forward part, each with a sum and a norm."""
    g = Graph(name, 3)
    head = width // heads

    def dense(x, came, out):
        return g.op("Add", g.op("MatMul", x, g.weight(came, out)), g.weight(out))

    def norm(x):
        return g.op("LayerNormalization", x, g.weight(width), g.weight(width), axis=-1)

    def split(x, order):
        return g.op("Transpose", g.op("Reshape", x, g.constant([0, 0, heads, head])), perm=order)

    x = "hidden"
    for _ in range(layers):
        q, k, v = (split(dense(x, width, width), order) for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))
        scores = g.op("Softmax", g.op("MatMul", q, k), axis=-1)
        y = g.op("Transpose", g.op("MatMul", scores, v), perm=[0, 2, 1, 3])
        y = dense(g.op("Reshape", y, g.constant([0, 0, width])), width, width)
        x = norm(g.op("Add", x, y))
        y = dense(g.op("Relu", dense(x, width, wide)), wide, width)
        x = norm(g.op("Add", x, y))
    g.nodes.append(h.make_node("Identity", [x], ["encoded"]))
    g.write(folder, [value("hidden", T.FLOAT, ["batch", "tokens", width])],
            [value("encoded", T.FLOAT, ["batch", "tokens", width])])


def quantised(folder, source, kind):
    """A copy of a GGUF file with its matrices in another type."""
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(folder / f"{source.stem}-{kind.name.lower()}.gguf", architecture)
    for key, field in reader.fields.items():
        if not key.startswith("GGUF.") and key != "general.architecture":
            kinds = field.types
            writer.add_key_value(key, field.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 2 and values.shape[-1] % 32 == 0:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(tensor.name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    resnet(folder, "resnet", [64, 128, 256, 512], 2, 224)
    resnet(folder, "small-resnet", [16, 32], 2, 96)
    lstm(folder, "lstm", 256, 512, 2)
    transformer(folder, "transformer", 512, 8, 6, 2048)
    transformer(folder, "wide-transformer", 1024, 16, 2, 4096)
    for source in map(Path, sys.argv[2:]):
        for kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0):
            quantised(folder, source, kind)


if __name__ == "__main__":
    main()
