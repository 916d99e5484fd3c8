#!/usr/bin/env python3
"""Tests of scripts/cuda_trim.py on a library made here: an ELF file with nothing but the section .nv_fatbin."""

import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True

import cuda_trim as trim  # noqa: E402


def entry(arch, code, kind=trim.ELF):
    padded = code + bytes(-len(code) % 8)
    return struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(padded), len(code), 0, 0, 1, arch, 64, 0, 0, 0,
                       0) + padded


def container(*entries):
    body = b"".join(entries)
    return trim.MAGIC + struct.pack("<HHQ", 1, 16, len(body)) + body


def library(*parts):
    section, names = b"".join(parts), b"\0.shstrtab\0.nv_fatbin\0"
    head = 64
    table = head + len(section) + len(names)
    elf = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 1)
    heads = [struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
             struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, head + len(section), len(names), 0, 0, 1, 0),
             struct.pack("<IIQQQQIIQQ", 11, 1, 0, 0, head, len(section), 0, 0, 8, 0)]
    return bytearray(elf + section + names + b"".join(heads))


def codes(data):
    return [[(e.arch, bytes(data[e.code])) for e in c.entries] for c in trim.containers(data)]


OLD, NEW = b"\x7fELF old .text.add.", b"\x7fELF new code .text.add."
SPECIAL = b"\x7fELF .text._ZN5flash4fwdE."


class Trim(unittest.TestCase):
    def test_keeps_one_architecture(self):
        data = library(container(entry(80, OLD), entry(90, NEW)), container(entry(90, SPECIAL), entry(120, OLD)))
        before = len(data)
        trim.trim(data, 90)
        self.assertEqual(codes(data), [[(90, NEW)], [(90, SPECIAL)]])
        self.assertEqual(len(data), before)
        self.assertNotIn(OLD, data)

    def test_what_has_no_code_for_it_keeps_another(self):
        data = library(container(entry(80, OLD * 4), entry(75, OLD * 4)), container(entry(90, NEW), entry(80, OLD)))
        trim.trim(data, 90)
        self.assertEqual(codes(data), [[(80, OLD)], [(90, NEW)]])

    def test_containers_stay_where_they_are(self):
        data = library(container(entry(80, OLD * 9), entry(90, NEW)), bytes(24), container(entry(90, NEW), entry(75, OLD)))
        places = [c.at for c in trim.containers(data)]
        trim.trim(data, 90)
        self.assertEqual([c.at for c in trim.containers(data)], places)

    def test_drops_kernels_by_name(self):
        data = library(container(entry(80, OLD), entry(90, SPECIAL)), container(entry(80, OLD), entry(90, NEW)))
        trim.trim(data, 90, "5flash")
        self.assertEqual(codes(data), [[(80, OLD)], [(90, NEW)]])

    def test_refuses_what_it_does_not_understand(self):
        whole = library(container(entry(80, OLD), entry(90, NEW)))
        for arch, data, why in ((70, whole, "no code for the architecture 70"),
                                (90, bytearray(b"#!/bin/sh\n" + bytes(99)), "no 64-bit"),
                                (90, library(container(entry(90, NEW, kind=7))), "kind 7"),
                                (90, library(container(entry(90, NEW))[:-8]), "runs past")):
            with self.assertRaisesRegex(trim.NotUnderstood, why):
                trim.trim(bytearray(data), arch)

    def test_command(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "in.so", Path(folder) / "out.so"
            source.write_bytes(library(container(entry(80, OLD), entry(90, NEW))))
            script = SCRIPTS / "cuda_trim.py"
            good = subprocess.run([sys.executable, script, source, target, "--arch", "90"], capture_output=True, text=True)
            self.assertEqual(good.returncode, 0, good.stderr)
            self.assertEqual(codes(target.read_bytes()), [[(90, NEW)]])
            bad = subprocess.run([sys.executable, script, source, target, "--arch", "60"], capture_output=True, text=True)
            self.assertEqual(bad.returncode, 1)
            self.assertIn("architecture 60", bad.stderr)


if __name__ == "__main__":
    unittest.main()
