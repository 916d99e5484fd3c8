#!/usr/bin/env python3
"""backend.py FOLDER [EVERY]: the node tests that the onnx package generates, every EVERY-th of them, for test-onnx-backend.

Each case becomes FOLDER/NAME.onnx and FOLDER/NAME.inputs (per input a line of name, ONNX type, rank, extents and bytes, then the
bytes); FOLDER/cases lists the names. Cases whose inputs or outputs are no tensors of numbers, which the engine does not take, are
left out and counted. What was made before by this script and this onnx is left as it is."""

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

T = onnx.TensorProto
IR_VERSION = 11  # which nothing in these graphs needs more than, and ONNX Runtimes before the newest know
OF_NUMBERS = {T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16, T.INT8, T.INT16, T.INT32, T.INT64, T.UINT8, T.UINT16, T.UINT32, T.UINT64,
              T.BOOL, T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ}


def type_of(value):
    """The element type of a tensor of numbers; None for another value."""
    if value.type.WhichOneof("value") != "tensor_type":
        return None
    kind = value.type.tensor_type.elem_type
    return kind if kind in OF_NUMBERS else None


def write_inputs(path, graph, arrays):
    with open(path, "wb") as file:
        for value, array in zip(graph.input, arrays):
            array = numpy_helper.to_array(array) if isinstance(array, T) else np.asarray(array)
            data = array.tobytes()
            extents = " ".join(str(n) for n in array.shape)
            file.write(f"{value.name} {type_of(value)} {array.ndim} {extents} {len(data)}\n".encode() + data)


def main():
    folder, every = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    stamp = f"{onnx.__version__} {every} {Path(__file__).stat().st_mtime_ns}\n"
    if (folder / "stamp").is_file() and (folder / "stamp").read_text() == stamp:
        print("the cases are there")
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    cases = load_model_tests(kind="node")[::every]
    names, left_out = [], 0
    for case in cases:
        graph = case.model.graph
        if not case.data_sets or not all(type_of(v) for v in [*graph.input, *graph.output]) or \
                len(case.data_sets[0][0]) != len(graph.input):
            left_out += 1
            continue
        case.model.ir_version = min(case.model.ir_version, IR_VERSION)
        onnx.save(case.model, folder / f"{case.name}.onnx")
        write_inputs(folder / f"{case.name}.inputs", graph, case.data_sets[0][0])
        names.append(case.name)
    (folder / "cases").write_text("".join(f"{name}\n" for name in names))
    (folder / "stamp").write_text(stamp)
    print(f"{len(names)} cases, {left_out} left out: not tensors of numbers alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
