/* The table in which a thread finds its thread caches: those that belong to the same place, or to one that is taken, stand behind it in
 * a row without a gap, around the table's end, too. Whichever of a row goes, the others are found. */
#include "core/core.h"

#include "runtime/runtime.h"

/* So many pairs of a client and a stream that each place has some that belong there. */
enum { CLIENTS = 64, STREAMS = 16, PLACES = 1 << WI_TCACHE_TABLE_BITS, ROW = 6, ROWS = 4 };

/* How far behind the row's beginning its members belong, in the order in which they come: where they do not find their place
 * free, they go behind those that are there. */
static const unsigned rows[ROWS][ROW] = {
    {0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 1, 4}, {0, 0, 2, 2, 1, 0}, {1, 0, 1, 0, 2, 3}};

typedef struct pair {
    weir_client *client;
    unsigned stream;
} pair;

static weir_runtime *runtime;
static weir_client *clients[CLIENTS];
static weir_stream streams[STREAMS];

static int set_up(void **state)
{
    (void)state;
    runtime = make_runtime(64 * MIB);
    for (int i = 0; i < STREAMS; i++)
        ok(weir_stream_acquire(runtime, &streams[i]));
    for (int k = 0; k < CLIENTS; k++)
        clients[k] = open_client(runtime, "many", 0, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int k = 0; k < CLIENTS; k++)
        ok(weir_client_destroy(clients[k]));
    for (int i = 0; i < STREAMS; i++)
        ok(weir_stream_release(streams[i]));
    ok(weir_runtime_destroy(runtime));
    return 0;
}

static wi_tcache *find(const pair *p)
{
    return wi_tcache_find(wi_tcache_mine, p->client, streams[p->stream]);
}

static void make_cache(const pair *p)
{
    ok(weir_free(p->client, allocate(p->client, 1000, streams[p->stream], WEIR_CLASS_KV), streams[p->stream]));
    assert_non_null(find(p));
}

/* A pair that belongs there, whose stream is none of those in `used`. */
static bool choose(uint64_t place, unsigned *used, pair *out)
{
    for (unsigned i = 0; i < CLIENTS * STREAMS; i++) {
        *out = (pair){clients[i / STREAMS], i % STREAMS};
        if (!(*used >> out->stream & 1) &&
            wi_tcache_index(wi_tcache_mine, out->client, streams[out->stream]) == place) {
            *used |= 1u << out->stream;
            return true;
        }
    }
    return false;
}

static bool choose_row(uint64_t first, const unsigned *behind, pair *row)
{
    unsigned used = 0;
    bool all = true;
    for (int i = 0; i < ROW && all; i++)
        all = choose((first + behind[i]) % PLACES, &used, &row[i]);
    return all;
}

static unsigned taken_places(void)
{
    unsigned count = 0;
    for (int i = 0; i < PLACES; i++)
        count += wi_tcache_mine->table[i] != NULL;
    return count;
}

/* All make their thread caches, that one loses it, and gets it again; then all go. */
static void lose_one(const pair *row, int lost)
{
    for (int i = 0; i < ROW; i++)
        make_cache(&row[i]);
    wi_tcaches_drop_stream(runtime, streams[row[lost].stream]);
    assert_int_equal(taken_places(), ROW - 1);
    for (int i = 0; i < ROW; i++)
        assert_int_equal(find(&row[i]) != NULL, i != lost);
    make_cache(&row[lost]);
    for (int i = 0; i < ROW; i++)
        assert_true(wi_tcache_is_for(find(&row[i]), row[i].client, streams[row[i].stream]));
    for (int i = 0; i < ROW; i++) {
        wi_tcaches_drop_stream(runtime, streams[row[i].stream]);
        assert_null(find(&row[i]));
    }
    assert_int_equal(taken_places(), 0);
}

/* Where a row may begin: also so that it goes on at the beginning of the table. */
static void whichever_goes_the_others_are_found(void **state)
{
    (void)state;
    unsigned tried = 0, around = 0;
    pair row[ROW] = {{clients[0], 0}};
    make_cache(&row[0]); /* the thread has its table */
    wi_tcaches_drop_stream(runtime, streams[0]);
    assert_int_equal(wi_tcache_mine->shift, 64 - WI_TCACHE_TABLE_BITS);
    for (uint64_t first = 0; first < PLACES; first++)
        for (int r = 0; r < ROWS; r++) {
            if (!choose_row(first, rows[r], row))
                continue;
            tried++;
            around += first > PLACES - ROW;
            for (int lost = 0; lost < ROW; lost++)
                lose_one(row, lost);
        }
    assert_true(tried >= PLACES && around >= ROWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whichever_goes_the_others_are_found, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("thread-cache-table", tests, NULL, NULL);
}
