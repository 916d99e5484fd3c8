#!/usr/bin/env python3
"""PyTorch programs through PyTorch's own allocator, through that with expandable segments, and through weir.

    bench/torch_programs.py --program gpt2 --allocator weir      one run, a line of JSON
    bench/torch_programs.py --table                              each program with each allocator, and the smallest caps
    bench/torch_programs.py --compare weir weir:thread_cache=0   these by turns, as often as --rounds says

The programs are gpt2 (training), bert (serving) and llama (generation); bench/torch_models.py says what a step of each
is. A run is a process of its own, as PyTorch's allocator is chosen once. weir comes in through bench/torch_seam.c:
cmake --build build/release --target torch-seam. Exit status 3 of one run: an allocation was refused.

--table prints Markdown: the time of a step and what was held at the peak without a cap, and the smallest of some caps
under which the program ran, each a multiple of what it requested at its peak. Several caps are tried at once; times are
measured alone. --compare does the same steps with each of the variants by turns; of each step it takes the shortest
time and the median of all rounds, and prints their means. A variant is an allocator, or weir with options:
weir:reuse_wait=0,thread_cache=1MiB."""

import argparse
import concurrent.futures
import ctypes
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SEAM = ROOT / "build/release/bench/libtorch-seam.so"
MIB = 1 << 20
REFUSED = 3
STEPS = {"gpt2": (8, 30), "bert": (15, 60), "llama": (3, 12)}  # to warm up, measured
ALLOCATORS = {"torch": "PyTorch", "expandable": "PyTorch, expandable segments", "weir": "weir"}
COUNTS = ("allocations", "driver_calls")
RATIOS = (1.005, 1.01, 1.015, 1.02, 1.03, 1.04, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 3)  # caps over the peak


# ---- one run ---------------------------------------------------------------------------------------------------------

class Native:
    """PyTorch's own, whose settings are in the environment before PyTorch is loaded."""

    def __init__(self, torch, given):
        self.torch, self.expandable = torch, given.allocator == "expandable"
        torch.cuda.init()
        if given.cap:
            total = torch.cuda.mem_get_info()[1]
            # It multiplies again and cuts off: half a byte more makes that the cap.
            torch.cuda.set_per_process_memory_fraction(min(1.0, (given.cap * MIB + 0.5) / total))

    def statistics(self):
        now = self.torch.cuda.memory_stats()
        return {"peak_requested": now["requested_bytes.all.peak"], "peak_live": now["allocated_bytes.all.peak"],
                "peak_held": now["reserved_bytes.all.peak"], "live": now["allocated_bytes.all.current"],
                "held": now["reserved_bytes.all.current"], "allocations": now["allocation.all.allocated"],
                "driver_calls": now["num_device_alloc"] + now["num_device_free"], "retries": now["num_alloc_retries"]}

    def check(self):
        found = any(segment.get("is_expandable") for segment in self.torch.cuda.memory_snapshot())
        if found != self.expandable:
            raise RuntimeError(f"PyTorch's segments are {'' if found else 'not '}expandable")


class Weir:
    def __init__(self, torch, given):
        self.seam = ctypes.CDLL(str(given.seam))
        self.seam.torch_seam_statistics.restype = self.seam.weir_detail.restype = ctypes.c_char_p
        cap = [("budget", f"{given.cap}MiB")] if given.cap else []
        for name, value in (*given.option, *cap):
            if self.seam.weir_option_set(name.encode(), value.encode()):
                raise ValueError(self.seam.weir_detail().decode())
        self.seam.torch_seam_end_when_refused(REFUSED)
        self.kept = torch.cuda.memory.CUDAPluggableAllocator(str(given.seam), "torch_seam_alloc", "torch_seam_free")
        torch.cuda.memory.change_current_allocator(self.kept)

    def statistics(self):
        return json.loads(self.seam.torch_seam_statistics(0) or b"{}")

    def check(self):
        pass


class NoAllocator:
    """On the processor."""

    def statistics(self):
        return {}

    def check(self):
        pass


def allocator_of(torch, given):
    if given.device == "cpu":
        return NoAllocator()
    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch sees no GPU here")
    return (Weir if given.allocator == "weir" else Native)(torch, given)


def timed(step, count):
    """Milliseconds of each; a step returns when its answer is on the host."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(1000 * (time.perf_counter() - start))
    return times


def measure(torch, given):
    allocator = allocator_of(torch, given)
    import torch_models  # needs PyTorch, which may be loaded only now
    program = torch_models.begin(given.program, given.device, given.small, given.seed)
    timed(program.step, given.warm)
    before = allocator.statistics()
    times = timed(program.step, given.steps)
    memory = allocator.statistics()
    allocator.check()
    return {"program": given.program, "allocator": given.allocator, "options": dict(given.option), "cap": given.cap,
            "torch": torch.__version__, "warm": given.warm, "ms": [round(ms, 4) for ms in times], "memory": memory,
            "measured": {key: memory[key] - before.get(key, 0) for key in COUNTS if key in memory}}


def run_one(given):
    """Never returns: what PyTorch would free while the process ends is of no interest."""
    status = 0
    if given.allocator != "weir":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = f"expandable_segments:{given.allocator == 'expandable'}"
        os.environ.pop("PYTORCH_ALLOC_CONF", None)  # which would come first
    import torch
    if given.gate:
        sys.stdin.readline()
    try:
        print(json.dumps(measure(torch, given)), flush=True)
    except torch.OutOfMemoryError as error:
        print(f"{given.program}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        status = REFUSED
    except (RuntimeError, ValueError) as error:
        print(f"{given.program}: {error}", file=sys.stderr, flush=True)
        status = 1
    os._exit(status)


# ---- many runs -------------------------------------------------------------------------------------------------------

class Variant:
    def __init__(self, text):
        self.text = text
        self.allocator, _, options = text.partition(":")
        self.options = options.split(",") if options else []

    def words(self):
        return ["--allocator", self.allocator, *(word for option in self.options for word in ("--option", option))]


class Runs:
    """Processes of this script. A run is what the process printed, or {"refused": …}, {"failed": …}, or {"cut": …} if
    the time for all was over."""

    def __init__(self, given):
        self.given, self.all, self.failures = given, [], []
        self.end = time.monotonic() + given.seconds

    def left(self):
        return self.end - time.monotonic()

    def start(self, program, variant, cap=None):
        """It waits, with PyTorch loaded, until it is told to go on."""
        given = self.given
        line = [sys.executable, "-B", __file__, "--program", program, *variant.words(), "--device", given.device,
                "--seed", given.seed, "--seam", given.seam, "--gate", *(["--small"] if given.small else [])]
        for name, value in (("--cap", cap), ("--warm", given.warm), ("--steps", given.steps)):
            line += [name, value] if value is not None else []
        said = tempfile.TemporaryFile("w+")
        process = subprocess.Popen([str(word) for word in line], stdin=subprocess.PIPE, stdout=said,
                                   stderr=subprocess.STDOUT, text=True)
        return process, said, (program, variant, cap)

    def finish(self, started):
        process, said, (program, variant, cap) = started
        try:
            process.communicate("go\n", max(1, min(self.given.limit, self.left())))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        said.seek(0)
        lines = said.read().splitlines()
        said.close()
        if process.returncode == 0:
            run = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
        elif process.returncode == REFUSED:
            run = {"refused": lines[-1] if lines else ""}
        elif process.returncode == -signal.SIGKILL and self.left() <= 0:
            run = {"cut": "the time was over"}
        else:
            run = {"failed": f"status {process.returncode}: " + " | ".join(lines[-6:])[-600:]}
            under = f", {cap} MiB" if cap else ""
            self.failures.append(f"{program}, {variant.text}{under}: {run['failed']}")
        self.all.append({"asked": [program, variant.text, cap], **run})
        print(f"{program} {variant.text} {cap or ''}: {self.shortly(run)}", file=sys.stderr, flush=True)
        return run

    @staticmethod
    def shortly(run):
        if "ms" not in run:
            return next(f"{key}: {text}" for key, text in run.items())[:300]
        held = run["memory"].get("peak_held")
        return f"{statistics.fmean(run['ms']):.2f} ms a step" + (f", {held / MIB:.0f} MiB" if held else "")

    def one(self, *job):
        return self.finish(self.start(*job))

    def in_turn(self, jobs):
        """Yields each with its run, as long as there is time. While one runs, the next loads PyTorch, which is slow."""
        jobs, started = list(jobs), None
        for i, job in enumerate(jobs):
            if self.left() < 1:
                break
            current = started or self.start(*job)
            started = self.start(*jobs[i + 1]) if i + 1 < len(jobs) else None
            yield job, self.finish(current)
        if started:
            started[0].kill()
            started[0].wait()


# ---- the table -------------------------------------------------------------------------------------------------------

def cap_of(peak, ratio):
    return math.ceil(peak * ratio / MIB)


def smallest(runs_under):
    """The first of RATIOS under which it runs, if it does under all behind it; None: under none of them."""
    below, above = -1, len(RATIOS)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if runs_under(RATIOS[middle]) else (middle, above)
    return RATIOS[above] if above < len(RATIOS) else None


def find_caps(runs, programs, variants, peaks):
    """By program and variant; without those for which the time was over."""
    def search(program, variant):
        def runs_under(ratio):
            if runs.left() < 1:
                raise TimeoutError
            run = runs.one(program, variant, cap_of(peaks[program], ratio))
            if "cut" in run:
                raise TimeoutError
            return "ms" in run
        return smallest(runs_under)

    caps = {}
    with concurrent.futures.ThreadPoolExecutor(runs.given.at_once) as pool:
        tasks = {(p, v): pool.submit(search, p, v) for p in programs if p in peaks for v in variants}
        for key, task in tasks.items():
            try:
                caps[key] = task.result()
            except TimeoutError:
                pass
    return caps


def quantile(times, part):
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


def of_steps(run):
    return f"{statistics.median(run['ms']):.1f} ({quantile(run['ms'], 0.1):.1f} to {quantile(run['ms'], 0.9):.1f})"


def table_row(variant, free, peak, ratio, capped):
    """Of a program and an allocator: without a cap, and under the smallest one; `ratio` "": it was not looked for."""
    name = ALLOCATORS.get(variant.text, variant.text)
    if "ms" not in free:
        return [name, next(iter(free)), *[""] * 5]
    memory = [""] * 3
    if free["memory"]:
        held, calls = free["memory"]["peak_held"], free["memory"]["driver_calls"]
        memory = [f"{held / MIB:,.0f} ({held / peak:.3f})", f"{calls:,}", f"{free['measured']['driver_calls']:,}"]
    under = f"{cap_of(peak, ratio):,} ({ratio:g})" if ratio else "none" if ratio is None else ""
    return [name, of_steps(free), *memory, under, of_steps(capped) if capped and "ms" in capped else ""]


def print_rows(head, rows):
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(row) + " |")


def print_program(program, variants, free, capped, peaks, caps):
    mine = {v: free[program, v] for v in variants if (program, v) in free}
    any_run = next((run for run in mine.values() if "ms" in run), None)
    if program in peaks:
        print(f"\n{program}: at its peak it had requested {peaks[program] / MIB:,.0f} MiB; "
              f"{any_run['measured']['allocations'] / len(any_run['ms']):,.0f} allocations a step\n")
    else:
        print(f"\n{program}\n")
    print_rows(["allocator", "step, ms (p10 to p90)", "held at the peak, MiB (over requested)", "driver calls",
                "in measured steps", "smallest cap that ran, MiB (over requested)", "step there, ms"],
               [table_row(v, mine[v], peaks.get(program), caps.get((program, v), ""), capped.get((program, v)))
                for v in mine])


def table(runs, programs, variants):
    free = {(p, v): run for (p, v), run in runs.in_turn((p, v) for p in programs for v in variants)}
    peaks = {}
    for (program, _), run in free.items():  # in the order of the variants: PyTorch's own figure, where it is among them
        if run.get("memory"):
            peaks.setdefault(program, run["memory"]["peak_requested"])
    caps = find_caps(runs, programs, variants, peaks)
    jobs = [(p, v, cap_of(peaks[p], ratio)) for (p, v), ratio in caps.items() if ratio]
    capped = {(p, v): run for (p, v, _), run in runs.in_turn(jobs)}
    for program in programs:
        print_program(program, variants, free, capped, peaks, caps)


# ---- comparing -------------------------------------------------------------------------------------------------------

def order_of(variants, turn):
    """Every other round backwards, so that no variant always comes behind the same one."""
    return variants if turn % 2 == 0 else variants[::-1]


def by_step(runs, choose):
    """Every run did the same steps: of each one time of all rounds, and their mean."""
    return statistics.fmean(choose(times) for times in zip(*(run["ms"] for run in runs)))


def compare_rows(rounds, variants):
    """`rounds`: of each the runs by variant, all of them good."""
    rows, first = [], None
    for variant in variants:
        mine = [runs[variant] for runs in rounds]
        best, median = by_step(mine, min), by_step(mine, statistics.median)
        means = [statistics.fmean(run["ms"]) for run in mine]
        first = first or (best, median, means)
        ratios = sorted(a / b for a, b in zip(means, first[2]))
        rows.append([variant.text, f"{best:.3f}", f"{best / first[0]:.4f}", f"{median:.3f}", f"{median / first[1]:.4f}",
                     f"{ratios[0]:.4f} to {ratios[-1]:.4f}", *compare_memory(mine)])
    return rows


def compare_memory(runs):
    if not all(run["memory"] for run in runs):
        return ["", ""]
    held = [run["memory"]["peak_held"] for run in runs]
    calls = statistics.median(run["measured"]["driver_calls"] for run in runs)
    over = max(held) / max(run["memory"]["peak_requested"] for run in runs)
    return [f"{statistics.median(held) / MIB:,.0f} ({over:.3f})", f"{calls:,.0f}"]


def compare(runs, programs, variants):
    found = {program: {} for program in programs}  # by round
    jobs = [(turn, p, v) for turn in range(runs.given.rounds) for p in programs for v in order_of(variants, turn)]
    for (turn, *_), ((program, variant), run) in zip(jobs, runs.in_turn((p, v) for _, p, v in jobs)):
        found[program].setdefault(turn, {})[variant] = run
    for program in programs:
        every = [one for one in found[program].values() if len(one) == len(variants)]
        good = [one for one in every if all("ms" in run for run in one.values())]
        print(f"\n{program}: {len(good)} of {runs.given.rounds} rounds\n")
        if good:
            print_rows(["variant", "step, ms: best of the rounds", "over the first", "median", "over the first",
                        "rounds, over the first", "held at the peak, MiB (over requested)",
                        "driver calls in the steps"],
                       compare_rows(good, variants))
        if len(good) < runs.given.rounds:
            runs.failures.append(f"{program}: {len(good)} of {runs.given.rounds} rounds; {why_not(found[program])}")


def why_not(rounds):
    said = [next(iter(run.values())) for one in rounds.values() for run in one.values() if "ms" not in run]
    return said[0] if said else "the time was over"


# ---- words -----------------------------------------------------------------------------------------------------------

def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--program", choices=list(STEPS))
    kind.add_argument("--table", action="store_true")
    kind.add_argument("--compare", nargs="+", metavar="VARIANT")
    one = parser.add_argument_group("one run")
    one.add_argument("--allocator", choices=list(ALLOCATORS), default="torch")
    one.add_argument("--cap", type=int, metavar="MIB", help="weir's budget, or PyTorch's memory fraction")
    one.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="as `weir options` lists them")
    one.add_argument("--gate", action="store_true", help=argparse.SUPPRESS)
    every = parser.add_argument_group("every run")
    every.add_argument("--warm", type=int, metavar="N", help="steps that are not measured")
    every.add_argument("--steps", type=int, metavar="N", help="steps that are")
    every.add_argument("--seed", type=int, default=1)
    every.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu rehearses, in the host's memory")
    every.add_argument("--small", action="store_true", help="small nets and few tokens")
    every.add_argument("--seam", type=Path, default=SEAM, metavar="FILE", help="libtorch-seam.so, as built")
    many = parser.add_argument_group("many runs")
    many.add_argument("--programs", default=",".join(STEPS), metavar="LIST")
    many.add_argument("--variants", nargs="+", default=list(ALLOCATORS), metavar="VARIANT", help="rows of the table")
    many.add_argument("--rounds", type=int, default=5, metavar="N")
    many.add_argument("--at-once", type=int, default=6, metavar="N", help="processes that try caps")
    many.add_argument("--seconds", type=float, default=3600, metavar="N", help="then nothing more is begun")
    many.add_argument("--limit", type=float, default=120, metavar="N", help="seconds of one run at the most")
    many.add_argument("--json", type=Path, metavar="FILE", help="for all that was measured")
    return parser


def check_options(parser, given):
    for option in given.option:
        if "=" not in option:
            parser.error(f"--option {option}: it is written name=value")
    if given.option and given.allocator != "weir":
        parser.error(f"--option is weir's; --allocator is {given.allocator}")
    if given.cap is not None and (given.cap <= 0 or given.device == "cpu"):
        parser.error(f"--cap {given.cap}: " + ("it is more than 0" if given.cap <= 0 else "not on the processor"))
    given.option = [tuple(option.split("=", 1)) for option in given.option]


def check_many(parser, given):
    given.programs = given.programs.split(",")
    for program in given.programs:
        if program not in STEPS:
            parser.error(f"there is no program {program}")
    given.variants = [Variant(text) for text in given.compare or given.variants]
    for variant in given.variants:
        if variant.allocator not in ALLOCATORS or (variant.options and variant.allocator != "weir"):
            parser.error(f"{variant.text} is no variant: torch, expandable, weir, or weir:name=value,…")
        if not all("=" in option for option in variant.options):
            parser.error(f"{variant.text}: an option is written name=value")
    if given.rounds < 1 or given.at_once < 1:
        parser.error("--rounds and --at-once are at least 1")


def check(parser, given):
    if given.program:
        check_options(parser, given)
        for name, standard in zip(("warm", "steps"), STEPS[given.program]):
            setattr(given, name, standard if getattr(given, name) is None else getattr(given, name))
    else:
        check_many(parser, given)
    if (given.warm or 0) < 0 or (given.steps is not None and given.steps < 1):
        parser.error("--warm is at least 0, --steps at least 1")
    names = [given.allocator] if given.program else [variant.allocator for variant in given.variants]
    given.seam = given.seam.absolute()
    if "weir" in names and given.device == "cuda" and not given.seam.exists():
        parser.error(f"{given.seam} is not here: cmake --build build/release --target torch-seam")


def main():
    parser = words()
    given = parser.parse_args()
    check(parser, given)
    if given.program:
        run_one(given)
    runs = Runs(given)
    (compare if given.compare else table)(runs, given.programs, given.variants)
    if given.json:
        given.json.write_text(json.dumps({"runs": runs.all, "failures": runs.failures}, indent=1) + "\n")
    for failure in runs.failures:
        print(f"\nFAILED {failure}")
    return 1 if runs.failures else 0


if __name__ == "__main__":
    sys.exit(main())
