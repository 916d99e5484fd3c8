"""The structures, numbers and prototypes of the package are those that a C compiler finds in the headers."""

import ctypes
import enum
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import SOURCE

from weir import names
from weir._c import inspection, library, pooling, structures

HEADERS = sorted(path for path in (SOURCE / "include/weir").glob("*.h") if "#error" not in path.read_text())
NAMELESS = {"weir_refusal_holder": "((weir_refusal *)0)->holders[0]",  # what C has no name for
            "weir_residency_stay": "((weir_residency *)0)->stay[0]",
            "weir_pool_holder": "((weir_pool_receipt *)0)->holder[0]"}
CONSTANTS = {"WEIR_MAX_RANK": structures.MAX_RANK, "WEIR_KIND_MOST": structures.KIND_MOST, "WEIR_CLASS_MOST": structures.CLASS_MOST,
             "WEIR_RUNG_MOST": structures.RUNG_MOST, "WEIR_REFUSAL_HOLDERS": structures.REFUSAL_HOLDERS,
             "WEIR_STAYS": structures.STAYS, "WEIR_POOL_NONE": pooling.NONE, "WEIR_POOL_HOLDERS": pooling.HOLDERS,
             "WEIR_POOL_EVENT_COUNT": len(pooling.EVENTS), "WEIR_POOL_STEP_COUNT": len(pooling.STEPS),
             "WEIR_BLOCK_WAITS": structures.BLOCK_WAITS, "WEIR_BYTES_UNKNOWN": structures.UNKNOWN,
             "WEIR_ALLOC_ZEROED": structures.ALLOC_ZEROED,
             "WEIR_ALLOC_NO_WAIT": structures.ALLOC_NO_WAIT, "WEIR_NAMES_CLASS": inspection.NAMES_CLASS,
             "WEIR_NAMES_ACTION": inspection.NAMES_ACTION, "WEIR_NAMES_VERDICT": inspection.NAMES_VERDICT}
PREFIXES = {names.Status: "WEIR_ERR_", names.Class: "WEIR_CLASS_", names.Kind: "WEIR_KIND_", names.Scrub: "WEIR_SCRUB_",
            names.Type: "WEIR_TYPE_", names.Cause: "WEIR_CAUSE_", names.Source: "WEIR_OPTION_FROM_", names.Hardware: "WEIR_HARDWARE_",
            names.ResidencyState: "WEIR_", names.Stay: "WEIR_STAY_", names.CpuUse: "WEIR_CPU_"}
COUNTS = {names.Status: "WEIR_STATUS_COUNT", names.Class: "WEIR_CLASS_COUNT", names.Kind: "WEIR_KIND_COUNT",
          names.Scrub: "WEIR_SCRUB_COUNT", names.Type: "WEIR_TYPE_COUNT", names.Cause: "WEIR_CAUSE_COUNT",
          names.Hardware: "WEIR_HARDWARE_COUNT", names.ResidencyState: "WEIR_RESIDENCY_COUNT", names.Stay: "WEIR_STAY_COUNT"}


def structures_used():
    """(name, class) of each structure that is declared."""
    return [(name, each) for name, each in {**vars(structures), **vars(inspection), **vars(pooling)}.items()
            if isinstance(each, type) and issubclass(each, ctypes.Structure) and hasattr(each, "_fields_")]


def expected():
    """What is to be printed, by the C expression that says it."""
    wanted = {}
    for name, each in structures_used():
        sample = NAMELESS.get(name, f"(*({name} *)0)")
        wanted[f"sizeof {sample}"] = ctypes.sizeof(each)
        for member, *_ in each._fields_:
            field = getattr(each, member)
            wanted[f"(char *)&{sample}.{member} - (char *)&{sample}"] = field.offset
            wanted[f"sizeof {sample}.{member}"] = field.size
    wanted.update(CONSTANTS)
    for kind, prefix in PREFIXES.items():
        wanted.update({"WEIR_OK" if each is names.Status.OK else prefix + each.name: int(each) for each in kind})
    wanted.update({count: len(kind) for kind, count in COUNTS.items()})
    return wanted


def printed(expressions):
    """The numbers of a C program over the headers."""
    lines = [f"#include <weir/{path.name}>" for path in HEADERS] + ["#include <stdio.h>", "int main(void) {"]
    lines += [f'printf("%llu\\n", (unsigned long long)({each}));' for each in expressions] + ["return 0; }", ""]
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "layout.c"), Path(folder, "layout")
        source.write_text("\n".join(lines))
        subprocess.run([os.environ.get("CC") or "cc", "-std=gnu11", "-w", "-I", SOURCE / "include", source, "-o", program], check=True)
        return [int(line) for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()]


class Layout(unittest.TestCase):
    def test_sizes_offsets_and_numbers_are_those_of_the_headers(self):
        wanted = expected()
        found = dict(zip(wanted, printed(wanted)))
        self.assertGreater(len(found), 250)
        self.assertEqual(found, wanted)

    def test_members_have_the_headers_names_in_their_order(self):
        text = re.sub(r"/\*.*?\*/", "", "".join(path.read_text() for path in HEADERS), flags=re.S)
        for name, each in structures_used():
            if name in NAMELESS:
                continue
            body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", text, re.S)
            self.assertIsNotNone(body, name)
            inner = re.sub(r"struct \{.*?\}", "int", body[1], flags=re.S)
            members = []
            for declaration in filter(str.strip, inner.split(";")):
                pointer = re.search(r"\(\*(\w+)\)\(", declaration)
                parts = [declaration] if pointer else declaration.split(",")
                members += [pointer[1] if pointer else re.search(r"(\w+)\s*(?:\[[^\]]*\])?\s*$", part)[1] for part in parts]
            self.assertEqual([field[0] for field in each._fields_], members, name)

    def test_functions_take_as_many_arguments_as_the_headers_say(self):
        text = re.sub(r"/\*.*?\*/", "", "".join(path.read_text() for path in HEADERS), flags=re.S)
        declared = {**library.FUNCTIONS, **inspection.FUNCTIONS, **inspection.MANIFEST_FUNCTIONS,
                    **{name: (ctypes.c_int, arguments) for name, arguments in pooling.STATUS_FUNCTIONS.items()}}
        for name, (answer, arguments) in declared.items():
            found = re.search(rf"WEIR_API ([\w \n*]*?)\*?\b{name}\(([^;]*?)\);", text)
            self.assertIsNotNone(found, name)
            count = 0 if found[2].strip() == "void" else found[2].count(",") + 1
            self.assertEqual(len(arguments), count, name)
            self.assertEqual(answer is ctypes.c_int, "weir_status" in found[1], name)

    def test_every_status_has_a_class_and_every_enumeration_is_compared(self):
        self.assertEqual(set(library.BY_STATUS), set(names.Status) - {names.Status.OK})
        kinds = {each for each in vars(names).values() if isinstance(each, type) and issubclass(each, enum.IntEnum)}
        self.assertEqual(kinds - {enum.IntEnum}, set(PREFIXES))


if __name__ == "__main__":
    unittest.main()
