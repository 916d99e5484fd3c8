/* A bridge, inside: a client of weir seen through ONNX Runtime's table of an allocator. */
#ifndef WI_ONNXRUNTIME_BRIDGE_H
#define WI_ONNXRUNTIME_BRIDGE_H

#include "onnx/bridge/api.h"
#include "runtime/runtime.h"

#include <weir/onnxruntime.h>
#include <weir/block_pool.h>

/* An OrtAllocator of the bridge, for a kind of memory. */
typedef struct wi_ort_table {
    ort_allocator table; /* first: ONNX Runtime's pointer is ours */
    weir_onnxruntime *bridge;
    ort_memory_info *info; /* NULL: the bridge has not this kind */
    weir_kind kind;
    bool stays; /* ONNX Runtime did not give it up, and may look at it as long as its environment lives */
} wi_ort_table;

/* Runs of blocks of a pool, by their first block: how many. */
typedef struct wi_ort_runs {
    weir_block_pool_member *member; /* NULL: the client's runtime serves */
    weir_block_pool_view view;
    struct wi_ort_run {
        _Atomic(uint32_t) length; /* 0: no run begins there */
        weir_stream stream;       /* which it was taken on */
    } * at;                       /* by block of the pool */
} wi_ort_runs;

struct wi_ort_follower;

/* Followers: streams of weir's, each for a stream that ONNX Runtime made itself; streams.c. Weir is not told when ONNX
 * Runtime destroys a stream. So from this many followers on, the list is looked through, and followers without blocks
 * and requests are ended. */
enum { WI_ORT_FOLLOWERS_MANY = 16 };

typedef struct wi_ort_followers {
    pthread_mutex_t lock;
    struct wi_ort_follower *first;
    size_t count, many; /* of the list; and the count at which the list is looked through next */
    uint64_t pressure;  /* id of the pressure callback that gives back the blocks in hand; 0: none yet */
    atomic_uint ever;   /* how many there have been */
} wi_ort_followers;

/* Pinned blocks that were freed and serve again when the device is past that; memory.c. */
enum { WI_ORT_KEPT_MOST = 32, WI_ORT_KEPT_BYTES = 32 << 20 };

typedef struct wi_ort_kept {
    void *pointer;
    size_t bytes;
    wi_event past;
} wi_ort_kept;

typedef struct wi_ort_pinned {
    pthread_mutex_t lock;
    uint64_t
        pressure; /* the id of the callback, with the host's runtime, that has them given up; 0: there is none yet */
    size_t count, bytes;
    wi_ort_kept kept[WI_ORT_KEPT_MOST];
} wi_ort_pinned;

struct weir_onnxruntime {
    wi_ort_table device, pinned;
    uint64_t number; /* never used by another bridge, even at the same address */
    const ort_api *api;
    ort_env *env;
    weir_client *client;
    weir_runtime *runtime;
    char name[WI_NAME_BYTES]; /* copy of the device's name, for messages after the bridge is unregistered, too */
    bool on_host;
    weir_stream stream;
    void *native; /* of the stream; NULL: weir knows none */
    void (*throw_bad_alloc)(void);
    wi_ort_runs runs;
    wi_ort_followers followers;
    wi_ort_pinned kept;
    atomic_bool loading; /* on host: what is asked for now lives as long as the session */
    atomic_bool ended;   /* unregistered: nothing is served any more */
    atomic_uint_fast64_t live, blocks, on_stream, unknown, reserved, foreign, refused;
    atomic_uint_fast64_t unfreed; /* as `live`, which counts a block until its free is done with the bridge */
    pthread_mutex_t lock;
    char words[1024];    /* of the last refusal; guarded by lock */
    weir_status refusal; /* its status; likewise */

    /* Under the lock of the registry. */
    bool registered;
    weir_onnxruntime *next; /* in the list of those that are registered, or ended */
};

/* What both ways in share; bridge.c. No other thread has the bridge yet. */
weir_status wi_ort_check(const weir_onnxruntime_options *options, const char *call);
weir_status wi_ort_open(const weir_onnxruntime_options *options, const char *call, weir_onnxruntime **out);
/* Ends the bridge. Frees everything but the record, which sessions that are still there may call. */
void wi_ort_end(weir_onnxruntime *bridge);
void wi_ort_free(weir_onnxruntime *bridge);
/* WEIR_ERR_BUSY while blocks are live. */
weir_status wi_ort_check_idle(const weir_onnxruntime *bridge, const char *call);
/* The options, as weir_onnxruntime_register compares them. */
bool wi_ort_same(const weir_onnxruntime *bridge, const weir_onnxruntime_options *options);

/* registry.c: for the log; during a change it hears of it afterwards, as no callback runs with the lock held. */
void wi_ort_say(weir_log_level level, const char *format, ...) WEIR_PRINTF(2, 3);
/* Is this thread between enter and leave of it? */
bool wi_ort_is_inside(const weir_onnxruntime *bridge);

/* The registered bridge of that environment (NULL: any) and device, or NULL. */
weir_onnxruntime *wi_ort_registered(const ort_env *env, const char *device);
/* The record of one that has ended stays for good. */
void wi_ort_keep_record(weir_onnxruntime *bridge);

/* allocator.c */
void wi_ort_table_init(wi_ort_table *table, weir_onnxruntime *bridge, weir_kind kind);
bool wi_ort_is_ours(const ort_allocator *allocator); /* of some bridge */
/* Device memory of the bridge, in the order of a stream that weir knows, or WEIR_STREAM_HOST. */
weir_status wi_ort_device_alloc(weir_onnxruntime *bridge, size_t bytes, weir_stream stream, weir_class memory_class,
                                void **out);
weir_status wi_ort_device_free(weir_onnxruntime *bridge, void *pointer, weir_stream stream);
/* Tells how the free of a pointer went wrong. */
void wi_ort_report(weir_onnxruntime *bridge, const void *pointer, weir_status status);

/* memory.c: the same as runs of blocks of a pool. */
weir_status wi_ort_runs_init(wi_ort_runs *runs, weir_block_pool_member *member);
void wi_ort_runs_destroy(wi_ort_runs *runs);
weir_status wi_ort_runs_alloc(wi_ort_runs *runs, size_t bytes, weir_stream stream, void **out);
weir_status wi_ort_runs_free(wi_ort_runs *runs, void *pointer, weir_stream stream);
/* WEIR_STREAM_HOST also where no run begins. */
weir_stream wi_ort_runs_stream(const wi_ort_runs *runs, const void *pointer);

/* streams.c: device memory on a stream that only ONNX Runtime knows, which is alive during the call. */
weir_status wi_ort_follow(weir_onnxruntime *bridge, void *native, size_t bytes, void **out);
/* A free where there may be such streams. */
weir_status wi_ort_let_go(weir_onnxruntime *bridge, const wi_ort_table *table, void *pointer);
/* Gives back the blocks in hand, and ends the followers. */
void wi_ort_followers_end(weir_onnxruntime *bridge);
static inline bool wi_ort_knows_streams(const weir_onnxruntime *bridge)
{
    return bridge->on_host ||
           (bridge->native && atomic_load_explicit(&bridge->followers.ever, memory_order_relaxed) == 0);
}

/* memory.c. `synchronized`: the device was waited for; else the free is behind the sessions' stream. */
weir_status wi_ort_pinned_alloc(weir_onnxruntime *bridge, size_t bytes, void **out);
weir_status wi_ort_pinned_free(weir_onnxruntime *bridge, void *pointer, bool synchronized);
void wi_ort_pinned_drop(weir_onnxruntime *bridge);
void wi_ort_pinned_end(weir_onnxruntime *bridge);

/* A pressure callback of a bridge's is called no more, and no call of it is under way: a bridge may be closed inside a
 * callback of the program's, and its own wait for no other. */
static inline weir_status wi_ort_stop_watching(weir_runtime *runtime, uint64_t id)
{
    return wi_pressures_remove(&runtime->ledger.pressures, id, true);
}

/* Turns ONNX Runtime's status into words, and releases it; false for success. */
bool wi_ort_failed(const ort_api *api, ort_status *status, char *text, size_t capacity);

#endif
