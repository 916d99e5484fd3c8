"""Whether a program of bench/torch_programs.py answers through one allocator as it does through another.

Every step has an answer: losses and logits are numbers, tokens are whole ones. Two runs of PyTorch's own may differ already, as sums
in parallel have no order and cuDNN may choose another convolution; so what a run differs by is held against what PyTorch differs from
itself by, and against a least tolerance. Nothing excuses what is not finite."""

import math

TIMES = 3  # what PyTorch differs from itself by
LEAST = {"rcnn": 0.05}  # which of its boxes the second stage sees depends on the last bit
ELSE = 0.002  # of the largest number of a step
SAME, ROUNDED, WRONG = "same", "rounded", "wrong"


def flat(answer):
    """A step's answer as a list; outside of what is measured."""
    return answer.flatten().tolist() if hasattr(answer, "flatten") else [answer]


def finite(steps):
    return all(math.isfinite(number) for step in steps for number in step)


def of_step(mine, other):
    """Tokens: the share of those that are others. Numbers: the largest difference, over the largest number."""
    if len(mine) != len(other) or not finite([mine, other]):
        return math.inf
    if all(isinstance(number, int) for number in (*mine, *other)):
        return sum(a != b for a, b in zip(mine, other)) / max(1, len(mine))
    furthest = max((abs(a - b) for a, b in zip(mine, other)), default=0)
    return furthest and furthest / max(*map(abs, mine), *map(abs, other))


def unlike(mine, other):
    """By how much these steps' answers differ from the same steps' of another run; 0 says not in one bit."""
    return max((of_step(a, b) for a, b in zip(mine, other)), default=0.0)


def tolerance(program, noise):
    """`noise`: what PyTorch has differed from itself by."""
    return max(LEAST.get(program, ELSE), TIMES * noise)


def verdict(program, differs, noise):
    if differs == 0:
        return SAME
    return ROUNDED if differs <= tolerance(program, noise) else WRONG


class Answers:
    """What one program has answered, against the first run of PyTorch's own."""

    def __init__(self, program):
        self.program, self.first, self.differs, self.noise, self.steps = program, None, {}, 0.0, {}

    def add(self, variant, steps, native):
        """`native`: PyTorch's own allocator, with no option. The first of these is what all others are held against."""
        if self.first is None and native and steps:
            self.first = steps
        if self.first is None or not steps:
            return
        differs = unlike(steps, self.first) if finite(steps) else math.inf
        self.differs[variant] = max(differs, self.differs.get(variant, 0.0))
        self.steps[variant] = self.steps.get(variant, 0) + min(len(steps), len(self.first))
        if native and math.isfinite(differs):
            self.noise = max(self.noise, differs)

    def verdict(self, variant):
        """None where there is no answer to compare."""
        return verdict(self.program, self.differs[variant], self.noise) if variant in self.differs else None

    def told(self, variant):
        went = self.verdict(variant)
        if went in (None, SAME):
            return went or ""
        how = "not finite, or of another size" if math.isinf(self.differs[variant]) else f"{self.differs[variant]:.1e}"
        return f"within {how}" if went == ROUNDED else f"WRONG: {how}, where {tolerance(self.program, self.noise):.1e} is none"
