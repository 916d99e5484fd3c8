"""Make a CUDA library small: keep the machine code for one architecture.

A library for CUDA holds each kernel once for every architecture, in containers inside the section .nv_fatbin: a head
(magic, version, length of head, length of all entries) and entries (machine code or PTX, for one architecture each,
usually compressed with zstd). What is dropped becomes zeros: the file keeps its length, its sections and the places of
its containers, so that nothing that points into it must change, and any compressor makes the zeros go away. A container
that is left with nothing keeps one small entry for another architecture: loading it answers, as with any library that was
not compiled for a device, that there is no kernel image.

    cuda_trim.py IN OUT --arch 90 [--drop REGEX]

--drop also drops code with a kernel whose name, as it is mangled, matches: '5flash|MoeFC'.
"""

import argparse
import ctypes
import ctypes.util
import re
import struct
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)
PTX, ELF = 1, 2
ZSTD = b"\x28\xb5\x2f\xfd"


class NotUnderstood(Exception):
    """The file is not what this knows how to trim."""


class Entry:
    """One piece of code inside a container."""

    def __init__(self, data, at, end):
        self.at = at
        self.kind, _, head, padded, packed = struct.unpack_from("<HHIQI", data, at)
        self.arch, = struct.unpack_from("<I", data, at + 28)
        self.unpacked, = struct.unpack_from("<Q", data, at + 56)
        self.length = head + padded
        if self.kind not in (PTX, ELF) or head < 64 or at + self.length > end or packed > padded:
            raise NotUnderstood(f"the entry at {at:#x} (kind {self.kind}, head {head}, {padded} bytes)")
        self.code = slice(at + head, at + head + packed)
        self.whole = slice(at, at + self.length)


class Container:
    def __init__(self, data, at, end):
        self.at = at
        _, head, length = struct.unpack_from("<HHQ", data, at + 4)
        self.begin, self.end = at + head, at + head + length
        if self.end > end:
            raise NotUnderstood(f"the container at {at:#x} runs past its section")
        self.entries = []
        place = self.begin
        while place < self.end:
            self.entries.append(Entry(data, place, self.end))
            place += self.entries[-1].length


def section(data, wanted):
    """Where in the file the section of that name lies: (begin, end)."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise NotUnderstood("this is no 64-bit little-endian ELF file")
    table, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    heads = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    for head in heads:
        name = heads[names][4] + head[0]
        if data[name:data.index(b"\0", name)] == wanted:
            return head[4], head[4] + head[5]
    raise NotUnderstood(f"there is no section {wanted.decode()}: no library with CUDA code")


def containers(data):
    at, end = section(data, b".nv_fatbin")
    found = []
    while (at := data.find(MAGIC, at, end)) >= 0:
        found.append(Container(data, at, end))
        at = found[-1].end
    return found


class Unpacker:
    """Unpacks an entry's machine code, by the system's libzstd."""

    def __init__(self):
        name = ctypes.util.find_library("zstd")
        if not name:
            raise NotUnderstood("looking at kernels' names needs libzstd: sudo apt install libzstd1")
        self.library = ctypes.CDLL(name)
        self.library.ZSTD_decompress.restype = ctypes.c_size_t

    def __call__(self, data, entry):
        packed = bytes(data[entry.code])
        if not packed.startswith(ZSTD):
            return packed
        space = ctypes.create_string_buffer(entry.unpacked)
        size = self.library.ZSTD_decompress(space, ctypes.c_size_t(entry.unpacked), packed,
                                            ctypes.c_size_t(len(packed)))
        if size != entry.unpacked:
            raise NotUnderstood(f"the entry at {entry.at:#x} does not unpack")
        return space.raw


def kernel_names(code):
    return re.findall(rb"\.text\.([A-Za-z0-9_$.]+)", code)


def trim(data, arch, drop=None):
    """Trims a bytearray in place; answers what was kept and dropped, in bytes of code."""
    all_containers = containers(data)
    others = [e for c in all_containers for e in c.entries if e.arch != arch]
    if len(others) == sum(len(c.entries) for c in all_containers):
        raise NotUnderstood(f"there is no code for the architecture {arch}")
    smallest = min(others, key=lambda e: e.length, default=None)
    stub = bytes(data[smallest.whole]) if smallest else b""
    pattern = re.compile(drop.encode()) if drop else None
    unpack = Unpacker() if pattern else None
    kept = dropped = 0

    def wanted(entry):
        if entry.arch != arch:
            return False
        return not (pattern and any(pattern.search(name) for name in kernel_names(unpack(data, entry))))

    for container in all_containers:
        chosen = [entry for entry in container.entries if wanted(entry)]
        code = b"".join(bytes(data[entry.whole]) for entry in chosen)
        room = container.end - container.begin
        kept += len(code)
        dropped += room - len(code)
        code = code or (stub if len(stub) <= room else bytes(data[container.begin:container.end]))
        data[container.begin:container.end] = code + bytes(room - len(code))
        struct.pack_into("<Q", data, container.at + 8, len(code))
    return kept, dropped


def trim_file(source, target, arch, drop=None):
    with open(source, "rb") as file:
        data = bytearray(file.read())
    answer = trim(data, arch, drop)
    with open(target, "wb") as file:
        file.write(data)
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--arch", type=int, required=True, metavar="SM", help="90 for H100 and H200, and so on")
    parser.add_argument("--drop", metavar="REGEX", help="drop kernels whose mangled names match")
    args = parser.parse_args()
    try:
        kept, dropped = trim_file(args.source, args.target, args.arch, args.drop)
    except (NotUnderstood, OSError, struct.error, re.error) as error:
        print(f"cuda_trim.py: {args.source}: {error}", file=sys.stderr)
        return 1
    print(f"kept {kept} bytes of code, dropped {dropped}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
