"""Arrows between the rooms of src/ point one way: which room may include which is listed here, from the ground up. The program
weir-bench, which lies beside src/, is a room of its own.

    arrows.py SRC    checks the tree; its own tests run before"""

import re
import sys
import unittest
from pathlib import Path

# A room may include its own headers, the public ones, and those of the rooms named here, all of which stand above it in
# this list.
ROOMS = {
    "base": (),
    "gguf/file": (),
    # libweir, upwards
    "cores": ("base",),
    "planner": ("base",),
    "driver": ("base",),
    "memory": ("driver", "base"),
    "trace": ("base",),
    "runtime": ("memory", "driver", "base"),
    "planner/arena": ("runtime", "memory", "base"),
    "onnx/bridge": ("runtime", "base"),
    "engines": (),
    "factory": ("engines/command.h", "base"),
    "factory/hardware": ("base",),
    "factory/predict": ("gguf/file", "base"),
    "factory/choice": ("factory/predict", "factory/registry.h", "runtime", "base"),
    "factory/model": ("factory/choice", "factory/predict", "factory/registry.h", "runtime", "base"),
    "pool": ("factory/model", "factory/choice", "factory/registry.h", "runtime", "base"),
    # beside it
    "interpose": ("base",),
    "interpose/preload": ("driver/cuda_api.h", "base"),
    "seams": ("base/maps.h",),
    "manifest": ("base",),
    "onnx/file": ("base/stamp.h",),
    "onnx/shapes": ("onnx/file", "base"),
    "engines/text": (),
    "onnx/engine": ("engines/text", "onnx/shapes", "onnx/file", "onnx/bridge/api.h", "interpose", "base/maps.h", "base/stamp.h", "base/probes.h", "engines/command.h"),
    "gguf/engine": ("engines/text", "gguf/file", "interpose", "base/stamp.h", "engines/command.h"),
    "engines/llm": ("engines/text", "onnx/file", "onnx/bridge/api.h", "interpose", "base/maps.h", "base/stamp.h", "engines/command.h"),
    # around it
    "sim": ("runtime", "memory", "driver", "base", "pool/admission.h", "pool/decisions.h"),
    "serve": (),
    "cli": ("sim", "serve", "onnx/shapes", "onnx/file", "trace", "runtime", "driver", "base", "engines/command.h"),
    # beside the command, and beside src/: the program weir-bench
    "bench/command": ("cli", "driver/cuda_api.h"),
}
BESIDE = "bench/command"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)
ELSEWHERE = re.compile(r"(\.\./[\w./]*\.c(?:pp)?)\b")


# Built alone against an installed weir, which has these as sources and not as a library.
STANDALONE = {("gguf/engine/CMakeLists.txt", "../../base/maps.c")}


def room_of(path):
    """The room of a path below src: the longest that is listed, else its first folder."""
    folders = path.split("/")[:-1]
    for length in range(len(folders), 0, -1):
        if "/".join(folders[:length]) in ROOMS:
            return "/".join(folders[:length])
    return folders[0] if folders else ""


def target_of(path, name, paths):
    """What the include means: a file of the same folder, or one of src."""
    beside = Path(path).parent.joinpath(name).parts
    return next((one for one in ("/".join(beside), name) if one in paths), None)


def complaints(files):
    """What is wrong with a tree: of its paths below src, each with its text."""
    found = []
    for path, text in sorted(files.items()):
        room = room_of(path)
        if room and room not in ROOMS:
            found.append(f"{path}: there is no room {room} in the list of tests/headers/arrows.py")
        elif path.endswith((".c", ".h", ".cpp")):
            for name in INCLUDE.findall(text):
                target = target_of(path, name, files)
                to = room_of(target) if target else None
                if name.startswith("../"):
                    found.append(f"{path} includes {name}, by a path that leaves its room")
                elif to and to != room and to not in ROOMS[room] and target not in ROOMS[room]:
                    found.append(f"{path} includes {name}: no arrow goes from {room} to {to}")
        else:
            found += [f"{path} compiles {name}, another room's file: link that room's library"
                      for name in ELSEWHERE.findall(text) if (path, name) not in STANDALONE]
    return found


class Lists(unittest.TestCase):
    def test_each_room_points_to_rooms_above_it(self):
        seen = set()
        for room, arrows in ROOMS.items():
            for arrow in arrows:
                self.assertIn(arrow if arrow in ROOMS else room_of(arrow), seen, f"{room} → {arrow}")
            seen.add(room)

    def test_an_arrow_that_is_listed_is_none_to_complain_of(self):
        self.assertEqual([], complaints({"base/a.h": "", "driver/b.h": '#include "base/a.h"\n#include "own.h"\n',
                                         "driver/own.h": "", "onnx/bridge/api.h": "",
                                         "onnx/engine/e.c": '#include "onnx/bridge/api.h"\n'}))

    def test_the_room_beside_src_uses_the_command_and_is_used_by_none(self):
        program = {"bench/command/a.c": '#include "cli/args.h"\n#include "own.h"\n', "bench/command/own.h": "", "cli/args.h": ""}
        self.assertEqual([], complaints(program))
        self.assertEqual(["cli/a.c includes bench/command/own.h: no arrow goes from cli to bench/command"],
                         complaints({**program, "cli/a.c": '#include "bench/command/own.h"\n'}))

    def test_an_arrow_back_is_found(self):
        self.assertEqual(["base/a.c includes driver/b.h: no arrow goes from base to driver"],
                         complaints({"base/a.c": ' #  include "driver/b.h"\n', "driver/b.h": ""}))
        for path, header in (("factory/registry.c", "onnx/engine/x.h"), ("onnx/engine/e.c", "onnx/bridge/bridge.h")):
            self.assertEqual(1, len(complaints({path: f'#include "{header}"\n', header: ""})))

    def test_a_new_room_has_to_be_listed(self):
        self.assertEqual(1, len(complaints({"cellar/a.c": ""})))

    def test_a_path_out_of_the_room_is_found(self):
        self.assertEqual(1, len(complaints({"cli/a.c": '#include "../../bench/peer.h"\n'})))

    def test_a_file_that_two_rooms_compile_is_found(self):
        self.assertEqual(1, len(complaints({"cli/CMakeLists.txt": "add_executable(a main.c\n  ../trace/reader.c)\n"})))


def read_tree(src):
    """The text of each file by its path below src, and of the room beside it by its path below the root."""
    return {str(path.relative_to(top)): path.read_text(errors="replace") for top, folder in ((src, src), (src.parent, src.parent / BESIDE))
            for path in folder.rglob("*") if path.suffix in (".c", ".h", ".cpp", ".cmake") or path.name == "CMakeLists.txt"}


def main():
    if not unittest.main(argv=sys.argv[:1], exit=False).result.wasSuccessful():
        sys.exit(1)
    found = complaints(read_tree(Path(sys.argv[1]).resolve()))
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
