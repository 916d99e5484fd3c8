/* What is promised as unwritten: with the option `protect` nothing can write it while a copy of it is trusted, and declared
 * writes open it; a broken promise is found, and the block named. And what a receipt tells of memory that stays. */
#include "residency/residency.h"

#include "runtime/runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <weir/uses.h>

#define WEIGHTS (WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS))
enum { BYTES = 6 * MIB };

static const weir_suspend_options promised = {.unwritten = WEIGHTS};

/* Whether the process may write there; the stub's memory is the process's too. */
static bool writable(const void *pointer)
{
    char line[512], access[8] = "";
    uintptr_t at = (uintptr_t)pointer;
    unsigned long long low, high;
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%llx-%llx %7s", &low, &high, access) == 3 && at >= low && at < high)
            break;
    fclose(maps);
    assert_int_equal(access[0], 'r');
    return access[1] == 'w';
}

static void protect(bool on)
{
    ok(weir_option_set("protect", on ? "1" : "0"));
}

static int trust_tear_down(void **state)
{
    protect(false);
    return tear_down(state);
}

#define TRUST(name) cmocka_unit_test_setup_teardown(name, set_up, trust_tear_down)

static void *write_tagged(weir_client *client, weir_class memory_class, const char *tag, uint64_t seed)
{
    weir_request request = {.struct_size = sizeof request, .bytes = BYTES, .memory_class = memory_class, .tag = tag};
    weir_block block;
    ok(weir_alloc_with(client, &request, &block));
    write_block(weir_client_runtime(client), block.pointer, BYTES, seed);
    return block.pointer;
}

/* Suspended and resumed, so that there is a good copy of its weights. */
static void *trusted(const fixture *f)
{
    void *weights = write_tagged(f->model, WEIR_CLASS_WEIGHTS, "layer", 1);
    (void)suspend_with(f->model, promised);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, BYTES, 1);
    return weights;
}

/* The next suspend copies what was opened, whatever is promised. */
static void is_copied_again(const fixture *f, void *weights, uint64_t seed)
{
    write_block(f->runtime, weights, BYTES, seed);
    weir_residency r = suspend_with(f->model, promised);
    assert_int_equal(r.trusted, 0);
    assert_int_equal(r.copied, BYTES);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    block_holds(f->runtime, weights, BYTES, seed);
}

static void what_is_trusted_cannot_be_written(void **state)
{
    fixture *f = *state;
    protect(true);
    void *kv = write_tagged(f->model, WEIR_CLASS_KV, "kv", 2), *weights = trusted(f);
    for (int i = 0; i < 3; i++) {
        assert_false(writable(weights) || writable((char *)weights + BYTES - 1));
        assert_true(writable(kv));
        block_holds(f->runtime, kv, BYTES, 2);
        weir_residency r = suspend_with(f->model, promised);
        assert_int_equal(r.trusted, BYTES);
        void *others = allocate(f->other, 60 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
        write_block(f->runtime, others, 60 * MIB, 3); /* in memory that was sealed */
        ok(weir_free(f->other, others, WEIR_STREAM_HOST));
        ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
        block_holds(f->runtime, weights, BYTES, 1);
    }
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    ok(weir_free(f->model, kv, WEIR_STREAM_HOST));
}

/* It is there when it is sealed, also behind a stream. */
static void contents_come_before_the_seal(void **state)
{
    fixture *f = *state;
    protect(true);
    void *weights = trusted(f);
    for (int i = 0; i < 20; i++) {
        (void)suspend_with(f->model, promised);
        ok(weir_client_resume(f->model, f->stream));
        assert_false(writable(weights));
        block_holds(f->runtime, weights, BYTES, 1);
    }
    ok(weir_stream_synchronize(f->stream));
    ok(weir_free(f->model, weights, f->stream));
    ok(weir_stream_synchronize(f->stream));
}

static void without_the_option_nothing_is_sealed(void **state)
{
    fixture *f = *state;
    void *weights = trusted(f);
    assert_true(writable(weights));
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    protect(true);
    weights = write_tagged(f->model, WEIR_CLASS_WEIGHTS, "layer", 1);
    (void)suspend(f->model); /* without a promise */
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_true(writable(weights));
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* Others may have what is free on a chunk. */
static void a_chunk_with_room_is_not_sealed(void **state)
{
    fixture *f = *state;
    char *weights = allocate(f->model, BYTES + 300, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    protect(true);
    write_block(f->runtime, weights, BYTES + 300, 1);
    (void)suspend_with(f->model, promised);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    assert_true(writable(weights + BYTES + 299));
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* What came back before the last call may have been written since, and is told to be so. */
static void what_came_by_piece_can_be_written(void **state)
{
    fixture *f = *state;
    uint64_t came;
    weir_resume_options first = WEIR_INIT(weir_resume_options);
    protect(true);
    void *a = trusted(f), *b = write_tagged(f->model, WEIR_CLASS_WEIGHTS, "second", 2);
    (void)suspend_with(f->model, promised);
    first.most = 1;
    ok(weir_client_resume_some(f->model, &first, WEIR_STREAM_HOST, &came));
    assert_true(came > 0 && came < 2 * (uint64_t)BYTES);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    void *low = a < b ? a : b, *high = a < b ? b : a;
    assert_true(writable(low));
    assert_false(writable((char *)high + BYTES - 1));
    block_holds(f->runtime, a, BYTES, 1);
    block_holds(f->runtime, b, BYTES, 2);
    ok(weir_free(f->model, a, WEIR_STREAM_HOST));
    ok(weir_free(f->model, b, WEIR_STREAM_HOST));
}

/* Declared writes ------------------------------------------------------------------------------------------------- */

static void a_fill_opens(void **state)
{
    fixture *f = *state;
    protect(true);
    void *weights = trusted(f);
    ok(weir_fill(f->runtime, (char *)weights + 100, 7, 1, WEIR_STREAM_HOST));
    assert_true(writable(weights));
    is_copied_again(f, weights, 4);
    assert_false(writable(weights)); /* it is good again */
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

static void a_copy_opens_what_it_writes(void **state)
{
    fixture *f = *state;
    unsigned char there[16];
    protect(true);
    void *weights = trusted(f);
    ok(weir_copy(f->runtime, there, weights, sizeof there, WEIR_STREAM_HOST));
    assert_false(writable(weights));
    ok(weir_copy(f->runtime, (char *)weights + BYTES - 16, there, sizeof there, f->stream));
    ok(weir_stream_synchronize(f->stream));
    assert_true(writable((char *)weights + BYTES - 16));
    is_copied_again(f, weights, 5);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

static void a_launch_opens_what_it_writes(void **state)
{
    fixture *f = *state;
    weir_launch *launch;
    protect(true);
    void *weights = trusted(f);
    weir_use use = {.block = {weights, 0}, .access = WEIR_ACCESS_READ};
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    ok(weir_launch_end(launch));
    assert_false(writable(weights));
    use.access = WEIR_ACCESS_READ_WRITE;
    ok(weir_launch_begin(f->runtime, f->stream, &use, 1, &launch));
    assert_true(writable(weights));
    ok(weir_launch_end(launch));
    is_copied_again(f, weights, 6);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

static void a_file_opens(void **state)
{
    fixture *f = *state;
    char path[] = "/tmp/weir-trust-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, "other weights", 13) == 13);
    close(file);
    protect(true);
    void *weights = trusted(f);
    ok(weir_read_file(f->model, weights, path, 0, 13, WEIR_STREAM_HOST));
    unlink(path);
    assert_true(writable(weights));
    is_copied_again(f, weights, 7);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

static void a_resize_opens(void **state)
{
    fixture *f = *state;
    protect(true);
    void *weights = trusted(f);
    ok(weir_resize(f->model, weights, 2 * MIB, WEIR_STREAM_HOST));
    void *others = allocate(f->other, 3 * MIB, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    write_block(f->runtime, others, 3 * MIB, 8);
    assert_true(writable(weights));
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    ok(weir_free(f->other, others, WEIR_STREAM_HOST));
}

/* Whoever has the memory next may write it; small blocks, too, which threads keep. */
static void a_free_opens(void **state)
{
    fixture *f = *state;
    enum { SMALL = 700 };
    void *small[SMALL], *mine[SMALL];
    protect(true);
    for (int i = 0; i < SMALL; i++) {
        small[i] = allocate(f->model, 4 * KIB, f->stream, WEIR_CLASS_WEIGHTS);
        write_block(f->runtime, small[i], 4 * KIB, (uint64_t)i);
    }
    (void)suspend_with(f->model, promised);
    ok(weir_client_resume(f->model, f->stream));
    int sealed = 0;
    for (int i = 0; i < SMALL; i++)
        sealed += !writable(small[i]);
    assert_true(sealed > 0);
    for (int i = 0; i < SMALL; i++)
        ok(weir_free(f->model, small[i], f->stream));
    for (int i = 0; i < SMALL; i++) {
        mine[i] = allocate(f->model, 4 * KIB, f->stream, WEIR_CLASS_SCRATCH);
        assert_true(writable(mine[i]) && writable((char *)mine[i] + 4 * KIB - 1));
    }
    for (int i = 0; i < SMALL; i++)
        ok(weir_free(f->model, mine[i], f->stream));
    ok(weir_stream_synchronize(f->stream));
}

/* Broken promises -------------------------------------------------------------------------------------------------- */

/* Writes as a kernel does that nobody declares. */
static void write_unseen(const fixture *f, char *to)
{
    ok(f->runtime->driver->fill(f->runtime->device, to, 0x5a, 1, NULL));
}

static void a_broken_promise_names_the_block(void **state)
{
    fixture *f = *state;
    void *other = write_tagged(f->model, WEIR_CLASS_WEIGHTS, "embedding", 2), *weights = trusted(f);
    write_unseen(f, (char *)weights + 3 * MIB + 5);
    snapshot before = take_snapshot(f->runtime);
    protect(true);
    weir_suspend_options o = promised;
    o.struct_size = sizeof o;
    for (int i = 0; i < 2; i++) {
        fails(WEIR_ERR_CORRUPT, weir_client_suspend(f->model, &o, NULL));
        detail_names("tag layer was written");
        detail_names("byte 3145733 is 90");
        assert_int_equal(residency(f->model).state, WEIR_RESIDENT);
        assert_int_equal(take_snapshot(f->runtime).device.live, before.device.live);
    }
    o.verify = true; /* is told, and copied */
    weir_residency r = suspend_with(f->model, o);
    assert_true(r.differed > 0 && r.copied >= r.differed);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    unsigned char byte;
    ok(weir_copy(f->runtime, &byte, (char *)weights + 3 * MIB + 5, 1, WEIR_STREAM_HOST));
    assert_int_equal(byte, 0x5a);
    block_holds(f->runtime, other, BYTES, 2);
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
    ok(weir_free(f->model, other, WEIR_STREAM_HOST));
}

/* The same of a copy that was shown. */
static void a_copy_that_was_shown_is_looked_at(void **state)
{
    fixture *f = *state;
    weir_suspend_options o = {.struct_size = sizeof o, .show = true, .unwritten = WEIGHTS};
    void *weights = write_tagged(f->model, WEIR_CLASS_WEIGHTS, "layer", 1);
    protect(true);
    weir_residency r = suspend_with(f->model, o);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    r = suspend_with(f->model, o);
    assert_int_equal(r.trusted, BYTES);
    protect(false);
    ok(weir_client_resume(f->model, WEIR_STREAM_HOST));
    protect(true);
    write_unseen(f, (char *)weights + 17);
    fails(WEIR_ERR_CORRUPT, weir_client_suspend(f->model, &o, NULL));
    detail_names("byte 17 is 90");
    (void)weir_client_forget_copies(f->model); /* on the host they are in the same budget */
    ok(weir_free(f->model, weights, WEIR_STREAM_HOST));
}

/* Failures --------------------------------------------------------------------------------------------------------- */

static wi_driver failing;
static int refuse;                            /* so many protections fail, */
static weir_status refusal = WEIR_ERR_DRIVER; /* with this */

static weir_status refusing_protect(wi_device *device, void *address, uint64_t bytes, bool on)
{
    if (refuse > 0 && refuse--)
        return weir_fail(refusal, "no protection today");
    return wi_host_driver.protect(device, address, bytes, on);
}

static void a_driver_that_fails(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    fixture f = {0};
    failing = wi_host_driver;
    failing.protect = refusing_protect;
    ok(wi_runtime_create_over(&failing, 0, &options, &f.runtime));
    f.model = open_client(f.runtime, "model", 0, 0);
    protect(true);
    refuse = 1000; /* nothing is sealed, and nobody is the worse for it */
    void *weights = trusted(&f);
    assert_true(writable(weights));
    (void)suspend_with(f.model, promised);
    refuse = 0;
    ok(weir_client_resume(f.model, WEIR_STREAM_HOST));
    assert_false(writable(weights));
    refuse = 1;
    fails(WEIR_ERR_DRIVER, weir_fill(f.runtime, weights, 1, BYTES, WEIR_STREAM_HOST));
    refuse = 1;
    fails(WEIR_ERR_DRIVER, weir_resize(f.model, weights, MIB, WEIR_STREAM_HOST));
    refuse = 1;
    fails(WEIR_ERR_DRIVER, weir_free(f.model, weights, WEIR_STREAM_HOST));
    assert_false(writable((char *)weights + BYTES - 1));
    block_holds(f.runtime, weights, BYTES, 1);
    (void)suspend_with(f.model, promised);
    ok(weir_client_resume(f.model, WEIR_STREAM_HOST));
    block_holds(f.runtime, weights, BYTES, 1);
    refuse = 1000; /* a device that is lost keeps nobody from freeing what was there */
    refusal = WEIR_ERR_DEVICE_LOST;
    ok(weir_free(f.model, weights, WEIR_STREAM_HOST));
    refuse = 0;
    refusal = WEIR_ERR_DRIVER;
    ok(weir_client_destroy(f.model));
    ok(weir_runtime_destroy(f.runtime));
    protect(false);
}

/* What stays ------------------------------------------------------------------------------------------------------- */

static weir_status two_graphs(wi_device *device, uint64_t *bytes)
{
    (void)device;
    if (refuse > 0 && refuse--)
        return weir_fail(WEIR_ERR_DRIVER, "no graphs today");
    *bytes = 2 * MIB;
    return WEIR_OK;
}

static void a_receipt_tells_what_is_outside(void **state)
{
    (void)state;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET};
    fixture f = {0};
    failing = wi_host_driver;
    failing.graph_memory = two_graphs;
    ok(wi_runtime_create_over(&failing, 0, &options, &f.runtime));
    f.model = open_client(f.runtime, "model", 0, 0);
    void *weights = write_tagged(f.model, WEIR_CLASS_WEIGHTS, "layer", 1);
    weir_residency r = suspend(f.model);
    assert_int_equal(r.outside, 0);
    assert_string_equal(r.outside_method, "");
    assert_int_equal(r.graphs, 2 * MIB);
    ok(weir_client_resume(f.model, WEIR_STREAM_HOST));
    ok(weir_client_note_outside(f.model, 5 * MIB, "workspaces"));
    refuse = 1;
    r = suspend(f.model);
    assert_int_equal(r.outside, 5 * MIB);
    assert_string_equal(r.outside_method, "workspaces");
    assert_int_equal(r.graphs, 0);
    r = residency(f.model);
    assert_int_equal(r.outside, 5 * MIB);
    ok(weir_client_resume(f.model, WEIR_STREAM_HOST));
    ok(weir_free(f.model, weights, WEIR_STREAM_HOST));
    ok(weir_client_destroy(f.model));
    ok(weir_runtime_destroy(f.runtime));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TRUST(what_is_trusted_cannot_be_written),
        TRUST(contents_come_before_the_seal),
        TRUST(without_the_option_nothing_is_sealed),
        TRUST(a_chunk_with_room_is_not_sealed),
        TRUST(what_came_by_piece_can_be_written),
        TRUST(a_fill_opens),
        TRUST(a_copy_opens_what_it_writes),
        TRUST(a_launch_opens_what_it_writes),
        TRUST(a_file_opens),
        TRUST(a_resize_opens),
        TRUST(a_free_opens),
        TRUST(a_broken_promise_names_the_block),
        TRUST(a_copy_that_was_shown_is_looked_at),
        cmocka_unit_test(a_driver_that_fails),
        cmocka_unit_test(a_receipt_tells_what_is_outside),
    };
    void *driver = host_writes() ? NULL : dlopen("libcuda.so.1", RTLD_LAZY);
    if (driver && !dlsym(driver, "stub_count")) {
        puts("a GPU's memory has no place among the mappings of the process");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
