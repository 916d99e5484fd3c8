#!/usr/bin/env python3
"""Tests of scripts/llm_model.py: what it writes is read by onnx and tokenizers, and run by the ONNX Runtime GenAI of the store.

Run with any python3: the store's is taken, which has NumPy.
"""

import contextlib
import filecmp
import io
import json
import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "scripts"
sys.path[:0] = [str(SCRIPTS), str(HERE)]
sys.dont_write_bytecode = True

import genai  # noqa: E402
import store as st  # noqa: E402

HOME = st.default_home()
PYTHON = HOME / "venv/bin/python"
try:
    import numpy as np
    import onnx
    import tokenizers

    import llm_model as llm
    import packed
except ImportError:
    if PYTHON.exists() and Path(sys.executable) != PYTHON:
        os.execv(PYTHON, [PYTHON, "-B", __file__, *sys.argv[1:]])
    llm = None

TEXTS = ("Hello, world!\n", "the memory of a device", "  two  spaces\ttab\r\n", "Größe, naïve, ñ, €", "日本語", "🙂 and 👩‍💻", "a\u0301")
PROMPTS = ("The memory of", "Hello, world", "a")
CHAT = '[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]'
ALL = [(cache, kind) for cache in ("shared", "concat") for kind in ("f32", "f16")]
PAGED = ("--cache", "paged", "--device", "cuda")


def needed(what, test):
    if os.environ.get("WEIR_REQUIRE_ENGINES") == "1":
        test.fail(f"WEIR_REQUIRE_ENGINES is set, and {what} is not here")
    test.skipTest(f"{what} is not in the store")


class Written(unittest.TestCase):
    def setUp(self):
        if llm is None:
            needed("Python with NumPy and onnx (scripts/venv)", self)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, *words):
        out = self.folder / name
        with mock.patch.object(sys, "argv", ["llm_model.py", str(out), *words]), contextlib.redirect_stdout(io.StringIO()):
            llm.main()
        return out

    def config(self, folder):
        return json.loads((folder / "genai_config.json").read_text())


class Files(Written):
    def test_same_words_give_the_same_bytes(self):
        for words in ((), ("--cache", "concat", "--type", "f16"), PAGED, ("--shape", "small", "--layers", "1")):
            one, two = self.write("one", *words), self.write("two", *words)
            names = sorted(path.name for path in one.iterdir())
            self.assertEqual(names, sorted(path.name for path in two.iterdir()))
            self.assertEqual(filecmp.cmpfiles(one, two, names, shallow=False), (names, [], []))

    def test_a_seed_gives_other_weights_and_nothing_else(self):
        one, two = self.write("one"), self.write("two", "--seed", "2")
        names = sorted(path.name for path in one.iterdir())
        self.assertEqual(filecmp.cmpfiles(one, two, names, shallow=False)[1], ["model.onnx"])

    def test_another_model_in_its_place_leaves_nothing_behind(self):
        self.assertIn("model.onnx.data", os.listdir(self.write("one", "--shape", "small", "--layers", "1")))
        self.assertNotIn("model.onnx.data", os.listdir(self.write("one")))

    def test_layers_are_one_or_more(self):
        with self.assertRaises(SystemExit) as left, contextlib.redirect_stderr(io.StringIO()):
            self.write("one", "--layers", "0")
        self.assertEqual(left.exception.code, 2)
        self.assertFalse((self.folder / "one").exists())

    def test_blocks_are_for_cuda_and_f16(self):
        for words in ((), ("--device", "cpu"), ("--device", "cuda", "--type", "f32")):
            with self.assertRaises(SystemExit) as left, contextlib.redirect_stderr(io.StringIO()) as said:
                self.write("one", "--cache", "paged", *words)
            self.assertEqual(left.exception.code, 2)
            self.assertIn("is for --device cuda and f16", said.getvalue())
            self.assertFalse((self.folder / "one").exists())

    def test_there_are_blocks_for_sequences_of_the_whole_context(self):
        for shape, blocks in (("tiny", 8), ("small", 64)):
            config = self.config(self.write(shape, *PAGED, "--shape", shape, "--layers", "1"))
            self.assertEqual(config["engine"]["dynamic_batching"], {"block_size": 256, "num_blocks": blocks, "max_batch_size": 8})
            self.assertEqual(blocks * 256, 8 * config["model"]["context_length"])
        self.assertNotIn("engine", self.config(self.write("shared")))

    def test_the_device_decides_what_was_not_said(self):
        options = self.config(self.write("one", "--device", "cuda"))["model"]["decoder"]["session_options"]
        self.assertEqual(options["provider_options"], [{"cuda": {}}])
        model = onnx.load(self.folder / "one/model.onnx")
        self.assertEqual({each.data_type for each in model.graph.initializer if each.name in ("embedding", "head")},
                         {onnx.TensorProto.FLOAT16})
        self.assertEqual(model.graph.output[0].type.tensor_type.elem_type, onnx.TensorProto.FLOAT)
        self.assertEqual(self.config(self.write("two"))["model"]["decoder"]["session_options"]["provider_options"], [])

    def test_the_large_one_has_a_billion_parameters(self):
        graph = llm.graph_of(llm.SHAPES["1b"], "f16", "shared", ())
        self.assertEqual(round(sum(each.rows * each.columns for each in graph.matrices) / 1e6), 1104)


class Graphs(Written):
    @classmethod
    def setUpClass(cls):
        if llm is None:
            return
        # ONNX Runtime has this operator in the standard domain, where onnx does not know it.
        types = ["tensor(float)", "tensor(float16)"]
        parameter = onnx.defs.OpSchema.FormalParameter
        onnx.defs.register_schema(onnx.defs.OpSchema(
            "SimplifiedLayerNormalization", "", 1, inputs=[parameter("X", "T"), parameter("scale", "T")],
            outputs=[parameter("Y", "T")], type_constraints=[("T", types, "")],
            attributes=[onnx.defs.OpSchema.Attribute(name, kind, "", required=False) for name, kind in (
                ("axis", onnx.defs.OpSchema.AttrType.INT), ("epsilon", onnx.defs.OpSchema.AttrType.FLOAT),
                ("stash_type", onnx.defs.OpSchema.AttrType.INT))]))
        cls.addClassCleanup(onnx.defs.deregister_schema, "SimplifiedLayerNormalization", 1, "")

    def test_the_checker_takes_each(self):
        for cache in [*(("--cache", cache, "--type", kind) for cache, kind in ALL), PAGED]:
            for words in (("--shape", "tiny"), ("--shape", "small", "--layers", "1")):
                with self.subTest(cache=cache, words=words):
                    path = self.write("one", *words, *cache) / "model.onnx"
                    onnx.checker.check_model(str(path), full_check=True)

    def test_inputs_and_outputs_are_those_of_the_config(self):
        for cache in ("shared", "concat", "paged"):
            out = self.write(cache, "--cache", cache, "--device", "cuda", "--layers", "3")
            graph, config = onnx.load(out / "model.onnx").graph, self.config(out)
            decoder = config["model"]["decoder"]
            shape = {each.name: [d.dim_value or d.dim_param for d in each.type.tensor_type.shape.dim]
                     for each in (*graph.input, *graph.output)}
            expected = {name for names in (decoder["inputs"], decoder["outputs"]) for pattern in names.values()
                        for name in ([pattern % i for i in range(3)] if "%d" in pattern else [pattern])}
            self.assertEqual(set(shape), expected)
            heads, head, words = decoder["num_key_value_heads"], decoder["head_size"], config["model"]["vocab_size"]
            if cache == "paged":
                self.assertEqual(shape["past_key_values.2.key"], ["num_blocks", 256, heads, head])
                self.assertEqual(shape["present.2.value"], ["num_blocks", 256, heads, head])
                self.assertEqual((shape["input_ids"], shape["logits"]), (["num_tokens"], ["batch_size", words]))
                self.assertEqual({each.name for each in graph.input if each.type.tensor_type.elem_type == onnx.TensorProto.INT32},
                                 {"cumulative_sequence_lengths", "past_sequence_lengths", "block_table", "attention_metadata"})
            else:
                self.assertEqual(shape["past_key_values.2.key"], ["batch_size", heads, "past_sequence_length", head])
                self.assertEqual(shape["logits"], ["batch_size", "sequence_length", words])
            self.assertEqual(config["search"]["past_present_share_buffer"], cache != "concat")
            operators = [node.op_type for node in graph.node]
            self.assertEqual((operators.count("GroupQueryAttention"), operators.count("PagedAttention")),
                             {"shared": (3, 0), "concat": (0, 0), "paged": (0, 3)}[cache])

    def test_weights_are_the_same_inside_and_outside(self):
        out = self.write("out", "--shape", "small", "--layers", "1")
        self.assertLess((out / "model.onnx").stat().st_size, 1 << 20)
        with mock.patch.object(llm, "INSIDE", 1 << 30):
            inside = onnx.load(self.write("in", "--shape", "small", "--layers", "1") / "model.onnx")
        outside = onnx.load(out / "model.onnx")
        self.assertEqual(len(outside.graph.initializer), len(inside.graph.initializer))
        for one, two in zip(outside.graph.initializer, inside.graph.initializer):
            np.testing.assert_array_equal(onnx.numpy_helper.to_array(one), onnx.numpy_helper.to_array(two), one.name)

    def test_weights_spread_as_they_are_meant_to(self):
        arrays = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(self.write("one") / "model.onnx").graph.initializer}
        self.assertAlmostEqual(arrays["embedding"].std(), 1, delta=0.02)
        self.assertAlmostEqual(arrays["layer0/down/weight"].std(), 192 ** -0.5, delta=0.002)
        silent = llm.silent_of(llm.vocabulary(448)[0])
        self.assertEqual(np.flatnonzero(~arrays["head"].any(axis=0)).tolist(), list(silent))


class Packed(Written):
    """Blocks without a GPU: the graph by the operators' documentation, in f32, against that of the cache without blocks."""

    def graphs(self):
        for cache in ("paged", "concat"):
            llm.write(self.folder / cache, llm.SHAPES["tiny"], cache, "f32", 1, "cuda")
            yield packed.evaluator(self.folder / cache / "model.onnx")

    def alone(self, graph, tokens):
        """The logits of the last token."""
        empty = np.zeros((1, 2, 0, 16), np.float32)
        ones = np.ones((1, len(tokens)), np.int64)
        inputs = {"input_ids": ones * tokens, "attention_mask": ones, "position_ids": ones.cumsum(1) - 1}
        inputs.update((f"past_key_values.{i}.{what}", empty) for i in range(2) for what in ("key", "value"))
        return graph(inputs)["logits"][0, -1]

    def test_sequences_in_blocks_are_what_they_are_alone(self):
        with mock.patch.object(llm, "BLOCK", 4):
            paged, concat = self.graphs()
        rng = np.random.default_rng(3)
        rows = [rng.integers(8, 448, count).tolist() for count in (9, 6)]
        table = np.array([[5, 0, 3], [2, 4, 1]], np.int32)
        caches = {f"past_key_values.{i}.{what}": np.zeros((6, 4, 2, 16), np.float32) for i in range(2) for what in ("key", "value")}
        done = np.zeros(2, np.int32)
        for step in ((5, 2), (1, 3), (2, 1), (1, 0)):
            live = [i for i in range(2) if step[i]]
            new = [token for i in live for token in rows[i][done[i]:done[i] + step[i]]]
            ends = np.cumsum([0, *(step[i] for i in live)]).astype(np.int32)
            found = paged({"input_ids": np.array(new), "cumulative_sequence_lengths": ends, "past_sequence_lengths": done[live],
                           "block_table": table[live], "attention_metadata": np.array([5, 9, 1], np.int32), **caches})
            caches = {name: found[name.replace("past_key_values", "present")] for name in caches}
            done += step
            self.assertEqual(found["logits"].shape, (len(live), 448))
            for row, i in zip(found["logits"], live):
                np.testing.assert_allclose(row, self.alone(concat, rows[i][:done[i]]), atol=1e-3)
        self.assertEqual(done.tolist(), [9, 6])


class Tokens(Written):
    def test_a_vocabulary_has_the_words_asked_for(self):
        for count in (300, 448, 2000, 32000):
            tokens, merges = llm.vocabulary(count)
            self.assertEqual((len(tokens), len(set(tokens))), (count, count))
            place = {token: i for i, token in enumerate(tokens)}
            for left, right in merges:
                self.assertLess(max(place[left], place[right]), place[left + right])

    def test_text_comes_back(self):
        for shape in ("tiny", "small"):
            tokenizer = tokenizers.Tokenizer.from_file(str(self.write(shape, "--shape", shape, "--layers", "1") / "tokenizer.json"))
            for text in TEXTS:
                encoded = tokenizer.encode(text).ids
                self.assertEqual(tokenizer.decode(encoded), text)
                self.assertLessEqual(len(encoded), len(text.encode()), text)
            self.assertLess(len(tokenizer.encode("the memory").ids), 5)
            for number, token in enumerate(llm.SPECIAL):
                self.assertEqual(tokenizer.encode(f"a{token}b").ids[1], number)


class Running(Written):
    """The real library. Its own single tokens are what cached ones are held against."""

    @classmethod
    def setUpClass(cls):
        cls.library = genai.Library(HOME) if genai.libraries(HOME) and llm else None

    def setUp(self):
        super().setUp()
        if not self.library:
            needed("ONNX Runtime GenAI (scripts/engines onnxruntime onnxruntime-genai)", self)

    def model(self, *words):
        return genai.Model(self.library, self.write("-".join(("model", *words)), *words))

    def test_a_cache_changes_nothing(self):
        for cache, kind in ALL:
            with self.subTest(cache=cache, kind=kind), self.model("--cache", cache, "--type", kind) as model:
                for prompt in map(model.encode, PROMPTS):
                    tokens = model.greedy([prompt], 24)[0]
                    alone = [model.greedy([prompt + tokens[:i]], 1)[0][0] for i in range(24)]
                    self.assertEqual(tokens, alone)

    def test_sequences_of_a_batch_are_what_they_are_alone(self):
        for cache, kind in ALL:
            with self.subTest(cache=cache, kind=kind), self.model("--cache", cache, "--type", kind) as model:
                prompts = [model.encode(prompt) for prompt in PROMPTS]
                self.assertEqual(len(set(map(len, prompts))), 3)
                alone = [model.greedy([prompt], 24)[0] for prompt in prompts]
                self.assertEqual(model.greedy(prompts[:2], 24, llm.PAD), alone[:2])
                self.assertEqual(model.greedy(prompts[::-1], 24, llm.PAD), alone[::-1])

    def test_both_caches_give_the_same_tokens_and_prompts_differ(self):
        found = []
        for cache in ("shared", "concat"):
            with self.model("--cache", cache) as model:
                found.append([model.greedy([model.encode(prompt)], 40)[0] for prompt in PROMPTS])
        self.assertEqual(*found)
        self.assertEqual(len({tuple(tokens[:4]) for tokens in found[0]}), 3)
        for tokens in found[0]:
            self.assertGreater(len(set(tokens)), 16)
            self.assertFalse(set(tokens) & set(llm.silent_of(llm.vocabulary(448)[0])))

    def test_weights_in_a_file_of_their_own(self):
        with self.model("--shape", "small", "--layers", "2") as model:
            prompt = model.encode(PROMPTS[0])
            tokens = model.greedy([prompt], 8)[0]
            self.assertEqual(tokens, [model.greedy([prompt + tokens[:i]], 1)[0][0] for i in range(8)])

    def test_its_tokenizer_takes_the_same_pieces(self):
        with self.model() as model:
            ours = tokenizers.Tokenizer.from_file(str(self.folder / "model/tokenizer.json"))
            for text in TEXTS:
                tokens = model.encode(text)
                self.assertEqual(tokens, ours.encode(text).ids, text)
                self.assertEqual(model.decode(tokens), text)
            self.assertEqual([model.encode(token) for token in llm.SPECIAL], [[i] for i in range(len(llm.SPECIAL))])
            self.assertEqual(model.chat(CHAT), "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                                               "<|im_start|>assistant\n")


if __name__ == "__main__":
    unittest.main()
