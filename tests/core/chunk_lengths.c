/* How long chunks of long-lived memory are, and which spare chunks serve: those that a suspended client leaves. On the host, where
 * addresses that nobody writes cost nothing. */
#include "core.h"
#include "trim.h"

#include <weir/residency.h>

enum { MOST = 256 };

/* The chunks of a runtime, in MiB: mapped ones in the order of their addresses, and spare ones. */
typedef struct chunks {
    uint64_t mapped[MOST], spare[MOST];
    size_t mapped_count, spare_count;
    const void *last;
} chunks;

static void note(const weir_segment *segment, const weir_span *span, void *user)
{
    chunks *c = user;
    if (span->state == WEIR_SPAN_SPARE)
        c->spare[c->spare_count++] = segment->bytes / MIB;
    else if (segment->address != c->last)
        c->mapped[c->mapped_count++] = segment->bytes / MIB;
    c->last = segment->address;
    assert_true(c->spare_count < MOST && c->mapped_count < MOST);
}

static chunks chunks_of(weir_runtime *runtime)
{
    chunks c = {0};
    ok(weir_layout_walk(runtime, note, &c, NULL));
    return c;
}

/* `text`: the lengths, each behind a blank. */
static void are(const uint64_t *lengths, size_t count, const char *text)
{
    char seen[MOST * 8] = "";
    for (size_t i = 0; i < count; i++)
        snprintf(seen + strlen(seen), sizeof seen - strlen(seen), " %llu", (unsigned long long)lengths[i]);
    assert_string_equal(seen, text);
}

static void mapped_are(weir_runtime *runtime, const char *text)
{
    chunks c = chunks_of(runtime);
    are(c.mapped, c.mapped_count, text);
}

static int by_length(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void spare_are(weir_runtime *runtime, const char *text)
{
    chunks c = chunks_of(runtime);
    qsort(c.spare, c.spare_count, sizeof *c.spare, by_length);
    are(c.spare, c.spare_count, text);
}

static void *weights(weir_client *client, uint64_t mib)
{
    return allocate(client, mib * MIB, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
}

static void trim(weir_runtime *runtime)
{
    uint64_t released;
    ok(trim_keeping(runtime, 0, &released));
}

/* Its contents are given up, so that they take nothing elsewhere. */
static void leave(weir_client *client)
{
    weir_suspend_options options = {.struct_size = sizeof options, .drop = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)};
    ok(weir_client_suspend(client, &options, NULL));
}

static void leave_nothing(weir_runtime *runtime, weir_client *client, void **blocks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ok(weir_free(client, blocks[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    trim(runtime);
}

/* Lengths ---------------------------------------------------------------------------------------------------------- */

static void weights_have_few_long_chunks(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(64 * 1024 * MIB);
    weir_client *model = open_client(runtime, "model", 0, 0);
    void *blocks[] = {weights(model, 512), weights(model, 86), weights(model, 100), weights(model, 30),
                      weights(model, 255)};
    mapped_are(runtime, " 256 256 80 6 96 4 30 224 31");
    leave_nothing(runtime, model, blocks, 5);
    ok(weir_runtime_destroy(runtime));
}

static void other_memory_has_shorter_ones(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(64 * 1024 * MIB);
    weir_client *model = open_client(runtime, "model", 0, 0);
    void *block = allocate(model, 512 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    chunks c = chunks_of(runtime);
    for (size_t i = 0; i < c.mapped_count; i++)
        assert_true(c.mapped[i] <= 64);
    leave_nothing(runtime, model, &block, 1);
    ok(weir_runtime_destroy(runtime));
}

/* Spare chunks ----------------------------------------------------------------------------------------------------- */

/* A model that is loaded in place of another has one chunk for each block, as that one had, in whichever order they come. */
static void what_one_model_leaves_fits_the_next(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(2048 * MIB);
    weir_client *first = open_client(runtime, "first", 0, 0), *second = open_client(runtime, "second", 0, 0);
    void *olds[] = {weights(first, 12), weights(first, 3), weights(first, 7)};
    mapped_are(runtime, " 12 3 7");
    leave(first);
    spare_are(runtime, " 3 7 12");
    uint64_t created = take_snapshot(runtime).device.created;
    void *news[] = {weights(second, 7), weights(second, 12), weights(second, 3)};
    mapped_are(runtime, " 7 12 3");
    assert_int_equal(take_snapshot(runtime).device.created, created);
    leave_nothing(runtime, first, olds, 3);
    leave_nothing(runtime, second, news, 3);
    ok(weir_runtime_destroy(runtime));
}

/* The longest that is not too long comes first, so that few serve. A longer one serves only where the budget leaves no other, and then
 * the shortest. */
static void the_spare_chunks_that_fit_best_serve(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(2048 * MIB);
    weir_client *first = open_client(runtime, "first", 0, 0), *second = open_client(runtime, "second", 0, 0);
    void *olds[] = {weights(first, 4), weights(first, 9), weights(first, 2), weights(first, 6)};
    leave(first);
    void *news[] = {weights(second, 8), weights(second, 1)};
    mapped_are(runtime, " 6 2 1"); /* the 8 from two chunks, the 1 is new */
    spare_are(runtime, " 4 9");
    ok(weir_runtime_set_budget(runtime, 22 * MIB)); /* that is held */
    void *last = weights(second, 1);
    mapped_are(runtime, " 6 2 1 4");
    ok(weir_free(second, last, WEIR_STREAM_HOST));
    leave_nothing(runtime, first, olds, 4);
    leave_nothing(runtime, second, news, 2);
    ok(weir_runtime_destroy(runtime));
}

/* A piece that comes back has one chunk of its own length. For that, one spare chunk is destroyed where one is enough, and the shortest
 * of those: the others fit again. */
static void one_spare_chunk_goes_for_a_piece_that_comes(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(2048 * MIB);
    weir_client *first = open_client(runtime, "first", 0, 0), *second = open_client(runtime, "second", 0, 0);
    void *piece = weights(first, 4);
    leave(first);
    trim(runtime);
    void *blocks[] = {weights(second, 6), weights(second, 8), weights(second, 3)};
    leave(second);
    ok(weir_runtime_set_budget(runtime, 17 * MIB)); /* that is held */
    ok(weir_client_resume(first, WEIR_STREAM_HOST));
    mapped_are(runtime, " 4");
    spare_are(runtime, " 3 8");
    leave_nothing(runtime, first, &piece, 1);
    leave_nothing(runtime, second, blocks, 3);
    ok(weir_runtime_destroy(runtime));
}

/* Where no spare chunk is long enough, the longest go. */
static void the_longest_spare_chunks_go_for_a_longer_piece(void **state)
{
    (void)state;
    weir_runtime *runtime = make_runtime(2048 * MIB);
    weir_client *first = open_client(runtime, "first", 0, 0), *second = open_client(runtime, "second", 0, 0);
    void *piece = weights(first, 9);
    leave(first);
    trim(runtime);
    void *blocks[] = {weights(second, 2), weights(second, 6), weights(second, 5), weights(second, 3)};
    leave(second);
    ok(weir_runtime_set_budget(runtime, 16 * MIB)); /* that is held */
    ok(weir_client_resume(first, WEIR_STREAM_HOST));
    mapped_are(runtime, " 9");
    spare_are(runtime, " 2 5");
    leave_nothing(runtime, first, &piece, 1);
    leave_nothing(runtime, second, blocks, 4);
    ok(weir_runtime_destroy(runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_have_few_long_chunks),
        cmocka_unit_test(other_memory_has_shorter_ones),
        cmocka_unit_test(what_one_model_leaves_fits_the_next),
        cmocka_unit_test(the_spare_chunks_that_fit_best_serve),
        cmocka_unit_test(one_spare_chunk_goes_for_a_piece_that_comes),
        cmocka_unit_test(the_longest_spare_chunks_go_for_a_longer_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
