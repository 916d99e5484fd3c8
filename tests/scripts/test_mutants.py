"""scripts/mutants: each mistake can still be made."""

import shutil
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@unittest.skipUnless(shutil.which("git"), "git is not here")
class Mutants(unittest.TestCase):
    def test_they_apply(self):
        patches = sorted((ROOT / "tests/mutants").glob("*.patch"))
        self.assertGreater(len(patches), 100)
        stale = [patch.stem for patch in patches
                 if subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, check=False).returncode]
        self.assertEqual(stale, [], "these are to be made anew from what the code is now")


if __name__ == "__main__":
    unittest.main()
