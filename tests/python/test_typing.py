"""The types of the package, as mypy --strict of the store's environment "clients" (scripts/venv clients) finds them: in the package, and
in programs that use it."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import PACKAGE, SOURCE, missing

TYPED = SOURCE / "tests/python/typed"
MYPY = Path(os.environ.get("WEIR_HOME") or "/nonexistent") / "clients/bin/mypy"


class Types(unittest.TestCase):
    def setUp(self):
        if not MYPY.exists():
            missing(f"{MYPY} (scripts/venv clients)")

    def mypy(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([MYPY, "--cache-dir", folder, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
                                  cwd=folder, env={**os.environ, "MYPYPATH": str(PACKAGE)})
        return done.returncode, done.stdout

    def test_the_package_is_without_a_finding(self):
        status, said = self.mypy("--config-file", PACKAGE / "mypy.ini", PACKAGE / "weir")
        self.assertEqual((0, "Success"), (status, said.split(":")[0]), said)

    def test_a_program_that_uses_it_well_is_without_a_finding(self):
        status, said = self.mypy("--config-file", "", "--strict", TYPED / "user.py")
        self.assertEqual((0, "Success"), (status, said.split(":")[0]), said)

    def test_mistakes_of_a_program_are_found(self):
        status, said = self.mypy("--config-file", "", "--strict", TYPED / "wrong.py")
        found = re.findall(r":(\d+): error: .*\[([a-z-]+)\]$", said, re.M)
        lines = (TYPED / "wrong.py").read_text(encoding="utf-8").splitlines()
        told = [(str(number), line.split("  # ")[1]) for number, line in enumerate(lines, 1) if "  # " in line]
        self.assertEqual((1, told), (status, found), said)


if __name__ == "__main__":
    unittest.main()
