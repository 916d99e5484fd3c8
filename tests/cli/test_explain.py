"""weir explain: what would be chosen, and why not the others; as a table and as JSON."""

from pathlib import Path

import harness
import test_devices
from harness import MIB

KEYS = {"engine", "provider", "device", "runtime", "library", "version", "verdict", "reason", "rank", "bytes", "exact", "source", "obtainable"}


class Explain(harness.Case):
    machine, gpu = test_devices.Devices.machine, test_devices.Devices.gpu

    def verdict(self, answer, engine, provider):
        found = [c for c in answer["candidates"] if (c["engine"], c["provider"]) == (engine, provider)]
        self.assertTrue(found, answer)
        return found[0]

    def test_bad_words(self):
        for words, said in (
                ([], "which manifest or model"),
                (["a.toy", "b.toy"], "one manifest"),
                (["a.toy", "--some"], "--some"),
                (["a.toy", "--engine"], "--engine needs a value"),
                (["a.toy", "--engine", ""], "--engine: an empty word"),
                (["--no-cpu", "--provider=", "a.toy"], "--provider: an empty word"),
                (["a.toy", "--engine", "torch"], "there are echo, gguf, llm, onnx, toy"),
                (["a.toy", "--provider", "gpu"], "there are tensorrt, cuda, rocm, coreml (or metal), directml, openvino, cpu"),
                (["a.toy", "--policy", "best"], "there are fastest, manifest, memory"),
                (["a.toy", "--order", "cuda,gpu"], '"gpu"'),
                (["a.toy", "--device", "-1"], "ordinals go from 0"),
                (["a.toy", "--no-cpu=1"], "--no-cpu"),
        ):
            with self.subTest(words=words):
                self.assertIn(said, self.refused("explain", *words))

    def test_json(self):
        answer = self.weir_json("explain", "a.toy")
        self.assertEqual(set(answer), {"policy", "rule", "chosen", "cores", "candidates"})
        self.assertEqual(answer["policy"], "fastest")
        self.assertEqual(answer["chosen"], {"engine": "toy", "provider": "cpu", "device": "cpu", "runtime": "host"})
        self.assertIn("Chosen: toy with cpu on cpu, as the last resort", answer["rule"])
        for candidate in answer["candidates"]:
            self.assertEqual(set(candidate), KEYS)
            self.assertTrue(candidate["reason"])
            self.assertEqual(candidate["rank"] >= 0, candidate["verdict"] == "ACCEPTED")
        chosen = answer["candidates"][0]
        self.assertEqual((chosen["rank"], chosen["bytes"], chosen["exact"], chosen["source"]), (0, None, None, None))  # the toy predicts nothing
        self.assertEqual(chosen["obtainable"], 1024 * MIB)  # the budget
        self.assertEqual(self.verdict(answer, "toy", "directml")["verdict"], "OTHER_PLATFORM")
        self.assertEqual(self.verdict(answer, "toy", "tensorrt")["verdict"], "NOT_LISTED")
        self.assertEqual(self.verdict(answer, "echo", "cpu")["verdict"], "OTHER_FORMAT")
        self.assertEqual(self.verdict(answer, "llm", "cpu")["verdict"], "OTHER_FORMAT")

    def test_table(self):
        out, error = self.weir("explain", "a.toy")
        self.assertEqual(error, "")
        rule, rest = out.split("\n\n")
        self.assertTrue(rule.startswith("policy fastest: "), rule)
        lines = rest.splitlines()
        self.assertEqual(lines[0].split(), ["rank", "engine", "provider", "device", "verdict", "bytes", "reason"])
        self.assertEqual(lines[1].split()[:6], ["0", "toy", "cpu", "cpu", "accepted", "-"])
        self.assertRegex(rest, r"\n +llm +any +any +OTHER_FORMAT ")
        self.assertTrue(all(len(line) <= 120 for line in out.splitlines()), out)

    def test_a_table_with_long_names(self):
        hidden = self.weir("explain", "a.toy", "--sysroot", self.machine(self.gpu()), CUDA_VISIBLE_DEVICES="-1")[0]
        self.assertRegex(hidden, r"\n +toy +cuda +" + test_devices.UUID[:20] + " ")
        self.assertTrue(all(len(line) <= 120 for line in hidden.splitlines()), hidden)
        self.assertEqual(max(map(len, hidden.splitlines())), 120)

    def test_a_manifest_and_words_over_it(self):
        self.write("m.json", '{"model_file": "a.toy", "framework": "toy", "hardware_requirements": '
                             '{"preferred_provider": "cuda", "fallback_providers": ["openvino"], "min_memory_mb": 10}}')
        answer = self.weir_json("explain", "m.json")
        self.assertEqual(answer["chosen"]["provider"], "cpu")
        self.assertEqual(self.verdict(answer, "toy", "rocm")["verdict"], "NOT_LISTED")
        self.assertEqual(self.verdict(answer, "toy", "openvino")["verdict"], "NOT_BUILT")
        self.assertEqual(self.verdict(answer, "echo", "cpu")["verdict"], "NOT_ASKED")
        answer = self.weir_json("explain", "m.json", "--no-cpu", status=1)
        self.one_line(self.error)
        self.assertIsNone(answer["chosen"])
        self.assertEqual(self.verdict(answer, "toy", "cpu")["verdict"], "NO_CPU")
        self.assertIn("Nothing is accepted", answer["rule"])
        answer = self.weir_json("explain", "m.json", "--provider", "CPU", "--device", "cpu", "--engine", "toy", "--policy", "manifest")
        self.assertEqual((answer["policy"], answer["chosen"]["provider"]), ("manifest", "cpu"))
        self.assertEqual(self.verdict(answer, "toy", "cuda")["verdict"], "NOT_ASKED")
        self.write("m.json", '{"model_file": "a.toy", "framework": "toy", "hardware_requirements": {"min_memory_mb": 2000}}')
        answer = self.weir_json("explain", "m.json", status=1)
        self.assertEqual(self.verdict(answer, "toy", "cpu")["verdict"], "LITTLE_MEMORY")
        self.assertIn("1 GiB can be had", self.verdict(answer, "toy", "cpu")["reason"])

    def test_what_is_not_there(self):
        for device in ("cuda:-1", "99999999999999999999", "GPU-gone"):
            rule = self.weir_json("explain", "a.toy", "--device", device, status=1)["rule"]
            self.assertRegex(rule, rf"Nothing is accepted: there is no device {device}; there are cpu")
        for verb in ("explain", "check"):
            self.assertIn("'' is no manifest or model", self.refused(verb, ""))

    def test_defaults_from_the_environment(self):
        self.assertEqual(self.weir_json("explain", "a.toy", WEIR_POLICY="memory")["policy"], "memory")
        self.assertIn("in the order rocm, cpu", self.weir_json("explain", "a.toy", WEIR_PROVIDERS="rocm")["rule"])
        self.assertIn("WEIR_POLICY", self.refused("explain", "a.toy", status=1, WEIR_POLICY="best"))
        self.assertEqual(self.weir_json("explain", "a.toy", "--policy", "fastest", WEIR_POLICY="best")["policy"], "fastest")

    def test_another_machine(self):
        (self.folder / "proc").mkdir()
        self.write("proc/meminfo", "MemTotal: 2097152 kB\nMemAvailable: 1048576 kB\n")
        answer = self.weir_json("explain", "a.toy", "--sysroot", self.folder, WEIR_BUDGET="")
        self.assertEqual(self.verdict(answer, "toy", "cpu")["obtainable"], 512 * MIB)
        self.assertIn("nowhere", self.refused("explain", "a.toy", "--sysroot", "/nowhere", status=1))

    def test_a_machine_with_a_gpu_and_what_an_engine_lacks_there(self):
        harness.compile_engine(harness.SOURCE / "tests/cli/lacking.c", self.engines)
        self.addCleanup((Path(self.engines) / "weir-engine-lacking.so").unlink)
        words = ("explain", "a.toy", "--engine", "lacking", "--sysroot", self.machine(self.gpu()))
        answer = self.weir_json(*words, WEIR_BUDGET="", CUDA_VISIBLE_DEVICES="0")
        self.assertEqual(answer["chosen"]["provider"], "cpu")
        cuda = self.verdict(answer, "lacking", "cuda")
        self.assertEqual((cuda["verdict"], cuda["device"], cuda["runtime"]), ("NOT_LOADABLE", test_devices.UUID, "cuda:0"))
        self.assertIn("libcudnn.so.9: version 9.1 wanted, 8.9 found", cuda["reason"])
        self.assertEqual(cuda["obtainable"], (139 << 30) - (139 << 30) // 10)
        self.assertIn("libcudnn.so.9", answer["rule"])  # why the processor is the last resort
        self.assertEqual(self.verdict(answer, "lacking", "rocm")["verdict"], "NO_DEVICE")
        answer = self.weir_json(*words, "--provider", "openvino", status=1, CUDA_VISIBLE_DEVICES="0")
        self.assertEqual(self.verdict(answer, "lacking", "openvino")["verdict"], "NO_ENGINE")
        out = self.weir(*words, CUDA_VISIBLE_DEVICES="0")[0]
        self.assertRegex(out, r"\n +lacking +cuda +cuda:0 +NOT_LOADABLE ")

    def test_what_cannot_be_looked_at(self):
        answer = self.weir_json("explain", "nothing.onnx", status=1)
        self.one_line(self.error)
        self.assertIn("nothing.onnx", self.error)
        self.assertEqual((answer["chosen"], answer["candidates"]), (None, []))
        self.write("m.json", '{"model_file": "a.toy", "framework": "safetensors"}')
        self.refused("explain", "m.json", status=1)


if __name__ == "__main__":
    harness.main()
