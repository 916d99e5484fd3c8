/* The stub of libcuda.so.1, inside. It does what the real one promises and no more: where that one tolerates a mistake or
 * leaves it undefined, this one answers with an error or dies, so that the mistake is seen.
 *
 * Of several devices each has memory, contexts, streams, events and default streams of its own, and waits for its own work alone.
 * The real one refuses what the streams and events of another context are recorded, waited for and destroyed by, access from
 * a device to memory of one that is no peer, and work of a stream's on such memory. This one has no peers; and it wants a device's
 * context current also for its handles, addresses, pieces and pools, and events waited for where they were recorded, where
 * the real one would do without.
 *
 * One lock guards all bookkeeping. Streams have a lock each for their work, taken after it. */
#ifndef STUB_H
#define STUB_H

#include "driver/cuda_api.h"
#include "control.h"
#include "users.h"

enum {
    STUB_INVALID_VALUE = 1,
    STUB_NOT_INITIALIZED = 3,
    STUB_INVALID_DEVICE = 101,
    STUB_INVALID_CONTEXT = 201,
    STUB_INVALID_HANDLE = 400,
    STUB_NOT_FOUND = 500,
    STUB_NOT_PERMITTED = 800,
    STUB_CAPTURE_BROKEN = 901,
    STUB_CAPTURE_ISOLATION = 905,
    STUB_CAPTURED_EVENT = 907,
};

/* Beside CU_STREAM_CAPTURE_STATUS_NONE. */
enum { STUB_CAPTURE_ACTIVE = 1, STUB_CAPTURE_INVALIDATED = 2 };

enum { STUB_GRANULE = 2 * 1024 * 1024, STUB_MOST_DEVICES = 80, STUB_MOST_CONTEXTS = 16 };

enum stub_function {
#define X(name, version, parameters) STUB_##name,
    WI_CUDA_FUNCTIONS(X) STUB_USERS(X)
#undef X
        STUB_FUNCTIONS
};

/* What a function asks for before it works. */
enum {
    STUB_ANYTIME = 1,    /* works before cuInit, and when the device is lost */
    STUB_IN_CONTEXT = 2, /* a context must be current */
    STUB_UNSAFE = 4,     /* breaks a capture of another thread, unless this one has the relaxed mode */
};

struct CUctx_st {
    int device;
    uint64_t retained; /* a foreign one, which a test makes current, has 1 for ever */
    bool foreign;
    struct CUstream_st *legacy; /* once it was meant */
};

/* How many there are of a device's. */
typedef struct stub_counts {
    uint64_t handles, host_handles, mappings, reservations, streams, events, allocations, pinned, registered, pools;
} stub_counts;

typedef struct stub_device {
    uint64_t total, taken, used;
    int memory;        /* a memfd, once something was created */
    uint8_t *granules; /* 1: in use */
    struct CUctx_st primary, foreign;
    stub_counts count;
} stub_device;

typedef struct stub_state {
    pthread_mutex_t lock;
    bool initialized, lost, capturing, forbidden, unmanaged, unpooled, unreachable;
    int devices;
    stub_device device[STUB_MOST_DEVICES];
    uint64_t captures_broken, dead_streams_used, graphs;
    void (*reuse)(void);
    uint64_t calls[STUB_FUNCTIONS];
    struct {
        int after, code; /* the after-th call from now fails */
    } fail[STUB_FUNCTIONS];
} stub_state;

extern stub_state stub;

/* To be called first by every function: counts the call, and answers what it has to fail with. */
CUresult stub_enter(enum stub_function function, unsigned rules);
#define STUB_CALL(function, rules)                                                                                     \
    do {                                                                                                               \
        CUresult result_ = stub_enter(STUB_##function, rules);                                                         \
        if (result_ != CUDA_SUCCESS)                                                                                   \
            return result_;                                                                                            \
    } while (0)

void stub_init(void);
/* With the lock held: so much more of the device is in use, or less. */
void stub_use(stub_device *device, uint64_t bytes, bool more);
/* With the lock held: what this and other processes have of it. */
uint64_t stub_in_use(const stub_device *device);
struct CUctx_st *stub_current(void); /* NULL: none */
/* Whether the current context is one of that device; with one current. */
bool stub_is_here(int device);
/* With the lock held: the device whose memory lies at the address, or -1. */
int stub_mapped_on(CUdeviceptr address);
int stub_allocated_on(CUdeviceptr address);
int stub_capture_mode(void);
size_t stub_context_depth(void);

/* Something is free again: has it reused, if that is wanted. Without the lock. */
void stub_freed(void);

/* Set while the thread runs a host function, from which no call is allowed. */
extern _Thread_local bool stub_in_host_function;

#define X(name, version, parameters) CUresult stub_##name parameters;
WI_CUDA_FUNCTIONS(X)
STUB_USERS(X)
#undef X

#endif
