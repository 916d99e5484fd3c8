"""weir devices: on this machine, and on others that are directories with stubs of NVIDIA's libraries."""

import ctypes
import shutil
import unittest
from pathlib import Path

import harness

STUBS = harness.BUILD / "stub/hardware"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
GIB = 1 << 30
DEVICE_KEYS = {"kind", "key", "parent", "pci", "name", "runtime", "ordinal", "total", "free", "shares_host", "discrete", "units",
               "capability", "driver", "driver_runtime", "usable", "remark"}


def driver_is_here():
    try:
        return bool(ctypes.CDLL("libnvidia-ml.so.1"))
    except OSError:
        return False


class Devices(harness.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        harness.compile_engine(harness.SOURCE / "tests/cli/lacking.c", cls.engines)

    def machine(self, gpus=None):
        """A machine with 64 GiB and what the stubs make of `gpus`; answers its directory."""
        root = self.folder / "machine"
        files = {"proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {60 << 20} kB\n",
                 "proc/cpuinfo": "model name\t: Test \x1b[31mCPU\n", "sys/devices/system/cpu/online": "0-7\n"}
        if gpus:
            files["usr/lib/gpus.txt"] = gpus
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        if gpus:
            shutil.copy(STUBS / "libnvml.so", root / "usr/lib/libnvidia-ml.so.1")
            shutil.copy(STUBS / "libcuda.so", root / "usr/lib/libcuda.so.1")
        return root

    def gpu(self, before=""):
        return f"{before}driver 580.65.06\ncuda 13000\ngpu {UUID} 0000:3b:00.0 0 9.0 132 {140 * GIB} {139 * GIB} - NVIDIA H200\n"

    def test_this_machine(self):
        answer = self.weir_json("devices")
        self.assertEqual(set(answer), {"devices", "engines", "remarks", "seconds"})
        processor = answer["devices"][0]
        self.assertEqual(set(processor), DEVICE_KEYS)
        self.assertEqual((processor["kind"], processor["key"], processor["runtime"]), ("cpu", "cpu", "host"))
        self.assertGreater(processor["total"], processor["free"])
        self.assertTrue(all(isinstance(line, str) for line in answer["remarks"]))

    def test_a_library_that_does_not_open(self):
        """It lies where only the linker's search finds it, and is not called missing. A good one beside it would be taken."""
        if driver_is_here():
            self.skipTest("NVIDIA's driver is here")
        broken = self.folder / "libnvidia-ml.so.1"
        broken.write_text("no library at all")
        remarks = self.weir_json("devices", LD_LIBRARY_PATH=str(self.folder))["remarks"]
        self.assertTrue([line for line in remarks if line.startswith(f"nvml: {broken}: ")], remarks)

    def test_another_machine(self):
        answer = self.weir_json("devices", "--sysroot", self.machine(self.gpu()))
        self.assertEqual(answer["devices"][1], {
            "kind": "cuda", "key": UUID, "parent": "", "pci": "0000:3b:00.0", "name": "NVIDIA H200", "runtime": "cuda:0",
            "ordinal": 0, "total": 140 * GIB, "free": 139 * GIB, "shares_host": False, "discrete": True, "units": 132,
            "capability": "9.0", "driver": "580.65.6", "driver_runtime": "13.0", "usable": True, "remark": ""})
        self.assertEqual(len(answer["devices"]), 2)

    def test_as_people_read_it(self):
        out, error = self.weir("devices", "--sysroot", self.machine(self.gpu()))
        self.assertEqual(error, "")
        self.assertRegex(out, r"host +cpu +Test \?\[31mCPU +64 GiB +60 GiB +8 +cpu")
        self.assertRegex(out, rf"cuda:0 +cuda +NVIDIA H200 +140 GiB +139 GiB +132 +{UUID} +capability 9\.0, driver 580\.65\.6, CUDA 13\.0")
        out, _ = self.weir("devices", "--sysroot", self.machine(self.gpu()), CUDA_VISIBLE_DEVICES="-1")
        self.assertRegex(out, r"- +cuda +NVIDIA H200")
        self.assertIn(f'{UUID}: hidden by CUDA_VISIBLE_DEVICES="-1"\n', out)

    def test_what_nobody_tells_is_null(self):
        processor = self.weir_json("devices", "--sysroot", self.folder)["devices"][0]
        self.assertEqual((processor["total"], processor["free"]), (None, None))

    def test_what_engines_lack(self):
        engines = {engine["name"]: engine for engine in self.weir_json("devices")["engines"]}
        self.assertEqual(engines["lacking"], {"name": "lacking", "missing": "", "providers": [
            {"name": "cpu", "state": "here", "library": "/opt/liblacking.so", "version": "1.2.3", "missing": ""},
            {"name": "rocm", "state": "not built", "library": "", "version": "",
             "missing": "liblacking 1.2.3 is built without it"},
            {"name": "cuda", "state": "not loadable", "library": "/opt/liblacking.so", "version": "1.2.3",
             "missing": "libcudnn.so.9: version 9.1 wanted, 8.9 found"},
            {"name": "openvino", "state": "no library", "library": "", "version": "",
             "missing": "liblacking-openvino is not in the store"}]})
        # An engine that tells no providers has the processor, as its probe says.
        self.assertEqual([provider["name"] for provider in engines["toy"]["providers"]], ["cpu"])
        self.assertEqual(engines["toy"]["providers"][0]["state"], "here")
        out, _ = self.weir("devices")
        self.assertRegex(out, r"lacking +cpu +here +1\.2\.3 +/opt/liblacking\.so\n")
        self.assertRegex(out, r"\n +cuda +not loadable +1\.2\.3 +libcudnn\.so\.9: version 9\.1 wanted, 8\.9 found\n")

    def test_an_engine_that_cannot_be_opened(self):
        (Path(self.folder) / "weir-engine-broken.so").write_text("no library")
        engines = self.weir_json("devices", WEIR_ENGINE_PATH=str(self.folder))["engines"]
        broken = next(engine for engine in engines if engine["name"] == "broken")
        self.assertEqual(broken["providers"], [])
        self.assertIn("cannot open the plug-in", broken["missing"])
        self.assertRegex(self.weir("devices", WEIR_ENGINE_PATH=str(self.folder))[0], r"broken +cannot be opened +cannot open")

    def test_a_library_that_hangs_holds_nothing_up(self):
        root = self.machine(self.gpu("sleep 3600000 3600000\n"))  # an hour: whoever waited for it would be ended before
        answer = self.weir_json("devices", "--sysroot", root)
        self.assertEqual([device["kind"] for device in answer["devices"]], ["cpu"])
        self.assertTrue(any(line.startswith("nvml: no answer within") for line in answer["remarks"]))

    def test_a_choice_waits_for_a_slow_driver(self):
        # What it decides stays: a GPU whose driver takes long to start is not passed over.
        model = self.write("a.lacking", "a model")
        answer = self.weir_json("explain", model, "--engine", "lacking", "--sysroot", self.machine(self.gpu("sleep 900 900\n")))
        self.assertIn(UUID, [candidate["device"] for candidate in answer["candidates"]])
        self.assertIn("cuda:0", [candidate["runtime"] for candidate in answer["candidates"]])

    def test_bad_usage(self):
        self.assertIn("--sysroot", self.refused("devices", "--sysroot"))
        self.assertIn("'more'", self.refused("devices", "more"))
        self.refused("devices", "--what")
        self.assertIn("/nowhere is no directory", self.refused("devices", "--sysroot", "/nowhere", status=1))
        self.assertIn("--sysroot DIR", self.weir("devices", "--help")[0])


if __name__ == "__main__":
    unittest.main()
