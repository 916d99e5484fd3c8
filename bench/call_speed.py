#!/usr/bin/env python3
"""What a call of a model costs in Python and in C: bench-call-speed, and beside it the same calls by the package weir, by turns.

    bench/call_speed.py BUILD MODEL [--rounds N] [--calls N] [--extent N] [KEY=VALUE…]

Lines of a table, in microseconds: medians of the rounds; of several runs of both the median is told. The goals: a prepared call from
Python takes at most 10 us more than one from C, and that at most 1.02 of ONNX Runtime alone."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path


def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--extent", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    return parser.parse_args()


def medians(ways, rounds, calls):
    """Microseconds of a call of each, by turns."""
    times = [[] for _ in ways]
    for number in range(-2, rounds):
        for way, of in zip(ways, times):
            start = time.perf_counter()
            for _ in range(calls):
                way()
            if number >= 0:
                of.append((time.perf_counter() - start) / calls * 1e6)
    return [statistics.median(of) for of in times]


def by_python(given):
    import numpy as np
    import weir
    kinds = {weir.Type.F32: np.float32, weir.Type.F64: np.float64, weir.Type.I64: np.int64, weir.Type.I32: np.int32, weir.Type.BOOL: bool,
             weir.Type.U8: np.uint8}
    with weir.load(given.model, settings=dict(each.split("=", 1) for each in given.settings)) as model:
        inputs = {port.name: np.full([given.extent if extent < 0 else extent for extent in port.shape], 1 if port.type == weir.Type.I64 else 0.5)
                  .astype(kinds[port.type]) for port in model.info().inputs}
        with model.prepare(inputs) as call:
            return medians([lambda: model(inputs), call], given.rounds, given.calls)


def main():
    given = words()
    os.environ.setdefault("WEIR_LIBRARY", str(next(given.build.glob("lib/libweir.so.*.*"), given.build / "lib/libweir.so")))
    os.environ.setdefault("WEIR_ENGINE_PATH", str(given.build / "lib/weir"))
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))
    command = [given.build / "bench/bench-call-speed", given.model, "--rounds", given.rounds, "--calls", given.calls, "--extent", given.extent,
               *given.settings]
    found = []
    for _ in range(given.turns):
        done = subprocess.run([str(each) for each in command], check=True, capture_output=True, text=True)
        of_c = json.loads(done.stdout)
        whole, prepared = by_python(given)
        found.append((of_c["plain_us"], of_c["infer_us"], of_c["prepared_us"], of_c["prepared"], whole, prepared, prepared - of_c["prepared_us"]))
    print("| model | plain C, us | weir_model_infer | weir_model_call_run | over plain | Python, model(...) | call() | over C, us |")
    print("|---|---|---|---|---|---|---|---|")
    row = [statistics.median(each) for each in zip(*found)]
    print(f"| {given.model.name} | {row[0]:.1f} | {row[1]:.1f} | {row[2]:.1f} | {row[3]:.3f} | {row[4]:.1f} | {row[5]:.1f} | {row[6]:.1f} |")


if __name__ == "__main__":
    main()
