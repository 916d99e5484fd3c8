#!/usr/bin/env python3
"""Writes operators.txt, the operators that ONNX Runtime has by its own schemas, into this folder (needs the package onnxruntime).

What ONNX Runtime makes of a graph by itself (com.microsoft.nchwc, com.ms.internal.nhwc) is in no file."""

from pathlib import Path

from onnxruntime.capi import onnxruntime_pybind11_state as state

INSIDE = ("com.microsoft.nchwc", "com.ms.internal.nhwc")
names = {f"{schema.domain or 'ai.onnx'} {schema.name}" for schema in state.get_all_operator_schema() if schema.domain not in INSIDE}
(Path(__file__).parent / "operators.txt").write_text("\n".join(sorted(names)) + "\n")
