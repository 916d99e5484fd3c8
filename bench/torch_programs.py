#!/usr/bin/env python3
"""PyTorch programs through PyTorch's own allocator, through that with expandable segments, and through weir.torch: one table.

    bench/torch_programs.py [--programs gpt2,bert] [--minutes 9] [--variants torch expandable weir weir:thread_cache=0] [--json FILE]

A process for each allocator (bench/torch_run.py) has the same program (bench/torch_models.py) with the same seed. They do the same
steps by turns, some 60 ms each, and every turn in another order; so what a shared machine does is done to all of them. The table has
the median of the quotients of turns, each of the same steps, and of which value the median is at most with 95 % certainty (an order
statistic: no shape of noise is assumed). Behind it stands the smallest of some caps under which the program ran, each a multiple of
what it requested at its peak; several are tried at once. Programs have a round each first, in the order in which they are named, then
caps are looked for, and the time that is left is for further rounds, in new processes.

loops is trained and served in one process, and stands beside both alone: gpt2 and bert. A variant is an allocator, or weir with
options: weir:reuse_wait=0,thread_cache=1MiB. The exit status is 1 when a run failed."""

import argparse
import concurrent.futures
import json
import math
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from torch_run import ALLOCATORS, MIB, ROOT, STEPS  # noqa: E402

RUN = Path(__file__).resolve().parent / "torch_run.py"
TURN = 60  # milliseconds, at the least
LONG = 120  # seconds: where less is left behind the first rounds, all of it is for the caps
RATIOS = (1.005, 1.01, 1.015, 1.02, 1.03, 1.04, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 3)  # caps over the peak
LOOPS, ALONE = "loops", ("gpt2", "bert")
SHARE = 0.75  # of what both hold alone, a budget for them together
FIRST = 0.75  # of the time, in which programs have their first round


class Variant:
    def __init__(self, text):
        self.text = text
        self.allocator, _, options = text.partition(":")
        self.options = options.split(",") if options else []

    def words(self):
        return ["--allocator", self.allocator, *(word for option in self.options for word in ("--option", option))]


class Worker:
    """A process of bench/torch_run.py. An answer is what it printed, or {"failed": …}, {"refused": …}, {"cut": …}: the time was over."""

    def __init__(self, given, program, variant, *more):
        self.said, self.rest, self.failed = tempfile.TemporaryFile("w+"), b"", None
        line = [sys.executable, "-B", RUN, program, *variant.words(), "--device", given.device, "--seed", given.seed, "--package",
                given.package, *(["--small"] if given.small else []), *more]
        for name in ("warm", "steps"):
            line += [f"--{name}", getattr(given, name)] if getattr(given, name) is not None else []
        self.process = subprocess.Popen([str(word) for word in line], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said)

    def tell(self, word):
        try:
            self.process.stdin.write(f"{word}\n".encode())
            self.process.stdin.flush()
        except OSError:
            pass  # it has ended: its answer says why

    def line(self, until):
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0]:
                return None
            more = self.process.stdout.read1()
            if not more:
                return b""
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def answer(self, until):
        while not self.failed:
            line = self.line(until)
            if line is None:
                self.failed = {"cut": "the time was over"}
            elif line == b"":
                self.said.seek(0)
                lines = self.said.read().splitlines()
                self.failed = {"failed": f"status {self.process.wait()}: " + " | ".join(lines[-6:])[-600:]}
            elif line.startswith(b"{"):
                answer = json.loads(line)
                self.failed = answer if answer.keys() & {"failed", "refused"} else None
                return answer
        return self.failed

    def end(self):
        if self.said.closed:
            return
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.said):
            try:
                file.close()
            except OSError:
                pass


# ---- figures ---------------------------------------------------------------------------------------------------------

def at_most(values):
    """Of which value the median is at most, with 95 % certainty; None: there are too few."""
    below = 0.0
    for k in range(len(values)):
        below += math.comb(len(values), k) / 2 ** len(values)
        if below >= 0.95:
            return sorted(values)[k]
    return None


def quotients(mine, other):
    """Of turns in which both did the same steps."""
    return [a / b for of_round, and_other in zip(mine, other) for a, b in zip(of_round, and_other)]


def cap_of(peak, ratio):
    return math.ceil(peak * ratio / MIB)


def smallest(runs_under):
    """The first of RATIOS under which it runs, if it does under all behind it; None: under none of them."""
    below, above = -1, len(RATIOS)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if runs_under(RATIOS[middle]) else (middle, above)
    return RATIOS[above] if above < len(RATIOS) else None


def order_of(workers, turn):
    """Another one comes first every time, and every other time they go backwards."""
    turned = workers[turn % len(workers):] + workers[:turn % len(workers)]
    return turned if turn // len(workers) % 2 == 0 else turned[::-1]


# ---- measuring -------------------------------------------------------------------------------------------------------

class Program:
    """What is known of one: by variant the steps' times, by round those of turns, and memory."""

    def __init__(self, name, variants):
        self.name, self.variants = name, list(variants)
        self.ms = {variant: [] for variant in variants}
        self.turns = {variant: [] for variant in variants}  # a list for each round
        self.memory, self.calls, self.caps, self.wrong, self.took = {}, {}, {}, {}, 0.0

    def peak(self):
        return max((memory["peak_requested"] for memory in self.memory.values() if memory), default=0)

    def add(self, variant):
        if variant not in self.ms:
            self.variants.append(variant)
            self.ms[variant], self.turns[variant] = [], []


class Table:
    def __init__(self, given):
        self.given, self.begin = given, time.monotonic()
        self.end = self.begin + 60 * given.minutes
        self.programs = [Program(name, given.variants) for name in given.programs]
        self.failures, self.tries, self.budget = [], [], None

    def left(self):
        return self.end - time.monotonic()

    def until(self):
        return min(self.end, time.monotonic() + self.given.limit)

    def start(self, program):
        return {variant: Worker(self.given, program.name, variant, "--turns") for variant in program.variants}

    def run(self):
        started = {program: self.start(program) for program in self.programs}
        for workers in started.values():
            self.all_answer(workers)
        for program, workers in started.items():
            if time.monotonic() < self.begin + FIRST * (self.end - self.begin):
                self.round(program, {**workers, **self.under_budget(program)})
        for worker in (worker for workers in started.values() for worker in workers.values()):
            worker.end()
        self.find_caps(time.monotonic() + (self.left() / 2 if self.left() > LONG else self.left()))
        for _ in range(self.given.rounds - 1):
            for program in self.programs:
                if any(program.turns.values()) and self.left() > 1.2 * program.took:
                    self.round(program, self.start(program), load=True)

    def under_budget(self, program):
        """Both loops once more, with less than what they hold alone. Only now it is known how much that is."""
        alone = self.alone(self.given.variants[0])
        weir = next((variant for variant in program.variants if variant.text == "weir"), None)
        if program.name != LOOPS or not alone or not weir:
            return {}
        self.budget = Variant(f"weir:budget={int(SHARE * alone / MIB)}MiB")
        program.add(self.budget)
        workers = {self.budget: Worker(self.given, LOOPS, self.budget, "--turns")}
        self.all_answer(workers)
        return workers

    def alone(self, variant):
        held = [program.memory.get(variant, {}).get("peak_held") for program in self.programs if program.name in ALONE]
        return sum(held) if len(held) == len(ALONE) and all(held) else 0

    # ---- a round -----------------------------------------------------------------------------------------------------

    def all_answer(self, workers, word=None):
        """Of those that go on: all at once, and each is waited for."""
        for worker in workers.values() if word else ():
            worker.tell(word)
        until = self.until()
        return {variant: worker.answer(until) for variant, worker in workers.items()}

    def round(self, program, workers, load=False):
        start = time.monotonic()
        try:
            if load:
                self.all_answer(workers)
            self.turns(program, self.made(workers, program))
        finally:
            for worker in workers.values():
                worker.end()
        for variant, worker in workers.items():
            if worker.failed:
                program.wrong.setdefault(variant, next(f"{key}: {why}" for key, why in worker.failed.items()))
        program.took = max(program.took, time.monotonic() - start + 8)  # with the time to load PyTorch, at the least
        told = ", ".join(f"{variant.text} {statistics.median(program.ms[variant]):.2f}" for variant in workers if program.ms[variant])
        print(f"{program.name}: {told or 'nothing'} ms a step", file=sys.stderr, flush=True)

    def made(self, workers, program):
        self.all_answer(workers, "begin")
        warm = self.steps_of(program)[0]
        if warm:
            self.all_answer(workers, warm)
        return {variant: worker for variant, worker in workers.items() if not worker.failed}

    def steps_of(self, program):
        given = self.given
        return [standard if asked is None else asked for asked, standard in zip((given.warm, given.steps), STEPS[program.name])]

    def turns(self, program, workers):
        if not workers:
            return
        steps, done, turn, count = self.steps_of(program)[1], 0, 0, 1
        times = {variant: [] for variant in workers}
        before = self.all_answer(workers, "memory")
        while done < steps and workers and self.left() > 0:
            count = min(count, steps - done)
            for variant in order_of(list(workers), turn):
                workers[variant].tell(count)
                times[variant].append(workers[variant].answer(self.until()).get("ms"))
            workers = {variant: worker for variant, worker in workers.items() if not worker.failed}
            shortest = min((min(times[variant][-1]) for variant in workers), default=TURN)
            done, turn, count = done + count, turn + 1, max(count, math.ceil(TURN / max(shortest, 0.01)))
        for variant, answer in self.all_answer(workers, "memory").items():
            if "memory" in answer and times[variant]:
                self.keep(program, variant, times[variant], before[variant].get("memory", {}), answer["memory"])

    @staticmethod
    def keep(program, variant, times, before, memory):
        program.ms[variant] += [ms for turn in times for ms in turn]
        program.turns[variant].append([sum(turn) for turn in times])
        if memory and memory["peak_held"] >= program.memory.get(variant, memory)["peak_held"]:
            program.memory[variant] = memory
            program.calls[variant] = memory["driver_calls"] - before.get("driver_calls", 0)

    # ---- caps --------------------------------------------------------------------------------------------------------

    def try_cap(self, program, variant, ratio, end):
        worker = Worker(self.given, program.name, variant, "--cap", cap_of(program.peak(), ratio))
        try:
            answer = worker.answer(min(end, time.monotonic() + self.given.limit))
        finally:
            worker.end()
        self.tries.append({"program": program.name, "variant": variant.text, "ratio": ratio, **answer})
        if "cut" in answer:
            raise TimeoutError
        if "failed" in answer:
            self.failures.append(f"{program.name}, {variant.text}, {ratio:g} of the peak: {answer['failed']}")
        return "ms" in answer

    def find_caps(self, end):
        wanted = [(program, variant) for program in self.programs if program.name in self.given.caps and program.peak()
                  for variant in program.variants if variant != self.budget and program.memory.get(variant)]

        def search(program, variant):
            if time.monotonic() < end:
                program.caps[variant] = smallest(lambda ratio: self.try_cap(program, variant, ratio, end))
        with concurrent.futures.ThreadPoolExecutor(self.given.at_once) as pool:
            for task in [pool.submit(search, *job) for job in wanted]:
                try:
                    task.result()
                except TimeoutError:
                    pass


# ---- what is told ----------------------------------------------------------------------------------------------------

def quantile(times, part):
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


def over(program, variant, base):
    """The median of quotients, and what it is at most."""
    found = quotients(program.turns[variant], program.turns[base])
    if variant is base or not found:
        return ""
    most = at_most(found)
    return f"{statistics.median(found):.3f}" + (f" (at most {most:.3f})" if most else "") + f", {len(found)}"


def row(program, variant, base):
    name = ALLOCATORS.get(variant.text, variant.text)
    if not program.ms[variant]:
        return [program.name, name, program.wrong.get(variant, "the time was over")[:160], "", "", "", ""]
    times, memory, peak = program.ms[variant], program.memory.get(variant), program.peak()
    held = [f"{memory['peak_held'] / MIB:,.0f} ({memory['peak_held'] / peak:.3f})", f"{program.calls[variant]:,}"] if memory else ["", ""]
    ratio = program.caps.get(variant, "")
    cap = f"{cap_of(peak, ratio):,} ({ratio:g})" if ratio else "none" if ratio is None else ""
    return [program.name, name, f"{statistics.median(times):.2f} ({quantile(times, 0.1):.2f} to {quantile(times, 0.9):.2f})",
            over(program, variant, base), *held, cap]


def tell(table):
    base = table.given.variants[0]
    head = ["program", "allocator", "step, ms: median (p10 to p90)", f"time over {base.text}'s, turns", "held at the peak, MiB (over requested)",
            "driver calls in a round", "smallest cap that ran, MiB (over requested)"]
    for cells in (head, ["---"] * len(head), *(row(program, variant, base) for program in table.programs for variant in program.variants)):
        print("| " + " | ".join(cells) + " |")
    print()
    for program in table.programs:
        if program.peak():
            rounds = max(map(len, program.turns.values()))
            print(f"{program.name}: {program.peak() / MIB:,.0f} MiB requested at the peak, {rounds} rounds")
        if program.name == LOOPS and table.budget:
            tell_loops(table, program)


def tell_loops(table, program):
    memory, budget = program.memory, table.budget
    weir = next(variant for variant in program.variants if variant.text == "weir")
    for variant in table.given.variants:
        if table.alone(variant):
            held = {other.text: f"{memory[other]['peak_held'] / table.alone(variant):.3f}" for other in program.variants if memory.get(other)}
            print(f"{LOOPS}: alone they hold {table.alone(variant) / MIB:,.0f} MiB with {variant.text}; together, over that: {held}")
    print(f"{LOOPS}: {budget.text} takes {over(program, budget, weir) or 'nobody knows how much'} of the time of weir with all memory")


def as_json(table):
    return {"programs": [{"program": program.name, "peak_requested": program.peak(), "variants": [
        {"variant": variant.text, "turns": program.turns[variant], "ms": program.ms[variant], "memory": program.memory.get(variant),
         "cap": program.caps.get(variant), "wrong": program.wrong.get(variant)} for variant in program.variants]}
        for program in table.programs], "tries": table.tries, "failures": table.failures}


# ---- words -----------------------------------------------------------------------------------------------------------

def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(STEPS), metavar="LIST", help="of " + ",".join(STEPS))
    parser.add_argument("--variants", nargs="+", default=["torch", "expandable", "weir"], metavar="VARIANT",
                        help="allocators, weir with options; `again` is torch once more, for what the machine does by itself")
    parser.add_argument("--caps", default=",".join(STEPS), metavar="LIST", help="the programs whose smallest caps are looked for")
    parser.add_argument("--minutes", type=float, default=9, metavar="N", help="for all: what there is no time for is left out")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of a program at the most")
    parser.add_argument("--at-once", type=int, default=6, metavar="N", help="processes that try caps")
    parser.add_argument("--limit", type=float, default=120, metavar="N", help="seconds for an answer")
    parser.add_argument("--warm", type=int, metavar="N", help="steps that are not measured")
    parser.add_argument("--steps", type=int, metavar="N", help="steps that are, in a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu rehearses, in the host's memory")
    parser.add_argument("--small", action="store_true", help="small nets and few tokens")
    parser.add_argument("--package", type=Path, default=ROOT / "python", metavar="FOLDER", help="where the package weir is")
    parser.add_argument("--json", type=Path, metavar="FILE", help="for all that was measured")
    given = parser.parse_args()
    check(parser, given)
    return given


def check(parser, given):
    given.programs, given.caps = given.programs.split(","), [name for name in given.caps.split(",") if name]
    for name in (*given.programs, *given.caps):
        if name not in STEPS:
            parser.error(f"there is no program {name}")
    given.variants = [Variant(text) for text in given.variants]
    for variant in given.variants:
        if variant.allocator not in ALLOCATORS or (variant.options and variant.allocator != "weir"):
            parser.error(f"{variant.text} is no variant: torch, expandable, weir, or weir:name=value,…")
        if not all("=" in option for option in variant.options):
            parser.error(f"{variant.text}: an option is written name=value")
    if given.rounds < 1 or given.at_once < 1:
        parser.error("--rounds and --at-once are at least 1")
    if (given.warm or 0) < 0 or (given.steps is not None and given.steps < 1):
        parser.error("--warm is at least 0, --steps at least 1")


def main():
    given = words()
    table = Table(given)
    table.run()
    tell(table)
    if given.json:
        given.json.write_text(json.dumps(as_json(table), indent=1) + "\n")
    wrong = [f"{program.name}, {variant.text}: {why}" for program in table.programs for variant, why in program.wrong.items()
             if not why.startswith("cut")]
    for failure in (*wrong, *table.failures):
        print(f"FAILED {failure}")
    return 1 if wrong or table.failures else 0


if __name__ == "__main__":
    sys.exit(main())
