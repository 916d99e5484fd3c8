"""weir run with manifests and with words for the choice: exactly this, or what was chosen, and how it came to be."""

import json

import harness
from harness import MIB, SOURCE

OUT_OF_MEMORY, UNSUPPORTED, LOST, ENGINE = 2, 10, 15, 18
BIG = f"input a f32 -1 3\nweights {4 * MIB}\nscratch {2 * MIB}\n"


class Chosen(harness.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        harness.compile_engine(SOURCE / "tests/cli/moody.c", cls.engines)

    def setUp(self):
        super().setUp()
        self.write("e.echo", BIG)
        self.write("good.moody", "")

    def manifest(self, name, model, **needs):
        content = {"model_file": model, "name": "mood", "version": "1"}
        if needs:
            content["hardware_requirements"] = needs
        return self.write(name, json.dumps(content))

    def attempts(self, client):
        return [(a["provider"], a["stage"], a["code"]) for a in client["attempts"]]

    def test_a_manifest(self):
        self.manifest("m.json", "good.moody", preferred_provider="openvino", fallback_providers=["cpu"])
        answer = self.weir_json("run", "m.json", "--budget", "64MiB")
        self.assertEqual(self.error, "")
        client = self.client(answer, "m.json")
        self.assertEqual((client["engine"], client["provider"], client["device"]), ("moody", "openvino", "host"))
        self.assertEqual(self.attempts(client), [("openvino", "later-run", "WEIR_OK")])
        self.assertEqual(set(client["attempts"][0]), {"engine", "provider", "device", "stage", "code", "reason", "ms", "bytes", "parts", "of"})
        self.assertFalse(client["last_resort"])
        self.assertEqual(client["shares"], [])
        self.assertEqual(answer["budget"], 64 * MIB) # of the device that was chosen
        self.assertEqual([(d["device"], d["live_at_end"]) for d in answer["devices"]], [("host", 0)])

    def test_exactly_this(self):
        self.manifest("m.json", "good.moody", preferred_provider="openvino", fallback_providers=["cpu"])
        for words in (("--provider", "cpu"), ("--provider", "CPU", "--device", "cpu"), ("--provider", "cpu", "--driver", "host")):
            client = self.client(self.weir_json("run", "m.json", *words), "m.json")
            self.assertEqual(client["provider"], "cpu")
            self.assertFalse(client["last_resort"])
            self.assertEqual(self.error, "")
        self.assertEqual(self.client(self.weir_json("run", "e.echo", "--engine", "echo"), "e.echo")["engine"], "echo")
        self.write("bad.moody", f"fail openvino load {ENGINE}\n")
        error = self.refused("run", "bad.moody", "--provider", "openvino", status=1)
        self.assertIn("openvino is in no mood to load", error)
        error = self.refused("run", "good.moody", "--provider", "cuda", status=1)
        self.assertIn("exactly cuda, which was asked for", error)
        error = self.refused("run", "good.moody", "--device", "cuda:7", status=1)
        self.assertIn("cuda:7", error)

    def test_words_that_are_wrong(self):
        for words, text in ((("--provider", "abc"), "there are tensorrt, cuda"), (("--policy", "best"), "fastest"),
                            (("--engine", "nonesuch"), "nonesuch"), (("--provider", ""), "empty"), (("--order", "cuda,abc"), "abc"),
                            (("--device", "cpu", "--driver", "host"), "one of them")):
            self.assertIn(text, self.refused("run", "e.echo", *words))

    def test_the_last_resort_is_told(self):
        answer = self.weir_json("run", "e.echo", "--policy", "fastest")
        self.assertTrue(self.client(answer, "e.echo")["last_resort"])
        self.one_line(self.error)
        self.assertIn("e.echo runs on the processor, as the last resort", self.error)
        error = self.refused("run", "e.echo", "--no-cpu", status=1)
        self.assertIn("the processor would do, and is forbidden", error)
        # Without a word for the choice a model's file goes where --driver says, which is the host: nobody asked for more.
        self.assertFalse(self.client(self.weir_json("run", "e.echo"), "e.echo")["last_resort"])
        self.assertEqual(self.error, "")

    def test_falling_back_while_loading(self):
        self.write("bad.moody", f"fail openvino load {ENGINE}\nshare 3 4\n")
        self.manifest("m.json", "bad.moody", preferred_provider="openvino")
        answer = self.weir_json("run", "m.json", "--repeat", "2")
        client = self.client(answer, "m.json")
        self.assertEqual(client["provider"], "cpu")
        self.assertEqual(self.attempts(client), [("openvino", "load", "WEIR_ERR_ENGINE"), ("cpu", "later-run", "WEIR_OK")])
        self.assertEqual(client["attempts"][0]["reason"], "openvino is in no mood to load")
        self.assertTrue(client["last_resort"])
        self.assertEqual(self.error.count("\n"), 2)
        self.assertIn("moody with openvino on cpu failed (load): openvino is in no mood to load", self.error)
        self.assertEqual(client["shares"][0], {"provider": "cpu", "parts": 3, "of": 4})
        self.assertEqual([(one["parts"], one["of"]) for one in client["attempts"]], [(0, 0), (3, 4)])
        self.assertEqual(answer["live_at_end"], 0)
        self.assertEqual(client["left_out"], 0)
        self.assertIn("m.json: cpu runs 3 of 4 nodes or layers, cpu 1\n", self.weir("run", "m.json")[0])
        self.assertNotIn("nodes or layers", self.weir("run", "good.moody")[0])
        error = self.refused("run", "m.json", "--no-fallback", status=1)
        self.assertIn("openvino is in no mood to load", error)

    def test_falling_back_while_running(self):
        self.write("bad.moody", f"fail openvino run {UNSUPPORTED}\n")
        self.manifest("m.json", "bad.moody", preferred_provider="openvino", fallback_providers=["cpu"])
        client = self.client(self.weir_json("run", "m.json"), "m.json")
        self.assertEqual(client["provider"], "cpu")
        self.assertEqual(self.attempts(client), [("openvino", "first-run", "WEIR_ERR_UNSUPPORTED"), ("cpu", "later-run", "WEIR_OK")])
        self.assertEqual(client["attempts"][0]["bytes"], 4096)

    def test_nothing_is_left(self):
        self.write("bad.moody", f"fail openvino load {ENGINE}\nfail cpu load {OUT_OF_MEMORY}\n")
        self.manifest("m.json", "bad.moody", preferred_provider="openvino", fallback_providers=["cpu"])
        answer = self.weir_json("run", "m.json", "a.toy", status=1)
        self.assertIn("openvino is in no mood to load", answer["error"]["detail"])
        self.assertIn("cpu is in no mood to load", answer["error"]["detail"])
        self.assertEqual([c["name"] for c in answer["clients"]], ["a.toy"]) # the others go on
        self.assertEqual(answer["live_at_end"], 0)

    def test_a_lost_device(self):
        self.write("bad.moody", f"fail openvino run {LOST}\n")
        self.manifest("m.json", "bad.moody", preferred_provider="openvino", fallback_providers=["cpu"])
        answer = self.weir_json("run", "m.json", status=1)
        self.assertIn("was lost to this process", answer["error"]["detail"]) # cpu is on the same device
        self.assertEqual(answer["live_at_end"], 0)

    def test_manifests_that_are_bad(self):
        self.write("m.json", '{"model_file": "good.moody", "name": "m", "framwork": "onnx"}')
        self.assertIn("framwork", self.refused("run", "m.json", status=1))
        self.assertIn("none.json", self.refused("run", "none.json", status=1))

    def test_settings_and_limits(self):
        content = {"model_file": "e.echo", "name": "x", "version": "1", "tuning": {"known": "1"},
                   "hardware_requirements": {"gpu_memory_limit_mb": 16}}
        self.write("m.json", json.dumps(content))
        client = self.client(self.weir_json("run", "m.json"), "m.json")
        self.assertEqual(client["maximum"], 16 * MIB)
        client = self.client(self.weir_json("run", "m.json", "--maximum", "m.json=8MiB"), "m.json")
        self.assertEqual(client["maximum"], 8 * MIB)
        self.assertIn("unheard", self.weir("run", "m.json", "--set", "unheard=1", status=1)[1])

    def test_the_table(self):
        self.manifest("m.json", "good.moody", preferred_provider="openvino", fallback_providers=["cpu"])
        self.assertIn("moody/openvino on host", self.weir("run", "m.json")[0])


harness.main()
