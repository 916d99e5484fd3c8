/* Damaged files through the whole engine: truncated anywhere, bits flipped anywhere. Each answers with a status or runs; no
 * crash, no byte left in the ledger. `hostile FILE COUNT` does it to any file, for instance the sentence encoder. */
#include "common.h"

#include <unistd.h>

#include <weir/base.h>
#include <weir/engine.h>

static uint64_t random_state = 0x2545f4914f6cdd1dull;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static struct {
    int loaded, ran, refused;
} tally;

static void attempt(loaded *l, const char *path)
{
    weir_status status = load_into(l, path, (const char *const[]){"threads=1", NULL});
    if (status != WEIR_OK) {
        assert_true(strlen(weir_detail()) > 0);
        assert_int_equal(live(l), 0);
        tally.refused++;
        return;
    }
    tally.loaded++;
    weir_model_details info = WEIR_INIT(weir_model_details);
    assert_ok(l->engine->info(l->model, &info));
    uint64_t total = 0; /* a flipped bit may ask for a huge input */
    for (size_t i = 0; i < info.input_count; i++) {
        int64_t shape[WEIR_MAX_RANK];
        size_t bytes = 0;
        for (uint32_t d = 0; d < info.inputs[i].rank; d++)
            shape[d] = info.inputs[i].shape[d] < 0 ? 3 : info.inputs[i].shape[d];
        if (weir_tensor_bytes(info.inputs[i].type, info.inputs[i].rank, shape, &bytes) != WEIR_OK || bytes > 1 << 20)
            total = UINT64_MAX;
        else if (total != UINT64_MAX)
            total += bytes;
    }
    if (total <= 4 << 20) {
        weir_tensor inputs[PLAIN_VALUES];
        size_t count = make_inputs(l, 3, inputs, PLAIN_VALUES);
        weir_outputs out;
        if (infer(l, inputs, count, &out) == WEIR_OK) {
            l->engine->release_outputs(l->model, &out);
            tally.ran++;
        }
        free_inputs(inputs, count);
    }
    unload_model(l);
}

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

static bytes read_all(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("no %s", path);
    fseek(f, 0, SEEK_END);
    bytes b = {NULL, (size_t)ftell(f)};
    rewind(f);
    b.data = malloc(b.size);
    assert_non_null(b.data);
    assert_int_equal(fread(b.data, 1, b.size, f), b.size);
    fclose(f);
    return b;
}

static void write_all(const char *path, const uint8_t *data, size_t size)
{
    unlink(path); /* a file that is cut and written again is flushed to the disk by some file systems */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

/* Weights make up most of a large file, and a flipped weight is only a wrong number: three of four damages go to where the
 * structure is, the first and last 40 KiB. */
static size_t interesting(size_t size)
{
    const size_t edge = 40 << 10;
    uint64_t where = next_random() % 4;
    if (size < 2 * edge || where == 3)
        return next_random() % size;
    return where == 2 ? size - 1 - next_random() % edge : next_random() % edge;
}

static void damage(const char *model, int count)
{
    bytes whole = read_all(model_path(model));
    const char *path = scratch_path();
    loaded l = open_client(512u << 20);
    for (int i = 0; i < count; i++) {
        write_all(path, whole.data, interesting(whole.size));
        attempt(&l, path);
    }
    for (int i = 0; i < count; i++) {
        int flips = 1 + (i % 4 == 3 ? 2 : 0);
        size_t at[3];
        uint8_t bit[3];
        for (int k = 0; k < flips; k++) {
            at[k] = interesting(whole.size);
            bit[k] = (uint8_t)(1u << next_random() % 8);
            whole.data[at[k]] ^= bit[k];
        }
        write_all(path, whole.data, whole.size);
        attempt(&l, path);
        for (int k = flips - 1; k >= 0; k--)
            whole.data[at[k]] ^= bit[k];
    }
    close_client(&l);
    free(whole.data);
    printf("%s: %d truncated and %d flipped: %d refused, %d loaded, %d ran\n", model, count, count, tally.refused,
           tally.loaded, tally.ran);
    memset(&tally, 0, sizeof tally);
}

static const char *given;
static int given_count;

static void small_models(void **state)
{
    (void)state;
    static const char *const models[] = {"mlp",  "beside", "types",  "scalar", "empty",
                                         "loop", "conv",   "branch", "default"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        damage(models[i], 200);
}

static void the_given_model(void **state)
{
    (void)state;
    damage(given, given_count);
}

int main(int argc, char **argv)
{
    int missing = need_onnxruntime();
    if (missing)
        return missing;
    const struct CMUnitTest small[] = {cmocka_unit_test(small_models)};
    const struct CMUnitTest one[] = {cmocka_unit_test(the_given_model)};
    if (argc < 3) {
        int failed = cmocka_run_group_tests(small, NULL, NULL);
        scratch_clear();
        return failed;
    }
    given = argv[1];
    given_count = atoi(argv[2]);
    if (access(given, R_OK) != 0) {
        printf("skipped: no %s (run scripts/models)\n", given);
        return engines_are_required() ? 1 : SKIPPED;
    }
    int failed = cmocka_run_group_tests(one, NULL, NULL);
    scratch_clear();
    return failed;
}
