"""weir plan: words, lists, traces, pictures; models are in tests/shapes."""

import csv
import gzip
import io
import re
import xml.etree.ElementTree as xml

import harness

LIST = "id,lower,upper,size\na,0,3,4\nb,3,9,4\nc,0,9,4\nd,9,21,4\ne,0,21,4\n"
MODEL = harness.SOURCE / "tests/data/onnx/mlp.onnx"
TRACE = harness.SOURCE / "tests/data/traces/bert.csv.gz"
SVG = "{http://www.w3.org/2000/svg}"


class Plan(harness.Case):
    def setUp(self):
        super().setUp()
        self.write("list.csv", LIST)

    def test_bad_words(self):
        for words, said in (
                ([], "which file"),
                (["list.csv", "other.csv"], "one file"),
                (["list.csv", "--some"], "--some"),
                (["list.csv", "--dim", "n"], "NAME=N"),
                (["list.csv", "--dim", "n=2x3"], "NAME=N"),
                (["list.csv", "--dim", "=2"], "NAME=N"),
                (["list.csv", "--dim", "n=-1"], "NAME=N"),
                (["list.csv", "--dim", "n=1", "--dim", "n=2"], "twice"),
                (["list.csv", "--shape", "n=2x"], "NAME=NxNxN"),
                (["list.csv", "--shape", "n"], "NAME=NxNxN"),
                (["list.csv", "--dim", "n="], "NAME=N"),
                (["list.csv", "--shape", "n=" + "x".join(["2"] * 17)], "NAME=NxNxN"),
                (["list.csv", "--align", "3"], "power of two"),
                (["list.csv", "--align", "0"], "power of two"),
                (["list.csv", "--seconds", "0"], "above 0"),
                (["list.csv", "--seconds", "nan"], "above 0"),
                (["list.csv", "--csv", "--json"], "standard output"),
                (["list.csv", "--places"], "--json"),
        ):
            with self.subTest(words=words):
                line = self.refused("plan", *words)
                self.assertIn(said, line)
                self.assertIn("'weir plan --help'", line)

    def test_files_that_are_none(self):
        self.write("empty.csv", "")
        self.write("text.csv", "some text\n")
        self.write("zeros.bin", b"\0" * 40)
        self.write("broken.gz", b"\x1f\x8b" + b"x" * 30)
        for name, said in (("missing.csv", "No such file"), ("empty.csv", "empty"), ("text.csv", "lower"),
                           ("zeros.bin", "neither a list"), ("broken.gz", "broken.gz"), (".", "directory")):
            with self.subTest(name=name):
                self.assertIn(said, self.refused("plan", name, status=1))
        self.assertIn("no model", self.refused("plan", "list.csv", "--dim", "n=1", status=1))

    def test_a_list(self):
        answer = self.weir_json("plan", "list.csv")
        self.assertEqual(answer["buffers"], 5)
        self.assertEqual(answer["arena"], 12)
        self.assertEqual(answer["lower_bound"], 12)
        self.assertEqual(answer["unshared"], 20)
        self.assertIs(answer["proven"], True)
        self.assertGreaterEqual(answer["seconds"], 0)
        self.assertEqual(answer["source"]["kind"], "list")
        self.assertEqual(self.weir_json("plan", "list.csv", "--align", "16")["arena"], 48)
        self.assertIn("proven", self.weir("plan", "list.csv")[0])

    def test_rows_can_be_planned_again(self):
        """The rows are a list whose places are fixed."""
        rows = self.weir("plan", "list.csv", "--csv")[0]
        read = list(csv.DictReader(io.StringIO(rows)))
        self.assertEqual([row["id"] for row in read], list("abcde"))
        for one in read:
            for other in read:
                together = int(one["lower"]) < int(other["upper"]) and int(other["lower"]) < int(one["upper"])
                apart = abs(int(one["offset"]) - int(other["offset"])) >= 4
                self.assertTrue(one is other or apart or not together, (one, other))
        self.write("again.csv", rows)
        self.assertEqual(self.weir_json("plan", "again.csv")["arena"], 12)
        self.assertEqual(self.weir("plan", "again.csv", "--csv")[0], rows)

    def test_gaps(self):
        """b fits into the gap of a; rows keep it, and the picture shows both ends."""
        self.write("gaps.csv", "id,lower,upper,size,gaps\na,0,9,4,3-6\nb,3,6,4,\n")
        self.assertEqual(self.weir_json("plan", "gaps.csv")["arena"], 4)
        rows = self.weir("plan", "gaps.csv", "--csv")[0]
        self.assertEqual(rows, "id,lower,upper,size,offset,gaps\na,0,9,4,0,3-6\nb,3,6,4,0,\n")
        self.write("again.csv", rows)
        self.assertEqual(self.weir_json("plan", "again.csv")["arena"], 4)
        rectangles = [each for each in self.picture("gaps.csv").iter(f"{SVG}rect") if "t" in each.get("class", "").split()]
        self.assertEqual(len(rectangles), 3)
        self.assertEqual(len({each.get("x") for each in rectangles}), 3)
        self.assertEqual(len({each.get("y") for each in rectangles}), 1)

    def test_a_saved_plan(self):
        self.weir("plan", MODEL, "--dim", "n=100", "--save", "mlp.plan")
        made, saved = self.weir_json("plan", MODEL, "--dim", "n=100", "--places"), self.weir_json("plan", "mlp.plan", "--places")
        for key in ("arena", "lower_bound", "unshared", "proven", "buffers", "steps", "in_place"):
            self.assertEqual(saved[key], made[key], key)
        self.assertEqual([place["offset"] for place in saved["places"]], [place["offset"] for place in made["places"]])
        self.assertEqual(saved["source"]["kind"], "plan")
        self.weir("plan", "mlp.plan", "--svg", "picture.svg")
        text = (self.folder / "mlp.plan").read_text(encoding="utf-8")
        self.write("mlp.plan", text.replace("6912", "6913"))
        self.assertIn("mlp.plan", self.refused("plan", "mlp.plan", status=1))
        self.assertIn("no/x", self.refused("plan", "list.csv", "--save", "no/x", status=1))

    def test_a_saved_plan_is_not_made_again(self):
        self.weir("plan", "list.csv", "--save", "list.plan")
        for words in (["--align", "16"], ["--quick"], ["--seconds", "1"]):
            line = self.refused("plan", "list.plan", *words, status=1)
            self.assertIn("list.plan is a plan", line)
            self.assertIn(words[0], line)

    def test_what_only_the_file_proves(self):
        """Twice as much as is ever live, and a file that says that nothing smaller exists."""
        text = ("weir-plan 1\nplan 2 1 1\nbuffer 4 0 1 0 0 0 0 0 0 0 0 0 0 =a\n"
                "buffer 4 1 2 0 0 0 0 0 0 0 0 4 1 =b\n")
        total = 0xcbf29ce484222325
        for byte in text.encode():
            total = (total ^ byte) * 0x100000001b3 % 2 ** 64
        self.write("told.plan", f"{text}sum {total:016x}\n")
        answer = self.weir_json("plan", "told.plan")
        self.assertIs(answer["proven"], False)
        self.assertIs(answer["said_proven"], True)
        self.assertIn("its file says", self.weir("plan", "told.plan")[0])
        self.weir("plan", "told.plan", "--save", "again.plan")
        self.assertEqual((self.folder / "again.plan").read_bytes(), (self.folder / "told.plan").read_bytes())

    def test_a_trace(self):
        answer = self.weir_json("plan", TRACE)
        replayed = self.weir_json("replay", TRACE)
        self.assertEqual(answer["source"]["kind"], "trace")
        self.assertEqual(answer["source"]["requested"], replayed["peak_requested"])
        self.assertEqual(answer["source"]["held_replayed"], replayed["peak_reserved"])
        self.assertIsNone(answer["source"]["held_recorded"])
        self.assertGreaterEqual(answer["lower_bound"], answer["source"]["requested"])
        self.assertLess(answer["arena"], 1.1 * answer["lower_bound"])
        self.assertIsNone(self.weir_json("plan", TRACE, "--no-replay")["source"]["held_replayed"])
        # the same, not compressed, and with rows that are none
        text = gzip.decompress(TRACE.read_bytes())
        self.write("trace.csv", text + b"nonsense\n1,00:00:00.000000,free,0x1234,4,0\n")
        spoilt = self.weir_json("plan", "trace.csv", "--no-replay")
        self.assertEqual(spoilt["arena"], answer["arena"])
        self.assertEqual(spoilt["source"]["left_out"], 2)
        self.assertIn("2 events", spoilt["source"]["remark"])

    def test_a_recorded_trace(self):
        """weir's binary trace knows what was held when it was recorded."""
        self.weir("run", "a.toy", WEIR_TRACE="run.trace")
        answer = self.weir_json("plan", "run.trace")
        self.assertGreater(answer["buffers"], 0)
        self.assertGreaterEqual(answer["source"]["held_recorded"], answer["source"]["requested"])

    def test_a_model(self):
        line = self.refused("plan", MODEL, status=1)
        self.assertIn('"x"', line)
        self.assertIn("--dim n=N", line)
        line = self.refused("plan", MODEL, "--dim", "m=3", "--dim", "n=1", status=1)
        self.assertIn('no dimension called "m"; its inputs have n', line)
        self.assertIn("no tensor", self.refused("plan", MODEL, "--dim", "n=1", "--shape", "q=1", status=1))
        self.assertIn("without", self.refused("plan", MODEL, "--dim", "n=1", "--shape", "m=1x17", status=1))
        answer = self.weir_json("plan", MODEL, "--dim", "n=100", "--places")
        places = {place["name"]: place for place in answer["places"]}
        self.assertEqual(set(places), {"x", "m", "y", "z", "best"})
        self.assertEqual(places["m"]["looks"], "100x17 float")
        self.assertEqual(places["y"]["written_over"], answer["places"].index(places["m"]))
        self.assertEqual(places["y"]["offset"], places["m"]["offset"])
        self.assertIsNone(places["z"]["written_over"])  # y is an output too: it has to stay
        self.assertEqual(answer["source"]["weights"], (16 * 17 + 17) * 4)
        self.assertEqual(answer["source"]["dims"], {"n": 100})
        # x goes when m is there; y, z and best stay: 6912 + 6912 + 1024 bytes of whole 256s, with x and m before
        self.assertEqual(answer["arena"], 6912 + 6912 + 1024)

    def test_a_shape_that_only_a_run_knows(self):
        grow = harness.SOURCE / "tests/data/onnx/grow.onnx"
        line = self.refused("plan", grow, status=1)
        for part in ("grow.onnx", "ConstantOfShape", '"zeros"', "--shape zeros=", "only a run knows"):
            self.assertIn(part, line)
        self.assertEqual(self.weir_json("plan", grow, "--shape", "zeros=1000:float")["arena"], 4096 + 256)
        self.assertEqual(self.weir_json("plan", grow, "--shape", "zeros=:float")["arena"], 256 + 256)
        self.assertIn("real", self.refused("plan", grow, "--shape", "zeros=1000:real", status=1))

    def test_a_model_with_bodies(self):
        answer = self.weir_json("plan", harness.SOURCE / "tests/data/onnx/branch.onnx", "--places")
        self.assertIn("branches", answer["source"]["remark"])
        for place in answer["places"]:  # what a branch reads is live where the branch runs
            self.assertGreater(place["end"], 0)

    def picture(self, *words):
        self.weir("plan", *words, "--svg", "picture.svg")
        return xml.parse(self.folder / "picture.svg").getroot()

    def test_the_picture(self):
        root = self.picture("list.csv")
        rectangles = [each for each in root.iter(f"{SVG}rect") if "t" in each.get("class", "").split()]
        self.assertEqual([each.find(f"{SVG}title").text.split("\n")[0] for each in rectangles], list("abcde"))
        left, width = 96, 1252 - 96
        for rectangle, (begin, end) in zip(rectangles, ((0, 3), (3, 9), (0, 9), (9, 21), (0, 21))):
            self.assertAlmostEqual(float(rectangle.get("x")), left + width * begin / 21, delta=.01)
            self.assertAlmostEqual(float(rectangle.get("width")), width * (end - begin) / 21, delta=.01)
        self.apart(rectangles)

    def test_the_picture_of_what_is_written_over(self):
        root = self.picture(MODEL, "--dim", "n=100")
        rectangles = [each for each in root.iter(f"{SVG}rect") if "t" in each.get("class", "").split()]
        self.assertEqual(len(rectangles), 5)
        self.assertIn("written over its input", "".join(root.itertext()))
        self.apart(rectangles)

    def apart(self, rectangles):
        boxes = [[float(each.get(key)) for key in ("x", "y", "width", "height")] for each in rectangles]
        for i, one in enumerate(boxes):
            for other in boxes[:i]:
                beside = one[0] + one[2] <= other[0] + .02 or other[0] + other[2] <= one[0] + .02
                above = one[1] + one[3] <= other[1] + .02 or other[1] + other[3] <= one[1] + .02
                self.assertTrue(beside or above, (one, other))

    def test_pictures_of_everything(self):
        self.assertIn("of the arena", "".join(self.picture(TRACE, "--no-replay").itertext()))  # it has no classes
        self.weir("run", "a.toy", "--trace", "run.csv")
        text = "".join(self.picture("run.csv", "--no-replay").itertext())
        self.assertIn("weights, ", text)
        self.assertNotIn("of the arena", text)
        text = "".join(self.picture(MODEL, "--dim", "n=3").itertext())
        self.assertIn("MatMul", text)
        self.assertIn("3x17 float", text)
        self.write("nothing.csv", "id,lower,upper,size\na,0,3,0\n")
        self.assertIn("Nothing here takes memory", "".join(self.picture("nothing.csv").itertext()))

    def test_names_cannot_break_out(self):
        self.write("bad.csv", "id,lower,upper,size\n</title><script>alert(1)</script>,0,3,4\n\x1b[31mred&,0,3,4\n")
        root = self.picture("bad.csv")
        self.assertEqual(len(list(root.iter(f"{SVG}script"))), 1)
        self.assertNotIn("\x1b", self.weir("plan", "bad.csv", "--csv")[0])
        self.assertFalse(re.search("alert", "".join(root.find(f"{SVG}script").itertext())))

    def test_a_picture_that_cannot_be_written(self):
        self.assertIn("no/picture.svg", self.refused("plan", "list.csv", "--svg", "no/picture.svg", status=1))


if __name__ == "__main__":
    harness.main()
