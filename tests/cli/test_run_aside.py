"""weir run --serial --suspend-idle: models of the store that do not fit together, and engines that cannot step aside."""

import unittest

import harness
from harness import MIB

IDLE = ("--serial", "--suspend-idle")
MODELS = harness.StoreCase.MODELS


class Aside(harness.StoreCase):
    def outputs(self, answer):
        return {client["name"]: [path.read_bytes() for path in sorted((self.folder / "out" / client["name"]).iterdir())]
                for client in answer["clients"]}

    def run_models(self, *words, status=0):
        out = ("--output", "out", "--prompt", "a dam", "--tokens", "4", "--set", "tiny-llm:temperature=0")
        threads = [word for name in MODELS for word in ("--set", f"{name}:threads=1")]
        return self.weir_json("run", *MODELS, *out, *threads, *words, status=status)

    def test_what_does_not_fit_together_runs_one_after_the_other(self):
        wanted = self.outputs(self.run_models("--serial"))
        self.run_models("--serial", "--budget", "120MiB", status=1)
        answer = self.run_models(*IDLE, "--budget", "120MiB", "--report", "page.html", "--repeat", "2")
        self.assertEqual(wanted, self.outputs(answer))
        self.assertEqual(0, answer["live_at_end"])
        # Each makes room for the next to be loaded, and then to be run; the last one loaded runs last.
        told = {client["name"]: client["suspensions"] for client in answer["clients"]}
        self.assertEqual({"minilm.onnx": [True, False], "minilm.gguf": [True, False], "tiny-llm": [True]},
                         {name: [one["resumed_at"] is not None for one in made] for name, made in told.items()})
        for name in MODELS:
            first, *later = told[name]
            self.assertGreater(first["suspend_seconds"], 0)
            self.assertLess(first["suspended_at"], first["resumed_at"])
            self.assertEqual(first["away"], first["copied"] + first["trusted"] + first["dropped"])
            self.assertTrue(all(one[what] >= 0 for one in told[name] for what in ("stayed", "outside", "graphs")))
            self.assertTrue(all(one["copied"] < one["trusted"] for one in later), later)  # weights are copied once
        self.assertGreater(told["minilm.onnx"][0]["released"], 80 * MIB)
        # Who comes back does so while another leaves, in one call.
        left = {one["suspended_at"] for made in told.values() for one in made}
        self.assertLessEqual({one["resumed_at"] for made in told.values() for one in made} - {None}, left)
        self.assertIn("suspended at", (self.folder / "page.html").read_text())

    def test_what_is_shown_answers_the_same(self):
        wanted = self.outputs(self.run_models("--serial"))
        answer = self.run_models(*IDLE, "--show-idle", "--repeat", "3")
        self.assertEqual(wanted, self.outputs(answer))
        self.assertEqual(0, answer["live_at_end"])
        for client in answer["clients"]:
            for one in client["suspensions"]:
                self.assertTrue(0 < one["shown"] <= one["away"], client)

    def test_the_table_says_it(self):
        out, _ = self.weir("run", "tiny-llm", "minilm.gguf", *IDLE, "--tokens", "2")
        self.assertRegex(out, r"tiny-llm: suspended at [\d.]+ \S+ in [\d.]+ \S+, [\d.]+ KiB away, [\d.]+ KiB copied; resumed at [\d.]+ \S+ in ")
        self.assertRegex(out, r"minilm.gguf: suspended at .*; resumed at ")

    def test_one_model_has_nobody_to_make_room_for(self):
        answer = self.weir_json("run", "tiny-llm", *IDLE, "--tokens", "2")
        self.assertEqual([], answer["clients"][0]["suspensions"])


class Engines(harness.Case):
    def test_an_engine_that_cannot_is_told_and_the_others_go_on(self):
        answer = self.weir_json("run", "a.toy", "b.toy", *IDLE, status=1)
        self.assertEqual(["suspend", None], [client.get("error", {}).get("stage") for client in answer["clients"]])
        self.assertIn("the engine toy has no way to suspend a model", answer["error"]["detail"])
        self.assertEqual(1, self.client(answer, "b.toy")["runs"])
        self.assertIn("--serial", self.refused("run", "a.toy", "--suspend-idle"))
        self.assertIn("--suspend-idle", self.refused("run", "a.toy", "--serial", "--show-idle"))

    def test_weights_may_begin_elsewhere(self):
        """On the host that is the same memory, and nothing else happens."""
        answer = self.weir_json("run", "a.toy", "--residency", "auto")
        self.assertEqual((1, 0), (self.client(answer, "a.toy")["runs"], answer["live_at_end"]))
        self.assertIn("whole or auto", self.refused("run", "a.toy", "--residency", "sideways"))
        self.assertIn("--suspend-idle", self.refused("run", "a.toy", *IDLE, "--residency", "auto"))
        self.assertIn("--driver", self.refused("run", "a.toy", "--residency", "auto", "--no-cpu"))


if __name__ == "__main__":
    unittest.main()
