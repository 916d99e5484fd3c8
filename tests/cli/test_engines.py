"""weir run with the real engines and the demo's models, where the store has them."""

import json
import subprocess
import sys
import unittest

import harness
from harness import CLASSES, COMMAND, MIB, SOURCE, STORE

MODELS = STORE / "models"


def missing():
    names = ("minilm.onnx", "minilm.gguf", "tiny-llama.gguf")
    lacking = [str(MODELS / name) for name in names if not (MODELS / name).exists()]
    lacking += [str(plugin) for name in ("onnx", "gguf")
                for plugin in [harness.BUILD / f"lib/weir/weir-engine-{name}.so"] if not plugin.exists()]
    return ", ".join(lacking)


@unittest.skipIf(missing(), f"not here: {missing()}")
class Engines(harness.Case):
    def environment(self, more):
        return super().environment({"WEIR_HOME": str(STORE), **more})

    def test_inputs_that_were_filled_are_tried_in_other_extents(self):
        data = SOURCE / "tests/data/onnx"
        output, = self.weir_json("run", data / "picky.onnx")["clients"][0]["outputs"]
        self.assertEqual(output["shape"], [1, 32])
        line = self.refused("run", data / "secretive.onnx", status=1)
        self.assertRegex(line, r"inputs that were not given were filled: x \[1, 16\], and with other extents up to 1024: give them, as --input")
        output, = self.weir_json("run", data / "secretive.onnx", "--input", "x=shape:1x33")["clients"][0]["outputs"]
        self.assertEqual(output["shape"], [1, 4])
        self.assertNotIn("filled", self.refused("run", data / "secretive.onnx", "--input", "x=shape:1x34", status=1))

    def test_inputs_that_were_filled_are_tried_as_constants_demand(self):
        for name, shape in (("pickier", [1, 33]), ("demands_shape", [2, 195]), ("demands_rows", [1, 5]), ("demands_columns", [4, 37]),
                            ("demands_window", [1, 1, 1, 16]), ("demands_parts", [1, 27]), ("demands_features", [1, 1, 16, 8]),
                            ("demands_beside", [8, 4])):
            with self.subTest(name=name):
                outputs = self.weir_json("run", SOURCE / f"tests/data/onnx/{name}.onnx")["clients"][0]["outputs"]
                self.assertEqual(outputs[-1]["shape"], shape)
        words = ("run", SOURCE / "tests/data/onnx/demands_rows.onnx", "--input")
        self.assertEqual(self.weir_json(*words, "z=shape:3x41")["clients"][0]["outputs"][0]["shape"], [3, 5])
        self.assertIn("x [1, 16]", self.refused(*words, "z=shape:1x40", status=1))

    def test_inputs_that_were_filled_are_tried_in_smaller_extents(self):
        output, = self.weir_json("run", SOURCE / "tests/data/onnx/few_places.onnx")["clients"][0]["outputs"]
        self.assertEqual(output["shape"], [1, 4])
        self.assertEqual(self.weir_json("run", SOURCE / "tests/data/onnx/few_places.onnx", "--input", "x=shape:1x8")["clients"][0]["outputs"][0]["shape"],
                         [8, 4])

    def test_two_models_under_one_budget(self):
        answer = self.weir_json("run", MODELS / "minilm.onnx", MODELS / "minilm.gguf", "--budget", "600MiB")
        self.assertEqual(answer["live_at_end"], 0)
        self.assertEqual(answer["budget"], 600 * MIB)
        self.assertLessEqual(answer["peak"], answer["budget"])
        self.assertLessEqual(answer["peak_held"], answer["budget"])
        self.assertEqual(answer["events_lost"], 0)
        self.assertEqual(sum(client["bytes"] for client in answer["peak_clients"]), answer["peak"])
        for client in answer["clients"]:
            self.assertEqual(sum(client[name] for name in CLASSES), client["peak"])
            self.assertGreater(client["weights"], 80 * MIB)
            self.assertIn("RssAnon", client["outside_method"])
            self.assertEqual(client["runs"], 1)
        onnx, gguf = self.client(answer, "minilm.onnx"), self.client(answer, "minilm.gguf")
        if not harness.SANITIZED:
            self.assertLess(gguf["outside"], 0.10 * gguf["weights"])
        self.assertIn("sentence_embedding", [output["name"] for output in onnx["outputs"]])
        self.assertEqual(gguf["outputs"][0]["shape"], [1, 384])

    def test_who_computed_with_how_many_cores_is_told(self):
        words = ("run", MODELS / "minilm.onnx", MODELS / "minilm.gguf", "--budget", "600MiB", "--cores", "1")
        for client in self.weir_json(*words)["clients"]:
            self.assertEqual((1, 1), (client["cores"]["least"], client["cores"]["last"]))
            self.assertGreater(client["cores"]["leases"], 0)
        self.assertRegex(self.weir(*words)[0], r"(?m)^cores: 1; minilm\.onnx computed with 1\b.*, minilm\.gguf computed with 1\b")

    @unittest.skipIf(harness.SANITIZED, "a sanitizer's shadow memory is anonymous memory too")
    def test_what_llama_keeps_outside(self):
        # What the library takes for itself when it is opened is told apart, and told once.
        first, second = self.weir_json("run", MODELS / "minilm.gguf", MODELS / "minilm.gguf", "--budget", "400MiB")["clients"]
        for client in (first, second):
            self.assertGreater(client["outside"], 0)
            self.assertLess(client["outside"], 0.10 * client["weights"])
        self.assertGreater(first["outside_once"], MIB)
        self.assertLess(second["outside_once"], 64 << 10)  # malloc's own pages

    def test_the_stores_models_by_name(self):
        self.assertEqual(self.weir_json("run", "minilm.onnx", "--budget", "600MiB")["clients"][0]["runs"], 1)
        self.assertIn("neither-here-nor-there.onnx", self.refused("run", "neither-here-nor-there.onnx", status=1))

        answer = self.weir_json("plan", "minilm.onnx", "--dim", "batch=8", "--dim", "sequence=512", "--svg", "minilm.svg")
        self.assertEqual(answer["file"], str(MODELS / "minilm.onnx"))

    def manifest(self, model, tuning, level=None):
        needs = {"graph_optimization_level": level} if level else {}
        self.write("m.json", json.dumps({"model_file": str(MODELS / model), "tuning": tuning, "hardware_requirements": needs}))

    def test_what_passes_the_check_loads(self):
        for model, level, tuning in (
                ("minilm.onnx", "All", {}), ("minilm.onnx", "BASIC", {}), ("minilm.onnx", None, {"optimization": "Extended"}),
                ("minilm.onnx", None, {"prepack": "Off", "weights": "OURS", "memory_pattern": "oFF"}),
                ("minilm.onnx", "all", {"memory_pattern": True, "disable_cpu_mem_arena": True, "session_buckets": 4,
                                        "bucket_dim_granularity": 64, "bucket_max_dims": 4, "peak_concurrency_hint": 2}),
                ("minilm.onnx", None, {"disable_cpu_mem_arena": False, "bucket_max_dims": 4}),
                ("minilm.gguf", "ALL", {"pooling": "Mean"})):
            with self.subTest(model=model, level=level, tuning=tuning):
                self.manifest(model, tuning, level)
                self.assertTrue(self.weir_json("check", "m.json")["good"])
                self.assertEqual(self.weir_json("run", "m.json", "--provider", "cpu")["clients"][0]["runs"], 1)

    def test_what_the_load_refuses_the_check_does_too(self):
        for model, level, tuning, said in (
                ("minilm.onnx", None, {"optimization": "most"}, "optimization"), ("minilm.onnx", None, {"bucket_dims": 2}, "bucket_dims"),
                ("minilm.gguf", "basic", {}, "levels of optimization"), ("minilm.gguf", None, {"pooling": "some"}, "pooling"),
                ("minilm.gguf", None, {"session_buckets": 4}, "session_buckets")):
            with self.subTest(model=model, tuning=tuning):
                self.manifest(model, tuning, level)
                for verb in ("check", "run"):
                    out, error = self.weir(verb, "m.json", status=1)
                    self.assertIn(said, out + error)

    def test_a_budget_for_one_of_two(self):
        models = (MODELS / "minilm.onnx", MODELS / "minilm.gguf")
        budget = self.weir_json("run", models[0], "--budget", "600MiB")["peak_held"] + 32 * MIB
        answer = self.weir_json("run", *models, "--budget", budget, status=1)
        self.one_line(self.error)
        self.assertRegex(self.error, r"^weir: minilm\.gguf asked for [\d.]+ MiB .* minilm\.onnx holds [\d.]+ MiB; .*--budget \d+")
        self.assertEqual(self.client(answer, "minilm.onnx")["runs"], 1)
        self.assertEqual(answer["live_at_end"], 0)
        for _ in range(4):  # what is told is the least that is certain: a load asks for more than its first request
            told = int(self.error.split("--budget ")[1].split()[0])
            self.assertGreater(told, budget)
            budget = told
            out, self.error = self.weir("run", *models, "--budget", budget, status=None)
            if not self.error.startswith("weir: "):
                break
        self.assertIn("minilm.gguf", out)
        self.assertLessEqual(budget, self.weir_json("run", *models, "--budget", budget)["peak_held"] + 2 * MIB)

    def test_the_exact_budget_of_a_generating_model(self):
        model = MODELS / "tiny-llama.gguf"
        for cache in "promised", "whole":
            with self.subTest(cache=cache):
                words = ("run", model, "--tokens", "3", "--set", f"cache_memory={cache}", "--budget")
                line = self.refused(*words, "20MiB", status=1)
                self.assertRegex(line, r"with --budget \d+ \(.*\) all of it fits\n$")
                budget = int(line.split("--budget ")[1].split()[0])
                self.weir(*words, budget)
                self.weir(*words, budget - 2 * 65536, status=1)

    def test_a_cache_that_grows_needs_what_its_tokens_need(self):
        words = ("run", MODELS / "tiny-llama.gguf", "--tokens", "3", "--json")
        elastic = self.weir_json(*words[:-1])["clients"][0]
        whole = self.weir_json(*words[:-1], "--set", "cache_memory=whole")["clients"][0]
        self.assertLess(elastic["peak"] + 7 * MIB, whole["peak"])
        self.assertEqual(elastic["outputs"], whole["outputs"])

    def test_generation(self):
        words = ("run", MODELS / "tiny-llama.gguf", "--prompt", "Once upon a time", "--tokens", "5",
                 "--budget", "400MiB")
        client = self.weir_json(*words)["clients"][0]
        outputs = {output["name"]: output for output in client["outputs"]}
        self.assertEqual(outputs["tokens"]["shape"], [5])
        self.assertGreater(client["kv"], 0)
        out = self.weir(*words, "--stream")[0]
        self.assertTrue(outputs["text"]["text"].strip())
        self.assertIn(outputs["text"]["text"].strip().splitlines()[0][:8], out)

    def test_hostile_files(self):
        for name in ("minilm.onnx", "minilm.gguf"):
            with open(MODELS / name, "rb") as file:
                self.write(name, file.read(100000))
            answer = self.weir_json("run", name, status=1)
            self.one_line(self.error)
            self.assertEqual((answer["live_at_end"], answer["clients"]), (0, []))

    @unittest.skipUnless((MODELS / "tiny-llm").exists() and (STORE / "engines/onnxruntime-genai/current").exists() and
                         (STORE / "venv").exists() and (harness.BUILD / "lib/weir/weir-engine-llm.so").exists(),
                         "tiny-llm, its engine or the store's Python is not here")
    def test_demo(self):
        done = subprocess.run([sys.executable, SOURCE / "scripts/demo", COMMAND.parents[1]], capture_output=True, text=True,
                              env=self.environment({}), timeout=1000, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("The nearest pairs of 12 sentences", done.stdout)
        table = {words[0]: words[1] for words in map(str.split, done.stdout.splitlines()) if len(words) > 7}
        self.assertEqual({name: table.get(name) for name in ("minilm.onnx", "minilm.gguf", "tiny-llm")},
                         {"minilm.onnx": "onnx", "minilm.gguf": "gguf", "tiny-llm": "llm"}, done.stdout)
        for protocol in ("Open Inference Protocol", "OpenAI", "Ollama"):
            self.assertRegex(done.stdout, rf"(?m)^  {protocol} +POST /\S+ +\S")


if __name__ == "__main__":
    harness.main()
