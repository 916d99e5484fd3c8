/* The file before ONNX Runtime: wire format, structure, tensors, the model without its weights. Needs no ONNX Runtime. */
#include "common.h"

#include "test_places.h"

#include <limits.h>
#include <unistd.h>

#include "onnx/file/main_graph.h"
#include "onnx/engine/model.h"

static const char *const good[] = {"mlp",  "typed", "beside",   "types",  "scalar",  "empty",  "loop",
                                   "grow", "conv",  "rankless", "branch", "default", "strings"};

static weir_status check_file(const char *path)
{
    onnx_file file;
    weir_status status = onnx_file_open(path, &file);
    if (status == WEIR_OK)
        status = onnx_check(&file);
    onnx_file_close(&file);
    return status;
}

/* Writes the bytes beside beside.data, so that files that they name are found, and checks them. */
static weir_status check_bytes(const uint8_t *data, size_t size)
{
    const char *path = scratch_path();
    unlink(path); /* a file that is cut and written again is flushed to the disk by some file systems */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    return check_file(path);
}

static uint8_t *read_model(const char *name, size_t *size)
{
    FILE *f = fopen(model_path(name), "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

static void good_files_pass(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_ok(check_file(model_path(good[i])));
}

static void missing_and_empty(void **state)
{
    (void)state;
    assert_status(check_file("/nowhere/model.onnx"), WEIR_ERR_NOT_FOUND);
    assert_detail("/nowhere/model.onnx");
    assert_status(check_file("/tmp"), WEIR_ERR_SYSTEM);
    assert_status(check_bytes((const uint8_t *)"", 0), WEIR_ERR_CORRUPT);
    assert_detail("empty");
    assert_status(check_bytes((const uint8_t *)"GGUF\3\0\0\0", 8), WEIR_ERR_CORRUPT);
}

/* Every length of every model: a truncated file is never taken for a whole one, unless the cut is between two fields of
 * the model itself and leaves all it needs; none of these models has such a place. */
static void truncated_files_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        size_t size;
        uint8_t *data = read_model(good[i], &size);
        for (size_t n = 0; n<size; n += size> 2000 ? 7 : 1)
            assert_status(check_bytes(data, n), WEIR_ERR_CORRUPT);
        free(data);
    }
}

static void external_data_stays_inside(void **state)
{
    (void)state;
    assert_status(check_file(model_path("escape")), WEIR_ERR_CORRUPT);
    assert_detail("leaves the model's folder");
    assert_detail("\"w\"");
    assert_status(check_file(model_path("memory")), WEIR_ERR_CORRUPT);
    assert_status(check_file(model_path("beyond")), WEIR_ERR_CORRUPT);
    assert_detail("bytes 600 to 1688 of a file of 1168");
}

typedef struct placed {
    const char *data,
        *link; /* where the bytes are, and where in the model's folder a link leads to them; NULL: no link */
    bool allowed;
} placed;

/* Of the model M/model.onnx, which has its bytes in M/beside.data. */
static weir_status check_placed(const placed *it)
{
    char folder[] = "/tmp/weir-format-XXXXXX", path[64], command[2048];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/M/model.onnx", folder);
    int size = snprintf(command, sizeof command, "cd %s && mkdir -p M/sub MM other && cp '%s' M/model.onnx && ", folder,
                        model_path("beside"));
    snprintf(command + size, sizeof command - (size_t)size, "cp '%s' %s && ln -sf %s M/%s",
             data_path("onnx/beside.data"), it->data, it->link ? it->link : "nowhere",
             it->link ? "beside.data" : "link");
    assert_int_equal(system(command), 0);
    weir_status status = check_file(path);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    return status;
}

/* Behind all links the bytes are in the model's folder, or below it: one beside it may be called as it is, and more. */
static void links_stay_inside(void **state)
{
    (void)state;
    static const placed cases[] = {{"M/beside.data", NULL, true},
                                   {"M/sub/bytes", "sub/bytes", true},
                                   {"M/sub/bytes", "../M/sub/bytes", true},
                                   {"MM/bytes", "../MM/bytes", false},
                                   {"other/bytes", "../other/bytes", false},
                                   {"bytes", "../bytes", false},
                                   {"M.bytes", "../M.bytes", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_status status = check_placed(&cases[i]);
        assert_status(status, cases[i].allowed ? WEIR_OK : WEIR_ERR_CORRUPT);
        if (!cases[i].allowed)
            assert_detail("it is a link that leaves the model's folder");
    }
}

/* ---- made by hand ------------------------------------------------------------------------------------------------- */

typedef struct made {
    onnx_buffer model, graph, tensor;
} made;

/* A model around one initializer whose body is in m->tensor. */
static weir_status check_made(made *m)
{
    onnx_buffer opset = {0};
    onnx_put_varint(&opset, 2, 17);
    onnx_put_data(&m->graph, 5, m->tensor.data, m->tensor.size);
    onnx_put_varint(&m->model, 1, 8);
    onnx_put_data(&m->model, 8, opset.data, opset.size);
    onnx_put_data(&m->model, 7, m->graph.data, m->graph.size);
    weir_status status = check_bytes(m->model.data, m->model.size);
    onnx_buffer_free(&opset);
    onnx_buffer_free(&m->model);
    onnx_buffer_free(&m->graph);
    onnx_buffer_free(&m->tensor);
    return status;
}

static made with_tensor(const int64_t *dims, size_t rank, int type, size_t raw)
{
    made m = {0};
    static const uint8_t zeros[256];
    for (size_t i = 0; i < rank; i++)
        onnx_put_varint(&m.tensor, 1, (uint64_t)dims[i]);
    onnx_put_varint(&m.tensor, 2, (uint64_t)type);
    onnx_put_data(&m.tensor, 8, "t", 1);
    onnx_put_data(&m.tensor, 9, zeros, raw);
    return m;
}

/* Links of the file and of its folder: what it is called, where it lies, and where its name lies. */
static void links_are_followed(void **state)
{
    char folder[] = "/tmp/weir-links-XXXXXX", target[PATH_MAX], real[PATH_MAX], path[PATH_MAX], there[PATH_MAX];
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_non_null(realpath(model_path("mlp"), target));
    snprintf(real, sizeof real, "%s", target);
    *strrchr(real, '/') = 0;
    snprintf(there, sizeof there, "%s/there", folder);
    assert_int_equal(symlink(real, there), 0);
    snprintf(path, sizeof path, "%s/a.onnx", folder);
    assert_int_equal(symlink(target, path), 0);
    const struct {
        const char *name, *home;
    } ways[] = {{"a.onnx", folder}, {"there/mlp.onnx", real}, {"there/../a.onnx", NULL}, {"a.onnx/", NULL}, {"", NULL}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        onnx_file file;
        snprintf(path, sizeof path, "%s/%s", folder, ways[i].name);
        weir_status status = onnx_file_open(path, &file);
        assert_int_equal(status == WEIR_OK, ways[i].home != NULL);
        if (status == WEIR_OK) {
            assert_string_equal(file.real, target);
            assert_string_equal(file.folder, real);
            assert_string_equal(file.home, ways[i].home);
            assert_string_equal(file.named, path);
        }
        onnx_file_close(&file);
    }
    assert_int_equal(unlink(there), 0);
    snprintf(path, sizeof path, "%s/a.onnx", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void tensors_are_as_long_as_they_say(void **state)
{
    (void)state;
    made m = with_tensor((int64_t[]){2, 3}, 2, ONNX_FLOAT, 24);
    assert_ok(check_made(&m));
    m = with_tensor((int64_t[]){2, 3}, 2, ONNX_FLOAT, 20);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    assert_detail("20 bytes of data, its shape and type (float) need 24");
    m = with_tensor((int64_t[]){3}, 1, ONNX_INT4, 2);
    assert_ok(check_made(&m));
    m = with_tensor((int64_t[]){0, 1000000}, 2, ONNX_DOUBLE, 0);
    assert_ok(check_made(&m));
    m = with_tensor((int64_t[]){-1, 3}, 2, ONNX_FLOAT, 24);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    assert_detail("negative");
    m = with_tensor((int64_t[]){INT64_MAX, 2, INT64_MAX}, 3, ONNX_FLOAT, 24);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    assert_detail("multiply beyond");
    m = with_tensor((int64_t[]){1}, 1, 77, 4);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    m = with_tensor((int64_t[]){1}, 1, ONNX_STRING, 4);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    m = with_tensor(NULL, 0, ONNX_FLOAT, 4);
    onnx_put_data(&m.tensor, 4, "\0\0\0\0", 4);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    assert_detail("both raw and typed");
}

/* Three elements as a list, and what is one more or less. */
static void lists_are_as_long_as_they_say(void **state)
{
    enum { F32S = 4, I32S = 5, TEXTS = 6, I64S = 7, F64S = 10, U64S = 11 };
    static const struct {
        int type;
        uint32_t list;
        int wanted;
    } cases[] = {{ONNX_FLOAT, F32S, 3}, {ONNX_COMPLEX64, F32S, 6}, {ONNX_DOUBLE, F64S, 3},  {ONNX_COMPLEX128, F64S, 6},
                 {ONNX_INT64, I64S, 3}, {ONNX_UINT32, U64S, 3},    {ONNX_UINT64, U64S, 3},  {ONNX_STRING, TEXTS, 3},
                 {ONNX_INT32, I32S, 3}, {ONNX_UINT8, I32S, 3},     {ONNX_FLOAT16, I32S, 3}, {ONNX_BOOL, I32S, 3},
                 {ONNX_INT4, I32S, 2},  {ONNX_UINT2, I32S, 1}};
    static const uint8_t zeros[64];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int count = cases[i].wanted - 1; count < cases[i].wanted + 2; count++)
            for (int packed = 0; packed < 2; packed++) {
                made m = {0};
                uint32_t list = cases[i].list;
                size_t width = list == F32S ? 4 : list == F64S ? 8 : 1;
                onnx_put_varint(&m.tensor, 1, 3);
                onnx_put_varint(&m.tensor, 2, (uint64_t)cases[i].type);
                onnx_put_data(&m.tensor, 8, "t", 1);
                if (list == TEXTS)
                    for (int k = 0; k < count; k++)
                        onnx_put_data(&m.tensor, list, "a", 1);
                else if (packed || width > 1)
                    onnx_put_data(&m.tensor, list, zeros, (size_t)count * width);
                else
                    for (int k = 0; k < count; k++)
                        onnx_put_varint(&m.tensor, list, 0);
                assert_status(check_made(&m), count == cases[i].wanted ? WEIR_OK : WEIR_ERR_CORRUPT);
                if (count != cases[i].wanted)
                    assert_detail("values are there, its shape and type");
            }
}

static void names_are_given_once(void **state)
{
    (void)state;
    made m = with_tensor(NULL, 0, ONNX_FLOAT, 4);
    onnx_put_data(&m.graph, 5, m.tensor.data, m.tensor.size);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    assert_detail("\"t\" is defined twice");
}

static void texts_are_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool valid;
    } texts[] = {{"plain", true},
                 {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", true},
                 {"\xc3", false},
                 {"\xc0\x80", false},
                 {"\xed\xa0\x80", false},
                 {"\xf5\x80\x80\x80", false},
                 {"\xe2\x28\xa1", false},
                 {"\x80", false},
                 {"", true}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(onnx_text_valid((onnx_text){texts[i].text, strlen(texts[i].text)}), texts[i].valid);
    assert_false(onnx_text_valid((onnx_text){"a\0b", 3}));
    made m = with_tensor(NULL, 0, ONNX_FLOAT, 4);
    onnx_put_data(&m.graph, 2, "\xff", 1);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    assert_detail("UTF-8");
}

/* A graph in a node's attribute in a graph …, deeper than any recursion should go. */
static void nesting_has_an_end(void **state)
{
    (void)state;
    onnx_buffer inner = {0};
    for (int i = 0; i < 60; i++) {
        onnx_buffer attribute = {0}, node = {0}, graph = {0};
        onnx_put_data(&attribute, 1, "g", 1);
        onnx_put_data(&attribute, 6, inner.data, inner.size);
        onnx_put_varint(&attribute, 20, 5);
        onnx_put_data(&node, 4, "If", 2);
        onnx_put_data(&node, 5, attribute.data, attribute.size);
        onnx_put_data(&graph, 1, node.data, node.size);
        onnx_buffer_free(&inner);
        onnx_buffer_free(&attribute);
        onnx_buffer_free(&node);
        inner = graph;
    }
    made m = with_tensor(NULL, 0, ONNX_FLOAT, 4);
    onnx_put_bytes(&m.graph, inner.data, inner.size);
    onnx_buffer_free(&inner);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    assert_detail("inside one another");
}

/* A node with a list of numbers one by one, as trees have them, and what follows it in its attribute. */
static weir_status check_list(const uint64_t *numbers, size_t count, const void *behind, size_t size)
{
    made m = with_tensor(NULL, 0, ONNX_FLOAT, 4);
    onnx_buffer attribute = {0}, node = {0};
    onnx_put_data(&attribute, 1, "ids", 3);
    onnx_put_varint(&attribute, 20, 7);
    for (size_t i = 0; i < count; i++)
        onnx_put_varint(&attribute, 8, numbers[i]);
    onnx_put_bytes(&attribute, behind, size);
    onnx_put_data(&node, 2, "made", 4);
    onnx_put_data(&node, 4, "Op", 2);
    onnx_put_data(&node, 5, attribute.data, attribute.size);
    onnx_put_data(&m.graph, 1, node.data, node.size);
    onnx_buffer_free(&attribute);
    onnx_buffer_free(&node);
    return check_made(&m);
}

/* Every length of a number at every place before the end, and what is none. */
static void lists_of_numbers_are_walked_to_their_end(void **state)
{
    (void)state;
    uint64_t numbers[40];
    for (size_t i = 0; i < 40; i++)
        numbers[i] = i < 30 ? UINT64_C(1) << (7 * i % 64) : i;
    for (size_t count = 1; count <= 40; count++) {
        assert_ok(check_list(numbers, count, "", 0));
        assert_status(check_list(numbers, count, "\x40", 1), WEIR_ERR_CORRUPT); /* no number */
        assert_detail("cut short or malformed");
        assert_status(check_list(numbers, count, "\x40\x80", 2), WEIR_ERR_CORRUPT);
        assert_status(check_list(numbers, count, "\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x01", 12),
                      WEIR_ERR_CORRUPT); /* more than 64 bits */
        assert_ok(
            check_list(numbers, count, "\xc0\0\x81\0", 4)); /* a tag and a number that are longer than they need be */
        assert_ok(check_list(numbers, count, "\xc0\0\x81\0\xc0\0\x01", 7));
        assert_status(check_list(numbers, count, "\xc0\0\x81", 3), WEIR_ERR_CORRUPT);
        assert_status(check_list(numbers, count, "\x45\0\0\0\0", 5), WEIR_ERR_CORRUPT); /* of another wire type */
        assert_detail("wrong wire type");
    }
}

/* A number has 64 bits, in as many bytes as it likes up to ten. */
static void numbers_have_64_bits(void **state)
{
    (void)state;
#define NINE  "\xff\xff\xff\xff\xff\xff\xff\xff\xff"
#define EMPTY "\x80\x80\x80\x80\x80\x80\x80\x80\x80"
    static const struct {
        const char *bytes;
        size_t size;
        bool good;
        uint64_t value;
    } cases[] = {{"\0", 1, true, 0},
                 {"\x7f", 1, true, 127},
                 {"\x80\x01", 2, true, 128},
                 {"\x80\0", 2, true, 0},
                 {NINE "\x01", 10, true, UINT64_MAX},
                 {NINE "\0", 10, true, UINT64_MAX >> 1},
                 {EMPTY "\x01", 10, true, UINT64_C(1) << 63},
                 {NINE "\x02", 10, false, 0},
                 {EMPTY "\x02", 10, false, 0},
                 {NINE "\x7f", 10, false, 0},
                 {EMPTY "\x80\0", 11, false, 0},
                 {EMPTY "\x81\0", 11, false, 0},
                 {NINE, 9, false, 0},
                 {"\x80", 1, false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t value = 0;
        onnx_wire wire = onnx_wire_of((const uint8_t *)cases[i].bytes, cases[i].size);
        assert_int_equal(onnx_wire_varint(&wire, &value), cases[i].good ? 1 : -1);
        assert_int_equal(value, cases[i].value);
        assert_ptr_equal(wire.at, cases[i].bytes + (cases[i].good ? cases[i].size : 0));
        assert_int_equal(onnx_wire_varint(&wire, &value), cases[i].good ? 0 : -1);
    }
}

/* Fields take so many bytes, and begin and end there. */
static void fields_are_read_as_they_stand(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        int answer;
        uint32_t number;
        pb_wire_type_t type;
        uint64_t value;
        size_t from, length, end;
    } cases[] = {{"", 0, 0, 0, PB_WT_VARINT, 0, 0, 0, 0},
                 {"\x08\x05\x08", 3, 1, 1, PB_WT_VARINT, 5, 0, 0, 2},
                 {"\x0a\x02"
                  "ab"
                  "\x08",
                  5, 1, 1, PB_WT_STRING, 0, 2, 2, 4},
                 {"\x0a\0", 2, 1, 1, PB_WT_STRING, 0, 2, 0, 2},
                 {"\x0a\x02"
                  "a",
                  3, -1, 0, PB_WT_VARINT, 0, 0, 0, 0},
                 {"\x0a\x03"
                  "ab",
                  4, -1, 0, PB_WT_VARINT, 0, 0, 0, 0},
                 {"\x0a\x82\0"
                  "ab",
                  5, 1, 1, PB_WT_STRING, 0, 3, 2, 5},
                 {"\x8a\x01\x01"
                  "a",
                  4, 1, 17, PB_WT_STRING, 0, 3, 1, 4},
                 {"\x8a\0\x01"
                  "a",
                  4, 1, 1, PB_WT_STRING, 0, 3, 1, 4},
                 {"\x0d"
                  "abcd",
                  5, 1, 1, PB_WT_32BIT, 0, 1, 4, 5},
                 {"\x0d"
                  "abc",
                  4, -1, 0, PB_WT_VARINT, 0, 0, 0, 0},
                 {"\x11"
                  "abcdefgh",
                  9, 1, 2, PB_WT_64BIT, 0, 1, 8, 9},
                 {"\x11"
                  "abcdefg",
                  8, -1, 0, PB_WT_VARINT, 0, 0, 0, 0},
                 {"\x0b\x0c", 2, -1, 0, PB_WT_VARINT, 0, 0, 0, 0}, /* a group */
                 {"\x02\0", 2, -1, 0, PB_WT_VARINT, 0, 0, 0, 0},   /* number 0 */
                 {"\0\0", 2, -1, 0, PB_WT_VARINT, 0, 0, 0, 0},
                 {"\xf8\xff\xff\xff\x0f\x01", 6, 1, UINT32_MAX >> 3, PB_WT_VARINT, 1, 0, 0, 6},
                 {"\x88\x80\x80\x80\x10\x01", 6, -1, 0, PB_WT_VARINT, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        onnx_field field;
        const uint8_t *bytes = (const uint8_t *)cases[i].bytes;
        onnx_wire wire = onnx_wire_of(bytes, cases[i].size);
        assert_int_equal(onnx_wire_next(&wire, &field), cases[i].answer);
        if (cases[i].answer != 1)
            continue;
        assert_int_equal(field.number, cases[i].number);
        assert_int_equal(field.type, cases[i].type);
        assert_int_equal(field.value, cases[i].value);
        assert_int_equal(field.size, cases[i].length);
        if (cases[i].type != PB_WT_VARINT)
            assert_ptr_equal(field.data, bytes + cases[i].from);
        assert_ptr_equal(field.begin, bytes);
        assert_ptr_equal(field.end, bytes + cases[i].end);
        assert_ptr_equal(wire.at, field.end);
    }
}

/* A tensor of four bytes beside the model, or of none that lies inside. */
static onnx_buffer small_tensor(const char *name, bool beside)
{
    onnx_buffer tensor = {0}, location = {0};
    onnx_put_varint(&tensor, 1, 1);
    onnx_put_varint(&tensor, 2, ONNX_INT32);
    onnx_put_data(&tensor, 8, name, strlen(name));
    onnx_put_data(&location, 1, "location", 8);
    onnx_put_data(&location, 2, "beside.data", 11);
    if (beside) {
        onnx_put_data(&tensor, 13, location.data, location.size);
        onnx_put_varint(&tensor, 14, 1);
    } else {
        onnx_put_data(&tensor, 9, "abcd", 4);
    }
    onnx_buffer_free(&location);
    return tensor;
}

static void put_inside(onnx_buffer *to, uint32_t field, onnx_buffer what)
{
    onnx_put_data(to, field, what.data, what.size);
    onnx_buffer_free(&what);
}

/* A node whose attribute has that in the field. */
static onnx_buffer node_with(const char *output, uint32_t field, uint64_t type, onnx_buffer what)
{
    onnx_buffer attribute = {0}, node = {0};
    onnx_put_data(&attribute, 1, "its", 3);
    put_inside(&attribute, field, what);
    onnx_put_varint(&attribute, 20, type);
    onnx_put_data(&node, 2, output, strlen(output));
    onnx_put_data(&node, 4, "Op", 2);
    put_inside(&node, 5, attribute);
    return node;
}

/* Tensors that lie beside the model are found wherever they are, but for the main graph's own; others are not. */
static void tensors_beside_are_found_everywhere(void **state)
{
    (void)state;
    enum { TENSOR = 4, GRAPH = 5, SPARSE = 11, TENSORS = 9, GRAPHS = 10 };
    onnx_buffer body = {0}, sparse = {0}, graph = {0}, model = {0}, opset = {0}, function = {0};
    put_inside(&body, 5, small_tensor("of a body", true));
    put_inside(&body, 5, small_tensor("inside it", false));
    put_inside(&body, 1, node_with("a", 10, TENSORS, small_tensor("of a list", true)));
    put_inside(&graph, 5, small_tensor("of the graph", true));
    put_inside(&graph, 1, node_with("b", 5, TENSOR, small_tensor("of a node", true)));
    put_inside(&graph, 1, node_with("c", 5, TENSOR, small_tensor("inside one", false)));
    put_inside(&graph, 1, node_with("d", 11, GRAPHS, body));
    put_inside(&sparse, 1, small_tensor("of a sparse one", true));
    put_inside(&sparse, 2, small_tensor("its places", true));
    put_inside(&graph, 15, sparse);
    onnx_put_varint(&opset, 2, 17);
    onnx_put_data(&function, 1, "f", 1);
    put_inside(&function, 7, node_with("e", 5, TENSOR, small_tensor("of a function", true)));
    onnx_put_varint(&model, 1, 8);
    put_inside(&model, 8, opset);
    put_inside(&model, 7, graph);
    put_inside(&model, 25, function);
    assert_ok(check_bytes(model.data, model.size));
    static const char *const names[] = {"of a node",       "of a body",  "of a list",
                                        "of a sparse one", "its places", "of a function"};
    onnx_file file;
    onnx_graph read;
    assert_ok(onnx_file_open(scratch_path(), &file));
    assert_ok(onnx_check(&file));
    assert_true(file.nested);
    assert_ok(onnx_graph_read(&file, &read));
    assert_int_equal(read.weight_count, 1);
    assert_ok(onnx_graph_read_beside(&file, &read));
    assert_int_equal(read.inner_count, sizeof names / sizeof *names);
    for (size_t i = 0; i < read.inner_count; i++) {
        assert_true(onnx_text_is(read.inner[i].name, names[i]));
        assert_true(read.inner[i].stays && read.inner[i].beside && read.inner[i].deep);
    }
    assert_ok(onnx_graph_read_beside(&file, &read)); /* those that are there are there once */
    assert_int_equal(read.inner_count, sizeof names / sizeof *names);
    onnx_graph_free(&read);
    onnx_file_close(&file);
    onnx_buffer_free(&model);
}

static void only_files_without_graphs_inside_are_plain(void **state)
{
    static const struct {
        const char *name;
        bool plain;
    } models[] = {{"mlp", true}, {"labels", true}, {"loop", false}, {"branch", false}};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        onnx_file file;
        assert_ok(onnx_file_open(model_path(models[i].name), &file));
        assert_false(file.plain); /* nothing is known yet */
        assert_ok(onnx_check(&file));
        assert_int_equal(file.plain, models[i].plain);
        onnx_file_close(&file);
    }
}

static void fields_have_their_kind(void **state)
{
    (void)state;
    made m = with_tensor(NULL, 0, ONNX_FLOAT, 4);
    onnx_put_varint(&m.graph, 1, 5); /* a node that is a number */
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    assert_detail("wrong wire type");
    m = with_tensor(NULL, 0, ONNX_FLOAT, 4);
    onnx_put_data(&m.graph, 2, "a", 1);
    onnx_put_data(&m.graph, 2, "b", 1);
    assert_status(check_made(&m), WEIR_ERR_CORRUPT);
    assert_detail("appears twice");
    m = with_tensor(NULL, 0, ONNX_FLOAT, 4);
    onnx_put_data(&m.graph, 4000, "later", 5); /* a field of a later version */
    assert_ok(check_made(&m));
}

/* The stripped model is a model again, with the same tensors, whose bytes are where it says. */
static void stripped_model_tells_the_truth(void **state)
{
    (void)state;
    static const char *const names[] = {"mlp", "typed", "beside", "conv"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        onnx_file file;
        onnx_graph graph;
        onnx_buffer stripped = {0};
        assert_ok(onnx_file_open(model_path(names[n]), &file));
        assert_ok(onnx_check(&file));
        assert_ok(onnx_graph_read(&file, &graph));
        assert_ok(onnx_strip(&file, &graph, &stripped));
        assert_true(stripped.size < 1000);

        onnx_file again = file; /* the same folder, other bytes */
        onnx_graph copy;
        again.data = stripped.data;
        again.size = stripped.size;
        again.sides = NULL;
        assert_ok(onnx_check(&again));
        assert_ok(onnx_graph_read(&again, &copy));
        assert_int_equal(copy.weight_count, graph.weight_count);
        size_t moved = 0;
        for (size_t i = 0; i < graph.weight_count; i++) {
            const onnx_tensor *a = &graph.weights[i], *b = &copy.weights[i];
            assert_true(onnx_text_same(a->name, b->name));
            assert_int_equal(a->type, b->type);
            assert_int_equal(a->rank, b->rank);
            assert_memory_equal(a->shape, b->shape, sizeof a->shape);
            assert_memory_equal(a->data, b->data, a->bytes);
            moved += b->location == ONNX_LOCATION_BESIDE;
        }
        assert_int_equal(moved, 1);
        onnx_graph_free(&copy);
        again.data = NULL;
        again.named = again.real = again.home = again.folder = NULL;
        onnx_file_close(&again);
        onnx_graph_free(&graph);
        onnx_buffer_free(&stripped);
        onnx_file_close(&file);
    }
}

/* A lifted constant is an initializer of the main graph, with its bytes; nothing else of the name is left. */
static void lifted_constants_are_the_main_graphs(void **state)
{
    (void)state;
    static const char *const names[] = {"b_w", "a_w"}; /* in the order of the file */
    onnx_file file;
    onnx_graph graph, copy;
    onnx_buffer stripped = {0};
    size_t lifted = 0;
    assert_ok(onnx_file_open(model_path("lifted"), &file));
    assert_ok(onnx_check(&file));
    assert_ok(onnx_graph_read(&file, &graph));
    assert_int_equal(graph.ir, 8);
    assert_ok(onnx_graph_read_inner(&file, &graph, ONNX_INLINE_BELOW));
    assert_ok(onnx_uses_lift(&graph));
    for (size_t i = 0; i < graph.inner_count; i++)
        lifted += graph.inner[i].lifted;
    assert_int_equal(lifted, sizeof names / sizeof *names);
    assert_ok(onnx_strip(&file, &graph, &stripped));
    onnx_file again = file; /* the same folder, other bytes */
    again.data = stripped.data;
    again.size = stripped.size;
    again.sides = NULL;
    assert_ok(onnx_check(&again));
    assert_ok(onnx_graph_read(&again, &copy));
    assert_int_equal(copy.weight_count, graph.weight_count + lifted);
    for (size_t i = 0; i < lifted; i++) {
        const onnx_tensor *now = &copy.weights[graph.weight_count + i], *was = graph.inner;
        assert_true(onnx_text_is(now->name, names[i]));
        while (!onnx_text_same(was->name, now->name))
            was++;
        assert_int_equal(now->bytes, was->bytes);
        assert_memory_equal(now->data, was->data, was->bytes);
    }
    assert_ok(onnx_graph_read_inner(&again, &copy, 1)); /* a note of where the bytes lie is short */
    assert_int_equal(copy.inner_count, graph.inner_count - lifted);
    onnx_graph_free(&copy);
    again.data = NULL;
    again.named = again.real = again.home = again.folder = NULL;
    onnx_file_close(&again);
    onnx_graph_free(&graph);
    onnx_buffer_free(&stripped);
    onnx_file_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_pass),
        cmocka_unit_test(missing_and_empty),
        cmocka_unit_test(truncated_files_fail),
        cmocka_unit_test(external_data_stays_inside),
        cmocka_unit_test(links_stay_inside),
        cmocka_unit_test(links_are_followed),
        cmocka_unit_test(tensors_are_as_long_as_they_say),
        cmocka_unit_test(lists_are_as_long_as_they_say),
        cmocka_unit_test(names_are_given_once),
        cmocka_unit_test(texts_are_utf8),
        cmocka_unit_test(nesting_has_an_end),
        cmocka_unit_test(lists_of_numbers_are_walked_to_their_end),
        cmocka_unit_test(numbers_have_64_bits),
        cmocka_unit_test(fields_are_read_as_they_stand),
        cmocka_unit_test(tensors_beside_are_found_everywhere),
        cmocka_unit_test(only_files_without_graphs_inside_are_plain),
        cmocka_unit_test(fields_have_their_kind),
        cmocka_unit_test(stripped_model_tells_the_truth),
        cmocka_unit_test(lifted_constants_are_the_main_graphs),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_clear();
    return failed;
}
