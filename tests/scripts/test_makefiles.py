#!/usr/bin/env python3
"""The build by make: its rules, each of which runs once in a fresh tree.

Ninja finds what makes a file wherever that is told; make only within a target, so that another target's file has to be there before.
Compilers are left out (their outputs are empty objects) and so are linkers: what is looked at is that the rules come in an order
that works. Run with any python3: python3 tests/scripts/test_makefiles.py
"""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# In the place of a compiler or a linker: its output, as an object without anything in it.
LAUNCHER = """#!/bin/sh
while [ $# -gt 1 ]; do
    if [ "$1" = -o ]; then exec cp "${0%/*}/empty.o" "$2"; fi
    shift
done
echo "no output was named" >&2
exit 1
"""


@unittest.skipUnless(shutil.which("make") and shutil.which("cmake"), "make or cmake is not here")
class Makefiles(unittest.TestCase):
    def call(self, *command):
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("CMAKE_GENERATOR", "MAKEFLAGS", "MAKELEVEL", "DESTDIR") and not name.endswith("_COMPILER_LAUNCHER")}
        done = subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1000,
                              env=environment, check=False)
        telling = [line for line in done.stdout.splitlines() if "***" in line or "rror" in line]
        self.assertEqual(done.returncode, 0, "\n".join(telling or done.stdout.splitlines()[-30:]))

    def test_products(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            (folder / "empty.c").touch()
            launcher, tree = folder / "launcher", folder / "tree"
            launcher.write_text(LAUNCHER)
            launcher.chmod(0o755)
            compiler = os.environ.get("CC", "cc")
            self.call(compiler, "-c", folder / "empty.c", "-o", folder / "empty.o")
            launchers = [f"-DCMAKE_{language}_{kind}_LAUNCHER={launcher}" for language in ("C", "CXX") for kind in ("COMPILER", "LINKER")]
            self.call("cmake", "-G", "Unix Makefiles", "-S", ROOT, "-B", tree, f"-DCMAKE_C_COMPILER={compiler}", "-DWEIR_TESTS=OFF",
                      *launchers)
            self.call("make", "-C", tree, "-j2", "products")
            for name, room in (("lib/libweir.a", "src"), ("lib/libweir.so", "src"), ("bin/weir", "src/cli"), ("bin/weir-sim", "src/cli"),
                               ("bin/weir-bench", "bench/command")):
                if (tree / room / "Makefile").exists():
                    self.assertTrue((tree / name).exists(), name)


if __name__ == "__main__":
    unittest.main()
