"""weir export: PyTorch's snapshots written and read, trace events for Perfetto, weir's own forms; and files that mean harm."""

import collections
import json
import pickle
import random
import resource
import subprocess

import harness
import recorded

ENTRY = {"alloc", "free_requested", "free_completed", "segment_alloc", "oom"}


def frame(name, file, line=3):
    return {"name": name, "filename": file, "line": line}


def entry(action, address, size, stream=0, time=1000, frames=()):
    return {"action": action, "addr": address, "size": size, "stream": stream, "time_us": time, "frames": list(frames)}


def segment(address, total, blocks, device=0):
    return {"device": device, "address": address, "total_size": total, "allocated_size": 0, "active_size": 0, "requested_size": 0,
            "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}


def block(address, size, requested, state, frames=()):
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": list(frames)}


# Some 30 s of a program: what was there before it, a block that came and stayed, one that waits, a refusal.
BASE = 0x7f5000000000
STACK = [frame("at::empty", "cpp.cpp"), frame("forward", "/home/me/model.py", 12), frame("main", "/home/me/run.py", 4)]
SNAPSHOT = {
    "segments": [segment(BASE, 4 << 20, [
        block(BASE, 1024, 1000, "active_allocated"),
        block(BASE + 1024, 2048, 2048, "active_allocated", STACK),
        block(BASE + 3072, 512, 300, "active_pending_free"),
        block(BASE + 3584, (4 << 20) - 3584, 0, "inactive")])],
    "device_traces": [[
        entry("free_requested", BASE + 1024, 700, time=1000),
        entry("free_completed", BASE + 1024, 700, time=1001),
        entry("segment_alloc", BASE, 2 << 20, time=1002),
        entry("alloc", BASE + 1024, 2048, 77, 1003, STACK),
        entry("alloc", BASE + 3072, 300, 0, 1004),
        {"action": "oom", "device_free": 4096, "size": 1 << 30, "stream": 0, "time_us": 1005, "frames": STACK},
        entry("free_requested", BASE + 3072, 300, 0, 1006),
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": 1007, "frames": []}]],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "garbage_collection_threshold": 0.5, "expandable_segments": False, "none": None}}


def cut_short():
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))


class Export(harness.Case):
    def export(self, trace, form, *words):
        out = self.folder / f"out.{form}"
        answer = self.weir_json("export", trace, "--format", form, "-o", out, *words)
        self.assertEqual((answer["format"], answer["output"]), (form, str(out)))
        return out

    def made(self, count=2000, **how):
        made = recorded.rows(count, **how)
        return made, recorded.Sums(made), self.write("made.csv", recorded.text(made))

    def read_back(self, content):
        self.write("s.pickle", content if isinstance(content, bytes) else pickle.dumps(content))
        return self.weir_json("report", "s.pickle")

    # Snapshots ----------------------------------------------------------------------------------------------------------------------

    def check_segments(self, snapshot):
        """What memory_viz asserts: allocated, inner and outer free bytes are the segments. Answers the live blocks."""
        reserved, allocated, inner, outer, live = 0, 0, 0, 0, {}
        for one in snapshot["segments"]:
            at = one["address"]
            for b in one["blocks"]:
                self.assertEqual(b["address"], at)
                self.assertGreater(b["size"], 0)
                self.assertLessEqual(b["requested_size"], b["size"])
                at += b["size"]
                if b["state"] == "active_allocated":
                    live[b["address"]] = b["requested_size"]
                    allocated += b["requested_size"]
                    inner += b["size"] - b["requested_size"]
                else:
                    self.assertIn(b["state"], ("inactive", "active_pending_free"))
                    outer += b["size"]
            self.assertEqual(at - one["address"], one["total_size"])
            self.assertEqual(one["allocated_size"], sum(b["size"] for b in one["blocks"] if b["state"] == "active_allocated"))
            self.assertEqual(one["active_size"], sum(b["size"] for b in one["blocks"] if b["state"] != "inactive"))
            reserved += one["total_size"]
        self.assertEqual(inner + outer + allocated, reserved)
        return live

    def check_entries(self, entries):
        """Each block lies in a segment that is there, and none over another. Answers what is live in the end, and the peak."""
        segments, live, pending, peak = [], {}, {}, 0
        for e in entries:
            self.assertIn(e["action"], ENTRY)
            if e["action"] == "segment_alloc":
                segments.append((e["addr"], e["addr"] + e["size"]))
            elif e["action"] == "alloc":
                self.assertTrue(any(a <= e["addr"] and e["addr"] + e["size"] <= b for a, b in segments))
                self.assertNotIn(e["addr"], live)
                self.assertNotIn(e["addr"], pending)
                live[e["addr"]] = e["size"]
            elif e["action"] == "free_requested":
                pending[e["addr"]] = live.pop(e["addr"])
            elif e["action"] == "free_completed":
                self.assertEqual(pending.pop(e["addr"]), e["size"])
            peak = max(peak, sum(live.values()))
        return live, peak

    def test_a_snapshot_as_python_reads_it(self):
        made, sums, trace = self.made()
        snapshot = pickle.loads(self.export(trace, "pickle").read_bytes())
        self.assertEqual(set(snapshot), {"segments", "device_traces", "allocator_settings"})
        entries, = snapshot["device_traces"]
        counts = collections.Counter(e["action"] for e in entries)
        self.assertEqual((counts["alloc"], counts["free_requested"], counts["free_completed"], counts["oom"]),
                         (sums.allocations, sums.frees, sums.frees, sums.refused))
        live = {pointer: size for pointer, (size, *_) in sums.blocks.items()}
        self.assertEqual(self.check_segments(snapshot), live)
        self.assertEqual(self.check_entries(entries), (live, sums.peak))
        first = next(e for e in entries if e["action"] == "alloc")
        kind = next(row for row in made if row[0] == "allocate")
        self.assertEqual([f["name"] for f in first["frames"]], [name for name in (kind[6], kind[5], kind[4]) if name])

    def test_there_and_back(self):
        _, sums, trace = self.made()
        out = self.export(trace, "pickle")
        for form in (out, self.export(out, "weir")):
            answer = self.weir_json("report", form)
            self.assertEqual([answer[key] for key in ("allocations", "frees", "refused", "peak_requested", "device", "malformed")],
                             [sums.allocations, sums.frees, sums.refused, sums.peak, "cuda:0", 0])
            self.assertEqual({(tag["client"], tag["class"], tag["tag"]): tag["bytes"] for tag in answer["tags"] if tag["allocations"]},
                             {key: tag["bytes"] for key, tag in sums.tags.items() if tag["allocations"]})
        for form in ("out.weir", "out.pickle"):
            told = self.weir_json("replay", form, WEIR_BUDGET="")
            self.assertEqual((told["events"], told["peak_requested"]), (sums.allocations + sums.frees, sums.peak))
        self.assertEqual((told["events"], told["peak_requested"], told["traces"][0]["malformed"]), (sums.allocations + sums.frees,
                                                                                                    sums.peak, 0))
        self.assertEqual(self.weir_json("simulate", "--trace", "out.weir")["violations"], 0)

    def test_a_run_as_a_snapshot(self):
        self.weir("run", "a.toy", "b.toy", WEIR_TRACE="t.weir")
        snapshot = pickle.loads(self.export("t.weir", "pickle").read_bytes())
        self.assertEqual(self.check_segments(snapshot), {})
        self.assertEqual(self.check_entries(snapshot["device_traces"][0])[0], {})

    def test_a_snapshot_of_pytorch(self):
        for protocol in range(6):
            answer = self.read_back(pickle.dumps(SNAPSHOT, protocol=protocol))
            self.assertEqual([answer[key] for key in ("format", "device", "allocations", "frees", "refused", "malformed")], ["pickle",
                                                                                                                             "cuda:0", 4,
                                                                                                                             2, 1, 0])
            # At first the block of 1000 bytes, and the one of 700 that the first entry frees.
            self.assertEqual((answer["peak_held"], answer["held_at_end"], answer["peak_requested"]), (4 << 20, 4 << 20, 1000 + 2048 + 300))
            self.assertEqual((answer["live_at_end"], answer["pending_at_end"]), (1024 + 2048, 512))
            self.assertEqual({(tag["tag"], tag["allocations"], tag["live_at_end"]) for tag in answer["tags"]},
                             {("", 3, 1024), ("forward (model.py:12)", 1, 2048)})
            self.assertEqual([(one["bytes"], one["tag"]) for one in answer["refusals"]], [(1 << 30, "forward (model.py:12)")])
            self.assertEqual((answer["timeline"]["held"][0], answer["seconds"]), (2 << 20, 6e-6))
            self.assertEqual([range_["bytes"] for range_ in answer["ranges"]], [4 << 20])

    def test_a_snapshot_of_pytorch_now(self):
        """Keys and actions as of PyTorch 2.11: frames without a line, mapped segments, what a program marks, pools of graphs."""
        more = {"compile_context": "N/A", "user_metadata": "step 3", "pool_id": (0, 1)}
        unknown = {"name": "c10::cuda::alloc", "filename": "??", "line": 0, "fx_node_op": "call_function", "fx_node_name": "relu"}
        now = {"segments": [segment(BASE, 4 << 20, [block(BASE, 2048, 2000, "active_allocated", [unknown, *STACK]),
                                                    block(BASE + 2048, (4 << 20) - 2048, 0, "inactive")])
                            | {"segment_pool_id": (0, 1), "is_expandable": True, "registration_counter": -1}],
               "device_traces": [[entry("segment_map", BASE, 4 << 20) | more, entry("alloc", BASE, 2000, frames=[unknown]) | more,
                                  entry("alloc", BASE + 2048, 700, frames=[unknown, *STACK]) | more,
                                  entry("user_defined", 0, 0) | more, entry("free_requested", BASE + 2048, 700) | more,
                                  entry("free_completed", BASE + 2048, 700) | more, entry("segment_unmap", BASE + (2 << 20), 2 << 20) | more],
                                 []],
               "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0,
                                      "expandable_segments": True, "roundup_power2_divisions": {"1": 0, "32768": 0}},
               "external_annotations": [{"name": "step", "stage": "START", "time_us": 1000, "device": 0}]}
        answer = self.read_back(now)
        self.assertEqual([answer[key] for key in ("allocations", "frees", "malformed", "unknown", "live_at_end")], [2, 1, 0, 0, 2048])
        self.assertEqual({tag["tag"] for tag in answer["tags"]}, {"c10::cuda::alloc", "forward (model.py:12)"})

    def test_devices_and_older_snapshots(self):
        two = {"segments": [segment(BASE, 1 << 20, [block(BASE, 1 << 20, 99, "active_allocated")], device=1)],
               "device_traces": [[entry("alloc", BASE, 512), entry("free_requested", BASE, 512), entry("free_completed", BASE, 512)], []]}
        self.write("two.pickle", pickle.dumps(two))
        self.assertIn("0, 1", self.refused("report", "two.pickle", status=1))
        self.assertIn("device 2", self.refused("report", "two.pickle", "--device", 2, status=1))
        self.assertEqual([self.weir_json("report", "two.pickle", "--device", n)["peak_requested"] for n in (0, 1)], [512, 99])
        old = [dict(segment(BASE, 4096, [{"size": 1024, "state": "active_allocated"}, {"size": 3072, "state": "inactive"}]))]
        self.assertEqual(self.read_back(old)["live_at_end"], 1024)
        self.assertEqual(self.read_back({"segments": [], "device_traces": []})["events"], 0)

    def test_what_makes_no_sense_is_told(self):
        odd = {"segments": [], "device_traces": [[entry("alloc", BASE, 512), entry("alloc", BASE, 512), entry("dance", BASE, 1),
                                                  entry("alloc", 0, 1),
                                                  entry("alloc", BASE + 512, -1), entry("alloc", BASE + 1024, 1 << 60)]]}
        answer = self.read_back(odd)
        self.assertEqual((answer["allocations"], [one["event"] for one in answer["malformed_lines"]], answer["unknown"]), (1, [2, 4, 5, 6], 1))

    # Harm ---------------------------------------------------------------------------------------------------------------------------

    def harmless(self, content, said=None):
        """Refused in one line, or read; whatever it is, within bounds of memory and time."""
        self.write("bad.pickle", content)
        done = subprocess.run([harness.COMMAND, "report", "bad.pickle", "--json"], cwd=self.folder, env=self.environment({}), timeout=1000,
                              preexec_fn=None if harness.SANITIZED else cut_short, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn(done.returncode, (0, 1), (content[:200], done.stderr))
        if said is not None:
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stderr.decode())
        if done.returncode == 1:
            self.one_line(done.stderr.decode())

    def test_pickles_that_would_run_something(self):
        class Harm:
            def __reduce__(self):
                return print, ("harm",)
        for content, code in ((pickle.dumps({"segments": Harm()}, protocol=2), 0x63), (pickle.dumps({"segments": [], "x": Harm()},
                                                                                                    protocol=0), 0x63),
                              (pickle.dumps({"segments": Harm()}, protocol=4), 0x93), (b"\x80\x02NR.", 0x52), (b"\x80\x02]\x81.", 0x81),
                              (b"\x80\x04]\x92.", 0x92), (b"\x80\x02}Q.", 0x51), (b"\x80\x02Pid\n.", 0x50), (b"\x80\x02}b.", 0x62),
                              (b"\x80\x02(ios\nsystem\n.", 0x69), (b"\x80\x02(oi.", 0x6f), (b"\x80\x02\x82\x01.", 0x82), (b"\x80\x05\x97.",
                                                                                                                          0x97),
                              (pickle.dumps({1, 2}, protocol=4), 0x8f), (pickle.dumps(b"bytes", protocol=4), 0x43)):
            self.harmless(content, f"instruction {code:#x} at byte")

    def test_pickles_that_are_none(self):
        whole = pickle.dumps(SNAPSHOT, protocol=4)
        for length in (*range(2, 60), *range(60, len(whole), 41)):
            self.harmless(whole[:length], "bad.pickle")
        for content, said in ((b"\x80\x02K\x01.", "no segments"), (b"\x80\x02}.", "no segments"), (b"\x80\x02.", "one value"),
                              (b"\x80\x02NN.", "one value"),
                              (b"\x80\x02(N.", "one value"), (b"\x80\x02e.", "mark"), (b"\x80\x02a.", "container"), (b"\x80\x02]h\x07.",
                                                                                                                     "remembered"),
                              (b"\x80\x02]r\xff\xff\xff\xff.", "remembered"), (b"\x80\x02\x8a\x0a" + 10 * b"\x01" + b".", "64 bits"),
                              (b"\x80\x02X\xff\xff\xff\xffabc.", "ends in the middle"), (b"\x80\x04\x8d" + 8 * b"\xff" + b".",
                                                                                         "ends in the middle"),
                              (b"\x80\x04\x95" + 8 * b"\xff" + b".", "too long"), (b"\x80\x02(Nd.", "without a value"), (b"\x80\x02}(Nu.",
                                                                                                                         "container"),
                              (b"\x80\x02N\x87.", "too few"), (b"\x80\x02N(\x85.", "too few"), (b"(dp0\nI1x\n.", "none")):
            self.harmless(content, said)

    def test_pickles_that_never_end(self):
        """A list of one list again and again, at every depth; each is small, and all together more than any machine has."""
        self.harmless(b"\x80\x02" + b"]" * 200000 + b".", "one value")
        self.harmless(b"\x80\x02" + b"(" * 200000 + b".", "one value")
        entries = [entry("alloc", BASE, 1)] * 20000
        many = {"segments": [segment(BASE, 1, [block(BASE, 1, 1, "active_allocated")] * 20000)] * 20000, "device_traces": [entries]}
        self.harmless(pickle.dumps(many), "again and again")
        loop = {"segments": [], "device_traces": [[]]}
        loop["device_traces"][0].append(loop)
        loop["segments"].append(loop)
        self.harmless(pickle.dumps(loop))

    def test_damage(self):
        whole, chance = pickle.dumps(SNAPSHOT), random.Random(3)
        for _ in range(60 if harness.SANITIZED else 250):
            content = bytearray(whole)
            for _ in range(chance.randrange(1, 6)):
                content[chance.randrange(2, len(content))] = chance.randrange(256)
            self.harmless(bytes(content))

    # Perfetto -----------------------------------------------------------------------------------------------------------------------

    def test_trace_events(self):
        made, sums, trace = self.made()
        events = json.loads(self.export(trace, "perfetto").read_text())["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
        self.assertEqual(set(names.values()), {"all clients", *sums.clients})
        slices = {}
        for e in events:
            if e["ph"] in "be":
                slices.setdefault((e["cat"], e["id"]), []).append(e)
        ended = [one for one in slices.values() if len(one) == 2]
        self.assertEqual((len(slices), len(ended)), (sums.allocations, sums.frees))
        for one in ended:
            self.assertEqual([e["ph"] for e in one], ["b", "e"])
            self.assertLess(one[0]["ts"], one[1]["ts"])
            self.assertEqual(one[0]["pid"], one[1]["pid"])
        tags = {tag or name for _, name, tag in sums.tags}
        self.assertEqual({e["name"] for e in events if e["ph"] == "b"}, tags)
        self.assertEqual(max(e["args"]["live"] for e in events if e["ph"] == "C" and e["name"] == "memory"), sums.peak)
        last = {}
        for e in events:
            if e["ph"] == "C" and e["name"] == "bytes":
                last.setdefault(names[e["pid"]], dict.fromkeys(recorded.CLASSES, 0)).update(e["args"])
        self.assertEqual(last, sums.clients)
        self.assertEqual(sum(e["ph"] == "i" for e in events), sums.refused)
        self.assertEqual(sum(e["args"]["bytes"] for e in events if e["ph"] == "i"),
                         sum(row[2] for row in made if row[0] == "allocate failure"))

    def check_shape(self, events):
        """What Trace Event Format asks of each event, and of those that belong together."""
        keys = {"M": {"ph", "pid", "tid", "name", "args"}, "C": {"ph", "pid", "name", "ts", "args"},
                "b": {"ph", "cat", "id", "pid", "tid", "name", "ts", "args"}, "e": {"ph", "cat", "id", "pid", "tid", "name", "ts"},
                "i": {"ph", "s", "pid", "tid", "name", "cat", "ts", "args"}}
        opened, last, named = {}, {}, set()
        for e in events:
            self.assertEqual(set(e), keys[e["ph"]], e)
            self.assertTrue(isinstance(e["name"], str) and isinstance(e["pid"], int))
            if e["ph"] == "M":
                named.add(e["pid"])
                continue
            self.assertGreaterEqual(e["ts"], 0)
            self.assertIn(e["pid"], named)
            if e["ph"] == "C":
                self.assertGreaterEqual(e["ts"], last.get((e["pid"], e["name"]), 0))
                last[e["pid"], e["name"]] = e["ts"]
                self.assertTrue(all(isinstance(value, int) and value >= 0 for value in e["args"].values()))
            elif e["ph"] == "i":
                self.assertIn(e["s"], ("g", "p"))
            elif e["ph"] == "b":
                self.assertNotIn((e["cat"], e["id"]), opened)
                opened[e["cat"], e["id"]] = e
            else:
                began = opened[e["cat"], e["id"]]
                self.assertEqual((began["pid"], began["name"]), (e["pid"], e["name"]))
                self.assertLessEqual(began["ts"], e["ts"])

    def test_the_shape_of_trace_events(self):
        _, _, trace = self.made()
        self.weir("run", "a.toy", "b.toy", WEIR_TRACE="t.weir")
        for one in (trace, "t.weir", self.write("s.pickle", pickle.dumps(SNAPSHOT)), self.write("none.csv", recorded.HEADER + "\n")):
            whole = json.loads(self.export(one, "perfetto").read_text())
            self.assertEqual(set(whole), {"displayTimeUnit", "otherData", "traceEvents"})
            self.assertIn(whole["displayTimeUnit"], ("ms", "ns"))
            self.check_shape(whole["traceEvents"])

    def test_small_blocks_have_no_slices(self):
        made, _, trace = self.made()
        events = json.loads(self.export(trace, "perfetto", "--least", "64KiB").read_text())["traceEvents"]
        self.assertEqual(sum(e["ph"] == "b" for e in events), sum(row[0] == "allocate" and row[2] >= 65536 for row in made))

    # Other forms --------------------------------------------------------------------------------------------------------------------

    def test_own_forms(self):
        _, _, trace = self.made()
        csv = self.export(trace, "csv")
        self.assertEqual(csv.read_text().splitlines()[0], recorded.HEADER)
        want = self.weir_json("report", trace)
        for form in (csv, self.export(trace, "weir"), self.export("out.weir", "csv")):
            answer = self.weir_json("report", form)
            for key in ("events", "allocations", "frees", "refused", "peak", "clients", "tags", "sizes", "lends", "stream_lends",
                        "live_at_end"):
                self.assertEqual(answer[key], want[key], key)

    def test_words(self):
        self.write("t.csv", recorded.HEADER + "\n")
        for words, said in (((), "which trace"), (("t.csv",), "--format is needed"), (("t.csv", "--format", "csv"), "--output is needed"),
                            (("t.csv", "--format", "svg", "-o", "x"), "svg"), (("t.csv", "u.csv", "--format", "csv", "-o", "x"), "u.csv"),
                            (("t.csv", "--format", "csv", "-o", "x", "--least", "4k"), "--least"), (("t.csv", "--format", "csv", "-o", ""),
                                                                                                    "file name")):
            self.assertIn(said, self.refused("export", *words))
        for form in ("perfetto", "pickle", "csv", "weir"):
            self.assertEqual(self.weir_json("export", "t.csv", "--format", form, "-o", "x")["events"], 0)
            self.assertIn("/nonexistent/x", self.refused("export", "t.csv", "--format", form, "-o", "/nonexistent/x", status=1))
            self.assertIn("/dev/full", self.refused("export", self.write("u.csv", recorded.text(recorded.rows(900))), "--format", form,
                                                    "-o", "/dev/full", status=1))


if __name__ == "__main__":
    harness.main()
