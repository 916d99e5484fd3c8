"""The history of PyTorch's allocations, traces in snapshots and observers of refusals, over the stub of CUDA's driver and a stand-in for
PyTorch (fake/). Where this Python has PyTorch, a build for CUDA (no GPU is needed), its own tools open the snapshots. Each test is a
process of its own."""

import importlib.util
import textwrap
import unittest
from pathlib import Path

from common import run_python

HERE = Path(__file__).resolve().parent
PYTORCH = importlib.util.find_spec("torch")
TOOLS = str(Path(PYTORCH.origin).with_name("cuda") / "_memory_viz.py") if PYTORCH and PYTORCH.origin else ""
BEGIN = """
import sys
sys.path[:0] = {paths!r}
import collections, gc, io, os, pickle, threading
import torch
from driver import *
import weir.torch
begin()
P, N = c.c_void_p, c.c_size_t
for name, answer, arguments in (("alloc", P, [N, c.c_int, P]), ("free", None, [P, N, c.c_int, P]), ("record_stream", None, [P, P]),
                                ("begin_pool", None, [c.c_int, c.c_uint64, c.c_uint64, P]),
                                ("end_pool", None, [c.c_int, c.c_uint64, c.c_uint64])):
    function = getattr(seams, "wseam_torch_" + name)
    function.restype, function.argtypes = answer, arguments
    globals()["t_" + name] = function
seams.wseam_torch_throws = lambda: True  # nothing is thrown through ctypes
used = weir.torch.use(budget="64MiB")
own = torch._C

def record(enabled="all", context="all", stacks="python", max_entries=2**63 - 1, clear=False, skip=()):
    # as torch.cuda.memory._record_memory_history calls it
    own._cuda_record_memory_history(enabled, context, stacks, max_entries, clear, False, False, list(skip))

def trace(asked=None, device=0):
    return own._cuda_memorySnapshot(asked)["device_traces"][device]

def told(*keys):
    return [tuple(entry.get(key) for key in keys) for entry in trace() if entry["action"] != "snapshot"]

def is_(got, wanted):
    assert got == wanted, f"{{got}}, not {{wanted}}"

def functions(entry):
    return [frame["name"] for frame in entry["frames"]]

def pytorchs(snapshot):
    "(address, requested bytes) of live blocks of PyTorch's client."
    return sorted((block["address"], block["requested_size"]) for segment in snapshot["segments"] for block in segment["blocks"]
                  if block["state"] == "active_allocated" and block["frames"][-1]["name"].startswith("torch"))

def replayed(entries):
    "What lives after these events; each one follows from those before it."
    live, freeing = {{}}, {{}}
    last = 0
    for entry in entries:
        at, size, action = entry.get("addr"), entry["size"], entry["action"]
        assert last <= entry["time_us"], entry
        last = entry["time_us"]
        if action == "alloc":
            assert at not in live and at not in freeing, entry
            live[at] = size
        elif action == "free_requested":
            is_(live.pop(at), size)
            freeing[at] = size
        elif action == "free_completed":
            is_(freeing.pop(at), size)
    return sorted([*live.items(), *freeing.items()])
"""


class Case(unittest.TestCase):
    def run_lines(self, lines, real=False, **environment):
        paths = [str(HERE)] if real else [str(HERE), str(HERE / "fake")]
        done = run_python(BEGIN.format(paths=paths) + textwrap.dedent(lines), **environment)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout


class Events(Case):
    def test_the_trace_and_the_segments_tell_the_same(self):
        self.run_lines("""
            record()
            assert own._cuda_isHistoryEnabled()
            one, blocks = make_stream(), collections.deque()
            for i in range(200):
                blocks.append((t_alloc(1000 * (i % 7 + 1), 0, one), 1000 * (i % 7 + 1)))
                if i % 3:
                    t_free(*blocks.popleft(), 0, one)
            snapshot = own._cuda_memorySnapshot(None)
            entries = snapshot["device_traces"][0]
            is_(collections.Counter(entry["action"] for entry in entries), {"alloc": 200, "free_requested": 133, "free_completed": 133})
            is_(replayed(entries), sorted(blocks))
            is_(pytorchs(snapshot), sorted(blocks))
            is_(sum(size for _, size in replayed(entries)), own._cuda_memoryStats(0)["requested_bytes"]["all"]["current"])
            is_({entry["stream"] for entry in entries}, {one})
            later = trace()  # which has the first snapshot in it
            is_((len(later), later[-1]["action"], later[-1]["size"]), (467, "snapshot", client_live := used.client().stats().live))
            assert client_live > 0
        """)

    def test_nothing_is_kept_before_it_begins_and_after_it_ends(self):
        self.run_lines("""
            a = t_alloc(MIB, 0, None)
            is_((trace(), own._cuda_isHistoryEnabled()), ([], False))
            record()
            t_free(a, MIB, 0, None)  # its allocation is not known
            is_(told("action", "addr", "size"), [("free_requested", a, MIB), ("free_completed", a, MIB)])
            b = t_alloc(MIB, 0, None)
            record(None)
            is_((trace(), own._cuda_isHistoryEnabled()), ([], False))
            is_([len(block["frames"]) for segment in own._cuda_memorySnapshot()["segments"] for block in segment["blocks"]
                 if block["address"] == b], [1])
            t_free(b, MIB, 0, None)
            record()
            is_(trace(), [])
        """)

    def test_the_last_events_are_kept(self):
        self.run_lines("""
            record(max_entries=1500)
            for i in range(1, 1001):
                t_free(t_alloc(i, 0, None), i, 0, None)
            whole = [(action, i) for i in range(1, 1001) for action in ("alloc", "free_requested", "free_completed")]
            is_(told("action", "size"), whole[-1500:])
            record(max_entries=10)
            last = trace()[-10:]
            is_([entry["size"] for entry in last[:9]], [entry[1] for entry in whole[-9:]])
            record(max_entries=3000)  # more again, and all in order
            for i in range(2001, 2011):
                t_free(t_alloc(i, 0, None), i, 0, None)
            assert len(told("size")) >= 38
            is_(told("size")[-30:], [(i,) for i in range(2001, 2011) for _ in range(3)])
            record(max_entries=3000, clear=True)
            is_(trace(), [])
            record(max_entries=0)
            t_alloc(5, 0, None)
            t_alloc(6, 0, None)
            is_(told("size"), [(6,)])
        """)

    def test_the_state_alone_has_frames_of_what_lives_and_no_events(self):
        self.run_lines("""
            record("state")
            def deep():
                return t_alloc(MIB, 0, None)
            a = deep()
            snapshot = own._cuda_memorySnapshot()
            is_(snapshot["device_traces"][0], [])
            block, = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["address"] == a]
            is_(functions(block)[:2] + functions(block)[-1:], ["deep", "<module>", "torch"])
        """)

    def test_actions_can_be_left_out(self):
        self.run_lines("""
            record(skip=["free_requested", "segment_alloc", "snapshot"])
            t_free(t_alloc(MIB, 0, None), MIB, 0, None)
            trace()
            is_([entry["action"] for entry in trace()], ["alloc", "free_completed"])
        """)

    def test_a_refusal_is_an_event(self):
        self.run_lines("""
            record()
            a = t_alloc(16 * MIB, 0, None)
            def greedy():
                return t_alloc(65 * MIB, 0, None)
            is_(greedy(), None)
            entry = trace()[-1]
            is_((entry["action"], entry["size"], entry["device_free"]), ("oom", 65 * MIB, 48 * MIB))
            is_(functions(entry)[0], "greedy")
            assert "addr" not in entry
        """)

    def test_a_block_that_a_capture_holds_up_is_freed_when_it_is_over(self):
        self.run_lines("""
            record()
            one, other = make_stream(), make_stream()
            a = t_alloc(3 * MIB, 0, one)
            t_free(t_alloc(256, 0, other), 256, 0, other)
            begin_capture(other)
            t_record_stream(a, other)
            t_free(a, 3 * MIB, 0, one)
            of_a = lambda: [action for action, at in told("action", "addr") if at == a]
            is_(of_a(), ["alloc", "free_requested"])
            is_(pytorchs(own._cuda_memorySnapshot()), replayed(trace()))
            end_capture(other)
            t_free(t_alloc(256, 0, one), 256, 0, one)
            is_(of_a(), ["alloc", "free_requested", "free_completed"])
        """)

    def test_events_of_a_pool(self):
        self.run_lines("""
            class Filter(c.Structure):
                manager_type, invoker_type = c.CFUNCTYPE(c.c_bool, P, P, c.c_int), c.CFUNCTYPE(c.c_bool, P, c.POINTER(P))
                _fields_ = [("functor", P * 2), ("manager", manager_type), ("invoker", invoker_type)]
            every = Filter(manager=Filter.manager_type(lambda *_: False), invoker=Filter.invoker_type(lambda *_: True))
            record()
            one = make_stream()
            outside = t_alloc(MIB, 0, one)
            t_begin_pool(0, 7, 3, c.byref(every))
            a, b = t_alloc(2 * MIB, 0, one), t_alloc(3 * MIB, 0, one)
            t_end_pool(0, 7, 3)
            t_free(a, 2 * MIB, 0, one)
            of_pool = [(entry["action"], entry["addr"]) for entry in trace((7, 3)) if entry["action"] != "snapshot"]
            is_(of_pool, [("alloc", a), ("alloc", b), ("free_requested", a), ("free_completed", a)])
            is_(trace((7, 4)), [])
            is_(trace((7, 3, False)), [])
            is_({entry["pool_id"] for entry in trace((7, 3, True))}, {(7, 3)})
            is_([entry["pool_id"] for entry in trace() if entry.get("addr") == outside], [(0, 0)])
            is_(trace((0, 0, False)), [])
        """)

    def test_each_device_has_its_events(self):
        self.run_lines("""
            record(max_entries=2)
            torch.cuda.device_count = lambda: 2
            a = t_alloc(MIB, 0, None)
            begin(1)
            for i in range(3):
                t_alloc(MIB + i, 1, None)
            is_([entry["size"] for entry in trace(device=0)], [MIB])
            is_([entry["size"] for entry in trace(device=1)][:1], [MIB + 2])
        """, STUB_CUDA_DEVICES="2")

    def test_a_forked_process_has_none(self):
        self.run_lines("""
            record()
            own._cuda_attach_out_of_memory_observer(lambda *told: os._exit(3))
            a = t_alloc(MIB, 0, None)
            child = os.fork()
            if child == 0:
                t_free(a, MIB, 0, None)
                t_alloc(65 * MIB, 0, None)
                os._exit(1 if own._cuda_isHistoryEnabled() else 0)
            is_(os.waitpid(child, 0)[1], 0)
            is_([entry["action"] for entry in trace()], ["alloc"])
        """)

    def test_what_answers_instead_of_pytorch_can_be_looked_up(self):
        self.run_lines("""
            answers = [function for name, function in vars(own).items() if "_cuda_" in name or "_accelerator_" in name]
            assert len(answers) > 10 and len(set(answers)) == len(answers), answers  # torch.compile has PyTorch's functions in a table
        """)

    def test_what_pytorch_has_no_meaning_for_is_refused(self):
        self.run_lines("""
            for wrong in (dict(enabled="some"), dict(context="free"), dict(stacks="cpp"), dict(skip=["alloc", "frees"])):
                try:
                    record(**wrong)
                    raise AssertionError(f"{wrong} was taken")
                except weir.Invalid as error:
                    assert "expected" in str(error), error
            is_(own._cuda_isHistoryEnabled(), False)
            own._cuda_record_memory_history_legacy(True, True, 2, True, False, False, False, False, [])
            t_free(t_alloc(5, 0, None), 5, 0, None)
            is_(told("action"), [("free_requested",), ("free_completed",)])
            own._cuda_record_memory_history_legacy(False, True, 1, False, False, False)
            is_(own._cuda_isHistoryEnabled(), False)
        """)


class Frames(Case):
    def test_they_are_those_that_were_asked_for(self):
        lines = """
            def make():
                return t_alloc(MIB, 0, None)
            def drop(block):
                t_free(block, MIB, 0, None)
            first = make.__code__.co_firstlineno
            def innermost(context):
                record(None)
                record(context=context)
                drop(make())
                make()
                entries = trace()
                block, = [block for segment in own._cuda_memorySnapshot()["segments"] for block in segment["blocks"]
                          if block["address"] == entries[-1]["addr"]]
                drop(block["address"])
                return [(entry["frames"] or [{"name": None}])[0]["name"] for entry in [*entries, block]]
            is_(innermost(None), [None] * 4 + ["torch"])
            is_(innermost("state"), [None] * 4 + ["make"])
            is_(innermost("alloc"), ["make"] * 5)
            is_(innermost("all"), ["make", "drop", "drop", "make", "make"])
            record(None)
            record()
            drop(make())
            alloc, free, _ = trace()
            is_(alloc["frames"][0], {"name": "make", "filename": "<string>", "line": first + 1})
            is_(free["frames"], [{"name": "drop", "filename": "<string>", "line": first + 3}, {**alloc["frames"][1]}])
        """
        self.run_lines(lines)

    def test_stacks_are_dropped_with_their_events(self):
        self.run_lines("""
            def use_of(code):
                gc.collect()
                return sys.getrefcount(code)
            def deep(levels):
                return deep(levels - 1) if levels else t_alloc(256, 0, None)
            before = use_of(deep.__code__)
            record(max_entries=8)
            for _ in range(100):
                t_free(deep(100), 256, 0, None)
            trace()
            assert before < use_of(deep.__code__) <= before + 8 * 101, use_of(deep.__code__)
            block = deep(100)
            record(None)
            is_(use_of(deep.__code__), before)
            record("state")
            for _ in range(10):
                t_free(deep(100), 256, 0, None)
            own._cuda_memorySnapshot()
            record(None)
            is_(use_of(deep.__code__), before)
        """)

    def test_calls_of_c_stand_where_python_has_made_them(self):
        self.run_lines("""
            from weir import _torch_history
            def outer():
                return make()
            def make():
                return t_alloc(1024, 0, None)
            record(stacks="all")
            t_free(outer(), 1024, 0, None)
            for entry in trace()[:2]:
                names = functions(entry)
                assert all("libweir-seams" not in frame["filename"] for frame in entry["frames"]), entry["frames"]
                assert "ffi_call" in names, names
                if entry["action"] == "alloc":
                    assert names.index("ffi_call") < names.index("make") < names.index("outer") < names.index("<module>"), names
            own._cuda_record_memory_history_legacy(True, True, 10, True, True, True)
            t_free(make(), 1024, 0, None)
            assert "ffi_call" in functions(trace()[0])
            own._cuda_record_memory_history_legacy(True, True, 10, True, False, True)
            t_free(make(), 1024, 0, None)
            is_(functions(trace()[0]), ["make", "<module>"])
            is_(_torch_history._demangled(b"_ZN2at4_ops4rand4callEv"), "at::_ops::rand::call()")
            is_(_torch_history._demangled(b"plain"), "plain")
        """)

    def test_a_deep_stack_is_whole(self):
        self.run_lines("""
            def deep(levels):
                return deep(levels - 1) if levels else t_alloc(256, 0, None)
            record()
            deep(500)
            entry, = trace()
            is_(functions(entry), ["deep"] * 501 + ["<module>"])
        """)

    def test_threads_that_allocate_and_threads_that_read(self):
        self.run_lines("""
            record(max_entries=300)
            sys.setswitchinterval(1e-5)
            ended, wrong = threading.Event(), []
            def work(number):
                begin()
                stream = make_stream()
                for i in range(400):
                    block = t_alloc(256 * number, 0, stream)
                    if i % 2:
                        record(context=("all", "alloc", "state")[i % 3], max_entries=(300, 50)[number % 2])
                    t_free(block, 256 * number, 0, stream)
            def read():
                while not ended.is_set():
                    for entry in own._cuda_memorySnapshot()["device_traces"][0]:
                        if entry["action"] == "alloc" and entry["frames"] and entry["frames"][0]["name"] != "work":
                            wrong.append(entry)
            workers, reader = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)], threading.Thread(target=read)
            for thread in (*workers, reader):
                thread.start()
            for thread in workers:
                thread.join()
            ended.set()
            reader.join()
            is_(wrong, [])
            record(context="all", max_entries=300, clear=True)
            is_(replayed(trace()), [])
            is_(used.client().stats().live, 0)
        """)

    def test_threads_that_share_a_stream_hand_memory_over_in_order(self):
        self.run_lines("""
            record(context=None)
            sys.setswitchinterval(1e-6)
            def work():
                begin()
                for _ in range(3000):
                    t_free(t_alloc(3 * MIB, 0, None), 3 * MIB, 0, None)
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            is_((len(trace()), replayed(trace())), (36000, []))
            assert len({entry["addr"] for entry in trace()}) < 100
        """)

    def test_a_program_may_end_while_threads_allocate(self):
        self.run_lines("""
            record()
            def work():
                begin()
                while True:
                    t_free(t_alloc(256, 0, None), 256, 0, None)
            for _ in range(3):
                threading.Thread(target=work, daemon=True).start()
            while len(trace()) < 1000:
                pass
        """)


class Observers(Case):
    def test_they_are_called_before_the_error(self):
        self.run_lines("""
            seen = []
            own._cuda_attach_out_of_memory_observer(lambda *told: seen.append(told))
            own._cuda_attach_out_of_memory_observer(lambda *told: seen.append((*told, library.lib.weir_detail())))
            a = t_alloc(16 * MIB, 0, None)
            is_(seen, [])
            is_(t_alloc(65 * MIB, 0, None), None)
            is_(seen[0], (0, 65 * MIB, 64 * MIB, 48 * MIB))
            is_(seen[1][:4], seen[0])
            is_((len(seen), own._cuda_memoryStats(0)["num_ooms"]), (2, 1))
            t_free(a, 16 * MIB, 0, None)
        """)

    def test_what_an_observer_does_and_raises_leaves_the_error_as_it_is(self):
        self.run_lines("""
            held, printed = [t_alloc(60 * MIB, 0, None)], []
            sys.unraisablehook = lambda told: printed.append(told.exc_value)
            def first(*told):
                t_free(held.pop(), 60 * MIB, 0, None)
                own._cuda_memorySnapshot()
                raise ValueError("of the observer")
            later = []
            own._cuda_attach_out_of_memory_observer(first)
            own._cuda_attach_out_of_memory_observer(lambda *told: later.append(told))
            is_(t_alloc(10 * MIB, 0, None), None)
            is_((len(printed), type(printed[0]), len(later)), (1, ValueError, 1))
            try:
                own._cuda_attach_out_of_memory_observer(5)
                raise AssertionError("5 was taken")
            except TypeError:
                pass
        """)


@unittest.skipUnless(PYTORCH, "not here: PyTorch, whose _memory_viz would open the snapshot")
class Tools(Case):
    """torch.cuda._memory_viz."""

    def test_pytorch_dumps_what_its_tools_open(self):
        out = self.run_lines("""
            import base64, re, subprocess, tempfile
            from torch.cuda import _memory_viz as viz
            torch.cuda.memory._record_memory_history(max_entries=1000, stacks="python")
            one = make_stream()
            def model(i):
                return t_alloc(1000 * i + 1, 0, one)
            blocks = [model(i) for i in range(1, 30)]
            for i in range(1, 20):
                t_free(blocks[i - 1], 1000 * i + 1, 0, one)
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "snapshot.pickle")
                torch.cuda.memory._dump_snapshot(path)
                with open(path, "rb") as file:
                    snapshot = pickle.load(file)
                text = subprocess.run([sys.executable, viz.__file__, "trace", path], stdout=subprocess.PIPE, text=True, check=True).stdout
                subprocess.run([sys.executable, viz.__file__, "trace_plot", "-f", path, "-o", path + ".html"], check=True)
                with open(path + ".html") as file:
                    assert "snapshot.pickle" in file.read()
            is_(len(snapshot["device_traces"][0]), 29 + 2 * 19)
            is_(replayed(snapshot["device_traces"][0]), pytorchs(snapshot))
            is_((text.count(" = seg_") + text.count(" = MEM["), text.count("free completed")), (29, 19))
            inside = re.search(r'"base64": "([^"]+)"', viz.trace_plot(snapshot)).group(1)
            is_(pickle.loads(base64.b64decode(inside)), snapshot)
            assert "Allocator State History" in viz.segment_plot(snapshot)
            live = sum(1000 * i + 1 for i in range(20, 30))
            summed = viz.segsum(snapshot)
            assert f"total_allocated: {viz.Bytes(live)}" in summed, summed
            lines = [line for line in viz.memory(snapshot, format_flamegraph=lambda text: text).splitlines() if ":model" in line]
            is_(sum(int(line.split()[-1]) for line in lines), live)
            assert all(":torch;" in line and "<module>" in line for line in lines), lines
            assert ":model" in viz.segments(snapshot, format_flamegraph=lambda text: text)
            is_(torch.cuda.memory_snapshot(include_traces=False)[0]["device"], 0)
            torch.cuda.memory._record_memory_history(None)
            is_(torch.cuda.memory._snapshot()["device_traces"][0], [])
            torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=5, trace_alloc_record_context=True)
            blocks = [model(i) for i in range(1, 30)]
            is_([functions(entry)[0] for entry in torch.cuda.memory._snapshot()["device_traces"][0]], ["model"] * 5)
            print("opened")
        """, real=True)
        self.assertIn("opened", out)

    def test_the_compiler_still_knows_pytorchs_functions(self):
        self.run_lines("""
            import torch._dynamo
            known = torch._dynamo.trace_rules.get_torch_obj_rule_map()
            assert own._cuda_isHistoryEnabled in known and own._cuda_record_memory_history in known
            record()
            compiled = torch.compile(lambda value: value * 2 + 1, backend="eager")
            is_(compiled(torch.ones(3)).tolist(), [3, 3, 3])
        """, real=True)

    def test_the_tools_tell_a_refusal_and_a_block_of_another_client(self):
        self.run_lines(f"""
            import importlib.util
            spec = importlib.util.spec_from_file_location("viz", {TOOLS!r})
            viz = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(viz)
            record()
            with used.client(0).runtime.client("neighbour") as client:
                block = client.alloc(8 * MIB)
                is_(t_alloc(65 * MIB, 0, None), None)
                snapshot = own._cuda_memorySnapshot(None)
                block.close()
            own._cuda_memorySnapshot(None)
            assert "raise OutOfMemoryError # 65.0MiB requested, 56.0MiB free in CUDA" in viz.trace(snapshot), viz.trace(snapshot)
            assert "'snapshot'" in viz.trace(own._cuda_memorySnapshot(None))
            lines = viz.memory(snapshot, format_flamegraph=lambda text: text).splitlines()
            assert any(":neighbour" in line and line.endswith(f" {{8 * MIB}}") for line in lines), lines
            assert viz.segsum(snapshot) and viz.trace_plot(snapshot, plot_segments=True)
        """)


if __name__ == "__main__":
    unittest.main()
