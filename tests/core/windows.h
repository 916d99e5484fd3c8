/* Windows between threads: one thread stands at a place in the middle of an operation while another acts. Places are those of
 * base/probes.h, and the calls of a driver, which is the lender of tests/uses. */
#ifndef TESTS_CORE_WINDOWS_H
#define TESTS_CORE_WINDOWS_H

#include "base/probes.h"
#include "core.h"
#include "runtime/runtime.h"
#include "uses/lender.h"

#include <semaphore.h>

enum { BUDGET = 64 << 20, BLOCK = 8 << 20, CACHED = 100 << 10 };

/* A call of the driver that a thread may stand in, or a window. */
typedef enum place { NOWHERE, IN_RECORD, IN_CAPTURING, IN_ORDER, IN_ABANDON, IN_FILL, AT_WINDOW } place;

/* A thread that acts, and stands once where it is told to. */
typedef struct actor {
    pthread_t thread;
    place at;
    wi_window_point window;
    void *on;       /* the driver's record; NULL: any */
    bool past_call; /* it stands when the driver has done it */
    sem_t reached, go;
    void (*act)(struct actor *actor);
    weir_status status;
    atomic_bool stood, over;
    struct fixture *f;
    weir_stream stream;
    void *pointer;
    uint64_t bytes;
    uint32_t flags;
    lent *native;
    weir_client *client;
    weir_capture_pool *graph;
} actor;

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    gate gate;
} fixture;

/* With "thread cache" as that option; NULL: as it is. */
weir_runtime *windows_runtime(const char *cache);
fixture *windows_fixture(const char *cache);
int windows_tear_down(void **state);

/* The actor begins, and has come to its place when it returns true; false: it came to its end first. */
bool begin(actor *a);
/* The actor begins, and is given some time to come to its end: a mended weir may let it wait for the one that stands. */
void begin_beside(actor *a);
void let_go_on(actor *a);
/* The end of one that stood, or was begun beside. */
void finish(actor *a);

/* Calls of the driver under way, and what was seen of them. */
extern atomic_int windows_most_records;      /* events that were recorded on one stream at once */
extern atomic_int windows_destroyed_in_call; /* records that were forgotten while a call was about them */

extern atomic_bool windows_fail_orders; /* the driver orders no stream behind another */
extern atomic_bool windows_fail_fills;  /* and fills nothing */

/* The driver's record of the stream. */
void *record_of_stream(fixture *f, weir_stream stream);
/* Acts. */
void act_free(actor *a);
void act_allocate(actor *a);
void act_register(actor *a);
void act_unregister(actor *a);
void act_close(actor *a);
void act_snapshot(actor *a);

#endif
