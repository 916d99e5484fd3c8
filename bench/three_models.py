#!/usr/bin/env python3
"""What models of both engines take of a device together in one process of weir's, beside what each takes with its own
allocator in a process of its own.

    bench/three_models.py FOLDER --onnx FILE:FIRSTxREST… --llama NAME=FILE:PROMPT+TOKENS… [--context N] [--json FILE]

FOLDER has bench-three-models, bench-llama-plain and test-onnx-gpu, in bench/ and tests/. The ONNX models are all beside
each of the llamas, one after the other. Every reading is what the driver says is taken, less what it was before the
models; by then each process has had its model once before, so that CUDA's context and code, and the libraries' first
handles, are in none. A row is a llama; weights are those that weir has in its account, which both sides have. Exit
status 1: a process failed."""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

MIB = 1 << 20
HEAD = ("| llama | alone, summed | together | ratio | weights | the rest alone | the rest together | ratio |\n"
        "|---|---|---|---|---|---|---|---|")


def run(words, limit):
    """What a process says last; None when it failed."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, check=False)
        answer, said = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None, done.stderr
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        answer, said = None, str(error)
    if answer is None:
        print(f"FAILED {' '.join(map(str, words))}: {said.strip()[-600:]}", flush=True)
    return answer


def split(word):
    """The file of FILE:SHAPE, and both numbers of the shape."""
    path, _, shape = word.rpartition(":")
    return path, *re.split("[x+]", shape)


def plain_onnx(given, word):
    path, first, rest = split(word)
    answer = run([given.folder / "tests/test-onnx-gpu", "cuda", "plain", "again", path, first, rest, "4"], 60)
    return answer and answer["taken"]


def plain_llama(given, word):
    path, prompt, tokens = split(word)
    answer = run([given.folder / "bench/bench-llama-plain", path, "--context", given.context, "--again", "1",
                  "--rounds", "1", "--prompts", prompt, "--after", prompt, "--tokens", tokens], 60)
    return answer and answer["memory"]["taken"]


def together(given, llama):
    more = ["--answers", "any"] if given.stub else []
    return run([given.folder / "bench/bench-three-models", "together", "--context", given.context, "--rounds", given.rounds, *more,
                *given.onnx, llama], 120)


def row(name, alone, both):
    weights = sum(model["weights"] for model in both["models"])
    all_of_it = both["at_once"]["taken"]
    rest = (alone - weights, all_of_it - weights)
    cells = [f"{value / MIB:.0f} MiB" for value in (alone, all_of_it, weights, *rest)]
    cells.insert(2, f"{all_of_it / alone:.3f}" if alone else "-")
    cells.append(f"{rest[1] / rest[0]:.3f}" if rest[0] > 0 else "-")
    return f"| {name} | {' | '.join(cells)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--onnx", nargs="+", default=[], metavar="FILE:SHAPE")
    parser.add_argument("--llama", nargs="+", default=[], metavar="NAME=FILE:SHAPE")
    parser.add_argument("--context", default="8192")
    parser.add_argument("--rounds", default="8")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--stub", action="store_true", help="answers mean nothing")
    given = parser.parse_args()
    onnx = {word: plain_onnx(given, word) for word in given.onnx}
    told, rows, good = {"onnx": onnx, "llama": {}}, [], None not in onnx.values()
    for name, word in (text.split("=", 1) for text in given.llama):
        alone, both = plain_llama(given, word), together(given, word)
        told["llama"][name] = {"alone": alone, "together": both}
        if alone is None or both is None or not good:
            good = False
            continue
        rows.append(row(name, alone + sum(onnx.values()), both))
        for model in both["models"]:
            print(f"{name}: {model['name']}: " + ", ".join(f"{key} {model[key] / MIB:.1f} MiB" for key in (
                "weights", "kv", "scratch", "peak", "held_alone", "taken_alone")) + f"; {model['runs']} runs, "
                f"{model['different']} different", flush=True)
        print(f"{name}: alone {alone / MIB:.1f} MiB, by turns {both['by_turns']}, at once {both['at_once']}", flush=True)
    print("alone with their own arenas: " + ", ".join(
        f"{Path(split(word)[0]).name} {taken / MIB:.1f} MiB" for word, taken in onnx.items() if taken is not None))
    print("\n".join([HEAD, *rows]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(told, indent=1) + "\n")
    sys.exit(0 if good and rows else 1)


if __name__ == "__main__":
    os.environ.setdefault("WEIR_LOG", "error")
    main()
