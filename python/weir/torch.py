"""PyTorch over weir: all tensors on CUDA devices, or those of a part of a program, are memory of clients.

    import weir.torch

    weir.torch.use(budget="20GiB")  # before CUDA starts; everything of PyTorch's, in one budget with all others of the process

    with weir.torch.pool(client):   # or this: PyTorch's own allocator stays, and takes its segments from a client
        model = Net().cuda()

After `use`, `torch.cuda.memory_stats` and what is made of it, `mem_get_info`, `memory_snapshot`, `_record_memory_history`,
`empty_cache`, `set_per_process_memory_fraction`, `record_stream`, CUDA graphs and graph trees, and of `torch.accelerator` what concerns
memory, answer from weir, and what does not fit is `torch.cuda.OutOfMemoryError` in weir's words."""

from __future__ import annotations

import contextlib
import ctypes as c
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from . import _torch_ipc, errors
from ._c import inspection as i
from ._c import structures as s
from ._c.library import check, lib
from ._c.seams import TorchOpen, TorchTraced, address, seams, wseam_torch_counts
from ._clients import Clients
from ._later import inside
from ._streams import LEGACY, PER_THREAD
from ._torch_history import History, Reading
from .residency import Residency
from .runtime import Client

METRICS = ("current", "peak", "allocated", "freed")
REPLACED = 8  # functions of PyTorch's allocator; WTORCH_REPLACED in src/seams/torch.h
LIVE, PENDING, THREAD_CACHED, PROMISED = 0, 1, 2, 3  # weir_span_state
PEAKS, ACCUMULATED = 1, 2  # WEIR_RESET_PEAKS and WEIR_RESET_ACCUMULATED
STATES = {LIVE: "active_allocated", PENDING: "active_pending_free"}

lib.weir_memory_stats_info.restype, lib.weir_memory_stats_info.argtypes = c.c_int, [c.c_void_p, c.POINTER(i.weir_memory_stats)]
lib.weir_layout_walk.restype, lib.weir_layout_walk.argtypes = c.c_int, [c.c_void_p, i.LayoutFunction, c.c_void_p, c.c_void_p]

_lock = threading.Lock()
_history = History()
_used: Used | None = None


class Used:
    """What `use` has set up. `client(device)` is the account of PyTorch's on a device; `complete` says whether this PyTorch has let
    all of the functions be replaced that its pluggable allocator lacks: without, `cudnn.benchmark` and torch.compile's graph trees
    fail with PyTorch's own words."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._error: BaseException | None = None
        self._open = TorchOpen(self._open_client)
        self._traced = TorchTraced(_tell_trace)
        self.complete = False

    def _open_client(self, ordinal: int) -> None:
        """Called from C, on whatever thread allocates first on the device."""
        try:
            with inside, self._clients.of(ordinal)._use() as pointer:
                check(seams.wseam_torch_give(ordinal, pointer))
        except errors.Error:
            pass  # libweir's detail, which PyTorch's error will have, says why

    def client(self, device: Any = None) -> Client:
        """The client of that device, which is opened where PyTorch has not used it yet; None: the current one."""
        ordinal = _ordinal(device)
        client = self._clients.of(ordinal)
        self._open_client(ordinal)
        return client

    def of(self, ordinal: int) -> Client | None:
        """The client, where there is one by now."""
        return self._clients.opened().get(ordinal)


def _ordinal(device: Any) -> int:
    return int(torch.cuda._utils._get_device_index(device, optional=True) or 0)  # None where there is no driver


def use(*clients: Client, budget: int | str | None = None, name: str = "torch", maximum: int | str = 0,
        guarantee: int | str = 0, resource: str | None = None) -> Used:
    """From now on all of PyTorch's memory on CUDA devices comes from weir. Before the first tensor on one of them.

    Either from these clients, each for its device, or from clients called `name` that are opened when a device is first used:
    `budget` is of each device's runtime, for all its clients together (None: as it is, or the default), `maximum` and
    `guarantee` are PyTorch's own, and `resource` is the runtimes' (as `Runtime`): with "segments" tensors can be sent to other
    processes, and PyTorch cannot be suspended. `Conflict` where PyTorch has allocated already, or weir is used already; `Unsupported` for a
    PyTorch without CUDA."""
    global _used  # pylint: disable=global-statement
    with _lock:
        if _used is not None:
            raise errors.Conflict("PyTorch has its memory from weir already: use() is for once in a process")
        if torch.cuda.is_initialized():
            raise errors.Conflict("CUDA has started in PyTorch, whose allocator cannot be exchanged any more: call "
                                  "weir.torch.use() before the first tensor on a device, or take weir.torch.pool(client)")
        if not hasattr(torch._C, "_cuda_customAllocator"):
            raise errors.Unsupported(f"PyTorch {torch.__version__} was built without CUDA: install one that has it (pip install torch)")
        if not seams.wseam_torch_throws():
            raise errors.Unsupported(f"PyTorch {torch.__version__} does not have its errors where weir looks for them, so that what is "
                                     "refused would go unnoticed; weir.torch.pool(client) works")
        used = Used(Clients(name, clients, budget, maximum, guarantee, resource))
        check(seams.wseam_torch_begin(used._open))
        allocator = torch._C._cuda_customAllocator(address(seams.wseam_torch_alloc), address(seams.wseam_torch_free))
        for setter, function in (("set_reset_fn", "empty_cache"), ("set_memory_fraction_fn", "set_fraction"),
                                 ("set_base_alloc_fn", "base"), ("set_record_stream_fn", "record_stream"),
                                 ("set_begin_allocate_to_pool", "begin_pool"), ("set_end_allocate_to_pool_fn", "end_pool"),
                                 ("set_release_pool", "release_pool")):
            getattr(allocator, setter)(address(getattr(seams, f"wseam_torch_{function}")))
        torch._C._cuda_changeCurrentAllocator(allocator)
        used.complete = seams.wseam_torch_complete() == REPLACED
        seams.wseam_torch_set_caching(os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") != "1")
        seams.wseam_torch_trace(used._traced)
        _answer_from_weir(used)
        _torch_ipc.ask_before_sharing(segments=False)
        _used = used
        return used


# ---- what PyTorch asks its own allocator for ----

def _answer_from_weir(used: Used) -> None:
    own: Any = torch._C

    def empty_cache() -> None:
        seams.wseam_torch_empty_cache()

    own._cuda_memoryStats = lambda device: memory_stats(used, device)
    own._cuda_memorySnapshot = lambda mempool_id=None, *_, **__: snapshot(used, *_asked_for(mempool_id))
    own._cuda_record_memory_history = _history.record
    own._cuda_record_memory_history_legacy = _history.record_as_before
    own._cuda_isHistoryEnabled = lambda: bool(seams.wseam_torch_history_on())  # not ctypes' own: torch.compile hashes it
    own._cuda_attach_out_of_memory_observer = _history.observe
    own._cuda_checkPoolLiveAllocations = _pool_has_exactly
    own._cuda_cudaCachingAllocator_enable = lambda on: seams.wseam_torch_set_caching(bool(on))
    torch.cuda.MemPool = torch.cuda.memory.MemPool = MemPool
    # torch.accelerator asks these, and not the allocator of CUDA that is current.
    own._accelerator_isAllocatorInitialized = lambda: True
    own._accelerator_emptyCache = empty_cache
    own._accelerator_getDeviceStats = lambda device: memory_stats(used, device)
    own._accelerator_resetPeakStats = lambda device: seams.wseam_torch_reset(device, PEAKS)
    own._accelerator_resetAccumulatedStats = lambda device: seams.wseam_torch_reset(device, ACCUMULATED)

    def mem_get_info(device: Any = None) -> tuple[int, int]:
        """Bytes that PyTorch may still have on the device under weir's limits, and the budget."""
        client = used.client(device)
        stats = client.runtime.stats()
        mine = client.stats()
        left = min(stats.budget - min(stats.budget, stats.live + stats.pending + stats.promised),
                   mine.maximum - min(mine.maximum, mine.live + mine.pending + mine.promised))
        return min(left, _driver_info(_ordinal(device))[0] + stats.held - stats.live - stats.pending), stats.budget

    torch.cuda.mem_get_info = torch.cuda.memory.mem_get_info = own._accelerator_getMemoryInfo = mem_get_info


_driver_info: Callable[[Any], tuple[int, int]] = torch.cuda.memory.mem_get_info


def _tell_trace(pointer: int, freed: bool) -> None:
    """As PyTorch's own allocator: its sanitizer, and others, have callbacks in torch.cuda._gpu_trace."""
    from torch.cuda import _gpu_trace
    (_gpu_trace.MemoryDeallocationCallbacks if freed else _gpu_trace.MemoryAllocationCallbacks).fire_callbacks(pointer)


class MemPool:
    """`torch.cuda.MemPool` after `use`: what is allocated while a thread is in `torch.cuda.use_mem_pool(pool)`, and what a graph
    has that is captured with `pool=pool.id`, is of this pool: memory that nobody else gets before the pool is gone, and whatever of
    it is freed, the pool's again. `id` is PyTorch's name for it. The pool is the current device's.

    `Unsupported` with an allocator, whose memory would go past the budget, and with `use_on_oom`, as weir gives a pool's memory to
    nobody else. `no_split` changes nothing: there are no segments to be split."""

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None or use_on_oom:
            raise errors.Unsupported("after weir.torch.use() a MemPool has no allocator of its own, which would go past weir's budget, "
                                     "and no use_on_oom: leave both out, or take weir.torch.pool(client) without use()")
        del no_split
        self.id: tuple[int, int] = tuple(torch.cuda.graph_pool_handle())
        self.device = torch.cuda.current_device()
        check(seams.wseam_torch_keep_pool(self.device, *self.id))
        self._end = weakref.finalize(self, seams.wseam_torch_release_pool, self.device, *self.id)

    allocator = None

    def use_count(self) -> int:
        """How many have it: this object, threads that fill it, and graphs."""
        return int(seams.wseam_torch_pool_users(self.device, *self.id))

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Its segments, as `torch.cuda.memory_snapshot` has them."""
        return list(torch.cuda.memory_snapshot(self.id, include_traces=include_traces))


def _gauge(gauge: i.weir_gauge) -> dict[str, int]:
    return {metric: int(getattr(gauge, metric)) for metric in METRICS}


def _zeros() -> dict[str, int]:
    return dict.fromkeys(METRICS, 0)


def memory_stats(used: Used, ordinal: int) -> dict[str, Any]:
    """As `torch.cuda.memory_stats_as_nested_dict`. What is allocated and requested is PyTorch's own; segments, and what is
    reserved, active or inactive, is of the device's runtime, of all its clients."""
    counts, book = wseam_torch_counts(), i.weir_memory_stats()
    seams.wseam_torch_count(ordinal, c.byref(counts))
    client, calls = used.of(ordinal), 0
    if client is not None:
        with client.runtime._use() as pointer:
            check(lib.weir_memory_stats_info(pointer, c.byref(book)))
        calls = client.runtime.stats().driver_calls
    stats: dict[str, Any] = {}
    for source, names in ((counts, ("allocation", "allocated_bytes", "requested_bytes")),
                          (book, ("segment", "reserved_bytes", "active", "active_bytes", "inactive_split", "inactive_split_bytes"))):
        for name in names:  # there is no pool for what is small
            stats[name] = {"all": _gauge(getattr(source, name)), "small_pool": _zeros(), "large_pool": _gauge(getattr(source, name))}
    stats.update(oversize_allocations=_zeros(), oversize_segments=_zeros(), max_split_size=-1, num_sync_all_streams=int(counts.emptied),
                 num_alloc_retries=int(counts.retries), num_ooms=int(counts.failures), num_device_alloc=calls, num_device_free=0,
                 num_oom_rejections=0, reserved_bytes_by_private_pools={})  # since 2.12 and 2.13; `snapshot` has the pools
    return stats


def _pool_has_exactly(ordinal: int, pool: tuple[int, int], expected: set[int]) -> bool:
    """Whether the live blocks of that pool are these."""
    room = 256
    while True:
        found = (c.c_void_p * room)()
        count = seams.wseam_torch_pool_blocks(ordinal, *pool, found, room)
        if count <= room:
            return {pointer for pointer in found[:count] if pointer} == set(expected)
        room = 2 * count


def _asked_for(asked: Any) -> tuple[tuple[int, int] | None, bool]:
    """The pool, and whether traces are wanted. PyTorch gives None, the id of a pool, or the id and that; (0, 0) is all memory, as None."""
    given = tuple(asked) if asked else (0, 0)
    return None if given[:2] == (0, 0) else given[:2], len(given) < 3 or bool(given[2])


def snapshot(used: Used, pool: tuple[int, int] | None = None, traced: bool = True) -> dict[str, Any]:
    """As `torch.cuda.memory._snapshot`: segments of the runtimes that PyTorch uses, with blocks of all their clients, and with the
    events of PyTorch's own memory where a history is recorded and `traced`. `pool` is of a graph or a MemPool: its segments and
    events alone."""
    opened = sorted(used._clients.opened().items())
    devices = max(torch.cuda.device_count(), *(ordinal + 1 for ordinal, _ in opened), 0)
    with Reading() as reading:
        traces = [reading.trace(device, pool) if traced else [] for device in range(devices)]
        segments = [segment for ordinal, client in opened for segment in _segments(ordinal, client, reading)
                    if pool is None or segment["segment_pool_id"] == pool]
    for ordinal, _ in opened:
        seams.wseam_torch_history_snapshot(ordinal, sum(segment["active_size"] for segment in segments if segment["device"] == ordinal))
    return {"segments": segments, "device_traces": traces, "external_annotations": [], "host_segments": [], "host_traces": [],
            "allocator_settings":
            {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "garbage_collection_threshold": 0.0, "expandable_segments": False,
             "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False, "pinned_use_cuda_host_register": False,
             "roundup_power2_divisions": {}}}


def _segments(ordinal: int, client: Client, reading: Reading | None = None) -> list[dict[str, Any]]:
    """Memory side by side that is of one pool of graphs and one stream there, or of no pool; a block is in one of them as a whole.
    They are PyTorch's expandable ones, but for resources that map nothing."""
    segments: list[dict[str, Any]] = []
    expandable = "mapped" in client.runtime.resource
    last = None  # the block that the last one told was a part of

    def tell(_segment: Any, span: Any, _: Any) -> None:
        nonlocal last
        part = span.contents
        if not part.address:
            return
        state, pool = _state_and_pool(part)
        stream = int(part.stream.id) if pool != (0, 0) else 0
        found = segments[-1] if segments else None
        if (found is None or (found["segment_pool_id"], found["stream"]) != (pool, stream)
                or found["address"] + found["total_size"] != part.address):
            segments.append({"device": ordinal, "address": part.address, "total_size": 0, "allocated_size": 0, "active_size": 0,
                             "requested_size": 0, "stream": stream, "segment_type": "large", "segment_pool_id": pool,
                             "is_expandable": expandable, "frames": [], "blocks": []})
            found, last = segments[-1], None
        active = state != "inactive"
        found["total_size"] += part.bytes
        found["allocated_size"] += part.bytes if state == "active_allocated" else 0
        found["active_size"] += part.bytes if active else 0
        block = part.block.pointer if active else None
        if block and block == last:
            found["blocks"][-1]["size"] += part.bytes
            return
        last, requested = block, part.requested if active else 0
        found["requested_size"] += requested
        found["blocks"].append({"address": part.address, "size": part.bytes, "requested_size": requested, "state": state,
                                "frames": [{"name": f"{(part.client_name or b'').decode(errors='replace')} "
                                            f"{(part.tag or b'').decode(errors='replace')}".strip(), "filename": "weir", "line": 0}]
                                if active else []})

    with client.runtime._use() as pointer:
        check(lib.weir_layout_walk(pointer, i.LayoutFunction(tell), None, None))
    if reading and reading.on:
        for block in (block for segment in segments for block in segment["blocks"] if block["frames"]):
            block["frames"] = [*reading.frames_of(block["address"]), *block["frames"]]
    return segments


def _state_and_pool(part: Any) -> tuple[str, tuple[int, int]]:
    """As PyTorch has them. What a pool keeps, so that a state can be set again, is live for weir alone."""
    state, pool = STATES.get(part.state, "inactive"), (c.c_uint64 * 2)()
    known = seams.wseam_torch_pool_of(part.block.pointer, pool) if part.state == LIVE else 0
    return "inactive" if known == 1 else state, (pool[0], pool[1])


# ---- stepping aside ----

def suspend(*clients: Client, streams: Iterable[Any] | None = None, **options: Any) -> dict[int, Residency]:
    """Takes the devices' memory from under PyTorch's tensors, whose addresses stay; answers what left, by device.

    Of these clients, which `pool` was given, or of all of PyTorch, after `use`. All work of the devices in question is waited for
    first, or with `streams` what is queued on these (`torch.cuda.Stream`) alone, so that the work of others runs on: they have to be
    all that may still touch the memory, also those that only read, as CUDA ends a context whose work finds no memory. Until
    `resume` no tensor there may be touched, and none be made: that is an error, or resumes the client with `resume_on_alloc=True`.
    After `use`, memory of captured graphs leaves as well (`graphs=False`: it stays), so that none is replayed until `resume`;
    `StreamMisuse` while one is being captured. `options` are those of `Client.suspend`; its `wait` does not bound the wait for
    devices and `streams`. All or nothing: what fails for one device leaves the others as they were. `Invalid` without clients where
    `use` was not called, `StreamMisuse` while one of `streams` is being captured; the capture goes on."""
    done: list[Client] = []
    left: dict[int, Residency] = {}
    only = None if streams is None else list(streams)
    try:
        for ordinal, client in _clients_of(clients).items():
            if only is None:
                torch.cuda.synchronize(ordinal)
            else:
                _wait_for(client, [stream for stream in only if stream.device.index == ordinal])
            left[ordinal] = client.suspend(**{"graphs": True, **options})
            done.append(client)
    except errors.Error:
        for client in done:
            client.resume()
        raise
    return left


def _wait_for(client: Client, streams: list[Any]) -> None:
    """What is queued on these is done at return. A stream is known to weir meanwhile, which does not break a capture."""
    with client.runtime._use() as runtime:
        for stream in streams:
            native, known = int(stream.cuda_stream), s.weir_stream()
            if native in (0, LEGACY, PER_THREAD):
                check(lib.weir_stream_default(runtime, int(native == PER_THREAD), c.byref(known)))
            else:
                check(lib.weir_stream_register(runtime, native, c.byref(known)))
            try:
                check(lib.weir_stream_synchronize(known))
            finally:
                lib.weir_stream_unregister(known)


def resume(*clients: Client) -> None:
    """Brings it back; contents are there when this returns. What has no room stays away, and is `OutOfMemory`."""
    for client in _clients_of(clients).values():
        client.resume()


def _clients_of(given: tuple[Client, ...]) -> dict[int, Client]:
    if given:
        return Clients("torch", given).opened()
    if _used is None:
        raise errors.Invalid("PyTorch's memory is not weir's: call weir.torch.use() before, or give the clients of its pools")
    return _used._clients.opened()


# ---- a part of a program ----

_pools: weakref.WeakKeyDictionary[Client, Any] = weakref.WeakKeyDictionary()


def _pool_of(client: Client) -> Any:
    with _lock:
        found = _pools.get(client)
        if found is None:
            place, alloc, release = c.c_int(), c.c_void_p(), c.c_void_p()
            with client._use() as pointer:
                check(seams.wseam_torch_place(pointer, c.byref(place)))
            check(seams.wseam_torch_place_functions(place, c.byref(alloc), c.byref(release)))
            allocator = torch._C._cuda_customAllocator(alloc.value, release.value)
            found = _pools[client] = torch.cuda.MemPool(allocator)
            found._weir = allocator  # which the pool calls until it is gone
        return found


@contextlib.contextmanager
def pool(client: Client) -> Iterator[Any]:
    """Inside, the calling thread's tensors on the client's device lie in segments that PyTorch's own allocator takes from the
    client (2 MiB and more each, by `torch.cuda.MemPool`, which is what `with` gives). Statistics, graphs and snapshots stay
    PyTorch's. Segments go back with `torch.cuda.empty_cache()` when nothing in them lives. Sending a tensor in them to another
    process is `Unsupported` but where the client's runtime has the resource "direct".

    `Conflict` with expandable segments, which go past every pool, and after `use`, which has all of PyTorch already."""
    settings = ",".join(os.environ.get(name, "") for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    if "expandable_segments:true" in settings.replace(" ", "").lower():
        raise errors.Conflict("PyTorch has expandable segments (PYTORCH_CUDA_ALLOC_CONF), which take no memory from a pool: "
                              "switch them off")
    if _used is not None:
        raise errors.Conflict("all of PyTorch's memory is weir's already, by use()")
    made = _pool_of(client)
    _torch_ipc.ask_before_sharing(segments=True)
    with torch.cuda.use_mem_pool(made):
        yield made
