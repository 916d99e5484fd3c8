"""weir replay: its words, its answers on hand-made traces whose figures are known, the search for the smallest cap, and
streams that trail the host."""

import gzip
import json

import harness
import recorded

HEADER = "Thread,Time,Action,Pointer,Size,Stream\n"
KIB = 1 << 10
MIB = 1 << 20


def rows(*events):
    """A trace of ("a" or "f", pointer, bytes, stream)."""
    text = HEADER
    for at, (action, pointer, size, stream) in enumerate(events):
        text += f"1,00:00:{at // 1000000:02}.{at % 1000000:06},{'allocate' if action == 'a' else 'free'},{pointer * 4096:#x},{size},{stream}\n"
    return text


def pairs(count, pointer, size, stream=0):
    return [("a" if i % 2 == 0 else "f", pointer, size, stream) for i in range(2 * count)]


RECORDED = harness.SOURCE / "tests/data/traces"
RECORDINGS = (("bert", 1), ("four_streams", 5), ("unet_images", 1), ("moe_train", 1))


class Replay(harness.Case):
    def replay(self, text, *words, status=0, **environment):
        trace = self.write("trace.csv", text)
        environment.setdefault("WEIR_BUDGET", "")
        return self.weir_json("replay", trace, *words, status=status, **environment)

    def test_figures(self):
        text = rows(("a", 1, 100, 0), ("a", 2, MIB, 0), ("f", 1, 100, 0), ("a", 1, MIB, "0x7f00"), ("a", 3, 300, 0))
        for driver in ("host", "sim"):
            for resource in ("mapped", "direct", "async", "log(mapped)"):
                answer = self.replay(text, "--driver", driver, "--resource", resource, "--repeat", "3")
                self.assertEqual(answer["device"], driver)
                self.assertEqual(answer["resource"], resource)
                self.assertEqual(answer["events"], 5)
                self.assertEqual(answer["peak_requested"], 2 * MIB + 300)
                self.assertGreaterEqual(answer["peak_reserved"], 2 * MIB + 512)
                self.assertLess(answer["peak_reserved"], 32 * MIB)
                self.assertGreater(answer["driver_calls"], 0)
                self.assertEqual(answer["failures"], 0)
                self.assertEqual(answer["lag"], 0)
                self.assertIsNone(answer["min_cap"])
                trace, = answer["traces"]
                self.assertEqual((trace["allocations"], trace["frees"], trace["live_at_end"], trace["streams"]), (4, 1, 3, 2))
                self.assertEqual(len(trace["passes"]), 3)
                self.assertEqual(sum(one["driver_calls"] for one in trace["passes"]), answer["driver_calls"])
                self.assertGreater(answer["ladder"]["create"], 0)
                self.assertLessEqual(sum(answer["ladder"].values()), 3 * 4) # the rest were hits
                self.assertEqual(answer["ladder"], trace["ladder"])
                self.assertAlmostEqual(trace["held_ratio"], answer["peak_reserved"] / answer["peak_requested"])
                self.assertEqual(trace["malformed"], 0)

    def test_layout(self):
        text = rows(("a", 1, 100, 0), ("a", 2, MIB, 0), ("f", 1, 100, 0), ("a", 3, 5000, "0x7f00"), ("a", 4, MIB, 0), ("f", 4, MIB, 0))
        for driver in ("host", "sim"):
            for resource in ("mapped", "segments", "direct", "async"):
                path = self.folder / "layout.json"
                answer = self.replay(text, "--driver", driver, "--resource", resource, "--repeat", "2", "--layout", path)
                with open(path) as file:
                    layout, = json.load(file)["traces"]
                self.assertEqual(layout["trace"], answer["traces"][0]["trace"])
                self.assertEqual(layout["in_hand"], 0)
                self.assertEqual(sum(layout["bytes"].values()), layout["held"])
                sums = dict.fromkeys(layout["bytes"], 0)
                blocks = {}
                for segment in layout["segments"]:
                    self.assertEqual(sum(span["bytes"] for span in segment["spans"]), segment["bytes"])
                    for span in segment["spans"]:
                        sums[span["state"]] += span["bytes"]
                        if span["state"] == "live":
                            blocks.setdefault(span["block"], (span["requested"], span["client"]))
                self.assertEqual(sums, layout["bytes"])
                self.assertEqual(sorted(blocks.values()), [(5000, "replay"), (MIB, "replay")])
        error = self.weir("replay", self.folder / "trace.csv", "--layout", "none/layout.json", status=1, WEIR_BUDGET="")[1]
        self.assertIn("none/layout.json", error)

    def test_layout_has_the_names_of_the_trace(self):
        """Two clients of one name, three tags, blocks of several streams; what was freed and came again is the new one's."""
        made = [("allocate", 0x100000, 5000, 1, "a", "kv", "first"), ("allocate", 0x200000, 6000, 2, "a", "weights", "second"),
                ("free", 0x100000, 5000, 1, "a", "kv", "first"), ("allocate", 0x100000, 7000, 3, 'b, "c"', "scratch", "third"),
                ("allocate", 0x300000, 8000, 1, "d", "other", ""), ("allocate", 0x400000, MIB, 1, "e", "kv", "gone"),
                ("free", 0x400000, MIB, 1, "e", "kv", "gone"), ("allocate", 0x500000, 9000, 2, "a", "weights", "first")]
        self.write("t.csv", recorded.text(made))
        self.weir("export", "t.csv", "--format", "weir", "-o", "t.weir")
        wanted = [(6000, "a", "second"), (7000, 'b, "c"', "third"), (8000, "d", ""), (9000, "a", "first")]
        for trace in ("t.csv", "t.weir"):
            for driver in ("host", "sim"):
                self.weir("replay", trace, "--driver", driver, "--repeat", 3, "--layout", "layout.json", WEIR_BUDGET="")
                layout, = json.loads((self.folder / "layout.json").read_text())["traces"]
                live = {(span["requested"], span["client"], span["tag"]) for segment in layout["segments"] for span in segment["spans"]
                        if span["state"] == "live"}
                self.assertEqual(sorted(live), wanted)

    def test_direct_calls_are_known(self):
        answer = self.replay(rows(*pairs(10, 1, 1000)), "--resource", "direct")
        self.assertEqual(answer["driver_calls"], 20)
        self.assertEqual(answer["peak_reserved"], 1024)

    def test_several_traces(self):
        first, second = self.write("a.csv", rows(*pairs(5, 1, KIB))), self.write("b.csv.gz", gzip.compress(rows(*pairs(3, 1, MIB)).encode()))
        answer = self.weir_json("replay", first, second)
        self.assertEqual([trace["trace"] for trace in answer["traces"]], [str(first), str(second)])
        self.assertEqual([trace["events"] for trace in answer["traces"]], [10, 6])
        self.assertEqual((answer["events"], answer["peak_requested"]), (16, MIB))
        out, _ = self.weir("replay", first, second)
        self.assertIn("a.csv", out)
        self.assertIn("b.csv.gz", out)
        self.assertIn("ns/event", out)

    def test_what_is_left_out_is_told(self):
        text = rows(*pairs(2, 1, 100)) + "nonsense\n" + "1,00:00:09.0,free,0x999000,1,0\n"
        trace, = self.replay(text)["traces"]
        self.assertEqual(trace["malformed"], 2)
        self.assertEqual([one["line"] for one in trace["malformed_lines"]], [6, 7])
        self.assertIn("live", trace["malformed_lines"][1]["what"])
        out, _ = self.weir("replay", self.folder / "trace.csv")
        self.assertIn("line 6: ", out)
        self.assertIn("2 lines were left out", out)
        cut = self.write("cut.csv.gz", gzip.compress(rows(*pairs(2000, 1, 100)).encode())[:-200])
        self.assertTrue(self.weir_json("replay", cut)["traces"][0]["cut_off"])

    def test_cap(self):
        text = rows(("a", 1, MIB, 0), ("a", 2, MIB, 0), ("f", 2, MIB, 0), ("f", 1, MIB, 0), ("a", 3, MIB, 0))
        for cap in ("2MiB", "1x", "1.0x"):
            answer = self.replay(text, "--resource", "direct", "--cap", cap)
            self.assertEqual(answer["traces"][0]["cap"], 2 * MIB)
            self.assertEqual(answer["failures"], 0)
        for cap in ("2047KiB", "0.9x"):
            answer = self.replay(text, "--resource", "direct", "--cap", cap, status=1)
            self.assertEqual(answer["failures"], 1)
            self.assertIn("1 of 3 allocations were refused", self.error)
            self.one_line(self.error)
        self.assertEqual(self.replay(text, "--driver", "host", "--resource", "direct", status=1, WEIR_BUDGET="1MiB")["failures"], 1)

    def test_the_first_refused_event_is_named(self):
        text = rows(*(("a", i + 1, MIB, i % 3) for i in range(3)), ("f", 2, MIB, 1), ("a", 2, 2 * MIB, 1), ("a", 9, 100, 2))
        answer = self.replay(text, "--resource", "direct", "--cap", "3MiB", "--repeat", 2, status=1)
        first = answer["traces"][0]["first_refused"]
        self.assertEqual(first, {"line": 6, "bytes": 2 * MIB, "live": 2 * MIB, "pass": 1})
        self.assertIn("2 of 10 allocations were refused; the first, in pass 1, is line 6: 2 MiB,", self.error)
        self.assertIn("has 2 MiB live", self.error)
        self.one_line(self.error)
        answer = self.replay(text, "--resource", "direct", "--cap", "3MiB", "--lag", 2, status=1)
        self.assertEqual(answer["traces"][0]["first_refused"], first)
        self.assertIsNone(self.replay(text)["traces"][0]["first_refused"])
        self.weir("export", "trace.csv", "--format", "weir", "-o", "t.weir")
        answer = self.weir_json("replay", "t.weir", "--resource", "direct", "--cap", "3MiB", status=1)
        self.assertEqual(answer["traces"][0]["first_refused"]["event"], 5)
        self.assertIn("is event 5: ", self.error)

    def test_smallest_cap(self):
        # 1000 blocks of 100 bytes are charged 256 each; a step of the search is a 500th of 100,000.
        text = rows(*(("a", i + 1, 100, 0) for i in range(1000)))
        for driver in ("sim", "host"):
            answer = self.replay(text, "--driver", driver, "--resource", "direct", "--min-cap")
            self.assertEqual(answer["min_cap"], 256000)
            trace, = answer["traces"]
            self.assertAlmostEqual(trace["min_cap_ratio"], 2.56)
            self.assertGreater(trace["min_cap_ns_per_event"], 0)
        answer = self.replay(rows(("a", 1, MIB, 0), ("a", 2, MIB, 0)), "--resource", "direct", "--min-cap")
        self.assertEqual(answer["min_cap"], 2 * MIB)
        answer = self.replay(rows(*(("a", i + 1, 1, 0) for i in range(1000))), "--resource", "direct", "--min-cap", status=1)
        self.assertIsNone(answer["min_cap"])
        self.assertIn("no cap was found", self.error)

    def test_lag(self):
        # The second large block fits where the first was, once the stream is past the first one's free.
        text = rows(("a", 1, 4 * MIB, 0), ("f", 1, 4 * MIB, 0), *pairs(10, 2, 100), ("a", 3, 4 * MIB, 0))
        for driver in ("sim", "host"):
            for lag, waits in ((0, 0), (100, 1)):
                answer = self.replay(text, "--driver", driver, "--resource", "direct", "--cap", "4198400", "--lag", lag)
                self.assertEqual((answer["lag"], answer["failures"]), (lag, 0), driver)
                self.assertGreaterEqual(answer["waits"], waits, driver) # a busy host looks stuck, and is let through
        # On the simulated device it is exact: the free stands behind operation 0, which is done when the host is at 0 + lag;
        # operation 22 wants the block.
        for lag, waits in ((1, 0), (21, 0), (22, 0), (23, 1), (24, 1)):
            answer = self.replay(text, "--resource", "direct", "--cap", "4198400", "--lag", lag, "--repeat", "2")
            self.assertEqual((answer["waits"], answer["failures"]), (2 * waits, 0), lag)

    def test_lag_of_several_streams(self):
        events = []
        for i in range(300):
            events += [("a", i + 1, 64 * KIB, i % 3), ("f", i + 1, 64 * KIB, i % 3)]
        for driver in ("sim", "host"):
            for resource in ("mapped", "direct", "async"):
                answer = self.replay(rows(*events), "--driver", driver, "--resource", resource, "--cap", "4MiB", "--lag", "64")
                self.assertEqual(answer["failures"], 0)
                self.assertEqual(answer["traces"][0]["streams"], 3)

    def test_lag_on_a_gpu(self):
        stub = harness.BUILD / "stub/cuda"
        if not (stub / "libcuda.so.1").exists():
            self.skipTest("the stub of libcuda.so.1 is not built")
        environment = {"LD_LIBRARY_PATH": str(stub)}
        text = rows(("a", 1, 4 * MIB, 0), ("f", 1, 4 * MIB, 0), *pairs(10, 2, 100), ("a", 3, 4 * MIB, 0), *pairs(50, 3, 100, 7))
        for lag, waits in ((0, 0), (100, 1)):
            answer = self.replay(text, "--driver", "cuda", "--resource", "direct", "--cap", "4198400", "--lag", lag, "--repeat", "2", **environment)
            self.assertEqual((answer["device"], answer["failures"]), ("cuda", 0))
            self.assertGreaterEqual(answer["waits"], waits)
        # cuMemFree waits for the whole device, and so for gates that wait for the host.
        answer = self.replay(rows(*pairs(20, 1, MIB)), "--driver", "cuda:0", "--resource", "direct", "--cap", "8MiB", "--lag", "5", **environment)
        self.assertGreater(answer["waits"], 0)
        self.assertEqual(answer["failures"], 0)
        error = self.refused("replay", self.folder / "trace.csv", "--driver", "cuda", "--cap", "64MiB", "--lag", "5", status=1, **environment,
                             STUB_CUDA_FAIL="cuMemHostAlloc:1:2")
        self.assertIn("pinned memory", error)

    def test_recorded_traces(self):
        for path, streams in ((RECORDED / f"{name}.csv.gz", streams) for name, streams in RECORDINGS):
            live, now, peak, count = {}, 0, 0, 0
            for line in gzip.decompress(path.read_bytes()).decode().splitlines()[1:]:
                _, _, action, pointer, size, _ = line.split(",")
                if action == "allocate":
                    live[pointer] = int(size)
                    now += int(size)
                else:
                    now -= live.pop(pointer)
                peak, count = max(peak, now), count + 1
            for driver in ("sim", "host"):
                answer = self.weir_json("replay", path, "--driver", driver, "--cap", "1.5x", "--lag", "8")
                trace, = answer["traces"]
                self.assertEqual((answer["events"], answer["peak_requested"], trace["live_at_end"]), (count, peak, len(live)))
                self.assertEqual((answer["failures"], trace["malformed"], trace["streams"]), (0, 0, streams))

    def test_recorded_traces_fit_into_little_more_than_they_request(self):
        """Without a lag and with one, and `segments` into what it would be without moves. Bounds, not goals."""
        for name, _ in RECORDINGS:
            path = RECORDED / f"{name}.csv.gz"
            for words, most in (((), 1.06), (("--lag", "64"), 1.08), (("--resource", "segments"), 1.3)):
                answer = self.weir_json("replay", path, "--cap", f"{most}x", *words)
                self.assertEqual(answer["failures"], 0, (name, words))
                self.assertLessEqual(answer["peak_reserved"], most * answer["peak_requested"], (name, words))

    def test_own_traces(self):
        run = self.weir_json("run", self.folder / "a.toy", "--trace", "run.csv")
        self.assertTrue(run["trace"])
        for driver in ("sim", "host"):
            answer = self.weir_json("replay", "run.csv", "--driver", driver)
            self.assertGreater(answer["events"], 0)
            self.assertEqual(answer["traces"][0]["malformed"], 0)
            self.assertEqual(answer["failures"], 0)
        self.weir_json("run", self.folder / "a.toy", WEIR_TRACE=str(self.folder / "run.weir"))
        binary = self.weir_json("replay", "run.weir")
        self.assertEqual(binary["events"], answer["events"])
        self.assertEqual(binary["peak_requested"], answer["peak_requested"])

    def test_bad_words(self):
        trace = self.write("trace.csv", rows(*pairs(1, 1, 100)))
        self.assertIn("which trace?", self.refused("replay"))
        self.assertIn("--some", self.refused("replay", trace, "--some"))
        for word in ("x", "-1", "1048577"):
            self.assertIn(f"--lag {word}", self.refused("replay", trace, "--lag", word))
        for word in ("0", "1001"):
            self.assertIn(f"--repeat {word}", self.refused("replay", trace, "--repeat", word))
        for word in ("0", "x", "-1x", "0x", "1.2.3x", "1e3x", "2000x", "nan", "1.05 x"):
            self.assertIn(f"--cap {word}", self.refused("replay", trace, "--cap", word))
        self.assertIn("moon", self.refused("replay", trace, "--driver", "moon", status=1))
        self.assertIn("butter", self.refused("replay", trace, "--resource", "butter", status=1))
        self.assertIn("nowhere.csv", self.refused("replay", "nowhere.csv", status=1))
        self.assertIn("missing: Stream", self.refused("replay", self.write("bad.csv", "Action,Pointer,Size\n"), status=1))
        answer = self.weir_json("replay", "nowhere.csv", status=1)
        self.assertEqual(answer, {"error": {"detail": "nowhere.csv: No such file or directory"}})


if __name__ == "__main__":
    harness.main()
