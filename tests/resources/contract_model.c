/* Random steps beside a model that knows every live block: no two overlap, each keeps its bytes, and the ledger says what
 * the model says after every step. */
#include "resources/contract.h"

enum { MOST = 96 };

typedef struct owned {
    weir_block block;
    size_t bytes;
    uint64_t charged;
    int client, stream;
    uint8_t stamp;
} owned;

typedef struct model {
    fixture *f;
    weir_client *clients[2];
    weir_stream streams[3];
    owned live[MOST];
    size_t count;
    uint64_t bytes[2], random;
    uint64_t allocated, refused, resized;
} model;

static uint64_t draw(model *m, uint64_t below)
{
    return next_random(&m->random) % below;
}

static size_t draw_bytes(model *m)
{
    static const size_t most[] = {600, 5000, 70000, 400000, 1500000};
    return draw(m, most[draw(m, 20) < 18 ? draw(m, 3) : 3 + draw(m, 2)]) + 1;
}

static void write_stamp(model *m, owned *o)
{
    o->stamp = (uint8_t)(draw(m, 255) + 1);
    ok(weir_fill(m->f->runtime, o->block.pointer, o->stamp, o->bytes, m->streams[o->stream]));
}

static void check_apart(const model *m, const owned *o)
{
    const char *start = o->block.pointer;
    for (size_t i = 0; i < m->count; i++) {
        const char *other_start = m->live[i].block.pointer;
        assert_true(start + o->bytes <= other_start || other_start + m->live[i].bytes <= start);
        assert_true(o->block.generation != m->live[i].block.generation);
    }
}

/* A request that the budget has room for is refused only because its room is in pieces. */
static void check_refused(model *m, weir_status status)
{
    assert_int_equal(status, WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_FRAGMENTATION);
    m->refused++;
}

static void allocate_one(model *m)
{
    owned o = {.bytes = draw_bytes(m), .client = (int)draw(m, 2), .stream = (int)draw(m, 3)};
    weir_request request = {.struct_size = sizeof request,
                            .bytes = o.bytes,
                            .alignment = draw(m, 8) ? 0 : (size_t)1 << draw(m, 17),
                            .stream = m->streams[o.stream],
                            .memory_class = (weir_class)draw(m, WEIR_CLASS_COUNT)};
    weir_status status = weir_alloc_with(m->clients[o.client], &request, &o.block);
    if (status != WEIR_OK) {
        check_refused(m, status);
        return;
    }
    check_apart(m, &o);
    assert_true(request.alignment == 0 || (uintptr_t)o.block.pointer % request.alignment == 0);
    o.charged = details_of(o.block.pointer).charged;
    m->bytes[o.client] += o.charged;
    m->allocated++;
    write_stamp(m, &o);
    m->live[m->count++] = o;
}

static void check_stamp(model *m, const owned *o)
{
    ok(weir_stream_synchronize(m->streams[o->stream]));
    check_filled(m->f, o->block.pointer, o->stamp, o->bytes);
}

/* On its own stream as it is; on another one when its own is done. */
static void free_one(model *m, size_t index)
{
    owned o = m->live[index];
    int stream = draw(m, 4) ? o.stream : (int)draw(m, 3);
    if (stream != o.stream || draw(m, 4) == 0)
        check_stamp(m, &o);
    if (draw(m, 2))
        ok(weir_free(m->clients[o.client], o.block.pointer, m->streams[stream]));
    else
        ok(weir_free_block(m->clients[o.client], o.block, m->streams[stream]));
    m->bytes[o.client] -= o.charged;
    m->live[index] = m->live[--m->count];
}

static void resize_one(model *m, size_t index)
{
    owned *o = &m->live[index];
    size_t bytes = draw(m, 2) ? draw(m, o->bytes) + 1 : o->bytes + draw_bytes(m) % 50000;
    check_stamp(m, o);
    weir_status status = weir_resize(m->clients[o->client], o->block.pointer, bytes, m->streams[o->stream]);
    assert_true(status == WEIR_OK ||
                (bytes > o->bytes && (status == WEIR_ERR_NO_ROOM || status == WEIR_ERR_OUT_OF_MEMORY)));
    if (status != WEIR_OK) {
        check_stamp(m, o);
        return;
    }
    owned now = *o;
    m->live[index] = m->live[--m->count];
    m->bytes[now.client] -= now.charged;
    if (bytes < now.bytes)
        now.bytes = bytes;
    check_stamp(m, &now);
    now.bytes = bytes;
    check_apart(m, &now);
    now.charged = details_of(now.block.pointer).charged;
    m->bytes[now.client] += now.charged;
    m->resized++;
    write_stamp(m, &now);
    m->live[m->count++] = now;
}

static void check_ledger(model *m)
{
    weir_client_stats c = WEIR_INIT(weir_client_stats);
    for (int i = 0; i < 2; i++) {
        ok(weir_client_info(m->clients[i], &c));
        assert_int_equal(c.live, m->bytes[i]);
    }
}

static void step(model *m)
{
    uint64_t what = draw(m, 100);
    uint64_t charged = m->bytes[0] + m->bytes[1];
    if (m->count == 0 || (what < 52 && m->count < MOST && charged < BUDGET / 2))
        allocate_one(m);
    else if (what < 90)
        free_one(m, draw(m, m->count));
    else if (what < 98)
        resize_one(m, draw(m, m->count));
    else if (what == 98)
        ok(weir_runtime_trim(m->f->runtime,
                             &(weir_trim_options){.struct_size = sizeof(weir_trim_options), .keep = draw(m, BUDGET)},
                             NULL));
    else {
        snapshot s = drained(m->f);
        assert_int_equal(s.device.live, charged);
    }
    check_ledger(m);
}

static void random_steps(void **state)
{
    fixture *f = *state;
    const int steps = getenv("WEIR_SANITIZED") ? 2500 : 10000;
    model *m = calloc(1, sizeof *m);
    *m = (model){.f = f, .clients = {f->one, f->two}, .streams = {WEIR_STREAM_HOST, f->a, f->b}, .random = 20240229};
    for (int i = 0; i < steps; i++)
        step(m);
    print_message("%llu blocks, %llu refusals for want of a piece, %llu resized\n", (unsigned long long)m->allocated,
                  (unsigned long long)m->refused, (unsigned long long)m->resized);
    assert_true(m->refused * 10 <= m->allocated);
    assert_true(m->allocated * 3 >= (uint64_t)steps);
    while (m->count > 0)
        free_one(m, m->count - 1);
    check_ledger(m);
    assert_true((take_snapshot(f->runtime).device.hits > 0) == thread_caches());
    free(m);
}

int contract_model(void)
{
    const struct CMUnitTest steps[] = {CASE(random_steps)};
    return cmocka_run_group_tests(steps, NULL, NULL);
}
