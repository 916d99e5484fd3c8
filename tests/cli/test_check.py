"""weir check: good manifests, bad ones with every place, and what cannot be read."""

import contextlib
import fcntl
import io
import json
import os
import tarfile
import unittest

import harness

MODEL = b"\x08\x07\x12\x00"
BAD = """{
  "model_file": "m.onnx", "nme": "x",
  "hardware_requirements": {"min_vram_mb": -1}
}
"""
ONNX = (harness.BUILD / "lib/weir/weir-engine-onnx.so").exists()
GGUF = (harness.BUILD / "lib/weir/weir-engine-gguf.so").exists()
LLM = (harness.BUILD / "lib/weir/weir-engine-llm.so").exists()
MLP = harness.SOURCE / "tests/data/onnx/mlp.onnx"
PROBLEMS = [(2, 27, "nearest is \"name\""), (3, 44, "is -1")]


class Check(harness.Case):
    def setUp(self):
        super().setUp()
        self.write("m.onnx", MODEL)
        self.write("good.json", '{"model_file": "m.onnx"}')
        self.write("bad.json", BAD)

    def package(self, name, **files):
        with tarfile.open(self.folder / name, "w:gz") as tar:
            for inside, content in files.items():
                member = tarfile.TarInfo(inside.replace("_", "."))
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))

    def test_packages(self):
        self.package("good.aimod", metadata_json=b'{"model_file": "m.onnx"}', m_onnx=MODEL)
        if not harness.PACKAGES:
            self.assertIn("libarchive", self.refused("check", "good.aimod", status=1))
            return
        out, error = self.weir("check", "good.aimod")
        self.assertEqual((out.splitlines()[0], error), ("good.aimod/metadata.json is good", ""))
        self.package("bad.aimod", metadata_json=b'{"model_file": "../m.onnx"}', m_onnx=MODEL)
        out, _ = self.weir("check", "bad.aimod", status=1)
        self.assertTrue(out.startswith("bad.aimod/metadata.json:1:16: model_file leads out"), out)
        self.write("none.aimod", b"nothing")
        self.assertIn("gzip tar", self.refused("check", "none.aimod", status=1))
        self.assertEqual(len(list((self.folder / "store/packages").iterdir())), 2)

    def test_clearing(self):
        if not harness.PACKAGES:
            self.assertIn("libarchive", self.refused("check", "--clear", status=1))
            return
        self.assertEqual(self.weir("check", "--clear"), ("0 unpacked packages cleared (0 B)\n", ""))
        self.package("good.aimod", metadata_json=b'{"model_file": "m.onnx"}', m_onnx=MODEL)
        self.weir("check", "good.aimod")
        packages = self.folder / "store/packages"
        self.assertEqual(len(list(packages.iterdir())), 1)
        self.assertEqual(self.weir("check", "--clear"), ("1 unpacked package cleared (28 B)\n", ""))
        self.assertEqual(list(packages.iterdir()), [])
        self.weir("check", "good.aimod")
        with self.in_use(next(packages.iterdir())):
            self.assertEqual(self.weir_json("check", "--clear"),
                             {"cleared": 0, "cleared_bytes": 0, "kept": 1, "kept_bytes": 28, "in_use": 1})
            self.assertEqual(self.weir("check", "--clear")[0], "0 unpacked packages cleared (0 B), 1 in use (28 B)\n")
        self.assertIn("--clear takes no manifest", self.refused("check", "--clear", "good.aimod"))

    @contextlib.contextmanager
    def in_use(self, folder):
        """As a process that reads the package has it."""
        file = os.open(folder, os.O_RDONLY)
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
        os.close(file)

    def test_bad_words(self):
        for words, said in (([], "which manifest"), (["a", "b"], "one manifest"), (["good.json", "--some"], "--some")):
            with self.subTest(words=words):
                self.assertIn(said, self.refused("check", *words))

    def test_what_is_good(self):
        self.write("own.json", '{"model_file": "a.toy", "framework": "toy"}')
        for path, engine in (("good.json", "onnx"), ("m.onnx", "onnx"), ("a.toy", "toy"), ("own.json", "toy")):
            with self.subTest(path=path):
                out, error = self.weir("check", path)
                self.assertEqual((out.splitlines()[0], error), (f"{path} is good", ""))
                answer = self.weir_json("check", path)
                self.assertEqual(set(answer), {"good", "path", "errors", "more", "engine", "remarks"})
                self.assertEqual((answer["good"], answer["path"], answer["errors"], answer["more"]), (True, path, [], 0))
                self.assertEqual(answer["engine"], {"name": engine, "here": engine == "toy"})
                self.assertEqual(len(answer["remarks"]), int(engine != "toy"))
                self.assertEqual(out.splitlines()[1:], [f"{path}: remark: {text}" for text in answer["remarks"]])

    def remarks(self, path, **environment):
        answer = self.weir_json("check", path, **environment)
        self.assertTrue(answer["good"])
        return answer["engine"]["here"], answer["remarks"]

    def test_an_engine_that_is_not_here_is_a_remark(self):
        (self.folder / "g").mkdir()
        self.write("g/genai_config.json", "{}")
        here, (llm,) = self.remarks("g")
        self.assertFalse(here)
        self.assertIn("scripts/engines onnxruntime-genai", llm)
        self.assertIn("WEIR_ONNXRUNTIME_GENAI" if LLM else "weir-engine-llm.so is not in", llm)
        self.write("m.gguf", b"GGUF")
        here, (gguf,) = self.remarks("m.gguf")
        self.assertFalse(here)
        self.assertIn("scripts/engines", gguf)
        self.assertIn("libllama.so" if GGUF else "weir-engine-gguf.so", gguf)
        here, (onnx,) = self.remarks("good.json")
        self.assertFalse(here)
        self.assertIn("scripts/engines onnxruntime", onnx)

    @unittest.skipUnless(ONNX, "the engine onnx was not built")
    def test_a_provider_that_is_not_here_is_a_remark(self):
        self.write("p.json", '{"model_file": "m.onnx", "hardware_requirements": '
                             '{"preferred_provider": "OpenVINO", "fallback_providers": ["openvino", "cuda", "cpu"]}}')
        _, (engine, openvino, cuda) = self.remarks("p.json")
        self.assertIn("run scripts/engines onnxruntime", engine)
        self.assertIn("openvino of the engine onnx is not here", openvino)
        self.assertIn("run scripts/engines --openvino onnxruntime-openvino", openvino)
        self.assertIn("run scripts/engines --cuda onnxruntime-cuda", cuda)
        self.write("t.json", '{"model_file": "a.toy", "framework": "toy", "hardware_requirements": {"preferred_provider": "rocm"}}')
        self.assertEqual(self.remarks("t.json"), (True, ["the engine toy has no provider rocm"]))

    def tuned(self, tuning, **requirements):
        content = {"model_file": str(MLP), "tuning": tuning, "hardware_requirements": requirements}
        self.write("tuned.json", json.dumps(content))

    @unittest.skipUnless(ONNX, "the engine onnx was not built")
    def test_words_are_taken_in_any_case(self):
        for tuning in ({"optimization": "All"}, {"optimization": "BASIC"}, {"weights": "Ours"}, {"prepack": "OFF"}, {"cpu_arena": "Off"},
                       {"provider": "CPU"}):
            with self.subTest(tuning=tuning):
                self.tuned(tuning, graph_optimization_level="Extended")
                self.remarks("tuned.json")

    @unittest.skipUnless(ONNX, "the engine onnx was not built")
    def test_what_the_engine_would_refuse(self):
        for tuning, said in (({"optimization": "most"}, '"most"'), ({"optimisation": "all"}, '"optimisation"'), ({"threads": 1000}, "threads"),
                             ({"cpu_arena": True}, "cpu_arena"), ({"buckets": 2, "prepack": True, "weights": "engine"}, "buckets")):
            with self.subTest(tuning=tuning):
                self.tuned(tuning)
                error = self.refused("check", "tuned.json", status=1)
                self.assertIn("tuned.json: tuning: ", error)
                self.assertIn(said, error)
                self.assertIn(said, self.weir_json("check", "tuned.json", status=1)["errors"][0]["text"])

    @unittest.skipUnless(ONNX, "the engine onnx was not built")
    def test_settings_are_for_one_provider_or_another(self):
        self.tuned({"cuda_graph": True})  # of a machine with a GPU, by whatever order
        self.remarks("tuned.json")
        self.tuned({"cuda_graph": True}, preferred_provider="cpu", fallback_providers=["openvino"])
        self.assertIn("cuda_graph", self.refused("check", "tuned.json", status=1))
        self.tuned({"session_buckets": 4}, preferred_provider="openvino", fallback_providers=["cpu"])
        _, remarks = self.remarks("tuned.json")
        self.assertEqual([text for text in remarks if "passed over" in text],
                         [text for text in remarks if "openvino is passed over" in text and "setting buckets" in text])
        self.assertEqual(len(remarks), 3)
        self.tuned({"session_buckets": 4}, preferred_provider="openvino", allow_cpu=False)
        self.assertIn("setting buckets", self.refused("check", "tuned.json", status=1))

    @unittest.skipUnless(ONNX, "the engine onnx was not built")
    def test_tuning_of_kapsls(self):
        self.tuned({"memory_pattern": True, "disable_cpu_mem_arena": False, "session_buckets": 4, "bucket_dim_granularity": 64,
                    "bucket_max_dims": 4, "peak_concurrency_hint": 2})
        self.remarks("tuned.json")
        self.write("m.gguf", b"GGUF")
        self.write("gguf.json", '{"model_file": "m.gguf",\n "tuning": {"session_buckets": 4}}')
        out, _ = self.weir("check", "gguf.json", status=1)
        self.assertTrue(out.startswith("gguf.json:2:13: tuning: session_buckets has no meaning for the engine gguf"), out)

    def test_every_problem_has_its_place(self):
        out, error = self.weir("check", "bad.json", status=1)
        self.one_line(error)
        self.assertIn("2 problems", error)
        lines = out.splitlines()
        self.assertEqual(len(lines), len(PROBLEMS), out)
        answer = self.weir_json("check", "bad.json", status=1)
        self.assertFalse(answer["good"])
        self.assertEqual(answer["path"], "bad.json")
        for (line, column, text), shown, told in zip(PROBLEMS, lines, answer["errors"], strict=True):
            self.assertTrue(shown.startswith(f"bad.json:{line}:{column}: "), shown)
            self.assertIn(text, shown)
            self.assertEqual((told["line"], told["column"]), (line, column))
            self.assertEqual(f"bad.json:{line}:{column}: {told['text']}", shown)

    def test_what_cannot_be_read(self):
        self.write("a.safetensors", b"x")
        self.write("notes.txt", "hello")
        for path, said in (("nowhere.json", "no nowhere.json"), ("a.safetensors", "safetensors"),
                           ("notes.txt", "engine"), (".", "genai_config.json")):
            with self.subTest(path=path):
                self.assertIn(said, self.refused("check", path, status=1))
                answer = self.weir_json("check", path, status=1)
                self.assertEqual([answer["good"], len(answer["errors"])], [False, 1])
                self.assertIn(said, answer["errors"][0]["text"])
                self.assertEqual(answer["errors"][0]["line"], 0)

    def test_more_problems_than_are_listed(self):
        self.write("many.json", '{"model_file": "m.onnx", ' + ", ".join(f'"x{i}y": 1' for i in range(250)) + "}")
        answer = self.weir_json("check", "many.json", status=1)
        self.assertEqual((len(answer["errors"]), answer["more"]), (100, 150))
        self.assertIn("250 problems", self.error)

    def test_keys_are_no_commands_for_the_terminal(self):
        self.write("escape.json", '{"model_file": "m.onnx", "\\u001b[2J\\u009b": 1}')
        out, _ = self.weir("check", "escape.json", status=1)
        self.assertIn('"?[2J', out)
        self.assertFalse(set(out) & {"\x1b", "\x9b"})


if __name__ == "__main__":
    harness.main()
