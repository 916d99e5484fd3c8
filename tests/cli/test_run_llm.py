"""weir explain and run on a device of CUDA's with ONNX Runtime GenAI, over the stub: the factory takes the provider cuda where a device
and GenAI's library for CUDA are, says why where it does not, and moves the model on to the processor."""

import unittest

import harness
from harness import STORE

DEVICE, TOKENS = "cuda:0", ("--tokens", "2")
GENAI, RUNTIME = STORE / "engines/onnxruntime-genai/current", STORE / "engines/onnxruntime/current"
CHOSEN = ("--order", "cuda,cpu")


class FoldersOnADevice(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.engines = harness.BUILD / "lib/weir"
        lacking = [str(path) for path in (GENAI, RUNTIME, STORE / "models/tiny-llm", cls.engines / "weir-engine-llm.so")
                   if not path.exists()]
        if lacking:
            raise unittest.SkipTest("not here: " + ", ".join(lacking))

    def setUp(self):
        super().setUp()
        (self.folder / "phi").symlink_to(STORE / "models/tiny-llm")

    def store_with(self, module):
        """A store with ONNX Runtime and GenAI of the processor, and with these bytes for GenAI's library for CUDA."""
        engines = self.folder / "other-store/engines"
        build = "-cuda" if module is not None else ""
        folder = engines / f"onnxruntime-genai{build}/current"
        folder.mkdir(parents=True)
        (folder / "libonnxruntime-genai.so").symlink_to(GENAI / "libonnxruntime-genai.so")
        if module is not None:
            (folder / "libonnxruntime-genai-cuda.so").write_bytes(module)
        (engines / f"onnxruntime{build}").mkdir()
        (engines / f"onnxruntime{build}/current").symlink_to(RUNTIME)
        return {"WEIR_HOME": str(self.folder / "other-store")}

    def provider(self, name="cuda", **environment):
        engines = {e["name"]: e for e in self.weir_json("devices", **environment)["engines"]}
        return next(p for p in engines["llm"]["providers"] if p["name"] == name)

    def test_without_the_library_for_cuda_the_processor_is_taken_and_the_reason_said(self):
        here = self.store_with(None)
        self.assertEqual(self.provider(**here)["state"], "not built")
        self.assertIn("scripts/engines --cuda onnxruntime-cuda onnxruntime-genai-cuda", self.provider(**here)["missing"])
        client = self.explained_and_run("phi", "--order", "cuda", run=TOKENS, **here)
        self.assertEqual((client["provider"], client["last_resort"]), ("cpu", True))
        self.assertIn("has no CUDA", self.refused("run", "phi", "--provider", "cuda", status=1, **here))
        accepted, answer = self.accepted("phi", "--no-cpu", status=1, **here)
        self.assertEqual((accepted, answer["chosen"]), ([], None))

    def test_a_library_that_cannot_be_opened_moves_the_model_on(self):
        here = self.store_with(b"no library at all")
        self.assertEqual(self.provider(**here)["state"], "here")
        client = self.explained_and_run("phi", *CHOSEN, run=TOKENS, **here)
        self.assertEqual([a["provider"] for a in client["attempts"]], ["cuda", "cpu"])
        self.assertIn("GenAI's library for CUDA cannot be opened", client["attempts"][0]["reason"])
        self.assertIn("phi: llm with cuda on cuda:0 failed (load)", self.error)
        self.refused("run", "phi", *CHOSEN, "--no-fallback", *TOKENS, status=1, **here)

    def test_a_folder_without_further_words_is_on_the_host(self):
        for words in ((), ("--driver", "host")):
            client = self.weir_json("run", "phi", *words, *TOKENS, **self.store_with(b"no library") if not words else
                                    {"WEIR_HOME": str(self.folder / "other-store")})["clients"][0]
            self.assertEqual((client["device"], client["provider"], self.error), ("host", "cpu", ""))
        self.assertIn("cannot be opened", self.refused("run", "phi", "--driver", "cuda", status=1,
                                                       WEIR_HOME=str(self.folder / "other-store")))

    def test_a_device_with_little_room_is_passed_over(self):
        here = self.store_with(b"no library at all")
        budget = f"{DEVICE}=100KiB,host=1GiB"
        client = self.explained_and_run("phi", *CHOSEN, budget=budget, run=TOKENS, **here)
        self.assertEqual([(a["provider"], a["code"]) for a in client["attempts"]], [("cpu", "WEIR_OK")])
        _, answer = self.accepted("phi", WEIR_BUDGET=budget, **here)
        cuda = next(c for c in answer["candidates"] if (c["engine"], c["provider"]) == ("llm", "cuda"))
        self.assertEqual(cuda["verdict"], "LITTLE_VRAM")


harness.main()
