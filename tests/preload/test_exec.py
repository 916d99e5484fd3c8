"""weir exec, over the stub of CUDA's libraries: programs in C that know nothing of weir, what they are told, and the table."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("WEIR_TEST_BINARY", SOURCE / "build/debug"))
COMMAND, PLACE = BUILD / "bin/weir", BUILD / "tests/preload"
MIB = 1 << 20
WAYS = ("linked", "dlsym", "proc", "proc-thread")
CUDA_HEADERS = Path(os.environ.get("WEIR_CUDA_INCLUDE") or "/usr/local/cuda/include")
# Functions of CUDA's by whose names they could make memory or tell of it, and why programs get CUDA's own all the same.
ABOUT_MEMORY = (r"cu(Mem(?!cpy|set)|Device\w*Mem|Array\w*Create|Mipmapped\w*Create|Ipc|Import|Stream(Begin|End)\w*apture|"
                r"Graph\w*Mem(Alloc|Free)|Multicast|LogicalEndpoint|Pointer|GreenCtxCreate|Ctx\w*Limit|Library\w*Managed)")
CUDAS_OWN = {
    "addresses, or what is told of memory and does not depend on who has it": r"""cuMemAddress(Free|Reserve) cuMem(Get|Set)Access cuMemGetLocationInfo
        cuMemGetAllocation(Granularity|PropertiesFromHandle) cuMemHostGet(DevicePointer|Flags) cuMemRangeGetAttributes? cuPointerSetAttribute
        cuLibraryGetManaged cuMemPoolGetAccess cuMemPoolSetAttribute""",
    "moves or fills memory that counts": "cuMemAdvise cuMemPrefetch(Batch)?Async cuMemDiscard(AndPrefetch)?BatchAsync cuMemBatchDecompressAsync",
    "gives memory to other processes, which counts": "cuMem(Pool)?ExportToShareableHandle cuMemPoolExportPointer cuMemGetHandleForAddressRange",
    "no memory comes with it": "cuIpcCloseMemHandle cuIpc(Get|Open)EventHandle cuImportExternalSemaphore cuMemPoolImportFromShareableHandle",
    "maps or binds handles, which count from cuMemCreate on": r"cuMemMapArrayAsync cuMulticast\w+ cuLogicalEndpoint\w+",
    "memory of graphs, in no budget": r"cuDevice(Graph|GetGraph|SetGraph)Mem\w+ cuGraphAddMemFreeNode cuGraphMem(Alloc|Free)NodeGetParams",
    "what a context takes for itself is outside": "cuCtx(Get|Set)Limit cuGreenCtxCreate",
    "graphics": "cuStream(Begin|End)CaptureToCig",
}


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="weir-exec-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def run_it(self, *command, status=0, **environment):
        kept = {key: value for key, value in os.environ.items() if not key.startswith("WEIR_")}
        done = subprocess.run([str(word) for word in command], cwd=self.folder, env={**kept, **environment}, timeout=1000,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual(done.returncode, status, f"{command}\n{done.stdout}\n{done.stderr}")
        return done.stdout, done.stderr

    def exec_it(self, *words, status=0, budget="64MiB", **environment):
        return self.run_it(COMMAND, "exec", "--budget", budget, *words, status=status, **environment)

    def program(self, way, case, *words, **more):
        """Runs a case of tests/preload/program.c; answers its table."""
        file = self.folder / "stats"
        file.unlink(missing_ok=True)
        name = "preload-linked" if way == "linked" else "preload-program"
        self.exec_it("--json", "--stats", "stats", *words, "--", PLACE / name, way, case, **more)
        lines = file.read_text().splitlines() if file.exists() else []
        self.assertLessEqual(len(lines), 1)
        return json.loads(lines[0]) if lines else None


class Programs(Case):
    def each_way(self, case, *words, **more):
        for way in WAYS:
            with self.subTest(way=way):
                yield self.program(way, case, *words, **more)

    def test_served(self):
        for table in self.each_way("served"):
            self.assertEqual((table["served"], table["freed"], table["refused"]), (6, 6, 0))
            (device,) = table["devices"]
            self.assertEqual((device["device"], device["budget"], device["peak_cuda"], device["live_at_end"]),
                             ("cuda:0", 64 * MIB, 0, 0))
            self.assertEqual(device["peak"], 3 * MIB + 102400 - 2400 + 352 + 4096 + 512 + 512 + 1024)
            self.assertEqual(table["calls"]["cuMemAlloc_v2"], 6)

    def test_refused(self):
        for table in self.each_way("refused"):
            self.assertEqual(table["refused"], 1)  # a size that no device has is no refusal of the budget
            self.assertIn("24 MiB are left", table["last_refusal"])
            self.assertEqual(table["devices"][0]["peak"], 64 * MIB)

    def test_every_other_case(self):
        for case in ("information", "pitch", "addresses", "order", "waits", "async", "physical", "other-kinds", "reset",
                     "foreign-context", "late", "default-streams", "threads"):
            for way in WAYS if case in ("async", "physical", "default-streams") else WAYS[:2]:
                with self.subTest(case=case, way=way):
                    table = self.program(way, case)
                    self.assertLessEqual(table["devices"][0]["peak_held"], 64 * MIB)

    def test_what_is_told_of_a_freed_block(self):
        for resource in ("mapped", "guard(mapped)"):
            with self.subTest(resource=resource):
                self.program("linked", "freed", WEIR_RESOURCE=resource)

    def test_captures(self):
        for table in self.each_way("capture"):
            self.assertEqual((table["in_graphs"], table["frees_held_up"]), (1, 1))

    def test_physical_memory_is_in_the_table(self):
        table = self.program("dlsym", "physical")
        self.assertEqual(table["devices"][0]["cuda"]["cuMemCreate"], {"peak": 64 * MIB, "live_at_end": 0})
        self.assertEqual(table["refused"], 2)
        self.assertEqual(table["calls"]["cuMemImportFromShareableHandle"], 1)

    def test_host(self):
        table = self.program("linked", "host", budget="host=8MiB,64MiB")
        self.assertEqual(table["host"], {"pinned": {"peak": 8 * MIB, "live_at_end": 0},
                                         "registered": {"peak": 1000, "live_at_end": 0}})
        self.assertEqual((table["refused"], table["devices"]), (2, []))

    def test_pools(self):
        self.program("linked", "pools", STUB_CUDA_DEVICES="2")

    def test_exports(self):
        table = self.program("linked", "exported")
        self.assertEqual(table["exports_refused"], 1)

    def test_direct(self):
        table = self.program("linked", "direct", "--direct", STUB_CUDA_DEVICES="2", STUB_CUDA_PEERS="1")
        self.assertEqual((table["served"], table["refused"]), (0, 2))
        self.assertEqual(table["devices"][0]["peak_cuda"], 64 * MIB)

    def test_every_way_to_cudas_own_memory(self):
        table = self.program("linked", "direct-ways", "--direct")
        self.assertEqual(table["devices"][0]["cuda"]["direct"], {"peak": 8 * MIB, "live_at_end": 0})

    def test_a_free_that_is_held_up_when_its_capture_ends(self):
        self.assertEqual(self.program("linked", "held-up-late")["frees_held_up"], 2)

    def test_a_lost_device(self):
        self.assertEqual(self.program("linked", "lost")["devices"][0]["live_at_end"], 2 * MIB)

    def test_frees_that_wait(self):
        self.assertEqual(self.program("linked", "free-waits", "--free-waits")["frees_that_waited"], 1)

    def test_devices(self):
        self.program("linked", "peers", STUB_CUDA_DEVICES="2", STUB_CUDA_PEERS="1")
        table = self.program("linked", "two-devices", STUB_CUDA_DEVICES="2")
        self.assertEqual([device["peak"] for device in table["devices"]], [60 * MIB, 60 * MIB])
        self.program("linked", "streams-of-two-devices", "--trace", "%d.weir", STUB_CUDA_DEVICES="2")
        report = json.loads(self.run_it(COMMAND, "report", "cuda-1.weir", "--json")[0])
        self.assertEqual((report["allocations"], report["frees"], report["failures"]), (2, 2, 0))

    def test_arrays(self):
        for table in self.each_way("arrays"):
            self.assertEqual(table["devices"][0]["cuda"]["arrays"], {"peak": 28 * MIB, "live_at_end": 0})

    def test_several(self):
        for case in ("mappings", "captures"):
            for way in WAYS[:2]:
                with self.subTest(case=case, way=way):
                    self.program(way, case)
        for case in ("pools-of-two-devices", "resets"):
            with self.subTest(case=case):
                self.program("linked", case, STUB_CUDA_DEVICES="2")

    def test_what_cuda_refuses_does_not_count(self):
        for words in ((), ("--each",)):
            table = self.program("linked", "host-fails", *words, budget="host=8MiB,64MiB")
            self.assertEqual(table["host"], {"pinned": {"peak": 8 * MIB, "live_at_end": 2 * MIB}, "registered": {"peak": 5 * MIB, "live_at_end": 0}})
        table = self.program("linked", "direct-fails", "--direct")
        self.assertEqual(table["devices"][0]["cuda"]["direct"], {"peak": 40 * MIB, "live_at_end": 16 * MIB})

    def test_of_several_budgets_the_last_one_that_fits(self):
        for budget in ("32MiB,cuda=64MiB", "16MiB,cuda:0=64MiB,cuda:1=32MiB", "cuda:1=8MiB,cuda=64MiB,cuda:1=32MiB"):
            with self.subTest(budget=budget):
                self.program("linked", "budgets", budget=budget, STUB_CUDA_DEVICES="2")

    def test_each_call_is_counted(self):
        names = re.findall(r"X\((cu\w+), *(\w+), *\d+,", (SOURCE / "src/interpose/preload/functions.h").read_text().replace("\\\n", " "))
        cases = ("pools", "physical", "captures", "addresses", "exported", "default-streams", "information", "pitch", "reset", "peers",
                 "other-kinds", "arrays", "forms", "pools-of-two-devices", "recaptures", "entry-points")
        tables = [self.program("linked", case, STUB_CUDA_DEVICES="2") for case in cases]
        tables += [self.program("linked", "pools-by-place", budget="host=8MiB,64MiB", STUB_CUDA_DEVICES="2")]
        tables += [self.program("linked", "host-fails", budget="host=8MiB,64MiB"), self.program("linked", "direct-ways", "--direct")]
        called = {name for table in tables for name in table["calls"]}
        self.assertEqual({name for name, _ in names} - called, set())

    def test_forms_of_functions(self):
        for way in ("dlsym", "proc"):
            self.program(way, "forms")

    def test_without_host_memory(self):
        for words in ((), ("--direct",)):
            with self.subTest(words=words):
                table = self.program("linked", "without-host-memory", *words, budget="host=8MiB,64MiB")
                live = [kind["live_at_end"] for kind in [*table["devices"][0]["cuda"].values(), *table["host"].values()]]
                self.assertEqual((live, table["devices"][0]["live_at_end"]), ([0] * len(live), 0))
                self.assertGreater(len(live), 4)

    def test_what_another_thread_gets_while_it_is_freed(self):
        for words in ((), ("--direct",)):
            with self.subTest(words=words):
                table = self.program("linked", "reused", *words, budget="host=16MiB,64MiB")
                live = [kind["live_at_end"] for kind in [*table["devices"][0]["cuda"].values(), *table["host"].values()]]
                self.assertEqual(live, [0] * len(live))

    def test_nvml(self):
        path = os.pathsep.join([str(PLACE / "nvml"), os.environ["LD_LIBRARY_PATH"]])
        table = self.program("dlsym", "management", LD_LIBRARY_PATH=path, STUB_CUDA_DEVICES="2")
        self.assertEqual(table["calls"]["nvmlDeviceGetMemoryInfo"], 4)

    def test_a_forked_child_has_no_table(self):
        table = self.program("dlsym", "forked")
        self.assertEqual(table["served"], 1)

    def test_over_the_runtime_library(self):
        for name in ("preload-runtime", "preload-runtime-inside"):
            with self.subTest(name=name):
                out, error = self.exec_it(PLACE / name)
                self.assertEqual(out, "over the runtime\n")
                self.assertIn("weir served 3 allocations", error)

    def test_every_entry_point_in_every_version(self):
        for way in WAYS:
            with self.subTest(way=way):
                self.program(way, "entry-points")

    def test_pools_by_place(self):
        for way in WAYS:
            with self.subTest(way=way):
                table = self.program(way, "pools-by-place", budget="host=8MiB,64MiB", STUB_CUDA_DEVICES="2")
                self.assertEqual(table["host"]["pinned"], {"peak": 8 * MIB, "live_at_end": 0})
                self.assertEqual([device["live_at_end"] for device in table["devices"]], [0, 0])

    def test_memory_of_a_part_of_a_device_counts(self):
        for table in self.each_way("part-of-a-device"):
            self.assertEqual(table["devices"][0]["cuda"]["cuMemCreate"], {"peak": 40 * MIB, "live_at_end": 0})

    def test_captures_into_a_graph_that_there_was(self):
        for way in WAYS:
            with self.subTest(way=way):
                self.assertEqual(self.program(way, "recaptures")["frees_held_up"], 2 if way in ("linked", "proc-thread") else 1)

    def test_a_budget_that_cannot_be_kept_gives_nothing(self):
        _, error = self.exec_it(PLACE / "preload-linked", "linked", "served", status=99, STUB_CUDA_FAIL="cuMemGetInfo:1:999")
        self.assertIn("weir: cuda:0 gets no memory", error)

    def test_a_driver_from_before_cuda_12_gives_nothing(self):
        for words in ((), ("--each",)):
            with self.subTest(words=words):
                _, error = self.exec_it(*words, PLACE / "preload-program", "dlsym", "served", status=99, LD_LIBRARY_PATH=str(BUILD / "stub/old"))
                self.assertIn("the driver is older than CUDA 12", error)


class Table(Case):
    def test_text(self):
        out, error = self.exec_it(PLACE / "preload-linked", "linked", "physical")
        self.assertEqual(out, "")
        for said in (r"weir exec: preload-linked \(process \d+\)", r"cuda:0 +64 MiB +24 MiB +\S+ MiB +64 MiB +0 B",
                     r"of CUDA's own, cuMemCreate: 64 MiB at most, 0 B at the end", r"2 were refused",
                     r"last refusal: cuMemCreate of 27262976 bytes", r"calls: .*cuMemCreate 6",
                     r"past the budget: cuMemImportFromShareableHandle 1"):
            self.assertRegex(error, said)

    def test_text_tells_of_what_there_was_alone(self):
        for case, refused in (("refused", 1), ("order", 0)):
            _, error = self.exec_it(PLACE / "preload-linked", "linked", case)
            calls = re.search(r"^  calls: (.*)$", error, re.M)[1].split(", ")
            self.assertEqual([call.split()[0] for call in calls][:2], ["cuMemAlloc_v2", "cuMemFree_v2"])
            self.assertEqual([call for call in calls if re.fullmatch(r"cu\w+ [1-9]\d*", call)], calls)
            self.assertEqual(error.count("last refusal: "), refused)
            for absent in ("past the budget", "of CUDA's own", "host", "all processes together", "graphs", "frees waited", "exports"):
                self.assertNotIn(absent, error)

    def test_quiet(self):
        self.assertEqual(self.exec_it("--quiet", PLACE / "preload-linked", "linked", "served"), ("", ""))

    def test_without_memory_there_is_none(self):
        self.assertEqual(self.exec_it(PLACE / "preload-linked", "linked", "nothing"), ("", ""))

    def test_trace(self):
        self.exec_it("--trace", "%d.csv", PLACE / "preload-linked", "linked", "refused")
        rows = (self.folder / "cuda-0.csv").read_text().splitlines()
        self.assertEqual(sum("allocate failure" in row for row in rows), 1)

    def test_children_have_the_budget_too(self):
        script = self.folder / "both.sh"
        script.write_text(f"#!/bin/sh\n{PLACE}/preload-linked linked refused && exec {PLACE}/preload-program dlsym served\n")
        script.chmod(0o755)
        self.exec_it("--json", "--stats", "stats", script)
        tables = [json.loads(line) for line in (self.folder / "stats").read_text().splitlines()]
        self.assertEqual([table["program"] for table in tables], ["preload-linked", "preload-program"])
        self.assertEqual([table["devices"][0]["budget"] for table in tables], [64 * MIB] * 2)


class Plain(Case):
    def test_a_program_without_cuda_is_as_ever(self):
        for command in ([PLACE / "preload-plain"], [COMMAND, "exec", "--budget", "1g", PLACE / "preload-plain"]):
            out, error = self.run_it(*command, status=5)
            self.assertEqual((out, error), ("as ever\n", ""))

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGABRT):
            self.assertEqual(self.exec_it(PLACE / "preload-plain", int(number), status=-number), ("", ""))

    def test_arguments_are_the_programs(self):
        self.assertEqual(self.exec_it("echo", "--budget", "-x", "--", "--json")[0], "--budget -x -- --json\n")

    def both(self, command, text=""):
        """What a shell says that is run as it is, and under weir exec."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("WEIR_")}
        environment = {**kept, "XDG_RUNTIME_DIR": str(self.folder)}
        return [subprocess.run([*before, "sh", "-c", command], cwd=self.folder, env=environment, input=text, timeout=1000, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, check=True).stdout for before in ([], [COMMAND, "exec", "--budget", "1g"])]

    def test_what_it_reads_and_where_it_is_are_as_ever(self):
        for command in ("cat; pwd; umask; ulimit -n; ls /proc/self/fd | wc -l", "sh -c 'ls /proc/self/fd | wc -l; cat' & wait"):
            plain, ours = self.both(command, "one\ntwo\n")
            self.assertEqual(plain, ours)

    def test_its_environment_has_what_children_take_alone(self):
        plain, ours = (dict(line.partition("=")[::2] for line in said.splitlines()) for said in self.both("exec sh -c env"))
        more = {key for key in ours if ours[key] != plain.get(key)} | set(plain) - set(ours)
        self.assertEqual(more - {"LD_PRELOAD", "WEIR_BUDGET", "WEIR_EXEC", "WEIR_EXEC_BUDGET", "WEIR_EXEC_TREE", "_"}, set())

    def test_nothing_is_written_for_it(self):
        self.both(f"{PLACE}/preload-plain || test $? = 5")
        self.assertEqual([path.name for path in self.folder.rglob("*") if path.is_file()], [])

    def test_other_libraries_stay_preloaded(self):
        out, _ = self.exec_it("sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD=str(PLACE / "libpreload-second.so"))
        self.assertRegex(out, r"/libweir-preload\.so:\S+/libpreload-second\.so\n")


class Report(Case):
    def setUp(self):
        super().setUp()
        (self.folder / "tmp").mkdir()

    def reported(self, *words, status=0):
        said = self.exec_it("--quiet", "--report", "page.html", *words, status=status, TMPDIR=str(self.folder / "tmp"))
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])
        return said

    def data(self, name):
        page = (self.folder / name).read_text()
        return page, json.loads(re.search(r'type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])

    def test_a_page_when_the_program_has_ended(self):
        _, error = self.reported(PLACE / "preload-linked", "linked", "refused")
        self.assertRegex(error, r"^weir exec: page.html shows process-\d+-cuda-0\n$")
        page, data = self.data("page.html")
        self.assertRegex(page, r"<title>Memory in process-\d+-cuda-0.weir")
        self.assertEqual(([client["name"] for client in data["clients"]], len(data["refusals"])), (["preload-linked"], 1))

    def test_pages_of_children(self):
        _, error = self.reported("sh", "-c", f"{PLACE}/preload-linked linked refused; {PLACE}/preload-program dlsym served; exit 3", status=3)
        names = re.findall(r"weir exec: (\S+) shows", error)
        self.assertEqual(len(names), 2)
        self.assertEqual(names[0], "page.html")
        self.assertRegex(names[1], r"^page\.\d+-cuda-0\.html$")
        self.assertEqual([[client["name"] for client in self.data(name)[1]["clients"]] for name in names],
                         [["preload-linked"], ["preload-program"]])

    def test_the_programs_own_page_is_the_first(self):
        script = f"{PLACE}/preload-program dlsym served; exec {PLACE}/preload-linked linked refused"
        names = re.findall(r"weir exec: (\S+) shows", self.reported("sh", "-c", script)[1])
        self.assertEqual(self.data("page.html")[1]["clients"][0]["name"], "preload-linked")
        self.assertEqual(len(names), 2)

    def test_signals_go_on_to_the_program(self):
        program = subprocess.Popen([COMMAND, "exec", "--budget", "64MiB", "--report", "page.html", PLACE / "preload-sibling"], cwd=self.folder,
                                   env={**os.environ, "TMPDIR": str(self.folder / "tmp")}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, bufsize=1)
        with program:
            program.stdin.write("take 40\n")
            self.assertEqual(program.stdout.readline(), "ok\n")
            program.terminate()
            self.assertRegex(program.stderr.read(), r"process-\d+-cuda-0 was killed before any of its trace was written")
        self.assertEqual(program.returncode, -signal.SIGTERM)
        self.assertFalse((self.folder / "page.html").exists())

    def test_without_memory_there_is_none(self):
        self.assertEqual(self.reported(PLACE / "preload-plain", status=5),
                         ("as ever\n", "weir exec: there is no report, as no memory of CUDA's was asked for\n"))
        self.reported(PLACE / "preload-plain", int(signal.SIGABRT), status=-signal.SIGABRT)

    def test_refusals(self):
        for words, status, said in ((["--report", "nowhere/page.html"], 1, "nowhere"), (["--report", "a.html", "--trace", "b"], 2, "--trace")):
            out, error = self.run_it(COMMAND, "exec", *words, "echo", "run", status=status)
            self.assertEqual((out, error.count("\n")), ("", 1))
            self.assertIn(said, error)


class Refusals(Case):
    def refused(self, *words, status=1):
        out, error = self.run_it(COMMAND, "exec", *words, status=status)
        self.assertEqual(out, "")
        self.assertEqual(error.count("\n"), 1)
        return error

    def test_words(self):
        for words, said in (([], "which program"), (["--budget", "1xb", "true"], "'|1xb"), (["--budget", "0", "true"], "--budget 0"),
                            (["--budget", "", "true"], "--budget"), (["--such", "true"], "--such")):
            self.assertRegex(self.refused(*words, status=2), said)

    def test_programs(self):
        (self.folder / "old").write_bytes(b"\x7fELF\x01\x01\x01" + bytes(9) + b"\x02\x00\x03\x00" + bytes(60))
        (self.folder / "script").write_text(f"#!{PLACE}/preload-static\n")
        (self.folder / "by-env").write_text("#!/usr/bin/env sh\nexit 4\n")
        for name in ("old", "script", "by-env"):
            (self.folder / name).chmod(0o755)
        self.assertIn("32 bits", self.refused("./old"))
        self.assertIn("linked statically", self.refused(PLACE / "preload-static"))
        self.assertIn("linked statically", self.refused("./script"))
        self.assertIn("there is no program", self.refused("no-such-program"))
        self.assertIn("No such file", self.refused("./no-such-program"))
        self.run_it(COMMAND, "exec", "./by-env", status=4)

    @unittest.skipIf(os.geteuid() != 0, "another user's program")
    def test_a_program_that_gains_rights(self):
        shutil.copy(PLACE / "preload-plain", self.folder / "strong")
        os.chown(self.folder / "strong", 1, 1)
        (self.folder / "strong").chmod(0o4755)
        self.assertIn("set-user-ID", self.refused("./strong"))


class Guide(Case):
    """What docs/guide/exec.md shows, as it is written. Its programs are stand-ins, which ask for memory of CUDA's."""

    def setUp(self):
        super().setUp()
        self.page = (SOURCE / "docs/guide/exec.md").read_text()
        (self.folder / "programs").mkdir()
        served = f"{PLACE}/preload-linked linked served"
        for path, text in (("programs/python", f'test "$1" = train.py && exec {served}'), ("server", f'test "$1 $2" = "--port 80" && exec {served}'),
                           ("programs/torchrun", 'shift; for i in $(seq "$1"); do ' + served + " & done; wait")):
            (self.folder / path).write_text(f"#!/bin/sh\n{text}\n")
            (self.folder / path).chmod(0o755)

    def test_its_commands(self):
        commands = re.search(r"^```sh\n(.*?)^```$", self.page, re.M | re.S)[1].splitlines()
        self.assertEqual([re.findall(r"--(\S+)", line)[:2] for line in commands], [["budget"], ["budget", "stats"], ["budget", "report"]])
        path = os.pathsep.join([str(COMMAND.parent), str(self.folder / "programs"), os.environ["PATH"]])
        said = [self.run_it("sh", "-euc", line, PATH=path, STUB_CUDA_DEVICES="2")[1] for line in commands]
        self.assertRegex(said[0], r"weir exec: preload-linked \(process \d+\)\n")
        self.assertEqual(said[1], "")
        self.assertRegex((self.folder / "memory.txt").read_text(), r"cuda:0 +8 GiB")
        self.assertEqual(len(re.findall(r"weir exec: \S+ shows process", said[2])), 4)
        self.assertEqual(len(list(self.folder.glob("page.*html"))), 4)

    def test_its_table(self):
        """Each line that the page shows is one of the program's tables, whatever its figures are."""
        shown = re.search(r"^```\n(weir exec: .*?)^```$", self.page, re.M | re.S)[1].splitlines()
        texts = [self.exec_it(PLACE / "preload-linked", "linked", case)[1] for case in ("physical", "refused")]
        self.assertIn(re.sub(r" +", " ", shown[1]), [re.sub(r" +", " ", line) for line in texts[0].splitlines()])

        def shape(line):
            line = re.sub(r"process \d+", "process N", re.sub(r"\d+(\.\d+)? (B|[KMG]iB)", "SIZE", line))
            line = re.sub(r"preload-linked|train\b", "NAME", line)
            return re.sub(r" +", " ", re.sub(r"\d+", "N", line.partition(": NAME asked")[0])).strip().partition(" N, ")[0]

        mine = {shape(line) for text in texts for line in text.splitlines()}
        self.assertEqual({shape(line) for line in shown if "all processes together" not in line} - mine, set())

    def test_its_options(self):
        listed = set(re.findall(r"(--[a-z-]+)", "\n".join(re.findall(r"^\| (`--.*?) \|", self.page, re.M))))
        helped = set(re.findall(r"^  (--[a-z-]+)", self.run_it(COMMAND, "exec", "--help")[0], re.M))
        self.assertEqual(listed, helped - {"--help"})


@unittest.skipUnless((CUDA_HEADERS / "cudaTypedefs.h").exists(), "no header of CUDA's is here")
class Declarations(unittest.TestCase):
    """Of the header that is here, or of the one in WEIR_CUDA_INCLUDE."""

    def setUp(self):
        text = (SOURCE / "src/interpose/preload/functions.h").read_text().replace("\\\n", " ")
        self.wrapped = re.findall(r"X\((\w+),\s*(\w+),\s*(\d+),\s*([01]),\s*\(((?:[^()]|\([^()]*\))*)\)", text)
        self.assertGreater(len(self.wrapped), 55)
        self.known = int(re.search(r"WP_KNOWN_VERSION = (\d+)", text)[1])
        self.header = re.sub(r"/\*.*?\*/", "", (CUDA_HEADERS / "cuda.h").read_text(errors="replace"), flags=re.S)
        self.version = int(re.search(r"#define CUDA_VERSION (\d+)", self.header)[1])
        self.types = (CUDA_HEADERS / "cudaTypedefs.h").read_text()

    def test_functions_are_as_cuda_has_them(self):
        for symbol, name, version, per_thread, parameters in self.wrapped:
            if int(version) > self.version:
                continue
            theirs = re.search(rf"PFN_{name}_v{version}{'_ptsz' if per_thread == '1' else ''}\)\(([^;]*)\);", self.types)
            self.assertTrue(theirs, symbol)
            commas = re.sub(r"\([^()]*\)\(", "(", parameters).count(",")
            self.assertEqual(theirs[1].count(","), commas, symbol)
            if "(*" not in parameters:
                self.assertEqual(theirs[1].count("*"), parameters.count("*"), symbol)

    def test_there_are_no_later_forms(self):
        self.assertLessEqual(self.version, self.known, "look through the new header for functions and forms, and set WP_KNOWN_VERSION")
        last = {}
        for _, name, version, _, _ in self.wrapped:
            last[name] = max(last.get(name, 0), int(version))
        later = {f"{name} {version}" for name, version in re.findall(r"PFN_(cu\w+?)_v(\d+)(?:_\w+)?\)", self.types) if int(version) > last.get(name, 10**9)}
        self.assertEqual(later, set())

    def test_every_function_that_is_about_memory_is_known(self):
        names = {re.sub(r"(_v\d+)?(_pt[sd]s?z?)?$", "", name) for name in re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", self.header)}
        self.assertGreater(len(names), 300)
        own = re.compile("|".join(" ".join(CUDAS_OWN.values()).split()))
        wrapped = {name for _, name, _, _, _ in self.wrapped}
        unknown = {name for name in names if re.match(ABOUT_MEMORY, name) and name not in wrapped and not own.fullmatch(name)}
        self.assertEqual(unknown, set(), "weir exec does not know them")


if __name__ == "__main__":
    unittest.main(verbosity=1)
