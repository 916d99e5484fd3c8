/* What the tests of the core share: cmocka, short checks that print the detail, gates that hold a stream, snapshots. */
#ifndef TESTS_CORE_H
#define TESTS_CORE_H

#include "info.h"

#include <weir/weir.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#define KIB     ((uint64_t)1 << 10)
#define MIB     ((uint64_t)1 << 20)
#define GRANULE (64 * KIB) /* of the host driver */
#define UNIT    256u

static inline void check_status(weir_status got, weir_status wanted, const char *call, const char *file, int line)
{
    if (got != wanted) {
        print_error("%s: %s (%s), not %s\n", call, weir_name_of(WEIR_NAMES_STATUS, got), weir_detail(),
                    weir_name_of(WEIR_NAMES_STATUS, wanted));
        _assert_true(0, call, file, line);
    }
}
#define ok(call)            check_status((call), WEIR_OK, #call, __FILE__, __LINE__)
#define fails(status, call) check_status((call), (status), #call, __FILE__, __LINE__)

/* The detail names each of the texts. */
static inline void check_detail(const char *text, const char *file, int line)
{
    if (!strstr(weir_detail(), text)) {
        print_error("\"%s\" is not in the detail: %s\n", text, weir_detail());
        _assert_true(0, text, file, line);
    }
}
#define detail_names(text) check_detail((text), __FILE__, __LINE__)

static inline weir_runtime *make_runtime_on(const char *device, uint64_t budget)
{
    weir_runtime_options options = {.struct_size = sizeof options, .budget = budget};
    weir_runtime *runtime;
    ok(weir_runtime_create(device, &options, &runtime));
    return runtime;
}

static inline weir_runtime *make_runtime(uint64_t budget)
{
    return make_runtime_on("host", budget);
}

/* Whether the tests themselves may write into blocks: those of make_runtime_here, on the host. */
static inline bool host_writes(void)
{
    return !getenv("WEIR_TEST_DEVICE");
}

/* On the device that WEIR_TEST_DEVICE names, or the host. */
static inline weir_runtime *make_runtime_here(uint64_t budget)
{
    const char *device = getenv("WEIR_TEST_DEVICE");
    return make_runtime_on(device ? device : "host", budget);
}

static inline weir_client *open_client(weir_runtime *runtime, const char *name, uint64_t guaranteed, uint64_t maximum)
{
    weir_client_options options = {
        .struct_size = sizeof options, .name = name, .guaranteed = guaranteed, .maximum = maximum};
    weir_client *client;
    ok(weir_client_create(runtime, &options, &client));
    return client;
}

static inline void *allocate(weir_client *client, size_t bytes, weir_stream stream, weir_class memory_class)
{
    void *pointer;
    ok(weir_alloc(client, bytes, stream, memory_class, &pointer));
    return pointer;
}

static inline weir_refusal last_refusal(void)
{
    weir_refusal refusal = {.struct_size = sizeof refusal};
    ok(weir_refusal_last(&refusal));
    return refusal;
}

/* Snapshots -------------------------------------------------------------------------------------------------------- */

enum { MOST_CLIENTS = 40 };
typedef struct snapshot {
    weir_stats device;
    weir_client_stats clients[MOST_CLIENTS];
    size_t count;
} snapshot;

static inline snapshot take_snapshot(weir_runtime *runtime)
{
    snapshot s;
    memset(&s, 0, sizeof s);
    s.device.struct_size = sizeof s.device;
    s.clients[0].struct_size = sizeof s.clients[0];
    ok(weir_snapshot(runtime, &s.device, s.clients, MOST_CLIENTS, &s.count));
    return s;
}

/* Freed, and not for everybody yet. */
static inline uint64_t unpassed(const snapshot *s)
{
    return s->device.pending + s->device.ordered;
}

/* A free that is pending until the stream has come to it, whatever the resource. */
static inline void free_behind(weir_client *client, void *pointer, weir_stream stream)
{
    ok(weir_use_record(client_details(client).runtime, (weir_block){.pointer = pointer}, stream));
    ok(weir_free(client, pointer, WEIR_STREAM_HOST));
}

/* The invariant that weir/stats.h states. */
static inline void check_sums(const snapshot *s)
{
    uint64_t live = 0, pending = 0, promised = 0, guaranteed = 0;
    for (size_t i = 0; i < s->count; i++) {
        const weir_client_stats *c = &s->clients[i];
        uint64_t by_class = 0, peak = 0;
        for (int k = 0; k < WEIR_CLASS_COUNT; k++) {
            by_class += c->live_class[k];
            peak += c->peak_class[k];
        }
        assert_int_equal(by_class, c->live);
        assert_int_equal(peak, c->peak);
        assert_true(c->live + c->pending <= c->peak);
        assert_true(c->live + c->pending + c->promised <= c->maximum);
        live += c->live;
        pending += c->pending;
        promised += c->promised;
        guaranteed += c->guaranteed;
    }
    const weir_stats *d = &s->device;
    assert_int_equal(d->clients, s->count);
    assert_int_equal(d->live, live);
    assert_int_equal(d->pending, pending);
    assert_int_equal(d->promised, promised);
    assert_int_equal(d->guaranteed, guaranteed);
    assert_int_equal(d->held, d->live + d->pending + d->cached + d->spare);
    assert_true(d->held <= d->budget && d->held <= d->peak_held && d->live + d->pending <= d->peak);
}

/* Nothing has changed: not a byte, not a count. (weir_stats ends in padding, which nobody promises anything about.) */
static inline void check_same(weir_runtime *runtime, const snapshot *before, const char *file, int line)
{
    snapshot now = take_snapshot(runtime);
    size_t device = offsetof(weir_stats, clients) + sizeof now.device.clients;
    bool same = now.count == before->count && memcmp(&now.device, &before->device, device) == 0 &&
                memcmp(now.clients, before->clients, now.count * sizeof now.clients[0]) == 0;
    _assert_true(same, "the snapshot is as before", file, line);
}
#define unchanged(runtime, before) check_same((runtime), &(before), __FILE__, __LINE__)

/* ThreadSanitizer makes everything slow; what repeats itself with small differences is cut short under it. */
#if defined __SANITIZE_THREAD__
#define UNDER_TSAN 1
#elif defined __has_feature
#if __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#endif
#endif
#ifndef UNDER_TSAN
#define UNDER_TSAN 0
#endif

static inline void check_empty(weir_runtime *runtime)
{
    snapshot s = take_snapshot(runtime);
    check_sums(&s);
    assert_int_equal(s.device.live + s.device.pending + s.device.promised, 0);
    assert_int_equal(s.device.allocations, s.device.frees);
}

/* Does not wait for what others free. */
static inline weir_status take_at_once(weir_client *client, size_t bytes, weir_stream stream, void **out)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = bytes,
                            .stream = stream,
                            .memory_class = WEIR_CLASS_KV,
                            .flags = WEIR_ALLOC_NO_WAIT};
    weir_block block = {NULL, 0};
    weir_status status = weir_alloc_with(client, &request, &block);
    *out = block.pointer;
    return status;
}

/* Gates: put on a stream, they hold it until they are opened ------------------------------------------------------- */

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open, reached;
    unsigned waiting;  /* threads; under all_gates_lock */
    struct gate *next; /* at which some wait */
} gate;

#define GATE                                                                                                           \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false, 0, NULL                                     \
    }

/* One of each in a program, of however many files. */
__attribute__((weak)) pthread_mutex_t all_gates_lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((weak)) gate *all_gates;

static inline void wait_at_gate(gate *g, bool comes)
{
    pthread_mutex_lock(&all_gates_lock);
    if (comes && g->waiting++ == 0) {
        g->next = all_gates;
        all_gates = g;
    } else if (!comes && --g->waiting == 0) {
        gate **link = &all_gates;
        while (*link != g)
            link = &(*link)->next;
        *link = g->next;
    }
    pthread_mutex_unlock(&all_gates_lock);
}

static inline void pass_gate(void *user)
{
    gate *g = user;
    wait_at_gate(g, true);
    pthread_mutex_lock(&g->lock);
    g->reached = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
    wait_at_gate(g, false);
}

static inline void open_gate(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Until somebody is held there. */
static inline void wait_for_gate(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

/* In the place of cmocka's own, which every assertion of it calls: a test that fails leaves nobody waiting at its shut_gates,
 * which may lie on its stack, so that its teardown ends. */
__attribute__((weak)) void _fail(const char *const file, const int line)
{
    void (*fail_test)(const char *, int);
    void *symbol = dlsym(RTLD_NEXT, "_fail");
    for (bool waiting = true; waiting; sched_yield()) {
        pthread_mutex_lock(&all_gates_lock);
        waiting = all_gates != NULL;
        for (gate *g = all_gates; g; g = g->next)
            open_gate(g);
        pthread_mutex_unlock(&all_gates_lock);
    }
    memcpy(&fail_test, &symbol, sizeof symbol);
    fail_test(file, line);
    abort();
}

/* Whether the thread that runs the tests sleeps: it waits for something, and not for a processor. */
static inline bool tests_thread_sleeps(void)
{
    char name[64], text[128] = "";
    snprintf(name, sizeof name, "/proc/self/task/%ld/stat", (long)getpid());
    int file = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    const char *state = length > 0 ? strrchr(text, ')') : NULL;
    return !state || state[2] == 'S';
}

/* Opens it when the tests' thread was found asleep so often that it waits for the gate, however slow the machine is; it may wake
 * from time to time to look. */
static inline void *open_gate_later(void *user)
{
    enum { LOOKS = 6, MOST = 4000 };
    for (int asleep = 0, looks = 0; asleep < LOOKS && looks < MOST; looks++) {
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
        asleep += tests_thread_sleeps();
    }
    open_gate(user);
    return NULL;
}

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Small numbers in an order that a seed decides. */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
