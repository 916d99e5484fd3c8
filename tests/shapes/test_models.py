"""Plans of ONNX models: the shape of every tensor, beside onnx's own inference and runs of its reference evaluator; what
is live at once, beside a count of its own. The models are made here, by models.py in the store's environment."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
import harness  # noqa: E402  pylint: disable=wrong-import-position

PYTHON = harness.STORE / "venv/bin/python"
MINILM = harness.STORE / "models/minilm.onnx"
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Models(harness.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not PYTHON.exists():
            raise unittest.SkipTest("the store has no Python environment (scripts/venv)")
        cls.models = Path(tempfile.mkdtemp(prefix="weir-plan-"))
        cls.addClassCleanup(shutil.rmtree, cls.models)
        subprocess.run([PYTHON, "-B", HERE / "models.py", cls.models], check=True)
        cls.expected = json.loads((cls.models / "expected.json").read_text(encoding="utf-8"))

    def plan(self, name, *words):
        dims = [word for dim in self.expected[name]["dims"].items() for word in ("--dim", "=".join(map(str, dim)))]
        return self.weir_json("plan", self.models / f"{name}.onnx", *dims, "--places", *words)

    def compare(self, name):
        expected, answer = self.expected[name], self.plan(name)
        found = {place["name"]: place["looks"] for place in answer["places"] if place["maker"] != "input"}
        self.assertGreater(len(found), 4)
        self.assertIsNone(answer["source"]["remark"])
        for tensor, looks in found.items():
            self.assertEqual(looks, expected["tensors"][tensor], f"{name}: {tensor}")
        return expected, answer, found

    def test_single_operators(self):
        for name in ("each", "windows", "matrices", "shapes", "indices", "older", "newer", "onnxruntime", "signals", "learning", "quantized"):
            with self.subTest(name=name):
                expected, _, found = self.compare(name)
                self.assertEqual(set(expected["tensors"]) - set(found), set())

    def test_operators_without_a_rule_are_named(self):
        """Of those that ONNX Runtime has (operators.txt), the guide names each that has no rule, and no other."""
        rules = set(re.findall(r'{"(\w+)", rule_', (ROOT / "src/onnx/shapes/rules.c").read_text(encoding="utf-8")))
        left = {}
        for line in (HERE / "operators.txt").read_text(encoding="utf-8").splitlines():
            domain, name = line.split()
            if name not in rules:
                left.setdefault(domain, set()).add(name)
        guide = (ROOT / "docs/guide/plan.md").read_text(encoding="utf-8")
        named = {domain: set(re.findall(r"\w+", names)) for domain, names in re.findall(r"^- `([a-z.]+)`: ((?:\w+,?\s+)*\w+)$", guide, re.M)}
        self.assertEqual(named, left)

    def test_networks(self):
        """Tensors that are not in the plan follow from dimensions or weights."""
        for name in ("bert", "gpt2", "upsampling"):
            with self.subTest(name=name):
                expected, answer, found = self.compare(name)
                missing = set(expected["tensors"]) - set(found)
                self.assertGreater(len(missing), 3)
                self.assertGreater(answer["source"]["folded"], 0)
                self.assertFalse([tensor for tensor in missing if tensor.startswith(("MatMul", "Softmax", "Conv"))])
                self.assertEqual(answer["arena"], answer["lower_bound"])
                self.assertTrue(answer["proven"])

    def test_sharing(self):
        names, answer = self.expected["sharing"]["names"], self.plan("sharing")
        number = {place["name"]: i for i, place in enumerate(answer["places"])}
        place = {key: answer["places"][number[name]] for key, name in names.items()}
        # not over what a view still shows, though that comes first
        self.assertEqual(place["over_spare"]["written_over"], number[names["spare"]])
        self.assertEqual(place["late"]["written_over"], number[names["looked"]])
        # not over what is read several times for each result
        self.assertIsNone(place["flags"]["written_over"])
        # what only a branch reads lives as long as the branch runs, in the last step
        self.assertEqual(place["held"]["end"], answer["steps"])
        self.assertIn("1 node has branches", answer["source"]["remark"])

    def places(self, name):
        answer = self.plan(name)
        by_name = {place["name"]: place for place in answer["places"]}
        return {key: by_name[tensor] for key, tensor in self.expected[name]["names"].items()}

    def test_branches(self):
        expected, answer = self.expected["branches"], self.plan("branches")
        place = {each["name"]: each for each in answer["places"]}
        self.assertEqual(place["node0"], {**place["node0"], "bytes": expected["inside"], "maker": "If", "begin": 0, "end": 1})
        self.assertEqual((answer["arena"], answer["lower_bound"]), (expected["live"], expected["live"]))
        self.assertEqual(answer["source"]["weights"], expected["weights"])
        self.assertEqual(place["Neg1"]["looks"], expected["tensors"]["Neg1"])  # which no file says
        self.assertEqual(place["in0"]["end"], 1)  # the branches read it
        self.assertEqual(answer["source"]["remark"], "2 nodes have branches, each planned by itself: the larger one is in "
                         "the plan, as one buffer")
        self.assertEqual(self.plan("branches", "--quick")["arena"], expected["live"])
        # nothing is written over e or d, and what comes out of a branch has its place outside
        self.assertEqual(self.plan("branches", "--no-in-place")["arena"], expected["live"])
        aligned = {each["name"]: each for each in self.plan("branches", "--align", "65536")["places"]}
        self.assertEqual(aligned["node0"]["bytes"] % 65536, 0)

    def test_what_branches_have_of_weights(self):
        expected, source = self.expected["inside"], self.plan("inside")["source"]
        self.assertEqual((source["constants"], source["weights"]), (expected["constants"], expected["weights"]))
        unpacked = self.places("inside")["unpacked"]  # in the step before that of the node whose branch reads it
        self.assertEqual((unpacked["begin"], unpacked["end"]), (1, 3))

    def test_graphs_inside_that_are_not_planned(self):
        remark = self.plan("looped")["source"]["remark"]
        self.assertIn("1 node has branches", remark)
        self.assertIn("1 node has a graph inside; the 2 tensors made there are not in the plan", remark)
        self.assertEqual(self.places("decided")["chosen"]["looks"], "8x4 float")
        for name, words in (("unlike", ("4x8 of float", "1x1 of float")), ("strange", ("else_branch", "own.Odd"))):
            line = self.refused("plan", self.models / f"{name}.onnx", status=1)
            for word in (*words, "--shape If0="):
                self.assertIn(word, line)
        self.assertIn("1 node has branches", self.plan("unlike", "--shape", "If0=4x8")["source"]["remark"])
        self.assertEqual(self.plan("strange", "--shape", "If0=4x8:float")["source"]["remark"],
                         "1 node has a graph inside; the 2 tensors made there are not in the plan")

    def test_a_condition_that_follows_from_shapes(self):
        """The branch that runs is alone, so that the other one may make another shape."""
        path = self.models / "measured.onnx"
        for rows, looks in ((4, "4x8 float"), (5, "1x1 float")):
            answer = self.weir_json("plan", path, "--dim", f"rows={rows}", "--places")
            place = {each["name"]: each["looks"] for each in answer["places"]}
            self.assertEqual(place[self.expected["measured"]["names"]["chosen"]], looks)

    def test_weights_are_unpacked_where_they_are_read(self):
        answer, names = self.plan("unpacked"), self.expected["unpacked"]["names"]
        place = {each["name"]: each for each in answer["places"]}
        self.assertEqual([(place[names[i]]["begin"], place[names[i]]["end"]) for i in sorted(names)],
                         [(2 * i, 2 * i + 2) for i in range(4)])
        self.assertEqual(answer["arena"], self.expected["unpacked"]["live"])

    def test_outputs_are_kept(self):
        """What the last node makes has a place of its own, though the outputs that it reads end with it."""
        place = self.places("kept")
        self.assertIsNone(place["last"]["written_over"])
        self.assertEqual(len({each["offset"] for each in place.values()}), 3)

    def test_names(self):
        words = [self.models / "names.onnx", "--dim", "sequence_length=2", "--dim", "sequence=3"]
        line = self.refused("plan", *words, "--dim", "m=4", status=1)
        self.assertIn("its inputs have sequence_length, sequence", line)
        out = self.weir("plan", *words)[0]
        self.assertIn("another shape than the file says", out)
        self.assertNotIn("\x1b", out)

    def test_unknown_operators_share_nothing(self):
        for place in self.places("strangers").values():
            self.assertIsNone(place["view_of"])
            self.assertIsNone(place["written_over"])

    def test_a_model_in_which_nothing_runs(self):
        answer = self.plan("idle", "--svg", "idle.svg")
        self.assertEqual((answer["arena"], answer["buffers"], answer["source"]["views"]), (256, 2, 1))

    def test_constants_of_nodes(self):
        """None is made in a run, however many its numbers are; few are known before it, as a shape is."""
        answer, names = self.plan("held"), self.expected["held"]["names"]
        found = {place["name"]: place["looks"] for place in answer["places"]}
        self.assertEqual(found[names["reshaped"]], self.expected["held"]["tensors"][names["reshaped"]])
        self.assertEqual((answer["source"]["folded"], answer["source"]["constants"]), (3, 4 * (4096 + 4097)))
        self.assertFalse({names["few"], names["many"]} & set(found))

    def test_hostile_models(self):
        self.assertGreater(self.plan("constants")["buffers"], 0)
        self.assertIn("equation", self.refused("plan", self.models / "dots.onnx", status=1))
        for kind in ("Gather", "Concat"):
            self.assertEqual(self.plan(f"empty{kind}")["arena"], 256)

    def test_empty_tensors_with_endless_dimensions(self):
        for name in ("endless", "endlessWeight"):
            self.assertIn("beyond what can be addressed", self.refused("plan", self.models / f"{name}.onnx", status=1))

    def test_what_is_said_of_a_reshape(self):
        """The elements of its input are what it has, whatever a run makes of the shape."""
        for op in ("Reshape", "Squeeze", "Unsqueeze"):
            self.assertEqual(self.places(f"saidTrue{op}")["made"]["looks"], "4x10 float")
            for kind, text in (("Count", "4x11 of float"), ("Type", "4x10 of float16")):
                line = self.refused("plan", self.models / f"said{kind}{op}.onnx", status=1)
                for word in (f'"{op}0"', text, '"in0"', "2x20 of float"):
                    self.assertIn(word, line)
        unsaid = self.models / "unsaid.onnx"
        self.assertIn("--shape Reshape0=", self.refused("plan", unsaid, status=1))
        self.weir("plan", unsaid, "--shape", "Reshape0=5x8")  # its type follows
        self.assertIn("5x9 of float", self.refused("plan", unsaid, "--shape", "Reshape0=5x9", status=1))

    def test_one_scale_that_makes_too_much(self):
        line = self.refused("plan", self.models / "huge.onnx", status=1)
        self.assertIn("dimension 3 larger than can be addressed", line)

    def test_functions(self):
        line = self.refused("plan", self.models / "functions.onnx", status=1)
        self.assertIn("own.Twice", line)
        self.assertIn("inline_local_functions", line)
        self.weir("plan", self.models / "functions.onnx", "--shape", "Twice0=4")

    def test_resnet50(self):
        expected, answer, _ = self.compare("resnet50")
        self.assertEqual(answer["source"]["weights"], expected["weights"])
        plain = self.plan("resnet50", "--no-in-place")
        self.assertEqual(plain["lower_bound"], expected["live"])
        self.assertEqual(plain["arena"], expected["live"])
        self.assertEqual(plain["in_place"], 0)
        # A Relu over its own input spares what the input takes, wherever nobody else reads it.
        self.assertGreater(answer["in_place"], 40)
        self.assertLess(answer["arena"], plain["arena"])
        self.assertTrue(answer["proven"])

    def test_minilm(self):
        if not MINILM.exists():
            self.skipTest("the store has no minilm.onnx (scripts/models)")
        small = self.weir_json("plan", MINILM, "--dim", "batch=1", "--dim", "sequence=16")
        large = self.weir_json("plan", MINILM, "--dim", "batch=8", "--dim", "sequence=512")
        self.assertEqual(small["arena"], small["lower_bound"])
        self.assertEqual(large["arena"], large["lower_bound"])
        self.assertEqual(small["source"]["weights"], large["source"]["weights"])
        # the scores of attention grow with the square of the length
        self.assertGreater(large["arena"], 8 * 32 * small["arena"])


if __name__ == "__main__":
    harness.main()
