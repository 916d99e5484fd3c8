"""Traces of others as the verbs read them: logs whose clocks go back or have dates, snapshots of PyTorch's allocator, and odd
files, of which one sentence says what is wrong."""

import copy
import gzip
import json
import pickle
import subprocess

import harness

HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
MIB = 1 << 20
BASE = 0x7f5000000000


def log(*rows):
    """Of (thread, time, action, place, bytes)."""
    return HEADER + "".join(f"{thread},{at},{action},{place * 4096:#x},{size},0\n" for thread, at, action, place, size in rows)


def entries(*rows):
    frames = [{"name": "forward", "filename": "/a/model.py", "line": 12}]
    return [{"action": action, "addr": BASE + place * 4096, "size": size, "stream": stream, "time_us": 1000 + at, "frames": frames}
            for at, (action, place, size, stream) in enumerate(rows)]


def snapshot(**more):
    rows = (("segment_alloc", 0, 4 * MIB, 0), ("alloc", 0, 1000, 0), ("alloc", 1, 2000, 7), ("annotate", 0, 0, 0),
            ("free_requested", 0, 1000, 0), ("free_completed", 0, 1000, 0), ("alloc", 0, 500, 9), ("oom", 0, 1 << 30, 0),
            ("free_requested", 1, 2000, 7), ("snapshot", 0, 0, 0))
    return {"segments": [], "device_traces": [entries(*rows), [], []], "allocator_settings": {"deep": {"er": [None, True, 1.5]}}, **more}


class Traces(harness.Case):
    def replay(self, content, *words, status=0):
        self.write("t", content if isinstance(content, (str, bytes)) else pickle.dumps(content))
        return self.weir_json("replay", "t", *words, status=status, WEIR_BUDGET="")["traces"][0]

    def check(self, answer, **wanted):
        self.assertEqual({key: answer[key] for key in wanted}, wanted)

    # Logs ---------------------------------------------------------------------------------------------------------------------------

    def test_refusals_and_empty_rows_of_older_logs(self):
        text = log((1, "00:00:00", "allocate", 1, 100)) + "".join(f"{thread},00:00:01,{row}\n" for thread, row in enumerate(
            ("allocate failure,,1099511627776,0x1", "allocate,(nil),0,0", "free,(nil),0,0", "allocate failure,,1099511627776,0x2")))
        self.check(self.replay(text), refused_in_trace=2, empty=2, malformed=0, events=1)
        self.assertIn("2 rows of no bytes at no address were passed over", self.weir("replay", "t")[0])
        report = self.weir_json("report", "t")
        self.check(report, refused=2, empty=2, malformed=0, allocations=1)
        self.assertEqual([one["bytes"] for one in report["refusals"]], [1 << 40] * 2)
        self.assertIn("2 rows of no bytes at no address", self.weir("report", "t")[0])

    def test_all_of_a_log_was_refused(self):
        self.write("t", log() + "1,00:00:01,allocate failure,,64,0x1\n2,00:00:01,allocate failure,(nil),64,0x2\n")
        self.assertIn("t: there is no allocation in it but 2 that failed when it was recorded", self.refused("replay", "t", status=1))

    def test_nothing_of_a_log_can_be_used(self):
        for when in ("yesterday", "", "25:00:00"):
            self.write("t", log((1, "00:00:0x", "allocate", 1, 10), (1, when, "free", 1, 10)))
            said = self.refused("replay", "t", status=1)
            self.assertIn("t: there is no allocation in it, and 2 lines were left out; the first, line 2: a time that is none: hh:mm:ss", said)
            self.assertIn("none of its 2 lines can be used; line 2: a time that is none", self.refused("report", "t", status=1))

    def test_times_with_dates(self):
        rows = ((1, 28, 1, "allocate", 1), (1, 30, 2, "allocate", 1), (2, 28, 2, "free", 1), (2, 29, 1, "allocate", 2),
                (3, 29, 2, "free", 2))
        text = log(*((thread, f"2026-11-{day} 0{hour}:00:00.5", action, place, 100) for thread, day, hour, action, place in rows))
        self.check(self.replay(text), events=5, malformed=0, live_at_end=1)
        self.check(self.weir_json("report", "t"), malformed=0, seconds=49 * 3600.0)

    def test_a_log_past_midnight_and_noon(self):
        rows = (("23:00", 1, "allocate", 1), ("00:30", 1, "free", 1), ("13:00", 2, "allocate", 1), ("23:30", 3, "free", 1),
                ("00:10", 1, "allocate", 2))
        for threads in (3, 1):
            text = log(*((min(thread, threads), f"{at}:00.000001", action, place, 100) for at, thread, action, place in rows))
            self.check(self.replay(text), events=5, malformed=0, live_at_end=1)
            self.check(self.weir_json("report", "t"), malformed=0, seconds=25 * 3600 + 600.0, live_at_end=100)
            self.weir("export", "t", "--format", "csv", "-o", "out.csv")
            written = (self.folder / "out.csv").read_text().splitlines()[1:]
            self.assertEqual([line.split(",")[2] for line in written], [row[2] for row in rows])

    # Snapshots ----------------------------------------------------------------------------------------------------------------------

    def test_snapshots_of_pytorch(self):
        for protocol in range(6):
            self.check(self.replay(pickle.dumps(snapshot(), protocol=protocol), "--layout", "layout.json"), allocations=3, frees=2,
                       live_at_end=1, streams=3, refused_in_trace=1, malformed=0, unknown=0, peak_requested=3000)
        layout, = json.loads((self.folder / "layout.json").read_text())["traces"]
        live, = [span for one in layout["segments"] for span in one["spans"] if span["state"] == "live"]
        self.check(live, requested=500, client="pytorch", tag="forward (model.py:12)")
        self.assertIn("event", self.replay(snapshot(), "--cap", "1KiB", "--resource", "direct", status=1)["first_refused"])

    def test_later_snapshots(self):
        """What newer ones add: annotations, the host's segments and entries, keys and actions that have no meaning here."""
        later = snapshot(host_segments=[{"size": 1 << 40}], host_traces=[entries(("alloc", 5, 1 << 40, 0))], version="3")
        for one in later["device_traces"][0]:
            one.update(compile_context="graph 1", user_metadata={"a": [1]}, pool_id=(0, 0), version_counter=7)
        more = entries(("waltz", 3, 4096, 0), ("annotate", 0, -1, -1), ("user_defined", 0, 0, 0), ("waltz", 1, 0, 0))
        later["device_traces"][0][4:4] = [*more, {"action": "annotate"}, {}, {"time_us": "late"}]
        self.check(self.replay(later), allocations=3, frees=2, malformed=0, unknown=4, peak_requested=3000)
        self.assertIn("4 entries with an action that has no meaning here", self.weir("replay", "t")[0])
        self.check(self.weir_json("report", "t"), unknown=4, malformed=0, allocations=3)

    def test_snapshots_of_three_devices(self):
        three = snapshot()
        three["device_traces"][1] = entries(("alloc", 0, 70, 0), ("alloc", 1, 30, 1))
        three["device_traces"][2] = entries(("alloc", 0, 7, 0))
        self.write("t", pickle.dumps(three))
        self.assertIn("devices 0, 1, 2: say which one is meant (--device N)", self.refused("replay", "t", status=1))
        self.assertEqual([self.replay(three, "--device", n)["peak_requested"] for n in range(3)], [3000, 100, 7])
        self.assertIn("without device 3; it has 0, 1, 2", self.refused("replay", "t", "--device", 3, status=1))
        for word in ("x", "-1", "1024", ""):
            self.assertIn("a whole number from 0 to 1023", self.refused("replay", "t", "--device", word))

    def test_plans_of_snapshots(self):
        self.write("t", pickle.dumps(snapshot()))
        self.check(self.weir_json("plan", "t", "--quick")["source"], kind="trace", events=5)

    # Odd files ----------------------------------------------------------------------------------------------------------------------

    def odd_files(self):
        text = log(*((1, "00:00:01", "free" if i % 2 else "allocate", 1, 100) for i in range(80)), (2, "00:00:02", "allocate", 2, 200))
        whole, pickled, odd = text.encode(), pickle.dumps(snapshot()), copy.deepcopy(snapshot())
        self.write("whole", text)
        self.weir("export", "whole", "--format", "weir", "-o", "whole.weir")
        binary = (self.folder / "whole.weir").read_bytes()
        odd["device_traces"][0][1].update(addr="here", size=-1)
        odd["device_traces"][0][2].update(addr=-1, size=1 << 63)
        head = HEADER.encode()
        good = {"crlf": whole.replace(b"\n", b"\r\n"), "bom": b"\xef\xbb\xbf" + whole, "unended": whole[:-1], "cut": whole[:-9],
                "columns": whole.replace(b"\n", b",x,y\n"), "again": whole + whole, "blank": whole.replace(b"\n", b"\n \n"),
                "binary inside": whole[:300] + bytes(range(256)) + whole[300:], "gzip": gzip.compress(whole),
                "gzip cut": gzip.compress(whole)[:-12], "snapshot": pickled, "snapshot odd": pickle.dumps(odd),
                "no segments": pickle.dumps({"device_traces": snapshot()["device_traces"]}), "weir": binary, "weir cut": binary[:-40]}
        bad = {"empty": b"", "newline": b"\n", "blanks": b" \n\n\n", "zeros": bytes(4096), "ones": b"\xff" * 4096, "word": b"hello",
               "cr": whole.replace(b"\n", b"\r"), "utf16": text.encode("utf-16"), "tabs": whole.replace(b",", b"\t"),
               "semicolons": whole.replace(b",", b";"), "twice": whole.replace(b"Time", b"Size", 1),
               "numbers": head + b"1,00:00:00,allocate," + b"9" * 400 + b"," + b"9" * 400 + b"," + b"9" * 400 + b"\n",
               "long": head + b"1," * 100000 + b"\n", "header": head, "json": b'{"traces": [1, 2]}', "html": b"<html>\n<body>",
               "gzipped twice": gzip.compress(gzip.compress(whole)), "gzip damaged": gzip.compress(whole)[:50] + b"x" * 50,
               "gzip of nothing": gzip.compress(b""), "gzip of a snapshot": gzip.compress(pickled), "gzip of a binary": gzip.compress(binary),
               "zip": b"PK\x03\x04" + bytes(60), "snapshot cut": pickled[:-30], "list": pickle.dumps([1, 2, [3]]),
               "pairs": pickle.dumps({"segments": 1, "device_traces": 2}),
               "deep": pickle.dumps({"segments": [[]], "device_traces": [[[]], {}]}),
               "text": pickle.dumps({"segments": "all", "device_traces": "none"}),
               "nothing": pickle.dumps({"segments": [], "device_traces": []}), "weir header": binary[:16], "weir magic": binary[:8],
               "weir damaged": binary[:200] + b"\x55" + binary[201:], "weir and more": binary + b"x"}
        return good, bad

    def test_odd_files(self):
        """What can be read, or one sentence that names the file and an exit status; never more."""
        good, bad = self.odd_files()
        for name, content in {**good, **bad}.items():
            self.write(name, content)
            for words in (("replay", "--driver", "host"), ("report",), ("export", "--format", "weir", "-o", "out"),
                          ("export", "--format", "pickle", "-o", "out"), ("plan", "--quick"), ("simulate", "--trace")):
                done = subprocess.run([harness.COMMAND, *words, name], cwd=self.folder, env=self.environment({"WEIR_BUDGET": ""}), timeout=1000,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                told = done.stderr.decode()
                with self.subTest(name=name, words=words, told=told):
                    self.assertIn(done.returncode, (0, 1))
                    if done.returncode == 1:
                        self.one_line(told)
                        self.assertIn(name, told)
                        self.assertEqual(done.stdout, b"")
                    if words[0] in ("replay", "report", "export") and name in good or words[0] == "replay":
                        self.assertEqual(done.returncode == 0, name in good)

    def test_what_cannot_be_checked_is_said_with_what_reads_it(self):
        self.write("t.csv", log((1, "00:00:00", "allocate", 1, 100)))
        self.write("t.pickle", pickle.dumps(snapshot()))
        self.write("t.csv.gz", gzip.compress((self.folder / "t.csv").read_bytes()))
        for name, form in (("t.csv", "a CSV"), ("t.csv.gz", "a CSV"), ("t.pickle", "a snapshot of PyTorch's allocator")):
            error = self.refused("simulate", "--trace", name, status=1)
            self.assertIn(f"{name}: {form} and no binary trace of weir", error)
            self.assertIn("'weir replay' and 'weir report' read it", error)
            self.weir("replay", name, WEIR_BUDGET="")
            self.weir("report", name)
        self.weir("export", "t.csv", "--format", "weir", "-o", "t.weir")
        self.weir("simulate", "--trace", "t.weir")
        self.write("t.weir.gz", gzip.compress((self.folder / "t.weir").read_bytes()))
        for verb in (("simulate", "--trace"), ("replay",), ("report",)):
            self.assertIn("gunzip it first", self.refused(*verb, "t.weir.gz", status=1))


if __name__ == "__main__":
    harness.main()
