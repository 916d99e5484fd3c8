"""real.py FILE: runs a test of this folder over the real libraries, by the Python of the store's environment "frameworks" that has them
(scripts/venv frameworks). Where it is not there the test is skipped, or fails under WEIR_REQUIRE_ENGINES=1."""

import os
import sys
from pathlib import Path

SKIPPED = 77


def main():
    python = Path(os.environ.get("WEIR_HOME") or "/nonexistent") / "frameworks/bin/python"
    if not python.exists():
        print(f"not here: {python} (scripts/venv frameworks)")
        return 1 if os.environ.get("WEIR_REQUIRE_ENGINES") == "1" else SKIPPED
    test = Path(__file__).resolve().parent / sys.argv[1]
    os.execve(python, [str(python), "-B", "-X", "dev", str(test)], {**os.environ, "WEIR_TEST_REAL": "1"})


if __name__ == "__main__":
    sys.exit(main())
