"""PyTorch, CuPy, RMM and Numba in one process and one budget on a GPU: a program that prepares on RMM what a model computes that
torch.compile has put into graphs (what pytorch#163257 asks for), and what the ledger says of all of them. Numba where it is here."""

import contextlib
import gc
import importlib.util
import os
import subprocess
import sys
import threading
import unittest

from gpu import MIB, SOURCE, main, needed

needed("torch", "cupy", "rmm", "numpy")

import cupy  # noqa: E402 pylint: disable=wrong-import-position
import numpy  # noqa: E402 pylint: disable=wrong-import-position
import rmm  # noqa: E402 pylint: disable=wrong-import-position
import torch  # noqa: E402 pylint: disable=wrong-import-position
import weir  # noqa: E402 pylint: disable=wrong-import-position
import weir.cupy  # noqa: E402 pylint: disable=wrong-import-position
import weir.rmm  # noqa: E402 pylint: disable=wrong-import-position
import weir.torch  # noqa: E402 pylint: disable=wrong-import-position
from rmm.allocators.cupy import rmm_cupy_allocator  # noqa: E402 pylint: disable=wrong-import-position

NUMBA = importlib.util.find_spec("numba") is not None
BUDGET = 2048 * MIB
used = weir.torch.use(budget=BUDGET)
pool = weir.cupy.use()
resource = weir.rmm.use()
if NUMBA:
    import weir.numba  # pylint: disable=ungrouped-imports
    weir.numba.use()
runtime = weir.Runtime("cuda:0")
K = 16  # neighbours of a point


def settle():
    gc.collect()
    cupy.cuda.Device().synchronize()
    assert weir.cupy.seams.wseam_waiting() == 0, "frees wait for a capture that has ended"
    runtime.drain()


def accounts():
    """Live bytes by client. Together they are the runtime's: nothing is counted twice, and nothing of anybody's is left out."""
    stats = runtime.stats()
    live = {}
    for client in stats.clients:
        live[client.name] = live.get(client.name, 0) + client.live
    assert sum(live.values()) == stats.live, (live, stats.live)
    assert stats.live <= stats.budget == BUDGET
    return live


def more(before):
    """What clients have more than then; those with as much are left out."""
    return {name: live - before.get(name, 0) for name, live in accounts().items() if live != before.get(name, 0)}


def on_rmm():
    """Inside, the calling thread's arrays of CuPy's are RMM's, as cuML's are."""
    return cupy.cuda.using_allocator(rmm_cupy_allocator)


def points(seed, count=256):
    """Small whole numbers, so that their distances are exact."""
    return numpy.random.default_rng(seed).integers(0, 16, (count, 3)).astype(numpy.float32)


def nearest(array):
    """The squared distances to each point's nearest ones, on RMM."""
    with on_rmm():
        at = cupy.asarray(array)
        apart = at[:, None, :] - at[None, :, :]
        return cupy.ascontiguousarray(cupy.sort((apart * apart).sum(axis=2), axis=1)[:, :K])


def nearest_on_the_host(array):
    apart = array[:, None, :] - array[None, :, :]
    return numpy.sort((apart * apart).sum(axis=2), axis=1)[:, :K]


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(K, 64), torch.nn.GELU(), torch.nn.Linear(64, K)).cuda()


# What libraries allocate once, and keep.
nearest(points(0))
cupy.arange(16, dtype=cupy.float32).sum()
float((net()(torch.rand(4, K, device="cuda")) @ torch.rand(K, 4, device="cuda")).sum())


class Case(unittest.TestCase):
    def setUp(self):
        settle()
        self.before = accounts()


class Ledger(Case):
    def tearDown(self):
        settle()
        self.assertEqual({}, more(self.before))

    def test_each_framework_is_a_client_of_the_one_budget(self):
        free = torch.cuda.mem_get_info()[0]
        x, y = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda"), cupy.empty(16 * MIB, dtype=cupy.uint8)
        z = rmm.DeviceBuffer(size=8 * MIB)
        self.assertEqual({"torch": 32 * MIB, "cupy": 16 * MIB, "rmm": 8 * MIB}, more(self.before))
        now = accounts()
        self.assertEqual((torch.cuda.memory_allocated(), pool.used_bytes(), resource.client.stats().live),
                         (now["torch"], now["cupy"], now["rmm"]))
        self.assertEqual(((free - 56 * MIB), BUDGET), torch.cuda.mem_get_info())
        del x, y, z

    def test_what_is_passed_on_is_counted_once(self):
        y = cupy.arange(MIB, dtype=cupy.float32)
        with on_rmm():
            z = cupy.arange(MIB, dtype=cupy.float32)
        x = torch.arange(MIB, dtype=torch.float32, device="cuda")
        settle()
        counted = more(self.before)
        self.assertEqual({"torch": 4 * MIB, "cupy": 4 * MIB, "rmm": 4 * MIB}, counted)
        passed = [torch.from_dlpack(y), torch.from_dlpack(z), cupy.from_dlpack(x)]
        self.assertEqual(counted, more(self.before))
        self.assertEqual([y.data.ptr, z.data.ptr, x.data_ptr()], [passed[0].data_ptr(), passed[1].data_ptr(), passed[2].data.ptr])
        del x, y, z
        settle()
        self.assertEqual(counted, more(self.before))  # whoever has it now keeps it alive
        passed[0] += 1
        torch.cuda.synchronize()
        self.assertEqual(float(MIB), float(passed[0][-1]))
        del passed

    def test_a_refusal_names_the_others(self):
        z = rmm.DeviceBuffer(size=1200 * MIB)
        for refused, wrong in ((torch.cuda.OutOfMemoryError, lambda: torch.empty(1000 * MIB, dtype=torch.uint8, device="cuda")),
                               (cupy.cuda.memory.OutOfMemoryError, lambda: cupy.empty(1000 * MIB, dtype=cupy.uint8))):
            with self.assertRaises(refused) as told:
                wrong()
            self.assertIn("rmm", str(told.exception))
        del z
        x = torch.empty(1200 * MIB, dtype=torch.uint8, device="cuda")
        with self.assertRaises(MemoryError) as told:
            rmm.DeviceBuffer(size=1000 * MIB)
        self.assertIn("rmm asked for ", str(told.exception))
        self.assertIn("torch", str(told.exception))
        self.assertEqual(1000 * MIB, resource.refused.refusal.requested)
        del x, told

    def test_what_one_frees_the_next_one_gets(self):
        z = rmm.DeviceBuffer(size=1200 * MIB)
        del z
        settle()
        held = runtime.stats().held
        self.assertGreaterEqual(held, 1200 * MIB)
        x = torch.empty(1200 * MIB, dtype=torch.uint8, device="cuda")
        self.assertLessEqual(runtime.stats().held, held)
        del x
        y = cupy.empty(1200 * MIB, dtype=cupy.uint8)
        self.assertLessEqual(runtime.stats().held, held)
        del y

    def test_emptying_the_cache_is_for_all(self):
        for empty in (torch.cuda.empty_cache, pool.free_all_blocks):
            mine = [rmm.DeviceBuffer(size=400 * MIB), cupy.empty(400 * MIB, dtype=cupy.uint8),
                    torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")]
            held = runtime.stats().held
            mine.clear()
            settle()
            empty()
            self.assertLessEqual(runtime.stats().held, held - 1000 * MIB)

    @unittest.skipUnless(NUMBA, "not here: numba")
    def test_numba_is_in_it_too(self):
        from numba import cuda  # pylint: disable=import-outside-toplevel
        x = cuda.to_device(numpy.arange(MIB, dtype=numpy.float32))
        self.assertEqual({"numba": 4 * MIB}, more(self.before))
        y, z = torch.as_tensor(x, device="cuda"), cupy.asarray(x)
        self.assertEqual({"numba": 4 * MIB}, more(self.before))
        self.assertEqual(y.data_ptr(), z.data.ptr)
        self.assertEqual(MIB * (MIB - 1) / 2, float(y.sum(dtype=torch.float64)))
        del x, y, z


class Compiled(Case):
    def tearDown(self):
        torch._dynamo.reset()

    def test_a_compiled_model_computes_what_is_prepared_on_rmm(self):
        model = net()
        compiled = torch.compile(model, mode="reduce-overhead")
        with torch.no_grad():
            for turn in range(16):
                host = points(turn, 256 if turn % 4 else 128)
                wanted = nearest_on_the_host(host)
                found = nearest(host)
                self.assertTrue((cupy.asnumpy(found) == wanted).all(), f"turn {turn}: neighbours")
                x = torch.from_dlpack(found) / 256
                torch.compiler.cudagraph_mark_step_begin()
                got = compiled(x).clone()
                with on_rmm():  # what the next turn's arrays are made of, while the model may still run
                    scratch = cupy.full((256, 256, 3), -1, dtype=cupy.float32)
                plain = model(torch.from_numpy(wanted).cuda() / 256)
                self.assertTrue(torch.allclose(got, plain, atol=1e-3), f"turn {turn}: the model")
                self.assertLessEqual(torch.cuda.memory_allocated(), accounts()["torch"])  # graphs' pools are live besides
                del x, found, got, plain, scratch
        self.assertTrue(used.complete)
        settle()
        self.assertNotIn("rmm", more(self.before))

    def test_training_in_graphs_beside_rmm(self):
        plain, trained = net(), net()
        compiled = torch.compile(trained, mode="reduce-overhead")
        steps = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (plain, trained)]
        for turn in range(8):
            found = nearest(points(turn))
            x = torch.from_dlpack(found) / 256
            torch.compiler.cudagraph_mark_step_begin()
            losses = []
            for each, step in zip((plain, compiled), steps):
                step.zero_grad(set_to_none=True)
                loss = (each(x) - x).square().mean()
                with on_rmm():
                    scratch = cupy.ones(MIB, dtype=cupy.float32)
                loss.backward()
                step.step()
                losses.append(float(loss))
                self.assertEqual(float(MIB), float(scratch.sum()))
                del loss, scratch
            self.assertAlmostEqual(losses[0], losses[1], places=4, msg=f"turn {turn}")
            del found, x
        for one, other in zip(plain.parameters(), trained.parameters()):
            self.assertTrue(torch.allclose(one, other, atol=1e-3))
        settle()
        self.assertNotIn("rmm", more(self.before))

    def test_others_allocate_while_graphs_are_captured(self):
        wrong, over = [], threading.Event()

        def work(allocator):
            number = 0
            try:
                while not over.is_set():
                    number += 1
                    with cupy.cuda.Stream(non_blocking=True) as stream, allocator():
                        x = cupy.full(MIB // 4 + number % 7 * 4096, number, dtype=cupy.int32)
                        y = x + 1
                        del x
                        assert bool((y == number + 1).all()), f"round {number}"
                        del y
                        stream.synchronize()
            except BaseException as error:  # pylint: disable=broad-except
                wrong.append(error)

        threads = [threading.Thread(target=work, args=[each]) for each in (on_rmm, contextlib.nullcontext)]
        for thread in threads:
            thread.start()
        try:
            with torch.no_grad():
                for number in range(4):
                    torch._dynamo.reset()
                    f = torch.compile(lambda v: (v * number).sin() + number, mode="reduce-overhead")
                    for turn in range(6):
                        torch.compiler.cudagraph_mark_step_begin()
                        v = torch.full((4096,), float(turn), device="cuda")
                        self.assertTrue(torch.allclose(f(v), (v * number).sin() + number, atol=1e-4))
                        del v
                    del f
        finally:
            over.set()
            for thread in threads:
                thread.join()
        self.assertEqual([], wrong)


class Programs(unittest.TestCase):
    """Whole programs, each in a process of its own."""

    def child(self, lines):
        path = os.pathsep.join(filter(None, [str(SOURCE / "python"), os.environ.get("PYTHONPATH")]))
        return subprocess.run([sys.executable, "-B", "-c", lines], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=120, env={**os.environ, "PYTHONPATH": path})

    PROGRAM = """
import rmm, torch
{use}
buffer = rmm.DeviceBuffer(size=1 << 20)
f = torch.compile(lambda v: v.sin() * 2, mode="reduce-overhead")
with torch.no_grad():
    for turn in range(6):
        v = torch.full((4096,), float(turn), device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        assert torch.allclose(f(v), v.sin() * 2, atol=1e-4)
print("passed")
"""

    def test_the_program_that_fails_on_rmms_own_allocator_for_pytorch_runs(self):
        on_weir = self.child(self.PROGRAM.format(use="import weir.rmm, weir.torch\nweir.torch.use(budget='1GiB')\nweir.rmm.use()"))
        self.assertEqual((0, "passed"), (on_weir.returncode, on_weir.stdout.strip()[-6:]), on_weir.stdout[-1500:])
        on_rmms = self.child(self.PROGRAM.format(use="""
from rmm.allocators.torch import rmm_torch_allocator
rmm.reinitialize(pool_allocator=True, initial_pool_size=1 << 28)
torch.cuda.memory.change_current_allocator(rmm_torch_allocator)"""))
        if on_rmms.returncode == 0:
            self.skipTest("this PyTorch has graph trees over RMM's own allocator as well")
        self.assertRegex(on_rmms.stdout, "does not yet support")

    @unittest.skipUnless(NUMBA, "not here: numba")
    def test_the_guides_page(self):
        from guide import blocks  # pylint: disable=import-outside-toplevel
        done = self.child("\n".join([
            "import cupy, weir", "client = weir.Runtime('cuda:0', budget='20GiB').client('mine')", *blocks("python"), """
import rmm, torch
from numba import cuda
kept = torch.ones(1 << 20, device="cuda"), cupy.ones(1 << 20), rmm.DeviceBuffer(size=1 << 20), cuda.device_array(1 << 20)
assert {each.name for each in client.runtime.stats().clients if each.live} == {"torch", "cupy", "rmm", "numba", "mine"}
assert bool((y == 0).all()) and client.stats().live == 8 << 20
print("passed")"""]))
        self.assertEqual((0, "passed"), (done.returncode, done.stdout.strip()[-6:]), done.stdout[-1500:])


if __name__ == "__main__":
    main()
