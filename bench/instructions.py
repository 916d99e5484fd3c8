#!/usr/bin/env python3
"""Counts the instructions of an allocation and of a free.

    bench/instructions.py                              every load, as a table
    bench/instructions.py --beside OTHER/build/release another build in the same table, and the ratio to it
    bench/instructions.py --only pair-miss --functions 30   and the functions in which most instructions are

bench/instructions.c runs each load under valgrind's callgrind, which counts while weir_alloc and weir_free work: the
same on every machine with the same compiler and C library, and whatever else the machine does. "Locked" are the
instructions with a lock prefix among them, and "calls" the calls of functions. Waiting threads and the simulated
order of the device are counted where they happen in these calls, and not otherwise.

Needs valgrind and objdump (Debian: apt-get install valgrind binutils), and cmake --build build/release --target
bench-instructions."""

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COUNTED = ("counted_alloc", "counted_free")


class Load(NamedTuple):
    name: str
    what: str
    words: tuple  # of bench-instructions; COUNT stands for the number of calls


LOADS = [
    Load("pair-hit", "pair, 4 KiB, thread-cached", ("pair", "4096", "COUNT", "default")),
    Load("pair-hit-large", "pair, 1 MiB, thread-cached", ("pair", "1048576", "COUNT", "default")),
    Load("pair-miss", "pair, 4 KiB, no thread cache", ("pair", "4096", "COUNT", "0")),
    Load("pair-miss-large", "pair, 1 MiB, no thread cache", ("pair", "1048576", "COUNT", "0")),
    Load("random-miss", "random, 1,000 live, any size, no thread cache", ("random", "0", "COUNT", "0")),
    Load("random", "random, 1,000 live, any size", ("random", "0", "COUNT", "default")),
    Load("handed", "freed by another thread, 64 KiB, batches of 64", ("handed", "65536", "COUNT", "default")),
]


class Counts(NamedTuple):
    alloc: float  # of one call each
    free: float
    locked: float  # of an allocation and a free
    calls: float
    functions: list  # (instructions, name)


def fail(text):
    sys.exit(f"{Path(sys.argv[0]).name}: {text}")


def locked_in(binary, known={}):
    """The addresses of the binary's instructions that lock the bus."""
    if binary not in known:
        said = subprocess.run(["objdump", "-d", "--no-show-raw-insn", binary], capture_output=True, text=True)
        lines = re.finditer(r"^\s*([0-9a-f]+):\s+(?:lock\b|xchg\s.*\()", said.stdout, re.M)
        known[binary] = {int(line[1], 16) for line in lines}
    return known[binary]


def read(path, count):
    """What callgrind wrote, divided by the calls of each."""
    inclusive, own = collections.Counter(), collections.Counter()
    binary = name = callee = ""
    locked = calls = 0
    for line in path.read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "ob":
            binary = value
        elif key == "fn":
            name = value
        elif key == "cfn":
            callee = value
        elif key == "calls":
            number = int(value.split()[0])
            calls += number if callee not in COUNTED else 0
        elif line.startswith("0x"):
            address, _, cost = line.split()
            if callee:
                inclusive[name] += int(cost)
                callee = ""
                continue
            own[name] += int(cost)
            inclusive[name] += int(cost)
            if os.path.isfile(binary) and int(address, 16) in locked_in(binary):
                locked += int(cost)
    by_name = [(cost / count, name) for name, cost in own.most_common()]
    return Counts(*(inclusive[name] / count for name in COUNTED), locked / count, calls / count, by_name)


def measure(load, program, library, count):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        words = [word.replace("COUNT", str(count)) for word in load.words]
        toggles = [f"--toggle-collect={name}" for name in COUNTED]
        command = ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no",
                   f"--callgrind-out-file={out}", *toggles, program, *words]
        said = subprocess.run(command, capture_output=True, text=True,
                              env=dict(os.environ, LD_LIBRARY_PATH=str(library)))
        if said.returncode != 0:
            fail(f"{load.name}: {said.stderr[-500:]}")
        return read(out, count)


def row(cells):
    print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="default: build/release")
    parser.add_argument("--beside", type=Path, help="another build, whose libweir is counted too")
    parser.add_argument("--only", action="append", choices=[load.name for load in LOADS], help="this load alone")
    parser.add_argument("--count", type=int, default=6400, help="calls of each kind (default 6400)")
    parser.add_argument("--functions", type=int, default=0, help="print so many functions of each load")
    args = parser.parse_args()
    program = args.build / "bench/bench-instructions"
    for tool in ("valgrind", "objdump"):
        if not shutil.which(tool):
            fail(f"{tool} is not installed (Debian: apt-get install valgrind binutils)")
    if not program.is_file():
        fail(f"{program} is not there: cmake --build {args.build} --target bench-instructions")
    titles = ["load", "alloc", "free", "both", "locked", "calls"] + (["both, beside", "ratio"] if args.beside else [])
    row(titles)
    row(["---"] * len(titles))
    for load in LOADS:
        if args.only and load.name not in args.only:
            continue
        here = measure(load, program, args.build / "lib", args.count)
        both = here.alloc + here.free
        cells = [load.what, *(f"{n:,.0f}" for n in (here.alloc, here.free, both)), f"{here.locked:.1f}",
                 f"{here.calls:.1f}"]
        if args.beside:
            other = measure(load, program, args.beside / "lib", args.count)
            cells += [f"{other.alloc + other.free:,.0f}", f"{both / (other.alloc + other.free):.2f}"]
        row(cells)
        for cost, name in here.functions[:args.functions]:
            print(f"{cost:10.1f}  {name}")


if __name__ == "__main__":
    main()
