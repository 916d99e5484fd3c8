#include "info.h"
#include "resources/contract.h"

/* Runtimes --------------------------------------------------------------------------------------------------------- */

int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = place.stack};
    assert_non_null(f);
    ok(weir_runtime_create(place.device, &options, &f->runtime));
    f->features = runtime_details(f->runtime).features;
    f->one = open_client(f->runtime, "one", 0, 0);
    f->two = open_client(f->runtime, "two", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    for (int i = 0; i < MOST_HOLDS; i++)
        f->holds[i] = (gate)GATE;
    *state = f;
    return 0;
}

/* All of it is back where it came from. */
int tear_down(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < f->held; i++)
        open_gate(&f->holds[i]);
    for (int i = 0; i < f->opening; i++)
        pthread_join(f->openers[i], NULL);
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    drain(f);
    check_empty(f->runtime);
    ok(weir_client_destroy(f->one));
    ok(weir_client_destroy(f->two));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

bool chooses_addresses(void)
{
    return strstr(place.stack, "mapped") || strstr(place.stack, "segments");
}

bool hands_on(void)
{
    return (strstr(place.stack, "mapped") || strstr(place.stack, "segments")) && !strstr(place.stack, "guard");
}

bool thread_caches(void)
{
    const char *cache = getenv("WEIR_THREAD_CACHE");
    return strcmp(place.stack, "mapped") == 0 && (!cache || strcmp(cache, "0") != 0);
}

bool freeing_waits(void)
{
    return strstr(place.stack, "direct") && strcmp(place.device, "cuda:0") == 0;
}

void drain(const fixture *f)
{
    ok(weir_runtime_trim(f->runtime, &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = UINT64_MAX},
                         NULL));
}

snapshot drained(const fixture *f)
{
    drain(f);
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    return s;
}

/* Streams ---------------------------------------------------------------------------------------------------------- */

static void nothing(void *user)
{
    (void)user;
}

static void busy_simulation(fixture *f, weir_stream stream, int pieces)
{
    for (int i = 0; i < pieces; i++)
        ok(weir_call(f->runtime, nothing, NULL, stream));
}

static void wait_at(void *user)
{
    gate *g = user;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 3;
    pthread_mutex_lock(&g->lock);
    while (!g->open && pthread_cond_timedwait(&g->changed, &g->lock, &end) == 0)
        ;
    pthread_mutex_unlock(&g->lock);
}

gate *hold_up(fixture *f, weir_stream stream)
{
    enum { MUCH = 4000 };
    assert_true(f->held < MOST_HOLDS);
    gate *g = &f->holds[f->held++];
    if (place.simulated)
        busy_simulation(f, stream, MUCH);
    else
        ok(weir_call(f->runtime, wait_at, g, stream));
    return g;
}

void let_go(gate *g)
{
    open_gate(g);
}

void let_go_later(fixture *f, gate *g)
{
    assert_true(f->opening < MOST_HOLDS);
    assert_int_equal(pthread_create(&f->openers[f->opening++], NULL, open_gate_later, g), 0);
}

static void sleep_for(void *user)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)(uintptr_t)user * 1000}, NULL);
}

void hold_up_for(fixture *f, weir_stream stream, unsigned microseconds)
{
    if (place.simulated)
        busy_simulation(f, stream, 40);
    else
        ok(weir_call(f->runtime, sleep_for, (void *)(uintptr_t)microseconds, stream));
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

weir_block_details details_of(const void *pointer)
{
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(pointer, &d));
    return d;
}

void *take(weir_client *client, size_t bytes, weir_stream stream)
{
    return allocate(client, bytes, stream, WEIR_CLASS_ACTIVATIONS);
}

weir_status try_take(weir_client *client, size_t bytes, weir_stream stream, uint32_t flags, weir_block *out)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = bytes,
                            .stream = stream,
                            .memory_class = WEIR_CLASS_ACTIVATIONS,
                            .flags = flags};
    return weir_alloc_with(client, &request, out);
}

uint64_t charge_of(const fixture *f, size_t bytes)
{
    void *p = allocate(f->one, bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS);
    uint64_t charged = details_of(p).charged;
    ok(weir_free(f->one, p, WEIR_STREAM_HOST));
    drain(f);
    assert_true(charged >= bytes);
    return charged;
}

size_t bytes_for(const fixture *f, uint64_t charge)
{
    uint64_t bytes = charge - (charge_of(f, charge) - charge);
    assert_int_equal(charge_of(f, bytes), charge);
    return bytes;
}

void take_pieces(fixture *f, weir_client *client, uint64_t bytes, void **pieces)
{
    size_t size = bytes_for(f, PIECE);
    for (uint64_t i = 0; i < bytes / PIECE; i++)
        pieces[i] = take(client, size, WEIR_STREAM_HOST);
}

void give_pieces(fixture *f, weir_client *client, uint64_t bytes, void **pieces)
{
    for (uint64_t i = 0; i < bytes / PIECE; i++)
        ok(weir_free(client, pieces[i], WEIR_STREAM_HOST));
    drain(f);
}

bool filled(weir_runtime *runtime, const void *pointer, uint8_t value, size_t bytes)
{
    if (place.simulated)
        return true;
    unsigned char *copy = malloc(bytes);
    bool same = copy && weir_copy(runtime, copy, pointer, bytes, WEIR_STREAM_HOST) == WEIR_OK && copy[0] == value &&
                memcmp(copy, copy + 1, bytes - 1) == 0;
    free(copy);
    return same;
}
