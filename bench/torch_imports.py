#!/usr/bin/env python3
"""What `import weir`, `import weir.torch` and `use()` take, in fresh processes and in any order of imports: one table.

    bench/torch_imports.py [--package FOLDER] [--repeats 5] [--json FILE]

Of an import by weir the time is told that weir itself adds: what the frameworks take that it imports is taken off. The package is
compiled first, as pip does it. An order ends with a tensor whose numbers are looked at, and, after use(), whether it is memory of
weir's client. What is not installed here is left out, and said. The exit status is 1 when an order did not work."""

import argparse
import compileall
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL = 50  # ms
FOREIGN = ("torch", "cupy", "numba", "numpy")
USED = ("use", "tensor")
ORDERS = (("weir",), ("torch", "tensor"), ("torch", "weir.torch", *USED), ("weir.torch", *USED), ("weir", "torch", "weir.torch", *USED),
          ("torch", "weir", "weir.torch", *USED), ("cupy", "torch", "weir.torch", *USED), ("weir.torch", "use", "cupy", "tensor"),
          ("weir.cupy", "weir.torch", *USED), ("weir.torch", "use", "weir.cupy", "tensor"), ("numba.cuda", "weir.torch", *USED),
          ("weir.torch", "use", "numba.cuda", "tensor"), ("weir.numba", "weir.torch", *USED))
OWN = ("weir", "weir.torch", "use", "tensor")  # columns


# ---- in a fresh process ----------------------------------------------------------------------------------------------

class Foreign:
    """Milliseconds in imports of others, the outermost alone."""

    def __init__(self):
        import builtins
        self.ms, self.inside, self.plain = 0.0, False, builtins.__import__
        builtins.__import__ = self

    def __call__(self, name, *more, **words):
        if self.inside or name.partition(".")[0] not in FOREIGN:
            return self.plain(name, *more, **words)
        self.inside, start = True, time.perf_counter()
        try:
            return self.plain(name, *more, **words)
        finally:
            self.ms += 1000 * (time.perf_counter() - start)
            self.inside = False


def tensor(device, used):
    import torch
    many = torch.ones(1 << 20, device=device)
    if float(many.sum()) != 1 << 20:
        raise RuntimeError("a sum is wrong")
    if used and device == "cuda" and used.client().stats().live < 4 << 20:
        raise RuntimeError("the tensor is no memory of weir's client")


def go(order, device):
    """Times by word, in milliseconds."""
    import importlib
    foreign, took, used = Foreign(), {}, None
    for word in order:
        start, of_others = time.perf_counter(), foreign.ms
        if word == "use":
            used = sys.modules["weir.torch"].use()
        elif word == "tensor":
            tensor(device, used)
        else:
            importlib.import_module(word)
        took[word] = 1000 * (time.perf_counter() - start) - (foreign.ms - of_others if word.startswith("weir") else 0)
    print(json.dumps(took))


# ---- all of them -----------------------------------------------------------------------------------------------------

def installed(order):
    """The libraries of an order that are not here."""
    import importlib.util
    wanted = {word.removeprefix("weir.").partition(".")[0] for word in order if word not in ("weir", *USED)}
    return sorted(name for name in wanted if not importlib.util.find_spec(name))


def once(order, given, package, end):
    """Times, or why there are none."""
    if time.monotonic() >= end:
        return "the time was over"
    line = [sys.executable, "-B", Path(__file__).resolve(), "--device", given.device, "--go", ",".join(order)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))}
    try:
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True, env=environment, check=False,
                              timeout=max(1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "the time was over"
    if done.returncode:
        return f"status {done.returncode}: " + " | ".join((done.stdout + done.stderr).splitlines()[-4:])[-400:]
    return json.loads(done.stdout.splitlines()[-1])


def compiled(given, folder):
    """The package with its bytecode."""
    package = Path(folder) / "package"
    shutil.copytree(given.package / "weir", package / "weir", ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(package, quiet=2)
    return package


def measure(given, orders):
    """By order its runs, all orders once before the next time."""
    end = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as folder:
        package = compiled(given, folder)
        once(("weir",), given, package, end)  # files are read from the disk once
        with concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
            started = [(order, pool.submit(once, order, given, package, end)) for _ in range(given.repeats) for order in orders]
            runs = {order: [] for order in orders}
            for order, run in started:
                runs[order].append(run.result())
    return runs


def median(runs, word):
    times = [run[word] for run in runs if isinstance(run, dict) and word in run]
    return round(statistics.median(times), 1) if times else None


def tell(runs):
    print("| imports, in this order | " + " | ".join(f"{word}, ms" for word in OWN) + " |\n|" + " --- |" * (len(OWN) + 1))
    for order, done in runs.items():
        cells = [median(done, word) for word in OWN]
        print("| " + " | ".join([", ".join(order), *("" if cell is None else f"{cell:.1f}" for cell in cells)]) + " |")
    print()
    for word in OWN[:-1]:
        slowest = max((median(done, word) or 0 for done in runs.values()), default=0)
        print(f"{'ok  ' if slowest <= GOAL else 'MISS'} {word}: at most {slowest:.1f} ms in any order, the goal is {GOAL}")


def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, default=ROOT / "python", metavar="FOLDER", help="where the package weir is")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="processes of each order")
    parser.add_argument("--at-once", type=int, default=3, metavar="N", help="processes")
    parser.add_argument("--seconds", type=float, default=500, metavar="N", help="for all")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu rehearses: the tensor lies there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="for all that was measured")
    parser.add_argument("--go", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.repeats < 1 or given.at_once < 1:
        parser.error("--repeats and --at-once are at least 1")
    return given


def main():
    given = words()
    if given.go:
        go(given.go.split(","), given.device)
        return 0
    missing = {order: installed(order) for order in ORDERS}
    runs = measure(given, [order for order in ORDERS if not missing[order]])
    tell(runs)
    for order in filter(missing.get, ORDERS):
        print(f"left out: {', '.join(order)}: no {', '.join(missing[order])} here")
    failures = sorted({f"{', '.join(order)}: {run}" for order, done in runs.items() for run in done if isinstance(run, str)})
    for failure in failures:
        print(f"FAILED {failure}")
    if given.json:
        given.json.write_text(json.dumps({"runs": {", ".join(order): done for order, done in runs.items()}, "failures": failures}, indent=1) + "\n")
    return 1 if any("the time was over" not in failure for failure in failures) else 0


if __name__ == "__main__":
    sys.exit(main())
