"""Writes the model files of the store; scripts/models runs it in the store's environment.

    model_files.py minilm.onnx    WEIGHTS.safetensors OUT
    model_files.py minilm.gguf    WEIGHTS.safetensors TOKENIZER.json OUT
    model_files.py tiny-llama.gguf VOCABULARY.gguf OUT

Every file depends on its inputs and this text alone: the same again is the same bytes.
"""

import hashlib
import json
import struct
import sys

import numpy as np

# all-MiniLM-L6-v2
LAYERS, HEADS, WIDTH, CONTEXT, EPSILON = 6, 12, 384, 512, 1e-12


def read_safetensors(path):
    with open(path, "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    types = {"F32": np.float32, "I64": np.int64}
    return {name: np.frombuffer(data[slice(*entry["data_offsets"])], types[entry["dtype"]]).reshape(entry["shape"])
            for name, entry in header.items() if name != "__metadata__"}


# ---- ONNX --------------------------------------------------------------------

class Graph:
    """Collects nodes and initializers; names follow the model's module paths."""

    def __init__(self):
        from onnx import helper, numpy_helper
        self.helper, self.numpy_helper = helper, numpy_helper
        self.nodes, self.initializers, self.known = [], [], set()

    def constant(self, name, value, kind=None):
        if name not in self.known:
            self.known.add(name)
            array = np.array(value, dtype=kind, order="C")
            self.initializers.append(self.numpy_helper.from_array(array, name))
        return name

    def op(self, kind, where, *inputs, output=None, **attributes):
        name = f"/{where}"
        output = output or f"{name}_output_0"
        self.nodes.append(self.helper.make_node(kind, list(inputs), [output], name=name, **attributes))
        return output


def intermediate_shapes(model_of):
    """Every intermediate's shape in terms of batch and sequence, for planners.

    Inference mixes these names up where tensors are broadcast, so it runs with two sizes
    that occur nowhere else, which are then named again. It cannot follow the computed
    end of the positions' Slice: that one is told.
    """
    from onnx import TensorProto, helper, shape_inference
    named = {7: "batch", 13: "sequence"}
    places = helper.make_tensor_value_info("/embeddings/Slice_output_0", TensorProto.INT64, [1, 13])
    inferred = shape_inference.infer_shapes(model_of(*named, [places]), strict_mode=True).graph
    shapes = []
    for value in inferred.value_info:
        kind = value.type.tensor_type
        sizes = [dimension.dim_value for dimension in kind.shape.dim]
        assert all(sizes), f"{value.name} has an unknown shape"   # unknown reads as 0
        shapes.append(helper.make_tensor_value_info(
            value.name, kind.elem_type, [named.get(size, size) for size in sizes]))
    produced = {name for node in inferred.node for name in node.output}
    assert produced == {each.name for each in [*shapes, *inferred.output]}
    return shapes


def write_minilm_onnx(weights_path, out):
    import onnx
    from onnx import TensorProto, helper
    weights, graph = read_safetensors(weights_path), Graph()
    op, constant = graph.op, graph.constant

    def weight(name):
        return constant(name, weights[name])

    def dense(x, module, where):
        # MatMul wants [in, out]; the bias comes first in Add, as exporters have it,
        # which is the form that the engines' fusions look for.
        matrix = constant(module + ".weight_transposed", weights[module + ".weight"].T)
        return op("Add", f"{where}/Add", weight(module + ".bias"), op("MatMul", f"{where}/MatMul", x, matrix))

    def norm(x, module, where, output=None):
        return op("LayerNormalization", f"{where}/LayerNormalization", x, weight(module + ".weight"),
                  weight(module + ".bias"), axis=-1, epsilon=EPSILON, output=output)

    def embeddings():
        at = "embeddings"
        words = op("Gather", f"{at}/word_embeddings/Gather", weight("embeddings.word_embeddings.weight"), "input_ids")
        kinds = op("Gather", f"{at}/token_type_embeddings/Gather",
                   weight("embeddings.token_type_embeddings.weight"), "token_type_ids")
        shape = op("Shape", f"{at}/Shape", "input_ids")
        length = op("Gather", f"{at}/Gather", shape, constant("one_index", 1, np.int64), axis=0)
        end = op("Unsqueeze", f"{at}/Unsqueeze", length, constant("axis_0", [0], np.int64))
        places = op("Slice", f"{at}/Slice", constant("embeddings.position_ids", np.arange(CONTEXT)[None], np.int64),
                    constant("zero_start", [0], np.int64), end, constant("axis_1", [1], np.int64))
        positions = op("Gather", f"{at}/position_embeddings/Gather",
                       weight("embeddings.position_embeddings.weight"), places)
        both = op("Add", f"{at}/Add", words, kinds)
        return norm(op("Add", f"{at}/Add_1", both, positions), "embeddings.LayerNorm", f"{at}/LayerNorm")

    def attention_mask():
        rows = op("Unsqueeze", "mask/Unsqueeze", "attention_mask", constant("axis_1", [1], np.int64))
        rows = op("Unsqueeze", "mask/Unsqueeze_1", rows, constant("axis_2", [2], np.int64))
        seen = op("Cast", "mask/Cast", rows, to=TensorProto.FLOAT)
        hidden = op("Sub", "mask/Sub", constant("one", 1, np.float32), seen)
        return op("Mul", "mask/Mul", hidden, constant("masked_score", -10000, np.float32))

    def attention(x, mask, module, at):
        heads = constant("heads_shape", [0, 0, HEADS, WIDTH // HEADS], np.int64)

        def part(name, order):
            y = dense(x, f"{module}.self.{name}", f"{at}/self/{name}")
            y = op("Reshape", f"{at}/self/{name}/Reshape", y, heads)
            return op("Transpose", f"{at}/self/{name}/Transpose", y, perm=order)

        query, key, value = part("query", [0, 2, 1, 3]), part("key", [0, 2, 3, 1]), part("value", [0, 2, 1, 3])
        scores = op("MatMul", f"{at}/self/MatMul", query, key)
        scores = op("Div", f"{at}/self/Div", scores, constant("head_root", np.sqrt(WIDTH / HEADS), np.float32))
        scores = op("Add", f"{at}/self/Add", scores, mask)
        seen = op("MatMul", f"{at}/self/MatMul_1", op("Softmax", f"{at}/self/Softmax", scores, axis=-1), value)
        seen = op("Transpose", f"{at}/self/Transpose", seen, perm=[0, 2, 1, 3])
        seen = op("Reshape", f"{at}/self/Reshape", seen, constant("hidden_shape", [0, 0, WIDTH], np.int64))
        return dense(seen, f"{module}.output.dense", f"{at}/output/dense")

    def gelu(x, at):
        scaled = op("Div", f"{at}/Div", x, constant("root_two", np.sqrt(2), np.float32))
        share = op("Add", f"{at}/Add", op("Erf", f"{at}/Erf", scaled), constant("one", 1, np.float32))
        return op("Mul", f"{at}/Mul_1", op("Mul", f"{at}/Mul", x, share), constant("half", 0.5, np.float32))

    def layer(x, mask, number):
        module, at = f"encoder.layer.{number}", f"encoder/layer.{number}"
        y = attention(x, mask, f"{module}.attention", f"{at}/attention")
        y = op("Add", f"{at}/attention/output/Add", y, x)
        x = norm(y, f"{module}.attention.output.LayerNorm", f"{at}/attention/output/LayerNorm")
        y = gelu(dense(x, f"{module}.intermediate.dense", f"{at}/intermediate/dense"), f"{at}/intermediate/gelu")
        y = dense(y, f"{module}.output.dense", f"{at}/output/dense")
        return norm(op("Add", f"{at}/output/Add", y, x), f"{module}.output.LayerNorm", f"{at}/output/LayerNorm",
                    "last_hidden_state" if number == LAYERS - 1 else None)

    def pooled(x):
        column = op("Unsqueeze", "pooling/Unsqueeze", "attention_mask", constant("last_axis", [-1], np.int64))
        column = op("Cast", "pooling/Cast", column, to=TensorProto.FLOAT)
        axis = constant("axis_1", [1], np.int64)
        total = op("ReduceSum", "pooling/ReduceSum", op("Mul", "pooling/Mul", x, column), axis, keepdims=0)
        count = op("ReduceSum", "pooling/ReduceSum_1", column, axis, keepdims=0)
        count = op("Clip", "pooling/Clip", count, constant("least_count", 1e-9, np.float32))
        mean = op("Div", "pooling/Div", total, count)
        length = op("ReduceL2", "normalize/ReduceL2", mean, axes=[1], keepdims=1)
        length = op("Clip", "normalize/Clip", length, constant("least_length", 1e-12, np.float32))
        op("Div", "normalize/Div", mean, length, output="sentence_embedding")

    x, mask = embeddings(), attention_mask()
    for number in range(LAYERS):
        x = layer(x, mask, number)
    pooled(x)

    def model_of(batch, sequence, shapes=()):
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, [batch, sequence])
                  for name in ("input_ids", "attention_mask", "token_type_ids")]
        outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [batch, sequence, WIDTH]),
                   helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, [batch, WIDTH])]
        return helper.make_model(
            helper.make_graph(graph.nodes, "all-MiniLM-L6-v2", inputs, outputs, graph.initializers,
                              value_info=shapes),
            opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="weir")

    model = model_of("batch", "sequence", intermediate_shapes(model_of))
    onnx.checker.check_model(model, full_check=True)
    with open(out, "wb") as file:
        file.write(model.SerializeToString(deterministic=True))


# ---- GGUF --------------------------------------------------------------------

def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_minilm_gguf(weights_path, tokenizer_path, out):
    import gguf
    weights = read_safetensors(weights_path)
    with open(tokenizer_path, encoding="utf-8") as file:
        tokenizer = json.load(file)
    writer = gguf.GGUFWriter(out, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_license("apache-2.0")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(weights["encoder.layer.0.intermediate.dense.weight"].shape[0])
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_wordpiece(writer, gguf, tokenizer)
    for name, array in bert_tensors(weights):
        writer.add_tensor(name, array)
    finish(writer)


def add_wordpiece(writer, gguf, tokenizer):
    """llama.cpp marks where a word starts; WordPiece marks where one goes on."""
    special = {token["id"] for token in tokenizer["added_tokens"]}
    pieces = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    assert [number for _, number in pieces] == list(range(len(pieces)))
    ids = tokenizer["model"]["vocab"]

    def marked(piece, number):
        if number in special:
            return piece
        return piece[2:] if piece.startswith("##") else "\u2581" + piece

    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([marked(piece, number) for piece, number in pieces])
    writer.add_token_types([gguf.TokenType.CONTROL if number in special else gguf.TokenType.NORMAL
                            for _, number in pieces])
    writer.add_token_type_count(2)
    writer.add_unk_token_id(ids["[UNK]"])
    writer.add_sep_token_id(ids["[SEP]"])
    writer.add_pad_token_id(ids["[PAD]"])
    writer.add_mask_token_id(ids["[MASK]"])


def bert_tensors(weights):
    yield "token_embd.weight", weights["embeddings.word_embeddings.weight"]
    yield "position_embd.weight", weights["embeddings.position_embeddings.weight"]
    yield "token_types.weight", weights["embeddings.token_type_embeddings.weight"]
    for end in ("weight", "bias"):
        yield f"token_embd_norm.{end}", weights[f"embeddings.LayerNorm.{end}"]
    parts = {"attn_q": "attention.self.query", "attn_k": "attention.self.key", "attn_v": "attention.self.value",
             "attn_output": "attention.output.dense", "attn_output_norm": "attention.output.LayerNorm",
             "ffn_up": "intermediate.dense", "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm"}
    for number in range(LAYERS):
        for short, long in parts.items():
            for end in ("weight", "bias"):
                yield f"blk.{number}.{short}.{end}", weights[f"encoder.layer.{number}.{long}.{end}"]


def noise(name, shape, deviation):
    """Evenly spread numbers that follow from the tensor's name on any machine.

    They come from a hash and not from a library's generator, whose stream, or the
    mathematics behind it, may differ between versions and processors.
    """
    count = int(np.prod(shape))
    words = np.frombuffer(hashlib.shake_256(f"tiny-llama {name}".encode()).digest(2 * count), "<u2")
    return ((words.astype(np.float64) - 32767.5) * (deviation * np.sqrt(12) / 65536)).astype(np.float16).reshape(shape)


def write_tiny_llama(vocabulary_path, out):
    import gguf
    layers, width, heads, kv_heads, feed, context = 4, 256, 8, 4, 704, 4096
    vocabulary = gguf.GGUFReader(vocabulary_path).fields
    words = len(vocabulary["tokenizer.ggml.tokens"].data)
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_name("tiny-llama (random weights)")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(feed)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(width // heads)
    writer.add_vocab_size(words)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    for key, field in vocabulary.items():
        if key.startswith("tokenizer."):
            kind = field.types[0]
            inner = field.types[1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), kind, inner)

    def matrix(name, rows, columns, gain):
        # Rows of this deviation keep the size of what goes through them.
        writer.add_tensor(name, noise(name, (rows, columns), gain / np.sqrt(columns)))

    def norm(name):
        writer.add_tensor(name, np.ones(width, np.float32))

    matrix("token_embd.weight", words, width, np.sqrt(width))
    for number in range(layers):
        block = f"blk.{number}"
        norm(f"{block}.attn_norm.weight")
        matrix(f"{block}.attn_q.weight", width, width, 1)
        matrix(f"{block}.attn_k.weight", width * kv_heads // heads, width, 1)
        matrix(f"{block}.attn_v.weight", width * kv_heads // heads, width, 1)
        matrix(f"{block}.attn_output.weight", width, width, 1)
        norm(f"{block}.ffn_norm.weight")
        matrix(f"{block}.ffn_gate.weight", feed, width, 1)
        matrix(f"{block}.ffn_up.weight", feed, width, 1)
        matrix(f"{block}.ffn_down.weight", width, feed, 1)
    norm("output_norm.weight")
    # Logits with a deviation of 3: some tokens are clearly likelier than others.
    matrix("output.weight", words, width, 3)
    finish(writer)


def main(kind, *paths):
    writers = {"minilm.onnx": write_minilm_onnx, "minilm.gguf": write_minilm_gguf,
               "tiny-llama.gguf": write_tiny_llama}
    writers[kind](*paths)


if __name__ == "__main__":
    main(*sys.argv[1:])
