"""weir run with the small engines: results, numbers, refusals, signals."""

import json
import os
import re
import signal
import subprocess
import time
import unittest
from pathlib import Path

import harness
from harness import CLASSES, MIB

BIG = f"input a f32 -1 3\nweights {4 * MIB}\nscratch {2 * MIB}\n"


class Run(harness.Case):
    def check_sums(self, answer):
        for client in answer["clients"]:
            self.assertEqual(sum(client[name] for name in CLASSES), client["peak"], client)
        self.assertEqual(sum(client["bytes"] for client in answer["peak_clients"]), answer["peak"])
        for client in answer["peak_clients"]:
            self.assertEqual(sum(client[name] for name in CLASSES), client["bytes"])
        self.assertEqual(answer["live_at_end"], 0)
        self.assertLessEqual(answer["peak"], answer["peak_held"])
        self.assertLessEqual(answer["peak_held"], answer["budget"])
        self.assertEqual(answer["events_lost"], 0)

    def test_driver(self):
        self.write("e.echo", BIG)
        answer = self.weir_json("run", "e.echo", "--driver", "host", "--budget", "64MiB")
        self.assertEqual(answer["clients"][0]["device"], "host")
        self.assertNotIn("outside_host", answer["clients"][0])
        self.assertIn("abacus", self.weir("run", "e.echo", "--driver", "abacus", status=2)[1])
        if not os.path.exists("/dev/nvidiactl"):
            words = ("run", "e.echo", "--driver", "cuda", "--budget", "64MiB")
            self.assertIn("libcuda.so.1", self.weir(*words, status=1)[1])

    def test_json(self):
        self.write("e.echo", BIG)
        answer = self.weir_json("run", "a.toy", "e.echo", "--budget", "64MiB")
        self.assertLessEqual({"budget", "peak", "live_at_end", "clients", "peak_held", "peak_clients", "seconds", "events",
                              "events_lost"}, set(answer))
        self.assertEqual(answer["budget"], 64 * MIB)
        self.check_sums(answer)
        toy, echo = answer["clients"]
        for client in (toy, echo):
            self.assertLessEqual({"name", "engine", "provider", "device", "peak", *CLASSES, "outside", "outside_method",
                                  "outputs", "runs", "seconds", "load_seconds"}, set(client))
            self.assertEqual(client["device"], "host")
            self.assertEqual(client["runs"], 1)
            self.assertIn("RssAnon", client["outside_method"])
        self.assertEqual((toy["name"], toy["engine"], toy["weights"], toy["activations"]), ("a.toy", "toy", 256, 256))
        self.assertEqual((echo["weights"], echo["scratch"]), (4 * MIB, 2 * MIB))
        self.assertEqual(toy["outputs"], [{"name": "y", "type": "f32", "shape": [3], "file": None}])
        self.assertEqual(self.error, "")

    @unittest.skipIf(harness.SANITIZED, "a sanitizer's shadow memory is anonymous memory too")
    def test_outside_is_not_the_ledger(self):
        # 4 MiB of weights are touched: they are weir's, and no part of what the engine took elsewhere.
        self.write("e.echo", BIG)
        self.assertLess(self.client(self.weir_json("run", "e.echo"), "e.echo")["outside"], 3 * MIB)

    def test_several_with_one_name(self):
        answer = self.weir_json("run", "a.toy", "./a.toy", "b.toy", "a.toy", "--serial", "--repeat", "3")
        self.assertEqual([client["name"] for client in answer["clients"]], ["a.toy", "a.toy#2", "b.toy", "a.toy#3"])
        self.assertEqual([client["runs"] for client in answer["clients"]], [3] * 4)
        self.check_sums(answer)

    def test_long_names(self):
        names = ["é" * 50 + ending for ending in ("a.toy", "b.toy")]
        for name in names:
            self.write(name, "1 1")
        found = [client["name"] for client in self.weir_json("run", *names)["clients"]]
        self.assertEqual(len(set(found)), 2)
        for name in found:
            self.assertLessEqual(len(name.encode()), 63)
        self.assertTrue(found[1].endswith("#2"))

    def test_values(self):
        out, error = self.weir("run", "a.toy", "--input", "x=4,5.5,-6")
        self.assertIn("y f32 [3] 4 11 -18", out)
        self.assertEqual(error, "")
        out = self.weir("run", "a.toy", "b.toy", "--input", "x=1,1,1", "--input", "b.toy:x=1,2,3,4")[0]
        self.assertIn("1 2 3", out)
        self.assertIn("10 40 90 160", out)
        # The filling is the same every time.
        self.assertEqual(*[self.weir("run", "a.toy")[0].split("\n")[1] for _ in range(2)])

    def test_the_table(self):
        out = self.weir("run", "a.toy", "b.toy", "--budget", "1MiB")[0]
        rows = [line for line in out.split("\n") if line.startswith(("model ", "a.toy  ", "b.toy  "))][-3:]
        for name in (*CLASSES, "peak", "outside"):
            self.assertIn(name, rows[0])
        self.assertEqual(len({len(row) for row in rows}), 1, rows)
        self.assertRegex(out, r"total .* of budget 1 MiB \(\d+ %\)")
        self.assertNotIn("\x1b", out)

    def test_inputs_that_do_not_fit(self):
        for words, said in ((("x=1,2",), "f32 [3]"), (("x=one",), "no list of numbers"), (("x=1,2,e",), "'e'"),
                            (("x=@lines.txt",), "lines of a file are for text")):
            self.write("lines.txt", "one\ntwo\n")
            answer = self.weir_json("run", "a.toy", "b.toy", "--input", f"a.toy:{words[0]}", status=1)
            self.one_line(self.error)
            self.assertIn(said, self.error)
            self.assertIn("a.toy", self.error)
            self.assertEqual(answer["error"]["model"], "a.toy")
            self.assertEqual(self.client(answer, "b.toy")["runs"], 1)
        self.assertIn("missing.npy", self.refused("run", "a.toy", "--input", "x=missing.npy", status=1))
        self.assertIn("missing.txt", self.refused("run", "a.toy", "--input", "x=@missing.txt", status=1))

    def test_text(self):
        self.write("e.echo", "input text text -1\ninput other text -1\n")
        self.write("lines.txt", "first\nsecond é\n")
        outputs = self.weir_json("run", "e.echo", "--prompt", "hello", "--input", "other=@lines.txt")["clients"][0]["outputs"]
        self.assertEqual([output["text"] for output in outputs], ["hello", "first\nsecond é"])
        self.assertEqual(outputs[1]["shape"], [len("first\nsecond é".encode())])
        self.write("bad.txt", b"\xff\xfe")
        self.assertIn("UTF-8", self.refused("run", "e.echo", "--input", "other=@bad.txt", status=1))
        self.weir("run", "e.echo", "--input", "text=shape:3", status=1)

    def test_settings(self):
        self.write("e.echo", BIG)
        self.weir_json("run", "e.echo", "--set", "known=1")
        self.weir_json("run", "e.echo", "a.toy", "--set", "e.echo:known=1")
        self.weir_json("run", "e.echo", "--set", "odd=1", status=1)
        self.assertIn("odd", self.error)

    def test_streaming(self):
        self.write("e.echo", "input a f32 1\ngenerate Hello there\n")
        out = self.weir("run", "e.echo", "--stream", "--repeat", "2")[0]
        self.assertTrue(out.startswith("Hello there\nHello there\n"), out)
        self.weir_json("run", "e.echo", "--stream")
        self.assertIn("Hello there", self.error)
        out = self.weir("run", "e.echo", "e.echo", "--stream")[0]
        self.assertEqual(sorted(out.split("\n")[:2]), ["e.echo#2: Hello there", "e.echo: Hello there"])

    def test_a_budget_that_is_too_small(self):
        self.write("e.echo", BIG + "exact\n")
        answer = self.weir_json("run", "a.toy", "e.echo", "b.toy", "--budget", "5MiB", status=1)
        self.one_line(self.error)
        self.assertRegex(self.error, r"^weir: e\.echo asked for 2 MiB \(scratch\) on host; of the budget of 5 MiB, .* are left "
                                     r"to it; e\.echo holds 4 MiB.*; with --budget \d+ \(.*\) all of it fits\n$")
        error = answer["error"]
        self.assertEqual((error["status"], error["model"]), ("WEIR_ERR_OUT_OF_MEMORY", "e.echo"))
        self.assertEqual((error["refusal"]["cause"], error["refusal"]["requested"]), ("budget", 2 * MIB))
        self.assertEqual(error["refusal"]["holders"][0], {"client": "e.echo", "bytes": 4 * MIB})
        self.assertEqual(self.client(answer, "a.toy")["runs"], 1)
        self.assertEqual(self.client(answer, "b.toy")["runs"], 1)
        self.assertEqual(answer["live_at_end"], 0)
        # What it says does, and a little less does not.
        budget = int(self.error.split("--budget ")[1].split()[0])
        self.weir("run", "a.toy", "e.echo", "b.toy", "--budget", budget, "--repeat", "20")
        self.weir("run", "a.toy", "e.echo", "b.toy", "--budget", budget - 3 * 65536, status=1)

    def test_a_refusal_by_a_reservation_names_its_cause(self):
        self.write("e.echo", BIG + f"reserve {MIB}\n")
        refusal = self.weir_json("run", "e.echo", "--budget", "8MiB", status=1)["error"]["refusal"]
        self.assertEqual((refusal["cause"], refusal["requested"]), ("reservation", 4 * MIB))

    def test_a_refusal_without_an_exact_plan(self):
        self.write("e.echo", BIG)
        line = self.refused("run", "e.echo", "--budget", "1MiB", status=1)
        self.assertRegex(line, r"the model needs at least [\d.]+ MiB more: --budget \d+\n$")
        least = int(line.split("--budget ")[1])
        self.assertEqual(4 * MIB, least)  # what was asked for; what comes after it nobody can tell
        self.write("e.echo", BIG + "exact\n")
        line = self.refused("run", "e.echo", "--maximum", "e.echo=5MiB", status=1)
        self.assertRegex(line, rf"its maximum is 5 MiB.*; with --maximum e\.echo={6 * MIB} \(6 MiB\) all of it fits\n$")
        self.weir("run", "e.echo", "--maximum", f"e.echo={6 * MIB}")

    def test_guarantees(self):
        self.write("e.echo", BIG)
        self.weir("run", "a.toy", "e.echo", "--budget", "8MiB")
        answer = self.weir_json("run", "a.toy", "e.echo", "--budget", "8MiB", "--guarantee", "a.toy=4MiB", status=1)
        self.assertEqual(self.client(answer, "a.toy")["guaranteed"], 4 * MIB)
        self.assertEqual(answer["error"]["model"], "e.echo")
        self.assertEqual(answer["error"]["refusal"]["holders"][0]["client"], "a.toy")

    def test_guarantees_bind_before_anything_is_loaded(self):
        self.write("e.echo", BIG)
        answer = self.weir_json("run", "e.echo", "a.toy", "--budget", "8MiB", "--guarantee", "a.toy=4MiB", status=1)
        self.assertEqual(("e.echo", "first run"), (answer["error"]["model"], answer["error"]["stage"]))
        self.assertEqual({"client": "a.toy", "bytes": 4 * MIB}, answer["error"]["refusal"]["holders"][1])
        self.assertEqual(1, self.client(answer, "a.toy")["runs"])
        answer = self.weir_json("run", "a.toy", "e.echo", "--budget", "8MiB", "--guarantee", "e.echo=5MiB", "--guarantee",
                                "a.toy=4MiB", status=1)
        self.assertEqual(["error"], list(answer))  # nothing was loaded
        self.assertEqual(("WEIR_ERR_OUT_OF_MEMORY", "e.echo"), (answer["error"]["status"], answer["error"]["model"]))
        self.one_line(self.error)
        # What failed does not keep what it was promised.
        self.write("f.echo", BIG)
        answer = self.weir_json("run", "e.echo", "f.echo", "--budget", "9MiB", "--maximum", "e.echo=5MiB", "--guarantee",
                                "e.echo=5MiB", status=1)
        self.assertEqual(1, self.client(answer, "f.echo")["runs"])

    def test_what_failed_gives_back(self):
        self.write("e.echo", BIG)
        self.write("f.echo", f"input a f32 -1 3\nweights {4 * MIB}\n")
        for more in ((), ("--serial",)):
            answer = self.weir_json("run", "e.echo", "f.echo", "--budget", "5MiB", *more, status=1)
            self.assertEqual([("e.echo", "first run")], [(one["model"], one["stage"]) for one in answer["errors"]])
            self.assertEqual(1, self.client(answer, "f.echo")["runs"])
            self.assertEqual(4 * MIB, self.client(answer, "e.echo")["weights"])
            self.assertEqual(0, answer["live_at_end"])

    def test_a_refusal_while_running_together(self):
        # Each fits alone, and both while idle; their scratch does not fit twice.
        self.write("e.echo", BIG + "slow 300\nexact\n")
        words = ("run", "e.echo", "e.echo", "a.toy", "--budget")
        answer = self.weir_json(*words, "11MiB", status=1)
        self.one_line(self.error)
        self.assertEqual(answer["error"]["stage"], "run")
        good = [client for client in answer["clients"] if "error" not in client]
        self.assertEqual(len(good), 2)
        self.assertEqual([client["runs"] for client in good], [1, 1])
        self.assertEqual(answer["live_at_end"], 0)
        budget = int(self.error.split("--budget ")[1].split()[0])
        self.assertLess(budget, 13 * MIB)  # all of both, and a little
        self.weir_json(*words, budget)
        self.weir_json(*words, "11MiB", "--serial")

    def test_several_failures(self):
        answer = self.weir_json("run", "missing.toy", "a.toy", "missing.xyz", status=1)
        self.assertEqual([failed["model"] for failed in answer["errors"]], ["missing.toy", "missing.xyz"])
        self.assertEqual(self.error.count("\n"), 2)
        self.assertEqual([client["name"] for client in answer["clients"]], ["a.toy"])

    def test_an_engine_that_leaks(self):
        self.write("e.echo", BIG + "leak\n")
        answer = self.weir_json("run", "e.echo", status=1)
        self.assertEqual(answer["live_at_end"], 4 * MIB)
        self.assertEqual(answer["error"]["stage"], "unload")
        self.assertIn(f"{4 * MIB} bytes are still live", self.error)

    @staticmethod
    def takes(pid, number):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"SigBlk:\s*(\w+)", status)[1], 16) >> (number - 1) & 1

    def test_interrupt(self):
        self.write("e.echo", BIG + "slow 10000000\n")  # far longer than anybody waits here
        for number in (signal.SIGINT, signal.SIGTERM):
            running = subprocess.Popen([harness.COMMAND, "run", "a.toy", "e.echo", "--json"], cwd=self.folder,
                                       env=self.environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while not self.takes(running.pid, number):
                time.sleep(0.01)
            time.sleep(0.7)
            os.kill(running.pid, number)
            out, error = running.communicate(timeout=1000)
            self.assertEqual(running.returncode, 130)
            self.assertEqual(error.decode(), "weir: stopped\n")
            self.assertEqual(json.loads(out)["live_at_end"], 0)

    def test_the_example_of_two_models(self):
        self.write("t.echo", "input text text -1\nweights 1000\n")
        self.write("u.echo", "input text text -1\nweights 5000\n")
        done = subprocess.run([harness.BUILD / "bin/example-two-models", "hello", "t.echo", "u.echo"], cwd=self.folder,
                              env=self.environment({"WEIR_BUDGET": ""}), capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("t.echo: text, 5 bytes of text", done.stdout)
        self.assertIn("of 1 GiB at the peak", done.stdout)

    def test_devices_that_are_not_here(self):
        self.assertIn("cuda", self.refused("run", "a.toy", "--budget", "host=1g,cuda:7=1g", status=1))


if __name__ == "__main__":
    harness.main()
