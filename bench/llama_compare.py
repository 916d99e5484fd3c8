#!/usr/bin/env python3
"""An engine with its own memory and with weir's, by turns: processes of bench/llama_plain.c or bench/llm_speed.c, one of each at a
time.

    bench/llama_compare.py PROGRAM MODEL [--rounds N] [--seconds N] [--json FILE] [--through plain,weir] [-- WORDS OF THE PROGRAM…]

A round is a process of each, and which is first changes. Each says the median of its own times; told are the medians of
those, their quotient to the first, and whether tokens and logits are the same in all processes. With fewer seconds than the
rounds take, what is there is told. Exit status 1: a process failed, or answers differ."""

import argparse
import json
import statistics
import subprocess
import sys
import time

MIB = 1 << 20
DIFFERS = 3  # exit status of a process whose own rounds differ; it answers all the same


def run(program, model, through, words, limit):
    """What a process says; None when it failed."""
    command = [program, model, "--through", through, *words]
    if through.startswith("engine") and "llama-plain" in program:  # engine:whole says how its cache's memory comes
        command = [program.replace("llama-plain", "llama-engine"), model, "speed", *words]
        command += ["--cache", through.partition(":")[2]] if ":" in through else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        answer = json.loads(done.stdout) if done.returncode in (0, DIFFERS) else None
        said = done.stderr
    except (subprocess.TimeoutExpired, ValueError) as error:
        answer, said = None, str(error)
    if answer is None:
        print(f"FAILED {through}: {said.strip()[-600:]}", flush=True)
    return answer


def in_turns(given):
    """Answers by variant, of whole rounds alone."""
    answers, end, longest = {through: [] for through in given.through}, time.monotonic() + given.seconds, 0.0
    for number in range(given.rounds):
        if number and time.monotonic() + longest > end:
            print(f"{number} of {given.rounds} rounds: there was no time for more", flush=True)
            break
        start, done = time.monotonic(), {}
        for through in given.through if number % 2 == 0 else given.through[::-1]:
            done[through] = run(given.program, given.model, through, given.words, max(10.0, end - time.monotonic() + 30))
        longest = max(longest, time.monotonic() - start)
        if None in done.values():
            return answers, False
        for through, answer in done.items():
            answers[through].append(answer)
            print(f"round {number + 1} {through}: " + ", ".join(
                f"{name} {answer[name]['tokens_per_s']:.1f}/s" for name in measures(answer)), flush=True)
    return answers, True


def measures(answer):
    return [name for name in answer if name.startswith(("prompt_", "decode_"))]


def table(answers, first):
    """Lines of a table: tokens a second, and how they stand to the first variant's in the same round."""
    lines = ["| measure | " + " | ".join(answers) + " | " + " | ".join(f"{t} / {first}" for t in answers if t != first) + " |",
             "| --- |" + " --- |" * (2 * len(answers) - 1)]
    for name in measures(answers[first][0]):
        speeds = {through: [answer[name]["tokens_per_s"] for answer in of] for through, of in answers.items()}
        row = [f"{statistics.median(of):.1f}" for of in speeds.values()]
        for through, of in speeds.items():
            if through != first:
                quotients = [one / other for one, other in zip(of, speeds[first])]
                row.append(f"{statistics.median(quotients):.4f} ({min(quotients):.4f} to {max(quotients):.4f})")
        lines.append(f"| {name}, tokens/s | " + " | ".join(row) + " |")
    for name in [name for name in ("load_ms", "context_ms", "ready_ms", "first_ms") if name in answers[first][0]]:
        times = {through: [answer[name] for answer in of] for through, of in answers.items()}
        row = [f"{statistics.median(of):.1f}" for of in times.values()]
        row += [f"{statistics.median([one / max(other, 1e-3) for one, other in zip(of, times[first])]):.3f}"
                for through, of in times.items() if through != first]
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    taken = [f"{statistics.median(answer['memory']['taken'] for answer in of) / MIB:.1f}" for of in answers.values()]
    lines.append("| taken of the device, MiB | " + " | ".join(taken) + " |" + " |" * (len(answers) - 1))
    return lines


def differences(answers):
    """In words: what is not the same in all processes."""
    every = [answer for of in answers.values() for answer in of]
    found = []
    if len({tuple(answer["chosen"]) for answer in every}) > 1:
        found.append("the tokens chosen")
    if len({answer.get("checksum") for answer in every}) > 1:
        found.append("the last logits")
    if not all(answer["same"] for answer in every):
        found.append("the rounds of one process")
    return found


def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--through", default="plain,weir", metavar="LIST")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given = parser.parse_args(sys.argv[1:at])
    given.words, given.through = sys.argv[at + 1:], given.through.split(",")
    return given


def main():
    given = words()
    answers, good = in_turns(given)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(answers, file, indent=1)
    if all(answers.values()):
        print("\n".join(table(answers, given.through[0])))
        found = differences(answers)
        print(f"different: {', '.join(found)}" if found else "the same: tokens chosen" + (", and the last logits to the bit" if "checksum" in answers[given.through[0]][0] else ""))
        good = good and not found
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
