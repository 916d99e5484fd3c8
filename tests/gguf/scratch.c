/* scratch.c, scratch_known.c: the scratch of a model on a device is computed for at its first load, and reserved at later ones;
 * over a llama.cpp and devices that the test makes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <weir/stats.h>
#include <weir/weir.h>

#include "gguf/engine/wg.h"

enum { PACK = 8, LONGEST = 64, BUFFERS = 1000, FIRST = 4096, SECOND = 4096 + 160, DEVICES = 2 };
enum { MOST_CELLS = 1000 }; /* that there is memory for */

/* ---- what stands around them ------------------------------------------------------------------------------------- */

static char home[64], named[96];
static char of_cuda[128] = "/nowhere/libggml-cuda.so";
static int decodes, refused_at;
static int cleared, shrunk, rested;    /* how often */
static uint32_t grown;                 /* cells that were asked for last */
static bool computing, without_memory; /* a model without a memory has nothing to forget */
static uint64_t overrun;               /* what batches take past the budget */
static const char *throws;
static weir_status phase_refusal;
static uint64_t scratch[DEVICES];
static size_t total = 1 << 20;
static weir_client *clients[DEVICES];

static int32_t decode(struct llama_context *context, struct llama_batch batch)
{
    (void)context;
    assert_int_equal(batch.n_tokens, PACK);
    for (int i = 0; i < PACK; i++)
        assert_int_equal(batch.token[i], 0);
    assert_true(computing);
    decodes++;
    for (uint64_t i = 0; i < DEVICES; i++)
        scratch[i] = BUFFERS + (decodes % 2 ? FIRST : SECOND) * (i + 1);
    return decodes == refused_at ? -3 : 0;
}

static struct llama_batch one_batch(llama_token *tokens, int32_t count)
{
    return (struct llama_batch){.token = tokens, .n_tokens = count};
}

static int encodes;

static int32_t encode(struct llama_context *context, struct llama_batch batch)
{
    encodes++;
    return decode(context, batch);
}

static llama_memory_t memory_of(const struct llama_context *context)
{
    (void)context;
    return without_memory ? NULL : (llama_memory_t)(void *)scratch;
}

static void wait_for_all(struct llama_context *context)
{
    (void)context;
}

/* Cells are forgotten, and nothing is written: pages of the cache need not be there. */
static void clear(llama_memory_t memory, bool data)
{
    assert_ptr_equal(memory, scratch);
    assert_false(data);
    cleared++;
}

static const char *describe_device(ggml_backend_dev_t device)
{
    return device == NULL ? "a device" : "another";
}

static void memory_of_device(ggml_backend_dev_t device, size_t *unused, size_t *all)
{
    (void)device;
    *unused = (size_t)decodes; /* which says nothing of the kind of device */
    *all = total;
}

static wg_library library = {.file = "/nowhere/libllama.so",
                             .llama_decode = decode,
                             .llama_encode = encode,
                             .llama_batch_get_one = one_batch,
                             .llama_get_memory = memory_of,
                             .llama_synchronize = wait_for_all,
                             .llama_memory_clear = clear,
                             .ggml_backend_dev_description = describe_device,
                             .ggml_backend_dev_memory = memory_of_device};

static const wt_choice choice_list[] = {{"context", 'i', true, offsetof(wg_load_settings, context), 0, 1 << 24},
                                        {"threads", 'i', true, offsetof(wg_load_settings, threads), 0, 1 << 24}};
const wt_choices wg_choices = {.list = choice_list, .count = 2};

weir_status wg_cache_grow(weir_engine_model *model, int32_t sequence, uint32_t cells)
{
    (void)model;
    assert_int_equal(sequence, 0);
    grown = cells;
    return cells > MOST_CELLS ? weir_fail(WEIR_ERR_OUT_OF_MEMORY, "no pages") : WEIR_OK;
}
void wg_cache_begin(weir_engine_model *model)
{
    (void)model;
    assert_false(computing);
    computing = true;
}
void wg_cache_end(weir_engine_model *model)
{
    (void)model;
    assert_true(computing);
    computing = false;
}
void wg_cache_shrink(weir_engine_model *model, int32_t sequence, uint32_t cells)
{
    (void)model;
    assert_int_equal(sequence, 0);
    assert_int_equal(cells, 0);
    shrunk++;
}
uint64_t wg_cache_rest(weir_engine_model *model, bool all)
{
    (void)model;
    assert_false(all);
    rested++;
    return 0;
}
void wg_phase_begin(wg_phase *phase, enum wg_stage stage, weir_engine_model *model)
{
    assert_int_equal(stage, WG_RUNNING);
    *phase = (wg_phase){.stage = stage, .model = model};
}
void wg_phase_end(wg_phase *phase)
{
    phase->scope.overrun = overrun;
    phase->refusal = phase_refusal;
    snprintf(phase->detail, sizeof phase->detail, "the phase's words");
}
/* The first call throws that is made while somebody computes, or, of those behind, the first where nobody does. */
bool wg_guarded(void (*fn)(void *user), void *user, char *text, size_t capacity)
{
    const char *now = throws && (throws[0] == '!') == computing ? throws : NULL;
    snprintf(text, capacity, "%s", now ? now : "");
    if (!now)
        fn(user);
    return !now;
}
void wg_log_forget(void) {}
static const char *first_error = "";
const char *wg_log_first_error(void)
{
    return first_error;
}
void wg_devices_scratch(const wg_devices *devices, uint64_t *bytes)
{
    for (size_t i = 0; i < devices->count; i++)
        bytes[i] = scratch[i];
}
weir_status wg_devices_find(const char *directory, char *path, size_t capacity)
{
    (void)directory;
    snprintf(path, capacity, "%s", of_cuda);
    return WEIR_OK;
}
void wg_store_directory(const char *folder, char *out, size_t capacity)
{
    snprintf(out, capacity, "%s/%s", home, folder);
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

static weir_engine_model made(void)
{
    weir_engine_model model = {.library = &library, .pack = PACK, .step = PACK, .longest = LONGEST, .fingerprint = 77};
    model.devices.count = DEVICES;
    for (int i = 0; i < DEVICES; i++)
        model.devices.clients[i] = clients[i];
    return model;
}

static uint64_t promised(int index)
{
    weir_client_stats stats = WEIR_INIT(weir_client_stats);
    assert_int_equal(weir_client_info(clients[index], &stats), WEIR_OK);
    return stats.promised;
}

/* Loads it; answers how many batches were computed, and what is reserved on both devices. */
static int load(weir_engine_model model, uint64_t reserved[DEVICES])
{
    int before = decodes;
    for (int i = 0; i < DEVICES; i++)
        scratch[i] = BUFFERS;
    if (wg_scratch_measure(&model) != WEIR_OK)
        fail_msg("%s", weir_detail());
    for (int i = 0; i < DEVICES; i++)
        reserved[i] = promised(i);
    for (int i = 0; i < DEVICES; i++)
        assert_int_equal(weir_reservation_destroy(model.devices.reserves[i]), WEIR_OK);
    return decodes - before;
}

static int begin(void **state)
{
    (void)state;
    unlink(named);
    decodes = encodes = refused_at = 0;
    cleared = shrunk = rested = 0;
    without_memory = false;
    overrun = 0;
    throws = NULL;
    phase_refusal = WEIR_OK;
    total = 1 << 20;
    return 0;
}

static uint64_t grows(int device)
{
    return (uint64_t)(SECOND - FIRST) * (uint64_t)(device + 1) / (2 * PACK) * (LONGEST - 2 * PACK);
}

static uint64_t charged(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static void a_later_load_computes_nothing(void **state)
{
    (void)state;
    uint64_t first[DEVICES], later[DEVICES];
    assert_int_equal(load(made(), first), 2);
    assert_int_equal(grown, 2 * PACK);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(load(made(), later), 0);
        for (int i = 0; i < DEVICES; i++) {
            assert_int_equal(first[i], charged(grows(i)));
            /* What the batches took as well. */
            assert_int_equal(later[i], charged(grows(i) + (uint64_t)SECOND * (uint64_t)(i + 1)));
        }
    }
    /* What the batches left in the cache is gone. */
    assert_int_equal(cleared, 1);
    assert_int_equal(shrunk, 1);
    assert_int_equal(rested, 1);
    assert_int_equal(encodes, 0);
}

/* Where scratch cannot grow there is a batch, and no more: in a context that has no room for two, and of texts that are
 * embedded, with a cache or without. */
static void a_batch_is_enough_where_nothing_grows(void **state)
{
    (void)state;
    uint64_t first[DEVICES], later[DEVICES];
    for (int which = 0; which < 4; which++) {
        weir_engine_model model = made();
        model.longest = which == 0 ? 2 * PACK - 1 : which == 1 ? 2 * PACK : LONGEST;
        model.embeds = which >= 2;
        model.fingerprint += (uint64_t)which;
        without_memory = which == 3;
        decodes = encodes = cleared = 0;
        int batches = which == 1 ? 2 : 1;
        assert_int_equal(load(model, first), batches);
        assert_int_equal(grown, batches * PACK);
        assert_int_equal(encodes, which == 3);
        assert_int_equal(cleared, which != 3);
        assert_int_equal(load(model, later), 0);
        for (int i = 0; i < DEVICES; i++) {
            assert_int_equal(first[i], 0);
            assert_int_equal(later[i], charged((uint64_t)(which == 1 ? SECOND : FIRST) * (uint64_t)(i + 1)));
        }
    }
}

static void is_refused(weir_status status, const char *words)
{
    weir_engine_model model = made();
    for (int i = 0; i < DEVICES; i++)
        scratch[i] = BUFFERS;
    assert_int_equal(wg_scratch_measure(&model), status);
    if (!strstr(weir_detail(), words))
        fail_msg("'%s' is not in: %s", words, weir_detail());
    assert_false(computing);
    for (int i = 0; i < DEVICES; i++)
        assert_null(model.devices.reserves[i]);
}

/* And nothing of it is remembered. */
static void why_it_cannot_be_measured_is_said(void **state)
{
    (void)state;
    uint64_t reserved[DEVICES];
    void *block;
    refused_at = 1;
    is_refused(WEIR_ERR_ENGINE, "llama.cpp cannot compute 8 tokens at once: no reason given");
    phase_refusal = WEIR_ERR_BUSY;
    refused_at = decodes + 1;
    is_refused(WEIR_ERR_BUSY, "the phase's words");
    phase_refusal = WEIR_OK;
    first_error = "no kernel";
    refused_at = decodes + 2;
    is_refused(WEIR_ERR_ENGINE, "llama.cpp cannot compute 8 tokens at once: no kernel");
    first_error = "";
    throws = "!thrown";
    is_refused(WEIR_ERR_ENGINE, "llama.cpp cannot compute 8 tokens at once: !thrown");
    throws = "behind";
    is_refused(WEIR_ERR_ENGINE, "llama.cpp cannot clear its cache: behind");
    throws = NULL;
    overrun = 1 << 20;
    assert_int_equal(weir_client_set_limits(clients[0], 0, 1 << 20), WEIR_OK);
    assert_int_equal(weir_alloc(clients[0], 2 << 20, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &block),
                     WEIR_ERR_OUT_OF_MEMORY);
    is_refused(WEIR_ERR_OUT_OF_MEMORY, "for the scratch of 8 tokens at once: 1 MiB more than its limit of 1 MiB; "
                                       "this model needs at least 2 MiB, or a smaller 'batch'");
    assert_int_equal(weir_client_set_limits(clients[0], 0, 0), WEIR_OK);
    overrun = 0;
    assert_int_equal(load(made(), reserved), 2);
}

/* On the host alone there is nothing to measure; without memory for the cells nothing is computed. */
static void without_devices_or_cells_nothing_is_computed(void **state)
{
    (void)state;
    weir_engine_model model = made();
    model.devices.count = 0;
    assert_int_equal(wg_scratch_measure(&model), WEIR_OK);
    model = made();
    model.pack = MOST_CELLS;
    model.longest = 2 * MOST_CELLS;
    assert_int_equal(wg_scratch_measure(&model), WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(weir_detail(), "no pages");
    assert_int_equal(decodes, 0);
    assert_int_equal(shrunk, 1);
    assert_int_equal(rested, 1);
}

/* Each of what scratch depends on; threads are none of it. */
static void another_load_is_measured(void **state)
{
    (void)state;
    uint64_t reserved[DEVICES];
    weir_engine_model model = made();
    assert_int_equal(load(model, reserved), 2);
    model.load.threads = 7;
    assert_int_equal(load(model, reserved), 0);
    model.fingerprint++;
    assert_int_equal(load(model, reserved), 2);
    model.load.context = 5;
    assert_int_equal(load(model, reserved), 2);
    model.longest--;
    assert_int_equal(load(model, reserved), 2);
    model.devices.list[1] = (ggml_backend_dev_t)(void *)&total;
    assert_int_equal(load(model, reserved), 2);
    total++;
    assert_int_equal(load(model, reserved), 2);
    strcpy(library.file, "/nowhere/other.so");
    assert_int_equal(load(model, reserved), 2);
    assert_int_equal(load(model, reserved), 0);
    strcpy(library.file, "/nowhere/libllama.so");
    total--;
    assert_int_equal(load(made(), reserved), 0); /* all of them are kept */
}

static void write_file(const char *path, const char *text, long seconds, long nanoseconds)
{
    const struct timespec times[] = {{1, 1}, {seconds, nanoseconds}};
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* Of another size or another time, down to its nanoseconds. */
static void a_changed_library_is_measured_with(void **state)
{
    (void)state;
    uint64_t reserved[DEVICES];
    char *const files[] = {library.file, of_cuda};
    for (int i = 0; i < 2; i++) {
        char before[96], *path = files[i];
        snprintf(before, sizeof before, "%s", path);
        sprintf(path, "%s/library.so", home);
        assert_int_equal(load(made(), reserved), 2); /* it is not there */
        write_file(path, "a", 1000, 5);
        assert_int_equal(load(made(), reserved), 2);
        write_file(path, "b", 1000, 5);
        assert_int_equal(load(made(), reserved), 0);
        write_file(path, "bc", 1000, 5);
        assert_int_equal(load(made(), reserved), 2);
        write_file(path, "bc", 1001, 5);
        assert_int_equal(load(made(), reserved), 2);
        write_file(path, "bc", 1001, 6);
        assert_int_equal(load(made(), reserved), 2);
        assert_int_equal(load(made(), reserved), 0);
        unlink(path);
        strcpy(path, before);
    }
}

static void a_load_that_failed_is_measured_again(void **state)
{
    (void)state;
    uint64_t reserved[DEVICES];
    weir_engine_model model = made();
    refused_at = 2;
    assert_int_equal(wg_scratch_measure(&model), WEIR_ERR_ENGINE);
    decodes = refused_at = 0;
    assert_int_equal(load(made(), reserved), 2);
}

/* What is reserved is a claim like any other: a load for which there is no room is refused. */
static void there_has_to_be_room_for_what_is_known(void **state)
{
    (void)state;
    uint64_t reserved[DEVICES];
    weir_engine_model model = made();
    assert_int_equal(load(model, reserved), 2);
    assert_int_equal(weir_client_set_limits(clients[1], 0, SECOND), WEIR_OK);
    assert_int_equal(wg_scratch_measure(&model), WEIR_ERR_OUT_OF_MEMORY);
    assert_int_equal(weir_client_set_limits(clients[1], 0, 0), WEIR_OK);
    assert_int_equal(weir_reservation_destroy(model.devices.reserves[0]), WEIR_OK);
    assert_int_equal(decodes, 2);
}

static void spoil(long at, int with)
{
    FILE *file = fopen(named, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    fputc(with, file);
    fclose(file);
}

static void a_line_that_is_not_whole_is_left_out(void **state)
{
    (void)state;
    enum { NUMBERS = 33 }; /* behind the key and a blank */
    uint64_t reserved[DEVICES];
    assert_int_equal(load(made(), reserved), 2);
    spoil(NUMBERS, '9'); /* a number */
    assert_int_equal(load(made(), reserved), 2);
    assert_int_equal(load(made(), reserved), 0);
    spoil(NUMBERS, 'x'); /* no number */
    assert_int_equal(load(made(), reserved), 2);
    assert_int_equal(load(made(), reserved), 0);
    spoil(0, 'x'); /* the key */
    assert_int_equal(load(made(), reserved), 2);
    assert_int_equal(truncate(named, 60), 0);
    assert_int_equal(load(made(), reserved), 2);
    assert_int_equal(load(made(), reserved), 0);
}

/* Written as weir writes it, a line counts up to the most that any device has. */
static void numbers_that_no_device_has_are_left_out(void **state)
{
    (void)state;
    const uint64_t most = UINT64_C(1) << 40;
    weir_engine_model model = made();
    wg_scratch found;
    for (int beyond = 0; beyond < 2; beyond++)
        for (int i = 0; i < DEVICES; i++)
            for (int grows = 0; grows < 2; grows++) {
                wg_scratch known = {.taken = {1, 2}, .grows = {3, 4}};
                (grows ? known.grows : known.taken)[i] = most + (uint64_t)beyond;
                wg_scratch_remember(&model, &known);
                memset(&found, 0xff, sizeof found);
                assert_int_equal(wg_scratch_recall(&model, &found), !beyond);
                if (!beyond)
                    assert_memory_equal(&found, &known, sizeof found);
            }
}

static void with_the_option_off_nothing_is_remembered(void **state)
{
    (void)state;
    uint64_t reserved[DEVICES];
    assert_int_equal(weir_option_set("predictions", "0"), WEIR_OK);
    assert_int_equal(load(made(), reserved), 2);
    assert_int_not_equal(access(named, F_OK), 0);
    assert_int_equal(weir_option_set("predictions", "1"), WEIR_OK);
    assert_int_equal(load(made(), reserved), 2);
    assert_int_equal(weir_option_set("predictions", "0"), WEIR_OK);
    assert_int_equal(load(made(), reserved), 2);
    assert_int_equal(weir_option_set("predictions", "1"), WEIR_OK);
}

/* The oldest goes. */
static void the_file_has_an_end(void **state)
{
    enum { MODELS = 300 };
    (void)state;
    uint64_t reserved[DEVICES];
    weir_engine_model model = made();
    for (uint64_t i = 0; i < MODELS; i++) {
        model.fingerprint = 1000 + i;
        assert_int_equal(load(model, reserved), 2);
    }
    assert_int_equal(load(model, reserved), 0);
    model.fingerprint = 1000 + MODELS - 256;
    assert_int_equal(load(model, reserved), 0);
    model.fingerprint = 1000 + MODELS - 257;
    assert_int_equal(load(model, reserved), 2);
}

static int make_clients(void **state)
{
    (void)state;
    weir_runtime *runtime = NULL;
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = "llama";
    if (weir_option_set("predictions", "1") != WEIR_OK || weir_runtime_get("host", NULL, &runtime) != WEIR_OK)
        return 1;
    for (int i = 0; i < DEVICES; i++)
        if (weir_client_create(runtime, &options, &clients[i]) != WEIR_OK)
            return 1;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_later_load_computes_nothing, begin),
        cmocka_unit_test_setup(a_batch_is_enough_where_nothing_grows, begin),
        cmocka_unit_test_setup(why_it_cannot_be_measured_is_said, begin),
        cmocka_unit_test_setup(without_devices_or_cells_nothing_is_computed, begin),
        cmocka_unit_test_setup(another_load_is_measured, begin),
        cmocka_unit_test_setup(a_changed_library_is_measured_with, begin),
        cmocka_unit_test_setup(a_load_that_failed_is_measured_again, begin),
        cmocka_unit_test_setup(there_has_to_be_room_for_what_is_known, begin),
        cmocka_unit_test_setup(a_line_that_is_not_whole_is_left_out, begin),
        cmocka_unit_test_setup(numbers_that_no_device_has_are_left_out, begin),
        cmocka_unit_test_setup(with_the_option_off_nothing_is_remembered, begin),
        cmocka_unit_test_setup(the_file_has_an_end, begin),
    };
    snprintf(home, sizeof home, "/tmp/weir-scratch-XXXXXX");
    if (!mkdtemp(home))
        return 1;
    snprintf(named, sizeof named, "%s/gguf-scratch", home);
    int failed = cmocka_run_group_tests_name("scratch", tests, make_clients, NULL);
    unlink(named);
    rmdir(home);
    return failed;
}
