#!/usr/bin/env python3
"""Make the small ONNX models of tests/onnx beside this file (needs the packages onnx and numpy).

`make.py --schema FILE` compares src/onnx/file/schema.c with the onnx package's own descriptors.
"""

import re
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

HERE = Path(__file__).parent
RANDOM = None  # each model's own, so that one more changes no other


def value(name, kind, shape):
    return h.make_tensor_value_info(name, kind, shape)


def weight(name, *shape):
    return nh.from_array(RANDOM.standard_normal(shape).astype(np.float32) * 0.1, name)


def save(name, nodes, inputs, outputs, weights=(), opset=17, ir=8):
    graph = h.make_graph(nodes, name, inputs, outputs, list(weights))
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", opset)], ir_version=ir)
    onnx.save(model, HERE / f"{name}.onnx")
    return model


def mlp():
    nodes = [h.make_node("MatMul", ["x", "w"], ["m"]), h.make_node("Add", ["m", "b"], ["y"]),
             h.make_node("Relu", ["y"], ["z"]), h.make_node("ArgMax", ["z"], ["best"], axis=1, keepdims=0)]
    return save("mlp", nodes, [value("x", T.FLOAT, ["n", 16])],
                [value("y", T.FLOAT, ["n", 17]), value("z", T.FLOAT, ["n", 17]), value("best", T.INT64, ["n"])],
                [weight("w", 16, 17), weight("b", 17)])


def chain():
    """Values in between, which nobody gets."""
    save("chain", [h.make_node("Tanh", ["x"], ["a"]), h.make_node("MatMul", ["a", "w"], ["b"]),
                   h.make_node("Sigmoid", ["b"], ["c"]), h.make_node("MatMul", ["c", "v"], ["y"])],
         [value("x", T.FLOAT, ["n", 16])], [value("y", T.FLOAT, ["n", 16])], [weight("w", 16, 17), weight("v", 17, 16)])


def joined():
    """Whole numbers, so that rows are the same alone and together; a row may have an index beyond the table."""
    save("joined", [h.make_node("Gather", ["table", "ids"], ["a"]), h.make_node("Mul", ["a", "scale"], ["y"]),
                    h.make_node("ReduceSum", ["y", "axes"], ["sum"], keepdims=0)],
         [value("ids", T.INT64, ["n", "s"]), value("scale", T.INT64, ["n", 1])], [value("y", T.INT64, ["n", "s"]), value("sum", T.INT64, ["n"])],
         [nh.from_array(np.arange(1000, 1100, dtype=np.int64), "table"), nh.from_array(np.array([1], dtype=np.int64), "axes")])


def joined_default():
    """As joined, with a scale that need not be given."""
    model = onnx.load(HERE / "joined.onnx")
    model.graph.initializer.append(nh.from_array(np.array([[7]], dtype=np.int64), "scale"))
    onnx.save(model, HERE / "joined_default.onnx")


def vector():
    save("vector", [h.make_node("Add", ["x", "v"], ["y"])], [value("x", T.FLOAT, ["n", 400])], [value("y", T.FLOAT, ["n", 400])], [weight("v", 400)])


def doubled():
    """Results that have not as many rows as the input."""
    save("doubled", [h.make_node("Concat", ["x", "x"], ["y"], axis=0)], [value("x", T.FLOAT, ["n", 2])], [value("y", T.FLOAT, ["m", 2])])


def typed():
    """As mlp, with the weights as a list of floats instead of raw bytes."""
    model = onnx.load(HERE / "mlp.onnx")
    for tensor in model.graph.initializer:
        values = nh.to_array(tensor)
        tensor.ClearField("raw_data")
        tensor.float_data.extend(values.flatten().tolist())
    onnx.save(model, HERE / "typed.onnx")


def beside():
    """As mlp, with the weights in a file beside it; and two that name a file they must not."""
    model = onnx.load(HERE / "mlp.onnx")
    data = b"head" * 3
    for tensor in model.graph.initializer:
        raw = tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.data_location = T.EXTERNAL
        for key, text in (("location", "beside.data"), ("offset", str(len(data))), ("length", str(len(raw)))):
            tensor.external_data.add(key=key, value=text)
        data += raw
    onnx.save(model, HERE / "beside.onnx")
    (HERE / "beside.data").write_bytes(data)
    for name, location, offset in (("escape", "../onnx/beside.data", "12"), ("memory", "*/_ORT_MEM_ADDR_/*", "4096"),
                                   ("beyond", "beside.data", "600")):
        entries = model.graph.initializer[0].external_data
        entries[0].value, entries[1].value = location, offset
        onnx.save(model, HERE / f"{name}.onnx")


def types():
    kinds = {"f32": T.FLOAT, "f64": T.DOUBLE, "f16": T.FLOAT16, "bf16": T.BFLOAT16, "i8": T.INT8, "i16": T.INT16,
             "i32": T.INT32, "i64": T.INT64, "u8": T.UINT8, "u16": T.UINT16, "u32": T.UINT32, "u64": T.UINT64,
             "bool": T.BOOL, "f8e4m3fn": T.FLOAT8E4M3FN, "f8e5m2": T.FLOAT8E5M2}
    save("types", [h.make_node("Identity", [k], [f"{k}_out"]) for k in kinds],
         [value(k, t, [2, "n"]) for k, t in kinds.items()],
         [value(f"{k}_out", t, [2, "n"]) for k, t in kinds.items()], opset=19, ir=9)


def copies():
    """Nothing but copies, so that what a device computes does not matter."""
    names = ["x", "a", "b", "c", "y"]
    save("copies", [h.make_node("Identity", [x], [y]) for x, y in zip(names, names[1:])],
         [value("x", T.FLOAT, ["n", 16])], [value("y", T.FLOAT, ["n", 16])])


def staged():
    """Copies on the device, one of a weight, and an operator that ONNX Runtime has on the CPU alone."""
    save("staged", [h.make_node("Identity", ["x"], ["a"]), h.make_node("Unique", ["a"], ["y"]),
                    h.make_node("Identity", ["w"], ["v"])],
         [value("x", T.FLOAT, ["n", 16])], [value("y", T.FLOAT, ["m"]), value("v", T.FLOAT, [300])],
         [weight("w", 300)])


def picked():
    """What a kernel on the device has computed goes to an operator that ONNX Runtime has on the CPU alone."""
    save("picked", [h.make_node("MatMul", ["x", "w"], ["m"]), h.make_node("Unique", ["m"], ["y"])],
         [value("x", T.FLOAT, ["n", 16])], [value("y", T.FLOAT, ["m"])], [weight("w", 16, 17)])


def parted():
    """A kernel of CUDA's that reads lists of sizes and addresses, which go there by way of pinned memory; no weight is on the
    device."""
    sizes = [1, 3] * 20
    save("parted", [h.make_node("Split", ["x", "sizes"], [f"y{i}" for i in range(len(sizes))], axis=1)],
         [value("x", T.FLOAT, ["n", sum(sizes)])], [value(f"y{i}", T.FLOAT, ["n", size]) for i, size in enumerate(sizes)],
         [nh.from_array(np.array(sizes, np.int64), "sizes")])


def einsum():
    """A kernel of CUDA's that takes memory without a word about its stream."""
    save("einsum", [h.make_node("Einsum", ["x", "w"], ["y"], equation="nij,jk->nki")],
         [value("x", T.FLOAT, ["n", 8, 16])], [value("y", T.FLOAT, ["n", 5, 8])], [weight("w", 16, 5)])


def fixed():
    """One output is a copy, the other a constant, which ONNX Runtime copies where no capture allows it."""
    save("fixed", [h.make_node("Identity", ["x"], ["y"]), h.make_node("Identity", ["w"], ["v"])],
         [value("x", T.FLOAT, ["n", 16])], [value("y", T.FLOAT, ["n", 16]), value("v", T.FLOAT, [300])], [weight("w", 300)])


def scalar():
    save("scalar", [h.make_node("Add", ["a", "b"], ["sum"]), h.make_node("Greater", ["a", "b"], ["more"])],
         [value("a", T.FLOAT, []), value("b", T.FLOAT, [])], [value("sum", T.FLOAT, []), value("more", T.BOOL, [])])


def empty():
    save("empty", [h.make_node("Concat", ["x", "x"], ["both"], axis=0), h.make_node("NonZero", ["x"], ["where"])],
         [value("x", T.FLOAT, ["n", 3])], [value("both", T.FLOAT, [None, 3]), value("where", T.INT64, [2, None])])


def default():
    """An input with an initializer need not be given."""
    save("default", [h.make_node("Mul", ["x", "scale"], ["y"])],
         [value("x", T.FLOAT, ["n"]), value("scale", T.FLOAT, [1])], [value("y", T.FLOAT, ["n"])],
         [nh.from_array(np.array([3], np.float32), "scale")])


def rankless():
    info = h.make_tensor_value_info("x", T.FLOAT, None)
    save("rankless", [h.make_node("Neg", ["x"], ["y"])], [info], [h.make_tensor_value_info("y", T.FLOAT, None)])


def loop():
    body = h.make_graph([h.make_node("MatMul", ["v", "w"], ["t"]), h.make_node("Tanh", ["t"], ["v_out"]),
                         h.make_node("Identity", ["go"], ["go_out"])], "body",
                        [value("i", T.INT64, []), value("go", T.BOOL, []), value("v", T.FLOAT, [1, 16])],
                        [value("go_out", T.BOOL, []), value("v_out", T.FLOAT, [1, 16])])
    save("loop", [h.make_node("Loop", ["count", "", "x"], ["y"], body=body)],
         [value("count", T.INT64, []), value("x", T.FLOAT, [1, 16])], [value("y", T.FLOAT, [1, 16])],
         [weight("w", 16, 16)])


def grow():
    """Takes as much memory as its input says."""
    save("grow", [h.make_node("ConstantOfShape", ["n"], ["zeros"]), h.make_node("Exp", ["zeros"], ["y"])],
         [value("n", T.INT64, [1])], [value("y", T.FLOAT, [None])])


def conv():
    save("conv", [h.make_node("Conv", ["x", "k", "b"], ["c"], pads=[1, 1, 1, 1]), h.make_node("Relu", ["c"], ["y"])],
         [value("x", T.FLOAT, [1, 3, "h", "w"])], [value("y", T.FLOAT, [1, 16, "h", "w"])],
         [weight("k", 16, 3, 3, 3), weight("b", 16)])


def branch():
    """Weights inside subgraphs, and a node that hands an initializer out."""
    def side(name, sign):
        return h.make_graph([h.make_node("Mul", ["x", f"{name}_w"], [f"{name}_y"])], name, [],
                            [value(f"{name}_y", T.FLOAT, [300])],
                            [nh.from_array(np.arange(300, dtype=np.float32) * sign, f"{name}_w")])
    save("branch", [h.make_node("If", ["yes"], ["y"], then_branch=side("a", 1), else_branch=side("b", -1)),
                    h.make_node("Identity", ["table"], ["copy"])],
         [value("yes", T.BOOL, []), value("x", T.FLOAT, [300])],
         [value("y", T.FLOAT, [300]), value("copy", T.FLOAT, [300])], [weight("table", 300)])


def folded():
    """A weight that looks as if a kernel would pack it, and that the optimizer folds away."""
    save("folded", [h.make_node("MatMul", ["one", "w"], ["m"]), h.make_node("Add", ["x", "m"], ["y"])],
         [value("x", T.FLOAT, ["n", 17])], [value("y", T.FLOAT, ["n", 17])], [weight("one", 1, 16), weight("w", 16, 17)])


def bomb():
    """A hundred bytes that ask the optimizer for a constant of 800 MiB."""
    save("bomb", [h.make_node("Expand", ["one", "n"], ["z"]), h.make_node("Add", ["x", "z"], ["y"])],
         [value("x", T.FLOAT, [1])], [value("y", T.FLOAT, [None])],
         [nh.from_array(np.array([200 << 20], np.int64), "n"), nh.from_array(np.array([1], np.float32), "one")])


def refused():
    save("strings", [h.make_node("Identity", ["words"], ["same"])], [value("words", T.STRING, ["n"])],
         [value("same", T.STRING, ["n"])])
    sequence = h.make_tensor_sequence_value_info("parts", T.FLOAT, None)
    save("sequence", [h.make_node("SplitToSequence", ["x"], ["parts"], axis=0)], [value("x", T.FLOAT, [4])], [sequence])
    save("int4", [h.make_node("DequantizeLinear", ["q", "s"], ["y"])], [value("q", T.INT4, [4]), value("s", T.FLOAT, [])],
         [value("y", T.FLOAT, [4])], opset=21, ir=10)


def texts():
    """Constants that are texts, in both forms."""
    nodes = [h.make_node("Gather", ["names", "x"], ["name"]), h.make_node("Equal", ["name", "wanted"], ["y"])]
    ports = [value("x", T.INT64, ["n"])], [value("y", T.BOOL, ["n"])]
    names = h.make_tensor("names", T.STRING, [3], [b"weir", b"river", b"dam"])
    save("labels", nodes, *ports, [names, h.make_tensor("wanted", T.STRING, [1], [b"river"])], opset=19, ir=9)
    one = h.make_node("Constant", [], ["name"], value_string="weir")
    length = [h.make_node("StringConcat", ["name", "name"], ["two"]), h.make_node("Shape", ["two"], ["s"]),
              h.make_node("Size", ["s"], ["z"]), h.make_node("Add", ["x", "z"], ["y"])]
    save("label", [one, *length], [value("x", T.INT64, ["n"])], [value("y", T.INT64, ["n"])], opset=20, ir=9)


def turned():
    """Transpositions that ONNX Runtime's optimizer moves into the constants, which keep their names, and rank."""
    nodes = [h.make_node("Transpose", ["x"], ["a"], perm=[1, 0]), h.make_node("Add", ["a", "w"], ["b"]),
             h.make_node("Transpose", ["b"], ["c"], perm=[1, 0]), h.make_node("MatMul", ["c", "v"], ["m"]),
             h.make_node("Transpose", ["m"], ["n"], perm=[1, 0]), h.make_node("Add", ["n", "u"], ["o"]),
             h.make_node("Transpose", ["o"], ["y"], perm=[1, 0])]
    save("turned", nodes, [value("x", T.FLOAT, [16, 16])], [value("y", T.FLOAT, [16, 256])],
         [weight("w", 16, 16), weight("v", 16, 256), weight("u", 256, 1)])


def hidden():
    """Branches that have weights of their own by the name of one of the graph's."""
    def side(name, sign):
        return h.make_graph([h.make_node("Mul", ["x", "w"], [f"{name}_y"])], name, [], [value(f"{name}_y", T.FLOAT, [300])],
                            [nh.from_array(np.arange(300, dtype=np.float32) * sign, "w")])
    save("hidden", [h.make_node("If", ["yes"], ["z"], then_branch=side("a", 1), else_branch=side("b", -1)),
                    h.make_node("Add", ["z", "w"], ["y"])],
         [value("yes", T.BOOL, []), value("x", T.FLOAT, [300])], [value("y", T.FLOAT, [300])], [weight("w", 300)])


def function():
    """Transpositions inside a function of the model's own, in the domain of ONNX Runtime's operators."""
    nodes = [h.make_node("Transpose", ["a"], ["t"], perm=[1, 0]), h.make_node("Add", ["t", "b"], ["s"]),
             h.make_node("Transpose", ["s"], ["o"], perm=[1, 0])]
    domains = [h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)]
    turn = h.make_function("com.microsoft", "Turn", ["a", "b"], ["o"], nodes, domains[:1])
    graph = h.make_graph([h.make_node("Turn", ["x", "w"], ["m"], domain="com.microsoft"), h.make_node("Relu", ["m"], ["y"])],
                         "function", [value("x", T.FLOAT, [16, 16])], [value("y", T.FLOAT, [16, 16])], [weight("w", 16, 16)])
    onnx.save(h.make_model(graph, opset_imports=domains, ir_version=8, functions=[turn]), HERE / "function.onnx")


def layout():
    """Quantized convolutions, which the optimizer wants with the channels last, and a constant between them."""
    def filtered(x, y):
        return h.make_node("QLinearConv", [x, "s", "z", "k", "s", "kz", "s", "z"], [y], pads=[1, 1, 1, 1])
    save("layout", [h.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]), filtered("a", "b"),
                    h.make_node("DequantizeLinear", ["b", "s", "z"], ["c"]), h.make_node("Add", ["c", "w"], ["d"]),
                    h.make_node("QuantizeLinear", ["d", "s", "z"], ["e"]), filtered("e", "f"),
                    h.make_node("DequantizeLinear", ["f", "s", "z"], ["y"])],
         [value("x", T.FLOAT, [1, 8, 8, 8])], [value("y", T.FLOAT, [1, 8, 8, 8])],
         [weight("w", 1, 8, 8, 8), nh.from_array(RANDOM.integers(-9, 9, (8, 8, 3, 3)).astype(np.int8), "k"),
          *(nh.from_array(np.array(v, k), n) for n, k, v in (("s", np.float32, 0.05), ("z", np.uint8, 128), ("kz", np.int8, 0)))])


def constant():
    """A constant that is no initializer."""
    save("constant", [h.make_node("Constant", [], ["c"], value=weight("", 300)), h.make_node("Add", ["x", "c"], ["y"])],
         [value("x", T.FLOAT, [300])], [value("y", T.FLOAT, [300])])


def looked_up():
    """Fails for some inputs of the right type and rank: it takes the value at place 3."""
    save("looked_up", [h.make_node("Gather", ["x", "at"], ["y"])], [value("x", T.FLOAT, ["n"])], [value("y", T.FLOAT, [1])],
         [nh.from_array(np.array([3], np.int64), "at")])


def compare_schema(path):
    """Every field of every message of the package: is it in the C table, with the same kind?"""
    text = Path(path).read_text()
    tables = dict(re.findall(r"\[ONNX_(\w+)\] = \{((?:\s*\[\d+\] = \w+\(\w+\),?)+)\}", text))
    names = {"ModelProto": "MODEL", "GraphProto": "GRAPH", "NodeProto": "NODE", "AttributeProto": "ATTRIBUTE",
             "TensorProto": "TENSOR", "Segment": "SEGMENT", "SparseTensorProto": "SPARSE",
             "StringStringEntryProto": "ENTRY", "TypeProto": "TYPE", "Tensor": "TYPE_TENSOR",
             "SparseTensor": "TYPE_TENSOR", "Sequence": "TYPE_SEQUENCE", "Map": "TYPE_MAP", "Opaque": "TYPE_OPAQUE",
             "Optional": "TYPE_OPTIONAL", "TensorShapeProto": "SHAPE", "Dimension": "DIMENSION",
             "ValueInfoProto": "VALUE", "TensorAnnotation": "ANNOTATION", "OperatorSetIdProto": "OPSET",
             "TrainingInfoProto": "TRAINING", "FunctionProto": "FUNCTION", "DeviceConfigurationProto": "DEVICES",
             "NodeDeviceConfigurationProto": "NODE_DEVICES", "ShardingSpecProto": "SHARDING",
             "IntIntListEntryProto": "INT_LIST", "ShardedDimProto": "SHARDED",
             "SimpleShardedDimProto": "SIMPLE_SHARDED"}
    kinds = {1: "FIX64", 2: "FIX32", 9: "TEXT", 11: "", 12: "DATA"}
    wrong, left, seen = 0, [onnx.ModelProto.DESCRIPTOR], set()
    while left:
        message = left.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        table = dict(re.findall(r"\[(\d+)\] = (\w+\(\w+\))", tables.get(names[message.name], "")))
        for field in message.fields:
            if field.message_type:
                left.append(field.message_type)
                wanted = f"{'SUBS' if field.is_repeated else 'SUB'}({names[field.message_type.name]})"
            else:
                wanted = f"{'MANY' if field.is_repeated else 'ONE'}({kinds.get(field.type, 'VARINT')})"
            found = table.get(str(field.number))
            if found != wanted:
                wrong += 1
                print(f"{message.name}.{field.name} = {field.number}: {found}, should be {wanted}")
    print(f"{len(seen)} messages compared, {wrong} differences")
    return wrong != 0


def recurrent():
    """Weights that kernels have in layouts of their own, in an LSTM and a GRU, and a transposition that others have to be left alone for."""
    nodes = [h.make_node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
             h.make_node("LSTM", ["t", "lstm_w", "lstm_r"], ["a"], hidden_size=16),
             h.make_node("Squeeze", ["a", "one"], ["b"]),
             h.make_node("GRU", ["b", "gru_w", "gru_r"], ["y"], hidden_size=16)]
    save("recurrent", nodes, [value("x", T.FLOAT, [1, "n", 32])], [value("y", T.FLOAT, ["n", 1, 1, 16])],
         [weight("lstm_w", 1, 64, 32), weight("lstm_r", 1, 64, 16), weight("gru_w", 1, 48, 16), weight("gru_r", 1, 48, 16),
          nh.from_array(np.array([1], np.int64), "one")])


def strands():
    """Branches of which the file has all first nodes before any second one: what is there at a time is decided by who runs first."""
    widths = [400, 300, 200, 100]
    wide = [h.make_node("MatMul", ["x", f"w{i}"], [f"a{i}"]) for i in range(4)]
    narrow = [h.make_node("MatMul", [f"a{i}", f"v{i}"], [f"b{i}"]) for i in range(4)]
    save("strands", wide + narrow + [h.make_node("Concat", [f"b{i}" for i in range(4)], ["y"], axis=1)],
         [value("x", T.FLOAT, [3, 8])], [value("y", T.FLOAT, [3, 8])],
         [weight(f"w{i}", 8, n) for i, n in enumerate(widths)] + [weight(f"v{i}", n, 2) for i, n in enumerate(widths)])


def gaps():
    """Values that do not fit where earlier ones were."""
    widths = [8, 24, 13, 56, 63, 8]
    save("gaps", [h.make_node("MatMul", [f"a{i}" if i else "x", f"w{i}"], [f"a{i + 1}" if i < 4 else "y"]) for i in range(5)],
         [value("x", T.FLOAT, [16, 8])], [value("y", T.FLOAT, [16, 8])], [weight(f"w{i}", widths[i], widths[i + 1]) for i in range(5)])


def gated():
    """An LSTM and a GRU in both directions, of several sequences, with biases, whose last states nobody wants."""
    save("gated", [h.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=24, direction="bidirectional")],
         [value("x", T.FLOAT, [7, 3, 40])], [value("y", T.FLOAT, None)],
         [weight("w", 2, 96, 40), weight("r", 2, 96, 24), weight("b", 2, 192)])
    save("gated_gru", [h.make_node("GRU", ["x", "w", "r", "b"], ["y"], hidden_size=24, direction="bidirectional", linear_before_reset=1)],
         [value("x", T.FLOAT, [7, 3, 40])], [value("y", T.FLOAT, None)],
         [weight("w", 2, 72, 40), weight("r", 2, 72, 24), weight("b", 2, 144)])


def fused():
    """A normalisation of a layer, one without its mean, and both forms of Gelu, each in the nodes that exports write."""
    def scalar(name, number):
        return nh.from_array(np.array(number, np.float32), name)
    weights = [weight("w", 8, 500), scalar("two", 2), scalar("three", 3), scalar("tiny", 1e-5), scalar("one", 1), scalar("half", 0.5), scalar("root", 2 ** 0.5),
               scalar("c", 0.044715), scalar("d", 0.7978845), weight("scale", 500), weight("shift", 500)]

    def op(kind, ins, out, **more):
        return h.make_node(kind, ins, [out], **more)
    erf = [op("Div", ["a", "root"], "a1"), op("Erf", ["a1"], "a2"), op("Add", ["a2", "one"], "a3"), op("Mul", ["a", "a3"], "a4"), op("Mul", ["a4", "half"], "y")]
    tanh = [op("Pow", ["a", "three"], "a1"), op("Mul", ["a1", "c"], "a2"), op("Add", ["a", "a2"], "a3"), op("Mul", ["a3", "d"], "a4"), op("Tanh", ["a4"], "a5"),
            op("Add", ["a5", "one"], "a6"), op("Mul", ["a", "half"], "a7"), op("Mul", ["a7", "a6"], "y")]
    mean = [op("ReduceMean", ["a"], "m", axes=[-1]), op("Sub", ["a", "m"], "a1"), op("Pow", ["a1", "two"], "a2"), op("ReduceMean", ["a2"], "a3", axes=[-1]),
            op("Add", ["a3", "tiny"], "a4"), op("Sqrt", ["a4"], "a5"), op("Div", ["a1", "a5"], "a6"), op("Mul", ["a6", "scale"], "a7"), op("Add", ["a7", "shift"], "y")]
    near = erf[:3] + [op("Mul", ["a3", "half"], "a4"), op("Mul", ["a", "a4"], "y")]    # not as it looks for it
    quick = [op("Mul", ["a", "two"], "a1"), op("Sigmoid", ["a1"], "a2"), op("Mul", ["a", "a2"], "y")]
    for name, nodes in (("fused_erf", erf), ("fused_tanh", tanh), ("fused_mean", mean), ("fused_not", near), ("fused_quick", quick)):
        save(name, [op("MatMul", ["x", "w"], "b"), op("Relu", ["b"], "a")] + nodes + [op("ReduceSum", ["y"], "z", keepdims=0)],
             [value("x", T.FLOAT, [1, 64, 8])], [value("z", T.FLOAT, None)], [it for it in weights if any(it.name in n.input for n in nodes) or it.name == "w"])


def bent():
    """What is computed into a product or a convolution, and what is not: the last function of each."""
    save("bent", [h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("Add", ["a", "b"], ["c"]), h.make_node("Relu", ["c"], ["d"]),
                  h.make_node("Exp", ["d"], ["e"]), h.make_node("ReduceSum", ["e"], ["y"], keepdims=0)],
         [value("x", T.FLOAT, [64, 8])], [value("y", T.FLOAT, None)], [weight("w", 8, 500), weight("b", 500)])
    save("bent_conv", [h.make_node("Conv", ["x", "w"], ["a"]), h.make_node("Mul", ["a", "b"], ["c"]), h.make_node("Sigmoid", ["c"], ["d"]),
                       h.make_node("Conv", ["d", "v"], ["e"]), h.make_node("Elu", ["e"], ["f"]), h.make_node("ReduceSum", ["f"], ["y"], keepdims=0)],
         [value("x", T.FLOAT, [1, 3, 20, 20])], [value("y", T.FLOAT, None)], [weight("w", 30, 3, 1, 1), weight("b", 30, 1, 1), weight("v", 40, 30, 1, 1)])


def forked():
    """Branches with fusions, and with kernels that need room, of which the larger one counts."""
    def branch(name, nodes, *weights):
        return h.make_graph(nodes, name, [], [value(f"{name}_y", T.FLOAT, None)], list(weights))
    no = branch("no", [h.make_node("MatMul", ["a", "no_w"], ["no_a"]), h.make_node("ReduceSum", ["no_a"], ["no_y"], keepdims=0)], weight("no_w", 8, 30))
    yes = branch("yes", [h.make_node("MatMul", ["a", "yes_v"], ["yes_c"]), h.make_node("Add", ["yes_c", "yes_b"], ["yes_d"]),
                         h.make_node("Tanh", ["yes_d"], ["yes_e"]), h.make_node("Unsqueeze", ["yes_e", "one"], ["yes_a"]),
                         h.make_node("LSTM", ["yes_a", "yes_w", "yes_r"], ["yes_z"], hidden_size=20), h.make_node("ReduceSum", ["yes_z"], ["yes_y"], keepdims=0)],
                 weight("yes_w", 1, 80, 200), weight("yes_r", 1, 80, 20), weight("yes_v", 8, 200), weight("yes_b", 200))
    save("forked", [h.make_node("Exp", ["x"], ["a"]), h.make_node("ReduceMax", ["x"], ["b"], keepdims=0), h.make_node("Greater", ["b", "low"], ["c"]),
                    h.make_node("If", ["c"], ["y"], then_branch=yes, else_branch=no)],
         [value("x", T.FLOAT, [40, 8])], [value("y", T.FLOAT, None)],
         [nh.from_array(np.array([1], np.int64), "one"), nh.from_array(np.array(-1e9, np.float32), "low")])


def quantized():
    """Products of whole numbers as exports write them: of a value that two of them read, and of one that only one does."""
    def product(x, name, out, bias=None):
        nodes = [h.make_node("DynamicQuantizeLinear", [x], [f"{out}_q", f"{out}_s", f"{out}_z"]),
                 h.make_node("MatMulInteger", [f"{out}_q", name, f"{out}_z", "zero"], [f"{out}_i"]),
                 h.make_node("Cast", [f"{out}_i"], [f"{out}_f"], to=T.FLOAT), h.make_node("Mul", [f"{out}_s", "scale"], [f"{out}_t"]),
                 h.make_node("Mul", [f"{out}_f", f"{out}_t"], [f"{out}_p" if bias else out])]
        return nodes + ([h.make_node("Add", [f"{out}_p", bias], [out])] if bias else [])
    ints = lambda name, *shape: nh.from_array(RANDOM.integers(-20, 20, shape).astype(np.int8), name)    # noqa: E731
    save("quantized", [h.make_node("Exp", ["x"], ["a"])] + product("a", "w", "b", "bias") + product("a", "v", "c") +
         [h.make_node("Sub", ["b", "c"], ["d"])] + product("d", "u", "e") + [h.make_node("ReduceSum", ["e"], ["y"], keepdims=0)],
         [value("x", T.FLOAT, [20, 64])], [value("y", T.FLOAT, None)],
         [ints("w", 64, 300), ints("v", 64, 300), ints("u", 300, 100), weight("bias", 300), nh.from_array(np.array(0, np.int8), "zero"),
          nh.from_array(np.array(0.01, np.float32), "scale")])


def window():
    """A window that is longer than what it moves over, by less than its stride."""
    save("window", [h.make_node("MaxPool", ["x"], ["a"], kernel_shape=[2, 3], strides=[2, 3]), h.make_node("Tanh", ["a"], ["y"])],
         [value("x", T.FLOAT, [1, 200, 1, 1])], [value("y", T.FLOAT, None)])


def inner():
    """Weights in Constant nodes, of the graph and of both branches of an If, one of which has an initializer as well."""
    def constant(name, *shape):
        return h.make_node("Constant", [], [name], value=weight("", *shape))

    def side(name, more):
        nodes = [constant(f"{name}_w", 32, 40), h.make_node("Gemm", ["x", f"{name}_w"], [f"{name}_m"]),
                 h.make_node("Mul", [f"{name}_m", f"{name}_s" if more else "table"], [f"{name}_y"])]
        return h.make_graph(nodes, name, [], [value(f"{name}_y", T.FLOAT, ["n", 40])], [weight(f"{name}_s", 8, 40)] if more else [])
    save("inner", [constant("table", 8, 40), h.make_node("If", ["yes"], ["m"], then_branch=side("a", True), else_branch=side("b", False)),
                   h.make_node("Add", ["m", "table"], ["y"])],
         [value("yes", T.BOOL, []), value("x", T.FLOAT, [8, 32])], [value("y", T.FLOAT, [8, 40])])


def lifted():
    """Weights of branches: of a name that both branches give; of a Constant node, with a shape in the file; of a branch in a branch; read by a
    sum as well; returned by the branch that has it."""
    def gemm(name, weight_name):
        return h.make_node("Gemm", ["x", weight_name], [name])

    def graph(name, nodes, weights=(), shapes=()):
        return h.make_graph(nodes, name, [], [value(f"{name}_y", T.FLOAT, None)], list(weights), value_info=list(shapes))
    save("same_names", [h.make_node("If", ["yes"], ["y"], then_branch=graph("a", [gemm("a_y", "w")], [weight("w", 32, 40)]),
                                    else_branch=graph("b", [gemm("b_y", "w")], [weight("w", 32, 40)]))],
         [value("yes", T.BOOL, []), value("x", T.FLOAT, [8, 32])], [value("y", T.FLOAT, [8, 40])])
    deep = graph("d", [gemm("d_y", "d_w")], [weight("d_w", 32, 40)])
    more = graph("m", [gemm("m_p", "m_w"), h.make_node("ReduceSum", ["m_w"], ["m_s"]), h.make_node("Add", ["m_p", "m_s"], ["m_y"])],
                 [weight("m_w", 32, 40)])
    save("lifted", [h.make_node("If", ["yes"], ["p"], then_branch=graph("a", [h.make_node("Constant", [], ["a_w"], value=weight("", 32, 40)), gemm("a_p", "a_w"),
                                                                                   h.make_node("If", ["other"], ["a_q"], then_branch=deep, else_branch=more),
                                                                                   h.make_node("Add", ["a_p", "a_q"], ["a_y"])],
                                                                             shapes=[value("a_w", T.FLOAT, [32, 40])]),
                                else_branch=graph("b", [gemm("b_p", "b_w"), h.make_node("Add", ["b_p", "b_c"], ["b_y"])],
                                                  [weight("b_w", 32, 40), weight("b_c", 8, 40)])),
                    h.make_node("If", ["other"], ["k"], then_branch=graph("e", [h.make_node("Identity", ["e_c"], ["e_y"])], [weight("e_c", 8, 40)]),
                                else_branch=graph("f", [], [weight("f_y", 8, 40)])), h.make_node("Add", ["p", "k"], ["y"])],
         [value("yes", T.BOOL, []), value("other", T.BOOL, []), value("x", T.FLOAT, [8, 32])], [value("y", T.FLOAT, [8, 40])])


def bytes_of():
    """Products and convolutions of whole numbers, behind a transposition."""
    def numbers(name, *shape):
        return nh.from_array(RANDOM.integers(0, 255, shape, np.uint8), name)
    nodes = [h.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
             h.make_node("ConvInteger", ["q", "filters", "z"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
             h.make_node("Transpose", ["c"], ["t"], perm=[0, 2, 3, 1]), h.make_node("Cast", ["t"], ["f"], to=T.FLOAT),
             h.make_node("DynamicQuantizeLinear", ["f"], ["q2", "s2", "z2"]),
             h.make_node("MatMulInteger", ["q2", "matrix", "z2"], ["y"])]
    save("bytes", nodes, [value("x", T.FLOAT, [1, 16, "h", 8])], [value("y", T.INT32, [1, "h", 8, 48])],
         [numbers("filters", 32, 16, 3, 3), numbers("matrix", 32, 48)])


def unpacked():
    """Weights of bytes that are unpacked at the top of the file and read one after the other."""
    nodes = [h.make_node("DequantizeLinear", [f"w{i}", "s", "z"], [f"d{i}"]) for i in range(4)]
    nodes += [h.make_node("MatMul", [f"x{i}" if i else "x", f"d{i}"], [f"x{i + 1}" if i < 3 else "y"]) for i in range(4)]
    save("unpacked", nodes, [value("x", T.FLOAT, ["n", 64])], [value("y", T.FLOAT, ["n", 64])],
         [nh.from_array(RANDOM.integers(-9, 9, (64, 64), np.int8), f"w{i}") for i in range(4)] +
         [nh.from_array(np.array(0.01, np.float32), "s"), nh.from_array(np.array(0, np.int8), "z")])


def picky():
    """Models that take one extent alone: 32, which is tried when it is not given, and 33, which is the constant's."""
    for name, extent in (("picky", 32), ("pickier", 33)):
        save(name, [h.make_node("Reshape", ["x", "shape"], ["y"])], [value("x", T.FLOAT, ["n", "m"])], [value("y", T.FLOAT, [1, extent])],
             [nh.from_array(np.array([1, extent], np.int64), "shape")])


def demanding():
    """Models that take no extent but one that their constants ask for, in each of their inputs."""
    wide = [value("x", T.FLOAT, ["n", "k"])]
    any_shape = [value("y", T.FLOAT, None)]
    numbers = lambda name, *list: nh.from_array(np.array(list, np.int64), name)
    save("demands_shape", [h.make_node("Reshape", ["x", "s"], ["y"])], [value("x", T.FLOAT, ["k"])], any_shape, [numbers("s", 2, 195)])
    save("demands_rows", [h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("MatMul", ["z", "v"], ["b"]), h.make_node("Add", ["a", "b"], ["y"])],
         [*wide, value("z", T.FLOAT, ["n", "l"])], any_shape, [weight("w", 37, 5), weight("v", 41, 5)])
    save("demands_columns", [h.make_node("Concat", ["x", "w"], ["y"], axis=0)], wide, any_shape, [weight("w", 3, 37)])
    save("demands_window", [h.make_node("Conv", ["x", "w"], ["y"])], [value("x", T.FLOAT, [None, 1, None, None])], any_shape, [weight("w", 1, 1, 1500, 1)])
    save("demands_parts", [h.make_node("Split", ["x", "s"], ["a", "y"], axis=1)], wide, [value("a", T.FLOAT, None), *any_shape], [numbers("s", 10, 27)])
    save("demands_features", [h.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=8)], [value("x", T.FLOAT, ["t", "b", "k"])], any_shape,
         [weight("w", 1, 32, 21), weight("r", 1, 32, 8)])
    save("demands_beside", [h.make_node("MatMul", ["x", "w"], ["a"]), h.make_node("Shape", ["a"], ["s"], start=1, end=2),
                            h.make_node("Squeeze", ["s"], ["n"]), h.make_node("Range", ["zero", "n", "step"], ["at"]),
                            h.make_node("Gather", ["table", "at"], ["y"])],
         [value("x", T.FLOAT, ["b", "t", "k"])], any_shape,
         [weight("w", 37, 5), weight("table", 8, 4)] + [nh.from_array(np.array(n, np.int64), name) for name, n in (("zero", 0), ("step", 1))])


def secretive():
    """A model that takes 33 columns alone, of which no constant of those nodes speaks that fail with others."""
    save("secretive", [h.make_node("Shape", ["x"], ["s"], start=1, end=2), h.make_node("Equal", ["s", "wanted"], ["e"]),
                       h.make_node("Where", ["e", "zero", "far"], ["at"]), h.make_node("Gather", ["table", "at"], ["y"])],
         [value("x", T.FLOAT, ["n", "k"])], [value("y", T.FLOAT, None)],
         [nh.from_array(np.array([n], np.int64), name) for name, n in (("wanted", 33), ("zero", 0), ("far", 9))] + [weight("table", 2, 4)])


def few_places():
    """A model whose table has eight places: with more of them it fails."""
    nodes = [h.make_node("Shape", ["x"], ["s"]), h.make_node("Gather", ["s", "last"], ["n"]), h.make_node("Range", ["zero", "n", "step"], ["at"]),
             h.make_node("Gather", ["table", "at"], ["y"])]
    numbers = (("last", 1), ("zero", 0), ("step", 1))
    save("few_places", nodes, [value("x", T.FLOAT, [1, "n"])], [value("y", T.FLOAT, ["n", 4])],
         [weight("table", 8, 4)] + [nh.from_array(np.array(number, np.int64), name) for name, number in numbers])


def packed_elsewhere():
    """Weights that kernels pack outside of products of the main graph: of a transposed convolution, and of products in the branches of
    an If that read the main graph's weights."""
    save("transposed_conv", [h.make_node("ConvTranspose", ["x", "k"], ["y"], strides=[2, 2])], [value("x", T.FLOAT, [1, 32, "h", "w"])],
         [value("y", T.FLOAT, [1, 16, "p", "q"])], [weight("k", 32, 16, 3, 3)])

    def side(name):
        return h.make_graph([h.make_node("Gemm", ["x", f"{name}_w"], [f"{name}_y"])], name, [], [value(f"{name}_y", T.FLOAT, ["n", 64])])
    save("packed_branches", [h.make_node("If", ["yes"], ["y"], then_branch=side("a"), else_branch=side("b"))],
         [value("yes", T.BOOL, []), value("x", T.FLOAT, ["n", 64])], [value("y", T.FLOAT, ["n", 64])], [weight("a_w", 64, 64), weight("b_w", 64, 64)])


def main():
    global RANDOM
    if len(sys.argv) == 3 and sys.argv[1] == "--schema":
        return compare_schema(sys.argv[2])
    for make in (mlp, typed, beside, types, copies, staged, picked, parted, einsum, fixed, scalar, empty, default, rankless, loop, grow, conv, branch, refused, texts,
                 folded, bomb, chain, turned, hidden, function, layout, constant, looked_up, joined, joined_default, vector, doubled, recurrent, strands, gaps, gated, fused, bent, forked, quantized, window, inner,
                 lifted, bytes_of, unpacked, picky, demanding, secretive, few_places, packed_elsewhere):
        RANDOM = np.random.default_rng(list(make.__name__.encode()))
        make()
    return 0


if __name__ == "__main__":
    sys.exit(main())
