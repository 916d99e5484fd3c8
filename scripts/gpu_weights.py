"""An ONNX file without its weights, small enough to be carried, and with random ones again: what is computed with it means
nothing, but every node has its work, and two devices have to agree on it."""

import json
import lzma

GRAPH, INITIALIZER = 7, 5            # of a model, of a graph
NAME, TYPE, RAW = 8, 2, 9           # of a tensor
FLOAT, LEAST = 1, 1024


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data, at, end):
    """Number, and value or place of each field of a message."""
    while at < end:
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = varint(data, at)
            yield number, value, at
            continue
        length, at = varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
        yield number, at, at + length
        at += length


def places(data):
    """Of each tensor of many floats: where its bytes lie, how many, and whether it is the scale of a norm."""
    found = []
    for number, at, end in fields(data, 0, len(data)):
        if number != GRAPH:
            continue
        for inner, first, last in fields(data, at, end):
            if inner != INITIALIZER:
                continue
            tensor = {key: (value, stop) for key, value, stop in fields(data, first, last)}
            raw, name = tensor.get(RAW), tensor.get(NAME, (0, 0))
            if raw and tensor.get(TYPE, (0, 0))[0] == FLOAT and raw[1] - raw[0] >= LEAST:
                scale = bytes(data[slice(*name)]).endswith(b"LayerNorm.weight")
                found.append((raw[0], raw[1] - raw[0], scale))
    return found


def take_out(path, packed):
    data = bytearray(path.read_bytes())
    found = places(data)
    for at, size, _ in found:
        data[at:at + size] = bytes(size)
    head = json.dumps(found).encode() + b"\n"
    packed.write_bytes(lzma.compress(head + data))


def put_in(packed, path):
    import numpy  # which the place that packs need not have
    head, data = lzma.decompress(packed.read_bytes()).split(b"\n", 1)
    data, random = bytearray(data), numpy.random.default_rng(1)
    for at, size, scale in json.loads(head):
        values = random.standard_normal(size // 4, dtype=numpy.float32) * numpy.float32(0.05) + numpy.float32(scale)
        data[at:at + size] = values.tobytes()
    path.write_bytes(data)
