/* The driver "sim", from the side of the program that drives the simulated device: which work runs, when, and which
 * calls fail.
 *
 * Deterministic: time is virtual, and queued work is done only when the world is told to run, or when a host thread
 * waits, in an order that follows from the seed. Device memory has no bytes, and touching it is a segmentation fault;
 * what it holds is modelled as a version per unit of 256 bytes of physical memory, so that contents move with their
 * handle and a handle that is mapped twice is seen at both addresses. What is copied to the host has bytes there that
 * tell the version, and has it again when they are copied back.
 *
 * A watcher is told every call as it is made; the device draws no conclusions, that is what sim/oracle.h is for. A
 * program that is linked with the device has the driver; libweir has not. */
#ifndef WI_SIM_H
#define WI_SIM_H

#include "driver/driver.h"

extern const wi_driver wi_sim_driver;

/* WI_SIM_OVER: the most streams at once that have ended without notice and have work, or are known to weir. */
enum { WI_SIM_UNIT = 256, WI_SIM_STREAMS = 64, WI_SIM_OVER = 4 };
enum { WI_SIM_HOST_TIMES = 4 }; /* of the host's memory so many times the device's can be mapped */

/* Versions: what a unit of memory holds. Users' own begin at WI_SIM_FIRST_VERSION. */
enum { WI_SIM_GARBAGE = 0, WI_SIM_ZERO = 1, WI_SIM_FIRST_VERSION = 256 + 2 };
/* The owner of a user's version is (version - WI_SIM_FIRST_VERSION) modulo WI_SIM_OWNERS. Odd owners share nothing: a
 * read that expects WI_SIM_VISIBLE | owner finds no version of theirs but its own, and if it is odd itself no other
 * owner's either. */
enum { WI_SIM_OWNERS = 64 };
#define WI_SIM_VISIBLE (UINT32_C(1) << 31)

/* The calls that can be made to fail, and some that are only counted. */
typedef enum wi_sim_call {
    WI_SIM_OPEN,
    WI_SIM_MEMORY,
    WI_SIM_RESERVE,
    WI_SIM_CREATE,
    WI_SIM_MAP,
    WI_SIM_UNMAP,
    WI_SIM_STREAM_CREATE,
    WI_SIM_SYNCHRONIZE,
    WI_SIM_RECORD,
    WI_SIM_WAIT,
    WI_SIM_ORDER,
    WI_SIM_COPY,
    WI_SIM_FILL,
    WI_SIM_CALL,
    WI_SIM_ALLOCATE,
    WI_SIM_RELEASE,
    WI_SIM_POOL_ALLOCATE,
    WI_SIM_POOL_RELEASE,
    WI_SIM_POOL_TRIM,
    WI_SIM_CREATE_ON_HOST,
    WI_SIM_FALLIBLE,
    WI_SIM_DESTROY = WI_SIM_FALLIBLE,
    WI_SIM_PASSED,
    WI_SIM_CALLS
} wi_sim_call;

/* Streams have numbers from 1; 0 is the host, whose work is done at once. Work is numbered per stream from 1. */
typedef struct wi_sim_watcher {
    void *user;
    /* Work that touches [address, +bytes) was queued as number `sequence`. `own`: by the runtime, else by a user. */
    void (*touch)(void *user, unsigned stream, uint64_t sequence, const void *address, uint64_t bytes, bool write,
                  bool own);
    void (*record)(void *user, unsigned stream, uint64_t sequence);
    void (*order)(void *user, unsigned stream, unsigned other, uint64_t sequence);
    void (*pass)(void *user, unsigned stream, uint64_t sequence); /* the host knows that the work is done */
    /* Bytes that the device has given out: handles, single pieces by their requested size, and the pool's memory. */
    void (*hold)(void *user, uint64_t bytes);
    /* Called for each granule; `granule` is the number of the granule of memory. */
    void (*map)(void *user, const void *address, uint32_t granule);
    void (*unmap)(void *user, const void *address, uint32_t granule);
    void (*wrong)(void *user,
                  const char *what); /* a call that no driver would survive, or contents that are not right */
} wi_sim_watcher;

typedef struct wi_sim_options {
    uint64_t bytes, granule; /* 0: 256 MiB, 2 MiB */
    uint64_t seed;
    bool by_itself;   /* work gets done with every call, without anyone running the world */
    bool unreachable; /* memory of the host's cannot be mapped at its addresses */
    const wi_sim_watcher *watcher;
} wi_sim_options;

/* Faults: the calls of `kind` (WI_SIM_CALLS: any that can fail) are counted from the arming, and the one numbered `at`,
 * from 0, fails with `status`; `stay`: all from then on. at < 0: none. */
typedef struct wi_sim_fault {
    wi_sim_call kind;
    long at;
    bool stay;
    weir_status status;
} wi_sim_fault;

/* How the devices opened from now on are; NULL: by themselves. */
void wi_sim_configure(const wi_sim_options *options);
uint64_t wi_sim_now(void); /* for wi_clock */

void wi_sim_arm(const wi_sim_fault *first, const wi_sim_fault *second); /* of all devices; NULL: no fault */
unsigned wi_sim_faults(void);                                           /* how many happened since then */
uint64_t wi_sim_calls(wi_sim_call kind); /* made so far; WI_SIM_FALLIBLE: all that can fail */

/* For the world: runs up to `most` pieces of the stream's work, as far as they can run; 0: of any streams. */
unsigned wi_sim_run(wi_device *device, unsigned stream, unsigned most);
void wi_sim_stall(wi_device *device, unsigned stream, uint64_t nanoseconds);
void wi_sim_seed(wi_device *device, uint64_t seed);    /* for the choices from here on */
void wi_sim_resize(wi_device *device, uint64_t bytes); /* another process takes memory, or gives it back */
uint64_t wi_sim_done(wi_device *device, unsigned stream);
uint64_t wi_sim_queued(wi_device *device, unsigned stream);
unsigned wi_sim_number(const void *stream);
/* The number of the granule of memory there; -1: nothing is mapped; -2: the host's memory, given out by allocate. From
 * wi_sim_first_of_host on, up to wi_sim_granules, they are of handles of the host's memory. */
uint32_t wi_sim_first_of_host(const wi_device *device);
uint32_t wi_sim_granules(const wi_device *device);
long wi_sim_memory_at(wi_device *device, const void *address);
/* Returns the bytes of handles without a used granule; *room gets the bytes that the device could still give out. */
uint64_t wi_sim_idle(wi_device *device, bool (*used)(void *user, uint32_t granule), void *user, uint64_t *room);
/* Begins or ends a capture of the stream into a graph that is never launched. */
void wi_sim_capture(wi_device *device, void *stream, bool captured);
/* Begin and end a capture of the stream into a graph that can be launched: work that is queued between the two calls
 * goes into the graph alone. NULL: no host memory. */
typedef struct wi_sim_graph wi_sim_graph;
bool wi_sim_capture_graph(wi_device *device, void *stream);
wi_sim_graph *wi_sim_captured(wi_device *device, void *stream);
void wi_sim_launch(wi_device *device, const wi_sim_graph *graph, void *stream);
void wi_sim_graph_end(wi_sim_graph *graph);
/* Ends the stream without notice, as its maker could, and makes a new stream, *next, with the same address. Queued work
 * goes on. From now on the driver's calls for the ended stream act on the new stream. False: too many streams that
 * ended without notice still have work. */
bool wi_sim_replace(wi_device *device, void *stream, void **next);
void *wi_sim_address(const void *stream); /* what weir is told of a stream */
void wi_sim_run_all(wi_device *device);   /* until no work is left that could ever run */

/* A user's own calls, past weir, which never fail. wi_sim_touch queues work that writes `version`, or expects to read
 * that version; stream NULL: on the host, now. wi_sim_follow makes `stream` wait for all queued work of `other`. */
void wi_sim_touch(wi_device *device, void *stream, const void *address, uint64_t bytes, bool write, uint32_t version);
void wi_sim_follow(wi_device *device, void *stream, void *other);

/* A plane: a number per unit of each granule of memory. Cheap where neighbours agree. */
typedef struct wi_plane_row {
    uint32_t all; /* of every unit, unless split */
    bool split;
    uint32_t *units; /* kept once it was needed */
} wi_plane_row;

typedef struct wi_plane {
    wi_plane_row *rows;
    size_t count;
    uint32_t units; /* per row */
} wi_plane;

bool wi_plane_init(wi_plane *plane, size_t rows, uint32_t units);
void wi_plane_clear(wi_plane *plane);
bool wi_plane_set(wi_plane *plane, size_t row, uint32_t first, uint32_t count, uint32_t value); /* false: no memory */
/* How many units from `first` on, at most `most`, have the number *value. */
uint32_t wi_plane_run(const wi_plane *plane, size_t row, uint32_t first, uint32_t most, uint32_t *value);

#endif
