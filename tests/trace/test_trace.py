"""A program recorded by WEIR_TRACE, its files, and what weir simulate --trace says of them."""

import csv
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
import harness

RMM = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"]


class Trace(harness.Case):
    def program(self, trace, how="ordered", **environment):
        done = subprocess.run([harness.BUILD / "tests/test-trace-program", how], cwd=self.folder, text=True, timeout=60,
                              env=self.environment({"WEIR_TRACE": str(trace), **environment}), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_csv_is_what_rmm_writes(self):
        self.program("t.csv")
        with open(self.folder / "t.csv", newline="") as file:
            reader = csv.DictReader(file)
            self.assertEqual(reader.fieldnames[:6], RMM)
            rows = list(reader)
        self.assertEqual([row["Action"] for row in rows], ["allocate", "free"] * 3)
        live = {}
        for row in rows:
            self.assertRegex(row["Time"], r"^\d\d:\d\d:\d\d\.\d{6}$")
            self.assertEqual((row["Size"], row["Client"], row["Class"]), ("4096", 'user, "program"', "activations"))
            self.assertTrue(int(row["Pointer"], 16) and int(row["Stream"]) and int(row["Thread"]))
            if row["Action"] == "allocate":
                live[row["Pointer"]] = row["Size"]
            else:
                self.assertEqual(live.pop(row["Pointer"]), row["Size"])
        self.assertEqual(live, {})

    def test_an_ordered_program(self):
        self.program("t.weir")
        answer = self.weir_json("simulate", "--trace", "t.weir")
        self.assertEqual((answer["violations"], answer["first_violation"], answer["findings"]), (0, None, []))
        self.assertEqual((answer["lost"], answer["cut_at"]), (0, None))
        self.assertGreater(answer["events"], 20)
        self.assertIn("nothing found", self.weir("simulate", "--trace", "t.weir")[0])

    def test_an_unordered_program(self):
        self.program("t.weir", "unordered")
        answer = self.weir_json("simulate", "--trace", "t.weir", status=1)
        self.assertIn("free-in-use", self.error)
        self.one_line(self.error)
        self.assertGreaterEqual(answer["violations"], 3)
        self.assertEqual(len(answer["findings"]), answer["violations"])
        first = answer["findings"][0]
        self.assertEqual(set(first), {"kind", "pointer", "bytes", "client", "tag", "stream", "other_stream", "order_first",
                                      "order_second", "text"})
        self.assertEqual((first["kind"], first["bytes"], first["client"]), ("free-in-use", 4096, 'user, "program"'))
        self.assertNotEqual(first["stream"], first["other_stream"])
        self.assertLess(first["order_first"], first["order_second"])
        self.assertEqual(answer["first_violation"], f"free-in-use: {first['text']}")
        out = self.weir("simulate", "--trace", "t.weir", status=1)[0]
        self.assertIn(first["text"], out)

    def test_devices_and_second_runtimes_have_files_of_their_own(self):
        self.program("%d-%%.weir", "twice")
        self.assertEqual(sorted(path.name for path in self.folder.glob("*.weir")), ["host-%%.2.weir", "host-%%.weir"])
        for name in ("host-%%.weir", "host-%%.2.weir"):
            self.assertEqual(self.weir_json("simulate", "--trace", name)["lost"], 0)

    def test_a_file_that_cannot_be_written(self):
        done = self.program("/nonexistent/t.weir", WEIR_LOG="error")
        self.assertIn("host is not traced: cannot write the trace /nonexistent/t.weir", done.stderr)
        self.assertEqual(done.stdout, "\n")  # no call failed
        self.assertEqual(self.program("/nonexistent/t.weir").stderr, "")
        self.assertEqual(self.program("/dev/full").stdout, "\n")

    def test_the_log_may_make_runtimes_at_exit(self):
        self.assertEqual(self.program("/dev/full", "late").stdout, "\nWEIR_ERR_BUSY\n")

    def test_a_program_that_was_killed(self):
        self.program("t.weir", "killed")
        answer = self.weir_json("simulate", "--trace", "t.weir")
        self.assertGreater(answer["events"], 5000)
        self.assertEqual(answer["cut_at"], (self.folder / "t.weir").stat().st_size)
        self.assertIn("cut off", self.weir("simulate", "--trace", "t.weir")[0])

    def test_damage_is_told(self):
        self.program("t.weir")
        content = bytearray((self.folder / "t.weir").read_bytes())
        content[200] ^= 4
        self.write("bad.weir", bytes(content))
        self.assertRegex(self.refused("simulate", "--trace", "bad.weir", status=1), r"bad\.weir: .* at byte \d+")
        self.assertIn("no binary trace", self.refused("simulate", "--trace", self.write("x", "hello"), status=1))
        self.assertIn("nowhere", self.refused("simulate", "--trace", "nowhere", status=1))
        self.assertIn("--trace", self.refused("simulate", "--trace", "t.weir", "--steps", 3))

    def test_the_command_traces_beside_the_option(self):
        self.weir("run", "a.toy", "--trace", "run.csv", WEIR_TRACE="t.weir")
        self.assertGreater(self.weir_json("simulate", "--trace", "t.weir")["events"], 2)
        self.assertTrue((self.folder / "run.csv").read_text().startswith(",".join(RMM)))


if __name__ == "__main__":
    unittest.main()
