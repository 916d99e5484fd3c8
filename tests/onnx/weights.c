/* weights.c: what ONNX Runtime maps of a file: the functions in the place of its mmap and munmap, called by hand, with blocks whose
 * addresses the test chooses. */
#include "common.h"

#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/maps.h"
#include "onnx/engine/model.h"
#include "interpose/interpose.h"

enum { PAGE = 4096, PAGES = 8, MOST = 8, ROOM = 64 * 1024, SLACK = ORT_SLACK };

/* ---- what is in place of weir's and the system's ------------------------------------------------------------------ */

static void *(*its_mmap)(void *address, size_t length, int protection, int flags, int fd, off_t offset);
static int (*its_munmap)(void *address, size_t length);
static char *(*its_realpath)(const char *path, char *room);

weir_status __wrap_wi_interpose_open(const char *file, const wi_replacement *list, size_t count, wi_interpose **out);
weir_status __wrap_wi_interpose_apply(wi_interpose *slots);
weir_status __wrap_weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out);
weir_status __wrap_weir_free(weir_client *client, void *pointer, weir_stream stream);

weir_status __wrap_wi_interpose_open(const char *file, const wi_replacement *list, size_t count, wi_interpose **out)
{
    (void)file;
    for (size_t i = 0; i < count; i++)
        if (!strstr(list[i].name, "stat"))
            memcpy(strcmp(list[i].name, "mmap") == 0     ? (void *)&its_mmap
                   : strcmp(list[i].name, "munmap") == 0 ? (void *)&its_munmap
                                                         : (void *)&its_realpath,
                   &list[i].function, sizeof its_mmap);
    *out = (wi_interpose *)(void *)&its_mmap;
    return WEIR_OK;
}

weir_status __wrap_wi_interpose_apply(wi_interpose *slots)
{
    (void)slots;
    return WEIR_OK;
}

static _Alignas(PAGE) char arena[ROOM];
static size_t next_place, refuses_at, asked; /* where the next block is; refuses_at: that request, from 1; 0: none */
static void *freed[2 * MOST];
static size_t freed_count;

weir_status __wrap_weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out)
{
    (void)client;
    if (++asked == refuses_at)
        return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "request %zu is refused", asked);
    assert_int_equal(request->memory_class, WEIR_CLASS_WEIGHTS);
    assert_true(next_place + request->bytes <= ROOM);
    memset(arena + next_place, 0x5a, request->bytes);
    *out = (weir_block){.pointer = arena + next_place};
    next_place += (request->bytes + 255) / 256 * 256;
    return WEIR_OK;
}

weir_status __wrap_weir_free(weir_client *client, void *pointer, weir_stream stream)
{
    (void)client;
    (void)stream;
    assert_true(freed_count < 2 * MOST);
    freed[freed_count++] = pointer;
    return WEIR_OK;
}

bool __real_wi_pointer_map_put(wi_pointer_map *map, const void *key, uint64_t value);
bool __wrap_wi_pointer_map_put(wi_pointer_map *map, const void *key, uint64_t value);

static bool without_memory; /* of the host's, to note where a weight is */

bool __wrap_wi_pointer_map_put(wi_pointer_map *map, const void *key, uint64_t value)
{
    return !without_memory && __real_wi_pointer_map_put(map, key, value);
}

/* ---- a file with weights ------------------------------------------------------------------------------------------ */

typedef struct source {
    int fd;
    wi_stamp stamp;
    uint8_t bytes[PAGES * PAGE];
} source;

static source one, other; /* of the same length */

static void make_source(source *it, int seed)
{
    char path[] = "/tmp/weir-weights-XXXXXX";
    struct stat about;
    for (size_t i = 0; i < sizeof it->bytes; i++)
        it->bytes[i] = (uint8_t)(i * 7 + i / 251 + (size_t)seed);
    it->fd = mkstemp(path);
    assert_true(it->fd >= 0);
    unlink(path);
    assert_int_equal(write(it->fd, it->bytes, sizeof it->bytes), sizeof it->bytes);
    assert_int_equal(fstat(it->fd, &about), 0);
    it->stamp = (wi_stamp){.device = about.st_dev, .number = about.st_ino};
}

static onnx_side_file its_side = {.real = "/nowhere/weir/weights.bin"};
static const onnx_file its_file = {.real = "/nowhere/weir/model.onnx", .folder = "/nowhere/weir", .sides = &its_side};

/* A model with no more than a list of weights. */
typedef struct world {
    weir_engine_model model;
    weir_engine_load load;
    onnx_tensor tensors[MOST];
    bool left[MOST];
    double last; /* fraction */
    int reports;
    bool stops;
} world;

static void report(double fraction, void *user)
{
    world *it = user;
    assert_true(fraction >= it->last && fraction <= 0.7);
    it->last = fraction;
    it->reports++;
}

static bool stop(void *user)
{
    return ((world *)user)->stops;
}

static void add(world *it, const source *from, size_t begin, size_t bytes, bool left)
{
    size_t i = it->model.weight_count++;
    char name[8];
    snprintf(name, sizeof name, "w%zu", i);
    it->tensors[i] = (onnx_tensor){.data = from->bytes + begin, .bytes = bytes};
    it->left[i] = left;
    it->model.weights[i] = (onnx_weight){.name = strdup(name),
                                         .tensor = &it->tensors[i],
                                         .file = &from->stamp,
                                         .end = begin + bytes,
                                         .left = left ? &it->left[i] : NULL};
}

static world *begin(void)
{
    static const onnx_library library = {.path = "made up", .api = NULL};
    static world it;
    onnx_library its = library;
    static ort_api api;
    its.api = &api;
    it = (world){.load = {.struct_size = sizeof it.load, .progress = report, .stops = stop, .progress_user = &it}};
    it.model.weights = calloc(MOST, sizeof *it.model.weights);
    assert_non_null(it.model.weights);
    snprintf(it.model.name, sizeof it.model.name, "model");
    assert_true(onnx_weights_mapped(&its));
    next_place = refuses_at = asked = freed_count = 0;
    return &it;
}

static onnx_weight *named(const world *it, const char *name)
{
    for (size_t i = 0; i < it->model.weight_count; i++)
        if (strcmp(it->model.weights[i].name, name) == 0)
            return &it->model.weights[i];
    return NULL;
}

static void *map(const source *from, size_t offset, size_t length)
{
    return its_mmap(NULL, length, PROT_READ, MAP_PRIVATE, from->fd, (off_t)offset);
}

static bool in_arena(const void *address)
{
    return (const char *)address + PAGE >= arena && (const char *)address < arena + ROOM;
}

/* Maps it as ONNX Runtime does: from the page of its first byte on. The bytes are there, in a block. */
static char *served(const source *from, size_t begins, size_t bytes)
{
    size_t offset = begins / PAGE * PAGE;
    char *base = map(from, offset, begins + bytes - offset);
    assert_true(base != MAP_FAILED && in_arena(base + (begins - offset)));
    assert_memory_equal(base + (begins - offset), from->bytes + begins, bytes);
    for (size_t i = 0; i < SLACK; i++)
        assert_int_equal(base[begins - offset + bytes + i], 0);
    return base;
}

/* A mapping of the file, as without weir; `length` bytes of it. */
static void *plainly(const source *from, size_t offset, size_t length)
{
    char *base = map(from, offset, length);
    assert_true(base != MAP_FAILED && !in_arena(base));
    assert_memory_equal(base, from->bytes + offset, length);
    return base;
}

static void unmap(void *base, size_t length)
{
    assert_int_equal(its_munmap(base, length), 0);
}

/* ---- tests --------------------------------------------------------------------------------------------------------- */

static void weights_are_found_by_their_ends(void **state)
{
    (void)state;
    world *it = begin();
    add(it, &one, 5000, 2000, false);
    add(it, &one, 100, 2000, false);
    add(it, &one, 2 * PAGE, 1500, false);
    onnx_weights_begin(&it->model, &its_file, &it->load);
    char *second = served(&one, 100, 2000), *third = served(&one, 2 * PAGE, 1500), *first = served(&one, 5000, 2000);
    assert_int_equal(it->reports, 3);
    assert_int_equal(asked, 3);
    unmap(third, 1500);
    assert_ptr_equal(freed[0], third);
    unmap(second, 2100);
    assert_ptr_equal(freed[1], second + 100);
    unmap(first, 5000 - PAGE + 2000);
    assert_ptr_equal(freed[2], first + 5000 - PAGE);
    assert_int_equal(freed_count, 3);
    assert_ok(onnx_weights_end(&it->model));
    onnx_weights_free(&it->model);
    assert_int_equal(freed_count, 3);
}

/* Of another end, of another file, from more than a page before, mapped already, or by somebody who loads nothing. */
static void what_is_no_weight_is_mapped_as_ever(void **state)
{
    (void)state;
    world *it = begin();
    void *all[8];
    add(it, &one, 100, 2000, false);
    add(it, &one, PAGE, 1000, false);
    add(it, &one, 3 * PAGE + 50, 1000, false);
    all[0] = plainly(&one, 0, 2100);
    onnx_weights_begin(&it->model, &its_file, &it->load);
    all[1] = plainly(&one, 0, 2099);
    all[2] = plainly(&one, 0, 2101);
    all[3] = plainly(&other, 0, 2100);
    all[4] = plainly(&one, 0, PAGE + 1000);             /* a page before */
    all[5] = plainly(&one, 2 * PAGE, PAGE + 50 + 1000); /* and more */
    char *base = served(&one, 100, 2000);
    all[6] = plainly(&one, 0, 2100);
    assert_ok(onnx_weights_end(&it->model));
    all[7] = plainly(&one, PAGE, 1000);
    static const size_t lengths[] = {2100, 2099, 2101, 2100, PAGE + 1000, PAGE + 50 + 1000, 2100, 1000};
    assert_int_equal(asked, 1);
    for (int i = 0; i < 8; i++)
        unmap(all[i], lengths[i]);
    assert_int_equal(freed_count, 0);
    unmap(base, 2100);
    assert_int_equal(freed_count, 1);
    onnx_weights_free(&it->model);
}

/* Of two files that are alike each has its own. */
static void weights_of_two_files(void **state)
{
    (void)state;
    world *it = begin();
    add(it, &one, 100, 2000, false);
    add(it, &other, 100, 2000, false);
    onnx_weights_begin(&it->model, &its_file, &it->load);
    char *b = served(&other, 100, 2000), *a = served(&one, 100, 2000);
    assert_int_equal(asked, 2);
    assert_ptr_not_equal(a, b);
    assert_ok(onnx_weights_end(&it->model));
    unmap(a, 2100);
    unmap(b, 2100);
    assert_int_equal(freed_count, 2);
    onnx_weights_free(&it->model);
}

/* What one file has twice is two weights, by whichever of them it is mapped first. Where one is the end of another, a mapping of
 * that may be of either: it is of the file, and so right for both. */
static void weights_that_end_at_one_place(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        world *it = begin();
        add(it, &one, 100, 2000, false);
        add(it, &one, 100, 2000, false);
        for (int i = 0; i < 2; i++)
            add(it, &one, (size_t)PAGE + (i == order ? 100 : 600), i == order ? 2000 : 1500, false);
        onnx_weights_begin(&it->model, &its_file, &it->load);
        char *a = served(&one, 100, 2000), *b = served(&one, 100, 2000);
        assert_int_equal(asked, 2);
        assert_ptr_not_equal(a, b);
        void *first = plainly(&one, PAGE, 2100), *second = plainly(&one, PAGE, 2100);
        assert_int_equal(asked, 2);
        assert_ok(onnx_weights_end(&it->model));
        unmap(first, 2100);
        unmap(second, 2100);
        assert_int_equal(freed_count, 0);
        unmap(a, 2100);
        unmap(b, 2100);
        assert_int_equal(freed_count, 2);
        onnx_weights_free(&it->model);
    }
}

/* A mapping begins up to a page before its block, so that several may begin at one address: then the length says whose it is. */
static void mappings_that_begin_at_one_address(void **state)
{
    enum { BYTES = 192, STEP = 256, THREE = 3 };
    static const int orders[][THREE] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}, {0, 2, 1}, {2, 0, 1}};
    (void)state;
    for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
        world *it = begin();
        char *bases[THREE];
        for (size_t i = 0; i < THREE; i++)
            add(it, &one, i * PAGE + i * STEP, BYTES, false);
        onnx_weights_begin(&it->model, &its_file, &it->load);
        for (size_t i = 0; i < THREE; i++)
            bases[i] = served(&one, i * PAGE + i * STEP, BYTES);
        assert_ptr_equal(bases[1], bases[0]);
        assert_ptr_equal(bases[2], bases[0]);
        assert_ok(onnx_weights_end(&it->model));
        for (size_t i = 0; i < THREE; i++) {
            size_t which = (size_t)orders[o][i];
            unmap(bases[0], which * STEP + BYTES);
            assert_int_equal(freed_count, i + 1);
            assert_ptr_equal(freed[i], arena + which * STEP);
        }
        onnx_weights_free(&it->model);
        assert_int_equal(freed_count, THREE);
    }
}

/* Those that kernels are to pack are mapped from the file; those that are mapped still were not. */
static void what_was_not_packed_is_found(void **state)
{
    (void)state;
    world *it = begin();
    for (size_t i = 0; i < 4; i++)
        add(it, &one, i * PAGE, 1000 + i, i < 3);
    add(it, &one, 5 * PAGE, 700, false); /* which nobody maps */
    onnx_weights_begin(&it->model, &its_file, &it->load);
    void *a = plainly(&one, 0, 1000), *b = plainly(&one, PAGE, 1001), *c = plainly(&one, (size_t)2 * PAGE, 1002);
    char *d = served(&one, (size_t)3 * PAGE, 1003);
    assert_true(it->last > 0.1 && it->last < 0.7);
    assert_ok(onnx_weights_end(&it->model));
    unmap(b, 1001);
    uint64_t gone = 0;
    assert_int_equal(onnx_weights_settle(&it->model, &gone), 2);
    assert_int_equal(gone, 1001 + 700);
    assert_false(it->left[0]);
    assert_true(it->left[1]);
    assert_false(it->left[2]);
    unmap(a, 1000);
    unmap(c, 1002);
    assert_int_equal(freed_count, 0);
    unmap(d, 1003);
    assert_int_equal(freed_count, 1);
    onnx_weights_free(&it->model);
}

/* All that is placed is 0.6 of a load; what is left in the file is no part of it. */
static void progress_is_of_what_is_placed(void **state)
{
    (void)state;
    world *it = begin();
    add(it, &one, 0, 3000, false);
    add(it, &one, PAGE, 4000, true);
    add(it, &one, 2 * PAGE, 1000, false);
    onnx_weights_begin(&it->model, &its_file, &it->load);
    char *a = served(&one, 0, 3000);
    assert_true(it->last > 0.1 + 0.6 * 2999 / 4000 && it->last <= 0.1 + 0.6 * 3000 / 4000);
    char *b = served(&one, 2 * PAGE, 1000);
    assert_true(it->last > 0.699 && it->reports == 2);
    assert_ok(onnx_weights_end(&it->model));
    unmap(a, 3000);
    unmap(b, 1000);
    onnx_weights_free(&it->model);
}

/* The first refusal is what is told, and nothing more is asked for. */
static void the_first_refusal_is_told(void **state)
{
    (void)state;
    world *it = begin();
    for (size_t i = 0; i < 4; i++)
        add(it, &one, i * PAGE, 1000, false);
    onnx_weights_begin(&it->model, &its_file, &it->load);
    char *a = served(&one, 0, 1000);
    refuses_at = 2;
    for (size_t i = 1; i < 4; i++) {
        assert_ptr_equal(map(&one, i * PAGE, 1000), MAP_FAILED);
        (void)weir_fail(WEIR_ERR_SYSTEM, "something else");
    }
    assert_int_equal(asked, 2);
    assert_status(onnx_weights_end(&it->model), WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(weir_detail(), "request 2 is refused");
    assert_int_equal(it->reports, 1);
    unmap(a, 1000);
    onnx_weights_free(&it->model);
    assert_int_equal(freed_count, 1);
}

/* A weight whose place cannot be noted is in no block, and what is left in the file is mapped as ever. */
static void without_host_memory_nothing_is_placed(void **state)
{
    (void)state;
    world *it = begin();
    add(it, &one, 0, 1000, false);
    add(it, &one, PAGE, 1000, true);
    onnx_weights_begin(&it->model, &its_file, &it->load);
    without_memory = true;
    void *failed = map(&one, 0, 1000), *left = plainly(&one, PAGE, 1000);
    without_memory = false;
    assert_ptr_equal(failed, MAP_FAILED);
    assert_status(onnx_weights_end(&it->model), WEIR_ERR_SYSTEM);
    assert_detail("no host memory");
    assert_int_equal(asked, 1);
    assert_int_equal(freed_count, 1);
    assert_ptr_equal(freed[0], arena);
    assert_null(it->model.weights[0].data);
    assert_int_equal(it->reports, 0);
    unmap(left, 1000);
    onnx_weights_free(&it->model);
    assert_int_equal(freed_count, 1);
}

/* Whoever stops the load; a caller with an older header cannot. */
static void a_load_that_is_stopped_places_nothing(void **state)
{
    (void)state;
    for (int older = 0; older < 2; older++) {
        world *it = begin();
        add(it, &one, 0, 1000, false);
        it->stops = true;
        if (older)
            it->load.struct_size = offsetof(weir_engine_load, stops);
        onnx_weights_begin(&it->model, &its_file, &it->load);
        if (older)
            unmap(served(&one, 0, 1000), 1000);
        else
            assert_ptr_equal(map(&one, 0, 1000), MAP_FAILED);
        assert_status(onnx_weights_end(&it->model), older ? WEIR_OK : WEIR_ERR_CANCELLED);
        assert_int_equal(asked, older);
        onnx_weights_free(&it->model);
    }
}

/* What ONNX Runtime has when the model goes is freed when it unmaps it. */
static void what_is_mapped_outlives_the_model(void **state)
{
    (void)state;
    world *it = begin();
    add(it, &one, 100, 2000, false);
    add(it, &one, PAGE, 1000, false);
    onnx_weights_begin(&it->model, &its_file, &it->load);
    char *kept = served(&one, 100, 2000), *gone = served(&one, PAGE, 1000);
    assert_ok(onnx_weights_end(&it->model));
    onnx_weight *list = it->model.weights, *its = named(it, "w0");
    assert_ptr_equal(its->data, kept + 100);
    unmap(gone, 1000);
    onnx_weights_free(&it->model);
    assert_null(it->model.weights);
    assert_int_equal(it->model.weight_count, 0);
    assert_int_equal(freed_count, 1);
    unmap(kept, 2100);
    assert_int_equal(freed_count, 2);
    assert_ptr_equal(freed[1], kept + 100);
    free(its->name);
    free(list);
}

/* Of files that are not there the system would find none. */
static void links_of_the_models_own_files_are_not_looked_for(void **state)
{
    (void)state;
    static const char *const own[] = {"/nowhere/weir/model.onnx", "/nowhere/weir", "/nowhere/weir/weights.bin"};
    static const char *const others[] = {"/nowhere/weir/model", "/nowhere", "/nowhere/weir/", "weights.bin", ""};
    char room[PATH_MAX];
    world *it = begin();
    assert_null(its_realpath(own[0], NULL)); /* before a load */
    onnx_weights_begin(&it->model, &its_file, &it->load);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        char *found = its_realpath(own[i], NULL);
        assert_string_equal(found, own[i]);
        assert_ptr_not_equal(found, own[i]);
        free(found);
        memset(room, 'x', sizeof room);
        assert_ptr_equal(its_realpath(own[i], room), room);
        assert_string_equal(room, own[i]);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_null(its_realpath(others[i], NULL));
    char *root = its_realpath("/.", NULL);
    assert_string_equal(root, "/");
    free(root);
    assert_null(its_realpath(NULL, room));
    assert_ok(onnx_weights_end(&it->model));
    assert_null(its_realpath(own[0], NULL)); /* and after it */
    onnx_weights_free(&it->model);
}

int main(void)
{
    make_source(&one, 1);
    make_source(&other, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_found_by_their_ends),
        cmocka_unit_test(what_is_no_weight_is_mapped_as_ever),
        cmocka_unit_test(weights_of_two_files),
        cmocka_unit_test(weights_that_end_at_one_place),
        cmocka_unit_test(mappings_that_begin_at_one_address),
        cmocka_unit_test(what_was_not_packed_is_found),
        cmocka_unit_test(progress_is_of_what_is_placed),
        cmocka_unit_test(the_first_refusal_is_told),
        cmocka_unit_test(without_host_memory_nothing_is_placed),
        cmocka_unit_test(a_load_that_is_stopped_places_nothing),
        cmocka_unit_test(what_is_mapped_outlives_the_model),
        cmocka_unit_test(links_of_the_models_own_files_are_not_looked_for),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    close(one.fd);
    close(other.fd);
    return failed;
}
