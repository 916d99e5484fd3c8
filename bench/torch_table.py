"""What bench/torch_programs.py has measured of each program, the figures that come of it, and how they are told."""

import math
import statistics

from torch_answers import WRONG, Answers
from torch_run import MIB

LOOPS, ALONE = "loops", ("gpt2", "bert")
RATIOS = (1.005, 1.0075, 1.01, 1.015, 1.02, 1.03, 1.04, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5, 2)  # caps over the peak
TIMED = RATIOS[:3]  # caps at which time is measured too, beside the smallest


def at_most(values):
    """Of which value the median is at most, with 95 % certainty; None: there are too few."""
    below = 0.0
    for k in range(len(values)):
        below += math.comb(len(values), k) / 2 ** len(values)
        if below >= 0.95:
            return sorted(values)[k]
    return None


def quotients(mine, other):
    """Of turns in which both did the same steps; by the number of the round."""
    return [a / b for which, turns in mine.items() for a, b in zip(turns, other.get(which, ()))]


def cap_of(peak, ratio):
    return math.ceil(peak * ratio / MIB)


def smallest(runs_under, least_first=False):
    """The first of RATIOS under which it runs, if it does under all behind it; None: under none of them."""
    below, above = -1, len(RATIOS)
    if least_first:
        below, above = (-1, 0) if runs_under(RATIOS[0]) else (0, above)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if runs_under(RATIOS[middle]) else (middle, above)
    return RATIOS[above] if above < len(RATIOS) else None


def quantile(times, part):
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


class Program:
    """What is known of one: by variant the steps' times, by round those of turns, memory, and answers."""

    def __init__(self, name, variants):
        self.name, self.variants, self.base = name, list(variants), variants[0]
        self.ms = {variant: [] for variant in variants}
        self.turns = {variant: {} for variant in variants}
        self.memory, self.calls, self.caps, self.wrong = {}, {}, {}, {}
        self.answers = Answers(name)
        self.rounds, self.seconds = 0, 0.0  # a worker's share of the longest one

    def peak(self):
        return max((memory["peak_requested"] for memory in self.memory.values() if memory), default=0)

    def add(self, variant):
        if variant not in self.ms:
            self.variants.append(variant)
            self.ms[variant], self.turns[variant] = [], {}

    def weir(self):
        return next((variant for variant in self.variants if variant.text == "weir"), None)

    def going(self):
        """Variants for the next round: those that have not failed, without expandable segments in further ones, and of the caps those that
        have no time yet, or the one that is worth more of it."""
        least = self.least() or min((variant for variant in self.variants if variant.cap and self.over(variant, variant.of)),
                                    key=lambda variant: statistics.median(self.over(variant, variant.of)), default=None)
        return [variant for variant in self.variants if self.wrong.get(variant, "cut").startswith("cut") and not
                (self.turns[variant] and (variant.allocator == "expandable" or (variant.cap and variant is not least)))]

    def keep(self, variant, times, before, memory):
        self.ms[variant] += [ms for turn in times for ms in turn]
        self.turns[variant][self.rounds] = [sum(turn) for turn in times]
        if memory and memory["peak_held"] >= self.memory.get(variant, memory)["peak_held"]:
            self.memory[variant] = memory
            self.calls[variant] = memory["driver_calls"] - before.get("driver_calls", 0)

    def add_answers(self, variant, steps):
        self.answers.add(variant.text, steps, variant.native or variant is self.base)

    def over(self, variant, base=None):
        """Quotients of its turns and the base's."""
        base = base or self.base
        return quotients(self.turns[variant], self.turns[base]) if variant is not base and base in self.turns else []

    def width(self):
        """Of the widest of the intervals between a median and its bound; infinite where something has none yet."""
        if not self.rounds:
            return math.inf
        widest = 0.0
        for variant in self.going():
            if variant is self.base or variant.native or (self.weir() and variant.allocator != "weir"):
                continue
            found = self.over(variant, variant.of)
            most = at_most(found)
            widest = max(widest, most - statistics.median(found) if most else math.inf)
        return widest

    def least(self):
        """The smallest cap of weir's at which the time is at most 1.02 of that without."""
        timed = [variant for variant in self.variants if variant.cap and self.over(variant, variant.of)]
        return min((variant for variant in timed if statistics.median(self.over(variant, variant.of)) <= 1.02),
                   key=lambda variant: variant.cap, default=None)


# ---- as text ---------------------------------------------------------------------------------------------------------

HEAD = ("program", "allocator", "step, ms: median (p10 to p90)", "time over PyTorch's, turns", "over without a cap", "answers",
        "held, MiB (over requested)", "driver calls", "smallest cap, MiB (over requested)")
GOALS = ("program", "weir.torch over PyTorch", "PyTorch again", "expandable", "held over requested", "expandable's", "smallest cap",
         "time there over without", "answers")


def told(found, count=True):
    """The median of quotients, what it is at most, and how many they are."""
    if not found:
        return ""
    most = at_most(found)
    return f"{statistics.median(found):.3f}" + (f" (at most {most:.3f})" if most else "") + (f", {len(found)}" if count else "")


def row(program, variant):
    if not program.ms[variant]:
        return [program.name, variant.name(), program.wrong.get(variant, "the time was over")[:160], *[""] * (len(HEAD) - 3)]
    times, memory, peak = program.ms[variant], program.memory.get(variant), program.peak()
    held = [f"{memory['peak_held'] / MIB:,.0f} ({memory['peak_held'] / peak:.3f})", f"{program.calls[variant]:,}"] if memory else ["", ""]
    ratio = program.caps.get(variant, "")
    cap = f"{cap_of(peak, ratio):,} ({ratio:g})" if ratio else "none" if ratio is None else ""
    return [program.name, variant.name(), f"{statistics.median(times):.2f} ({quantile(times, 0.1):.2f} to {quantile(times, 0.9):.2f})",
            told(program.over(variant)), told(program.over(variant, variant.of)) if variant.of else "",
            program.answers.told(variant.text), *held, cap]


def goals(program):
    """A row for each program, of what weir is held against."""
    known = {variant.text: variant for variant in program.variants}

    def time_of(name):
        return told(program.over(known[name]), count=False) if name in known else ""

    def held(name):
        memory = program.memory.get(known.get(name))
        return f"{memory['peak_held'] / program.peak():.3f}" if memory else ""
    ratio, least = program.caps.get(known.get("weir"), ""), program.least()
    return [program.name, time_of("weir"), time_of("again"), time_of("expandable"), held("weir"), held("expandable"),
            "none" if ratio is None else f"{ratio:g}" if ratio else "",
            f"{least.text.rpartition(' ')[2]}: {told(program.over(least, least.of), count=False)}" if least else "",
            program.answers.told("weir")]


def as_table(head, rows):
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def lines(programs, lanes):
    """All that is told, the goals last: of a long answer the end is what is always seen."""
    text = as_table(HEAD, [row(program, variant) for program in programs for variant in program.variants]) + [""]
    for program in programs:
        if program.peak():
            text.append(f"{program.name}: {program.peak() / MIB:,.0f} MiB requested at the peak, {program.rounds} rounds")
    for lane in lanes:
        text += loops_lines(lane)
    return text + [""] + as_table(GOALS, map(goals, programs))


def loops_lines(lane):
    program = next((program for program in lane.programs if program.name == LOOPS), None)
    if not program or not lane.budget:
        return []
    memory, budget, text = program.memory, lane.budget, []
    for variant in lane.given.variants:
        alone = lane.alone(variant) if variant.allocator != "again" else 0
        if alone:
            held = {other.text: f"{memory[other]['peak_held'] / alone:.3f}" for other in program.variants
                    if memory.get(other) and other.allocator != "again"}
            text.append(f"{LOOPS}: alone they hold {alone / MIB:,.0f} MiB with {variant.text}; together, over that: {held}")
    found = told(program.over(budget, budget.of)) or "nobody knows how much"
    return text + [f"{LOOPS}: {budget.text} takes {found} of the time of weir with all memory"]


def wrong(programs):
    """What makes the run one that has failed. A cap may be refused: that it ran before was a try of its own."""
    for program in programs:
        for variant, why in program.wrong.items():
            if not why.startswith("cut") and not (variant.cap and why.startswith("refused")):
                yield f"{program.name}, {variant.text}: {why}"
        for name in program.answers.differs:
            if program.answers.verdict(name) == WRONG:
                yield f"{program.name}, {name}: answers {program.answers.told(name)}"


def as_json(programs, lanes):
    def of(program, variant):
        return {"variant": variant.text, "turns": list(program.turns[variant].values()), "ms": program.ms[variant],
                "memory": program.memory.get(variant), "cap": program.caps.get(variant), "wrong": program.wrong.get(variant),
                "rounds": list(program.turns[variant]), "differs": str(program.answers.differs.get(variant.text))}
    return {"table": lines(programs, lanes), "failures": [*wrong(programs), *(line for lane in lanes for line in lane.failures)],
            "tries": [tried for lane in lanes for tried in lane.tries], "programs": [
                {"program": program.name, "peak_requested": program.peak(), "noise": program.answers.noise,
                 "variants": [of(program, variant) for variant in program.variants]} for program in programs]}
