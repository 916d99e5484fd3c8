#!/usr/bin/env python3
"""What real models take and how quick they are through weir, beside ONNX Runtime alone: a table, a row for each model.

    real_models.py WEIR [--json FILE] [NAME…]    WEIR is the command; NAMEs are parts of file names; scripts/models --real puts the models
                                                 into the store

Each model is loaded and run by ONNX Runtime alone (its wheel's Python module, in a process of its own), and by `weir run`, with the same
inputs, at the same level of optimization and with one thread. Columns:

    same      every byte of every output is the same
    load, run time over the plain engine's: of the load, and of a run
    memory    the account's peak and what lies outside, over what the plain engine's process grew by in load and first run (touched
              anonymous memory after malloc_trim, as `weir run` measures what lies outside)
    weights told, activations told   by `weir predict` with the sizes of the inputs, over what the client held in the run
"""

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = json.loads((HERE.parent / "scripts/real-models.json").read_text())
RUNS = 5
SIZES = [16, 1, 2, 4, 8, 32, 64, 96, 128, 160, 224, 256, 288, 320, 384, 416, 512, 576, 640, 1024]    # as `weir run` tries them

# A process that runs one model by ONNX Runtime alone.
PLAIN = """
import ctypes, json, re, sys, time
import numpy as np
import onnxruntime as ort
folder, path, sizes, runs = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])

def anonymous():
    ctypes.CDLL(None).malloc_trim(0)
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])

def fill(kind, shape):
    name = re.fullmatch(r"tensor\\((\\w+)\\)", kind)[1]
    kinds = {"float": "f4", "double": "f8", "float16": "f2", "bool": "?", "int8": "i1", "uint8": "u1"}
    dtype = np.dtype(kinds.get(name, name))
    if dtype.kind == "f":
        return (np.arange(np.prod(shape, dtype=int)) % 251 / 251).astype(dtype).reshape(shape)
    return np.ones(shape, dtype)

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
options.intra_op_num_threads = 1
options.log_severity_level = 4
ort.get_available_providers()
before, start = anonymous(), time.perf_counter()
session = ort.InferenceSession(path, options)
loaded, tried = time.perf_counter() - start, []
for size in [0] if sizes else SIZES:
    given = {}
    for it in session.get_inputs():
        opens = iter(range(99))
        shape = [n if isinstance(n, int) and n > 0 else 1 if next(opens) == 0 else size for n in it.shape]
        given[it.name] = fill(it.type, sizes.get(it.name, shape) if sizes else shape)
    try:
        base = anonymous()
        results = session.run(None, given)
        break
    except Exception as error:
        tried.append(str(error)[:200])
else:
    print(json.dumps({"error": tried[-1]}))
    sys.exit()
grown, times = anonymous() - before, []
for number, array in enumerate(given.values()):
    np.save(f"{folder}/in{number}.npy", array)
for it, array in zip(session.get_outputs(), results):
    np.save(f"{folder}/plain.{re.sub('[^A-Za-z0-9_.-]', '_', it.name)}.npy", array)
for _ in range(runs):
    start = time.perf_counter()
    session.run(None, given)
    times.append(time.perf_counter() - start)
open_dims = {name: int(n) for it in session.get_inputs() for name, n in zip(it.shape, given[it.name].shape) if isinstance(name, str)}
print(json.dumps({"load": loaded, "run": sum(times) / len(times), "grown": grown, "dims": open_dims,
                  "inputs": list(given), "outputs": [it.name for it in session.get_outputs()]}))
""".replace("SIZES", str(SIZES))


def usual_store(weir):
    options = json.loads(subprocess.run([weir, "options", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    return Path(next(o["value"] for o in options["options"] if o["name"] == "home"))


def plain_module(store, folder):
    """The wheel that the store's ONNX Runtime is out of, unpacked."""
    version = os.readlink(store / "engines/onnxruntime/current")
    wheel = next((store / "downloads").glob(f"onnxruntime-{version}-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def plain(store, module, path, folder, sizes):
    env = os.environ | {"PYTHONPATH": str(module), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([store / "venv/bin/python", "-c", PLAIN, folder, path, json.dumps(sizes), str(RUNS)], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]}
    return json.loads(done.stdout)


def call(weir, *words):
    done = subprocess.run([weir, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          env=os.environ | {"WEIR_PREDICTIONS": "0"})
    said = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    return said if done.returncode == 0 else {"error": done.stderr.strip()[:300] or f"status {done.returncode}"}


def same_bytes(folder, out, name):
    alone = folder / f"plain.{re.sub('[^A-Za-z0-9_.-]', '_', name)}.npy"
    through = [path for path in out.glob("*.npy") if re.sub("[^A-Za-z0-9_.-]", "_", path.stem) == alone.name[len("plain."):-4]]
    if not through:
        return False
    one, other = alone.read_bytes(), through[0].read_bytes()
    length = lambda data: 10 + int.from_bytes(data[8:10], "little")    # noqa: E731: of the header of NPY 1.0
    return one[length(one):] == other[length(other):]


def ratio(a, b):
    return a / b if b else None


def measure(weir, store, module, path, sizes):
    """The row of one model."""
    row = {"name": path.name, "bytes": path.stat().st_size}
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = Path(scratch), Path(scratch) / "out"
        alone = plain(store, module, path, folder, sizes)
        if "error" in alone:
            return row | {"error": f"plain: {alone['error']}"}
        words = ["--set", "threads=1"]
        for number, name in enumerate(alone["inputs"]):
            words += ["--input", f"{name}={folder}/in{number}.npy"]
        ran = call(weir, "run", path, "--json", "--repeat", str(RUNS), "--output", out, "--trace", folder / "trace.csv", *words)
        if "error" in ran:
            return row | {"error": f"weir: {ran['error']}"}
        client = ran["clients"][0]
        dims = ",".join(f"{name}={size}" for name, size in alone["dims"].items())
        told = call(weir, "predict", path, "--json", "--cold", *(["--set", f"dims={dims}"] if dims else []), "--set", "threads=1")
        row["same"] = all(same_bytes(folder, out, name) for name in alone["outputs"])
        row |= {"load": ratio(client["load_seconds"], alone["load"]), "run": ratio(client["seconds"] / client["runs"], alone["run"]),
                "memory": ratio(client["peak"] + client["outside"], alone["grown"])}
        row |= held(folder / "trace.csv") | {"peak": client["peak"], "outside": client["outside"], "plain": alone["grown"]}
        if "error" in told:
            return row | {"error": told["error"]}
        row |= {f"{name} told": ratio(told["peak"][name], row[name]) for name in ("weights", "activations")}
    return row


def held(trace):
    """Weights when the model has been loaded, and the most activations, of the trace of a run."""
    live, sizes, most, weights = {"weights": 0, "activations": 0}, {}, 0, 0
    with open(trace, newline="", encoding="utf-8") as file:
        for event in csv.DictReader(file):
            kind, action, at = event["Class"], event["Action"], event["Pointer"]
            if action == "free" and at in sizes:
                kind, size = sizes.pop(at)
                live[kind] -= size
            elif action == "allocate" and kind in live:
                sizes[at] = kind, int(event["Size"])
                live[kind] += int(event["Size"])
            if live["activations"] > most:
                most, weights = live["activations"], live["weights"]
    return {"weights": weights, "activations": most}


COLUMNS = ("load", "run", "memory", "weights told", "activations told")


def table(rows):
    print("| model | same | " + " | ".join(COLUMNS) + " |\n|---|---|" + "---|" * len(COLUMNS))
    for row in rows:
        shown = [f"{row[name]:.2f}" if row.get(name) else "-" for name in COLUMNS]
        print(f"| {row['name']} | {'yes' if row.get('same') else row.get('error', 'no')[:80]} | " + " | ".join(shown) + " |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("weir")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json")
    args = parser.parse_args()
    weir = str(Path(args.weir).absolute())
    store = usual_store(weir)
    given = {name: sizes for pin in PINS.values() for name, sizes in pin.get("inputs", {}).items()}
    paths = [path for path in sorted((store / "models/real").glob("*.onnx"))
             if not args.names or any(name in path.name for name in args.names)]
    if not paths:
        sys.exit("there are no such models: scripts/models --real")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        module = plain_module(store, Path(scratch))
        for path in paths:
            rows.append(measure(weir, store, module, path, given.get(path.name, {})))
            print(f"{path.name}: {rows[-1].get('error', 'done')}", file=sys.stderr, flush=True)
    table(rows)
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
