"""What bench/instructions.py reads in a file of callgrind's."""

import importlib.util
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
spec = importlib.util.spec_from_file_location("instructions", ROOT / "bench/instructions.py")
instructions = importlib.util.module_from_spec(spec)
spec.loader.exec_module(instructions)

# Two calls of each: an allocation is 10 + 30 instructions, a free 5 + 7.
FILE = """\
version: 1
positions: instr line
events: Ir

ob=/no/such/program
fl=a.c
fn=counted_alloc
0x10 1 20
cfn=weir_alloc
calls=2 0x40 4
0x14 1 60
fn=weir_alloc
0x40 4 60
fn=counted_free
0x20 2 10
cfn=weir_free
calls=2 0x50 5
0x24 2 14
fn=weir_free
0x50 5 14
fn=main
cfn=counted_free
calls=2 0x20 2
0x30 9 24
"""


class Reading(unittest.TestCase):
    def test_calls_are_divided_by_their_number(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "out"
            path.write_text(FILE)
            counts = instructions.read(path, 2)
        self.assertEqual((counts.alloc, counts.free), (40, 12))
        self.assertEqual(counts.calls, 2)  # those of the counted functions themselves are not the library's
        self.assertEqual(counts.locked, 0)
        self.assertEqual(counts.functions[:2], [(30, "weir_alloc"), (10, "counted_alloc")])


if __name__ == "__main__":
    unittest.main()
