"""A program recorded by WEIR_TRACE, its files, and what weir simulate --trace says of them."""

import csv
import json
import pickle
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
import harness

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RMM = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"]


class Trace(harness.Case):
    def program(self, trace, how="ordered", **environment):
        done = subprocess.run([harness.BUILD / "tests/test-trace-program", how], cwd=self.folder, text=True, timeout=1000,
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

    def test_two_runtimes_three_threads_and_clients_of_one_name(self):
        self.program("%d.weir", "several")
        self.assertEqual(sorted(path.name for path in self.folder.glob("*.weir")), ["host.2.weir", "host.weir"])
        for name in ("host.weir", "host.2.weir"):
            answer = self.weir_json("report", name)
            self.assertEqual([answer[key] for key in ("allocations", "frees", "refused", "live_at_end", "pending_at_end", "malformed", "lost")],
                             [36, 36, 3, 0, 0, 0, 0])
            self.assertEqual({one["name"]: (one["allocations"], one["refused"]) for one in answer["clients"]}, {"model": (24, 0), "other": (12, 3)})
            self.assertEqual({(one["client"], one["tag"]): (one["allocations"], one["bytes"], one["live_at_end"]) for one in answer["tags"]
                              if one["allocations"]},
                             {(client, tag): (4 * of, 4 * of * size, 0) for client, of in (("model", 2), ("other", 1))
                              for tag, size in (("first", 4096), ("second", 8192), ("third", 12288))})
            self.assertEqual(self.weir_json("simulate", "--trace", name)["violations"], 0)
            self.weir("export", name, "--format", "csv", "-o", "out.csv")
            with open(self.folder / "out.csv", newline="") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual(len({row["Thread"] for row in rows if row["Action"] == "allocate"}), 3)
            freed = {row["Thread"] for row in rows if row["Action"] == "free"} - {row["Thread"] for row in rows if row["Action"] == "allocate"}
            self.assertEqual(len(freed), 1)  # the thread that made the others
            # The rows of one thread after another, as if each had kept its own until the end: the numbers have the order.
            head = (self.folder / "out.csv").read_text().splitlines()[0]
            late = sorted(zip(rows, (self.folder / "out.csv").read_text().splitlines()[1:]), key=lambda one: one[0]["Thread"])
            self.write("late.csv", "\n".join([head, *(line for _, line in late)]) + "\n")
            for trace in (name, "out.csv", "late.csv"):
                told = self.weir_json("replay", trace, "--driver", "host", WEIR_BUDGET="")["traces"][0]
                self.assertEqual([told[key] for key in ("allocations", "frees", "live_at_end", "streams", "refused_in_trace", "malformed",
                                                        "peak_requested")], [36, 36, 0, 3, 3, 0, answer["peak_requested"]])

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

    # Suspended clients --------------------------------------------------------------------------------------------------------------

    def turns(self, trace="t.weir"):
        """What the program said behind each turn."""
        return [json.loads(line) for line in self.program(trace, "suspended").stdout.splitlines()]

    def test_a_report_of_models_that_take_turns(self):
        said = self.turns()
        answer = self.weir_json("report", "t.weir")
        line, last = answer["timeline"], said[-1]
        self.assertEqual((answer["live_at_end"], answer["away_at_end"]), (last["live"], last["away"]))
        self.assertEqual(max(line["away"]), answer["peak_away"])
        self.assertGreaterEqual(answer["peak_away"], max(one["away"] for one in said))
        # The points tell the same as the ledger did, in its order.
        points = [(live, away) for live, away in zip(line["live"], line["away"])]
        for one in said:
            self.assertIn((one["live"], one["away"]), points)
            points = points[points.index((one["live"], one["away"])):]
        for at, event in enumerate(line["event"]):
            self.assertEqual(sum(one["bytes"][at] for one in line["away_series"]), line["away"][at])
            self.assertEqual(sum(one["bytes"][at] for one in line["series"]), line["live"][at] + line["pending"][at])
        clients = {one["name"]: one for one in answer["clients"]}
        for name in ("first", "second"):
            self.assertEqual(clients[name]["peak_away"], max(one[name]["away"] for one in said))
            self.assertEqual((clients[name]["live_at_end"], clients[name]["away_at_end"]), (0, 0))

    def test_suspends_and_resumes_are_marked(self):
        said = self.turns()
        answer = self.weir_json("report", "t.weir")
        self.assertEqual([(one["what"], one["client"]) for one in answer["residency"]],
                         [("suspend", "first"), ("suspend", "second"), ("resume", "first"), ("suspend", "first"), ("resume", "second"),
                          ("suspend", "second"), ("resume", "first")])
        self.assertEqual(answer["residency_count"], 7)
        self.assertEqual((answer["residency"][0]["bytes"], answer["residency"][0]["blocks"]), (said[1]["first"]["away"], 5))
        moment, = [one for one in answer["moments"] if one["label"] == "most away"]
        self.assertEqual(moment["away"], answer["peak_away"])
        self.assertEqual(sum(block[7] for block in moment["blocks"]), moment["away"])
        self.assertEqual([sum(one[i] for one in moment["ranges"]) for i in range(3)], [moment["live"], moment["pending"], moment["away"]])
        shares = "".join(column[2::3] for column in answer["map"]["columns"])
        self.assertIn("9", shares)
        out = self.weir("report", "t.weir")[0]
        self.assertIn("away at most, as clients were suspended", out)
        self.assertRegex(out, r"client .* peak +away")

    @unittest.skipIf(BROWSER is None, "no chromium here")
    def test_the_page_draws_what_is_away(self):
        self.turns()
        self.weir("report", "t.weir", "-o", "page.html")
        kept = {key: value for key, value in self.environment({}).items() if "ASAN" not in key and key != "LD_PRELOAD"}
        shown = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder}/browser",
                                "--dump-dom", f"file://{self.folder}/page.html"], timeout=1000, env=kept, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        if "<html" not in shown:
            self.skipTest("the browser does not run here")
        self.assertRegex(shown, 'data-ready="[0-9]+"')  # the script has come to its end
        shown = re.sub(r"<script.*?</script>", "", shown, flags=re.S)
        legend = re.search(r'<div class="legend">(.*?)</div>', shown, re.S)[1]
        for words in ("first away", "second away", "first weights"):
            self.assertIn(words, legend)
        for words in ("away at most; 7 suspends and resumes", "<th>away at the end</th>", "what is away is not among them"):
            self.assertIn(words, shown)
        self.assertNotIn('id="awaynote" hidden', shown)

    def test_nothing_in_a_program_that_takes_turns_is_out_of_order(self):
        self.turns()
        self.assertEqual(self.weir_json("simulate", "--trace", "t.weir")["violations"], 0)

    def test_a_csv_has_what_left_as_freed(self):
        self.turns("t.csv")
        with open(self.folder / "t.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        live, most = {}, 0
        for row in rows:
            if row["Action"] == "allocate":
                self.assertNotIn(row["Pointer"], live)
                live[row["Pointer"]] = int(row["Size"])
            else:
                self.assertEqual(live.pop(row["Pointer"]), int(row["Size"]))
            most = max(most, sum(live.values()))
        self.assertEqual(live, {})
        self.assertLessEqual(most, 40 << 20)  # the budget
        answer = self.weir_json("report", "t.csv")
        self.assertEqual((answer["malformed"], answer["peak"], answer["peak_away"]), (0, most, 0))

    def test_a_replay_frees_what_left(self):
        self.turns()
        self.turns("t.csv")
        answer = self.weir_json("replay", "t.weir", "--driver", "host", "--cap", "40MiB", WEIR_BUDGET="")
        trace = answer["traces"][0]
        report = self.weir_json("report", "t.weir")
        marks = {what: sum(one["blocks"] for one in report["residency"] if one["what"] == what) for what in ("suspend", "resume")}
        self.assertEqual((trace["left"], trace["returned"]), (marks["suspend"], marks["resume"]))
        self.assertEqual((trace["malformed"], trace["failures"], trace["live_at_end"]), (0, 0, 0))
        self.assertEqual(trace["peak_requested"], report["peak_requested"])
        out = self.weir("replay", "t.weir", "--driver", "host", WEIR_BUDGET="")[0]
        self.assertIn(f"{marks['suspend']} blocks that left were freed here, and {marks['resume']} that returned were allocated again", out)
        told = self.weir_json("replay", "t.csv", "--driver", "host", WEIR_BUDGET="")["traces"][0]
        self.assertEqual([told[key] for key in ("events", "peak_requested", "left", "malformed")],
                         [trace["events"], trace["peak_requested"], 0, 0])

    def test_exports_of_what_left(self):
        said = self.turns()
        report = self.weir_json("report", "t.weir")
        for form in ("perfetto", "pickle", "weir", "csv"):
            self.weir("export", "t.weir", "--format", form, "-o", f"out.{form}")
        events = json.loads((self.folder / "out.perfetto").read_text())["traceEvents"]
        away = [one["args"]["bytes"] for one in events if one["ph"] == "C" and one["pid"] == 1 and one["name"] == "away"]
        self.assertEqual((max(away), away[-1]), (report["peak_away"], said[-1]["away"]))
        marks = [one["name"] for one in events if one.get("cat") == "residency"]
        self.assertEqual(marks, [one["what"] for one in report["residency"]])
        open_slices = {}
        for one in events:
            if one["ph"] in "be":
                key = one["cat"], one["id"]
                self.assertEqual(key in open_slices, one["ph"] == "e")
                open_slices[key] = True
                if one["ph"] == "e":
                    del open_slices[key]
        self.assertEqual(open_slices, {})
        snapshot = pickle.loads((self.folder / "out.pickle").read_bytes())
        live, most = {}, 0
        for entry in snapshot["device_traces"][0]:
            if entry["action"] == "alloc":
                self.assertNotIn(entry["addr"], live)
                live[entry["addr"]] = entry["size"]
            elif entry["action"] == "free_completed":
                self.assertEqual(live.pop(entry["addr"]), entry["size"])
            most = max(most, sum(live.values()))
        self.assertEqual((live, most), ({}, report["peak_requested"]))
        again = self.weir_json("report", "out.weir")
        for key in ("residency", "timeline", "clients", "peak_away"):
            self.assertEqual(again[key], report[key])
        self.assertEqual(self.weir_json("report", "out.csv")["peak"], report["peak_requested"])


if __name__ == "__main__":
    unittest.main()
