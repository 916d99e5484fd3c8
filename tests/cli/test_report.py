"""weir report: the figures, the page and what it draws from, on recordings whose figures are worked out here."""

import gzip
import json
import re
import shutil
import subprocess
import unittest

import harness
import recorded

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TRACES = harness.SOURCE / "tests/data/traces"


class Report(harness.Case):
    def page(self, trace, *words):
        """The data of the page, and the page without it."""
        self.weir("report", trace, "--output", "page.html", *words)
        page = (self.folder / "page.html").read_text()
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
        return json.loads(found[1]), page[:found.start(1)] + page[found.end(1):]

    def made(self, count=3000, **how):
        made = recorded.rows(count, **how)
        self.write("made.csv", recorded.text(made))
        return made, recorded.Sums(made), self.weir_json("report", "made.csv")

    def test_figures(self):
        made, sums, answer = self.made()
        self.assertEqual({key: answer[key] for key in ("format", "device", "budget", "events", "allocations", "frees", "refused", "peak",
                                                       "peak_event",
                                                       "peak_requested", "peak_live", "peak_pending", "peak_held", "live_at_end", "streams",
                                                       "malformed", "lost", "cut_off", "resizes", "failures")},
                         {"format": "csv", "device": None, "budget": None, "events": len(made), "allocations": sums.allocations,
                          "frees": sums.frees,
                          "refused": sums.refused, "peak": sums.peak, "peak_event": sums.peak_event, "peak_requested": sums.peak,
                          "peak_live": sums.peak, "peak_pending": 0, "peak_held": None, "live_at_end": sums.live, "streams": 3,
                          "malformed": 0, "lost": 0, "cut_off": False, "resizes": 0, "failures": 0})
        self.assertAlmostEqual(answer["seconds"], 7e-6 * (len(made) - 1))

    def test_clients_tags_and_sizes(self):
        _, sums, answer = self.made()
        self.assertEqual({client["name"]: (client["peak"],
                                           {name: client[name] for name in recorded.CLASSES}) for client in answer["clients"]},
                         sums.client_peaks)
        self.assertEqual([client["peak"] for client in answer["clients"]], sorted((client["peak"] for client in answer["clients"]),
                                                                                  reverse=True))
        self.assertEqual({(tag["client"], tag["class"], tag["tag"]): {"live": tag["live_at_end"], "peak": tag["peak"],
                                                                      "allocations": tag["allocations"],
                                                                      "bytes": tag["bytes"]} for tag in answer["tags"]}, sums.tags)
        self.assertEqual({size["least"]: [size["allocations"], size["bytes"]] for size in answer["sizes"]}, sums.sizes)

    def test_what_was_left_live(self):
        _, sums, answer = self.made()
        self.assertEqual({(left["client"], left["class"], left["tag"]): left["bytes"] for left in answer["left"]},
                         {kind: of["live"] for kind, of in sums.tags.items() if of["live"] > 0})
        self.assertEqual([left["bytes"] for left in answer["left"]], sorted((left["bytes"] for left in answer["left"]), reverse=True))
        blocks = [("a", "kv", "cache", 4096), ("a", "kv", "cache", 8192), ("b", "weights", "", 4096), ("a", "scratch", "gone", 65536)]
        rows = [("allocate", recorded.BASE + i * 65536, size, 1, client, kind, tag) for i, (client, kind, tag, size) in enumerate(blocks)]
        self.write("left.csv", recorded.text(rows + [("free", recorded.BASE + 3 * 65536, 65536, 1, "a", "scratch", "gone")]))
        self.assertEqual(self.weir_json("report", "left.csv")["left"],
                         [{"client": "a", "class": "kv", "tag": "cache", "blocks": 2, "bytes": 12288},
                          {"client": "b", "class": "weights", "tag": "", "blocks": 1, "bytes": 4096}])
        self.assertRegex(self.weir("report", "left.csv")[0], r"left live by(.|\n)*a +cache +kv +2 +12 KiB\n *b +\(none\) +weights +1 +4 KiB")

    def test_what_passed_from_one_to_another(self):
        _, sums, answer = self.made()
        self.assertEqual({(lend["from"], lend["to"]): [lend["bytes"], lend["count"]] for lend in answer["lends"]}, sums.lends)
        self.assertEqual(answer["lent"], sum(lend[0] for lend in sums.lends.values()))
        self.assertTrue(all(lend["first"] <= lend["last"] for lend in answer["lends"]))
        two = [(action, recorded.BASE + i * 4096, 4096, 1, "a", "kv", "") for action in ("allocate", "free") for i in range(2)]
        self.write("two.csv", recorded.text(two + [("allocate", recorded.BASE, 8192, 1, "b", "kv", "")]))
        lend, = self.weir_json("report", "two.csv")["lends"]  # one block has both pieces
        self.assertEqual((lend["from"], lend["to"], lend["bytes"], lend["count"]), ("a", "b", 8192, 1))
        one = [("allocate", recorded.BASE, 8192, 1, "a", "kv", ""), ("free", recorded.BASE, 8192, 1, "a", "kv", ""),
               ("allocate", recorded.BASE + 4096, 8192, 2, "a", "kv", "")]
        self.write("one.csv", recorded.text(one))
        answer = self.weir_json("report", "one.csv")
        self.assertEqual((answer["lends"], answer["lent_between_streams"]), ([], 4096))
        lend, = answer["stream_lends"]
        self.assertEqual((lend["from"], lend["to"], lend["count"], lend["first"], lend["last"]), (1, 2, 1, 3, 3))

    def test_the_timeline_keeps_the_peak_and_every_point_is_so(self):
        _, sums, answer = self.made(30000)
        line = answer["timeline"]
        self.assertLess(len(line["event"]), 6000)
        self.assertEqual(line["event"], sorted(set(line["event"])))
        self.assertEqual((line["event"][0], line["event"][-1], max(line["live"])), (1, 30000, sums.peak))
        self.assertIsNone(line["held"])
        for at, event in enumerate(line["event"]):
            live, clients = sums.history[event - 1]
            self.assertEqual(line["live"][at], live)
            if at % 50 == 0:
                shown = {(line["rows"][one["row"]], one["class"]): one["bytes"][at] for one in line["series"]}
                for client, held in clients.items():
                    for name, size in held.items():
                        self.assertEqual(shown.get((client, name), 0), size)

    def test_blocks_at_the_peak(self):
        _, sums, answer = self.made()
        moment, = [moment for moment in answer["moments"] if moment["label"] == "peak"]
        self.assertEqual((moment["event"], moment["live"], moment["count"], moment["rest"]), (sums.peak_event, sums.peak,
                                                                                              len(sums.at_peak), []))
        shown = {}
        for place, offset, charged, size, kind, pending, _, away in moment["blocks"]:
            kind = answer["kinds"][kind]
            self.assertEqual((charged, pending, away), (size, 0, 0))
            shown[int(answer["ranges"][place]["address"], 16) + offset] = (size, kind["client"], kind["class"], kind["tag"])
        self.assertEqual(shown, sums.at_peak)
        self.assertEqual(sum(live for live, _, _ in moment["ranges"]), sums.peak)
        self.assertEqual([moment["label"] for moment in answer["moments"] if moment["label"]], ["first refusal", "peak", "end"])

    def test_small_blocks_are_summed_up(self):
        made = [("allocate", recorded.BASE + i * 8192, 4096 + (i >= 3000), 1, "a" if i % 2 else "b", "kv", str(i)) for i in range(4000)]
        self.write("made.csv", recorded.text(made))
        answer = self.weir_json("report", "made.csv")
        moment = [moment for moment in answer["moments"] if moment["event"] == 4000][0]
        self.assertEqual((len(moment["blocks"]), moment["count"]), (3000, 4000))
        self.assertEqual(sum(block[2] for block in moment["blocks"]) + sum(rest[4] for rest in moment["rest"]), answer["peak"])
        self.assertEqual(sum(rest[3] for rest in moment["rest"]), 1000)
        self.assertEqual((answer["tag_count"], len(answer["tags"])), (4000, 200))

    def test_the_map_of_addresses(self):
        size = 1 << 20
        made = [("allocate", recorded.BASE + i * size, size, 1, "a", "kv", "") for i in range(200)]
        made += [("free", recorded.BASE + i * size, size, 1, "a", "kv", "") for i in range(0, 200, 2)]
        self.write("made.csv", recorded.text(made))
        answer = self.weir_json("report", "made.csv")
        shown = answer["map"]
        self.assertEqual((shown["rows"], shown["row_bytes"], shown["event"]), (200, size, list(range(1, 301))))
        for event, column in zip(shown["event"], shown["columns"]):
            there = [i < event and not (i % 2 == 0 and i // 2 < event - 200) for i in range(200)]
            self.assertEqual(column, "".join("900" if one else "000" for one in there))
        self.assertEqual(answer["ranges"], [{"address": f"{recorded.BASE:#x}", "bytes": 200 * size}])

    def test_the_page_has_the_same_and_nothing_runs(self):
        _, _, answer = self.made()
        data, page = self.page("made.csv")
        self.assertEqual(data, answer)
        self.assertEqual([name for name in re.findall(r"<(?:script|img|iframe|link|object)\b[^>]*>", page)],
                         ['<script type="application/json" id="data">', "<script>"])
        self.assertNotRegex(page.replace("http://www.w3.org/2000/svg", ""), r"https?://|innerHTML|document\.write|eval\(")
        content = (self.folder / "page.html").read_text()
        self.assertEqual(content.count("</script>"), 2)
        self.assertNotIn("<img", content)
        name = "<img src=x>&.csv"
        self.write(name, (self.folder / "made.csv").read_bytes())
        self.page(name)
        self.assertIn("<title>Memory in &lt;img src=x&gt;&amp;.csv</title>", (self.folder / "page.html").read_text())

    @unittest.skipIf(BROWSER is None, "no chromium here")
    def test_in_a_browser(self):
        made, sums, _ = self.made()
        self.write("empty.csv", recorded.HEADER + "\n")
        for trace, rows in (("made.csv", len(sums.tags)), ("empty.csv", 0)):
            self.weir("report", trace, "-o", "page.html")
            kept = {key: value for key, value in self.environment({}).items() if "ASAN" not in key and key != "LD_PRELOAD"}
            done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder}/browser",
                                   "--dump-dom",
                                   f"file://{self.folder}/page.html"], timeout=1000, env=kept, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
            shown = done.stdout.decode()
            if "<html" not in shown:
                self.skipTest("the browser does not run here")
            self.assertRegex(shown, 'data-ready="[0-9]+"')  # the script has come to its end
            shown = re.sub(r"<script.*?</script>", "", shown, flags=re.S)
            self.assertNotIn("<img", shown)
            self.assertIn(f"<title>Memory in {trace}</title>", shown)
            tags = re.search(r'id="tags".*?</table>', shown, re.S)[0]
            self.assertEqual(tags.count("<tr"), 1 + rows if rows else 1)
        self.assertGreater(len(made), 0)

    def test_recorded_traces(self):
        for path in sorted(TRACES.glob("*.csv.gz")):
            answer = self.weir_json("report", path)
            told = self.weir_json("replay", path)
            self.assertEqual((answer["peak_requested"], answer["allocations"] + answer["frees"], answer["malformed"]),
                             (told["peak_requested"], told["events"], 0), path)
            self.assertEqual((answer["streams"], [client["name"] for client in answer["clients"]]), (told["traces"][0]["streams"],
                                                                                                     ["program"]))

    def test_a_run(self):
        told = self.weir_json("run", "a.toy", "b.toy", "--budget", "64MiB", WEIR_TRACE="t.weir")
        answer = self.weir_json("report", "t.weir")
        self.assertEqual((answer["format"], answer["device"], answer["budget"]), ("weir", "host", 64 << 20))
        self.assertEqual((answer["peak"], answer["peak_held"], answer["live_at_end"]), (told["peak"], told["devices"][0]["peak_held"], 0))
        self.assertEqual({client["name"]: [client[key] for key in ("peak", *recorded.CLASSES)] for client in answer["clients"]},
                         {client["name"]: [client[key] for key in ("peak", *recorded.CLASSES)] for client in told["clients"]})
        self.assertEqual(max(answer["timeline"]["held"]), answer["peak_held"])
        self.assertEqual(self.weir_json("report", "t.weir", "--budget", "1GiB")["budget"], 1 << 30)

    def test_refusals_have_words(self):
        self.weir("run", "b.toy", "--budget", "64KiB", "--maximum", "b.toy=16", status=1, WEIR_TRACE="t.weir")
        answer = self.weir_json("report", "t.weir")
        self.assertEqual((answer["refused"], len(answer["refusals"])), (answer["refused"], answer["refused"]))
        first = answer["refusals"][0]
        self.assertEqual((first["client"], first["cause"]), ("b.toy", "maximum"))
        self.assertIn("b.toy asked for", first["text"])
        self.assertIn("its maximum is 16 B", first["text"])
        self.assertIn("refused", self.weir("report", "t.weir")[0])

    def test_empty_and_cut(self):
        self.write("empty.csv", recorded.HEADER + "\n")
        data, _ = self.page("empty.csv")
        self.assertEqual((data["events"], data["peak"], data["moments"], data["map"]["columns"], data["seconds"]), (0, 0, [], [], None))
        self.assertIsNone(data["peak_event"])
        made = recorded.text(recorded.rows(2000))
        self.write("cut.csv.gz", gzip.compress(made.encode())[:-400])
        answer = self.weir_json("report", "cut.csv.gz")
        self.assertTrue(answer["cut_off"])
        self.assertTrue(0 < answer["events"] < 2000)
        self.assertIn("cut off", self.weir("report", "cut.csv.gz")[0])
        self.weir("run", "a.toy", WEIR_TRACE="t.weir")
        whole = (self.folder / "t.weir").read_bytes()
        for length in (16, 17, 200, len(whole) // 2, len(whole) - 1):
            self.write("cut.weir", whole[:length])
            self.assertTrue(self.weir_json("report", "cut.weir")["cut_off"])
            self.page("cut.weir")
        for content in (b"", b"hello\n", whole[:12], whole[:300] + b"x" * 300):
            self.write("bad", content)
            self.assertIn("bad", self.refused("report", "bad", "-o", "none.html", status=1))
            self.assertFalse((self.folder / "none.html").exists())

    def test_what_makes_no_sense_is_told(self):
        made = recorded.rows(300)
        live = next(row[1] for row in reversed(made) if row[0] == "allocate")
        made += [("free", 0xdead000, 4096, 1, "a", "kv", ""), ("allocate", live, 1, 1, "a", "kv", "")]
        lines = recorded.text(made).split("\n")[:-1]
        lines.insert(7, "no row")
        self.write("odd.csv", "\n".join(lines) + "\n")
        answer = self.weir_json("report", "odd.csv")
        self.assertGreaterEqual(answer["malformed"], 2)
        self.assertEqual(answer["malformed_lines"][0]["line"], 8)
        self.assertIn("a free of a pointer that is not live", [one["what"] for one in answer["malformed_lines"]])
        self.assertIn("the first of them is line 8: ", self.weir("report", "odd.csv")[0])
        self.assertIn("the first of them is line 8: ", self.weir("export", "odd.csv", "--format", "weir", "-o", "odd.weir")[0])

    def test_a_million_events(self):
        pairs = 500000
        lines = ["Thread,Time,Action,Pointer,Size,Stream"]
        for i in range(pairs):
            at = f"1,00:{i // 60000 % 60:02}:{i // 1000 % 60:02}.{i % 1000:03}000"
            lines.append(f"{at},allocate,{0x100000 + i % 1000 * 8192:#x},{4096 + (i == 314159)},{i % 3}")
            lines.append(f"{at},free,{0x100000 + i % 1000 * 8192:#x},4096,{i % 3}")
        self.write("many.csv", "\n".join(lines) + "\n")
        data, page = self.page("many.csv")
        self.assertEqual((data["events"], data["allocations"]), (2 * pairs, pairs))
        self.assertEqual((data["peak"], data["peak_event"]), (4097, 2 * 314159 + 1))
        self.assertEqual(max(data["timeline"]["live"]), 4097)
        self.assertLess(len(data["timeline"]["event"]), 6000)
        self.assertLess((self.folder / "page.html").stat().st_size, 2 << 20)
        self.assertIn("drawTime", page)

    def test_words(self):
        self.write("t.csv", recorded.HEADER + "\n")
        for words, said in (((), "which trace"), (("",), "which trace"), (("t.csv", "u.csv"), "u.csv"),
                            (("t.csv", "-o"), "-o needs a value"), (("t.csv", "-x"), "-x"),
                            (("t.csv", "--budget", "0"), "--budget 0"), (("t.csv", "--device", "cuda"), "--device cuda")):
            self.assertIn(said, self.refused("report", *words))
        self.assertIn("nowhere", self.refused("report", "nowhere", status=1))
        self.assertIn("/nonexistent/x", self.refused("report", "t.csv", "-o", "/nonexistent/x", status=1))
        self.assertIn("--output FILE", self.weir("report", "--help")[0])


if __name__ == "__main__":
    harness.main()
