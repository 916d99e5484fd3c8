"""libweir opened from Python, alone and beside PyTorch where that is installed: opened.py LIBRARY"""

import importlib.util
import subprocess
import sys

WORK = """
import ctypes
weir = ctypes.CDLL({library!r})
weir.weir_version.restype = ctypes.c_char_p
assert weir.weir_version()
runtime = ctypes.c_void_p()
assert weir.weir_runtime_get(b"host", None, ctypes.byref(runtime)) == 0 and runtime.value
"""
TORCH = "import torch\nassert float(torch.ones(3).sum()) == 3\n"


def passes(name, program):
    result = subprocess.run([sys.executable, "-c", program], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"[  {'     OK' if result.returncode == 0 else ' FAILED'} ] {name}\n{result.stdout}", end="")
    return result.returncode == 0


def main():
    work = WORK.format(library=sys.argv[1])
    good = passes("alone", work)
    if importlib.util.find_spec("torch"):
        good = passes("after torch", TORCH + work) and passes("before torch", work + TORCH) and good
    else:
        print("[  SKIPPED ] 2 test(s): there is no PyTorch here")
    return not good


if __name__ == "__main__":
    sys.exit(main())
