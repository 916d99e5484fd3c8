"""Snapshots and PyTorch itself: its memory_viz reads what weir export writes, and weir reads what PyTorch has made. A Python with
PyTorch is in WEIR_TEST_TORCH, or is this one; without either nothing is tested. No GPU is needed."""

import importlib.util
import os
import subprocess
import sys
import unittest

import harness
import recorded

TORCH = os.environ.get("WEIR_TEST_TORCH") or (sys.executable if importlib.util.find_spec("torch") else None)

# All that memory_viz has. Flame graphs are a program of others', which it would fetch: their lines serve here.
VIEW = """
import pickle, sys
from torch.cuda import _memory_viz as viz
data = pickle.load(open(sys.argv[1], "rb"))
plain = dict(format_flamegraph=lambda lines: lines)
print("== segsum"); print(viz.segsum(data))
print("== trace"); print(viz.trace(data))
print("== memory"); print(viz.memory(data, **plain))
print("== segments"); print(viz.segments(data, **plain))
print("== compare"); print(viz.compare(data["segments"], data["segments"], **plain))
pages = [viz.trace_plot(data), viz.trace_plot(data, plot_segments=True), viz.segment_plot(data), viz.trace_plot(data, filter_freed=True)]
assert all("base64" in page for page in pages)
print("== end")
"""

# An empty snapshot as the allocator of a machine without a GPU makes it, and one of a profile of the CPU.
MAKE = """
import pickle, sys, torch
from torch.cuda import _memory_viz as viz
from torch.profiler import ProfilerActivity, profile
pickle.dump(torch._C._cuda_memorySnapshot(None), open("empty.pickle", "wb"))
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True, with_stack=True) as made:
    kept = torch.ones(300000)
    gone = torch.ones(500000)
    del gone
snapshot = viz._profile_to_snapshot(made)
pickle.dump(snapshot, open("profile.pickle", "wb"))
entries = snapshot["device_traces"][0]
print(*[sum(e["action"] == a for e in entries) for a in ("alloc", "free_requested", "free_completed")])
"""


@unittest.skipUnless(TORCH, "there is no PyTorch here: WEIR_TEST_TORCH may name a Python that has it")
class MemoryViz(harness.Case):
    def torch(self, program, *words):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("WEIR_", "LD_PRELOAD"))}
        done = subprocess.run([TORCH, "-B", "-c", program, *map(str, words)], cwd=self.folder, env=environment, timeout=1000,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def view(self, trace):
        self.weir("export", trace, "--format", "pickle", "-o", "out.pickle")
        text = self.torch(VIEW, "out.pickle")
        parts = {}
        for line in text.split("\n"):
            if line.startswith("== "):
                part = parts.setdefault(line[3:], [])
            else:
                part.append(line)
        self.assertIn("end", parts)
        return parts

    def test_pytorchs_viewer_reads_it(self):
        made = recorded.rows(2000)
        sums = recorded.Sums(made)
        parts = self.view(self.write("made.csv", recorded.text(made)))
        trace = parts["trace"]
        self.assertEqual(sum(line.startswith("del ") for line in trace), sums.frees)
        self.assertEqual(sum(line.startswith("# free completed") for line in trace), sums.frees)
        self.assertEqual(sum(line.startswith("raise OutOfMemoryError") for line in trace), sums.refused)
        self.assertEqual(sum("] = MEM" in line or "= MEM[" in line for line in trace), 0)  # each lies in a segment
        live = {}
        for size, client, name, tag in sums.blocks.values():
            for one in filter(None, (tag, name, client)):
                live[one] = live.get(one, 0) + size
        for client in {key[0] for key in sums.tags}:
            found = sum(int(line.rsplit(" ", 1)[1]) for line in parts["memory"] if client in line)
            self.assertEqual(found, live.get(client, 0), client)
        self.assertFalse(any(line.startswith(("only_before;", "only_after;")) for line in parts["compare"]))

    def test_a_run_and_nothing(self):
        self.weir("run", "a.toy", WEIR_TRACE="t.weir")
        self.assertTrue(any(line.startswith("del ") for line in self.view("t.weir")["trace"]))
        self.write("none.csv", recorded.HEADER + "\n")
        self.weir("export", "none.csv", "--format", "pickle", "-o", "none.pickle")
        self.torch("import pickle, sys; from torch.cuda import _memory_viz as v; d = pickle.load(open(sys.argv[1], 'rb'));"
                   "print(v.segsum(d), v.trace(d))", "none.pickle")

    def test_what_pytorch_makes_is_read(self):
        allocated, freed, completed = map(int, self.torch(MAKE).split())
        answer = self.weir_json("report", "empty.pickle")
        self.assertEqual((answer["events"], answer["malformed"], answer["unknown"]), (0, 0, 0))
        answer = self.weir_json("report", "profile.pickle")
        self.assertEqual((answer["malformed"], answer["unknown"], answer["refused"]), (0, 0, 0))
        self.assertGreaterEqual(answer["allocations"], allocated)
        self.assertGreaterEqual(answer["frees"], max(freed, completed))
        self.assertGreaterEqual(answer["peak_requested"], 3200000)
        self.assertFalse([tag["tag"] for tag in answer["tags"] if ":0)" in tag["tag"]])
        self.weir("report", "profile.pickle", "-o", "profile.html")
        self.weir("export", "profile.pickle", "--format", "pickle", "-o", "again.pickle")
        self.torch(VIEW, "again.pickle")


if __name__ == "__main__":
    harness.main()
