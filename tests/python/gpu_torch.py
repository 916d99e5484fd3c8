"""weir.torch with PyTorch on a GPU: all of PyTorch's memory from weir."""

import gc
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

from gpu import MIB, SOURCE, main, needed
from pages import snippets

needed("torch")

import torch  # noqa: E402 pylint: disable=wrong-import-position
import weir  # noqa: E402 pylint: disable=wrong-import-position
import weir.torch  # noqa: E402 pylint: disable=wrong-import-position

BUDGET = 2048 * MIB
used = weir.torch.use(budget=BUDGET)
float((torch.rand(64, 64, device="cuda") @ torch.rand(64, 64, device="cuda")).sum())  # what libraries allocate once
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    torch.rand(1, device="cuda")


def busy(tensor, rounds=200):
    """Work that takes the device a while, on the current stream."""
    for _ in range(rounds):
        tensor.add_(1)


class Case(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch.cuda.synchronize()
        self.before = torch.cuda.memory_allocated()

    def tearDown(self):
        gc.collect()
        torch.cuda.synchronize()
        self.assertLessEqual(torch.cuda.memory_allocated(), self.before)


class Memory(Case):
    def test_everything_is_found_in_this_pytorch(self):
        self.assertTrue(used.complete)
        self.assertEqual("pluggable", torch.cuda.get_allocator_backend())

    def test_figures_are_the_ledgers(self):
        x = torch.empty(MIB + 1, dtype=torch.uint8, device="cuda")
        self.assertEqual(MIB + 256, torch.cuda.memory_allocated() - self.before)
        self.assertEqual(torch.cuda.memory_allocated(), used.client().stats().live)
        self.assertGreaterEqual(torch.cuda.memory_reserved(), torch.cuda.memory_allocated())
        stats = torch.cuda.memory_stats()
        for metric in ("current", "allocated", "freed"):
            self.assertEqual(stats[f"allocation.all.{metric}"],
                             stats[f"allocation.small_pool.{metric}"] + stats[f"allocation.large_pool.{metric}"])
        del x
        self.assertIn("Allocated memory", torch.cuda.memory_summary())

    def test_peaks_start_again(self):
        x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        del x
        self.assertGreaterEqual(torch.cuda.max_memory_allocated(), self.before + 64 * MIB)
        torch.cuda.reset_peak_memory_stats()
        self.assertEqual(torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())

    def test_the_accelerators_answers_are_cudas(self):
        x = torch.empty(MIB, dtype=torch.uint8, device="cuda")
        is_ = torch.accelerator
        self.assertEqual((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()), (is_.memory_allocated(), is_.memory_reserved()))
        self.assertEqual(torch.cuda.memory_stats(), is_.memory_stats())
        del x
        is_.reset_peak_memory_stats()
        self.assertEqual(torch.cuda.memory_allocated(), is_.max_memory_allocated())
        is_.reset_accumulated_memory_stats()
        self.assertEqual(0, torch.cuda.memory_stats()["allocation.all.allocated"])
        is_.empty_cache()
        if hasattr(is_, "get_memory_info"):
            self.assertEqual(BUDGET, is_.get_memory_info()[1])

    def test_mem_get_info_is_the_budget(self):
        free, total = torch.cuda.mem_get_info()
        self.assertEqual(BUDGET, total)
        x = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(free - 256 * MIB, torch.cuda.mem_get_info()[0])
        del x

    def test_a_refusal_says_why_and_loses_nothing(self):
        with self.assertRaises(torch.cuda.OutOfMemoryError) as caught:
            torch.empty(BUDGET + 1, dtype=torch.uint8, device="cuda")
        self.assertIn("CUDA out of memory", str(caught.exception))
        self.assertIn("torch asked for", str(caught.exception))
        self.assertGreater(torch.cuda.memory_stats()["num_ooms"], 0)
        x = torch.empty(BUDGET // 2, dtype=torch.uint8, device="cuda")
        del x

    def test_empty_cache_gives_back(self):
        x = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        del x
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertLess(torch.cuda.memory_reserved(), 512 * MIB)

    def test_the_fraction_is_of_the_device(self):
        fraction = BUDGET / 4 / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(fraction)
        self.addCleanup(torch.cuda.set_per_process_memory_fraction, 1.0)
        self.assertEqual(fraction, torch.cuda.get_per_process_memory_fraction())
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            torch.empty(BUDGET // 2, dtype=torch.uint8, device="cuda")

    def test_a_refusal_begins_as_pytorchs(self):
        with self.assertRaisesRegex(torch.cuda.OutOfMemoryError, r"Tried to allocate 1024.00 GiB. GPU 0 has a total capacity of \S+ GiB of which"):
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        with self.assertRaisesRegex(torch.cuda.OutOfMemoryError, "Tried to allocate more than 1EB memory"):
            torch.empty(1 << 61, dtype=torch.uint8, device="cuda")

    def test_without_a_cache_freed_memory_is_the_drivers(self):
        torch.cuda.caching_allocator_enable(False)
        self.addCleanup(torch.cuda.caching_allocator_enable, True)
        before, held = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        x = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(before, torch.cuda.memory_allocated())
        torch.cuda.synchronize()
        del x
        self.assertLessEqual(torch.cuda.memory_reserved(), held)

    def test_a_pool_of_the_programs_is_nobody_elses(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.full((8 * MIB,), 7, dtype=torch.uint8, device="cuda")
        at = x.data_ptr()
        self.assertEqual([at], [block["address"] for each in pool.snapshot() for block in each["blocks"]])
        del x
        torch.cuda.synchronize()
        others = [torch.empty(8 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
        self.assertNotIn(at, [each.data_ptr() for each in others])
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
            self.assertEqual(at, x.data_ptr())
        self.assertEqual(1, pool.use_count())
        del x, others, pool
        with self.assertRaisesRegex(weir.Unsupported, "allocator"):
            torch.cuda.MemPool(allocator=object())

    def test_the_profiler_and_the_trace_are_told(self):
        with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        self.assertEqual(3 * MIB, sum(event.device_memory_usage for event in profile.events() if event.name == "aten::empty"))
        from torch.cuda import _gpu_trace
        made, gone = [], []
        torch._C._activate_gpu_trace()
        _gpu_trace.register_callback_for_memory_allocation(made.append)
        _gpu_trace.register_callback_for_memory_deallocation(gone.append)
        self.addCleanup(_gpu_trace.MemoryAllocationCallbacks.callback_list.clear)
        self.addCleanup(_gpu_trace.MemoryDeallocationCallbacks.callback_list.clear)
        y = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        at = y.data_ptr()
        del x, y
        self.assertEqual([at], made)
        self.assertIn(at, gone)

    def test_the_snapshot_adds_up(self):
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        segments = torch.cuda.memory_snapshot()
        self.assertEqual(sum(each["allocated_size"] for each in segments), used.client().stats().live)
        for segment in segments:
            self.assertEqual(segment["total_size"], sum(block["size"] for block in segment["blocks"]))
        self.assertEqual([], torch.cuda.memory_snapshot((7, 7)))
        self.assertIn(x.data_ptr(), [block["address"] for each in torch.cuda.memory_snapshot((0, 0)) for block in each["blocks"]])
        del x

    def test_cudnn_looks_for_the_best_convolution(self):
        torch.backends.cudnn.benchmark = True
        self.addCleanup(setattr, torch.backends.cudnn, "benchmark", False)
        net, x = torch.nn.Conv2d(16, 32, 3).cuda(), torch.rand(4, 16, 64, 64, device="cuda")
        wanted = torch.nn.functional.conv2d(x.cpu(), net.weight.detach().cpu(), net.bias.detach().cpu())
        self.assertTrue(torch.allclose(wanted, net(x).detach().cpu(), atol=1e-2))
        del net, x

    def test_another_engine_is_in_the_same_budget(self):
        with used.client().runtime.client("neighbour") as client:
            block = client.alloc(BUDGET - 256 * MIB)
            with self.assertRaises(torch.cuda.OutOfMemoryError) as caught:
                torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
            self.assertIn("neighbour", str(caught.exception))
            block.close()
        x = torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
        del x


class History(Case):
    """_record_memory_history, the traces in snapshots, and observers of refusals; test_torch_history.py has more, without a GPU."""

    def setUp(self):
        super().setUp()
        torch.cuda.memory._record_memory_history(max_entries=10000)
        self.addCleanup(torch.cuda.memory._record_memory_history, None)

    def trace(self):
        return [entry for entry in torch.cuda.memory._snapshot()["device_traces"][0] if entry["action"] != "snapshot"]

    def replayed(self, entries):
        """{address: bytes} of what was allocated in these events and is live; each free has its allocation."""
        live, freeing = {}, {}
        for entry in entries:
            if entry["action"] == "alloc":
                self.assertFalse(entry["addr"] in live or entry["addr"] in freeing, entry)
                live[entry["addr"]] = entry["size"]
            elif entry["action"] == "free_requested":
                freeing[entry["addr"]] = live.pop(entry["addr"], entry["size"])
                self.assertEqual(entry["size"], freeing[entry["addr"]])
            elif entry["action"] == "free_completed":
                self.assertEqual(entry["size"], freeing.pop(entry["addr"]))
        self.assertEqual({}, freeing)
        return live

    def live(self):
        """The same of all live blocks, by the segments of a snapshot."""
        return {block["address"]: block["requested_size"] for segment in torch.cuda.memory._snapshot()["segments"]
                for block in segment["blocks"] if block["state"] == "active_allocated"}

    def test_a_training_step_is_told_and_adds_up(self):
        before = self.live()
        net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda()
        step = torch.optim.Adam(net.parameters())
        side = torch.cuda.Stream()
        for _ in range(3):
            x = torch.rand(32, 64, device="cuda")
            net(x).square().mean().backward()  # on a thread of the autograd engine
            step.step()
            step.zero_grad()
            with torch.cuda.stream(side):
                y = torch.rand(MIB, device="cuda")
            y.record_stream(torch.cuda.current_stream())
            del y
        torch.cuda.synchronize()
        entries, now = self.trace(), self.live()
        self.assertTrue(torch._C._cuda_isHistoryEnabled())
        mine = self.replayed(entries)
        self.assertEqual({at: size for at, size in now.items() if before.get(at) != size or at in mine}, mine)
        self.assertIn(net[0].weight.data_ptr(), mine)
        self.assertIn(side.cuda_stream, {entry["stream"] for entry in entries})
        last = [entry for entry in entries if entry["addr"] == x.data_ptr() and entry["action"] == "alloc"][-1]
        names = [frame["name"] for frame in last["frames"]]
        inner = names[:names.index("test_a_training_step_is_told_and_adds_up")]
        self.assertTrue(any(name.startswith("at::_ops::") for name in inner), names)
        self.assertEqual(sorted(entry["time_us"] for entry in entries), [entry["time_us"] for entry in entries])
        del net, step, x
        torch._C._cuda_clearCublasWorkspaces()

    def test_threads_that_allocate_without_the_interpreters_lock(self):
        def work():
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(100):
                    x = torch.rand(256, 256, device="cuda", requires_grad=True)
                    (x @ x).sum().backward()
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            torch.cuda.memory._snapshot()
        for thread in threads:
            thread.join(300)
            self.assertFalse(thread.is_alive())
        torch._C._cuda_clearCublasWorkspaces()

    def test_a_graph_is_captured_and_its_pool_has_events(self):
        x, graph = torch.ones(MIB, device="cuda"), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = (x * 2 + 1) * 3
        graph.replay()
        self.assertEqual(float(y.sum()), 9 * MIB)
        pool = tuple(graph.pool())
        self.assertIn(("alloc", y.data_ptr()), [(entry["action"], entry["addr"]) for entry in self.trace() if entry["pool_id"] == pool])
        self.assertNotIn(x.data_ptr(), [entry["addr"] for entry in self.trace() if entry["pool_id"] == pool])
        del y, graph, x

    def test_a_refusal_is_an_event_and_observed_before_the_error(self):
        seen = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *told: seen.append((told, torch.cuda.memory._snapshot())))
        with self.assertRaises(torch.cuda.OutOfMemoryError) as caught:
            torch.empty(BUDGET + 1, dtype=torch.uint8, device="cuda")
        (device, size, total, left), snapshot = seen[0]
        self.assertEqual((1, 0, BUDGET + 1, BUDGET), (len(seen), device, size, total))
        self.assertLessEqual(left, BUDGET - torch.cuda.memory_allocated())
        self.assertIn("torch asked for", str(caught.exception))  # whatever the observer asked weir for
        entry = snapshot["device_traces"][0][-1]
        self.assertEqual(("oom", BUDGET + 1, left), (entry["action"], entry["size"], entry["device_free"]))

    def test_pytorchs_tools_open_a_dump(self):
        from torch.cuda import _memory_viz as viz  # pylint: disable=import-outside-toplevel
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "snapshot.pickle")
            torch.cuda.memory._dump_snapshot(path)
            with open(path, "rb") as file:
                snapshot = pickle.load(file)
        self.assertIn("3.0MiB]", viz.trace(snapshot))
        self.assertIn("total_reserved", viz.segsum(snapshot))
        self.assertIn("snapshot.pickle", viz.trace_plot(snapshot) + viz.segment_plot(snapshot))
        lines = viz.memory(snapshot, format_flamegraph=lambda text: text).splitlines()
        self.assertTrue(any(line.endswith(f"test_pytorchs_tools_open_a_dump {3 * MIB}") for line in lines), lines)
        del x

    def test_it_ends(self):
        x = torch.empty(MIB, dtype=torch.uint8, device="cuda")
        torch.cuda.memory._record_memory_history(None)
        self.assertEqual([], self.trace())
        self.assertFalse(torch._C._cuda_isHistoryEnabled())
        del x


class Streams(Case):
    def test_record_stream_keeps_what_another_stream_reads(self):
        side, differ = torch.cuda.Stream(), 0
        for i in range(50):
            x = torch.full((4 * MIB,), i, dtype=torch.uint8, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(200000)
                y = x + 0
            x.record_stream(side)
            del x
            z = torch.full((4 * MIB,), 255, dtype=torch.uint8, device="cuda")
            side.synchronize()
            differ += int((y != i).sum())
            del y, z
        self.assertEqual(0, differ)

    def test_threads_and_streams(self):
        wrong = []

        def work(number):
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(100):
                    x = torch.full((MIB,), number * 100 + i, dtype=torch.int32, device="cuda")
                    if int(x.sum()) != (number * 100 + i) * MIB:
                        wrong.append(i)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([], wrong)


class Graphs(Case):
    def test_a_graph_has_memory_of_its_own(self):
        x = torch.ones(MIB, device="cuda")
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = (x * 2 + 1) * 3
        blocks = [torch.full((MIB,), -1.0, device="cuda") for _ in range(40)]
        for value in (1, 5):
            x.fill_(value)
            graph.replay()
            self.assertEqual(float(y.sum()), (value * 2 + 1) * 3 * MIB)
        self.assertTrue(all(float(block.sum()) == -MIB for block in blocks))
        del y, graph, blocks, x

    def test_streams_that_join_a_capture(self):
        x, side = torch.ones(MIB, device="cuda"), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                a = x * 3
                a.record_stream(torch.cuda.current_stream())
                b = a + 1
                del a
            torch.cuda.current_stream().wait_stream(side)
            y = b * 2
            del b
        for value in (2, 7):
            x.fill_(value)
            graph.replay()
            self.assertEqual(float(y.sum()), (value * 3 + 1) * 2 * MIB)
        del y, graph, x

    def test_graphs_share_a_pool(self):
        x, first, second = torch.ones(MIB, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(first):
            y = (x + 1) * 2
        with torch.cuda.graph(second, pool=first.pool()):
            z = (y + 1) * 2
        first.replay()
        second.replay()
        self.assertEqual(float(z.sum()), 10 * MIB)
        del y, z, first, second, x

    def test_an_exception_in_a_capture_loses_nothing(self):
        x = torch.ones(MIB, device="cuda")
        torch.cuda.synchronize()
        with self.assertRaises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
            y = x * 2
            raise RuntimeError("of the program's")
        y = x * 2
        self.assertEqual(float(y.sum()), 2 * MIB)
        del x, y

    def test_compiled_functions_run_in_graph_trees(self):
        torch._dynamo.reset()
        net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).cuda()
        compiled = torch.compile(net, mode="reduce-overhead")
        with torch.no_grad():
            for size in (8, 8, 16, 8, 16, 8):
                x = torch.rand(size, 64, device="cuda")
                torch.compiler.cudagraph_mark_step_begin()
                self.assertTrue(torch.allclose(compiled(x).clone(), net(x), atol=1e-2))
                del x
            a = torch.compile(lambda v: v * 2 + 1, mode="reduce-overhead")
            b = torch.compile(lambda v: v.sin() * 3, mode="reduce-overhead")
            for i in range(6):
                torch.compiler.cudagraph_mark_step_begin()
                x = torch.full((1024,), float(i), device="cuda")
                y = b(a(x)) if i % 2 else a(b(x))
                wanted = (x * 2 + 1).sin() * 3 if i % 2 else x.sin() * 3 * 2 + 1
                self.assertTrue(torch.allclose(y, wanted, atol=1e-4))
                del x, y, wanted
        del compiled, net, a, b
        torch._dynamo.reset()
        self.before = torch.cuda.memory_allocated()  # of caches of the compiler's


class StepsAside(Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(3)
        self.module = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, device="cuda") for _ in range(8))).requires_grad_(False)
        self.input = torch.randn(32, 2048, device="cuda")
        self.streams = [torch.cuda.current_stream()]

    def tearDown(self):
        del self.module, self.input
        torch._C._cuda_clearCublasWorkspaces()  # of a capture's stream, which PyTorch keeps
        super().tearDown()

    def test_a_module_answers_as_before(self):
        first, most = self.module(self.input).cpu(), 8 * 2048 * 2048 * 4
        for turn in range(100):
            unwritten = [weir.Class.ACTIVATIONS] if turn % 2 else []
            left = weir.torch.suspend(**({"streams": self.streams} if turn % 3 else {}), unwritten=unwritten)
            self.assertGreater(left[0].away, most // 2)
            self.assertEqual(left[0].away, used.client().stats().away)
            weir.torch.resume()
            if not turn % 2:  # the copy is good until somebody writes
                weir.torch.suspend(streams=self.streams, unwritten=[weir.Class.ACTIVATIONS])
                weir.torch.resume()
            self.assertTrue(torch.equal(first, self.module(self.input).cpu()), turn)

    def test_what_was_written_since_comes_back(self):
        weights = [layer.weight.data for layer in self.module]
        for turn in range(20):
            for weight in weights:
                weight.add_(turn)
            sums = [weight.double().sum().item() for weight in weights]
            weir.torch.suspend(streams=self.streams)
            weir.torch.resume()
            self.assertEqual(sums, [weight.double().sum().item() for weight in weights])

    def test_a_captured_graph_is_replayed_after_a_return(self):
        self.module(self.input)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.module(self.input)
        graph.replay()
        first = out.cpu()
        for _ in range(10):
            self.assertGreater(weir.torch.suspend(streams=self.streams)[0].away, 64 * MIB)
            weir.torch.resume()
            out.zero_()
            graph.replay()
            self.assertTrue(torch.equal(first, out.cpu()))
        del graph, out

    def test_the_work_of_other_streams_runs_on(self):
        weir.torch.suspend(streams=self.streams)  # what is made once is made
        weir.torch.resume()
        other = torch.cuda.Stream()
        with torch.cuda.stream(other):
            torch.cuda._sleep(1 << 32)  # two seconds or more, in no memory
        weir.torch.suspend(streams=self.streams, unwritten=[weir.Class.ACTIVATIONS])
        weir.torch.resume()
        self.assertFalse(other.query())
        other.synchronize()

    def test_a_suspend_in_a_capture_is_refused_and_the_capture_goes_on(self):
        graph, said = torch.cuda.CUDAGraph(), None
        with torch.cuda.graph(graph):
            out = self.input + 1
            try:
                weir.torch.suspend(streams=[torch.cuda.current_stream()])
            except weir.Error as error:
                said = error
        self.assertIsInstance(said, weir.StreamMisuse)
        graph.replay()
        self.assertTrue(torch.equal(self.input + 1, out))
        self.assertEqual(0, used.client().stats().away)
        del graph, out


class Hostile(unittest.TestCase):
    def child(self, lines, status=0):
        done = subprocess.run([sys.executable, "-B", "-c", lines], capture_output=True, text=True, timeout=1000,
                              env={**os.environ, "PYTHONPATH": str(SOURCE / "python")})
        self.assertEqual(status, done.returncode, done.stderr[-1500:])
        return done.stdout

    def test_the_pages_snippets_run_as_they_are_printed(self):
        told = [self.child(text).split() for _, text in snippets("torch.md", "torch")]
        self.assertEqual([["True", "4096", "4096"], ["True"], ["True", "1048576.0"]], told)

    def test_use_is_too_late_after_the_first_tensor(self):
        self.assertIn("first tensor", self.child("""
import torch, weir, weir.torch
torch.zeros(1, device="cuda")
try:
    weir.torch.use()
except weir.Conflict as error:
    print(error)"""))

    def test_use_is_for_once(self):
        with self.assertRaises(weir.Conflict):
            weir.torch.use()

    def test_a_pool_is_in_a_client(self):
        self.assertIn("passed", self.child("""
import gc, torch, weir, weir.torch
runtime = weir.Runtime("cuda:0", budget="1GiB")
client = runtime.client("part")
with weir.torch.pool(client):
    x = torch.ones(32 << 20, dtype=torch.uint8, device="cuda")
y = torch.ones(32 << 20, dtype=torch.uint8, device="cuda")
assert client.stats().live >= 32 << 20 and client.stats().live < 64 << 20, client.stats()
assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == 64 << 20
with weir.torch.pool(client):
    try:
        torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
        raise AssertionError("it had room")
    except torch.cuda.OutOfMemoryError:
        pass
del x
gc.collect()
torch.cuda.synchronize()
torch.cuda.empty_cache()
print("passed", client.stats().live)"""))

    def test_workers_of_a_data_loader(self):
        self.assertIn("passed 28", self.child("""
import torch, weir.torch
weir.torch.use(budget="512MiB")
x = torch.ones(1, device="cuda")
total = 0
for batch in torch.utils.data.DataLoader(range(8), num_workers=2, pin_memory=True):
    total += int(batch.cuda().sum())
print("passed", total)"""))


class Misuse(Case):
    """What programs do wrong, or end up in: each goes on afterwards, and nothing stays behind."""

    def settle(self, before):
        gc.collect()
        torch.cuda.synchronize()
        self.assertEqual(before, used.client().stats().live)

    def test_a_thread_that_is_gone_leaves_tensors(self):
        before, left, streams = used.client().stats().live, [], []

        def work(number):
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                tensor = torch.full((MIB,), number, dtype=torch.int32, device="cuda")
                tensor.record_stream(torch.cuda.default_stream())
                busy(tensor)
                left.append(tensor)
            streams.append(stream)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
        self.assertEqual({200, 201, 202, 203}, {int(tensor[-1]) for tensor in left})
        del stream
        streams.clear()
        left.clear()
        self.settle(before)
        x = torch.empty(BUDGET - before - 64 * MIB, dtype=torch.uint8, device="cuda")
        del x

    def test_memory_runs_out_within_a_backward(self):
        def loss(size):
            x = torch.rand(size // 4, device="cuda", requires_grad=True)
            return (torch.sin(x) * torch.exp(x)).sum(), x
        small = loss(MIB)
        small[0].backward()
        del small
        before = used.client().stats().live
        for _ in range(3):
            total, x = loss(64 * MIB)
            with used.client().runtime.client("neighbour") as client:
                block = client.alloc(BUDGET - used.client().runtime.stats().live - 32 * MIB)
                with self.assertRaises(torch.cuda.OutOfMemoryError) as caught:
                    total.backward()
                self.assertIn("neighbour", str(caught.exception))
                del caught
                block.close()
            self.assertIsNone(x.grad)
            del total, x
            self.settle(before)
            total, x = loss(16 * MIB)
            total.backward()
            self.assertTrue(torch.isfinite(x.grad).all().item())
            del total, x
            self.settle(before)

    def test_captures_fail_again_and_again(self):
        x = torch.ones(MIB, device="cuda")
        torch.cuda.synchronize()
        before = used.client().stats().live
        for _ in range(3):
            kept = []
            with self.assertRaises(ZeroDivisionError), torch.cuda.graph(torch.cuda.CUDAGraph()):
                kept.append(x * 2)
                y = torch.empty(64 * MIB, device="cuda")  # a pool of 256 MiB
                raise ZeroDivisionError
            kept.clear()
            y = None
            self.settle(before)
        torch.cuda.empty_cache()
        large = torch.empty(BUDGET - before - 64 * MIB, dtype=torch.uint8, device="cuda")
        del large
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            y = x * 3
        graph.replay()
        self.assertEqual(float(y.sum()), 3 * MIB)
        del x, y, graph

    def test_empty_tensors(self):
        before = used.client().stats().live
        x = torch.empty(0, device="cuda")
        y = torch.empty((3, 0, 5), dtype=torch.float16, device="cuda")
        self.assertEqual((0, 0), (x.data_ptr(), y.data_ptr()))
        self.assertEqual(before, used.client().stats().live)
        z = torch.cat([x, torch.ones(5, device="cuda"), x])
        x.record_stream(torch.cuda.Stream())
        self.assertEqual((5.0, 0.0), (float(z.sum()), float(x.sum())))
        self.assertEqual((3, 0, 5), tuple((y + 1).shape))
        x.resize_(4).fill_(2)
        self.assertEqual(8.0, float(x.sum()))
        del x, y, z
        self.settle(before)

    def test_mapped_memory_is_not_sent(self):
        before = used.client().stats().live
        x = torch.arange(1000, device="cuda")
        for _ in range(3):
            with self.assertRaises(weir.Unsupported) as caught:
                ForkingPickler.dumps(x)
            for word in ("8000 bytes on cuda:0", "tensor.cpu()", 'resource="segments"'):
                self.assertIn(word, str(caught.exception))
            del caught
        self.assertEqual(499500, int(x.sum()))
        self.assertGreater(len(ForkingPickler.dumps(torch.empty(0, device="cuda"))), 0)
        self.assertGreater(len(ForkingPickler.dumps(x.cpu())), 0)
        torch.cuda.ipc_collect()
        del x
        self.settle(before)


class Programs(unittest.TestCase):
    """Each test is a program of its own, in a file, as processes that are spawned begin with it."""

    @staticmethod
    def run_program(lines, *words):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "program.py"
            path.write_text(PEER + textwrap.dedent(lines), encoding="utf-8")
            return subprocess.run([sys.executable, "-B", str(path), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=300, check=False, env={**os.environ, "PYTHONPATH": str(SOURCE / "python")})

    def program(self, lines, *words):
        done = self.run_program(lines, *words)
        self.assertEqual(0, done.returncode, done.stdout[-3000:])
        self.assertIn("passed", done.stdout)


class Processes(Programs):
    """Tensors that processes share."""

    @classmethod
    def setUpClass(cls):
        done = cls.run_program("""
            if __name__ == "__main__":
                with Other("plain") as other:
                    other.ask("add", torch.full((1000,), 5, dtype=torch.uint8, device="cuda"))
        """)
        if done.returncode:
            raise unittest.SkipTest(f"PyTorch without weir cannot share tensors here: {done.stdout[-300:]}")

    def test_bytes_are_right_in_the_other_process_and_written_ones_come_back(self):
        for receiver in ("plain", "segments", "mapped"):
            with self.subTest(receiver):
                self.program("""
                    if __name__ == "__main__":
                        used = weir.torch.use(budget="1GiB", resource="segments")
                        with Other(sys.argv[1]) as other:
                            before = used.client().stats().live
                            sizes = (1, 300, 5000, MIB, 5 * MIB, 50 * MIB)
                            tensors = [torch.full((size,), 1 + i, dtype=torch.uint8, device="cuda") for i, size in enumerate(sizes)]
                            tensors += [torch.full((64, 64), 7, dtype=torch.uint8, device="cuda")[8:40, 16:], tensors[4][MIB:2 * MIB],
                                        torch.nn.Parameter(torch.full((1000,), 9.0, device="cuda")), torch.empty(0, device="cuda")]
                            for tensor in tensors:
                                other.ask("add", tensor.detach())
                            torch.cuda.synchronize()
                            assert [int(tensor.flatten()[-1]) for tensor in tensors[:7]] == [2, 3, 4, 5, 6, 7, 8]
                            assert (int(tensors[4][MIB - 1]), int(tensors[4][MIB]), float(tensors[8][-1])) == (6, 7, 10)  # part of it twice
                            del tensors, tensor
                            other.ask("forget")
                            other.settles(used, before)
                        print("passed")
                """, receiver)

    def test_a_block_stays_until_the_other_process_has_let_it_go(self):
        for receiver in ("plain", "mapped"):
            with self.subTest(receiver):
                self.program("""
                    if __name__ == "__main__":
                        used = weir.torch.use(budget="1GiB", resource="segments")
                        with Other(sys.argv[1]) as other:
                            before = used.client().stats().live
                            x = torch.full((300 * MIB,), 5, dtype=torch.uint8, device="cuda")
                            side = torch.cuda.Stream()
                            x.record_stream(side)
                            other.ask("keep", x)
                            del x
                            gc.collect()
                            torch.cuda.synchronize(), torch.cuda.empty_cache(), torch.cuda.ipc_collect()
                            assert used.client().stats().live - before == 300 * MIB, used.client().stats()
                            for _ in range(3):
                                others = [torch.full((100 * MIB,), 255, dtype=torch.uint8, device="cuda") for _ in range(6)]
                                del others
                            assert other.ask("sum") == 5 * 300 * MIB
                            try:
                                torch.empty(800 * MIB, dtype=torch.uint8, device="cuda")
                                raise AssertionError("it had room")
                            except torch.cuda.OutOfMemoryError:
                                pass
                            other.ask("forget")
                            y = torch.empty(900 * MIB, dtype=torch.uint8, device="cuda")  # what was let go is freed for it
                            del y
                            other.settles(used, before)
                        print("passed")
                """, receiver)

    def test_a_pool_of_single_allocations_is_shared_by_pytorch_itself(self):
        self.program("""
            if __name__ == "__main__":
                client = weir.Runtime("cuda:0", budget="1GiB", resource="direct").client("part")
                with Other("plain") as other:
                    with weir.torch.pool(client):
                        tensors = [torch.full((size,), 5, dtype=torch.uint8, device="cuda") for size in (300, 3 * MIB, 50 * MIB)]
                    assert client.stats().live > 50 * MIB
                    for tensor in tensors + [torch.full((1000,), 5, dtype=torch.uint8, device="cuda")]:
                        other.ask("add", tensor)
                    torch.cuda.synchronize()
                    assert [int(tensor[-1]) for tensor in tensors] == [6, 6, 6]
                    other.ask("forget")
                print("passed")
        """)

    def test_a_pool_of_parts_of_allocations_is_refused(self):
        self.program("""
            if __name__ == "__main__":
                client = weir.Runtime("cuda:0", budget="1GiB").client("part")
                with weir.torch.pool(client):
                    x = torch.ones(1000, device="cuda")
                try:
                    ForkingPickler.dumps(x)
                except weir.Unsupported as error:
                    assert 'resource="direct"' in str(error), error
                    print("passed", float(x.sum()))
        """)

    def test_the_imported_block_is_in_nobodys_account(self):
        self.program("""
            if __name__ == "__main__":
                weir.torch.use(budget="1GiB", resource="segments")
                with Other("mapped") as other:
                    before = other.ask("live")
                    x = torch.full((200 * MIB,), 5, dtype=torch.uint8, device="cuda")  # more than the other's budget
                    other.ask("keep", x)
                    assert other.ask("live") == before, other.ask("live")
                    assert other.ask("sum") == 5 * 200 * MIB
                    other.ask("forget")
                print("passed")
        """)

    def test_the_other_process_dies_with_the_tensor(self):
        self.program("""
            if __name__ == "__main__":
                used = weir.torch.use(budget="1GiB", resource="segments")
                x = torch.full((3 * MIB,), 5, dtype=torch.uint8, device="cuda")
                with Other("mapped") as other:
                    other.ask("keep", x)
                    other.kill()
                assert int(x[-1]) == 5
                with Other("mapped") as other:
                    other.ask("add", x)
                    torch.cuda.synchronize()
                    assert int(x[-1]) == 6
                    other.ask("forget")
                y = torch.full((500 * MIB,), 1, dtype=torch.uint8, device="cuda")
                assert int(y[-1]) == 1
                print("passed")
        """)


class Ends(Programs):
    """Forks, and a beginning that comes too late."""

    def test_a_forked_child_touches_the_device(self):
        self.program("""
            import os
            weir.torch.use(budget="1GiB")
            x = torch.full((MIB,), 5, dtype=torch.uint8, device="cuda")
            for what in (lambda: torch.zeros(1, device="cuda"), lambda: x.clone(), lambda: x.cpu(), lambda: torch.cuda.synchronize()):
                child = os.fork()
                if child == 0:
                    try:
                        what()
                        os._exit(3)
                    except (weir.Error, RuntimeError) as error:
                        print("child:", str(error)[:200], flush=True)
                    del x
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            assert int((x + torch.ones_like(x)).sum()) == 6 * MIB
            class Of(torch.utils.data.Dataset):
                def __len__(self):
                    return 8
                def __getitem__(self, i):
                    return torch.full((4,), float(i))
            loader = torch.utils.data.DataLoader(Of(), num_workers=2, pin_memory=True, multiprocessing_context="fork")
            total = sum(float(batch.cuda().sum()) for batch in loader)
            assert total == 4 * 28, total
            print("passed")
        """)

    def test_use_is_too_late_and_the_program_goes_on(self):
        self.program("""
            x = torch.full((MIB,), 5, dtype=torch.uint8, device="cuda")
            for _ in range(2):
                try:
                    weir.torch.use()
                    raise AssertionError("it was not too late")
                except weir.Conflict:
                    pass
            assert int((x + 1).sum()) == 6 * MIB
            assert torch.cuda.memory_allocated() >= MIB
            with weir.torch.pool(weir.Runtime("cuda:0", budget="1GiB").client("part")):
                y = torch.ones(MIB, device="cuda")
            assert float(y.sum()) == MIB
            print("passed")
        """)


# A program with another process, which does what it is asked for.
PEER = """
import gc, queue, sys, time
import torch, torch.multiprocessing as mp
import weir, weir.torch
from multiprocessing.reduction import ForkingPickler
MIB = 1 << 20


def live():
    return weir.torch._used.client().stats().live if weir.torch._used else 0


def serve(receiver, asked, answers):
    if receiver != "plain":
        weir.torch.use(budget="150MiB", resource=None if receiver == "mapped" else receiver)
    torch.zeros(1, device="cuda")
    kept = None
    while True:
        what, tensor = asked.get()
        answer = None
        if what == "add" and tensor.numel():
            first = tensor.flatten()[0].clone()
            assert bool((tensor == first).all()), "other bytes"
            tensor.add_(1)
        elif what == "keep":
            kept = tensor
        elif what == "sum":
            answer = sum(int(part.sum(dtype=torch.int64)) for part in kept.split(MIB))  # a copy of 8 bytes each is made of a part
        elif what == "forget":
            kept = None
        elif what == "live":
            answer = live()
        del tensor
        gc.collect()
        torch.cuda.synchronize()
        answers.put((what, answer))
        if what == "end":
            return


class Other:
    def __init__(self, receiver):
        context = mp.get_context("spawn")
        self.asked, self.answers = context.SimpleQueue(), context.Queue()
        self.process = context.Process(target=serve, args=(receiver, self.asked, self.answers))
        self.process.start()

    def ask(self, what, tensor=None):
        self.asked.put((what, tensor))
        while True:
            try:
                done, answer = self.answers.get(timeout=1)
                assert done == what
                return answer
            except queue.Empty:
                assert self.process.is_alive(), "the other process has ended"

    def settles(self, used, before):
        gc.collect()
        until = time.monotonic() + 30
        while used.client().stats().live != before and time.monotonic() < until:
            torch.cuda.ipc_collect(), torch.cuda.synchronize(), time.sleep(0.01)
        assert used.client().stats().live == before, (used.client().stats(), before)

    def kill(self):
        self.process.kill()
        self.process.join()
        self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process and not error[0]:
            self.ask("end")
            self.process.join(60)
        if self.process:
            self.process.kill()
"""


if __name__ == "__main__":
    main()
