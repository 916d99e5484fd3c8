"""Arrays in and out: every type, and files that are none."""

import os
import struct

import harness
from harness import npy, read_npy

# weir's type, NumPy's, and two elements of it
TYPES = [("f32", "<f4", struct.pack("<2f", 1.5, -2)), ("f64", "<f8", struct.pack("<2d", 1.5, -2)),
         ("f16", "<f2", struct.pack("<2e", 1.5, -2)), ("i8", "|i1", b"\x01\xff"), ("i16", "<i2", struct.pack("<2h", 1, -2)),
         ("i32", "<i4", struct.pack("<2i", 1, -2)), ("i64", "<i8", struct.pack("<2q", 1, -2)), ("u8", "|u1", b"\x01\xff"),
         ("u16", "<u2", struct.pack("<2H", 1, 65535)), ("u32", "<u4", struct.pack("<2I", 1, 1 << 31)),
         ("u64", "<u8", struct.pack("<2Q", 1, 1 << 63)), ("bool", "|b1", b"\x01\x00"), ("bf16", "<u2", b"\xc0\x3f\x00\xc0"),
         ("f8e4m3fn", "|u1", b"\x38\xb8"), ("f8e5m2", "|u1", b"\x3c\xbc")]
STORED = {"bf16": "u16", "f8e4m3fn": "u8", "f8e5m2": "u8"}


class Arrays(harness.Case):
    def refuse(self, content, *said):
        self.write("x.npy", content)
        line = self.refused("run", "a.toy", "--input", "x=x.npy", status=1)
        for text in ("x.npy", *said):
            self.assertIn(text, line)
        return line

    def test_round_trip(self):
        self.write("e.echo", "".join(f"input {name} {name} -1 2\n" for name, _, _ in TYPES))
        words = []
        for name, descr, data in TYPES:
            self.write(f"{name}.npy", npy(descr, (1, 2), data))
            words += ["--input", f"{name}={name}.npy"]
        outputs = {output["name"]: output for output in
                   self.weir_json("run", "e.echo", *words, "--output", "deep/er")["clients"][0]["outputs"]}
        for name, descr, data in TYPES:
            self.assertEqual(outputs[name]["type"], name)
            self.assertEqual(outputs[name]["shape"], [1, 2])
            self.assertEqual(outputs[name].get("stored_as"), STORED.get(name))
            self.assertEqual(outputs[name]["file"], f"deep/er/{name}.npy")
            self.assertEqual(read_npy(self.folder / "deep/er" / f"{name}.npy"), (descr, (1, 2), data))

    def test_shapes(self):
        self.write("e.echo", "input scalar f32\ninput empty i64 -1 4\ninput deep u8 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 2\n")
        self.write("scalar.npy", npy("<f4", (), struct.pack("<f", 2.5)))
        self.write("empty.npy", npy("<i8", (0, 4), b""))
        self.write("deep.npy", npy("|u1", (1,) * 15 + (2,), b"ab"))
        words = [word for name in ("scalar", "empty", "deep") for word in ("--input", f"{name}={name}.npy")]
        self.weir("run", "e.echo", *words, "--output", "out")
        self.assertEqual(read_npy(self.folder / "out/scalar.npy"), ("<f4", (), struct.pack("<f", 2.5)))
        self.assertEqual(read_npy(self.folder / "out/empty.npy"), ("<i8", (0, 4), b""))
        self.assertEqual(read_npy(self.folder / "out/deep.npy"), ("|u1", (1,) * 15 + (2,), b"ab"))

    def test_filling(self):
        self.write("e.echo", "".join(f"input {name} {name} -1 -1\n" for name, _, _ in TYPES) + "input one f32\n")
        self.weir("run", "e.echo", "--output", "out", "--input", "i32=shape:2x3", "--input", "one=3.5")
        self.assertEqual(read_npy(self.folder / "out/i64.npy"), ("<i8", (1, 16), struct.pack("<16q", *[1] * 16)))
        self.assertEqual(read_npy(self.folder / "out/i32.npy"), ("<i4", (2, 3), struct.pack("<6i", *[1] * 6)))
        self.assertEqual(read_npy(self.folder / "out/bool.npy"), ("|b1", (1, 16), b"\1" * 16))
        self.assertEqual(read_npy(self.folder / "out/one.npy"), ("<f4", (), struct.pack("<f", 3.5)))
        floats = struct.unpack("<16f", read_npy(self.folder / "out/f32.npy")[2])
        halves = struct.unpack("<16e", read_npy(self.folder / "out/f16.npy")[2])
        brains = struct.unpack("<16H", read_npy(self.folder / "out/bf16.npy")[2])
        for value, half, brain in zip(floats, halves, brains):
            self.assertTrue(0 <= value < 1)
            self.assertAlmostEqual(value, half, delta=5e-4)
            self.assertAlmostEqual(value, struct.unpack("<f", struct.pack("<I", brain << 16))[0], delta=4e-3)
        self.assertGreater(len(set(floats)), 14)

    def test_numbers(self):
        self.write("e.echo", "input i i8 -1\ninput u u64 -1\ninput f f16 1 -1\ninput b bool -1\n")
        good = ["--input", "i=-128, 127", "--input", "u=18446744073709551615", "--input", "f=0.5,65504,-1e-7,inf",
                "--input", "b=1,0"]
        self.weir("run", "e.echo", *good, "--output", "out")
        self.assertEqual(read_npy(self.folder / "out/i.npy")[2], b"\x80\x7f")
        self.assertEqual(read_npy(self.folder / "out/u.npy")[2], b"\xff" * 8)
        self.assertEqual(read_npy(self.folder / "out/f.npy")[1:],
                         ((1, 4), struct.pack("<4e", 0.5, 65504, -1.1920929e-07, float("inf"))))
        self.assertEqual(read_npy(self.folder / "out/b.npy")[2], b"\1\0")
        for bad in ("i=128", "i=-129", "i=1.5", "u=-1", "u=18446744073709551616", "b=2", "f=1,", "f=1,,2", "i="):
            with self.subTest(bad=bad):
                self.assertIn(f"input {bad[0]} ", self.refused("run", "e.echo", "--input", bad, status=1))

    def test_versions(self):
        data = struct.pack("<3f", 1, 2, 3)
        for version in (1, 2, 3):
            self.write("x.npy", npy("<f4", (3,), data, version=version))
            self.assertIn("1 4 9", self.weir("run", "a.toy", "--input", "x=x.npy")[0])
        for descr in ("=f4", "f4"):
            self.write("x.npy", npy(descr, (3,), data))
            self.weir("run", "a.toy", "--input", "x=x.npy")
        self.refuse(npy("<f4", (3,), data, version=4), "version 4.0")

    def test_types_that_do_not_fit(self):
        self.write("x.npy", npy("<f8", (3,), bytes(24)))
        line = self.refused("run", "a.toy", "--input", "x=x.npy", status=1)
        self.assertIn("is f32 and x.npy holds f64", line)

    def test_what_is_not_read(self):
        data = struct.pack("<3f", 1, 2, 3)
        self.refuse(npy(">f4", (3,), data), "big-endian")
        self.refuse(npy("<f4", (3, 1), data, fortran=True), "Fortran order")
        self.refuse(npy("<c8", (3,), bytes(24)), "'<c8'")
        self.refuse(npy("|O", (3,), data), "'|O'")
        self.refuse(npy("", (3,), data), "''")
        self.refuse(npy(None, None, data, header="{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}"), "fields")

    def test_hostile(self):
        good = npy("<f4", (3,), struct.pack("<3f", 1, 2, 3))
        for cut in (1, 5, 6, 7, 8, 9, 10, 11, 30, 80, 126, 127, 128, 129, len(good) - 1):
            self.refuse(good[:cut])
        self.refuse(good + b"\0", "more than one array")
        self.refuse(npy("<f4", (1 << 62, 1 << 62), b""), "shape")
        self.refuse(npy("<f4", (1 << 40,), b""), "cut off")
        self.refuse(npy("<f4", (1,) * 17, bytes(4)), "'shape'")
        self.refuse(b"\x93NUMPY\x02\x00" + struct.pack("<I", 0xffffffff), "header")
        self.refuse(b"", "no NPY file")
        head = "{'descr': '<f4', 'fortran_order': False, 'shape': "
        for text in (head + "(3,)", head + "(3)}", head + "(-3,)}", head + "(3.0,)}", head + "(3,,)}", head + "[3]}",
                     head + "(99999999999999999999,)}", head + "(3,), 'more': 1}", head + "(3,), 'shape': (3,)}", "{}", "",
                     head + "(3,)} {}", "{'descr': '<f4' 'fortran_order': False}", "{'descr': '<f" + "4" * 90 + "'}",
                     "{'descr': '<f4', 'fortran_order': 1, 'shape': (3,)}", "{" * 3000, "{'descr\\x00': '<f4'}",
                     "{\0'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"):
            self.refuse(npy(None, None, bytes(12), header=text))

    def test_pipes_are_not_waited_for(self):
        for name, value in (("pipe.npy", "pipe.npy"), ("lines", "@lines")):
            os.mkfifo(self.folder / name)
            self.assertIn("is no regular file", self.refused("run", "a.toy", "--input", f"x={value}", status=1))

    def test_a_folder(self):
        (self.folder / "d.npy").mkdir()
        self.assertIn("d.npy", self.refused("run", "a.toy", "--input", "x=d.npy", status=1))


if __name__ == "__main__":
    harness.main()
