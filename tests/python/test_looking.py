"""What Python is told of manifests, choices, traces and accounts: the words are the command's."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from common import MIB, SOURCE, run_python

import weir

COMMAND = Path(os.environ.get("WEIR_LIBRARY", "/nonexistent")).parent.parent / "bin/weir"
MLP = SOURCE / "tests/data/onnx/mlp.onnx"


def told(*words):
    """The command's JSON."""
    done = subprocess.run([COMMAND, *words, "--json"], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=1000)
    return json.loads(done.stdout)


class Manifests(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name, "manifest.json")

    def test_what_is_written_reads_as_it_was(self):
        wanted = weir.Requirements("cuda", ("openvino", "directml"), 3 << 30, (2 << 30) + 1, 4097, 5 << 20, (12, 10), (535, 129, 3), (8, 9), (1, 0),
                                   "pool", "all", weir.CpuUse.FORBIDDEN, 0.5)
        self.assertFalse(any(value == getattr(weir.Requirements(), name) for name, value in dataclasses.asdict(wanted).items()))
        settings = {"threads": "4", "memory_pattern": "on"}
        made = weir.Manifest(str(MLP), "onnx", "Bär", "1.10", settings, wanted)
        made.write(self.path)
        self.assertEqual(weir.Check(True, str(self.path), (), 0), weir.check(self.path))
        self.assertEqual(dataclasses.replace(made, path=str(self.path)), weir.read_manifest(self.path))
        weir.read_manifest(self.path).write(self.path)
        self.assertEqual(dataclasses.replace(made, path=str(self.path)), weir.read_manifest(self.path))

    def test_a_manifest_that_asks_for_nothing(self):
        made = weir.Manifest(os.path.relpath(MLP))
        made.write(self.path)
        self.assertEqual({"model_file"}, set(json.loads(self.path.read_text())))
        found = weir.read_manifest(self.path)
        self.assertEqual((weir.Requirements(), {}, None), (found.requirements, found.settings, found.version))
        self.assertEqual(weir.CpuUse.LISTED, self.written(weir.Requirements(cpu=weir.CpuUse.LISTED)).cpu)
        self.assertEqual(str(MLP), weir.read_manifest(MLP).model_file)

    def written(self, wanted):
        weir.Manifest(str(MLP), requirements=wanted).write(self.path)
        return weir.read_manifest(self.path).requirements

    def test_what_a_manifest_cannot_ask_for(self):
        for wanted, kind in ((weir.Requirements(min_vram=-1), weir.Invalid), (weir.Requirements(maximum=1 << 64), weir.Invalid),
                             (weir.Requirements(min_memory=True), TypeError), (weir.Requirements(min_coverage=2), weir.Invalid),
                             (weir.Requirements("abacus"), weir.Invalid), (weir.Requirements(strategy="luck"), weir.Invalid)):
            with self.subTest(wanted), self.assertRaises(kind):
                self.written(wanted)
        with self.assertRaises(weir.NotFound):
            weir.read_manifest(self.path.with_name("none.json"))

    def test_every_problem_has_its_place(self):
        self.path.write_text('{"framework": "onnx",\n "nonsense": 1}')
        found = weir.check(self.path)
        self.assertFalse(found.good)
        self.assertIn((2, 2), [(each.line, each.column) for each in found.errors])
        self.assertTrue(any("nonsense" in each.text for each in found.errors), found)
        self.assertEqual((str(self.path), 0), (found.path, found.more))
        if COMMAND.exists():
            words = told("check", self.path)
            mine = json.loads(json.dumps(dataclasses.asdict(found)))
            self.assertEqual({name: words[name] for name in ("good", "path", "errors", "more")}, mine)

    def test_a_model_is_good(self):
        self.assertEqual(weir.Check(True, str(MLP), (), 0), weir.check(MLP))

    def test_what_is_not_there_is_an_error(self):
        for look in (weir.check, weir.explain):
            with self.assertRaises(weir.NotFound):
                look("/nonexistent/manifest.json")


class Choices(unittest.TestCase):
    def compare(self, choice, *words):
        mine = json.loads(json.dumps(dataclasses.asdict(choice)))
        theirs = told("explain", MLP, *words)
        theirs.pop("cores")  # the command's alone, as `source` is
        for answer in (mine, theirs):
            for candidate in answer["candidates"]:
                candidate.pop("source", None)
                candidate["obtainable"] = candidate["obtainable"] is not None  # it changes from moment to moment
                candidate["reason"] = re.sub(r"[0-9.]+ [KMGT]?i?B", "", candidate["reason"])
        self.assertEqual(theirs, mine)

    def test_the_words_are_the_commands(self):
        choice = weir.explain(MLP)
        self.assertGreater(len(choice.candidates), 2)
        self.assertEqual("fastest", choice.policy)
        accepted = [each.rank for each in choice.candidates if each.verdict == "ACCEPTED"]
        self.assertEqual(list(range(len(accepted))), accepted)
        if COMMAND.exists():
            self.compare(choice)

    def test_what_is_asked_for_is_passed_on(self):
        choice = weir.explain(MLP, engine="gguf", policy="memory")
        self.assertEqual(("memory", None), (choice.policy, choice.chosen))
        self.assertLessEqual({each.verdict for each in choice.candidates if each.engine == "onnx"}, {"NOT_ASKED"})
        self.assertNotIn("cpu", [each.provider for each in weir.explain(MLP, no_cpu=True).candidates if each.rank >= 0])
        asked = weir.explain(MLP, provider="cuda", device="cuda:0")
        self.assertEqual({"NOT_ASKED"}, {each.verdict for each in asked.candidates if each.engine == "onnx" and each.provider == "cpu"})
        for wrong in ({"policy": "nonsense"}, {"engine": "nonsense"}, {"order": "nonsense"}):
            with self.assertRaisesRegex(weir.Invalid, "nonsense"):
                weir.explain(MLP, **wrong)
        with self.assertRaisesRegex(TypeError, "setting"):
            weir.explain(MLP, settings={"threads": object()})


@unittest.skipUnless(COMMAND.exists(), "the command weir is not built")
class Plans(unittest.TestCase):
    def test_the_plan_of_a_model_is_the_commands(self):
        theirs = told("plan", MLP, "--places", "--quick", "--align", "64", "--dim", "n=2")
        mine = json.loads(json.dumps(dataclasses.asdict(weir.plan(MLP, dims={"n": 2}, quick=True, alignment=64))))
        self.assertGreater(len(mine["places"]), 3)
        self.assertEqual({name: theirs[name] for name in mine if name != "seconds"}, {name: mine[name] for name in mine if name != "seconds"})

    def test_buffers_that_never_live_together_share_bytes(self):
        found = weir.plan([weir.Buffer("a, \"b\"\n", 100, 0, 2), weir.Buffer("c", 200, 1, 3), weir.Buffer("c", 100, 2, 4)])
        self.assertEqual((300, 400, True), (found.arena, found.unshared, found.proven))
        self.assertEqual(["a, \"b\"\n", "c", "c"], [place.name for place in found.places])
        self.assertEqual(found.places[0].offset, found.places[2].offset)
        self.assertEqual((), weir.plan([]).places)

    def test_failures_have_the_commands_words(self):
        with self.assertRaisesRegex(weir.Invalid, "'x': 1 bytes, live from step 3 until before step 2"):
            weir.plan([weir.Buffer("x", 1, 3, 2)])
        with self.assertRaisesRegex(weir.Invalid, "power of two"):
            weir.plan(MLP, alignment=3)
        with self.assertRaisesRegex(weir.Error, "--dim n=N"):
            weir.plan(MLP)


class Traces(unittest.TestCase):
    def setUp(self):
        self.runtime = weir.Runtime("host", budget="64MiB", own=True)
        self.client = self.runtime.client("a", maximum=MIB)

    def tearDown(self):
        self.client.close()
        self.runtime.close()

    def test_events_are_read_in_their_order(self):
        old = self.client.alloc(256, tag="old")
        with self.runtime.trace() as trace:
            with self.assertRaises(weir.Busy):
                self.runtime.trace()
            with self.client.alloc(1000, tag="new", memory_class=weir.Class.KV):
                pass
            with self.assertRaises(weir.OutOfMemory):
                self.client.alloc(2 * MIB)
            events = [each for each in trace.read() if each.action != "hold"]
            told = [(each.action, each.tag) for each in events[:3]]
            self.assertEqual([("allocate", "old"), ("allocate", "new"), ("deallocate", "new")], told)
            new, last = events[1], events[-1]
            self.assertEqual((1000, 1024, weir.Class.KV, "a", "host", weir.Status.OK, 1280),
                             (new.bytes, new.charged, new.memory_class, new.client, new.device, new.result, new.live))
            self.assertEqual(("refuse", weir.Status.OUT_OF_MEMORY, 2 * MIB), (last.action, last.result, last.bytes))
            self.assertEqual(sorted(each.order for each in events), [each.order for each in events])
            self.assertEqual(([], 0), (trace.read(), trace.lost))
        old.close()

    def test_more_events_than_one_look_takes(self):
        with self.runtime.trace() as trace:
            for _ in range(1500):
                self.client.alloc(256).close()
            self.assertEqual(1500, sum(each.action == "allocate" for each in trace.read()))

    def test_what_nobody_reads_in_time_is_counted(self):
        with self.runtime.trace(capacity=16) as trace:
            for _ in range(100):
                self.client.alloc(256).close()
            self.assertGreater(trace.lost, 0)

    def test_a_file_has_what_happened(self):
        with tempfile.TemporaryDirectory() as folder:
            for format, begin in (("csv", b"Thread,Time,Action,"), ("binary", b"weir\r\n\x1a\n")):
                path = Path(folder, f"trace.{format}")
                with self.runtime.trace(path, format=format) as trace:
                    self.client.alloc(256, tag="in-the-file").close()
                    trace.flush()
                    self.assertIn(b"in-the-file", path.read_bytes())
                    with self.assertRaises(weir.Conflict):
                        trace.read()
                self.assertTrue(path.read_bytes().startswith(begin))
            with self.assertRaises(ValueError):
                self.runtime.trace(path, format="json")
            with self.assertRaises(weir.SystemFailed):
                self.runtime.trace("/nonexistent/folder/trace")
            self.runtime.trace().close()  # a failed start leaves none behind


class Pictures(unittest.TestCase):
    def test_they_have_the_numbers_and_nothing_from_outside(self):
        with weir.Runtime("host", budget="64MiB", own=True) as runtime, runtime.client("<b>a & b</b>", maximum="8MiB") as client:
            with client.alloc("4MiB", memory_class=weir.Class.WEIGHTS), client.alloc("1MiB", memory_class=weir.Class.KV):
                for thing in (runtime, client):
                    page = thing._repr_html_()
                    for words in ("5 MiB", "4 MiB", "weights", "kv", "prefers-color-scheme", "&lt;b&gt;a &amp; b&lt;/b&gt;", "<svg"):
                        self.assertIn(words, page)
                    for words in ("<b>a", "http", "<script", "<link", "@import", "url("):
                        self.assertNotIn(words, page)
                self.assertIn("64 MiB", runtime._repr_html_())
                self.assertIn("8 MiB", client._repr_html_())
            closed = client
        self.assertIn("closed", closed._repr_html_())
        self.assertIn("closed", runtime._repr_html_())

    def test_what_is_away_is_told_where_there_is_some(self):
        from weir import picture
        with weir.Runtime("host", budget="64MiB", own=True) as runtime, runtime.client("a") as client, client.alloc("4MiB"):
            stats = runtime.stats()
            its, = stats.clients
            self.assertEqual((its.away, its.residency, stats.away), (0, weir.ResidencyState.RESIDENT, 0))
            for page in (picture.of_runtime("host", stats), picture.of_client("client", "a", its, stats.budget)):
                self.assertNotIn("away", page)
                self.assertNotIn("resident", page)
            gone = dataclasses.replace(its, live=0, live_class=dict.fromkeys(weir.Class, 0), away=its.live, residency=weir.ResidencyState.SUSPENDED)
            page = picture.of_runtime("host", dataclasses.replace(stats, live=0, away=its.live, clients=(gone,)))
            self.assertIn("<th>away</th>", page)
            self.assertIn("<td>4 MiB</td><td>suspended</td>", page)
            self.assertIn("suspended, 4 MiB away", picture.of_client("client", "a", gone, stats.budget))


class Import(unittest.TestCase):
    @unittest.skipUnless(COMMAND.exists(), "the command weir is not built")
    def test_the_module_is_the_command(self):
        done = subprocess.run([sys.executable, "-B", "-m", "weir", "version"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "PYTHONPATH": str(SOURCE / "python")})
        self.assertEqual((0, f"weir {weir.version()}\n"), (done.returncode, done.stdout))

    def test_what_few_programs_need_is_imported_when_it_is_used(self):
        ended = run_python("""if True:
            import sys, weir
            later = ('numpy', 'asyncio', 'weir.choice', 'weir.trace', 'weir.astream', 'weir.picture')
            print([name for name in later if name in sys.modules])
            weir.Trace, weir.explain, weir.AsyncStream
            print('weir.choice' in sys.modules, hasattr(weir, 'nonsense'))""")
        self.assertEqual("[]\nTrue False\n", ended.stdout)

    def test_all_names_are_there(self):
        self.assertEqual([], [name for name in weir.__all__ if not hasattr(weir, name)])
        self.assertEqual(sorted(weir.__all__), weir.__all__)


if __name__ == "__main__":
    unittest.main()
