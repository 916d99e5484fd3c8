/* A file that was found good is walked once, and again when it or what lies beside it may have changed; what it takes is foreseen once
 * as well; a model without weights to move is handed over as it is mapped. A load has all files of a model read ahead. */
#include "common.h"

#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engines/text/text.h"
#include "onnx/engine/foresee.h"
#include "onnx/engine/model.h"
#include "onnx/file/main_graph.h"

static int walks, foreseen;
static time_t later; /* by so much the clock is ahead */

weir_status __wrap_onnx_check(onnx_file *file);
weir_status __real_onnx_check(onnx_file *file);
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_clock_gettime(clockid_t clock, struct timespec *out);

weir_status __wrap_onnx_check(onnx_file *file)
{
    walks++;
    return __real_onnx_check(file);
}

void __wrap_onnx_foresee_now(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out);
void __real_onnx_foresee_now(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out);
static bool lacks; /* host memory for a part of it */

void __wrap_onnx_foresee_now(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out)
{
    foreseen++;
    __real_onnx_foresee_now(file, ask, out);
    out->whole &= !lacks;
}

static int added, begun, ended;
static char read_ahead[2][96];

void __wrap_wt_ahead_add(wt_ahead *it, const char *path);
void __wrap_wt_ahead_run(wt_ahead *it);
void __wrap_wt_ahead_end(wt_ahead *it);

void __wrap_wt_ahead_add(wt_ahead *it, const char *path)
{
    (void)it;
    snprintf(read_ahead[added++ % 2], sizeof read_ahead[0], "%s", path);
}

void __wrap_wt_ahead_run(wt_ahead *it)
{
    (void)it;
    assert_int_equal(begun++, ended);
}

void __wrap_wt_ahead_end(wt_ahead *it)
{
    (void)it;
    ended++;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int answer = __real_clock_gettime(clock, out);
    out->tv_sec += later;
    return answer;
}

/* Copies of a model and of the file beside it, in a folder of their own. */
static char folder[64], model[96], beside[96];

static void copy(const char *from, const char *to, int spoil)
{
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (int c; (c = fgetc(in)) != EOF;)
        fputc(c, out);
    if (spoil)
        fputc(0x0b, out); /* the beginning of a group, which is none of ONNX */
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void write_both(int spoil)
{
    char data[600];
    snprintf(data, sizeof data, "%s", model_path("beside"));
    copy(data, model, spoil);
    snprintf(strrchr(data, '.'), 8, ".data");
    copy(data, beside, 0);
}

static int begin(void **state)
{
    (void)state;
    walks = foreseen = 0;
    later = 60;
    write_both(0);
    return 0;
}

static weir_status look(bool *texts)
{
    onnx_file file;
    weir_status status = onnx_file_open(model, &file);
    if (status == WEIR_OK)
        status = onnx_check_once(&file);
    if (status == WEIR_OK)
        assert_non_null(file.sides); /* opened, walked or not */
    *texts = file.texts;
    onnx_file_close(&file);
    return status;
}

static void a_file_is_walked_once(void **state)
{
    (void)state;
    bool texts;
    for (int i = 0; i < 3; i++)
        assert_ok(look(&texts));
    assert_int_equal(walks, 1);
    assert_false(texts);
    copy(model_path("labels"), model, 0);
    for (int i = 0; i < 2; i++) {
        onnx_file file;
        assert_ok(onnx_file_open(model, &file));
        assert_ok(onnx_check_once(&file));
        assert_true(file.texts);
        onnx_file_close(&file);
    }
    assert_int_equal(walks, 2);
}

static void what_may_have_changed_is_walked_again(void **state)
{
    (void)state;
    bool texts;
    later = 0; /* it was written just now, and may be again without another time */
    assert_ok(look(&texts));
    assert_ok(look(&texts));
    assert_int_equal(walks, 2);
    later = 60;
    assert_ok(look(&texts));
    write_both(0);
    assert_ok(look(&texts));
    assert_int_equal(walks, 4);
    write_both(1);
    assert_status(look(&texts), WEIR_ERR_CORRUPT);
    assert_status(look(&texts), WEIR_ERR_CORRUPT);
    assert_int_equal(walks, 6);
}

/* A tensor would reach beyond its end. */
static void a_file_beside_is_looked_at_as_well(void **state)
{
    (void)state;
    bool texts;
    assert_ok(look(&texts));
    assert_int_equal(truncate(beside, 1), 0);
    assert_status(look(&texts), WEIR_ERR_CORRUPT);
    assert_int_equal(walks, 2);
}

static onnx_foreseen foresee(const onnx_foresee_ask *ask)
{
    onnx_file file;
    onnx_foreseen out;
    assert_ok(onnx_file_open(model, &file));
    assert_ok(onnx_check_once(&file));
    onnx_foresee(&file, ask, &out);
    onnx_file_close(&file);
    assert_true(out.runs);
    return out;
}

/* A plan and the load behind it ask the same. */
static void what_a_run_takes_is_foreseen_once(void **state)
{
    (void)state;
    onnx_foresee_ask ask = {.dims = "", .threads = 1, .optimization = 2, .memory_pattern = true, .prepack = true};
    copy(model_path("mlp"), model, 0);
    onnx_foreseen first = foresee(&ask), again = foresee(&ask);
    assert_int_equal(foreseen, 1);
    assert_int_equal(again.activations, first.activations);
    assert_int_equal(again.packed, first.packed);
    assert_int_equal(again.replaced, first.replaced);
    const onnx_foresee_ask others[] = {
        {.dims = "batch=7", .threads = 1, .optimization = 2, .memory_pattern = true, .prepack = true},
        {.dims = "", .threads = 2, .optimization = 2, .memory_pattern = true, .prepack = true},
        {.dims = "", .threads = 1, .optimization = 1, .memory_pattern = true, .prepack = true},
        {.dims = "", .threads = 1, .optimization = 2, .memory_pattern = false, .prepack = true},
        {.dims = "", .threads = 1, .optimization = 2, .memory_pattern = true, .prepack = false},
        {.dims = "", .threads = 1, .optimization = 2, .memory_pattern = true, .prepack = true, .cuda = true}};
    for (int i = 0; i < 12; i++)
        (void)foresee(&others[i % 6]);
    assert_int_equal(foreseen, 7);
    copy(model_path("mlp"), model, 0); /* written again */
    (void)foresee(&ask);
    (void)foresee(&ask);
    assert_int_equal(foreseen, 8);
}

static void what_may_be_foreseen_otherwise_is_not_kept(void **state)
{
    (void)state;
    const onnx_foresee_ask ask = {.dims = "", .threads = 1, .optimization = 2, .memory_pattern = true, .prepack = true};
    for (int i = 0; i < 2; i++) /* a file beside it has small tensors, too */
        (void)foresee(&ask);
    assert_int_equal(foreseen, 2);
    copy(model_path("mlp"), model, 0);
    later = 0;
    for (int i = 0; i < 2; i++)
        (void)foresee(&ask);
    assert_int_equal(foreseen, 4);
    later = 60;
    lacks = true;
    for (int i = 0; i < 2; i++)
        (void)foresee(&ask);
    assert_int_equal(foreseen, 6);
    lacks = false;
    for (int i = 0; i < 2; i++)
        (void)foresee(&ask);
    assert_int_equal(foreseen, 7);
}

static void a_model_without_weights_is_not_copied(void **state)
{
    static const struct {
        const char *name;
        bool strips;
    } models[] = {{"mlp", true}, {"beside", true}, {"scalar", false}, {"loop", true}, {"default", false}};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        onnx_file file;
        onnx_graph graph;
        onnx_buffer stripped = {0};
        assert_ok(onnx_file_open(model_path(models[i].name), &file));
        assert_ok(onnx_graph_read(&file, &graph));
        assert_int_equal(onnx_strips(&graph), models[i].strips);
        assert_ok(onnx_strip(&file, &graph, &stripped));
        if (!models[i].strips) {
            assert_int_equal(stripped.size, file.size);
            assert_memory_equal(stripped.data, file.data, file.size);
        }
        onnx_buffer_free(&stripped);
        onnx_graph_free(&graph);
        onnx_file_close(&file);
    }
}

static void all_files_of_a_model_are_read_ahead(void **state)
{
    (void)state;
    char real[2][PATH_MAX];
    assert_non_null(realpath(model, real[0]));
    assert_non_null(realpath(beside, real[1]));
    added = begun = ended = 0;
    loaded l = load_model(model, NULL);
    assert_int_equal(added, 2);
    assert_int_equal(begun, 1);
    assert_int_equal(ended, 1);
    assert_string_equal(read_ahead[0], real[0]);
    assert_string_equal(read_ahead[1], real[1]);
    unload_model(&l);
    close_client(&l);
}

/* As a store has them that keeps equal files once. */
static void a_file_may_have_other_names(void **state)
{
    (void)state;
    static const char *const models[] = {"branch", "mlp"};
    char other[96];
    snprintf(other, sizeof other, "%s/other.onnx", folder);
    for (size_t i = 0; i < 2; i++) {
        copy(model_path(models[i]), model, 0);
        assert_int_equal(link(model, other), 0);
        loaded l = load_model(other, NULL);
        unload_model(&l);
        close_client(&l);
        unlink(other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_file_is_walked_once, begin),
        cmocka_unit_test_setup(what_may_have_changed_is_walked_again, begin),
        cmocka_unit_test_setup(a_file_beside_is_looked_at_as_well, begin),
        cmocka_unit_test_setup(all_files_of_a_model_are_read_ahead, begin),
        cmocka_unit_test_setup(what_a_run_takes_is_foreseen_once, begin),
        cmocka_unit_test_setup(what_may_be_foreseen_otherwise_is_not_kept, begin),
        cmocka_unit_test_setup(a_model_without_weights_is_not_copied, begin),
        cmocka_unit_test_setup(a_file_may_have_other_names, begin),
    };
    snprintf(folder, sizeof folder, "/tmp/weir-checked-%d", (int)getpid());
    snprintf(model, sizeof model, "%s/beside.onnx", folder);
    snprintf(beside, sizeof beside, "%s/beside.data", folder);
    if (mkdir(folder, 0700) != 0)
        return 1;
    int failed = cmocka_run_group_tests_name("checked", tests, NULL, NULL);
    unlink(model);
    unlink(beside);
    rmdir(folder);
    return failed;
}
