"""A program of a framework's, which knows nothing of weir: programs.py torch|cupy|jax|numba [MIB]. It prints one JSON object: an
answer that must not depend on who serves the memory, and the seconds that the work took, the median of REPEATS. With a number of
MiB it expects that no more can be had; with the word `version` it prints the framework's."""

import json
import statistics
import sys
import time

MIB = 1 << 20
REPEATS = 15  # a work takes some 50 ms, in which a processor may do something else


def timed(work, rounds):
    seconds = []
    work(2)
    for _ in range(REPEATS):
        start = time.perf_counter()
        answer = work(rounds)
        seconds.append(time.perf_counter() - start)
    return answer, statistics.median(seconds)


def import_numba():
    """Numba refuses a NumPy that is later than it knows; for what is done here such a NumPy is as good as the last one it knows."""
    import re
    try:
        import numba
    except ImportError as error:
        known = re.search(r"NumPy (\d+\.\d+) or less", str(error))
        if not known:
            raise
        import numpy
        numpy.__version__ = f"{known[1]}.0"
        for name in [name for name in sys.modules if name.split(".")[0] == "numba"]:
            del sys.modules[name]
        import numba
    return numba


def torch_program(budget):
    import torch
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).cuda()
    batches = [torch.randn(64 * (1 + i % 4), 1024, device="cuda") for i in range(8)]

    def work(rounds):
        with torch.no_grad():
            total = sum(float(model(batches[i % 8]).double().abs().sum()) for i in range(rounds))
        torch.cuda.empty_cache()
        return total

    answer, seconds = timed(work, 200)
    total = torch.cuda.mem_get_info()[1]
    if budget:
        assert total == budget, total
        try:
            torch.empty(budget + MIB, dtype=torch.uint8, device="cuda")
            raise AssertionError("more than the budget was given")
        except torch.OutOfMemoryError:
            pass
    return f"{answer:.3f}", seconds


def cupy_program(budget):
    import cupy
    a = cupy.arange(1 << 20, dtype=cupy.float64)

    def work(rounds):
        total = 0.0
        for i in range(rounds):
            total += float((a[:1 << (10 + i % 11)] * (i + 1)).sum())
            if i % 50 == 0:
                cupy.get_default_memory_pool().free_all_blocks()
        return total

    answer, seconds = timed(work, 1000)
    if budget:
        assert cupy.cuda.runtime.memGetInfo()[1] == budget
        try:
            cupy.empty(budget + MIB, dtype=cupy.uint8)
            raise AssertionError("more than the budget was given")
        except cupy.cuda.memory.OutOfMemoryError:
            pass
    return f"{answer:.1f}", seconds


def jax_program(budget):
    import jax
    import jax.numpy as jnp
    step = jax.jit(lambda x: jnp.tanh(x @ x.T) @ x)

    def work(rounds):
        x = jnp.ones((512, 512)) / 512
        for _ in range(rounds):
            x = step(x)
        return float(x.sum())

    answer, seconds = timed(work, 500)
    if budget:
        assert jax.local_devices()[0].memory_stats()["bytes_limit"] <= budget
        try:
            jnp.ones((budget + MIB,), dtype=jnp.uint8).block_until_ready()
            raise AssertionError("more than the budget was given")
        except Exception as error:  # pylint: disable=broad-except
            assert "RESOURCE_EXHAUSTED" in str(error) or "memory" in str(error).lower(), error
    return f"{answer:.4f}", seconds


def numba_program(budget):
    import numpy
    import_numba()
    from numba import cuda

    @cuda.jit
    def double(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] *= 2

    def work(rounds):
        total = 0.0
        for i in range(rounds):
            x = cuda.to_device(numpy.arange(1 << (8 + i % 10), dtype=numpy.float64))
            double[(x.size + 255) // 256, 256](x)
            total += float(x.copy_to_host().sum())
        return total

    answer, seconds = timed(work, 500)
    if budget:
        assert cuda.current_context().get_memory_info()[1] == budget
        try:
            cuda.device_array(budget + MIB, dtype=numpy.uint8)
            raise AssertionError("more than the budget was given")
        except cuda.cudadrv.driver.CudaAPIError as error:
            assert "OUT_OF_MEMORY" in str(error), error
    return f"{answer:.1f}", seconds


def version_of(name):
    module = import_numba() if name == "numba" else __import__(name)
    if name == "numba":
        import numba.cuda
        assert numba.cuda
    return module.__version__


def main():
    if sys.argv[2:] == ["version"]:
        print(version_of(sys.argv[1]))
        return
    answer, seconds = {"torch": torch_program, "cupy": cupy_program, "jax": jax_program,
                       "numba": numba_program}[sys.argv[1]](int(sys.argv[2]) * MIB if len(sys.argv) > 2 else 0)
    print(json.dumps({"answer": answer, "seconds": seconds}))


if __name__ == "__main__":
    main()
