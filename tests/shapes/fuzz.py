"""Runs the fuzzer of models, PROGRAM, COUNT times: on the small models of tests/data, and on those that models.py makes
where the store has what that needs. `--libfuzzer`: PROGRAM is libFuzzer's."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = Path(os.environ.get("WEIR_TEST_STORE", "/nonexistent")) / "venv/bin/python"


def main():
    program, count = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="weir-fuzz-") as folder:
        for model in (HERE.parent / "data/onnx").glob("*.onnx"):
            shutil.copy(model, folder)
        if PYTHON.exists():
            subprocess.run([PYTHON, "-B", HERE / "models.py", folder], check=True)
            for rest in ("resnet50.data", "expected.json"):
                (Path(folder) / rest).unlink()
        if "--libfuzzer" in sys.argv:
            words = [f"-runs={count}", "-seed=1", "-max_len=20000", "-timeout=20", "-rss_limit_mb=4096",
                     f"-artifact_prefix={folder}/", folder]
        else:
            words = [count, folder]
        done = subprocess.run([program, *words], check=False)
        for crash in Path(folder).glob("crash-*"):
            print(crash.name, crash.read_bytes().hex())
    sys.exit(done.returncode)


main()
