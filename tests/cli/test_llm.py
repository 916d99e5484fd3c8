"""The command and models of ONNX Runtime GenAI's, which are folders: every verb that takes a model, by every name of it."""

import json
import shutil
import tarfile
import unittest

import harness
from harness import CLASSES, MIB, STORE

MODEL = STORE / "models/tiny-llm"
CONFIG = "genai_config.json"
PROMPT = ("--prompt", "Once upon a time", "--tokens", "3")


def missing():
    needed = [STORE / "engines/onnxruntime-genai/current", STORE / "engines/onnxruntime/current", MODEL,
              harness.BUILD / "lib/weir/weir-engine-llm.so"]
    return ", ".join(str(path) for path in needed if not path.exists())


@unittest.skipIf(missing(), f"not here: {missing()}")
class Folders(harness.Case):
    def setUp(self):
        super().setUp()
        (self.folder / "phi").symlink_to(MODEL)
        self.write("m.json", '{"model_file": "phi", "name": "little", "tuning": {"context": 64, "temperature": 0}}')

    def environment(self, more):
        return super().environment({"WEIR_HOME": str(STORE), **more})

    def model(self, name, change):
        """A copy of the model, with its genai_config.json changed."""
        shutil.copytree(MODEL, self.folder / name)
        config = json.loads((MODEL / CONFIG).read_text())
        change(config)
        (self.folder / name / CONFIG).write_text(json.dumps(config))
        return name

    def package(self, name, manifest, inside):
        """A package of the model, below a folder of that name or beside the manifest."""
        self.write("metadata.json", json.dumps(manifest))
        with tarfile.open(self.folder / name, "w:gz") as tar:
            tar.add(self.folder / "metadata.json", "metadata.json")
            for file in MODEL.iterdir():
                tar.add(file, f"{inside}{file.name}")

    def run_one(self, *words, **environment):
        answer = self.weir_json("run", *words, *PROMPT, **environment)
        self.assertEqual((answer["live_at_end"], answer["events_lost"], len(answer["clients"])), (0, 0, 1))
        client = answer["clients"][0]
        self.assertEqual((client["engine"], client["provider"], client["device"], client["runs"]), ("llm", "cpu", "host", 1))
        self.assertEqual(sum(client[name] for name in CLASSES), client["peak"])
        outputs = {output["name"]: output for output in client["outputs"]}
        self.assertEqual((outputs["tokens"]["shape"], outputs["finish_reason"]["text"]), ([3], "length"))
        return client, outputs["text"]["text"]

    def test_a_folder_runs_as_a_file_does(self):
        client, text = self.run_one("phi")
        self.assertEqual((client["name"], self.error), ("phi", ""))
        self.assertEqual(client["attempts"], [])  # nothing was chosen
        self.assertTrue(all(client[name] > 0 for name in ("weights", "activations", "kv")), client)
        for path in ("phi/", f"phi/{CONFIG}", f"./phi//{CONFIG}", self.folder / "phi", "tiny-llm"):
            with self.subTest(path=path):
                same, again = self.run_one(path)
                self.assertEqual((same["name"], again), ("tiny-llm" if path == "tiny-llm" else "phi", text))
                self.assertEqual([same[name] for name in CLASSES], [client[name] for name in CLASSES])

    def test_from_inside_the_folder(self):
        for file in MODEL.iterdir():
            (self.folder / file.name).symlink_to(file)
        for path, name in ((CONFIG, CONFIG), (f"./{CONFIG}", "model"), (".", "model"), ("..", None)):
            if name:
                self.assertEqual(self.run_one(path)[0]["name"], name)
                self.assertTrue(self.weir_json("check", path)["good"])
                self.assertEqual(self.weir_json("explain", path)["chosen"]["engine"], "llm")
            else:
                self.assertIn("no engine here takes ..", self.refused("run", path, status=1))

    def test_names_in_a_run(self):
        answer = self.weir_json("run", "phi", "phi/", f"phi/{CONFIG}", *PROMPT, "--maximum", "phi#2=8MiB", "--output", "out")
        self.assertEqual([client["name"] for client in answer["clients"]], ["phi", "phi#2", "phi#3"])
        texts = {(self.folder / "out" / name / "text.txt").read_text() for name in ("phi", "phi#2", "phi#3")}
        self.assertEqual(len(texts), 1)
        error = self.refused("run", "phi", *PROMPT, "--maximum", "phi=64KiB", status=1)
        self.assertRegex(error, r"^weir: phi asked for .* \(weights\) on host; ")

    def test_chosen(self):
        _, text = self.run_one("phi")
        self.package("p.aimod", {"model_file": f"inside/{CONFIG}", "framework": "llm"}, "inside/")
        self.package("flat.aimod", {"model_file": "."}, "")
        packages = [["p.aimod"], ["flat.aimod"]] if harness.PACKAGES else []
        for words in (["phi", "--provider", "cpu"], ["phi/", "--engine", "LLM"], ["m.json"], *packages,
                      ["phi", "--device", "cpu", "--no-fallback"]):
            with self.subTest(words=words):
                client, same = self.run_one(*words, WEIR_HOME=str(STORE))
                self.assertEqual((client["name"], same), (words[0].rstrip("/"), text))
                self.assertEqual([(a["engine"], a["provider"], a["code"]) for a in client["attempts"]], [("llm", "cpu", "WEIR_OK")])
        self.assertIn("the manifest's framework is llm", self.refused("run", "phi", "--engine", "onnx", status=1))

    def test_explained(self):
        answer = self.weir_json("explain", "phi/", "--provider", "cpu")
        chosen = answer["candidates"][0]
        self.assertEqual((chosen["engine"], chosen["provider"], chosen["verdict"]), ("llm", "cpu", "ACCEPTED"))
        self.assertTrue(chosen["bytes"]["weights"] > 0 and chosen["bytes"]["kv"] > 0, chosen)
        self.assertIn("libonnxruntime-genai.so", chosen["library"])
        self.assertEqual({c["verdict"] for c in answer["candidates"] if c["engine"] != "llm"}, {"NOT_ASKED"})
        # Of a cache that is taken run by run, what two tokens take, whatever the context.
        half = self.weir_json("explain", "m.json", "--provider", "cpu")["candidates"][0]["bytes"]
        self.write("m.json", '{"model_file": "phi", "tuning": {"context": 128}}')
        whole = self.weir_json("explain", "m.json", "--provider", "cpu")["candidates"][0]["bytes"]
        self.assertEqual((half["weights"], half["kv"]), (whole["weights"], whole["kv"]))
        self.assertEqual(half["kv"], 2 * 512)

    def test_checked(self):
        for path in ("phi", "phi/", f"phi/{CONFIG}", "m.json", "tiny-llm"):
            answer = self.weir_json("check", path)
            self.assertEqual((answer["good"], answer["engine"], answer["remarks"]), (True, {"name": "llm", "here": True}, []))

    def test_what_passes_the_check_loads(self):
        good = {"context": 64, "threads": 1, "batch": 16, "temperature": 0.5, "top_k": 5, "seed": 7, "stop": "x",
                "ignore_eos": True}
        for level, tuning in ((None, good), ("All", {}), (None, {"sequences": 2})):
            self.tuned(tuning, level)
            self.assertTrue(self.weir_json("check", "m.json")["good"])
            self.run_one("m.json")
        for level, tuning, said in ((None, {"contex": 64}, "contex"), (None, {"sequences": 0}, "sequences"),
                                    (None, {"session_buckets": 2}, "no sessions by shape"), ("basic", {}, "levels of optimization"),
                                    (None, {"regex": "a", "lark": "b"}, "one of the settings"),
                                    (None, {"sequences": 2, "batch": 16}, "of one sequence"), (None, {"context": 1 << 20}, "context")):
            with self.subTest(tuning=tuning, level=level):
                self.tuned(tuning, level)
                for verb in ("check", "run"):
                    out, error = self.weir(verb, "m.json", status=1)
                    self.assertIn(said, out + error)

    def tuned(self, tuning, level):
        needs = {"graph_optimization_level": level} if level else {}
        self.write("m.json", json.dumps({"model_file": "phi", "tuning": tuning, "hardware_requirements": needs}))

    def test_bad_folders(self):
        (self.folder / "empty").mkdir()
        (self.folder / "text").mkdir()
        self.write(f"text/{CONFIG}", "{")
        bad = [("text", "string or '}' expected"),
               (self.model("parts", lambda c: c["model"].update(encoder={})), "encoder"),
               (self.model("drafts", lambda c: c.update(speculative={})), "speculative decoding"),
               (self.model("leads", lambda c: c["model"]["decoder"].update(filename="../phi/model.onnx")),
                "no name of a file in the folder"),
               (self.model("gone", lambda c: c["model"]["decoder"].update(filename="other.onnx")), "other.onnx"),
               (self.model("library", lambda c: c["model"]["decoder"].update(session_options={"custom_ops_library": "x.so"})),
                "custom_ops_library")]
        for name, said in bad:
            with self.subTest(name=name):
                self.assertIn(said, self.refused("run", name, status=1))
                answer = self.weir_json("run", name, "a.toy", status=1, WEIR_ENGINE_PATH=f"{self.engines}")
                self.assertEqual((answer["live_at_end"], [c["name"] for c in answer["clients"]]), (0, ["a.toy"]))
                if name == "gone":
                    continue
                answer = self.weir_json("explain", name, "--provider", "cpu", status=1)
                verdict = next(c for c in answer["candidates"] if (c["engine"], c["provider"]) == ("llm", "cpu"))
                self.assertEqual(verdict["verdict"], "OTHER_FORMAT")
                self.assertIn(said, verdict["reason"])
        self.assertIn("no engine here takes empty: it is a folder, and has no genai_config.json", self.refused("run", "empty", status=1))
        for verb in ("check", "explain"):
            self.assertIn("a folder without genai_config.json", self.refused(verb, "empty", status=1))
        for verb in ("check", "explain", "run"):
            self.assertIn("none/", self.refused(verb, "none/", status=1))
            self.assertIn(f"none/{CONFIG}", self.refused(verb, f"none/{CONFIG}", status=1))

    def test_planned(self):
        sizes = [word for name in ("batch_size=1", "sequence_length=16", "total_sequence_length=16", "past_sequence_length=0")
                 for word in ("--dim", name)]
        plain = self.weir_json("plan", "phi/model.onnx", *sizes)
        for path in ("phi", "phi/", f"phi/{CONFIG}"):
            answer = self.weir_json("plan", path, *sizes)
            self.assertEqual((answer["file"], answer["arena"]), ("phi/model.onnx", plain["arena"]))
        self.assertIn("model.onnx: input \"input_ids\" has no size of its own", self.refused("plan", "tiny-llm", status=1))

    def test_three_engines_in_one_budget(self):
        llama, mlp = STORE / "models/tiny-llama.gguf", harness.SOURCE / "tests/data/onnx/mlp.onnx"
        if not (llama.exists() and (harness.BUILD / "lib/weir/weir-engine-gguf.so").exists()):
            self.skipTest(f"{llama} or its engine is not here")
        answer = self.weir_json("run", mlp, llama, "phi", *PROMPT, "--budget", "200MiB", "--report", "memory.html")
        self.assertEqual([client["engine"] for client in answer["clients"]], ["onnx", "gguf", "llm"])
        self.assertEqual((answer["budget"], answer["live_at_end"], self.error), (200 * MIB, 0, ""))
        self.assertLessEqual(answer["peak_held"], answer["budget"])
        self.assertEqual(sum(client["bytes"] for client in answer["peak_clients"]), answer["peak"])
        self.assertIn("phi", (self.folder / "memory.html").read_text())

    @unittest.skipIf(harness.SANITIZED, "a sanitizer's shadow memory is anonymous memory too")
    def test_what_the_library_takes_is_told_once(self):
        first, second = self.weir_json("run", "phi", "phi", *PROMPT)["clients"]
        self.assertGreater(first["outside_once"], MIB)
        self.assertEqual(second["outside_once"], 0)
        engine = {e["name"]: e for e in self.weir_json("engines")["engines"]}["llm"]
        self.assertTrue(engine["available"] and engine["version"], engine)

    def test_streamed(self):
        _, text = self.run_one("phi")
        self.assertIn(text.strip(), self.weir("run", "phi", *PROMPT, "--stream")[0])

    def test_where_the_library_is(self):
        library = STORE / "engines/onnxruntime-genai/current/libonnxruntime-genai.so"
        runtime = STORE / "engines/onnxruntime/current/libonnxruntime.so"
        none = {"WEIR_HOME": str(self.folder / "store")}
        self.assertIn("run scripts/engines onnxruntime-genai, or set WEIR_ONNXRUNTIME_GENAI", self.refused("run", "phi", status=1, **none))
        answer = self.weir_json("check", "phi", **none)
        self.assertEqual((answer["good"], answer["engine"]["here"]), (True, False))
        self.assertIn("run scripts/engines onnxruntime-genai", answer["remarks"][0])
        error = self.refused("run", "phi", status=1, WEIR_ONNXRUNTIME_GENAI="/there/is/none.so")
        self.assertIn("the option onnxruntime_genai (WEIR_ONNXRUNTIME_GENAI) names /there/is/none.so", error)
        named = {**none, "WEIR_ONNXRUNTIME_GENAI": str(library)}
        self.assertIn("needs ONNX Runtime, which is not here", self.refused("run", "phi", status=1, **named))
        self.run_one("phi", WEIR_ONNXRUNTIME=str(runtime), **named)
        listed = {option["name"]: option for option in self.weir_json("options", **named)["options"]}["onnxruntime_genai"]
        self.assertEqual((listed["value"], listed["source"]), (str(library), "environment"))


if __name__ == "__main__":
    harness.main()
