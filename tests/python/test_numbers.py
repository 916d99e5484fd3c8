"""Sizes, counts and times on their way into libweir: what does not fit is refused by every entry, and never cut; nothing changes then."""

import ctypes
import math
import unittest
from decimal import Decimal

from common import MIB

import weir
from weir import _numbers, pool, residency
from weir._clients import Clients
from weir._c import inspection, library, pooling, seams, structures
from weir.tensor import _native

GIB = 2**30
TOO_LARGE = (2**64, 2**64 + 4096, 2**65 - 1, 10**30, 10**5000)  # the last has more digits than Python writes
NO_WHOLE = (True, False, 4096.0, 1.5, math.nan, math.inf, 1j, None, b"4096", [4096])
TEXTS = ("", " ", "many", "-1", "+1", "1.5", "1e3", "0x10", "1.5.5GiB", "1 PiB", "99999999999999999999GiB", "16777216TiB", "1,5GiB",
         "nan", "inf", "\u0663", "1 GiB of it", "18446744073709551616", "1\0MiB", "1\ud800", "9" * 5000)


class Index:
    """A whole number as NumPy has them."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class Bed(unittest.TestCase):
    def setUp(self):
        self.runtime = weir.Runtime("host", budget="64MiB", own=True)
        self.client = self.runtime.client("a", maximum="32MiB", guarantee=MIB)

    def tearDown(self):
        self.client.close()
        self.runtime.close()

    def state(self):
        stats = self.runtime.stats()
        return (stats.budget, stats.live, stats.held, stats.allocations, stats.refusals,
                [(each.name, each.maximum, each.guaranteed) for each in stats.clients])

    def refused(self, call, *values):
        """The call raises for each, in words that name what is wrong, and nothing has changed."""
        before = self.state()
        for value in values:
            with self.subTest(value=value), self.assertRaises((weir.Invalid, TypeError)) as caught:
                call(value)
                self.fail("it is taken")
            self.assertNotIsInstance(caught.exception, ctypes.ArgumentError)
            self.assertEqual(before, self.state())


class Boundary(unittest.TestCase):
    """Every member of every structure, and every parameter of every function."""

    def members(self):
        for module in (structures, inspection, pooling):
            for name, each in vars(module).items():
                if isinstance(each, type) and issubclass(each, structures.Sized) and hasattr(each, "_fields_"):
                    for member, kind in each._fields_:
                        if kind in _numbers.RANGES:
                            yield each, member, _numbers.RANGES[kind]

    def test_a_member_takes_what_its_type_has(self):
        count = 0
        for structure, member, (least, most) in self.members():
            it = structure()
            for value in (least, most, Index(most)):
                setattr(it, member, value)
                self.assertEqual(value if isinstance(value, int) else value.value, getattr(it, member), (structure, member))
            for wrong in (least - 1, most + 1, most + 1 + 4096, Index(most + 1)):
                with self.assertRaisesRegex(weir.Invalid, f"{member} is a number from {least} to {most}"):
                    setattr(it, member, wrong)
            for wrong in NO_WHOLE:
                with self.assertRaisesRegex(TypeError, f"{member} is a whole number"):
                    setattr(it, member, wrong)
            self.assertEqual(most, getattr(it, member))
            if member != "struct_size":
                with self.assertRaises(weir.Invalid):
                    structure(**{member: most + 1})
            count += 1
        self.assertGreater(count, 150)

    def test_a_parameter_takes_what_its_type_has(self):
        count, manifests = 0, inspection.manifests()
        declared = {**library.FUNCTIONS, **inspection.FUNCTIONS, **inspection.MANIFEST_FUNCTIONS, **seams.FUNCTIONS,
                    **{name: (None, arguments) for name, arguments in pooling.STATUS_FUNCTIONS.items()}}
        for name, (_, arguments) in declared.items():
            owner = next(each for each in (library.lib, seams.seams, manifests) if hasattr(each, name))
            for kind, taken in zip(arguments, getattr(owner, name).argtypes):
                if kind not in _numbers.RANGES:
                    continue
                least, most = _numbers.RANGES[kind]
                self.assertEqual(most, taken.from_param(most).value, name)
                self.assertEqual(most, taken.from_param(Index(most)).value, name)
                for wrong in (least - 1, most + 1, 2 * most + 4096):
                    with self.assertRaises(weir.Invalid):
                        taken.from_param(wrong)
                for wrong in NO_WHOLE:
                    with self.assertRaises(TypeError):
                        taken.from_param(wrong)
                count += 1
        self.assertGreater(count, 30)


class Sizes(Bed):
    def test_a_block(self):
        self.refused(self.client.alloc, 0, -1, *TOO_LARGE, *NO_WHOLE, *TEXTS)
        for most in (2**64 - 1, 2**63, "16777215TiB"):
            with self.assertRaises((weir.OutOfMemory, weir.Invalid)):
                self.client.alloc(most)
        with self.client.alloc(Index(4096)) as block, self.client.alloc("4k") as other, self.client.alloc(" 4 KiB ") as third:
            self.assertEqual([4096] * 3, [each.bytes for each in (block, other, third)])

    def test_what_a_block_is_like(self):
        for word in ("alignment", "memory_class", "kind"):
            self.refused(lambda value, word=word: self.client.alloc(64, **{word: value}), 2**32, 2**64, 2**64 + 1, -1, True, 1.5, "1")

    def test_a_part_of_a_block(self):
        with self.client.alloc(64) as block:
            for wrong in (2**64, -1, 65, True, 4.0, "4"):
                with self.assertRaises((weir.Invalid, TypeError)):
                    block.tensor(weir.Type.F32, offset=wrong)
            for wrong in ((2**64,), (0, 2**64), (0, 2**63), (-1, -1), (True,), (2.0,), ("2",)):
                with self.assertRaises((weir.Invalid, TypeError)):
                    block.tensor(weir.Type.F32, wrong)
            for wrong in (weir.Type.TEXT, weir.Type.NONE):
                with self.assertRaisesRegex(ValueError, "no tensor's type"):
                    block.tensor(wrong)
            self.assertEqual((2, 8), block.tensor(weir.Type.F32, (Index(2), 8)).shape)

    def test_the_limits_of_a_client(self):
        for word in ("maximum", "guarantee"):
            self.refused(lambda value, word=word: self.runtime.client("b", **{word: value}), -1, *TOO_LARGE, *NO_WHOLE, *TEXTS)
            limits = {"maximum": "32MiB", "guarantee": MIB}
            self.refused(lambda value, word=word, limits=limits: self.client.set_limits(**{**limits, word: value}),
                         -1, *TOO_LARGE, *NO_WHOLE, *TEXTS)
        with self.runtime.client("b", maximum=2**64 - 1) as client:
            self.assertEqual(64 * MIB, client.stats().maximum)  # the budget

    def test_a_budget(self):
        wrong = [each for each in (0, "0", "0B", "0GiB", -1, *TOO_LARGE, *NO_WHOLE, *TEXTS) if each is not None]
        self.refused(lambda value: weir.Runtime("host", budget=value, own=True), *wrong)
        with self.assertRaisesRegex(weir.Invalid, "budget of 0"):
            weir.Runtime("host", budget=0)
        self.refused(lambda value: setattr(self.runtime, "budget", value), 0, "0", -1, *TOO_LARGE, *NO_WHOLE, *TEXTS)
        self.runtime.budget = Index(48 * MIB)
        self.assertEqual(48 * MIB, self.runtime.budget)

    def test_texts_are_read_as_the_command_reads_them(self):
        for told, size in {"7": 7, "512": 512, "12B": 12, "1.5KiB": 1536, "1.5k": 1536, "3 GiB": 3 * GIB, "2g": 2 * GIB, "1GB": GIB,
                           "1TiB": 2**40, " 12 MiB ": 12 * MIB, "0": 0, "18446744073709551615": 2**64 - 1}.items():
            self.assertEqual(size, weir.parse_size(told), told)
        for wrong in TEXTS:
            with self.assertRaisesRegex(weir.Invalid, "is no size"):
                weir.parse_size(wrong)
        with self.assertRaises(ValueError):
            weir.parse_size("1\0GiB")
        self.assertEqual(2**64 - 1, weir.parse_size(2**64 - 1))

    def test_a_framework(self):
        """Before its first allocation, where nobody would be told."""
        for word in ("budget", "maximum", "guarantee"):
            wrongs = (-1, True, 1.5, *TOO_LARGE, *TEXTS, *([0, "0"] if word == "budget" else [None]))
            for wrong in wrongs:
                with self.assertRaises((weir.Invalid, TypeError)):
                    Clients("torch", **{word: wrong})

    def test_what_is_written(self):
        for wrong in (-1, True, 1.5, *TOO_LARGE):
            with self.assertRaises((weir.Invalid, TypeError)):
                weir.format_size(wrong)
        self.assertEqual("16777216 TiB", weir.format_size(2**64 - 1))

    def test_a_stream(self):
        for wrong in (0, -2, 2**64, 2**64 + 1, True, 1.5):
            with self.assertRaises((ValueError, TypeError)):
                _native(wrong)
        self.assertEqual((1, 1, 2**64 - 1), (_native(None), _native(1), _native(2**64 - 1)))

    def test_a_fit(self):
        for wrong in (0, "0", -1, True, 1.5, *TOO_LARGE):
            with self.assertRaises((weir.Invalid, TypeError)):
                weir.predict_fit("/nonexistent.onnx", wrong)
        for word in ("least_context", "most_context"):
            for wrong in (-1, 2**64, 2**64 + 1, True, 1.5):
                with self.assertRaises((weir.Invalid, TypeError)):
                    weir.predict_fit("/nonexistent.onnx", "1GiB", **{word: wrong})

    def test_a_model(self):
        for word in ("maximum", "guarantee"):
            for wrong in (-1, True, 1.5, None, *TOO_LARGE, *TEXTS):
                with self.assertRaises((weir.Invalid, TypeError)):
                    weir.load("/nonexistent.onnx", **{word: wrong})

    def test_a_trace(self):
        self.refused(lambda value: self.runtime.trace(capacity=value), -1, *TOO_LARGE, True, 1.5)


class Times(Bed):
    WRONG = (-1, -0.5, math.nan, math.inf, -math.inf, 1e30, 2**64, 10**5000, Decimal("nan"), True, "1", [1], 1j)

    def test_seconds_become_nanoseconds(self):
        for seconds, wanted in {0: 0, 0.0: 0, 1: 10**9, 0.25: 25 * 10**7, 1e-12: 1, 9e9: 9 * 10**18}.items():
            self.assertEqual(wanted, _numbers.nanoseconds(seconds))
        self.assertEqual((0, 1), (residency.wait_limit(None), residency.wait_limit(0)))
        self.assertEqual((0, 1, pooling.NONE, 10**9), (pool._time(None), pool._time(0), pool._limit(0), pool._limit(1)))
        for wrong in self.WRONG:
            with self.assertRaises((weir.Invalid, TypeError)):
                _numbers.nanoseconds(wrong)

    def test_a_suspend(self):
        self.refused(lambda value: self.client.suspend(wait=value), *self.WRONG)
        self.assertEqual(weir.ResidencyState.RESIDENT, self.client.residency.state)

    def test_a_pool(self):
        with weir.Runtime("host", budget="16MiB", own=True) as runtime:
            for word in ("longest_wait", "passing", "retry"):
                for wrong in self.WRONG:
                    with self.assertRaises((weir.Invalid, TypeError)):
                        weir.Pool([runtime], **{word: wrong})
            for word in ("queue", "threads", "host_bytes"):
                for wrong in (-1, 2**64, 2**64 + 1, True, 1.5):
                    with self.assertRaises((weir.Invalid, TypeError)):
                        weir.Pool([runtime], **{word: wrong})
            with self.assertRaises((weir.Invalid, TypeError)):
                weir.Pool([runtime, 5])
            with weir.Pool([runtime]) as models:  # what was refused has not kept the runtime
                for word in ("keep_alive", "suspend_after", "minimum_stay", "evict_cost"):
                    for wrong in self.WRONG:
                        with self.assertRaises((weir.Invalid, TypeError)):
                            models.add("/nonexistent.onnx", **{word: wrong})
                for word, wrongs in {"slots": (2**32 + 1, -1, True, 1.5), "weight": (2**32 + 1, -1), "priority": (2**31, 2**32 + 1, 0.5),
                                     "peak": (2**64, -1, "1e3"), "maximum": (2**64,), "guarantee": (2**64,)}.items():
                    for wrong in wrongs:
                        with self.assertRaises((weir.Invalid, TypeError)):
                            models.add("/nonexistent.onnx", **{word: wrong})
                for wrong in (weir.Variant({}, peak=2**64), weir.Variant({}, context=2**32), weir.Variant({}, layers=2**31)):
                    with self.assertRaises(weir.Invalid):
                        models.add("/nonexistent.onnx", variants=[wrong])
                for word, wrongs in {"size": (2**64 + 1, -1, True, 1.5), "wait": self.WRONG, "priority": (2**31,),
                                     "request": (2**64 + 7, -1, 1.5)}.items():
                    for wrong in wrongs:
                        with self.assertRaises((weir.Invalid, TypeError)):
                            models.acquire("none", **{word: wrong})
                for wrong in (2**64 + 7, -1, 1.5, True):
                    with self.assertRaises((weir.Invalid, TypeError)):
                        models.cancel(wrong)
                for call in (models.load, models.unload, models.suspend, models.remove):
                    for wrong in self.WRONG:
                        with self.assertRaises((weir.Invalid, TypeError)):
                            call("none", wrong)


class Settings(unittest.TestCase):
    def test_numbers_become_texts(self):
        try:
            from weir.tensors import setting_text
        except ImportError as error:
            raise unittest.SkipTest(str(error))
        for value, wanted in ((True, "on"), (3, "3"), (0.5, "0.5"), (["a", 2], "a\n2"), ("x", "x"), (weir.Class.KV, "4")):
            self.assertEqual(wanted, setting_text(value))
        for wrong in (None, 1j, b"x", [None], {}):
            with self.assertRaises(TypeError):
                setting_text(wrong)


if __name__ == "__main__":
    unittest.main()
