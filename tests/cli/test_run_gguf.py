"""weir devices, explain and run on a device of CUDA's with llama.cpp, over the stub: the factory takes the provider cuda where a device
and llama.cpp's library for CUDA are, says why where it does not, and moves on to the processor. And models of both engines in one
budget. Kernels of the stub answer nothing, so no answers are looked at."""

import shutil
import unittest

import harness
from harness import MIB, STORE

DEVICE = "cuda:0"
LLAMA = STORE / "engines/llama"
MODULE = STORE / "engines/llama-cuda/current"
SMALL = ("--set", "tiny-llama.gguf:context=512", "--tokens", "2")
CHOSEN = ("--order", "cuda,cpu")
# What tiny-llama.gguf takes of the device with 512 cells: weights, and what it computes in with the largest batch.
WEIGHTS, LITTLE, ENOUGH = 20 * MIB, 60 * MIB, 160 * MIB


class LlamaOnADevice(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.engines = harness.BUILD / "lib/weir"
        lacking = [str(path) for path in (LLAMA, MODULE / "lib/libggml-cuda.so", STORE / "models/tiny-llama.gguf",
                                          cls.engines / "weir-engine-gguf.so") if not path.exists()]
        if lacking:
            raise unittest.SkipTest("not here: " + ", ".join(lacking))

    def setUp(self):
        super().setUp()
        (self.folder / "tiny-llama.gguf").symlink_to(STORE / "models/tiny-llama.gguf")

    def environment(self, more):
        return super().environment({"WEIR_HOME": str(STORE), **more})

    def provider(self, name="cuda", **environment):
        engines = {e["name"]: e for e in self.weir_json("devices", **environment)["engines"]}
        return next(p for p in engines["gguf"]["providers"] if p["name"] == name)

    def attempts(self, client):
        return [(a["provider"], a["code"]) for a in client["attempts"]]

    def store_with(self, module=None, commit=None):
        """A store with llama.cpp, and with these bytes for its library for CUDA."""
        home = self.folder / "other-store"
        (home / "engines").mkdir(parents=True)
        (home / "engines/llama").symlink_to(LLAMA)
        if module is not None:
            lib = home / "engines/llama-cuda/current/lib"
            lib.mkdir(parents=True)
            (lib / "libggml-cuda.so").write_bytes(module)
            shutil.copy(MODULE / "commit", lib.parent / "commit")
            if commit:
                (lib.parent / "commit").write_text(f"commit={commit}\n")
        return {"WEIR_HOME": str(home)}

    def test_a_device_is_taken_where_there_is_one(self):
        self.assertEqual(self.provider()["state"], "here")
        client = self.explained_and_run("tiny-llama.gguf", "--order", "cuda,cpu", run=SMALL)
        self.assertEqual((client["engine"], client["provider"], client["device"]), ("gguf", "cuda", DEVICE))
        self.assertGreater(client["weights"], WEIGHTS)
        self.assertFalse(client["last_resort"])
        self.assertEqual({s["provider"] for s in client["shares"]}, {"cuda"})

    def test_exactly_this(self):
        for words in (("--provider", "cuda"), ("--device", DEVICE), ("--engine", "gguf", "--no-cpu")):
            client = self.explained_and_run("tiny-llama.gguf", *words, run=SMALL)
            self.assertEqual((client["provider"], len(client["attempts"])), ("cuda", 1))
        self.assertEqual(self.explained_and_run("tiny-llama.gguf", "--provider", "cpu", run=SMALL)["device"], "host")

    def test_without_the_library_for_cuda_the_processor_is_taken_and_the_reason_said(self):
        here = self.store_with()
        self.assertEqual(self.provider(**here)["state"], "not built")
        self.assertIn("scripts/engines --cuda llama-cuda", self.provider(**here)["missing"])
        client = self.explained_and_run("tiny-llama.gguf", "--order", "cuda", run=SMALL, **here)
        self.assertEqual((client["provider"], client["last_resort"]), ("cpu", True))
        error = self.refused("run", "tiny-llama.gguf", "--provider", "cuda", status=1, **here)
        self.assertIn("no libggml-cuda.so", error)
        accepted, answer = self.accepted("tiny-llama.gguf", "--no-cpu", status=1, **here)
        self.assertEqual((accepted, answer["chosen"]), ([], None))

    def test_a_library_of_another_commit_is_none(self):
        here = self.store_with(b"any", commit="0123456789abcdef")
        self.assertEqual(self.provider(**here)["state"], "not built")
        self.assertIn("0123456789ab", self.provider(**here)["missing"])
        self.assertEqual(self.explained_and_run("tiny-llama.gguf", *CHOSEN, run=SMALL, **here)["provider"], "cpu")

    def test_a_library_that_cannot_be_opened_moves_the_model_on(self):
        here = self.store_with(b"no library at all")
        client = self.explained_and_run("tiny-llama.gguf", *CHOSEN, run=SMALL, **here)
        self.assertEqual(self.attempts(client), [("cuda", "WEIR_ERR_ENGINE"), ("cpu", "WEIR_OK")])
        self.assertIn("cannot be opened", self.error)
        self.refused("run", "tiny-llama.gguf", "--no-fallback", *SMALL, status=1, **here)

    def test_a_device_with_little_room_is_passed_over(self):
        client = self.explained_and_run("tiny-llama.gguf", *CHOSEN, budget=f"{DEVICE}=20MiB,host=1GiB", run=SMALL)
        self.assertEqual(self.attempts(client), [("cpu", "WEIR_OK")])
        _, answer = self.accepted("tiny-llama.gguf", WEIR_BUDGET=f"{DEVICE}=20MiB,host=1GiB")
        cuda = next(c for c in answer["candidates"] if c["engine"] == "gguf" and c["provider"] == "cuda")
        self.assertEqual(cuda["verdict"], "LITTLE_VRAM")

    def test_what_does_not_fit_when_it_is_loaded_moves_on_and_leaves_nothing(self):
        """The weights fit, what it computes in does not."""
        client = self.explained_and_run("tiny-llama.gguf", *CHOSEN, budget=f"{DEVICE}={LITTLE},host=1GiB", run=SMALL)
        self.assertEqual(self.attempts(client), [("cuda", "WEIR_ERR_OUT_OF_MEMORY"), ("cpu", "WEIR_OK")])
        self.refused("run", "tiny-llama.gguf", "--no-fallback", *SMALL, status=1, WEIR_BUDGET=f"{DEVICE}={LITTLE},host=1GiB")

    def both(self, *words, **environment):
        (self.folder / "copies.onnx").symlink_to(harness.SOURCE / "tests/data/onnx/chain.onnx")
        answer = self.weir_json("run", "copies.onnx", "tiny-llama.gguf", *words, *SMALL, "--repeat", "3", **environment)
        self.assertEqual(answer["live_at_end"], 0)
        return answer

    @unittest.skipUnless((STORE / "engines/onnxruntime-cuda/current").exists(), "no ONNX Runtime for CUDA")
    def test_models_of_both_engines_are_in_one_budget(self):
        for words in (("--driver", "cuda"), ("--device", DEVICE)):
            answer = self.both(*words, "--budget", str(ENOUGH))
            clients = [self.client(answer, name) for name in ("copies.onnx", "tiny-llama.gguf")]
            self.assertEqual([c["engine"] for c in clients], ["onnx", "gguf"])
            self.assertEqual([c["runs"] for c in clients], [3, 3])
            device = next(d for d in answer["devices"] if d["device"] == DEVICE)
            self.assertEqual((device["budget"], device["live_at_end"]), (ENOUGH, 0))
            self.assertLessEqual(device["peak_held"], ENOUGH)
            self.assertGreaterEqual(device["peak"], max(c["peak"] for c in clients))
            (self.folder / "copies.onnx").unlink()


harness.main()
