"""The types of the package, as mypy --strict of the store's environment "clients" (scripts/venv clients) finds them: in the package, and
in programs that use it, for the oldest Python that the package is for and the newest."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import PACKAGE, SOURCE, missing

VERSIONS = ("3.10", "3.14")
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
        for version in VERSIONS:
            status, said = self.mypy("--config-file", PACKAGE / "mypy.ini", "--python-version", version, PACKAGE / "weir")
            self.assertEqual((0, "Success"), (status, said.split(":")[0]), f"{version}: {said}")

    def test_what_a_python_lacks_is_found(self):
        for version, status in zip(VERSIONS, (1, 0)):
            with self.subTest(version), tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "newer.py").write_text("from typing import Self\n\n__all__ = [\"Self\"]\n")  # of 3.11
                self.assertEqual(status, self.mypy("--config-file", "", "--strict", "--python-version", version, f"{folder}/newer.py")[0])

    def test_a_program_that_uses_it_well_is_without_a_finding(self):
        for version in VERSIONS:
            status, said = self.mypy("--config-file", "", "--strict", "--python-version", version, TYPED / "user.py")
            self.assertEqual((0, "Success"), (status, said.split(":")[0]), f"{version}: {said}")

    def test_mistakes_of_a_program_are_found(self):
        status, said = self.mypy("--config-file", "", "--strict", TYPED / "wrong.py")
        found = re.findall(r":(\d+): error: .*\[([a-z-]+)\]$", said, re.M)
        lines = (TYPED / "wrong.py").read_text(encoding="utf-8").splitlines()
        told = [(str(number), line.split("  # ")[1]) for number, line in enumerate(lines, 1) if "  # " in line]
        self.assertEqual((1, told), (status, found), said)


if __name__ == "__main__":
    unittest.main()
