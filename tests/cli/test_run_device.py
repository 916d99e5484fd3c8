"""weir devices, explain and run on a device of CUDA's with ONNX Runtime, a GPU's or the stub's: what is explained is what is run,
and a device without room is left for the processor, with a word. Kernels of the stub answer nothing, so no answers are looked at."""

import json
import os
import shutil
import tempfile
import unittest
from pathlib import Path

import harness
from harness import MIB

OUT_OF_MEMORY, DEVICE = "WEIR_ERR_OUT_OF_MEMORY", "cuda:0"
ROWS, COLUMNS = 2048, 8192  # of a matrix of 64 MiB
WEIGHTS = 4 * ROWS * COLUMNS


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def port(name, extents):
    shape = b"".join(field(1, field(2, e) if isinstance(e, str) else field(1, e)) for e in extents)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def product():
    """An ONNX file: y = x . w, with zeros for w."""
    weight = field(1, ROWS) + field(1, COLUMNS) + field(2, 1) + field(8, "w") + field(9, bytes(WEIGHTS))
    node = field(1, "x") + field(1, "w") + field(2, "y") + field(4, "MatMul")
    graph = (field(1, node) + field(2, "g") + field(5, weight) + field(11, port("x", ["n", ROWS])) +
             field(12, port("y", ["n", COLUMNS])))
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))


class OnADevice(harness.Case):
    @classmethod
    def setUpClass(cls):
        cls.engines = harness.BUILD / "lib/weir"
        cls.shared = Path(tempfile.mkdtemp(prefix="weir-device-"))
        cls.addClassCleanup(shutil.rmtree, cls.shared)
        (cls.shared / "m.onnx").write_bytes(product())
        case = cls("weir")
        case.folder = cls.shared
        cls.here = case.weir_json("devices")
        why = case.lacking()
        if why and os.environ.get("WEIR_REQUIRE_CUDA") == "1":
            raise AssertionError(why)
        if why:
            raise unittest.SkipTest(why)

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-cli-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "m.onnx").symlink_to(self.shared / "m.onnx")
        self.manifest("m.json", preferred_provider="cuda", fallback_providers=["cpu"], min_cuda_version="12.0")

    def environment(self, more):
        return super().environment({"WEIR_HOME": str(harness.STORE), "WEIR_BUDGET": "1GiB", **more})

    def lacking(self):
        """Why nothing of this can be run here; None: it can."""
        if not self.device():
            return "no device of CUDA's: " + json.dumps(self.here.get("remarks"))
        providers = self.providers()
        if providers.get("cuda", {}).get("state") != "here":
            return "the engine onnx has no cuda here: " + json.dumps(providers.get("cuda"))
        return None

    def device(self):
        return next((d for d in self.here["devices"] if d["runtime"] == DEVICE), None)

    def providers(self):
        engine = next((e for e in self.here["engines"] if e["name"] == "onnx"), {"providers": []})
        return {p["name"]: p for p in engine["providers"]}

    def manifest(self, name, **needs):
        return self.write(name, json.dumps({"framework": "onnx", "model_file": "m.onnx", "name": "m", "version": "1",
                                            "hardware_requirements": needs}))

    def cuda_of(self, answer):
        return next(c for c in answer["candidates"] if c["engine"] == "onnx" and c["provider"] == "cuda")

    def test_devices(self):
        device = self.device()
        self.assertRegex(device["key"], r"^(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
        self.assertTrue(device["usable"])
        self.assertGreater(device["total"], 0)
        self.assertEqual(self.providers()["cpu"]["state"], "here")
        self.assertIn(DEVICE, self.weir("devices")[0])

    def test_a_manifest(self):
        client = self.explained_and_run("m.json", run=("--repeat", "3"))
        self.assertEqual((client["provider"], client["device"], client["runs"]), ("cuda", DEVICE, 3))
        self.assertEqual([a["stage"] for a in client["attempts"]], ["later-run"])
        self.assertGreaterEqual(client["attempts"][0]["bytes"], WEIGHTS)
        self.assertEqual(client["shares"], [{"provider": "cuda", "parts": 1, "of": 1}])
        self.assertFalse(client["last_resort"])
        self.assertEqual(self.error, "")

    def test_exactly_this(self):
        for words in (("--provider", "cuda", "--device", "0"), ("--device", DEVICE), ("--engine", "onnx", "--no-cpu"),
                      ("--device", self.device()["key"])):
            client = self.explained_and_run("m.onnx", *words)
            self.assertEqual((client["provider"], len(client["attempts"])), ("cuda", 1))
        self.assertEqual(self.explained_and_run("m.onnx", "--provider", "cpu")["device"], "host")

    def test_tensorrt_is_here_or_its_libraries_are_named(self):
        provider = self.providers()["tensorrt"]
        if provider["state"] == "here":
            self.assertEqual(self.explained_and_run("m.onnx", "--provider", "tensorrt")["provider"], "tensorrt")
            return
        error = self.refused("run", "m.onnx", "--provider", "tensorrt", status=1)
        self.assertIn("libnvinfer.so" if provider["state"] == "not loadable" else "tensorrt", error)
        accepted, answer = self.accepted("m.onnx", "--provider", "tensorrt", status=1)
        self.assertEqual((accepted, answer["chosen"]), ([], None))

    def test_no_room_on_the_device(self):
        little = f"{DEVICE}=32MiB,host=1GiB"
        client = self.explained_and_run("m.json", budget=little)
        self.assertEqual((client["provider"], client["last_resort"]), ("cpu", False))  # the manifest names it
        self.assertTrue(self.explained_and_run("m.onnx", "--order", "cuda", budget=little)["last_resort"])
        self.one_line(self.error)
        _, answer = self.accepted("m.json", WEIR_BUDGET=little)
        self.assertEqual(self.cuda_of(answer)["verdict"], "LITTLE_VRAM")
        self.refused("run", "m.json", "--no-cpu", status=1, WEIR_BUDGET=little)
        _, answer = self.accepted("m.json", "--no-cpu", status=1, WEIR_BUDGET=little)
        self.assertEqual(answer["chosen"], None)

    def test_more_than_it_has(self):
        self.manifest("big.json", preferred_provider="cuda", min_vram_mb=self.device()["total"] // MIB + 1)
        self.assertEqual(self.explained_and_run("big.json", budget="")["provider"], "cpu")
        self.manifest("new.json", preferred_provider="cuda", fallback_providers=["cpu"], min_cuda_version="99.0")
        self.assertEqual(self.explained_and_run("new.json")["provider"], "cpu")
        self.assertEqual(self.cuda_of(self.accepted("new.json")[1])["verdict"], "OLD_CUDA")

    def test_a_request_that_does_not_fit(self):
        """72 MiB for the answer beside 64 MiB of weights in 100 MiB: the model is loaded and good input runs, so that the request is
        refused, and nothing moves for it."""
        budget = f"{DEVICE}=100MiB,host=1GiB"
        for words in ((), ("--no-fallback",)):
            said = self.refused("run", "m.json", *words, "--input", f"x=shape:2304x{ROWS}", status=1, WEIR_BUDGET=budget)
            self.assertRegex(said, rf"m\.json asked for 72 MiB \(activations\) on {DEVICE}; of the budget of 100 MiB.*--budget \d+")
        self.assertEqual(self.explained_and_run("m.json", budget=budget)["provider"], "cuda")

    def test_a_device_that_is_hidden(self):
        hidden = {"CUDA_VISIBLE_DEVICES": "-1"}
        if self.device()["name"] == "stub":  # which hides nothing
            self.assertEqual(self.explained_and_run("m.json", **hidden)["provider"], "cuda")
            return
        self.assertEqual(self.explained_and_run("m.json", **hidden)["provider"], "cpu")
        self.refused("run", "m.onnx", "--provider", "cuda", status=1, **hidden)


harness.main()
