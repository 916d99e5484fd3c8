/* weir/driver.h: a driver of the program's own, for a kind of device that weir does not know.
 *
 * A registered driver makes its devices known as "mine:0", "mine:1", …: weir_runtime_get and weir_runtime_create take
 * those names, and everything over a runtime works as on "cuda:0": clients, the budget, streams, frees that wait for
 * events, traces. weir's own drivers fill the same table. Engines know "host" and "cuda" alone, and
 * weir_hardware_create looks for no devices of other drivers.
 *
 * A driver needs little: memory that is allocated and released, streams, events, copies and fills. The members from
 * `granule` on are optional, and their comments tell the loss without them.
 *
 * Contract of all functions of the table. They answer with a status and, when they fail, have set the detail with
 * weir_fail: WEIR_ERR_OUT_OF_MEMORY sends weir up its ladder (weir/stats.h), WEIR_ERR_DEVICE_LOST says that nothing
 * works there any more, any other failure is WEIR_ERR_DRIVER unless said otherwise. weir calls the functions from any
 * thread, from several at once, and with no lock of weir's held, except those under which a runtime is made and a trace
 * is opened, and except in `passed`, `stream_capturing` and `stream_native`, which are called with locks held and must
 * not block, and in `protect`. The driver locks its shared data. The functions call no function of weir's but weir_fail and weir_log, and
 * are not called in a child made by fork or once the process has begun to exit.
 *
 * `device` is what `open` made. `stream` is what stream_create, stream_adopt or stream_default made; NULL means at
 * once, on the calling thread: the work is done at return. Addresses are those that the device's work uses; the host
 * reads and writes through copy and fill alone, except in pinned and pageable memory. */
#ifndef WEIR_DRIVER_H
#define WEIR_DRIVER_H

#include <weir/base.h>

WEIR_BEGIN

typedef struct weir_driver_device weir_driver_device; /* the driver's own */

/* A point in a stream's work: passed when everything that was queued on the stream before it is done. It stays valid as
 * long as the device is open, also when the stream has ended: then it is passed. The driver chooses the values; events
 * of one stream that are recorded later have no smaller sequence. {NULL, 0} is always passed. */
typedef struct weir_driver_event {
    void *stream;
    uint64_t sequence;
} weir_driver_event;

/* A copy among several. */
typedef struct weir_driver_copy {
    void *to;
    const void *from;
    size_t bytes;
} weir_driver_copy;

typedef struct weir_driver_table {
    size_t struct_size;
    const char *name; /* before the ':'; lower-case letters, digits and '-', at most 11; copied */
    int ordinals;     /* 0 to ordinals - 1 may exist; 1 to 64 */

    /* Opens a device for one runtime; WEIR_ERR_NOT_FOUND where there is none of that ordinal. Several runtimes may
     * have one device open, each with a record of its own. At close no stream of it is left, and no memory. */
    weir_status (*open)(int ordinal, weir_driver_device **out);
    void (*close)(weir_driver_device *device);
    /* Tells the bytes of device memory: free now, and in total. The default budget comes from the free bytes. */
    weir_status (*memory)(weir_driver_device *device, uint64_t *available, uint64_t *total);

    /* One piece of memory with an address of its own, aligned to 256 or more; `bytes` is a multiple of 256. What it
     * holds is unknown. Besides WEIR_KIND_DEVICE there are WEIR_KIND_PINNED and WEIR_KIND_HOST, memory of the host's,
     * which the host writes to itself; WEIR_ERR_UNSUPPORTED for a kind that the driver does not have. Both may wait
     * for the whole device, so that only what the device is past is released. */
    weir_status (*allocate)(weir_driver_device *device, weir_kind kind, uint64_t bytes, void **address);
    weir_status (*release)(weir_driver_device *device, weir_kind kind, void *address, uint64_t bytes);

    /* Streams: work on one is done in the order in which it was queued. A stream is not NULL. */
    weir_status (*stream_create)(weir_driver_device *device, void **stream);
    /* All that weir was asked to put on the stream was waited for, and no copy or call of weir's comes any more. Work
     * that the program itself has put on an adopted one since then may be under way; nothing of weir's is behind it.
     * Calls of weir's that have found the stream before, for a program that ends it under them, may still come with it,
     * now and later: record, order, synchronize, ask whether it is captured, take from the pool and give to it, and fill
     * memory that is just being allocated or freed. So the driver keeps the stream's record until the device is closed;
     * a later stream may reuse the record, and then gets such late work too. weir does not rely on the answers to late
     * calls. */
    void (*stream_destroy)(weir_driver_device *device, void *stream);
    weir_status (*stream_synchronize)(weir_driver_device *device, void *stream);

    /* Events. NULL for a stream is a point that is always passed. */
    weir_status (*record)(weir_driver_device *device, void *stream, weir_driver_event *out);
    bool (*passed)(weir_driver_device *device, weir_driver_event event); /* never blocks */
    /* Waits until it is passed or CLOCK_MONOTONIC reads `deadline` in nanoseconds (UINT64_MAX: for ever); WEIR_OK
     * either way, WEIR_ERR_DRIVER if it will never be passed. */
    weir_status (*wait)(weir_driver_device *device, weir_driver_event event, uint64_t deadline);
    /* What is queued on `stream` from now on runs after the event. Does not wait. */
    weir_status (*order)(weir_driver_device *device, void *stream, weir_driver_event event);

    /* Queued on the stream. A copy may be between device and host, in either direction, and within each. */
    weir_status (*copy)(weir_driver_device *device, void *to, const void *from, size_t bytes, void *stream);
    weir_status (*fill)(weir_driver_device *device, void *to, uint8_t value, size_t bytes, void *stream);

    /* Optional: host functions. Without it weir_call answers WEIR_ERR_UNSUPPORTED. */
    weir_status (*call)(weir_driver_device *device, void (*fn)(void *), void *user, void *stream);

    /* Optional, all seven or none: virtual memory. Without them the resource "cache" is "segments", and "mapped" is
     * WEIR_ERR_UNSUPPORTED.
     *
     * Physical memory comes as handles, each as long as was asked for: a multiple of the device's granule, a power of
     * two. Mapping a handle puts its bytes at an address, unmapping takes them away, and what they hold survives the
     * move from one address to another. It is mapped whole, at one address at a time. A call serves handles of one
     * length: a caller with handles of several lengths keeps track of the lengths. */
    uint64_t (*granule)(weir_driver_device *device);
    /* Addresses without memory. `bytes` is a multiple of the granule, the result aligned to 2 MiB.
     * WEIR_ERR_UNSUPPORTED where this device cannot map memory, and then none of the others is called again. */
    weir_status (*reserve)(weir_driver_device *device, uint64_t bytes, void **address);
    void (*unreserve)(weir_driver_device *device, void *address, uint64_t bytes);
    /* `count` handles of `bytes` each, not 0. All or none. */
    weir_status (*create)(weir_driver_device *device, uint64_t bytes, size_t count, uint64_t *handles);
    /* Handles that are mapped nowhere; `bytes` is, here and below, what each of them was created with. */
    void (*destroy)(weir_driver_device *device, uint64_t bytes, size_t count, const uint64_t *handles);
    /* Maps them side by side from `address` on, a multiple of the granule, where a reserved range has count * bytes
     * addresses without memory. All or none; handles[] may get new values. */
    weir_status (*map)(weir_driver_device *device, void *address, uint64_t bytes, size_t count, uint64_t *handles);
    /* Unmaps `count` handles that lie side by side from `address` on. handles[] names the handles and gets their new
     * values. All or none. */
    weir_status (*unmap)(weir_driver_device *device, void *address, uint64_t bytes, size_t count, uint64_t *handles);

    /* Optional, all four or none: device memory in the order of a stream, from a pool that is this device record's
     * own. Without them the resource "async" is WEIR_ERR_UNSUPPORTED.
     *
     * Work that is queued on the stream after the allocation may use it, and so may the next owner after the release,
     * on that stream at once and elsewhere when the device is past it. Without a stream: at once, having waited. What
     * the pool keeps is given back by pool_trim, down to `keep` bytes; it and pool_held tell what the pool has from
     * the device then. WEIR_ERR_STREAM_MISUSE for a stream that is being captured, WEIR_ERR_UNSUPPORTED from a device
     * without pools. */
    weir_status (*pool_allocate)(weir_driver_device *device, uint64_t bytes, void *stream, void **address);
    weir_status (*pool_release)(weir_driver_device *device, void *address, uint64_t bytes, void *stream);
    weir_status (*pool_trim)(weir_driver_device *device, uint64_t keep, uint64_t *held);
    weir_status (*pool_held)(weir_driver_device *device, uint64_t *held);

    /* Optional, both or none: streams that somebody else made and will destroy. Without them weir_stream_register
     * answers WEIR_ERR_UNSUPPORTED.
     *
     * stream_destroy only forgets such a stream. WEIR_ERR_STREAM_MISUSE for a stream of another context, and for a
     * stream that is being captured where the driver cannot tell its identity then. *identity differs between two
     * streams that had the same native address one after the other; events are recorded on the one that was adopted
     * alone. Where `identity` is NULL, the record is for whatever stream has the address, of which the caller makes
     * sure. */
    weir_status (*stream_adopt)(weir_driver_device *device, void *native, void **stream, uint64_t *identity);
    /* Forgets an adopted stream whose work was not waited for, and which may be gone: nothing is put on it any more,
     * and its events pass when the device is past them. */
    void (*stream_abandon)(weir_driver_device *device, void *stream);

    /* Optional: the device's default stream, which nothing of weir's uses unless it is asked for. NULL:
     * WEIR_ERR_UNSUPPORTED. The per-thread stream is the calling thread's. On another thread its native name means a
     * different stream, so queuing, recording or waiting on the stream from another thread answers
     * WEIR_ERR_STREAM_MISUSE. Every thread may use the stream's events, and may call stream_destroy, which waits for
     * the recorded events. */
    weir_status (*stream_default)(weir_driver_device *device, weir_default_stream which, void **stream);

    /* Optional: what the device's own libraries call a stream, and the device (weir_stream_native,
     * weir_runtime_details.native). NULL: NULL. */
    void *(*stream_native)(void *stream);
    void *(*context)(weir_driver_device *device);
    /* Optional, both or none: makes the device current on this thread for other libraries' calls, until `leave`, which
     * has the thread as it was. NULL: a device is not made current. */
    weir_status (*enter)(weir_driver_device *device);
    void (*leave)(weir_driver_device *device);

    /* Optional: whether the stream's work goes into a graph; false for a stream that has ended. Never blocks. NULL: no
     * stream is captured but where weir_capture_begin says so. With it stream_synchronize, record and order answer
     * WEIR_ERR_STREAM_MISUSE for a stream that is being captured, and the capture goes on; record answers so for a
     * stream that has ended, too. Copies, fills and calls on such a stream become part of the graph. */
    bool (*stream_capturing)(weir_driver_device *device, void *stream);

    /* Optional: waits for all work on the device, from any source. */
    weir_status (*synchronize)(weir_driver_device *device);
    /* Optional: the point behind all work that was put on the device so far, on whatever stream, also on streams that
     * have ended. WEIR_ERR_STREAM_MISUSE while a stream that the driver knows is being captured: a driver may break
     * any capture that it does not know of. May wait for the device. NULL: streams end when their work is done. */
    weir_status (*record_all)(weir_driver_device *device, weir_driver_event *out);
    /* Optional: runs `fn` here and now with the device current on this thread, as tools want it that watch its memory;
     * does not where the device is over. NULL: no tool watches this driver's memory. */
    void (*within)(weir_driver_device *device, void (*fn)(void *user), void *user);

    /* Optional, both or none, and only with virtual memory: addresses that can be read and written without memory of
     * their own. Without them weir_elastic_create answers WEIR_ERR_UNSUPPORTED. `cover` takes granules of one reserved
     * range without memory; `uncover` takes granules that are all covered, by one call or by several, and leaves the
     * granules without memory again. All or none. Zeros are read there at first. Unless the driver has `written`, all
     * covered addresses share one piece of memory, of at most 2 MiB or a granule, which is the device record's own:
     * a byte written at one covered address may be read at any other, and 2 MiB or a granule, from a multiple of 2 MiB
     * on, show the whole piece. */
    weir_status (*cover)(weir_driver_device *device, void *address, uint64_t bytes);
    weir_status (*uncover)(weir_driver_device *device, void *address, uint64_t bytes);

    /* Optional, both or none, and only with virtual memory: handles of memory of the host's, which the device's work
     * reads and writes where they are mapped, as it does others, only slower. Whether this device has them, and
     * `create` of such; map, unmap and destroy serve both. They count in the host's ledger. Without them
     * weir_suspend_options.show does nothing. */
    bool (*has_host_handles)(weir_driver_device *device);
    weir_status (*create_on_host)(weir_driver_device *device, uint64_t bytes, size_t count, uint64_t *handles);

    /* Optional, and only with virtual memory: `unmap` and then `destroy`, for memory whose contents nobody wants. All or
     * none. It is for drivers whose `unmap` takes something to keep the contents in, which may be short just when memory
     * is to be given back. NULL: the two are called one after the other. */
    weir_status (*drop)(weir_driver_device *device, void *address, uint64_t bytes, size_t count,
                        const uint64_t *handles);
    /* Optional, and only with `cover`: covered addresses share nothing, and what is written at one of them stays there
     * until it is uncovered or filled with zeros. Returns the first byte of a covered range that is not 0, or NULL. */
    const void *(*written)(weir_driver_device *device, const void *address, uint64_t bytes);

    /* Optional: the device's address on the PCI bus, "0000:3b:00.0", by which cgroups and NVML name it; "": it has none.
     * As long as the device is open. The default budget keeps to the limits that are set for it there. */
    const char *(*bus)(weir_driver_device *device);

    /* Optional, and only with virtual memory: from now on the device's work may write to the memory that is mapped there, or
     * only read; `bytes` is one handle. An access that is not allowed ends as one to addresses without memory does. What is
     * mapped can be written at first, and unmapping ends a protection. Without it the option `protect` does nothing. */
    weir_status (*protect)(weir_driver_device *device, void *address, uint64_t bytes, bool writable);
    /* Optional: bytes of the device that the process's graphs hold for allocations of their own, and keep when they have
     * run. NULL: none. */
    weir_status (*graph_memory)(weir_driver_device *device, uint64_t *bytes);
    /* Optional: many copies in one step, as small copies cost a call each otherwise. Each is done as by `copy`, but the order among
     * the copies is open: no copy may write what a second copy reads or writes. The list is read before the return. After a
     * failure a part of the copies may have been queued. NULL: `copy` is called for each. */
    weir_status (*copy_many)(weir_driver_device *device, const weir_driver_copy *copies, size_t count, void *stream);
} weir_driver_table;

/* Makes the driver known under its name, for as long as the process lives; the table is copied. Errors:
 * WEIR_ERR_INVALID (NULL, a name or a number of ordinals that is none, a function that is missing, a part of a group),
 * WEIR_ERR_CONFLICT (the name is taken), WEIR_ERR_BUSY (there are 4 of the program's own already),
 * WEIR_ERR_UNSUPPORTED (members of a later version). Any thread. */
WEIR_API WEIR_NODISCARD weir_status weir_driver_register(const weir_driver_table *table);

WEIR_END
#endif
