"""What weir run writes: outputs, the trace, the report."""

import csv
import html
import json
import os
import re
import stat
from html.parser import HTMLParser

import harness
from harness import MIB, read_npy

RMM = ["Thread", "Time", "Action", "Pointer", "Size", "Stream"]


class Page(HTMLParser):
    """Every element must be closed, and nothing may come from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.elsewhere = [], "", []

    def handle_starttag(self, tag, attrs):
        self.elsewhere += [value for name, value in attrs if name in ("src", "href", "action")]
        if tag not in ("meta", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data


class Files(harness.Case):
    def read_report(self, name):
        content = (self.folder / name).read_text(encoding="utf-8")
        page = Page()
        page.feed(content)
        page.close()
        self.assertEqual((page.open, page.elsewhere), ([], []))
        self.assertNotRegex(content, r"https?:|@import|url\(")
        self.assertNotIn("<!--weir:", content)
        data = re.search(r'<script type="application/json" id="data">(.*?)</script>', content, re.S).group(1)
        self.assertNotRegex(data, "[<>&]")
        return page, json.loads(data)

    def read_trace(self, name):
        with open(self.folder / name, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        live = {}
        for row in rows:
            self.assertRegex(row["Time"], r"^\d\d:\d\d:\d\d\.\d{6}$")
            self.assertRegex(row["Pointer"], r"^0x[0-9a-f]+$")
            if row["Action"] == "allocate":
                self.assertNotIn(row["Pointer"], live)
                live[row["Pointer"]] = row["Size"]
            elif row["Action"] == "free":
                self.assertEqual(live.pop(row["Pointer"]), row["Size"])
            else:
                self.assertEqual((row["Action"], row["Pointer"]), ("allocate failure", "0x0"))
        self.assertEqual(live, {})
        for name in ("Order", "Nanoseconds"):
            values = [int(row[name]) for row in rows]
            self.assertEqual(values, sorted(values))
        return rows

    def test_trace(self):
        self.write('a,"b".toy', "3 1 2 3")
        self.write("e.echo", f"input a f32 3\nweights {4 * MIB}\nscratch {MIB}\n")
        answer = self.weir_json("run", 'a,"b".toy', "e.echo", "--repeat", "50", "--trace", "t.csv")
        self.assertEqual(answer["trace"], "t.csv")
        rows = self.read_trace("t.csv")
        self.assertEqual(list(rows[0]), [*RMM, "Client", "Class", "Tag", "Order", "Nanoseconds"])
        self.assertEqual({row["Client"] for row in rows}, {'a,"b".toy', "e.echo"})
        self.assertEqual({row["Class"] for row in rows if row["Client"] == "e.echo"}, {"weights", "scratch", "activations"})
        self.assertEqual(sum(row["Action"] == "allocate" for row in rows), 1 + 51 + 1 + 51 * 2)
        self.assertEqual({row["Size"] for row in rows if row["Class"] == "weights"}, {"12", str(4 * MIB)})
        self.assertGreaterEqual(answer["events"], len(rows))

    def test_a_refusal_in_the_trace(self):
        self.write("e.echo", f"input a f32 3\nweights {MIB}\nscratch {2 * MIB}\n")
        self.weir("run", "a.toy", "e.echo", "--budget", "2MiB", "--trace", "t.csv", status=1)
        failures = [row for row in self.read_trace("t.csv") if row["Action"] == "allocate failure"]
        self.assertEqual([(row["Client"], row["Size"], row["Class"]) for row in failures],
                         [("e.echo", str(2 * MIB), "scratch")])

    def test_report(self):
        self.write("e.echo", f"input a f32 3\nweights {4 * MIB}\nscratch {MIB}\n")
        self.write("<b>&.toy", "2 1 2")
        answer = self.weir_json("run", "a.toy", "e.echo", "<b>&.toy", "missing.toy", "--budget", "16MiB", "--report",
                                "r.html", "--repeat", "5", status=1)
        page, data = self.read_report("r.html")
        for client in ("a.toy", "e.echo", "<b>&.toy", "missing.toy"):
            self.assertIn(client, page.text)
        self.assertIn(html.unescape("it keeps its <record> & nothing else to itself"), page.text)
        for text in ("16 MiB", "RssAnon", "16 MiB", "5 MiB"):
            self.assertIn(text, page.text)
        self.assertEqual(data["budget"], 16 * MIB)
        self.assertEqual(data["clients"], ["a.toy", "e.echo", "<b>&.toy"])
        self.assertEqual({(data["clients"][series["client"]], series["class"]) for series in data["series"]},
                         {("a.toy", "weights"), ("a.toy", "activations"), ("e.echo", "weights"), ("e.echo", "scratch"),
                          ("e.echo", "activations"), ("<b>&.toy", "weights"), ("<b>&.toy", "activations")})
        for point in data["points"]:
            self.assertEqual(len(point), 4 + len(data["series"]))
            self.assertEqual(sum(point[4:]), point[2])
            self.assertLessEqual(point[2], point[3])
        self.assertEqual(data["points"][data["peak"]][2], answer["peak"])
        self.assertEqual(max(point[2] for point in data["points"]), answer["peak"])
        self.assertEqual(max(point[3] for point in data["points"]), answer["peak_held"])
        self.assertEqual(data["points"][-1][2], 0)
        self.assertEqual([phase["label"] for phase in data["phases"]],
                         ["load a.toy", "load e.echo", "load <b>&.toy", "load missing.toy", "all at once", "unload"])

    def test_a_long_run_is_sampled_and_keeps_its_peak(self):
        self.write("e.echo", "input a f32 3\nscratch 4096\n")
        for _ in range(20):  # a ring that is full on a busy machine loses events, and says so
            answer = self.weir_json("run", "e.echo", "a.toy", "--repeat", "20000", "--report", "r.html", "--budget", "1MiB")
            if answer["events_lost"] == 0:
                break
        self.assertEqual(answer["events_lost"], 0)
        self.assertGreater(answer["events"], 100000)
        _, data = self.read_report("r.html")
        self.assertLess(len(data["points"]), 3000)
        self.assertEqual(data["points"][data["peak"]][2], answer["peak"])
        self.assertEqual(max(point[3] for point in data["points"]), answer["peak_held"])
        self.assertLess(os.path.getsize(self.folder / "r.html"), 500000)

    def test_a_report_of_nothing(self):
        self.weir("run", "missing.toy", "--report", "r.html", status=1)
        _, data = self.read_report("r.html")
        self.assertEqual((data["points"], data["series"], data["clients"]), ([], [], []))

    def test_files_that_cannot_be_written(self):
        # What can be told before a model is loaded is told then: a trace that is lost is a run for nothing.
        for words, said in ((["--trace", "no/t.csv"], "cannot write the trace no/t.csv: No such file"),
                            (["--report", "no/r.html"], "cannot write the report no/r.html: No such file"),
                            (["--report", "."], "cannot write the report .: Is a directory")):
            self.assertIn(said, self.refused("run", "a.toy", *words, status=1))
            answer = self.weir_json("run", "a.toy", *words, status=1)
            self.assertIn(said, answer["error"]["detail"])
            self.assertNotIn("clients", answer)
        # Else the results are shown all the same, and what is not written is not named.
        answer = self.weir_json("run", "a.toy", "--trace", "/dev/full", "--report", "r.html", status=1)
        self.one_line(self.error)
        self.assertIn("/dev/full", self.error)
        self.assertEqual(self.client(answer, "a.toy")["outputs"][0]["name"], "y")
        self.assertEqual((answer["trace"], answer["report"]), (None, "r.html"))
        self.assertNotIn("trace:", self.weir("run", "a.toy", "--trace", "/dev/full", status=1)[0])
        self.assertIn("trace: t.csv", self.weir("run", "a.toy", "--trace", "t.csv")[0])
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/full").st_mode))  # no half-written file: it stays
        self.write("file", "")
        answer = self.weir_json("run", "a.toy", "--output", "file/deep", status=1)
        self.assertEqual(answer["error"]["stage"], "output")

    def test_outputs_of_several_models(self):
        self.weir("run", "a.toy", "b.toy", "a.toy", "--output", "out")
        self.assertEqual(sorted(str(path.relative_to(self.folder / "out")) for path in (self.folder / "out").rglob("*.npy")),
                         ["a.toy#2/y.npy", "a.toy/y.npy", "b.toy/y.npy"])
        self.assertEqual(read_npy(self.folder / "out/b.toy/y.npy")[1], (4,))

    def test_names_that_are_no_file_names(self):
        self.write("e.echo", "input ../../up f32 1\ninput .. f32 1\ninput .hidden f32 1\ninput text text -1\n")
        outputs = self.weir_json("run", "e.echo", "--output", "out", "--prompt", "héllo")["clients"][0]["outputs"]
        files = [output["file"] for output in outputs]
        self.assertEqual(files, ["out/_._.._up.npy", "out/_..npy", "out/_hidden.npy", "out/text.txt"])
        for file in files:
            self.assertTrue((self.folder / file).is_file())
        self.assertEqual((self.folder / "out/text.txt").read_text(encoding="utf-8"), "héllo\n")
        self.write("t.echo", "input a f32 1\ninput b f32 1\ntwice\n")
        outputs = self.weir_json("run", "t.echo", "--output", "two")["clients"][0]["outputs"]
        self.assertEqual([output["file"] for output in outputs], ["two/a_b.npy", "two/a_b-2.npy"])


if __name__ == "__main__":
    harness.main()
