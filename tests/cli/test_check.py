"""weir check: good manifests, bad ones with every place, and what cannot be read."""

import contextlib
import fcntl
import io
import os
import tarfile

import harness

PACKAGES = (harness.BUILD / "tests/test-manifest-packages").exists()  # which is built where libarchive is
MODEL = b"\x08\x07\x12\x00"
BAD = """{
  "model_file": "m.onnx", "nme": "x",
  "hardware_requirements": {"min_vram_mb": -1}
}
"""
PROBLEMS = [(2, 27, "nearest is \"name\""), (3, 44, "is -1")]


class Check(harness.Case):
    def setUp(self):
        super().setUp()
        self.write("m.onnx", MODEL)
        self.write("good.json", '{"model_file": "m.onnx"}')
        self.write("bad.json", BAD)

    def package(self, name, **files):
        with tarfile.open(self.folder / name, "w:gz") as tar:
            for inside, content in files.items():
                member = tarfile.TarInfo(inside.replace("_", "."))
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))

    def test_packages(self):
        self.package("good.aimod", metadata_json=b'{"model_file": "m.onnx"}', m_onnx=MODEL)
        if not PACKAGES:
            self.assertIn("libarchive", self.refused("check", "good.aimod", status=1))
            return
        self.assertEqual(self.weir("check", "good.aimod"), ("good.aimod/metadata.json is good\n", ""))
        self.package("bad.aimod", metadata_json=b'{"model_file": "../m.onnx"}', m_onnx=MODEL)
        out, _ = self.weir("check", "bad.aimod", status=1)
        self.assertTrue(out.startswith("bad.aimod/metadata.json:1:16: model_file leads out"), out)
        self.write("none.aimod", b"nothing")
        self.assertIn("gzip tar", self.refused("check", "none.aimod", status=1))
        self.assertEqual(len(list((self.folder / "store/packages").iterdir())), 2)

    def test_clearing(self):
        if not PACKAGES:
            self.assertIn("libarchive", self.refused("check", "--clear", status=1))
            return
        self.assertEqual(self.weir("check", "--clear"), ("0 unpacked packages cleared (0 B)\n", ""))
        self.package("good.aimod", metadata_json=b'{"model_file": "m.onnx"}', m_onnx=MODEL)
        self.weir("check", "good.aimod")
        packages = self.folder / "store/packages"
        self.assertEqual(len(list(packages.iterdir())), 1)
        self.assertEqual(self.weir("check", "--clear"), ("1 unpacked package cleared (28 B)\n", ""))
        self.assertEqual(list(packages.iterdir()), [])
        self.weir("check", "good.aimod")
        with self.in_use(next(packages.iterdir())):
            self.assertEqual(self.weir_json("check", "--clear"),
                             {"cleared": 0, "cleared_bytes": 0, "kept": 1, "kept_bytes": 28, "in_use": 1})
            self.assertEqual(self.weir("check", "--clear")[0], "0 unpacked packages cleared (0 B), 1 in use (28 B)\n")
        self.assertIn("--clear takes no manifest", self.refused("check", "--clear", "good.aimod"))

    @contextlib.contextmanager
    def in_use(self, folder):
        """As a process that reads the package has it."""
        file = os.open(folder, os.O_RDONLY)
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
        os.close(file)

    def test_bad_words(self):
        for words, said in (([], "which manifest"), (["a", "b"], "one manifest"), (["good.json", "--some"], "--some")):
            with self.subTest(words=words):
                self.assertIn(said, self.refused("check", *words))

    def test_what_is_good(self):
        self.write("own.json", '{"model_file": "a.toy", "framework": "toy"}')
        for path in ("good.json", "m.onnx", "a.toy", "own.json"):
            with self.subTest(path=path):
                out, error = self.weir("check", path)
                self.assertEqual((out, error), (f"{path} is good\n", ""))
                self.assertEqual(self.weir_json("check", path), {"good": True, "path": path, "errors": [], "more": 0})

    def test_every_problem_has_its_place(self):
        out, error = self.weir("check", "bad.json", status=1)
        self.one_line(error)
        self.assertIn("2 problems", error)
        lines = out.splitlines()
        self.assertEqual(len(lines), len(PROBLEMS), out)
        answer = self.weir_json("check", "bad.json", status=1)
        self.assertFalse(answer["good"])
        self.assertEqual(answer["path"], "bad.json")
        for (line, column, text), shown, told in zip(PROBLEMS, lines, answer["errors"], strict=True):
            self.assertTrue(shown.startswith(f"bad.json:{line}:{column}: "), shown)
            self.assertIn(text, shown)
            self.assertEqual((told["line"], told["column"]), (line, column))
            self.assertEqual(f"bad.json:{line}:{column}: {told['text']}", shown)

    def test_what_cannot_be_read(self):
        self.write("a.safetensors", b"x")
        self.write("notes.txt", "hello")
        for path, said in (("nowhere.json", "no nowhere.json"), ("a.safetensors", "safetensors"),
                           ("notes.txt", "engine"), (".", "genai_config.json")):
            with self.subTest(path=path):
                self.assertIn(said, self.refused("check", path, status=1))
                answer = self.weir_json("check", path, status=1)
                self.assertEqual([answer["good"], len(answer["errors"])], [False, 1])
                self.assertIn(said, answer["errors"][0]["text"])
                self.assertEqual(answer["errors"][0]["line"], 0)

    def test_more_problems_than_are_listed(self):
        self.write("many.json", '{"model_file": "m.onnx", ' + ", ".join(f'"x{i}y": 1' for i in range(250)) + "}")
        answer = self.weir_json("check", "many.json", status=1)
        self.assertEqual((len(answer["errors"]), answer["more"]), (100, 150))
        self.assertIn("250 problems", self.error)

    def test_keys_are_no_commands_for_the_terminal(self):
        self.write("escape.json", '{"model_file": "m.onnx", "\\u001b[2J\\u009b": 1}')
        out, _ = self.weir("check", "escape.json", status=1)
        self.assertIn('"?[2J', out)
        self.assertFalse(set(out) & {"\x1b", "\x9b"})


if __name__ == "__main__":
    harness.main()
