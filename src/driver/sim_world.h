/* Inside the driver sim: the device and its streams. sim.c has the memory, sim_stream.c the streams and the time. */
#ifndef WI_SIM_WORLD_H
#define WI_SIM_WORLD_H

#include "driver/sim.h"

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
} wi_sim_work;

/* Laws: done <= queued; number n of the work that is not done lies at ring[n & (capacity - 1)]. */
typedef struct wi_sim_stream {
    unsigned number;
    wi_device *device;
    uint64_t queued, done, stalled_until;
    wi_sim_work *ring;
    uint64_t capacity; /* a power of two */
    struct wi_sim_stream *next_ended;
} wi_sim_stream;

typedef struct wi_sim_range {
    char *base;
    uint64_t bytes;
    uint32_t *handles; /* per granule: index + 1 */
} wi_sim_range;

typedef struct wi_sim_handle {
    bool used;
    uint32_t stamp; /* part of the handle's value, which changes as drivers' do */
    uint32_t maps;
} wi_sim_handle;

enum { WI_SIM_RANGES = 16 };

struct wi_device {
    pthread_mutex_t lock; /* everything; a program of several threads may have a simulated device, too */
    uint64_t bytes, granule, random;
    bool by_itself;
    wi_sim_watcher watcher;
    wi_sim_range ranges[WI_SIM_RANGES];
    wi_sim_handle *handles;
    size_t handle_count, handles_used, next_handle;
    wi_plane contents;
    wi_sim_stream *streams[WI_SIM_STREAMS]; /* [number - 1] */
    wi_sim_stream *ended;                   /* their events are still asked about */
};

/* Fault or OK; counts the call. */
weir_status wi_sim_enter(wi_sim_call kind);
void wi_sim_wrong(wi_device *device, const char *format, ...) WEIR_PRINTF(2, 3);
uint64_t wi_sim_random(uint64_t *state);
/* What a piece of work does to the contents. */
void wi_sim_do(wi_device *device, const wi_sim_work *work);

weir_status wi_sim_stream_create(wi_device *device, void **out);
void wi_sim_stream_destroy(wi_device *device, void *stream);
weir_status wi_sim_stream_synchronize(wi_device *device, void *stream);
weir_status wi_sim_record(wi_device *device, void *stream, wi_event *out);
bool wi_sim_passed(wi_device *device, wi_event event);
weir_status wi_sim_wait(wi_device *device, wi_event event, uint64_t deadline);
weir_status wi_sim_order(wi_device *device, void *stream, wi_event event);
weir_status wi_sim_copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream);
weir_status wi_sim_fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream);
weir_status wi_sim_do_call(wi_device *device, void (*fn)(void *), void *user, void *stream);

#endif
