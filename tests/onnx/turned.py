#!/usr/bin/env python3
"""turned.py FOLDER COUNT: random graphs full of transpositions and constants, for test-onnx-backend.

ONNX Runtime's optimizer moves transpositions through a graph and into constants; what comes of that has to be the same
with the weights in weir's memory. The files are as backend.py makes them."""

import random
import sys
from pathlib import Path

import numpy as np
import onnx
from backend import write_inputs
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

ELEMENTWISE = ("Add", "Sub", "Mul", "Max")


class Graph:
    """Nodes one behind the other, each with constants of 1 KiB and more where it takes any."""

    def __init__(self, seed):
        self.pick, self.values = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.weights = [], []
        self.start = self.shape = self.pick.choice(([16, 16], [1, 16, 16, 16]))
        for _ in range(self.pick.randint(3, 9)):
            kind = self.pick.choice(("turn", "turn", "element", "element", "scale", "where", "concat", "softmax", "reduce",
                                     "product", "filter"))
            getattr(self, kind)()

    def value(self):
        return f"v{len(self.nodes)}" if self.nodes else "x"

    def node(self, operator, inputs, shape=None, **attributes):
        self.nodes.append(h.make_node(operator, inputs, [f"v{len(self.nodes) + 1}"], **attributes))
        self.shape = shape or self.shape

    def weight(self, *shape, kind=np.float32):
        name = f"w{len(self.weights)}"
        self.weights.append(nh.from_array((self.values.standard_normal(shape) * 0.3).astype(kind), name))
        return name

    def axis(self):
        return self.pick.randrange(len(self.shape))

    def turn(self):
        order = self.pick.sample(range(len(self.shape)), len(self.shape))
        self.node("Transpose", [self.value()], [self.shape[i] for i in order], perm=order)

    def element(self):
        inputs = [self.value(), self.weight(*(1 if self.pick.random() < 0.2 else n for n in self.shape))]
        self.node(self.pick.choice(ELEMENTWISE), inputs if self.pick.random() < 0.7 else inputs[::-1])

    def scale(self):
        self.node("PRelu", [self.value(), self.weight(*self.shape)])

    def where(self):
        self.node("Where", [self.weight(*self.shape, kind=bool), self.value(), self.weight(*self.shape)])

    def concat(self):
        axis = self.axis()
        if self.shape[axis] <= 32:
            wider = [n * 2 if i == axis else n for i, n in enumerate(self.shape)]
            self.node("Concat", [self.value(), self.weight(*self.shape)], wider, axis=axis)

    def softmax(self):
        self.node("Softmax", [self.value()], axis=self.axis())

    def reduce(self):
        axis = self.axis()
        self.node("ReduceMean", [self.value()], [1 if i == axis else n for i, n in enumerate(self.shape)], axes=[axis])

    def product(self):
        *front, last = self.shape
        self.node("MatMul", [self.value(), self.weight(last, 24)], [*front, 24])

    def filter(self):
        if len(self.shape) == 4:
            batch, channels, *rest = self.shape
            inputs = [self.value(), self.weight(16, channels, 1, 1), self.weight(16)]
            self.node("Conv", inputs, [batch, 16, *rest])

    def model(self):
        self.node("Identity", [self.value()])
        graph = h.make_graph(self.nodes, "turned", [h.make_tensor_value_info("x", T.FLOAT, self.start)],
                             [h.make_tensor_value_info(self.value(), T.FLOAT, None)], self.weights)
        return h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(count):
        graph = Graph(seed)
        model = graph.model()
        onnx.save(model, folder / f"{seed}.onnx")
        array = graph.values.standard_normal(graph.start).astype(np.float32)
        write_inputs(folder / f"{seed}.inputs", model.graph, [array])
    (folder / "cases").write_text("".join(f"{seed}\n" for seed in range(count)))
    print(f"{count} cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
