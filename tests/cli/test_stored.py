"""Models of the store by their bare names: every verb that takes a model finds the same file."""

import harness

MODEL = harness.SOURCE / "tests/data/onnx/mlp.onnx"
LIST = "id,lower,upper,size\na,0,3,4\nb,3,9,4\n"


class Stored(harness.Case):
    def setUp(self):
        super().setUp()
        (self.folder / "store/models").mkdir(parents=True)
        self.write("store/models/kept.toy", "3 1 2 3")
        self.write("store/models/kept.onnx", MODEL.read_bytes())
        self.write("store/models/kept.csv", LIST)

    def path(self, name):
        return str(self.folder / "store/models" / name)

    def test_every_verb_finds_it(self):
        self.assertEqual(self.client(self.weir_json("run", "kept.toy"), "kept.toy")["engine"], "toy")
        self.assertEqual(self.weir_json("explain", "kept.toy")["chosen"]["engine"], "toy")
        self.assertEqual(self.weir_json("check", "kept.toy")["path"], self.path("kept.toy"))
        answer = self.weir_json("plan", "kept.csv")
        self.assertEqual((answer["file"], answer["buffers"]), (self.path("kept.csv"), 2))

    def test_as_the_readme_has_it(self):
        for words in (["kept.onnx"], [self.path("kept.onnx")]):
            answer = self.weir_json("plan", *words, "--dim", "n=100", "--svg", "picture.svg")
            self.assertEqual((answer["file"], answer["source"]["kind"]), (self.path("kept.onnx"), "model"))
        self.assertIn("kept.onnx: ", self.weir("plan", "kept.onnx", "--dim", "n=100")[0])
        self.assertEqual(self.weir_json("check", "kept.onnx")["path"], self.path("kept.onnx"))

    def test_what_is_here_comes_first(self):
        self.write("kept.csv", LIST + "c,0,9,4\n")
        self.write("kept.toy", "2 7 8")
        answer = self.weir_json("plan", "kept.csv")
        self.assertEqual((answer["file"], answer["buffers"]), ("kept.csv", 3))
        self.assertEqual(self.weir_json("check", "kept.toy")["path"], "kept.toy")

    def test_a_path_is_no_name(self):
        for verb in ("plan", "check", "explain", "run"):
            with self.subTest(verb=verb):
                self.assertIn("./kept.toy", self.refused(verb, "./kept.toy", status=1))
                self.assertIn("other.onnx", self.refused(verb, "other.onnx", status=1))

    def test_nothing_is_no_name(self):
        self.assertNotIn("store", self.refused("plan", "", status=1))


if __name__ == "__main__":
    harness.main()
