"""weir simulate pool, from the outside: its words, its answer, its exit status."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
import harness

POLICIES = ["weir", "weir-suspend", "lru-count", "lru-bytes", "size", "keep-alive"]
TRAFFIC = ["zipf", "bursts", "ping-pong", "scan", "diurnal", "mix"]
MODELS = "model name=a bytes=3GiB load=2s resume=100ms suspend=100ms\nmodel name=b bytes=2GiB load=1s\n"


class Pool(harness.Case):
    def runs(self, *words):
        return self.weir_json("simulate", "pool", *words)["runs"]

    def test_all_policies_under_all_traffic(self):
        runs = self.runs("--hours", 1)
        self.assertEqual([(r["traffic"], r["policy"]) for r in runs], [(t, p) for t in TRAFFIC for p in POLICIES])
        for r in runs:
            self.assertEqual((r["violations"], r["first_violation"], r["over_ceiling"], r["over_host"]), (0, None, 0, 0))
            self.assertEqual(r["requests"], r["granted"] + r["refused"])
            self.assertEqual(r["refused"], sum(r["causes"].values()))
            self.assertLessEqual(r["most_taken"], 48 << 30)
            self.assertEqual(r["resumes"] > 0, r["policy"] == "weir-suspend")
        for traffic in TRAFFIC:
            others = [r for r in runs if r["traffic"] == traffic and not r["policy"].startswith("weir")]
            self.assertEqual(min(r["beside_best"] for r in others), 1)

    def test_several_devices(self):
        log = self.folder / "log"
        words = ("--hours", 4, "--traffic", "zipf", "--budget", "44GiB")
        one = self.runs(*words, "--policy", "weir")[0]
        two = self.runs(*words, "--policy", "weir", "--devices", 2, "--decisions", log)[0]
        self.assertEqual((two["violations"], two["over_ceiling"]), (0, 0))
        self.assertLess(two["reload_seconds"], one["reload_seconds"])
        loads = [dict(w.split("=") for w in line.split()[2:]) for line in log.read_text().splitlines() if line.startswith("> load")]
        self.assertEqual({load["device"] for load in loads}, {"0", "1"})
        self.assertIsNone(self.weir_json("simulate", "pool", "--replay", log)["differs_at"])
        models = self.write("models", "model name=a bytes=30GiB load=1s\n"
                            "model name=b bytes=30GiB load=1s gives-up=device,context,wait shrink-first\nvariant bytes=30GiB device=1 same\n"
                            "variant bytes=9GiB context=512 fewer-layers\n")
        requests = self.write("requests", "request at=0s model=a time=60s\nrequest at=10s model=b time=1s\n")
        run = self.runs("--models", models, "--traffic", requests, "--budget", "40GiB", "--policy", "weir")[0]
        self.assertEqual((run["granted"], run["loads"], run["evictions"]), (2, 2, 0))
        bad = self.write("bad", "model name=a bytes=1 load=1s gives-up=evict,all\n")
        self.assertIn("gives-up=evict,all", self.weir("simulate", "pool", "--models", bad, status=1)[1])

    def test_a_seed_is_one_traffic(self):
        words = ("--hours", 2, "--traffic", "mix", "--policy", "weir")
        kept = ("requests", "granted", "loads", "reload_seconds", "wait_mean", "events", "actions")
        one, again, other = (self.runs(*words, "--seed", seed)[0] for seed in (4, 4, 5))
        self.assertEqual([one[key] for key in kept], [again[key] for key in kept])
        self.assertNotEqual([one[key] for key in kept], [other[key] for key in kept])
        self.assertIsNone(one["beside_best"])
        self.assertIn("of best", self.weir("simulate", "pool", *words)[0])

    def test_what_is_saved_is_the_same_traffic(self):
        words = ("--budget", "4GiB", "--policy", "lru-bytes")
        models = self.write("models", MODELS)
        saved, again = self.folder / "saved", self.folder / "again"
        made = self.runs("--models", models, "--traffic", "bursts", "--hours", 3, *words, "--save", saved, "--save-models", again)[0]
        read = self.runs("--models", again, "--traffic", saved, *words)[0]
        for key in ("requests", "granted", "loads", "reload_seconds", "wait_mean", "bytes_in"):
            self.assertEqual(made[key], read[key])

    def test_decisions_are_replayed(self):
        log = self.folder / "log"
        run = self.runs("--traffic", "zipf", "--policy", "weir-suspend", "--hours", 2, "--decisions", log)[0]
        answer = self.weir_json("simulate", "pool", "--replay", log)
        self.assertEqual((answer["differs_at"], answer["actions"]), (None, run["actions"]))
        self.assertEqual(answer["events"], run["events"] + 1)  # its beginning
        self.assertIn("all the same", self.weir("simulate", "pool", "--replay", log)[0])
        lines = log.read_text().splitlines(True)
        at = next(i for i, line in enumerate(lines) if line.startswith("> load"))
        log.write_text("".join(lines[:at] + lines[at + 1:]))
        self.assertIn(f"line {at + 1}: ", self.weir("simulate", "pool", "--replay", log, status=1)[1])

    def test_bad_usage(self):
        for words in (("--policy", "none"), ("--hours", "0"), ("--hours", "1", "--year"), ("--gap", "5"), ("--budget", "x"),
                      ("--save", "f"), ("--decisions", "f"), ("--decisions", "f", "--traffic", "zipf"),
                      ("--replay", "f", "--seed", "1"), ("word",), ("--json=1",)):
            self.assertIn("simulate pool --help", self.weir("simulate", "pool", *words, status=2)[1])
        self.assertIn("usage: weir simulate pool", self.weir("simulate", "pool", "--help")[0])
        self.assertIn("line 1", self.weir("simulate", "pool", "--models", self.write("bad", "model\n"), status=1)[1])
        self.assertIn("line 2", self.weir("simulate", "pool", "--traffic", self.write("bad", "\nrequest\n"), status=1)[1])
        for option in ("--models", "--traffic", "--replay"):
            self.assertIn("nowhere", self.weir("simulate", "pool", option, "nowhere", status=1)[1])


if __name__ == "__main__":
    unittest.main()
