"""weir run: what a model that is refused leaves to the others, and the numbers that its refusal gives."""

import re

import harness
from harness import MIB

CHUNK = 64 << 10
WAYS = ((), ("--serial",), ("--serial", "--suspend-idle"))
MODELS = harness.StoreCase.MODELS


class GivesBack(harness.StoreCase):
    """Each model is refused in its first run by a maximum of its own. The budget is what the others need without it."""

    def run_models(self, names, *words, status=None):
        threads = [word for name in names for word in ("--set", f"{name}:threads=1")]
        return self.weir_json("run", *names, "--tokens", "2", *threads, *words, status=status)

    def maximum_of(self, name, alone):
        """One under which it is loaded, and refused in its first run."""
        for maximum in (alone["weights"], alone["peak"] - 1):
            answer = self.run_models([name], "--maximum", f"{name}={maximum}")
            if [(one["stage"], one["refusal"]["cause"]) for one in answer.get("errors", [])] == [("first run", "maximum")]:
                return maximum
        return self.fail(f"{name} is not refused in its first run")

    def others_run(self, names, refused, maximum, budget, way):
        words = ("--maximum", f"{refused}={maximum}", "--budget", budget, *way)
        answer = self.run_models(names, *words, status=1)
        at = f"{names} {words}"
        self.assertEqual([(refused, "first run")], [(one["model"], one["stage"]) for one in answer["errors"]], at)
        self.assertEqual({name: int(name != refused) for name in names}, {one["name"]: one["runs"] for one in answer["clients"]}, at)
        self.assertEqual(0, answer["live_at_end"], at)

    def test_before_the_next_one_is_tried(self):
        alone = {}
        for name in MODELS:
            answer = self.run_models([name], status=0)
            alone[name] = {**self.client(answer, name), "held": answer["peak_held"] + CHUNK}
        for refused in MODELS:
            maximum = self.maximum_of(refused, alone[refused])
            others = [name for name in MODELS if name != refused]
            for way in WAYS:
                for names in ([refused, others[0]], [refused, others[1]], [others[0], refused, others[1]]):
                    held = [alone[name]["held"] for name in names if name != refused]
                    least = max(held) if "--suspend-idle" in way else sum(held)
                    before = 0 if "--suspend-idle" in way or names[0] == refused else held[0]  # what is there beside it
                    budget = max(least, before + alone[refused]["held"])
                    self.others_run(names, refused, maximum, budget, way)


class Later(harness.Case):
    def test_one_that_is_refused_when_all_are_loaded(self):
        for name, weights, scratch in (("a.echo", 4, 3), ("b.echo", 1, 4), ("c.echo", 3, 1)):
            self.write(name, f"input a f32 -1 3\nweights {weights * MIB}\nscratch {scratch * MIB}\n")
        answer = self.weir_json("run", "a.echo", "b.echo", "c.echo", "--serial", "--budget", 9 * MIB + 2 * CHUNK, status=1)
        self.assertEqual([("a.echo", "run")], [(one["model"], one["stage"]) for one in answer["errors"]])
        self.assertEqual([0, 1, 1], [one["runs"] for one in answer["clients"]])
        self.assertEqual(0, answer["live_at_end"])


class Numbers(harness.Case):
    def number(self, error):
        """The limit that a refusal says would do, and whether it says so of all of the model."""
        found = re.search(r"(needs at least .* more: |with )--(?:budget |maximum \S+=)(\d+)", error)
        self.assertIsNotNone(found, error)
        return int(found[2]), found[1] == "with "

    def follow(self, *words, option, limit):
        """Runs with each number that a refusal gives, until it is not refused; answers them. With one byte less than what is
        needed at least it is refused, unless another model's run may hold memory at that moment or not."""
        told, together = [], len(words) > 1 and "--serial" not in words
        while limit is not None:
            _, error = self.weir("run", *words, *option(limit), status=None)
            if told and not told[-1][1] and not together:
                _, less = self.weir("run", *words, *option(limit - 1), status=1)
                self.assertIn("asked for", less)
            limit, whole = self.number(error) if error else (None, False)
            if limit is not None:
                self.assertTrue(not told or limit > told[-1][0], (told, limit))
                told.append((limit, whole))
        return told

    def write_models(self, more=""):
        self.write("e.echo", f"input a f32 -1 3\nweights {4 * MIB}\nscratch {2 * MIB}\n{more}")
        self.write("f.echo", f"input a f32 -1 3\nweights {3 * MIB}\n")

    def options(self):
        return (lambda limit: ("--budget", limit)), (lambda limit: ("--maximum", f"e.echo={limit}"))

    def test_all_of_it_fits_with_exactly_that(self):
        self.write_models("exact\n")
        for option in self.options():
            self.assertEqual([(6 * MIB, True)], self.follow("e.echo", option=option, limit=MIB))
            self.weir("run", "e.echo", *option(6 * MIB - 1), status=1)

    def test_each_part_is_told_where_no_more_is_known(self):
        self.write_models()
        for option in self.options():
            self.assertEqual([(4 * MIB, False), (6 * MIB, False)], self.follow("e.echo", option=option, limit=MIB))

    def test_beside_another_model(self):
        for way in WAYS[:2]:
            for more in ("exact\n", ""):
                self.write_models(more)
                told = self.follow("f.echo", "e.echo", *way, option=self.options()[0], limit=5 * MIB)
                self.assertLessEqual(told[-1][0], 9 * MIB + 2 * CHUNK)
                self.assertEqual(bool(more), told[0][1])
                # Together, the other's run may hold its inputs when a refusal comes, or not.
                self.assertIn(len(told) - (1 if more else 2), (0,) if way else (0, 1))


if __name__ == "__main__":
    harness.main()
