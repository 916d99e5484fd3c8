"""Several processes under one weir exec, over the stub of CUDA's libraries: they have the budget together."""

import json
import os
import select
import signal
import struct
import subprocess
import sys
import textwrap
import time
import unittest
from pathlib import Path

from test_exec import COMMAND, MIB, PLACE, SOURCE, Case

SIBLING = PLACE / "preload-sibling"
FUTEX = 98 if os.uname().machine == "aarch64" else 202


class Sibling:
    """A process of tests/preload/sibling.c."""

    def __init__(self, case, environment):
        self.process = subprocess.Popen([SIBLING], cwd=case.folder, env=environment, stdin=subprocess.PIPE,  # pylint: disable=consider-using-with
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        case.addCleanup(self.end)

    def end(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(60)
        self.process.stdin.close()
        self.process.stdout.close()

    def send(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.process.stdout.readline().strip()

    def ask(self, line):
        self.send(line)
        return self.answer()

    def waits(self):
        """Its main thread is in a futex, which it has of the tree's alone."""
        return Path(f"/proc/{self.process.pid}/syscall").read_text().split()[0] == str(FUTEX)

    def comes_to_wait(self):
        """False: it has answered instead."""
        while not self.waits():
            if select.select([self.process.stdout], [], [], 0.001)[0]:
                return False
        return True

    def stop(self, case):
        """Each of its threads: SIGSTOP by itself comes to them when they are on a processor next, and the answering one may not be."""
        self.process.send_signal(signal.SIGSTOP)
        case.addCleanup(self.go_on)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait(60)


class Tree(Case):
    def setUp(self):
        super().setUp()
        self.environment = self.tree()

    def tree(self, *options, budget=("--budget", "64MiB"), outer=None, **more):
        """What `weir exec` gives the processes of one tree."""
        kept = outer or {key: value for key, value in os.environ.items() if not key.startswith("WEIR_")}
        done = subprocess.run([COMMAND, "exec", *budget, "--json", "--stats", "stats", *options, "env", "-0"], cwd=self.folder,
                              env={**kept, "XDG_RUNTIME_DIR": str(self.folder), **more}, stdout=subprocess.PIPE, check=True, text=True)
        return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)

    def sibling(self, environment=None):
        return Sibling(self, environment or self.environment)

    def tables(self):
        return [json.loads(line) for line in (self.folder / "stats").read_text().splitlines()]

    def test_what_one_has_the_others_have_not(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual(a.ask("take 40"), "ok")
        self.assertEqual((a.ask("left"), b.ask("left")), ("24 of 64",) * 2)
        self.assertEqual((b.ask("take 30"), b.ask("take 24"), b.ask("take 1")), ("no", "ok", "no"))
        self.assertEqual((a.ask("left"), b.ask("left"), b.ask("used")), ("0 of 64", "0 of 64", "24"))
        b.end()
        self.assertEqual((a.ask("left"), a.ask("take 24")), ("24 of 64", "ok"))
        a.end()
        first, second = self.tables()
        self.assertRegex(first["last_refusal"], rf"preload-sibling \({a.process.pid}\) has 40 MiB")
        self.assertEqual([table["devices"][0]["peak_all"] for table in (first, second)], [64 * MIB] * 2)
        self.assertEqual((first["refused"], second["refused"], second["last_refusal"]), (2, 0, ""))

    def test_what_is_idle_in_another_is_had(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual((a.ask("take 30"), a.ask("take 30"), a.ask("give"), a.ask("used")), ("ok", "ok", "ok", "60"))
        self.assertEqual((a.ask("left"), b.ask("left")), ("34 of 64", "4 of 64"))
        self.assertEqual((b.ask("take 30"), b.ask("take 10")), ("ok", "no"))
        self.assertEqual((a.ask("used"), b.ask("used")), ("30", "30"))
        self.assertEqual((a.ask("create 4"), a.ask("create 1"), a.ask("left")), ("ok", "no", "0 of 64"))

    def test_physical_memory_of_a_programs_own(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual((a.ask("create 40"), b.ask("create 30"), b.ask("create 24")), ("ok", "no", "ok"))
        self.assertEqual((a.ask("take 2"), a.ask("release"), a.ask("take 40"), b.ask("left")), ("no", "ok", "ok", "0 of 64"))
        self.assertEqual((a.ask("give"), b.ask("take 40")), ("ok", "ok"))  # given to b's runtime out of a's caches
        b.end()
        self.assertRegex(self.tables()[0]["last_refusal"], rf"cuMemCreate of .* have together, 24 MiB are left; .*\({a.process.pid}\) has 40 MiB")

    def test_what_was_refused_costs_nothing(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual((a.ask("take 1"), b.ask("take 40"), a.ask("create 30")), ("ok", "ok", "no"))
        b.end()
        self.assertEqual((a.ask("give"), a.ask("take 64")), ("ok", "ok"))

    def test_what_a_killed_one_had_is_free(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual((a.ask("take 30"), a.ask("create 30"), b.ask("take 30")), ("ok", "ok", "no"))
        a.kill()
        self.assertEqual((b.ask("left"), b.ask("take 64"), b.ask("used")), ("64 of 64", "ok", "64"))
        c = self.sibling()  # has the seat of the one that was killed
        self.assertEqual((c.ask("left"), c.ask("take 1"), b.ask("give"), c.ask("take 60")), ("0 of 64", "no", "ok", "ok"))

    def test_one_that_becomes_another_program_has_nothing(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual((a.ask("take 40"), b.ask("take 30")), ("ok", "no"))
        a.send("become")
        self.assertEqual((a.ask("used"), b.ask("take 64"), a.ask("take 1")), ("0", "ok", "no"))

    def test_behind_a_fork_it_lasts_as_long_as_the_child(self):
        """So do CUDA's descriptors, which a forked child has as well."""
        a, b = self.sibling(), self.sibling()
        self.assertEqual(a.ask("take 40"), "ok")
        child = int(a.ask("fork"))
        a.kill()
        self.assertEqual(b.ask("left"), "24 of 64")
        file = os.pidfd_open(child)
        os.kill(child, signal.SIGKILL)
        select.select([file], [], [], 60)
        os.close(file)
        self.assertEqual(b.ask("left"), "64 of 64")

    def test_one_that_is_stopped_does_not_hold_up_the_others(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual((a.ask("take 40"), a.ask("give")), ("ok", "ok"))
        a.stop(self)
        self.assertEqual((b.ask("take 30"), b.ask("take 24")), ("no", "ok"))
        a.go_on()
        until = time.monotonic() + 60
        while b.ask("take 30") != "ok":  # the one that was stopped may not have run yet
            self.assertLess(time.monotonic(), until)

    def test_one_that_cannot_listen_is_not_waited_for(self):
        a, b = self.sibling(), self.sibling()
        a.send("deaf")
        self.assertEqual((a.ask("take 40"), a.ask("give"), b.ask("take 2")), ("ok",) * 3)
        b.send("take 30")
        self.assertFalse(b.comes_to_wait())
        self.assertEqual((b.answer(), b.ask("take 22")), ("no", "ok"))

    def test_each_that_listens_is_waited_for(self):
        """In whatever order they came: the last one has nothing to say."""
        a, b, c = self.sibling(), self.sibling(), self.sibling()
        c.send("deaf")
        self.assertEqual((a.ask("take 20"), a.ask("give"), c.ask("take 20"), b.ask("take 2")), ("ok",) * 4)
        a.stop(self)
        b.send("take 30")
        self.assertTrue(b.comes_to_wait())
        a.go_on()
        self.assertEqual(b.answer(), "ok")

    def test_what_is_idle_in_a_capture_stays(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual((a.ask("take 40"), a.ask("give"), a.ask("capture"), b.ask("take 30")), ("ok", "ok", "ok", "no"))
        self.assertEqual((a.ask("capture"), b.ask("take 30")), ("ok", "ok"))

    def test_together_they_never_have_more(self):
        """By the stub's own count, which adds what the driver gives all of them."""
        (self.folder / "used").write_bytes(bytes(16))
        siblings = [self.sibling({**self.environment, "STUB_CUDA_SHARED": str(self.folder / "used")}) for _ in range(4)]
        for seed, sibling in enumerate(siblings):
            sibling.send(f"churn {seed + 1}")
        self.assertEqual([sibling.answer() for sibling in siblings], ["ok"] * 4)
        _, peak = struct.unpack("<QQ", (self.folder / "used").read_bytes())
        self.assertLessEqual(peak, 64 * MIB)
        self.assertGreater(peak, 56 * MIB)
        for sibling in siblings:
            sibling.end()
        self.assertGreater(sum(table["refused"] for table in self.tables()), 0)
        last = self.sibling()
        self.assertEqual((last.ask("left"), last.ask("take 64")), ("64 of 64", "ok"))

    def test_killed_at_any_time(self):
        for seed in range(12):
            a, b = self.sibling(), self.sibling()
            b.send("churn 99")
            a.send(f"churn {seed + 1}")
            if seed % 2:
                a.answer()
            a.kill()
            self.assertEqual(b.answer(), "ok")
            self.assertEqual((b.ask("left"), b.ask("take 64"), b.ask("give")), ("64 of 64", "ok", "ok"))
            b.end()

    def test_pinned_memory(self):
        environment = self.tree(budget=("--budget", "host=8MiB,64MiB"))
        a, b = self.sibling(environment), self.sibling(environment)
        self.assertEqual((a.ask("pin 6"), b.ask("pin 3"), b.ask("pin 2")), ("ok", "no", "ok"))
        a.kill()
        self.assertEqual(b.ask("pin 6"), "ok")

    def test_devices(self):
        environment = self.tree(STUB_CUDA_DEVICES="2")
        a, b = self.sibling(environment), self.sibling(environment)
        b.send("device 1")
        self.assertEqual((a.ask("take 40"), b.ask("take 40"), b.ask("left")), ("ok", "ok", "24 of 64"))

    def test_what_is_idle_on_another_device_is_had(self):
        environment = self.tree(STUB_CUDA_DEVICES="2")
        a, b = self.sibling(environment), self.sibling(environment)
        for sibling in (a, b):
            sibling.send("device 1")
        self.assertEqual((a.ask("take 40"), a.ask("give"), b.ask("take 40"), b.ask("give"), a.ask("take 40")), ("ok",) * 5)

    def test_three(self):
        a, b, c = self.sibling(), self.sibling(), self.sibling()
        self.assertEqual((a.ask("take 20"), b.ask("take 22"), c.ask("left"), c.ask("take 23")), ("ok", "ok", "22 of 64", "no"))
        self.assertEqual((c.ask("take 22"), a.ask("take 1"), b.ask("left")), ("ok", "no", "0 of 64"))
        c.end()
        refusal = self.tables()[0]["last_refusal"]
        for one, size in ((a, 20), (b, 22)):
            self.assertIn(f"({one.process.pid}) has {size} MiB", refusal)

    def test_a_want_ends_with_its_request(self):
        a, b, c = self.sibling(), self.sibling(), self.sibling()
        self.assertEqual([a.ask(line) for line in ("take 20", "give") for _ in range(3)], ["ok"] * 6)
        self.assertEqual((b.ask("take 20"), a.ask("used")), ("ok", "40"))
        self.assertEqual((c.ask("take 20"), a.ask("used")), ("ok", "20"))

    def test_what_two_want_is_given_to_both(self):
        """The one that has it is stopped until both wait for its answer."""
        a, b, c = self.sibling(), self.sibling(), self.sibling()
        self.assertEqual((b.ask("take 1"), c.ask("take 1"), a.ask("take 30"), a.ask("take 30"), a.ask("give"), a.ask("give")), ("ok",) * 6)
        a.stop(self)
        for one in (b, c):
            one.send("take 24")
            self.assertTrue(one.comes_to_wait())
        a.go_on()
        self.assertEqual((b.answer(), c.answer()), ("ok", "ok"))

    def test_what_a_killed_one_wanted_is_not_given(self):
        a, b, c = self.sibling(), self.sibling(), self.sibling()
        self.assertEqual([a.ask(line) for line in ("take 20", "give") for _ in range(3)], ["ok"] * 6)
        a.stop(self)
        for one in (b, c):
            one.send("take 20")
            self.assertTrue(one.comes_to_wait())
        b.kill()
        a.go_on()
        self.assertEqual((c.answer(), a.ask("used")), ("ok", "40"))
        d = self.sibling()  # has the seat of the one that was killed, but not what it wanted
        self.assertEqual((d.ask("take 1"), c.ask("take 20"), a.ask("used")), ("ok", "ok", "20"))

    def test_a_seat_that_is_taken_over_is_empty(self):
        a = self.sibling()
        self.assertEqual(a.ask("take 40"), "ok")
        a.kill()
        b = self.sibling()
        self.assertEqual((b.ask("take 64"), b.ask("left")), ("ok", "0 of 64"))

    def test_what_the_driver_keeps_counts_on(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual((a.ask("take 20"), a.ask("give"), b.ask("take 2")), ("ok",) * 3)
        a.send("keep")
        self.assertEqual((b.ask("take 62"), b.ask("left"), b.ask("take 60")), ("no", "60 of 64", "ok"))

    def test_what_the_driver_does_not_make_is_not_taken(self):
        a, b = self.sibling(), self.sibling()
        self.assertEqual((b.ask("take 24"), a.ask("take 1"), a.ask("give")), ("ok",) * 3)
        a.send("fail")
        self.assertEqual((a.ask("take 40"), b.ask("left"), a.ask("take 40")), ("no", "38 of 64", "ok"))

    def test_settings_are_whole_words(self):
        a = self.sibling({**self.environment, "WEIR_EXEC": "directly,quietly,json"})
        self.assertEqual(a.ask("take 1"), "ok")
        a.end()
        self.assertEqual(self.tables()[0]["served"], 1)

    def test_a_budget_that_nobody_has_given(self):
        """The first process measures it, for all."""
        environment = self.tree(budget=(), STUB_CUDA_TOTAL=str(2048 * MIB))
        a, b = self.sibling(environment), self.sibling(environment)
        self.assertEqual((a.ask("take 2"), a.ask("left"), b.ask("left")), ("ok", "1534 of 1536", "1534 of 1536"))
        self.assertEqual((b.ask("take 2"), a.ask("left"), b.ask("take 1534")), ("ok", "1532 of 1536", "no"))

    def test_other_resources(self):
        for resource in ("segments", "direct", "async"):
            with self.subTest(resource=resource):
                environment = self.tree(WEIR_RESOURCE=resource)
                a, b = self.sibling(environment), self.sibling(environment)
                self.assertEqual((a.ask("take 40"), b.ask("take 30"), b.ask("take 20")), ("ok", "no", "ok"))
                self.assertEqual((a.ask("give"), b.ask("take 30")), ("ok", "ok"))

    def test_each(self):
        environment = self.tree("--each")
        self.assertNotIn("WEIR_EXEC_TREE", environment)
        a, b = self.sibling(environment), self.sibling(environment)
        self.assertEqual((a.ask("take 40"), b.ask("take 40"), b.ask("left")), ("ok", "ok", "24 of 64"))

    def test_one_inside_another(self):
        for options in ((), ("--each",)):
            self.inside_another(self.tree(*options, budget=("--budget", "32MiB"), outer=self.environment))

    def test_a_smaller_budget_inside_has_its_part_of_what_is_left(self):
        a, b = self.sibling(), self.sibling(self.tree(budget=("--budget", "32MiB"), outer=self.environment))
        self.assertEqual((a.ask("take 40"), b.ask("left"), b.ask("take 2"), b.ask("left")), ("ok", "24 of 32", "ok", "22 of 32"))
        self.assertEqual((b.ask("take 24"), b.ask("take 22"), b.ask("left"), a.ask("left")), ("no", "ok", "0 of 32", "0 of 64"))

    def inside_another(self, inner):
        a, b = self.sibling(), self.sibling(inner)
        self.assertEqual((b.ask("take 33"), b.ask("take 32"), a.ask("left"), a.ask("take 33")), ("no", "ok", "32 of 64", "no"))
        a.end()
        b.end()

    def test_two_trees_know_nothing_of_each_other(self):
        a, b = self.sibling(), self.sibling(self.tree())
        self.assertEqual((a.ask("take 60"), b.ask("take 60")), ("ok", "ok"))

    def test_files_of_trees_that_have_ended_go(self):
        a, b = self.sibling(), self.sibling(self.tree())
        self.assertEqual((a.ask("take 1"), b.ask("take 1")), ("ok", "ok"))
        b.end()
        files = list((self.folder / "weir").glob("exec-*"))
        self.assertEqual(len(files), 2)
        self.tree()
        self.assertEqual([str(path) for path in (self.folder / "weir").glob("exec-*")], [self.environment["WEIR_EXEC_TREE"]])
        b = self.sibling()
        self.assertEqual(b.ask("left"), "62 of 64")

    def test_a_program_that_uses_weir_itself(self):
        a = self.sibling()
        self.assertEqual(a.ask("take 10"), "ok")
        lines = """
            import ctypes
            import weir
            client = weir.Client(weir.Runtime("cuda:0"), "own")
            block, refused = client.alloc(30 << 20), ""
            try:
                client.alloc(30 << 20)
            except weir.OutOfMemory:
                refused = "refused"
            cuda, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
            assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
            own = []
            for _ in range(4):  # between weir's smallest blocks what CUDA is asked for has CUDA's alignment
                own.append(client.alloc(256))
                assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1000)) == 0 and address.value % 512 == 0
                assert cuda.cuMemFree_v2(address) == 0
            print(refused, flush=True)
            input()
        """
        environment = {**self.environment, "PYTHONPATH": str(SOURCE / "python"), "WEIR_LIBRARY": str(COMMAND.parents[1] / "lib/libweir.so")}
        with subprocess.Popen([sys.executable, "-B", "-c", textwrap.dedent(lines)], env=environment, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as program:
            self.assertEqual(program.stdout.readline(), "refused\n")
            self.assertEqual((a.ask("left"), a.ask("take 30")), ("22 of 64", "no"))
            program.communicate("\n", 60)
        self.assertEqual(a.ask("left"), "54 of 64")

    def test_a_file_that_cannot_be_had_gives_nothing(self):
        environment = {**self.environment, "WEIR_EXEC_TREE": str(self.folder / "nowhere" / "file")}
        a = self.sibling(environment)
        self.assertEqual(a.ask("take 1"), "no")
        (self.folder / "other").write_bytes(struct.pack("<I", 99))  # another weir's
        (self.folder / "link").symlink_to(self.environment["WEIR_EXEC_TREE"])
        for name in ("other", "link"):
            a = self.sibling({**self.environment, "WEIR_EXEC_TREE": str(self.folder / name)})
            self.assertEqual(a.ask("take 1"), "no", name)

    def test_as_many_devices_as_there_are_places(self):
        a = self.sibling(self.tree(STUB_CUDA_DEVICES="17"))
        for device in range(17):
            a.send(f"device {device}")
            self.assertEqual(a.ask("take 1"), "ok" if device < 16 else "no", device)

    def test_a_device_beyond_those_that_are_served(self):
        """It is told of as it is, and what the host has is not taken for its."""
        a = self.sibling(self.tree(budget=("--budget", "host=8MiB,64MiB"), STUB_CUDA_DEVICES="65"))
        self.assertEqual(a.ask("pin 1"), "ok")
        a.send("device 64")
        self.assertEqual((a.ask("left"), a.ask("take 1")), ("64 of 64", "no"))
        a.send("device 63")
        self.assertEqual((a.ask("left"), a.ask("take 1"), a.ask("left")), ("64 of 64", "ok", "63 of 64"))

    def test_nvml(self):
        path = os.pathsep.join([str(PLACE / "nvml"), os.environ["LD_LIBRARY_PATH"]])
        a, b = self.sibling(), self.sibling({**self.environment, "LD_LIBRARY_PATH": path})
        self.assertEqual((a.ask("take 40"), b.ask("nvml"), b.ask("take 2"), b.ask("nvml")), ("ok", "24 of 64", "ok", "22 of 64"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
