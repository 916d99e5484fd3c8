/* cuda_replay.c: what llama.cpp's CUDA module asks for over a model's life, without the module: a STAND-IN for it
 * (cuda_standin.c) repeats a recording (tests/data/gguf/cuda_calls.txt) through the redirect, over the stub of CUDA's
 * libraries. cuda_stub.c does it with the real one, where the store has it, and has made the recording. */
#include "core/core.h"
#include "interpose/redirect_stats.h"

#include "cuda_standin.h"
#include "test_places.h"

enum { MOST_LINES = 4096, MOST_BLOCKS = 4096, NO_MEMORY = 2 };

static standin_line lines[MOST_LINES];
static size_t count;
static struct {
    void *handle;
    char path[512];
#define X(name, parameters) int(*name) parameters;
    STANDIN_FUNCTIONS(X)
#undef X
} module;
static uint64_t (*counted)(const char *what);

typedef struct side {
    weir_runtime *host, *runtime;
    weir_client *client;
    wi_cuda_redirect *redirect;
} side;

static bool is(const standin_line *line, const char *what)
{
    return strcmp(line->what, what) == 0;
}

static bool takes_device(const standin_line *line)
{
    return is(line, "malloc") || is(line, "malloc-kv");
}

static side prepare(uint64_t most)
{
    side it = {.host = make_runtime_on("host", 256 * MIB)};
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 512 * MIB, .host = it.host};
    ok(weir_runtime_create("cuda:0", &options, &it.runtime));
    it.client = open_client(it.runtime, "model", 0, most);
    wi_cuda_redirect_options to = {
        .module = module.path, .clients = &it.client, .client_count = 1, .memory_class = WEIR_CLASS_SCRATCH};
    ok(wi_cuda_redirect_begin(&to, &it.redirect));
    return it;
}

static weir_client_stats account(const side *it)
{
    weir_client_stats s = WEIR_INIT(weir_client_stats);
    ok(weir_client_info(it->client, &s));
    return s;
}

static void finish(side *it)
{
    uint64_t drained;
    wi_cuda_redirect_stats s;
    assert_int_equal(module.standin_end(), 0);
    s = redirect_stats(it->redirect);
    assert_int_equal(s.device_blocks + s.pinned_blocks + s.waiting + s.streams + s.captured + s.passed_on, 0);
    assert_int_equal(s.allocations, s.frees);
    assert_int_equal(account(it).live, 0);
    ok(wi_cuda_redirect_end(it->redirect));
    ok(weir_client_destroy(it->client));
    ok(weir_runtime_drain(it->runtime, &drained));
    check_empty(it->runtime);
    check_empty(it->host);
    ok(weir_runtime_destroy(it->runtime));
    ok(weir_runtime_destroy(it->host));
    assert_int_equal(counted("streams") + counted("allocations") + counted("pinned") + counted("captures broken"), 0);
}

/* What the recording says that is held, by class of the device's and pinned. */
typedef struct held {
    uint64_t device[WEIR_CLASS_MOST], pinned;
    struct {
        uint64_t bytes;
        weir_class memory_class;
        bool pinned;
    } block[MOST_BLOCKS];
} held;

static void keep(held *h, const standin_line *line, weir_class memory_class)
{
    bool takes = takes_device(line) || is(line, "malloc-host"), pinned = is(line, "malloc-host");
    if (!takes && !is(line, "free") && !is(line, "free-host"))
        return;
    if (takes) {
        h->block[line->number].bytes = line->bytes;
        h->block[line->number].memory_class = memory_class;
        h->block[line->number].pinned = pinned;
    }
    uint64_t *sum = h->block[line->number].pinned ? &h->pinned : &h->device[h->block[line->number].memory_class];
    *sum = takes ? *sum + line->bytes : *sum - h->block[line->number].bytes;
}

/* A line under the scope of its phase; CUDA's error. */
static int replay(const side *it, const standin_line *line, weir_class *phase)
{
    if (strncmp(line->what, "phase-", 6) == 0) {
        *phase = is(line, "phase-weights") ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH;
        return 0;
    }
    wi_cuda_scope scope = {.memory_class = is(line, "malloc-kv") ? WEIR_CLASS_KV : *phase};
    ok(wi_cuda_scope_enter(it->redirect, &scope));
    int result = module.standin_call(line);
    wi_cuda_scope_leave(&scope);
    return result;
}

/* Tests ------------------------------------------------------------------------------------------------------------ */

/* The bytes of a class may be rounded up: to a block's alignment, of which there are few. */
static void compare(const side *it, const held *h)
{
    weir_client_stats now = account(it);
    wi_cuda_redirect_stats s;
    s = redirect_stats(it->redirect);
    uint64_t sum = 0;
    for (size_t i = 0; i < WEIR_CLASS_MOST; i++) {
        assert_true(now.live_class[i] >= h->device[i] && now.live_class[i] <= h->device[i] + s.device_blocks * UNIT);
        sum += h->device[i];
    }
    assert_int_equal(s.device_bytes, sum);
    assert_int_equal(s.pinned_bytes, h->pinned);
}

static void all_that_the_module_asks_for_is_the_clients_by_class(void **state)
{
    (void)state;
    static held expected;
    weir_class phase = WEIR_CLASS_OTHER;
    uint64_t most[WEIR_CLASS_MOST] = {0}, most_pinned = 0, captured = 0;
    side it = prepare(0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(replay(&it, &lines[i], &phase), 0);
        keep(&expected, &lines[i], is(&lines[i], "malloc-kv") ? WEIR_CLASS_KV : phase);
        compare(&it, &expected);
        captured += is(&lines[i], "end-capture");
        for (size_t j = 0; j < WEIR_CLASS_MOST; j++)
            most[j] = expected.device[j] > most[j] ? expected.device[j] : most[j];
        most_pinned = expected.pinned > most_pinned ? expected.pinned : most_pinned;
    }
    /* It is a recording of a whole life. */
    assert_true(most[WEIR_CLASS_WEIGHTS] > MIB && most[WEIR_CLASS_KV] > 0 && most[WEIR_CLASS_SCRATCH] > 32 * MIB);
    assert_true(most_pinned > 0 && captured > 0);
    assert_int_equal(account(&it).live, 0);
    finish(&it);
}

/* Up to the line, which is refused as the client may have a byte less than it takes then. */
static void refuse(const standin_line *line, uint64_t most)
{
    weir_class phase = WEIR_CLASS_OTHER;
    wi_cuda_redirect_stats s;
    side it = prepare(most);
    for (const standin_line *l = lines; l < line; l++)
        assert_int_equal(replay(&it, l, &phase), 0);
    uint64_t before = account(&it).live;
    assert_int_equal(replay(&it, line, &phase), NO_MEMORY);
    assert_int_equal(account(&it).live, before);
    s = redirect_stats(it.redirect);
    assert_int_equal(s.refused, 1);
    assert_non_null(strstr(s.refusal, "model"));
    finish(&it);
}

static void each_refused_request_leaves_nothing_behind(void **state)
{
    (void)state;
    weir_class phase = WEIR_CLASS_OTHER;
    uint64_t peak = 0;
    side it = prepare(0);
    static struct {
        const standin_line *line;
        uint64_t most;
    } requests[MOST_LINES];
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(replay(&it, &lines[i], &phase), 0);
        /* What does not exceed what it had before cannot be refused alone. */
        if (takes_device(&lines[i]) && account(&it).live > peak) {
            peak = account(&it).live;
            requests[found].line = &lines[i];
            requests[found++].most = peak - 1;
        }
    }
    finish(&it);
    assert_true(found >= 4); /* weights, KV cache, compute buffer, cuBLAS's workspace */
    for (size_t i = 0; i < found; i++)
        refuse(requests[i].line, requests[i].most);
}

static void the_module_is_told_what_the_client_may_have(void **state)
{
    (void)state;
    weir_class phase = WEIR_CLASS_OTHER;
    size_t available, total;
    side it = prepare(128 * MIB);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(replay(&it, &lines[i], &phase), 0);
        assert_int_equal(module.standin_free_memory(&available, &total), 0);
        assert_int_equal(total, 128 * MIB);
        assert_true(available + account(&it).live <= total);
    }
    finish(&it);
}

static void other_ways_to_memory_are_told(void **state)
{
    (void)state;
    wi_cuda_redirect_stats s;
    side it = prepare(0);
    s = redirect_stats(it.redirect);
    assert_string_equal(s.unseen, "cuMemCreate"); /* as the real one */
    finish(&it);
}

static int read_recording(void **state)
{
    (void)state;
    char text[256];
    FILE *file = fopen(data_path("gguf/cuda_calls.txt"), "r");
    while (file && fgets(text, sizeof text, file) && count < MOST_LINES) {
        standin_line *l = &lines[count];
        if (text[0] != '#')
            count += sscanf(text, "%31s %zu %zu %zu %u", l->what, &l->number, &l->bytes, &l->stream, &l->times) == 5;
    }
    if (file)
        (void)fclose(file);
    snprintf(module.path, sizeof module.path, "%s/tests/gguf/cuda-standin.so", built_folder);
    module.handle = dlopen(module.path, RTLD_NOW | RTLD_LOCAL);
    void *stub = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&counted = stub ? dlsym(stub, "stub_count") : NULL;
    if (!module.handle || !counted || count == 0)
        return -1;
#define X(name, parameters) *(void **)&module.name = dlsym(module.handle, #name);
    STANDIN_FUNCTIONS(X)
#undef X
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_the_module_asks_for_is_the_clients_by_class),
        cmocka_unit_test(each_refused_request_leaves_nothing_behind),
        cmocka_unit_test(the_module_is_told_what_the_client_may_have),
        cmocka_unit_test(other_ways_to_memory_are_told),
    };
    return cmocka_run_group_tests(tests, read_recording, NULL);
}
