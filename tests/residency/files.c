/* Files that are read into device memory: every byte in its place, and each failure told. */
#include "residency/residency.h"

#include <fcntl.h>

#define FILE_BYTES (37 * MIB + 12345)

static char path[] = "weir-file-XXXXXX";
static unsigned char *contents;

static int make_file(void **state)
{
    (void)state;
    int file = mkstemp(path);
    contents = pattern(FILE_BYTES, 3);
    assert_int_equal(write(file, contents, FILE_BYTES), FILE_BYTES);
    close(file);
    return 0;
}

static int end_file(void **state)
{
    (void)state;
    free(contents);
    return unlink(path);
}

static void holds_part(fixture *f, const void *block, uint64_t offset, size_t bytes)
{
    unsigned char *there = calloc(1, bytes);
    ok(weir_copy(f->runtime, there, block, bytes, WEIR_STREAM_HOST));
    bytes_are(there, contents + offset, bytes);
    free(there);
}

static void parts_of_a_file_are_read(void **state)
{
    fixture *f = *state;
    const struct {
        uint64_t offset, bytes;
    } parts[] = {{0, FILE_BYTES},        {0, 1},           {FILE_BYTES - 1, 1}, {4097, 8 * MIB},
                 {8 * MIB, 8 * MIB + 1}, {5, 29 * MIB + 7}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        for (int streamed = 0; streamed < 2; streamed++) {
            weir_request request = {.struct_size = sizeof request,
                                    .bytes = parts[i].bytes,
                                    .memory_class = WEIR_CLASS_WEIGHTS,
                                    .stream = streamed ? f->stream : WEIR_STREAM_HOST};
            weir_block block;
            ok(weir_alloc_from_file(f->model, &request, path, parts[i].offset, &block));
            if (streamed)
                ok(weir_stream_synchronize(f->stream));
            holds_part(f, block.pointer, parts[i].offset, parts[i].bytes);
            ok(weir_free_block(f->model, block, request.stream));
        }
    ok(weir_stream_synchronize(f->stream));
}

/* What was queued on the stream before is not overtaken. */
static void the_file_comes_behind_the_work_on_the_stream(void **state)
{
    fixture *f = *state;
    void *block = allocate(f->model, FILE_BYTES, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    pthread_t opener;
    ok(weir_call(f->runtime, pass_gate, &f->gate, f->stream));
    ok(weir_fill(f->runtime, block, 9, FILE_BYTES, f->stream));
    pthread_create(&opener, NULL, open_gate_later, &f->gate);
    ok(weir_read_file(f->model, block, path, 0, FILE_BYTES, f->stream));
    pthread_join(opener, NULL);
    holds_part(f, block, 0, FILE_BYTES);
    ok(weir_read_file(f->model, block, path, 100, 0, f->stream)); /* nothing */
    holds_part(f, block, 0, FILE_BYTES);
    ok(weir_free(f->model, block, WEIR_STREAM_HOST));
}

static void what_cannot_be_read_is_told(void **state)
{
    fixture *f = *state;
    weir_request request = {.struct_size = sizeof request, .bytes = FILE_BYTES};
    weir_block block = {.pointer = f};
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_NOT_FOUND, weir_alloc_from_file(f->model, &request, "no/such/file", 0, &block));
    detail_names("no/such/file");
    assert_null(block.pointer);
    fails(WEIR_ERR_INVALID, weir_alloc_from_file(f->model, &request, path, 1, &block));
    detail_names(path);
    fails(WEIR_ERR_INVALID, weir_alloc_from_file(f->model, &request, path, UINT64_MAX, &block));
    fails(WEIR_ERR_INVALID, weir_alloc_from_file(f->model, &request, ".", 0, &block));
    request.bytes = 2 * BUDGET;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_from_file(f->model, &request, path, 0, &block));
    fails(WEIR_ERR_INVALID, weir_read_file(f->model, NULL, path, 0, 1, WEIR_STREAM_HOST));
    fails(WEIR_ERR_INVALID, weir_read_file(NULL, f, path, 0, 1, WEIR_STREAM_HOST));
    snapshot s = take_snapshot(f->runtime);
    check_sums(&s);
    assert_int_equal(s.device.live, before.device.live);
    assert_int_equal(s.device.pending, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(parts_of_a_file_are_read),
        CASE(the_file_comes_behind_the_work_on_the_stream),
        CASE(what_cannot_be_read_is_told),
    };
    return cmocka_run_group_tests(tests, make_file, end_file);
}
