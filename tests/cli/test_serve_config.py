"""weir serve --config: one file with options and models, read anew at SIGHUP; and models whose files change."""

import json
import os
import signal
import threading
import time
import unittest

from test_serve import DEADLINE, Served

WHOLE = """{
  "budget": "512MiB", "cores": 3, "workers": 4, "keys": ["secret"], "folders": ["more"], "no_cpu": false,
  "defaults": {"keep_alive": "10m"},
  "models": {
    "chat": {"path": "said.echo", "aliases": ["gpt"], "pin": true, "load": true, "priority": 3, "weight": 2, "parallel": 2,
             "suspend": false, "minimum_stay": 0, "warm_up": false, "tuning": {"known": true}},
    "large": {"path": "large.echo", "keep_alive": -1, "guaranteed": "1MiB", "maximum": "64MiB", "peak": 33554432,
              "gives_up": ["context", "layers", "suspend", "evict", "wait"], "variants": [{"context": 128}, {"tuning": {"known": 1.5}, "layers": 3}]}
  }
}
"""


class Configured(Served):
    def setUp(self):
        super().setUp()
        self.write("said.echo", "input text text -1\ngenerate yes\n")
        self.write("large.echo", "input text text -1\nweights 16777216\n")
        (self.folder / "more").mkdir()
        self.write("more/other.echo", "input text text -1\ngenerate other\n")

    def configure(self, **content):
        """Writes the file, as one that replaces another."""
        self.write("weir.json.new", json.dumps(content))
        os.replace(self.folder / "weir.json.new", self.folder / "weir.json")

    def models(self):
        return {m["name"]: m for m in self.ask("GET", "/weir/state")[1]["models"] if m["current"]}

    def wait_until(self, what):
        end = time.monotonic() + DEADLINE
        while not (found := what()):
            self.assertLess(time.monotonic(), end, self.models())
            time.sleep(0.02)
        return found

    def say(self, model):
        """The text of its stream; else the status."""
        status, data = self.ask("POST", "/v1/completions", {"model": model, "prompt": "x", "max_tokens": 8, "stream": True}, raw=True)
        if status != 200:
            return status
        events = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line]
        return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


class Reading(Configured):
    def test_all_of_it(self):
        self.write("weir.json", WHOLE)
        process = self.serve("--config", "weir.json")
        self.assertEqual(["chat", "large", "other"], sorted(self.names))
        self.assertEqual(401, self.ask("GET", "/weir/state")[0])
        bearer = {"Authorization": "Bearer secret"}
        state = self.ask("GET", "/weir/state", headers=bearer)[1]
        models = {m["name"]: m for m in state["models"]}
        self.assertEqual((512 << 20, 3), (state["devices"][0]["budget"], state["cores"]["cores"]))
        self.assertEqual(("loaded", True, False), tuple(models["chat"][key] for key in ("state", "pinned", "can_suspend")))
        self.assertAlmostEqual(600, models["other"]["expires"] or 600, delta=60)
        self.assertEqual(33554432, models["large"]["predicted_peak"])
        self.assertIsNone(models["large"]["expires"])
        status, answer = self.ask("POST", "/v1/completions", {"model": "gpt", "prompt": "a", "max_tokens": 8}, bearer)
        self.assertEqual((200, "chat", "a"), (status, answer["model"], answer["choices"][0]["text"]))
        self.assertEqual(200, self.ask("POST", "/weir/models/gpt/unpin", headers=bearer)[0])
        self.end(process)

    def test_the_command_line_goes_before_it(self):
        self.configure(budget="64MiB", cores=3, models={"a": {"path": "said.echo"}})
        process = self.serve("--config", "weir.json", "--budget", "32MiB", "--cores", "5", self.folder / "large.echo", WEIR_CORES="7")
        self.assertEqual(["a", "large"], sorted(self.names))
        state = self.ask("GET", "/weir/state")[1]
        self.assertEqual((32 << 20, 5), (state["devices"][0]["budget"], state["cores"]["cores"]))
        self.end(process)

    def test_what_is_wrong(self):
        self.write("weir.json", """{"workers": 0, "cores": 0, "no_cpu": 1, "host": "", "keys": "k", "bogus": 1, "json": true, "folders": [1],
          "defaults": {"path": "x", "pin": 1},
          "models": {"a": {}, "b": {"path": "nothing.echo", "keep_alive": "5 minutes", "priority": 5000, "maximum": "much",
            "gives_up": ["wait", "hope"], "variants": [{}], "tuning": {"x": []}, "aliases": ["a"], "bogus": 1}, "": 1}}""")
        out, error = self.weir("check", "weir.json", status=1)
        said = [line.split(": ", 1)[1] for line in out.splitlines()]
        wanted = ["workers: is to be a whole number from 1 to 4096", "cores: is to be a whole number from 1 to 1024", "no_cpu: is to be true or false", "host: is to be a text",
                  "keys: is to be a list", "bogus: there is no such key", "json: there is no such key", "folders: is to be a list",
                  "defaults.path: is for one model", "defaults.pin: is to be true or false", "models.a.path: is missing",
                  "models.b.keep_alive: is to be a time", "models.b.priority: is to be", "models.b.maximum: is to be a size",
                  "models.b.gives_up: is to be a list", "models.b.variants: is to be", "models.b.tuning: is to be",
                  "models.b.bogus: there is no such key", "models.: a name has", "models.: is to be an object",
                  "models.b.aliases: 'a' is a name of 'a' already"]
        for part in wanted:
            self.assertEqual(1, sum(line.startswith(part) for line in said), (part, out))
        self.assertEqual(1, sum(line.startswith("models.b.path: ") and "nothing.echo" in line for line in said), out)
        self.assertEqual(len(wanted) + 1, len(said), out)
        self.assertIn(f"{len(said)} problems", error)
        answer = json.loads(self.weir("check", "weir.json", "--json", status=1)[0])
        self.assertEqual((False, len(said)), (answer["good"], len(answer["errors"])))
        error = self.weir("serve", "--config", "weir.json", status=1)[1]
        self.assertEqual(len(wanted), len(error.splitlines()))

    def test_times_are_decimal_numbers_with_units(self):
        for time_, good in {"5m": True, "1h30m": True, ".5s": True, "2.5ms": True, "10": True, "-1": True, "1e2s": True, "0": True,
                            "infs": False, "inf": False, "nans": False, "0x10s": False, "0X1s": False, "1h0x1s": False, " 5s": False,
                            "+5s": False, "--5s": False, "5m-3s": False, ".s": False, "": False, "5x": False}.items():
            self.write("weir.json", json.dumps({"models": {"a": {"path": "said.echo", "keep_alive": time_}}}))
            out = self.weir("check", "weir.json", status=0 if good else 1)[0]
            self.assertEqual(good, "keep_alive" not in out, (time_, out))

    def test_what_cannot_be_read(self):
        self.assertIn("none.json", self.weir("serve", "--config", "none.json", status=1)[1])
        self.write("weir.json", '{"models": {"a": 1},\n "models": 2}')
        self.assertIn("weir.json: 2:", self.weir("serve", "--config", "weir.json", status=1)[1])
        self.write("weir.json", "[]")
        self.assertIn("one JSON object", self.weir("serve", "--config", "weir.json", status=1)[1])

    def test_a_good_one(self):
        self.write("weir.json", WHOLE)
        self.assertEqual("weir.json is good\n", self.weir("check", "weir.json")[0])
        self.write("weir.json", WHOLE.replace('"more"', '"more/other.echo", "none"'))
        self.assertEqual(2, self.weir("check", "weir.json", status=1)[0].count("folders: there is no folder "))


class Changes(Configured):
    def hang_up(self):
        self.process.send_signal(signal.SIGHUP)

    def begin(self, *words, **content):
        self.configure(**content)
        self.process = self.serve("--config", "weir.json", *words)

    def log(self):
        """Ends it, and answers what it has said."""
        self.process.send_signal(signal.SIGTERM)
        out, error = self.process.communicate(timeout=DEADLINE)
        self.assertEqual((0, ""), (self.process.returncode, out))
        return error

    def test_models_come_and_go(self):
        self.begin(models={"a": {"path": "said.echo", "load": True}, "b": {"path": "large.echo"}})
        self.configure(models={"b": {"path": "large.echo", "pin": True, "aliases": ["big"]}, "c": {"path": "more/other.echo", "load": True}})
        self.hang_up()
        self.wait_until(lambda: self.models().get("c", {}).get("state") == "loaded" and "a" not in self.models())
        self.assertEqual({"b", "c"}, set(self.models()))
        self.assertEqual(404, self.say("a"))
        self.assertEqual("other", self.say("c"))
        self.wait_until(lambda: self.models()["b"]["pinned"])
        self.assertEqual("", self.models()["b"]["version"])
        self.assertEqual(200, self.ask("GET", "/v1/models/big")[0])
        self.assertEqual("", self.log())

    def test_another_way_to_have_one(self):
        self.begin(models={"a": {"path": "said.echo", "load": True, "priority": 0}})
        self.configure(models={"a": {"path": "more/other.echo", "priority": 2}})
        self.assertEqual("yes", self.say("a"))
        self.hang_up()
        self.wait_until(lambda: self.models()["a"]["version"] == "+1")
        self.assertEqual("other", self.say("a"))
        self.assertEqual(1, len(self.ask("GET", "/weir/state")[1]["models"]))
        self.assertEqual("", self.log())

    def test_a_bad_file_changes_nothing(self):
        self.begin(models={"a": {"path": "said.echo"}})
        self.configure(models={"a": {"path": "said.echo", "pin": "yes"}}, workers=0)
        self.hang_up()
        time.sleep(0.2)
        self.assertEqual("yes", self.say("a"))
        self.configure(models={"a": {"path": "said.echo", "pin": True}}, workers=5)
        self.hang_up()
        self.wait_until(lambda: self.models()["a"]["pinned"])
        said = self.log()
        for part in ("models.a.pin: is to be true or false", "workers: is to be", "need a restart"):
            self.assertIn(part, said)

    def test_a_file_that_changes(self):
        process = self.serve(self.folder / "said.echo", self.folder / "more")
        self.assertEqual(("yes", "other"), (self.say("said"), self.say("other")))
        stop, wrong = threading.Event(), []

        def keep_asking():
            while not stop.is_set():
                if (said := self.say("said")) not in ("yes", "again"):
                    wrong.append(said)

        threads = [threading.Thread(target=keep_asking) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            self.write("said.new", "input text text -1\ngenerate again\n")
            os.replace(self.folder / "said.new", self.folder / "said.echo")
            self.wait_until(lambda: self.say("said") == "again")
            self.write("more/third.echo", "input text text -1\ngenerate third\n")
            self.wait_until(lambda: self.say("third") == "third")
            (self.folder / "more/other.echo").unlink()
            self.wait_until(lambda: self.say("other") == 404)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual([], wrong)
        self.assertEqual({"said": "+1", "third": ""}, {name: model["version"] for name, model in self.models().items()})
        self.end(process)

    def test_no_room_for_both(self):
        self.write("said.echo", "input text text -1\ngenerate yes\nweights 41943040\n")
        self.begin("--budget", "64MiB", models={"a": {"path": "said.echo", "pin": True}})
        self.assertEqual("yes", self.say("a"))
        self.write("said.new", "input text text -1\ngenerate again\nweights 41943040\n")
        os.replace(self.folder / "said.new", self.folder / "said.echo")
        self.wait_until(lambda: self.say("a") == "again")
        self.assertTrue(self.models()["a"]["pinned"])
        self.log()

    def test_a_file_that_is_no_model_now(self):
        process = self.serve(self.folder / "said.echo")
        self.assertEqual("yes", self.say("said"))
        (self.folder / "said.echo").rename(self.folder / "away")
        time.sleep(2.5)
        self.assertEqual("yes", self.say("said"))
        (self.folder / "away").rename(self.folder / "said.echo")
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=DEADLINE)
        self.assertEqual((0, ""), (process.returncode, out))
        self.assertIn("said.echo", error)

    def test_it_ends_while_a_model_comes(self):
        self.write("said.echo", "input text text -1\ngenerate yes\nweights 41943040\n")
        self.begin("--budget", "64MiB", models={"a": {"path": "said.echo", "load": True}})
        for i in range(3):
            self.configure(models={"a": {"path": "said.echo", "priority": i + 1}, f"b{i}": {"path": "large.echo", "load": True}})
            self.hang_up()
        self.log()


if __name__ == "__main__":
    unittest.main()
