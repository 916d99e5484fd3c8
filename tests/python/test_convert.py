"""Numbers and lists as inputs: each becomes what its input's type makes of it, or is refused."""

import ctypes
import importlib.util
import math
import struct
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from common import missing, model_path

import weir
from weir import Type
from weir.tensors import FORMATS, Inputs, numpy

np = numpy()
WHOLE = [Type.I8, Type.I16, Type.I32, Type.I64, Type.U8, Type.U16, Type.U32, Type.U64]
REAL = [Type.F16, Type.F32, Type.F64, Type.BF16]
FLOAT8 = [Type.F8E4M3FN, Type.F8E4M3FNUZ, Type.F8E5M2, Type.F8E5M2FNUZ]
has_ml_dtypes = importlib.util.find_spec("ml_dtypes") is not None
without_ml_dtypes = mock.patch.dict("sys.modules", {"ml_dtypes": None})


def given(value, kind):
    """Type, shape and bytes of the tensor that the value becomes for an input of that kind."""
    with Inputs({"x": value}, {"x": kind}, "host", 0) as its:
        it = its.array[0]
        return Type(it.type), tuple(it.shape[:it.rank]), ctypes.string_at(it.data, it.bytes) if it.bytes else b""


def numbers(value, kind):
    """What is in it, by the type's own rules."""
    got, _, data = given(value, kind)
    assert got == kind, got
    if kind == Type.BF16:
        return [each[0] for each in struct.iter_unpack("<f", b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)))]
    return [each[0] for each in struct.iter_unpack("<" + FORMATS[kind], data)]


@unittest.skipUnless(np, "lists are taken where NumPy is installed")
class Numbers(unittest.TestCase):
    def test_real_types_have_the_numbers(self):
        for kind in REAL:
            self.assertEqual([1.0, -2.5, 0.0, 3.0], numbers([1.0, -2.5, False, 3], kind))
            self.assertEqual([2.0 ** 10], numbers(2 ** 10, kind))
            self.assertEqual((kind, (2, 1)), given([[1], [2]], kind)[:2])
            self.assertEqual((kind, (), 1), (*given(1.5, kind)[:2], len(numbers(1.5, kind))))
            self.assertEqual((kind, (0,), b""), given([], kind))
            self.assertTrue(math.isnan(numbers([math.nan], kind)[0]))
            self.assertEqual([math.inf, -math.inf], numbers([math.inf, -math.inf], kind))

    def test_masked_elements_are_refused(self):
        array = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
        for kind in (Type.F32, Type.I64, Type.NONE):
            for value in (array, array.astype(np.int64), np.ma.array([[1, 2]], mask=[[True, False]]), np.ma.masked, np.ma.masked_all(3)):
                with self.assertRaisesRegex(ValueError, r"the input 'x' is a \w+: elements of it are masked.*filled"):
                    given(value, kind)
        for value in ([1.0, np.ma.masked], [[1.0, 2.0, 3.0], array], (array, array)):
            with self.assertRaisesRegex(ValueError, "are masked"):
                given(value, Type.F32)
        whole = np.ma.array([1.0, 2.0], mask=[False, False], dtype=np.float32)
        for value in (whole, array.filled(9)[:2].astype(np.float32) - [0, 7], np.ma.array([1.0, 2.0], dtype=np.float32), array.compressed()[:1].tolist() + [2]):
            self.assertEqual([1.0, 2.0], numbers(value.astype(np.float32) if isinstance(value, np.ndarray) else value, Type.F32))

    def test_bfloat16_is_rounded_to_the_nearest_and_to_the_even_one(self):
        half = 2.0 ** -8  # of the distance between two of them from 1 on
        cases = {1 + half: 1.0, 1 + 3 * half: 1 + 4 * half, 1 + half * 1.01: 1 + 2 * half, 1 + half * 0.99: 1.0, -1 - half: -1.0,
                 -1 - 3 * half: -1 - 4 * half, 3.4e38: math.inf, 2.0 ** -133: 2.0 ** -133, 2.0 ** -134: 0.0, 3 * 2.0 ** -134: 2.0 ** -132,
                 70000.0: 70144.0}
        for patch in (without_ml_dtypes, mock.patch.dict("sys.modules", {})):
            with patch:
                self.assertEqual(list(cases.values()), numbers(list(cases), Type.BF16))
        with without_ml_dtypes:
            self.assertEqual(b"\xc0\x7f", given(math.nan, Type.BF16)[2])

    @unittest.skipUnless(has_ml_dtypes, "without ml_dtypes")
    def test_bfloat16_is_that_of_ml_dtypes(self):
        import ml_dtypes
        bits = np.random.default_rng(7).integers(0, 2**32, 20000, dtype=np.uint32)
        values = bits.view(np.float32)
        values = values[~np.isnan(values)].tolist()
        wanted = np.asarray(values, dtype=np.float32).astype(ml_dtypes.bfloat16).tobytes()
        with without_ml_dtypes:
            self.assertEqual(wanted, given(values, Type.BF16)[2])
        self.assertEqual(wanted, given(values, Type.BF16)[2])

    @unittest.skipUnless(has_ml_dtypes, "without ml_dtypes")
    def test_float8_is_that_of_ml_dtypes(self):
        import ml_dtypes
        values = [1.0, 0.5, -2.0, 0.3, 100.0, 0.0, 3]
        for kind in FLOAT8:
            other = getattr(ml_dtypes, f"float8_{kind.name[2:].lower()}")
            self.assertEqual((kind, (7,), np.asarray(values).astype(other).tobytes()), given(values, kind))
        self.assertEqual(b"\x38\x30", given([1.0, 0.5], Type.F8E4M3FN)[2])

    def test_float8_without_it_is_refused_by_name(self):
        with without_ml_dtypes:
            for kind in FLOAT8:
                with self.assertRaisesRegex(TypeError, f"the input 'x' is a list: numbers become {kind.name.lower()} where .* ml_dtypes"):
                    given([1.0], kind)
                self.assertEqual(b"\x38", given(np.array([0x38], dtype=np.uint8), kind)[2])  # bits are taken

    @unittest.skipUnless(has_ml_dtypes, "without ml_dtypes")
    def test_arrays_of_ml_dtypes_are_of_their_type(self):
        import ml_dtypes
        array = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=ml_dtypes.bfloat16)
        for wanted in (Type.BF16, Type.F32):
            self.assertEqual((Type.BF16, (2, 2), array.tobytes()), given(array, wanted))
        self.assertEqual(array.T.copy().tobytes(), given(array.T, Type.BF16)[2])
        self.assertEqual(Type.F8E5M2, given(array.astype(ml_dtypes.float8_e5m2), Type.F8E5M2)[0])
        self.assertEqual([1.0, 2.0], numbers([each for each in array[0]], Type.BF16))
        self.assertEqual([1.0, 2.0], numbers([each for each in array[0]], Type.F32))

    def test_whole_numbers_are_those_of_the_type_or_refused(self):
        for kind in WHOLE:
            bits = 8 * struct.calcsize("<" + FORMATS[kind])
            least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.name[0] == "I" else (0, (1 << bits) - 1)
            self.assertEqual([least, most, 1], numbers([least, most, True], kind))
            for wrong in (least - 1, most + 1, most + 1 + 2**bits, 2**70, -(2**70)):
                for value in (wrong, [1, wrong], [[wrong]]):
                    with self.assertRaisesRegex(weir.Invalid, f"the input 'x': {wrong} is no {kind.name.lower()}"):
                        given(value, kind)

    def test_fractions_are_no_whole_numbers(self):
        for kind in (*WHOLE, Type.BOOL):
            for wrong in (1.9, 1.0, [1, 2.5], [0.3, 0.0], [1e30], [math.nan], [math.inf], [2**63, 0.5]):
                with self.assertRaisesRegex(TypeError, f"the input 'x' is a .*: what is .* is no {kind.name.lower()}"):
                    given(wrong, kind)

    def test_truth_is_of_bools_and_of_0_and_1(self):
        self.assertEqual([True, False, True], numbers([True, 0, 1], Type.BOOL))
        for wrong in (2, -1, [0, 256]):
            with self.assertRaises(weir.Invalid):
                given(wrong, Type.BOOL)

    def test_what_are_no_numbers_is_refused(self):
        for kind in (*WHOLE, *REAL, *FLOAT8, Type.BOOL):
            for wrong in (["1"], [1, "2"], [None], [1, None], [1j], [b"1"], [object()], [{}], [[1, 2], [3]]):
                with self.assertRaises((TypeError, ValueError)):
                    given(wrong, kind)
        with self.assertRaises(ValueError):
            given([10**400], Type.F64)

    def test_numbers_of_numpy_are_numbers(self):
        self.assertEqual([7], numbers(np.int64(7), Type.I32))
        self.assertEqual([1.5], numbers(np.float32(1.5), Type.BF16))
        self.assertEqual([5, 6], numbers([np.uint8(5), np.int16(6)], Type.U64))
        with self.assertRaises(weir.Invalid):
            given(np.int64(2**40), Type.I32)
        with self.assertRaises(TypeError):
            given(np.float32(1.5), Type.I64)

    def test_a_model_computes_with_them(self):
        model_path("minilm.onnx")  # where that is, ONNX Runtime is
        if not importlib.util.find_spec("onnx"):
            missing("onnx")
        import onnx
        from onnx import TensorProto, helper
        with tempfile.TemporaryDirectory() as folder:
            for kind, value, wanted in ((TensorProto.BFLOAT16, [1.5, 3.0], [1.5, 3.0]), (TensorProto.INT64, [1, 3], [1.0, 3.0])):
                graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], "g",
                                          [helper.make_tensor_value_info("x", kind, [2])],
                                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])])
                path = Path(folder) / f"{kind}.onnx"
                onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path)
                with weir.load(path) as model:
                    self.assertEqual(wanted, model({"x": value})["y"].tolist())
                    if kind == TensorProto.INT64:
                        with self.assertRaises(TypeError):
                            model({"x": [1.5, 3.0]})


if __name__ == "__main__":
    unittest.main()
