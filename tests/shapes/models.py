"""Writes the models of test_models.py into a folder, with what is to be found in them; run in the store's environment.

    models.py FOLDER

expected.json: for each model the dimensions to give, and by tensor its type and shape: those of onnx's own inference for
single operators, those of a run by onnx's reference evaluator for whole networks; and, where nothing is written over
another tensor, the bytes that are live at once at the most, worked out here."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from onnx import shape_inference
from onnx.reference import ReferenceEvaluator

FOLDER = Path(sys.argv[1])
EXPECTED = {}
RANDOM = np.random.default_rng(3)


def looks(kind, shape):
    return "x".join(map(str, shape)) + (" " if shape else "") + TYPES[kind]


TYPES = {T.FLOAT: "float", T.DOUBLE: "double", T.FLOAT16: "float16", T.INT64: "int64", T.INT32: "int32", T.INT8: "int8",
         T.UINT8: "uint8", T.BOOL: "bool"}


class Network:
    """Nodes, inputs and weights; names are made up where none are given."""

    def __init__(self, name, opset=17):
        self.name, self.opset, self.count = name, opset, 0
        self.nodes, self.inputs, self.weights, self.outputs, self.known = [], [], [], [], {}

    def input(self, shape, kind=T.FLOAT, name=None):
        name = name or f"in{len(self.inputs)}"
        self.inputs.append(h.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, value):
        name = f"w{len(self.weights)}"
        self.weights.append(nh.from_array(np.asarray(value), name))
        return name

    def ints(self, *values):
        return self.weight(np.array(values, np.int64))

    def op(self, kind, *inputs, outputs=1, domain="", **attributes):
        names = [f"{kind}{self.count}" + (f"_{i}" if outputs > 1 else "") for i in range(outputs)]
        self.nodes.append(h.make_node(kind, list(inputs), names, name=f"node{self.count}", domain=domain, **attributes))
        self.count += 1
        return names[0] if outputs == 1 else names

    def output(self, *names):
        self.outputs += names

    def model(self, kinds=None):
        """Without a word on the shapes of what it makes."""
        outputs = [h.make_tensor_value_info(name, (kinds or {}).get(name, T.FLOAT), None) for name in self.outputs]
        graph = h.make_graph(self.nodes, self.name, self.inputs, outputs, self.weights)
        domains = {"": self.opset, **{node.domain: 1 for node in self.nodes if node.domain}}
        return h.make_model(graph, opset_imports=[h.make_opsetid(*each) for each in domains.items()],
                            ir_version=min(10, onnx.IR_VERSION))


def save(network, model, dims, tensors, **more):
    onnx.save(model, FOLDER / f"{network.name}.onnx")
    EXPECTED[network.name] = {"dims": dims, "tensors": tensors, **more}


# ---- one operator at a time -------------------------------------------------------------------------------------------

def save_inferred(network):
    """Every output of every node is an output of the graph, so that all of them are in the plan."""
    inferred = shape_inference.infer_shapes(network.model(), check_type=False, strict_mode=True, data_prop=True)
    found = {value.name: value.type.tensor_type for value in inferred.graph.value_info}
    tensors = {}
    network.outputs = [name for node in network.nodes for name in node.output if name]
    for name in network.outputs:
        assert found[name].HasField("shape"), name
        dims = [dim.dim_value for dim in found[name].shape.dim]
        assert all(dim.HasField("dim_value") for dim in found[name].shape.dim), (name, dims)
        tensors[name] = looks(found[name].elem_type, dims)
    kinds = {name: found[name].elem_type for name in network.outputs}
    save(network, network.model(kinds), {}, tensors)


def each(n):
    x, y, flags = n.input([2, 3, 4]), n.input([3, 1]), n.input([4], T.BOOL)
    whole = n.input([3, 4], T.INT64)
    for kind in ("Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor HardSigmoid HardSwish Hardmax "
                 "Identity LeakyRelu Log LogSoftmax Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax "
                 "Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Dropout Clip LpNormalization "
                 "Trilu").split():
        n.op(kind, x)
    for kind in "Add Sub Mul Div Pow Max Min Mean Sum PRelu".split():
        n.op(kind, x, y)
    for kind in "Equal Less Greater LessOrEqual GreaterOrEqual".split():
        n.op(kind, y, x)
    n.op("Max", x, y, n.input([5, 1, 1, 1]))
    n.op("Mod", whole, whole)
    n.op("Not", flags)
    for kind in ("And", "Or", "Xor"):
        n.op(kind, flags, n.input([7, 1], T.BOOL))
    n.op("IsNaN", x)
    n.op("IsInf", x)
    n.op("Where", flags, x, y)
    n.op("Cast", x, to=T.FLOAT16)
    n.op("CastLike", x, whole)
    n.op("CumSum", x, n.weight(np.array(1, np.int64)))
    n.op("Dropout", x, outputs=2)
    scale, zero = n.weight(np.float32(0.1)), n.weight(np.int8(0))
    n.op("DequantizeLinear", n.op("QuantizeLinear", x, scale, zero), scale, zero)
    n.op("QuantizeLinear", x, scale)
    n.op("DynamicQuantizeLinear", x, outputs=3)


def windows(n):
    x, line, cube = n.input([2, 6, 23, 17]), n.input([1, 4, 30]), n.input([1, 2, 9, 8, 7])
    w = n.weight(np.zeros((8, 6, 3, 5), np.float32))
    n.op("Conv", x, w)
    n.op("Conv", x, w, n.weight(np.zeros(8, np.float32)), pads=[1, 2, 1, 2], strides=[2, 3])
    n.op("Conv", x, w, dilations=[2, 1], auto_pad="VALID")
    n.op("Conv", x, w, auto_pad="SAME_UPPER", strides=[2, 2])
    n.op("Conv", x, n.weight(np.zeros((12, 2, 3, 3), np.float32)), group=3, kernel_shape=[3, 3], pads=[1, 1, 0, 0])
    n.op("Conv", line, n.weight(np.zeros((8, 4, 7), np.float32)), strides=[2])
    n.op("Conv", cube, n.weight(np.zeros((3, 2, 2, 2, 3), np.float32)))
    n.op("ConvTranspose", x, n.weight(np.zeros((6, 5, 3, 3), np.float32)), strides=[2, 2], pads=[1, 1, 1, 1],
         output_padding=[1, 0])
    n.op("ConvTranspose", x, n.weight(np.zeros((6, 2, 4, 4), np.float32)), strides=[3, 2], group=2, dilations=[1, 2])
    n.op("ConvTranspose", x, n.weight(np.zeros((6, 2, 4, 4), np.float32)), strides=[2, 2], output_shape=[50, 40])
    for pads, strides, kernel in (([0] * 4, [2, 2], [3, 3]), ([1, 1, 1, 1], [2, 2], [3, 3]), ([0, 1, 0, 1], [3, 3], [2, 4])):
        for ceil in (0, 1):
            n.op("MaxPool", x, kernel_shape=kernel, pads=pads, strides=strides, ceil_mode=ceil)
            n.op("AveragePool", x, kernel_shape=kernel, pads=pads, strides=strides, ceil_mode=ceil)
    n.op("MaxPool", x, outputs=2, kernel_shape=[2, 2], dilations=[2, 3])
    n.op("AveragePool", cube, kernel_shape=[2, 2, 2], auto_pad="SAME_LOWER", strides=[2, 2, 2])
    n.op("LpPool", x, kernel_shape=[4, 4], strides=[4, 4])
    for kind in "GlobalAveragePool GlobalMaxPool GlobalLpPool".split():
        n.op(kind, cube)
    n.op("ConvInteger", n.input([1, 3, 8, 8], T.UINT8), n.weight(np.zeros((4, 3, 3, 3), np.uint8)))
    n.op("RoiAlign", x, n.input([9, 4]), n.input([9], T.INT64), output_height=7, output_width=5)
    n.op("GridSample", x, n.input([2, 11, 13, 2]))
    n.op("InstanceNormalization", x, n.weight(np.zeros(6, np.float32)), n.weight(np.zeros(6, np.float32)))
    n.op("LRN", x, size=3)
    four = [n.weight(np.ones(6, np.float32)) for _ in range(4)]
    n.op("BatchNormalization", x, *four)
    n.op("BatchNormalization", x, *four, outputs=3, training_mode=1)
    n.op("LayerNormalization", x, n.weight(np.ones(17, np.float32)), outputs=3)
    n.op("LayerNormalization", x, n.weight(np.ones((23, 17), np.float32)), axis=2, outputs=3)


def matrices(n):
    vector, matrix, many, more = n.input([5]), n.input([4, 5]), n.input([3, 1, 4, 5]), n.input([7, 5, 6])
    n.op("MatMul", matrix, n.weight(np.zeros((5, 9), np.float32)))
    n.op("MatMul", many, more)
    n.op("MatMul", vector, more)
    n.op("MatMul", many, vector)
    n.op("MatMul", vector, vector)
    n.op("Gemm", matrix, matrix, transB=1)
    n.op("Gemm", matrix, matrix, transA=1)
    n.op("Gemm", matrix, n.weight(np.zeros((5, 8), np.float32)), n.weight(np.zeros(8, np.float32)))
    n.op("MatMulInteger", n.input([2, 3], T.INT8), n.input([3, 4], T.INT8))
    n.op("Einsum", matrix, matrix, equation="ij,kj->ik")
    n.op("Einsum", many, n.input([3, 2, 5, 6]), equation="...ij,...jk->...ik")
    n.op("Einsum", many, equation="b i j k -> b j")
    n.op("Einsum", matrix, n.input([5, 2]), equation="ij,jk")
    x, r = n.input([9, 2, 5]), n.weight(np.zeros((1, 28, 7), np.float32))
    n.op("LSTM", x, n.weight(np.zeros((1, 28, 5), np.float32)), r, outputs=3, hidden_size=7)
    n.op("GRU", x, n.weight(np.zeros((2, 21, 5), np.float32)), n.weight(np.zeros((2, 21, 7), np.float32)), outputs=2,
         hidden_size=7, direction="bidirectional")


def shapes(n):
    x = n.input([2, 3, 4, 5])
    n.op("Reshape", x, n.ints(0, -1, 10))
    n.op("Reshape", x, n.ints(6, 20))
    n.op("Reshape", x, n.ints(-1))
    n.op("Flatten", x)
    n.op("Flatten", x, axis=0)
    n.op("Flatten", x, axis=-1)
    n.op("Transpose", x)
    n.op("Transpose", x, perm=[0, 2, 1, 3])
    thin = n.input([1, 3, 1, 5])
    n.op("Squeeze", thin)
    n.op("Squeeze", thin, n.ints(0, -2))
    n.op("Unsqueeze", x, n.ints(0, -1, 2))
    n.op("Concat", x, x, axis=1)
    n.op("Concat", x, n.input([2, 3, 4, 7]), x, axis=-1)
    n.op("Split", x, outputs=2, axis=2)
    n.op("Split", x, n.ints(1, 3, 1), outputs=3, axis=3)
    n.op("Slice", x, n.ints(1, 0), n.ints(9, -1), n.ints(1, 3))
    n.op("Slice", x, n.ints(-1), n.ints(-1000), n.ints(3), n.ints(-2))
    n.op("Slice", x, n.ints(0, 0, 1, 1), n.ints(2, 3, 4, 4))
    n.op("Slice", x, n.ints(3), n.ints(1), n.ints(2))
    n.op("Expand", n.input([3, 1]), n.ints(2, 1, 6))
    n.op("Tile", x, n.ints(1, 2, 1, 3))
    n.op("Pad", x, n.ints(0, 1, 2, 0, 0, 0, 3, 4))
    n.op("Pad", x, n.ints(0, 0, 0, -1, 0, 0, 0, -1))
    n.op("DepthToSpace", n.input([1, 8, 3, 3]), blocksize=2)
    n.op("SpaceToDepth", n.input([1, 2, 6, 4]), blocksize=2)
    n.op("Resize", x, "", n.weight(np.array([1, 1, 2, 1.5], np.float32)))
    n.op("Resize", x, "", n.weight(np.array([1, 1, .7, .3], np.float32)), mode="linear")
    n.op("Resize", x, "", "", n.ints(2, 3, 9, 2))
    n.op("Shape", x)
    n.op("Shape", x, start=1, end=-1)
    n.op("Size", x)
    n.op("ConstantOfShape", n.op("Shape", x), value=nh.from_array(np.array([1], np.int64)))
    n.op("EyeLike", n.input([4, 6]))
    n.op("RandomNormalLike", x)
    n.op("RandomUniform", shape=[3, 2])
    n.op("Range", n.weight(np.int64(3)), n.weight(np.int64(12)), n.weight(np.int64(2)))


def indices(n):
    x, at = n.input([4, 5, 6]), n.input([2, 3], T.INT64)
    for axis in (0, 1, -1):
        n.op("Gather", x, at, axis=axis)
    n.op("Gather", x, n.weight(np.array(2, np.int64)), axis=1)
    n.op("GatherElements", x, n.input([4, 2, 6], T.INT64), axis=1)
    n.op("GatherND", x, at)
    n.op("GatherND", x, n.input([2, 2], T.INT64))
    n.op("GatherND", x, n.input([4, 1], T.INT64), batch_dims=1)
    n.op("ScatterElements", x, n.input([4, 2, 6], T.INT64), n.input([4, 2, 6]), axis=1)
    n.op("ScatterND", x, n.input([2, 1], T.INT64), n.input([2, 5, 6]))
    n.op("TopK", x, n.ints(3), outputs=2, axis=1)
    n.op("OneHot", at, n.weight(np.array(9, np.int64)), n.input([2]), axis=1)
    for kind in ("ArgMax", "ArgMin"):
        n.op(kind, x, axis=1)
        n.op(kind, x, axis=-1, keepdims=0)
    for kind in "L1 L2 LogSum LogSumExp Max Mean Min Prod SumSquare".split():
        n.op(f"Reduce{kind}", x, axes=[1])
        n.op(f"Reduce{kind}", x, axes=[0, -1], keepdims=0)
        n.op(f"Reduce{kind}", x, keepdims=0)
    n.op("ReduceSum", x, n.ints(1), keepdims=0)
    n.op("ReduceSum", x)
    n.op("ReduceSum", x, noop_with_empty_axes=1)
    n.op("ReverseSequence", x, n.input([5], T.INT64))


def older(n):
    """What later operator sets have as inputs."""
    x = n.input([1, 3, 4, 1])
    n.op("Squeeze", x, axes=[0])
    n.op("Unsqueeze", x, axes=[1, 5])
    n.op("Slice", x, starts=[1, -3], ends=[3, 1000], axes=[1, 2])
    n.op("Split", x, outputs=2, axis=1, split=[1, 2])
    n.op("Pad", x, pads=[0, 1, 0, 0, 0, 1, 2, 0])
    n.op("TopK", x, outputs=2, axis=2, k=3)
    n.op("ReduceSum", x, axes=[1, 2], keepdims=0)
    n.op("Clip", x, min=0.0, max=6.0)
    n.op("Upsample", x, scales=[1.0, 1.0, 2.0, 3.0])
    n.op("Dropout", x)


def newer(n):
    q, k = n.input([2, 5, 24]), n.input([2, 9, 16])
    n.op("Attention", n.input([2, 4, 5, 8]), n.input([2, 4, 9, 8]), n.input([2, 4, 9, 6]))
    n.op("Gelu", q)
    # A second window would begin behind the image; ONNX Runtime leaves it out in older operator sets as well.
    n.op("MaxPool", n.input([2, 6, 23, 17]), kernel_shape=[2, 2], strides=[23, 17], ceil_mode=1)
    n.op("RMSNormalization", q, n.weight(np.ones(24, np.float32)))
    n.op("Split", q, outputs=3, axis=2, num_outputs=3)
    n.op("ReduceMax", k, n.ints(1), keepdims=0)
    n.op("Resize", n.input([1, 2, 5, 9]), "", "", n.ints(7, 20), axes=[2, 3], keep_aspect_ratio_policy="not_larger")
    for policy in ("not_larger", "not_smaller"):  # halves, and what only doubles can tell
        n.op("Resize", n.input([2, 4, 5, 7]), "", "", n.ints(2, 9), axes=[1, 2], keep_aspect_ratio_policy=policy)
        n.op("Resize", n.input([1, 1, 16777219, 3]), "", "", n.ints(16777219, 3), axes=[2, 3],
             keep_aspect_ratio_policy=policy)


def signals(n):
    """Windows, transforms, samples and losses."""
    wave, x = n.input([2, 100, 1]), n.input([2, 6, 24, 18])
    for kind in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        n.op(kind, n.weight(np.array(16, np.int64)))
    n.op("DFT", wave, "", n.weight(np.array(1, np.int64)))
    n.op("DFT", wave, "", n.weight(np.array(1, np.int64)), onesided=1)
    n.op("DFT", wave, n.weight(np.array(64, np.int64)), n.weight(np.array(1, np.int64)), onesided=1)
    n.op("STFT", wave, n.weight(np.array(8, np.int64)), "", n.weight(np.array(32, np.int64)), onesided=1)  # onnx infers another default
    n.op("STFT", wave, n.weight(np.array(8, np.int64)), n.weight(np.ones(32, np.float32)), onesided=0)
    n.op("MelWeightMatrix", *(n.weight(np.array(value, np.int64)) for value in (8, 32, 8000)), n.weight(np.float32(0)), n.weight(np.float32(4000)))
    n.op("Det", n.input([3, 4, 4]))
    n.op("AffineGrid", n.input([2, 2, 3]), n.ints(2, 1, 5, 7))
    n.op("CenterCropPad", x, n.ints(20, 30), axes=[2, 3])
    n.op("Col2Im", n.input([1, 30, 12]), n.ints(4, 5), n.ints(2, 3))
    n.op("MaxRoiPool", x, n.input([5, 5]), pooled_shape=[3, 4])
    n.op("MaxUnpool", x, n.input([2, 6, 24, 18], T.INT64), kernel_shape=[2, 2], strides=[2, 2])
    n.op("Multinomial", n.input([3, 9]), sample_size=4)
    logits, target = n.input([4, 7, 3]), n.input([4, 3], T.INT64)
    n.op("NegativeLogLikelihoodLoss", logits, target, reduction="none")
    n.op("SoftmaxCrossEntropyLoss", logits, target, outputs=2)
    n.op("TfIdfVectorizer", n.input([2, 9], T.INT64), mode="TF", min_gram_length=1, max_gram_length=1, max_skip_count=0,
         ngram_counts=[0], ngram_indexes=[0, 1, 2], pool_int64s=[4, 5, 6])
    n.op("DeformConv", n.input([1, 2, 8, 8]), n.weight(np.zeros((4, 2, 3, 3), np.float32)), n.input([1, 18, 6, 6]))


def learning():
    """ai.onnx.ml, of whose shapes onnx tells few."""
    n, ml = Network("learning"), {"domain": "ai.onnx.ml"}
    x = n.input([5, 4])
    leaf = {"nodes_treeids": [0], "nodes_nodeids": [0], "nodes_featureids": [0], "nodes_modes": ["LEAF"], "nodes_values": [0.0],
            "nodes_truenodeids": [0], "nodes_falsenodeids": [0]}
    tensors = {}
    label, score = n.op("TreeEnsembleClassifier", x, outputs=2, classlabels_int64s=[0, 1, 2], class_treeids=[0], class_nodeids=[0],
                        class_ids=[0], class_weights=[1.0], **leaf, **ml)
    tensors |= {label: "5 int64", score: "5x3 float"}
    tensors[n.op("TreeEnsembleRegressor", x, n_targets=2, target_treeids=[0], target_nodeids=[0], target_ids=[0],
                 target_weights=[1.0], **leaf, **ml)] = "5x2 float"
    label, score = n.op("LinearClassifier", x, outputs=2, coefficients=[0.0] * 8, classlabels_ints=[3, 4], **ml)
    tensors |= {label: "5 int64", score: "5x2 float"}
    tensors |= {n.op("LinearRegressor", x, coefficients=[0.0] * 12, targets=3, **ml): "5x3 float",
                n.op("Scaler", n.input([5, 4], T.INT64), offset=[0.0], scale=[1.0], **ml): "5x4 float",
                n.op("Normalizer", x, **ml): "5x4 float", n.op("Binarizer", x, **ml): "5x4 float",
                n.op("ArrayFeatureExtractor", x, n.ints(0, 2, 3), **ml): "5x3 float",
                n.op("FeatureVectorizer", x, n.input([5, 2]), inputdimensions=[4, 2], **ml): "5x6 float",
                n.op("OneHotEncoder", n.input([5], T.INT64), cats_int64s=[1, 2, 3], **ml): "5x3 float",
                n.op("LabelEncoder", n.input([5], T.INT64), keys_int64s=[1, 2], values_floats=[0.5, 1.5], **ml): "5 float"}
    n.output(*tensors)
    kinds = {name: T.INT64 if looks.endswith("int64") else T.FLOAT for name, looks in tensors.items()}
    save(n, n.model(kinds), {}, tensors)


def quantized():
    """ONNX Runtime's own operators on numbers of bytes."""
    n, own = Network("quantized"), {"domain": "com.microsoft"}
    x, scale, zero = n.input([2, 4, 8, 8], T.UINT8), n.weight(np.float32(.1)), n.weight(np.uint8(0))
    line, image = n.input([2, 5, 24]), n.input([2, 4, 9, 9], T.UINT8)
    bytes_of = n.weight(np.zeros((24, 72), np.uint8))
    three = n.op("DynamicQuantizeLSTM", n.input([7, 2, 6]), n.weight(np.zeros((2, 6, 20), np.uint8)), n.weight(np.zeros((2, 5, 20), np.uint8)),
                 "", "", "", "", "", scale, zero, scale, zero, outputs=3, hidden_size=5, direction="bidirectional", **own)
    tensors = dict(zip(three, ("7x2x2x5 float", "2x2x5 float", "2x2x5 float")))
    tensors |= {
        n.op("DynamicQuantizeMatMul", line, bytes_of, scale, zero, **own): "2x5x72 float",
        n.op("MatMulIntegerToFloat", n.input([2, 5, 24], T.UINT8), bytes_of, scale, scale, **own): "2x5x72 float",
        n.op("QGemm", n.input([3, 24], T.UINT8), scale, zero, bytes_of, scale, zero, **own): "3x72 float",
        n.op("QLinearAdd", x, scale, zero, n.input([4, 1, 1], T.UINT8), scale, zero, scale, zero, **own): "2x4x8x8 uint8",
        n.op("QLinearSigmoid", x, scale, zero, scale, zero, **own): "2x4x8x8 uint8",
        n.op("QLinearAveragePool", image, scale, zero, scale, zero, kernel_shape=[3, 3], strides=[2, 2], **own): "2x4x4x4 uint8",
        n.op("QLinearGlobalAveragePool", image, scale, zero, scale, zero, **own): "2x4x1x1 uint8",
        n.op("QLinearReduceMean", x, scale, zero, scale, zero, axes=[2, 3], keepdims=0, **own): "2x4 uint8",
        n.op("QLinearConcat", scale, zero, x, scale, zero, x, scale, zero, axis=1, **own): "2x8x8x8 uint8",
        n.op("QLinearConcat", scale, zero, x, scale, zero, x, scale, zero, x, scale, zero, axis=2, **own): "2x4x24x8 uint8",
        n.op("QAttention", n.input([2, 5, 24], T.UINT8), bytes_of, n.weight(np.zeros(72, np.float32)), scale, scale, num_heads=4,
             **own): "2x5x24 float",
        n.op("GatherBlockQuantized", n.weight(np.zeros((9, 16), np.uint8)), n.input([3], T.INT64), n.weight(np.zeros((9, 1), np.float32)),
             block_size=32, quantize_axis=1, gather_axis=0, bits=4, **own): "3x32 float",
    }
    n.output(*tensors)
    kinds = {name: T.UINT8 if looks.endswith("uint8") else T.FLOAT for name, looks in tensors.items()}
    save(n, n.model(kinds), {}, tensors)


def unpacked():
    """Weights that are unpacked at the top of the file: each where it is read."""
    n = Network("unpacked")
    scale, zero = n.weight(np.float32(.1)), n.weight(np.int8(0))
    matrices = [n.op("DequantizeLinear", n.weight(np.zeros((64, 64), np.int8)), scale, zero) for _ in range(4)]
    x = n.input([1, 64])
    for matrix in matrices:
        x = n.op("MatMul", x, matrix)
    n.output(x)
    save(n, n.model(), {}, {}, names={str(i): matrix for i, matrix in enumerate(matrices)}, live=64 * 64 * 4 + 2 * 256)


def measured():
    """An If whose condition follows from a shape: the branch that runs makes another shape than the other."""
    n = Network("measured")
    x = n.input(["rows", 8])
    many = n.op("Greater", n.op("Gather", n.op("Shape", x), n.weight(np.array(0, np.int64))), n.weight(np.array(4, np.int64)))
    chosen = n.op("If", many, then_branch=branch("sums", h.make_node("ReduceSum", [x], ["sums"])),
                  else_branch=branch("all", h.make_node("Exp", [x], ["all"])))
    n.output(n.op("Neg", chosen))
    save(n, n.model(), {}, {}, names={"chosen": chosen})


def of_onnxruntime():
    """Its own operators are not known to onnx."""
    n = Network("onnxruntime")
    x = n.input([2, 5, 24])
    tensors = {
        n.op("FusedMatMul", x, x, domain="com.microsoft", transB=1): "2x5x5 float",
        n.op("FastGelu", x, domain="com.microsoft"): "2x5x24 float",
        n.op("MultiHeadAttention", x, n.input([2, 9, 24]), n.input([2, 9, 48]), domain="com.microsoft",
             num_heads=4): "2x5x48 float",
        n.op("Attention", x, n.weight(np.zeros((24, 72), np.float32)), n.weight(np.zeros(72, np.float32)),
             domain="com.microsoft", num_heads=4): "2x5x24 float",
        n.op("MatMulNBits", x, n.weight(np.zeros((10, 1, 12), np.uint8)), n.weight(np.zeros(10, np.float32)),
             domain="com.microsoft", K=24, N=10, bits=4, block_size=32): "2x5x10 float",
        n.op("GroupQueryAttention", x, n.input([2, 5, 12]), n.input([2, 5, 12]), domain="com.microsoft", num_heads=4,
             kv_num_heads=2): "2x5x24 float",
    }
    skip = n.op("SkipLayerNormalization", x, x, n.weight(np.ones(24, np.float32)), domain="com.microsoft", outputs=4)
    tensors |= {skip[0]: "2x5x24 float", skip[1]: "2x5x1 float", skip[2]: "2x5x1 float", skip[3]: "2x5x24 float"}
    n.output(*[name for node in n.nodes for name in node.output])
    save(n, n.model(), {}, tensors)


# ---- whole networks -----------------------------------------------------------------------------------------------------

def dense(n, x, wide, narrow):
    product = n.op("MatMul", x, n.weight(RANDOM.standard_normal((wide, narrow)).astype(np.float32)))
    return n.op("Add", n.weight(np.zeros(narrow, np.float32)), product)


def dim(n, x, at):
    """One extent of a tensor, as exporters write it."""
    return n.op("Unsqueeze", n.op("Gather", n.op("Shape", x), n.weight(np.int64(at))), n.ints(0))


def norm(n, x, width):
    return n.op("LayerNormalization", x, n.weight(np.ones(width, np.float32)), n.weight(np.zeros(width, np.float32)))


def attend(n, q, k, v, mask, heads, width):
    def part(x, order):
        shape = n.op("Concat", dim(n, x, 0), dim(n, x, 1), n.ints(heads), n.ints(width // heads), axis=0)
        return n.op("Transpose", n.op("Reshape", x, shape), perm=order)

    scores = n.op("MatMul", part(q, [0, 2, 1, 3]), part(k, [0, 2, 3, 1]))
    scores = n.op("Add", n.op("Div", scores, n.weight(np.float32(np.sqrt(width / heads)))), mask)
    seen = n.op("Transpose", n.op("MatMul", n.op("Softmax", scores, axis=-1), part(v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    return n.op("Reshape", seen, n.op("Concat", dim(n, q, 0), dim(n, q, 1), n.ints(-1), axis=0))


def bert(n, layers=2, width=24, heads=4):
    """A mask that is expanded by computed shapes, and positions that are sliced by them."""
    ids, mask = n.input(["batch", "sequence"], T.INT64, "ids"), n.input(["batch", "sequence"], T.INT64, "mask")
    places = n.op("Slice", n.weight(np.arange(64)[None]), n.ints(0), dim(n, ids, 1), n.ints(1))
    x = n.op("Add", n.op("Gather", n.weight(np.ones((50, width), np.float32)), ids),
             n.op("Gather", n.weight(np.ones((64, width), np.float32)), places))
    wanted = n.op("Concat", dim(n, mask, 0), n.ints(1), dim(n, mask, 1), dim(n, mask, 1), axis=0)
    ones = n.op("ConstantOfShape", n.op("Shape", wanted), value=nh.from_array(np.array([1], np.int64)))
    wanted = n.op("Where", n.op("Equal", wanted, n.op("Mul", ones, n.ints(-1))), ones, wanted)
    rows = n.op("Expand", n.op("Unsqueeze", mask, n.ints(1, 2)), wanted)
    seen = n.op("Mul", n.op("Sub", n.weight(np.float32(1)), n.op("Cast", rows, to=T.FLOAT)), n.weight(np.float32(-1e4)))
    x = norm(n, x, width)
    for _ in range(layers):
        q, k, v = (dense(n, x, width, width) for _ in range(3))
        x = norm(n, n.op("Add", dense(n, attend(n, q, k, v, seen, heads, width), width, width), x), width)
        wide = dense(n, x, width, 4 * width)
        wide = n.op("Mul", n.op("Mul", wide, n.op("Add", n.op("Erf", n.op("Div", wide, n.weight(np.float32(1.4142)))),
                                                  n.weight(np.float32(1)))), n.weight(np.float32(.5)))
        x = norm(n, n.op("Add", dense(n, wide, 4 * width, width), x), width)
    n.output(x, n.op("Tanh", dense(n, n.op("Gather", x, n.weight(np.int64(0)), axis=1), width, width)))


def gpt2(n, layers=2, width=24, heads=4):
    """One product for all of attention that is split, a causal mask out of a constant, shapes by NonZero and Range."""
    ids = n.input(["batch", "sequence"], T.INT64, "ids")
    length = n.op("Squeeze", dim(n, ids, 1), n.ints(0))
    places = n.op("Range", n.weight(np.int64(0)), length, n.weight(np.int64(1)))
    words = n.weight(np.ones((50, width), np.float32))
    x = n.op("Add", n.op("Gather", words, ids), n.op("Gather", n.weight(np.ones((64, width), np.float32)),
                                                     n.op("Unsqueeze", places, n.ints(0))))
    ones = n.op("ConstantOfShape", dim(n, ids, 1), value=nh.from_array(np.array([1], np.float32)))
    count = n.op("Shape", n.op("Transpose", n.op("NonZero", ones)))
    causal = n.op("Slice", n.weight(np.tril(np.ones((1, 1, 64, 64), bool))), n.ints(0, 0),
                  n.op("Concat", n.op("Gather", count, n.ints(0)), dim(n, ids, 1), axis=0), n.ints(2, 3))
    for _ in range(layers):
        q, k, v = n.op("Split", dense(n, norm(n, x, width), width, 3 * width), outputs=3, axis=-1)
        seen = n.op("Where", causal, n.weight(np.float32(0)), n.weight(np.float32(-1e9)))
        x = n.op("Add", x, dense(n, attend(n, q, k, v, seen, heads, width), width, width))
        wide = dense(n, norm(n, x, width), width, 4 * width)
        cube = n.op("Pow", wide, n.weight(np.float32(3)))
        wide = n.op("Mul", wide, n.op("Tanh", n.op("Add", wide, cube)))
        x = n.op("Add", x, dense(n, wide, 4 * width, width))
    n.output(n.op("MatMul", norm(n, x, width), n.op("Transpose", words)))


def upsampling(n):
    """Sizes through floats and back, as detection models have them."""
    x = n.input(["batch", 3, "height", "width"], name="image")
    down = n.op("MaxPool", n.op("Conv", x, n.weight(np.ones((4, 3, 3, 3), np.float32)), pads=[1, 1, 1, 1], strides=[2, 2]),
                kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    floats = n.op("Cast", n.op("Slice", n.op("Shape", down), n.ints(2), n.ints(4)), to=T.FLOAT)
    sizes = n.op("Cast", n.op("Floor", n.op("Mul", floats, n.weight(np.float32(1.7)))), to=T.INT64)
    up = n.op("Resize", down, "", "", n.op("Concat", n.op("Slice", n.op("Shape", down), n.ints(0), n.ints(2)), sizes, axis=0),
              mode="nearest")
    rest = n.op("Mod", n.op("Gather", n.op("Shape", up), n.ints(2, 3)), n.ints(2, 2))
    pads = n.op("Concat", n.ints(0, 0, 0, 0, 0, 0), rest, axis=0)
    area = n.op("ReduceProd", n.op("Shape", up, start=2), axes=[0], keepdims=1)
    turned = n.op("Slice", n.op("Shape", up), n.ints(-1), n.ints(-1000), n.ints(0), n.ints(-1))
    n.output(n.op("Reshape", up, turned), n.op("Pad", up, pads), n.op("Reshape", up, n.op("Concat", n.ints(0, 0), area, axis=0)))


def save_run(network, dims):
    """Expects of every tensor what a run made of it."""
    names = [name for node in network.nodes for name in node.output]
    kept, network.outputs = network.outputs, names
    sizes = {value.name: [dims.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
             for value in network.inputs}
    given = {}
    for value in network.inputs:
        whole = value.type.tensor_type.elem_type == T.INT64
        given[value.name] = np.ones(sizes[value.name], np.int64 if whole else np.float32)
    made = ReferenceEvaluator(network.model()).run(None, given)
    network.outputs = kept
    tensors = {name: looks(h.np_dtype_to_tensor_dtype(np.asarray(value).dtype), np.shape(value))
               for name, value in zip(names, made)}
    save(network, network.model(), dims, tensors, whole=True)


def sharing():
    """What may be written over what: the places themselves are looked at."""
    n = Network("sharing")
    x, line, column = n.input([4, 8]), n.input([8]), n.input([4, 1])
    held = n.op("Relu", x)
    looked = n.op("Sigmoid", x)
    spare = n.op("Neg", x)
    view = n.op("Reshape", looked, n.ints(8, 4))
    over_spare = n.op("Add", looked, spare)  # what `looked` is may go only behind `late`
    flags = n.op("Less", n.op("Abs", line), column)  # as many bytes as `line`, and not its elements
    late = n.op("Exp", view)
    chosen = n.op("If", n.input([], T.BOOL), then_branch=branch("cosine", h.make_node("Cos", [held], ["cosine"])),
                  else_branch=branch("sine", h.make_node("Sin", [held], ["sine"])))
    n.output(over_spare, flags, late, chosen)
    save(n, n.model({flags: T.BOOL}), {}, {}, names={"held": held, "spare": spare, "over_spare": over_spare, "flags": flags, "late": late,
                                  "looked": looked})


def branch(result, *nodes, weights=(), known=()):
    """A graph inside a node, without a word on the shape of what it makes; `known` are tensors of floats."""
    info = [h.make_tensor_value_info(name, T.FLOAT, shape) for name, shape in known]
    return h.make_graph(nodes, result, [], [h.make_tensor_value_info(result, T.FLOAT, None)], weights, value_info=info)


def branches():
    """An If with one inside one of its branches: what the larger needs is one buffer."""
    n, shape = Network("branches"), [4, 64, 64]
    x, which = n.input(shape), n.input([], T.BOOL)
    weight = nh.from_array(np.zeros((64, 64), np.float32), "inner_weight")
    inside = h.make_node("If", [which], ["d"], then_branch=branch("sine", h.make_node("Sin", ["c"], ["sine"])),
                         else_branch=branch("turned", h.make_node("Cos", ["c"], ["e"]),
                                            h.make_node("Neg", ["e"], ["turned"])))
    y = n.op("If", which,
             then_branch=branch("sum", h.make_node("Relu", [x], ["a"]), h.make_node("MatMul", ["a", "inner_weight"], ["b"]),
                                h.make_node("Add", ["b", x], ["sum"]), weights=[weight]),
             else_branch=branch("size", h.make_node("Exp", [x], ["c"]), inside, h.make_node("Abs", ["d"], ["size"])))
    n.output(n.op("Neg", y))
    each = 4 * 64 * 64 * 4
    # c, d and e at once; around them x, the flag, and what comes out
    save(n, n.model(), {}, {n.outputs[0]: looks(T.FLOAT, shape)}, names={"y": y}, inside=3 * each,
         live=5 * each + 256, weights=64 * 64 * 4)


def inside():
    """Branches that unpack a weight from around them, and make constants of their own weights and of one around them."""
    n = Network("inside")
    x, which = n.input([4, 8]), n.input([], T.BOOL)
    unpacked = n.op("DequantizeLinear", n.weight(np.zeros((8, 8), np.uint8)), n.weight(np.float32(1)))
    spare, made = n.op("Relu", x), n.op("Exp", n.weight(np.zeros((4, 8), np.float32)))

    def own(name):
        return nh.from_array(np.zeros((4, 8), np.float32), name)

    chosen = n.op("If", which, then_branch=branch("then", h.make_node("Neg", [made], ["a"]), h.make_node("Exp", ["first"], ["b"]),
                                                  h.make_node("MatMul", [x, unpacked], ["c"]), h.make_node("Add", ["c", "a"], ["d"]),
                                                  h.make_node("Add", ["d", "b"], ["then"]), weights=[own("first")]),
                  else_branch=branch("else", h.make_node("Exp", ["second"], ["e"]), h.make_node("Add", [x, "e"], ["f"]),
                                     h.make_node("Add", ["f", "third"], ["else"]), weights=[own("second"), own("third")]))
    n.output(n.op("Add", chosen, spare))
    # made, a, b and e; what runs reads the packed weight, its scale, and the third of the branches' own
    save(n, n.model(), {}, {}, names={"unpacked": unpacked}, constants=4 * 128, weights=64 + 4 + 128)


def bodies():
    """Graphs inside nodes that are not planned, or not without help."""
    n = Network("looped")
    x, which = n.input([4, 8]), n.input([], T.BOOL)
    loop = h.make_graph([h.make_node("Identity", ["more"], ["again"]), h.make_node("Neg", ["v"], ["w"])], "loop",
                        [h.make_tensor_value_info("i", T.INT64, []), h.make_tensor_value_info("more", T.BOOL, []),
                         h.make_tensor_value_info("v", T.FLOAT, [4, 8])],
                        [h.make_tensor_value_info("again", T.BOOL, []), h.make_tensor_value_info("w", T.FLOAT, [4, 8])])
    n.output(n.op("If", which, then_branch=branch("plain", h.make_node("Exp", [x], ["plain"])),
                  else_branch=branch("late", h.make_node("Loop", ["", which, x], ["round"], body=loop),
                                     h.make_node("Exp", ["round"], ["late"]), known=[("round", [4, 8])])))
    save(n, n.model(), {}, {})
    n = Network("decided")  # by a weight; into a shape that is worked out around it
    x, which = n.input([4, 8]), n.weight(np.array(True))
    shape = n.op("Concat", n.ints(8), n.op("Slice", n.op("Shape", x), n.ints(0), n.ints(1)), axis=0)
    chosen = n.op("If", which, then_branch=branch("wide", h.make_node("Reshape", [x, shape], ["r"]),
                                                  h.make_node("Exp", ["r"], ["wide"])),
                  else_branch=branch("flat", h.make_node("Transpose", [x], ["flat"])))
    n.output(n.op("Neg", chosen))
    save(n, n.model(), {}, {}, names={"chosen": chosen})
    for name, other in (("unlike", h.make_node("ReduceSum", ["in0"], ["other"])), ("strange", h.make_node("Odd", ["in0"], ["other"],
                                                                                                  domain="own"))):
        n = Network(name)
        x, which = n.input([4, 8]), n.input([], T.BOOL)
        chosen = n.op("If", which, then_branch=branch("same", h.make_node("Exp", [x], ["same"])),
                      else_branch=branch("other", other))
        n.output(n.op("Neg", chosen))
        model = n.model()
        model.opset_import.add(domain="own", version=1)
        save(n, model, {}, {})


def kept():
    """Outputs that the last node reads, one of them by a view: there is nothing else that it could be written over."""
    n = Network("kept")
    x = n.input([4, 8])
    first, second = n.op("Relu", x), n.op("Exp", x)
    n.output(first, n.op("Reshape", second, n.ints(8, 4)), n.op("Add", first, second))
    save(n, n.model(), {}, {}, names={"first": first, "second": second, "last": n.outputs[-1]})


def idle():
    """Nothing runs: the output is the input in another shape."""
    n = Network("idle")
    n.output(n.op("Reshape", n.input([4, 8]), n.ints(8, 4)))
    save(n, n.model(), {}, {})


def names():
    """A dimension whose name begins another one's, and a tensor whose name is meant for a terminal, of another shape."""
    n = Network("names")
    n.output(n.op("Neg", n.input(["sequence_length", "sequence"])))
    model = n.model()
    model.graph.node[0].output[0] = model.graph.output[0].name = "\x1b[31mred"
    for extent in (9, 9):
        model.graph.output[0].type.tensor_type.shape.dim.add().dim_value = extent
    save(n, model, {"sequence_length": 2, "sequence": 3}, {})


def strangers():
    """Operators of an unknown domain that are called as known ones are."""
    n = Network("strangers")
    looked = n.op("Identity", n.op("Relu", n.input([4, 8])), domain="own")
    over = n.op("Softmax", looked, domain="own")
    n.output(n.op("Neg", over))
    model = n.model()
    model.graph.value_info.extend(h.make_tensor_value_info(name, T.FLOAT, [4, 8]) for name in (looked, over))
    save(n, model, {}, {}, names={"looked": looked, "over": over})


def held():
    """Constants that nodes hold: a shape, a few numbers, and more of them than are known before a run."""
    n = Network("held")
    shape, few, many = (n.op("Constant", value=nh.from_array(array)) for array in (
        np.array([6, -1], np.int64), np.ones(4096, np.float32), np.ones(4097, np.float32)))
    reshaped = n.op("Reshape", n.input([2, 3, 4]), shape)
    n.output(n.op("Relu", reshaped), n.op("Add", n.input([4096]), few), n.op("Add", n.input([4097]), many))
    save(n, n.model(), {}, {reshaped: looks(T.FLOAT, [6, 4])}, names={"reshaped": reshaped, "few": few, "many": many})


def hostile():
    """Models that contradict themselves, or are endless in one dimension and empty in another."""
    n = Network("constants")
    both = n.op("Constant", value_int=3, value_ints=list(range(4000)))
    n.output(n.op("Add", n.input([], T.INT64), both))
    save(n, n.model({n.outputs[0]: T.INT64}), {}, {})
    n = Network("dots")
    n.output(n.op("Einsum", n.input([1] * 16), equation="............->..."))
    save(n, n.model(), {}, {})
    for kind in ("Gather", "Concat"):
        n = Network(f"empty{kind}")
        empty = n.op("ConstantOfShape", n.ints(1 << 55, 3, 0))
        made = n.op(kind, empty, n.ints(0) if kind == "Gather" else empty, axis=1)
        n.output(n.op("Shape", made))
        save(n, n.model({n.outputs[0]: T.INT64}), {}, {})


def said():
    """Shapes that only a run knows, and what the file says of them: it is believed as long as it can be true."""
    looks_of = {"True": (T.FLOAT, [4, 10]), "Count": (T.FLOAT, [4, 11]), "Type": (T.FLOAT16, [4, 10])}
    for name, (kind, shape) in looks_of.items():
        for op in ("Reshape", "Squeeze", "Unsqueeze"):
            n = Network(f"said{name}{op}")
            made = n.op(op, n.input([2, 20]), n.input([2], T.INT64))
            n.output(n.op("Neg", made))
            model = n.model()
            model.graph.value_info.append(h.make_tensor_value_info(made, kind, shape))
            save(n, model, {}, {}, names={"made": made})
    n = Network("unsaid")
    n.output(n.op("Neg", n.op("Reshape", n.input([2, 20]), n.input([2], T.INT64))))
    save(n, n.model(), {}, {})
    n = Network("huge")
    n.output(n.op("Resize", n.input([1, 1, 1, 1 << 30]), "", "", n.ints(1 << 40, 1 << 40), axes=[2, 3],
                  keep_aspect_ratio_policy="not_smaller"))
    save(n, n.model(), {}, {})


def endless():
    """Empty tensors with other dimensions that nothing could count in."""
    n = Network("endless")
    n.output(n.op("Transpose", n.input([0, (1 << 63) - 1, 8])))
    save(n, n.model(), {}, {})
    n = Network("endlessWeight")
    n.output(n.op("Concat", n.input([0, 4, 8]), n.weight(np.zeros((0, 4, 8), np.float32)), axis=0))
    model = n.model()
    model.graph.initializer[0].dims[1] = model.graph.initializer[0].dims[2] = (1 << 63) - 1
    save(n, model, {}, {})


def functions():
    """An operator of the model's own."""
    n = Network("functions")
    n.output(n.op("Twice", n.input([4]), domain="own"))
    model = n.model()
    model.functions.append(h.make_function("own", "Twice", ["x"], ["y"], [h.make_node("Add", ["x", "x"], ["y"])],
                                           [h.make_opsetid("", 17)]))
    save(n, model, {}, {})


# ---- ResNet-50 at its real size ------------------------------------------------------------------------------------------

def resnet50():
    """The weights are holes in one file beside it."""
    n, shapes_of = Network("resnet50"), {}
    largest = 0

    def weight(*shape):
        nonlocal largest
        tensor = T(name=f"w{len(n.weights)}", data_type=T.FLOAT, dims=shape, data_location=T.EXTERNAL)
        largest = max(largest, int(np.prod(shape)) * 4)
        for key, value in (("location", "resnet50.data"), ("length", str(int(np.prod(shape)) * 4))):
            tensor.external_data.add(key=key, value=value)
        n.weights.append(tensor)
        return tensor.name

    def conv(x, shape, channels, size, stride, relu=True):
        pads = [size // 2] * 4
        out = [shape[0], channels, (shape[2] + stride - 1) // stride, (shape[3] + stride - 1) // stride]
        y = n.op("Conv", x, weight(channels, shape[1], size, size), weight(channels), strides=[stride, stride], pads=pads,
                 kernel_shape=[size, size])
        shapes_of[y] = out
        if relu:
            y = n.op("Relu", y)
            shapes_of[y] = out
        return y, out

    x, shape = n.input(["batch", 3, 224, 224], name="image"), [4, 3, 224, 224]
    shapes_of[x] = shape
    x, shape = conv(x, shape, 64, 7, 2)
    x, shape = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), [4, 64, 56, 56]
    shapes_of[x] = shape
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y, inner = conv(x, shape, width, 1, 1)
            y, inner = conv(y, inner, width, 3, stride)
            y, inner = conv(y, inner, 4 * width, 1, 1, relu=False)
            if not block:
                x, _ = conv(x, shape, 4 * width, 1, stride, relu=False)
            x = n.op("Relu", n.op("Add", y, x))
            shapes_of[x] = shapes_of[n.nodes[-2].output[0]] = shape = inner
    pooled = n.op("GlobalAveragePool", x)
    flat = n.op("Flatten", pooled)
    y = n.op("Gemm", flat, weight(1000, 2048), weight(1000), transB=1)
    n.output(y)
    shapes_of |= {pooled: [4, 2048, 1, 1], flat: [4, 2048], y: [4, 1000]}
    with open(FOLDER / "resnet50.data", "wb") as file:
        file.truncate(largest)
    onnx.save(n.model(), FOLDER / "resnet50.onnx")
    EXPECTED["resnet50"] = {"dims": {"batch": 4}, "whole": True, "live": live(n, shapes_of, {flat: pooled}),
                            "weights": sum(int(np.prod(w.dims)) * 4 for w in n.weights),
                            "tensors": {name: looks(T.FLOAT, shape) for name, shape in shapes_of.items()}}


def live(n, shapes_of, views):
    """The most bytes that are live in one step, by a count of each step's own, rounded up to 256 a tensor."""
    def root(name):
        return views.get(name, name)

    last = {root(name): len(n.nodes) - 1 for name in n.outputs}
    first = {value.name: 0 for value in n.inputs}
    for step, node in enumerate(n.nodes):
        for name in node.input:
            if name in shapes_of:
                last[root(name)] = max(step, last.get(root(name), 0))
        for name in node.output:
            first.setdefault(root(name), step)
    size = {name: -(-int(np.prod(shapes_of[name])) * 4 // 256) * 256 for name in first}
    return max(sum(size[name] for name in first if first[name] <= step <= last[name]) for step in range(len(n.nodes)))


def main():
    for build, opset in ((each, 17), (windows, 17), (matrices, 17), (shapes, 17), (indices, 17), (older, 8), (newer, 23), (signals, 20)):
        network = Network(build.__name__, opset)
        build(network)
        save_inferred(network)
    of_onnxruntime()
    learning()
    quantized()
    unpacked()
    measured()
    sharing()
    branches()
    inside()
    bodies()
    kept()
    idle()
    names()
    strangers()
    held()
    hostile()
    said()
    endless()
    functions()
    for build, dims in ((bert, {"batch": 2, "sequence": 9}), (gpt2, {"batch": 3, "sequence": 7}),
                        (upsampling, {"batch": 1, "height": 37, "width": 50})):
        network = Network(build.__name__)
        build(network)
        save_run(network, dims)
    resnet50()
    (FOLDER / "expected.json").write_text(json.dumps(EXPECTED, indent=1))


main()
