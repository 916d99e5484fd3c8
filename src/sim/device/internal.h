/* Inside the driver sim: device.c has the memory, contents.c what it holds, single.c the memory that is given out piece by
 * piece, stream.c the streams and the time. */
#ifndef WI_SIM_WORLD_H
#define WI_SIM_WORLD_H

#include "sim/device/device.h"

typedef enum wi_sim_kind {
    WI_SIM_DO_READ,
    WI_SIM_DO_WRITE,
    WI_SIM_DO_COPY,
    WI_SIM_DO_CALL,
    WI_SIM_DO_ORDER
} wi_sim_kind;

typedef struct wi_sim_work {
    wi_sim_kind kind;
    uint32_t version;
    char *to;
    const char *from;
    uint64_t bytes;
    void (*fn)(void *);
    void *user;
    wi_event event;
    bool own; /* the runtime's */
} wi_sim_work;

struct wi_sim_graph {
    wi_sim_work *work;
    size_t count, capacity;
};

/* Invariants: done <= queued; number n of the work that is not done lies at ring[n & (capacity - 1)]. */
typedef struct wi_sim_stream {
    unsigned number;
    wi_device *device;
    uint64_t queued, done, stalled_until;
    wi_sim_work *ring;
    uint64_t capacity; /* a power of two */
    uint64_t identity;
    unsigned adopted; /* registrations that have not ended: the end of each only lowers this count */
    bool captured;
    wi_sim_graph *graph; /* of what it captures; NULL: nobody asked for that */
    /* The stream's name for programs: the address of the first stream with this name. `next` is the successor of a
     * stream that ended without notice. */
    void *native;
    bool over;
    struct wi_sim_stream *next;
    struct wi_sim_stream *next_ended;
} wi_sim_stream;

typedef struct wi_sim_range {
    char *base;
    uint64_t bytes;
    uint32_t *memory; /* per granule of addresses: index of the memory under it + 1 */
} wi_sim_range;

/* A granule of memory. The granules of a handle lie anywhere, and the first granule stands for the handle.
 * Invariant: the list by `next` from the first granule has `length` granules, the first included; all are used, and all
 * but the first have a length of 0. */
typedef struct wi_sim_granule {
    bool used;
    bool read_only; /* work may not write where it is mapped; until it is unmapped */
    uint32_t stamp; /* part of the handle's value, which changes as drivers' do */
    uint32_t maps;
    uint32_t length; /* of the handle, in granules */
    uint32_t next;   /* of the handle: index + 1 */
} wi_sim_granule;

/* A piece of memory with an address of its own. */
typedef struct wi_sim_piece {
    struct wi_sim_piece *next; /* with a higher address */
    char *address;
    uint64_t bytes;
    bool released;  /* into the pool, … */
    wi_event point; /* … after which other streams may have the piece */
} wi_sim_piece;

/* Addresses that pieces lie in side by side, with memory under those granules that a piece touches.
 * Invariant: the pieces lie in order and do not overlap. */
typedef struct wi_sim_space {
    char *base; /* NULL until it is needed */
    uint64_t bytes, given;
    size_t granules; /* that have memory */
    wi_sim_piece *pieces;
} wi_sim_space;

enum { WI_SIM_RANGES = 1024 };

struct weir_driver_device {
    pthread_mutex_t lock; /* everything; a program of several threads may have a simulated device, too */
    uint64_t bytes, granule, random;
    bool by_itself;
    wi_sim_watcher watcher;
    wi_sim_range ranges[WI_SIM_RANGES];
    size_t range_count;       /* none behind these is reserved */
    wi_sim_granule *granules; /* the device's, and behind them the host's */
    size_t granule_count, granules_used, next_granule;
    size_t host_count, host_used, next_host;
    bool unreachable; /* it maps no memory of the host's */
    wi_plane contents;
    wi_sim_stream *streams[WI_SIM_STREAMS]; /* [number - 1] */
    wi_sim_stream *ended;                   /* wi_sim_passed still answers for their events */
    uint64_t reached[WI_SIM_STREAMS];       /* by the number's last stream; its successor counts on */
    uint64_t last_identity;
    wi_sim_space single, pool;
    wi_sim_piece *host; /* memory of the host's, which is not modelled: it has bytes */
};

/* Fault or OK; counts the call. */
weir_status wi_sim_enter(wi_sim_call kind);
void wi_sim_wrong(wi_device *device, const char *format, ...) WEIR_PRINTF(2, 3);
uint64_t wi_sim_random(uint64_t *state);
/* With the lock held, all below but the table's own functions. What a piece of work does to the contents: */
void wi_sim_do(wi_device *device, const wi_sim_work *work);

/* Addresses without memory; handles, for whose granules there must be room; and what is mapped where. */
weir_status wi_sim_reserve(wi_device *device, uint64_t bytes, char **address);
void wi_sim_unreserve(wi_device *device, void *address, uint64_t bytes);
wi_sim_range *wi_sim_range_of(wi_device *device, const void *address); /* NULL: in none */
bool wi_sim_has_room(const wi_device *device, size_t granules);
uint32_t wi_sim_new_handle(wi_device *device, uint32_t granules, bool on_host);
void wi_sim_end_handle(wi_device *device, uint32_t index);
void wi_sim_map_handle(wi_device *device, char *address, uint32_t index);
void wi_sim_unmap_handle(wi_device *device, char *address, uint32_t index);
void wi_sim_make_garbage(wi_device *device, char *address, uint64_t bytes);
void wi_sim_tell_held(wi_device *device);

/* Single pieces: host memory at an address, what work does to it, and the end of all when the device is closed. */
bool wi_sim_on_host(const wi_device *device, const void *address);
void wi_sim_do_on_host(const wi_device *device, const wi_sim_work *work);
void wi_sim_close_pieces(wi_device *device);
weir_status wi_sim_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address);
weir_status wi_sim_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes);
weir_status wi_sim_pool_allocate(wi_device *device, uint64_t bytes, void *stream, void **address);
weir_status wi_sim_pool_release(wi_device *device, void *address, uint64_t bytes, void *stream);
weir_status wi_sim_pool_trim(wi_device *device, uint64_t keep, uint64_t *held);
weir_status wi_sim_pool_held(wi_device *device, uint64_t *held);

/* Takes the lock; where the world runs by itself, some work is done first. */
void wi_sim_lock(wi_device *device);
void wi_sim_unlock(wi_device *device);
/* The point where the stream is; whether the device is past it, which the host knows from then on. */
wi_event wi_sim_point(wi_device *device, void *stream);
bool wi_sim_is_past(wi_device *device, wi_event event);
/* Returns the stream with the address of weir's stream: the same stream, or its successor if the stream has ended
 * without notice. */
wi_sim_stream *wi_sim_at(wi_device *device, void *stream);
/* WEIR_ERR_STREAM_MISUSE while it is captured. */
weir_status wi_sim_check_capture(const wi_sim_stream *stream, const char *what);

weir_status wi_sim_stream_create(wi_device *device, void **out);
weir_status wi_sim_stream_adopt(wi_device *device, void *native, void **out, uint64_t *identity);
bool wi_sim_stream_capturing(wi_device *device, void *stream);
void wi_sim_stream_destroy(wi_device *device, void *stream);
void wi_sim_stream_abandon(wi_device *device, void *stream);
weir_status wi_sim_record_all(wi_device *device, wi_event *out);
weir_status wi_sim_stream_synchronize(wi_device *device, void *stream);
weir_status wi_sim_synchronize(wi_device *device);
weir_status wi_sim_record(wi_device *device, void *stream, wi_event *out);
bool wi_sim_passed(wi_device *device, wi_event event);
weir_status wi_sim_wait(wi_device *device, wi_event event, uint64_t deadline);
weir_status wi_sim_order(wi_device *device, void *stream, wi_event event);
weir_status wi_sim_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream);
weir_status wi_sim_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream);
weir_status wi_sim_do_call(wi_device *device, void (*fn)(void *), void *user, void *stream);

#endif
