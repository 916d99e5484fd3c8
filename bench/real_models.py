#!/usr/bin/env python3
"""What real models take and how quick they are through weir, beside ONNX Runtime alone: a table, a row for each model.

    real_models.py WEIR [--json FILE] [NAME…]    WEIR is the command; NAMEs are parts of file names; scripts/models --real puts the models
                                                 into the store

Each model is run by ONNX Runtime alone (its wheel's Python module, for the answer; bench-plain-model over the same library as weir's,
for time and memory) and by `weir run`, in a process each, by turns and three times, with the same inputs, level of optimization and
number of runs, on one thread. Columns:

    size, package   of the file, and where it is out of
    same      every byte of every output is the same
    load, run time over the plain engine's, the quickest of three each: of the load, and of a run behind the first, of as many as take
              a fifth of a second together
    memory    what the account has at its peak in the runs, and what lies outside, over what the plain engine's process grew by from
              before the load to behind the same runs (touched anonymous memory after malloc_trim, as `weir run` measures what lies
              outside). Nothing is subtracted: what the first session takes once in a process is in both; the row of the smallest
              model, of 2 KiB, is that alone
    plain     what the plain engine's process grew by, in MiB
    process   the most that the whole process had at any time, loading too, libraries and mapped files too, over the plain one's
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
ROUNDS = 3
RUNS, RUNNING = (5, 1000), 0.2    # the least and the most runs behind the first, and the seconds that they are to take
STEP = 256    # of what a block is charged
SIZES = [16, 1, 2, 4, 8, 32, 64, 96, 128, 160, 224, 256, 288, 320, 384, 416, 512, 576, 640, 1024]    # as `weir run` tries them

# A process that runs one model by ONNX Runtime alone, for its answer, and writes inputs with which it runs.
PLAIN = """
import json, re, sys
import numpy as np
import onnxruntime as ort
folder, path, sizes = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

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
session, tried = ort.InferenceSession(path, options), []
for size in [0] if sizes else SIZES:
    given = {}
    for it in session.get_inputs():
        opens = iter(range(99))
        shape = [n if isinstance(n, int) and n > 0 else 1 if next(opens) == 0 else size for n in it.shape]
        given[it.name] = fill(it.type, sizes.get(it.name, shape) if sizes else shape)
    try:
        results = session.run(None, given)
        break
    except Exception as error:
        tried.append(str(error)[:200])
else:
    print(json.dumps({"error": tried[-1]}))
    sys.exit()
words = []
for number, (it, array) in enumerate(zip(session.get_inputs(), given.values())):
    np.save(f"{folder}/in{number}.npy", array)
    array.tofile(f"{folder}/in{number}.bin")
    kind = "bool" if array.dtype.kind == "b" else f"{array.dtype.kind}{8 * array.dtype.itemsize}"
    words += [it.name, kind, "x".join(map(str, array.shape)) or "-", f"{folder}/in{number}.bin"]
for it, array in zip(session.get_outputs(), results):
    np.save(f"{folder}/plain.{re.sub('[^A-Za-z0-9_.-]', '_', it.name)}.npy", array)
open_dims = {name: int(n) for it in session.get_inputs() for name, n in zip(it.shape, given[it.name].shape) if isinstance(name, str)}
print(json.dumps({"dims": open_dims, "inputs": list(given), "words": words, "outputs": [it.name for it in session.get_outputs()]}))
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
    done = subprocess.run([store / "venv/bin/python", "-c", PLAIN, folder, path, json.dumps(sizes)], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]}
    return json.loads(done.stdout)


def call(*words):
    """What the command says, and the most memory that its process had, libraries and all."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(words, stdout=out, stderr=err, env=os.environ | {"WEIR_PREDICTIONS": "0"})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        for file in (out, err):
            file.seek(0)
        text, wrong = out.read().decode(), err.read().decode(errors="replace").strip()
    said = json.loads(text) if text.startswith("{") else {}
    return said | {"most": 1024 * usage.ru_maxrss} if process.returncode == 0 else {"error": wrong[:300] or f"status {process.returncode}"}


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


def runs_of(said):
    """Few runs would tell what the command does once before them."""
    least, most = RUNS
    return str(min(most, max(least, int(RUNNING / said["run"])))) if said.get("run") else str(least)


def by_turns(plain_words, weir_words):
    """Both, each in a process of its own, ROUNDS times: the quickest of each, and the last with what it says of memory."""
    fields = {"plain": ("load", "run"), "weir": ("load_seconds", "seconds")}
    best = {"plain": {}, "weir": {}}
    for _ in range(ROUNDS):
        for side, words in (("plain", plain_words), ("weir", weir_words)):
            said = call(*words)
            if "error" in said:
                return {"error": f"{side}: {said['error']}"}
            it = said if side == "plain" else said["clients"][0] | {"most": said["most"]}
            quickest = {name: min(it[name], best[side].get(name, it[name])) for name in fields[side]}
            best[side] = it | quickest
    return best


def measure(weir, store, module, path, sizes):
    """The row of one model."""
    row = {"name": path.name, "bytes": path.stat().st_size}
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = Path(scratch), Path(scratch) / "out"
        answer = plain(store, module, path, folder, sizes)
        if "error" in answer:
            return row | {"error": f"plain: {answer['error']}"}
        words = ["--set", "threads=1"]
        for number, name in enumerate(answer["inputs"]):
            words += ["--input", f"{name}={folder}/in{number}.npy"]
        alone = [Path(weir).parent.parent / "bench/bench-plain-model", path]
        rest = [*answer["words"], "--", *answer["outputs"]]
        runs = runs_of(call(*alone, str(RUNS[0]), *rest))
        both = by_turns([*alone, runs, *rest], [weir, "run", path, "--json", "--repeat", runs, *words])
        traced = call(weir, "run", path, "--json", "--repeat", "2", "--output", out, "--trace", folder / "trace.csv", *words)
        if "error" in both or "error" in traced:
            return row | {"error": both.get("error") or f"weir: {traced['error']}"}
        alone, client = both["plain"], both["weir"]
        dims = ",".join(f"{name}={size}" for name, size in answer["dims"].items())
        told = call(weir, "predict", path, "--json", "--cold", *(["--set", f"dims={dims}"] if dims else []), "--set", "threads=1")
        row["same"] = all(same_bytes(folder, out, name) for name in answer["outputs"])
        row |= held(folder / "trace.csv") | {"outside": client["outside"], "plain": alone["grown"]}
        row |= {"load": ratio(client["load_seconds"], alone["load"]), "run": ratio(client["seconds"] / client["runs"], alone["run"]),
                "memory": ratio(row["account"] + client["outside"], alone["grown"]), "process": ratio(client["most"], alone["most"])}
        if "error" in told:
            return row | {"error": told["error"]}
        row |= {f"{name} told": ratio(told["peak"][name], row[name]) for name in ("weights", "activations")}
    return row


def held(trace):
    """Weights when the model has been loaded, the most activations, and the most of both together from the first activation on."""
    live, sizes, most = {"weights": 0, "activations": 0}, {}, {"weights": 0, "activations": 0, "account": 0}
    with open(trace, newline="", encoding="utf-8") as file:
        for event in csv.DictReader(file):
            kind, action, at = event["Class"], event["Action"], event["Pointer"]
            if action == "free" and at in sizes:
                kind, size = sizes.pop(at)
                live[kind] -= size
            elif action == "allocate" and kind in live:
                sizes[at] = kind, (int(event["Size"]) + STEP - 1) // STEP * STEP
                live[kind] += sizes[at][1]
            if live["activations"]:
                most["account"] = max(most["account"], sum(live.values()))
            if live["activations"] > most["activations"]:
                most |= live
    return most


COLUMNS = ("load", "run", "memory", "process", "weights told", "activations told")


def number(value):
    return f"{value:.2f}" if value else "-"


def table(rows):
    print("| package | model | KiB | same | plain, MiB | " + " | ".join(COLUMNS) + " |\n|---|---|---|---|---|" + "---|" * len(COLUMNS))
    for row in rows:
        package = max((name for name in PINS if row["name"].startswith(f"{name}.")), key=len, default="")
        told = "yes" if row.get("same") else row.get("error", "no")[:80]
        print(f"| {package} | {row['name'].removeprefix(f'{package}.').removesuffix('.onnx')} | {row['bytes'] / 1024:.0f} | {told} | "
              f"{row.get('plain', 0) / (1 << 20):.2f} | " + " | ".join(number(row.get(name)) for name in COLUMNS) + " |")
    for name, least, most in (("memory", 0, 1.05), ("weights told", 0.97, 1.03), ("activations told", 0.9, 1.1)):
        good = sum(1 for row in rows if row.get(name) and least <= row[name] <= most)
        print(f"\n{name}: {good} of {len(rows)} in {least} to {most}", end="")
    print(f"\nsame: {sum(1 for row in rows if row.get('same'))} of {len(rows)}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1].strip())
    parser.add_argument("weir")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json")
    args = parser.parse_intermixed_args()
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
