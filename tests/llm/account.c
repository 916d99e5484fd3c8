/* account.c: whose bytes are whose: the allocators that GenAI gets, asked directly, with an ONNX Runtime and a C++ library
 * that are made up: what they refuse leaves by a jump, where theirs would throw. */
#include "common.h"

#include <dlfcn.h>
#include <pthread.h>

#include "base/maps.h"
#include "engines/llm/wl.h"

enum { SLACK = 64, UNIT = 256, BUDGET = 1 << 20 };

/* ---- what is made up --------------------------------------------------------------------------------------------- */

/* ONNX Runtime's own allocators, of the host and of the device. */
typedef struct theirs {
    ort_allocator table;
    int live, all;
} theirs;

static void *their_alloc(ort_allocator *self, size_t size)
{
    theirs *it = (theirs *)(void *)self;
    it->live++;
    it->all++;
    return malloc(size);
}

static void their_free(ort_allocator *self, void *pointer)
{
    theirs *it = (theirs *)(void *)self;
    it->live--;
    free(pointer);
}

static const ort_memory_info *their_info(const ort_allocator *self)
{
    return (const ort_memory_info *)(const void *)self;
}

static theirs of_host = {.table = {.Alloc = their_alloc, .Free = their_free, .Info = their_info}};
static theirs of_device = {.table = {.Alloc = their_alloc, .Free = their_free, .Info = their_info}};

static bool has_no_allocator;

static ort_status *default_allocator(ort_allocator **out)
{
    *out = &of_host.table;
    return has_no_allocator ? (ort_status *)(void *)&of_host : NULL;
}

static ort_api api = {.GetAllocatorWithDefaultOptions = default_allocator};

wi_cuda_redirect *wl_devices_redirect(void)
{
    return NULL;
}

static jmp_buf refused_here;
static bool is_not_open, throws_nothing; /* the C++ library */

static void throw_it(void)
{
    longjmp(refused_here, 1);
}

void *__real_dlsym(void *handle, const char *name);
/* Visible, as some linkers lead libraries' references here as well, and refuse a hidden one. */
__attribute__((visibility("default"))) void *__wrap_dlsym(void *handle, const char *name);
void *__real_dlopen(const char *file, int mode);
__attribute__((visibility("default"))) void *__wrap_dlopen(const char *file, int mode);
bool __real_wi_pointer_map_put(wi_pointer_map *map, const void *pointer, uint64_t value);
bool __wrap_wi_pointer_map_put(wi_pointer_map *map, const void *pointer, uint64_t value);

void *__wrap_dlopen(const char *file, int mode)
{
    if (strcmp(file, "libstdc++.so.6") != 0)
        return __real_dlopen(file, mode);
    return is_not_open ? NULL : &refused_here;
}

void *__wrap_dlsym(void *handle, const char *name)
{
    void (*made_up)(void) = throw_it;
    void *symbol;
    memcpy(&symbol, &made_up, sizeof symbol);
    if (handle != &refused_here)
        return __real_dlsym(handle, name);
    return throws_nothing ? NULL : symbol;
}

static bool note_fails;

bool __wrap_wi_pointer_map_put(wi_pointer_map *map, const void *pointer, uint64_t value)
{
    return !note_fails && __real_wi_pointer_map_put(map, pointer, value);
}

/* ---- a bridge, and a device, that are made up -------------------------------------------------------------------- */

typedef struct bridge_calls {
    int made, ended;
    bool cannot_be_made, stays;
    weir_onnxruntime_options options;
    uint64_t refused; /* as it says, and as it was asked about */
    uint64_t asked;
} bridge_calls;
static bridge_calls bridges;

weir_status __wrap_weir_onnxruntime_create(const weir_onnxruntime_options *options, weir_onnxruntime **out);
weir_status __wrap_weir_onnxruntime_destroy(weir_onnxruntime *it);
weir_status __wrap_weir_onnxruntime_info(weir_onnxruntime *it, weir_onnxruntime_details *out);
weir_status __wrap_weir_onnxruntime_explain(weir_onnxruntime *it, uint64_t refused, char *text, size_t capacity);

weir_status __wrap_weir_onnxruntime_create(const weir_onnxruntime_options *options, weir_onnxruntime **out)
{
    if (bridges.cannot_be_made)
        return weir_fail(WEIR_ERR_SYSTEM, "no bridge");
    bridges.made++;
    bridges.options = *options;
    *out = (weir_onnxruntime *)(void *)&bridges;
    return WEIR_OK;
}

weir_status __wrap_weir_onnxruntime_destroy(weir_onnxruntime *it)
{
    assert_ptr_equal(it, &bridges);
    bridges.ended++;
    return bridges.stays ? weir_fail(WEIR_ERR_BUSY, "blocks are live") : WEIR_OK;
}

weir_status __wrap_weir_onnxruntime_info(weir_onnxruntime *it, weir_onnxruntime_details *out)
{
    assert_ptr_equal(it, &bridges);
    out->refused = bridges.refused;
    return WEIR_OK;
}

weir_status __wrap_weir_onnxruntime_explain(weir_onnxruntime *it, uint64_t refused, char *text, size_t capacity)
{
    bridges.asked = refused;
    if (!it || refused == bridges.refused)
        return WEIR_OK;
    snprintf(text, capacity, "the bridge has refused");
    return WEIR_ERR_OUT_OF_MEMORY;
}

/* The runtime says that it is on cuda, and its streams and scopes are noted. What is asked for on the stream is the host's all the
 * same. */
enum { STREAM = 77 };
typedef struct device_calls {
    bool here, knows_no_streams, has_no_scopes;
    int streams, synchronized, entered;
    weir_kind kind; /* of the last request */
    size_t bytes;   /* likewise */
    uint64_t stream, freed_on;
    wi_cuda_scope *scope;
} device_calls;
static device_calls on_device;

weir_status __real_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out);
weir_status __wrap_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out);
weir_status __wrap_weir_stream_register(weir_runtime *on, void *native, weir_stream *out);
weir_status __wrap_weir_stream_unregister(weir_stream stream);
weir_status __wrap_weir_stream_synchronize(weir_stream stream);
weir_status __wrap_wi_cuda_scope_enter(wi_cuda_redirect *redirect, wi_cuda_scope *scope);
void __wrap_wi_cuda_scope_leave(wi_cuda_scope *scope);
weir_status __real_weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out);
weir_status __wrap_weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out);
weir_status __real_weir_free(weir_client *client, void *pointer, weir_stream stream);
weir_status __wrap_weir_free(weir_client *client, void *pointer, weir_stream stream);

weir_status __wrap_weir_runtime_info(const weir_runtime *of, weir_runtime_details *out)
{
    weir_status status = __real_weir_runtime_info(of, out);
    if (on_device.here)
        out->device = "cuda:0";
    return status;
}

weir_status __wrap_weir_stream_register(weir_runtime *on, void *native, weir_stream *out)
{
    (void)on;
    assert_ptr_equal(native, &on_device);
    if (on_device.knows_no_streams)
        return weir_fail(WEIR_ERR_STREAM_MISUSE, "no such stream");
    on_device.streams++;
    *out = (weir_stream){STREAM};
    return WEIR_OK;
}

weir_status __wrap_weir_stream_unregister(weir_stream stream)
{
    assert_int_equal(stream.id, STREAM);
    on_device.streams--;
    return WEIR_OK;
}

weir_status __wrap_weir_stream_synchronize(weir_stream stream)
{
    assert_int_equal(stream.id, STREAM);
    on_device.synchronized++;
    return WEIR_OK;
}

weir_status __wrap_wi_cuda_scope_enter(wi_cuda_redirect *redirect, wi_cuda_scope *scope)
{
    assert_null(redirect);
    if (on_device.has_no_scopes)
        return weir_fail(WEIR_ERR_INVALID, "no redirect");
    on_device.entered++;
    on_device.scope = scope;
    return WEIR_OK;
}

void __wrap_wi_cuda_scope_leave(wi_cuda_scope *scope)
{
    assert_ptr_equal(scope, on_device.scope);
    on_device.entered--;
}

weir_status __wrap_weir_alloc_with(weir_client *client, const weir_request *request, weir_block *out)
{
    weir_request asked = *request;
    on_device.kind = request->kind;
    on_device.bytes = (size_t)request->bytes;
    on_device.stream = request->stream.id;
    asked.stream = WEIR_STREAM_HOST;
    asked.kind = WEIR_KIND_DEVICE;
    return __real_weir_alloc_with(client, &asked, out);
}

weir_status __wrap_weir_free(weir_client *client, void *pointer, weir_stream stream)
{
    on_device.freed_on = stream.id;
    return __real_weir_free(client, pointer, WEIR_STREAM_HOST);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static int said; /* errors in the log */
static char said_last[512];

static void keep_word(weir_log_level level, const char *text, void *user)
{
    (void)user;
    said += level == WEIR_LOG_ERROR;
    snprintf(said_last, sizeof said_last, "%s", text);
}

/* ---- accounts ---------------------------------------------------------------------------------------------------- */

typedef struct owner {
    weir_client *client;
    wl_account *account;
} owner;

static weir_runtime *runtime;

static owner owner_of(const char *name)
{
    owner it;
    weir_client_options options = WEIR_INIT(weir_client_options);
    options.name = name;
    OK(weir_client_create(runtime, &options, &it.client));
    OK(wl_account_make(&api, NULL, 1, it.client, &it.account));
    assert_ptr_equal(wl_account_client(it.account), it.client);
    return it;
}

/* Nothing of it is anywhere any more. */
static void end(const owner *it)
{
    assert_int_equal(stats_of_client(it->client).live, 0);
    OK(weir_client_destroy(it->client));
}

static void drop(const owner *it)
{
    wl_account_drop(it->account);
    end(it);
}

static int begin(void **state)
{
    (void)state;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = BUDGET;
    OK(weir_runtime_create("host", &options, &runtime));
    OK(wl_memory_begin(&api));
    OK(weir_log_set(keep_word, NULL, WEIR_LOG_WARNING));
    of_host.live = of_host.all = of_device.live = of_device.all = said = 0;
    note_fails = false;
    bridges = (bridge_calls){0};
    on_device = (device_calls){0};
    return 0;
}

static int finish(void **state)
{
    (void)state;
    OK(weir_log_set(NULL, NULL, WEIR_LOG_ERROR));
    OK(weir_runtime_destroy(runtime));
    assert_int_equal(of_host.live + of_device.live, 0);
    return 0;
}

/* NULL where it is refused. */
static void *ask(ort_allocator *from, size_t size)
{
    return setjmp(refused_here) ? NULL : from->Alloc(from, size);
}

static uint64_t charge(size_t size)
{
    return (size + SLACK + UNIT - 1) / UNIT * UNIT;
}

static void has(const owner *it, weir_class memory_class, uint64_t bytes)
{
    assert_int_equal(stats_of_client(it->client).live_class[memory_class], bytes);
}

/* Without a way to refuse there are no allocators. */
static void test_whoever_cannot_be_refused_gets_no_memory(void **state)
{
    (void)state;
    bool *const lacks[] = {&is_not_open, &throws_nothing, &has_no_allocator};
    for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++) {
        *lacks[i] = true;
        assert_int_equal(wl_memory_begin(&api), WEIR_ERR_UNSUPPORTED);
        assert_words(weir_detail(), "weir cannot refuse it memory safely");
        *lacks[i] = false;
        OK(wl_memory_begin(&api));
    }
}

/* ---- whose ------------------------------------------------------------------------------------------------------- */

static void test_outside_of_phases_memory_is_onnx_runtimes_own(void **state)
{
    (void)state;
    ort_allocator *host = wl_memory_of_host(), *device = wl_memory_of_device(&of_device.table);
    owner one = owner_of("one");
    wl_phase phase;
    assert_null(wl_memory_phase());
    void *a = ask(host, 100), *b = ask(device, 100);
    assert_int_equal(of_host.live, 1);
    assert_int_equal(of_device.live, 1);
    assert_null(ask(host, 0));
    assert_null(ask(device, 0));
    assert_int_equal(of_host.all + of_device.all, 2);
    assert_int_equal(stats_of_client(one.client).allocations, 0);
    wl_phase_begin(&phase, WL_RUNNING, one.account);
    assert_ptr_equal(wl_memory_phase(), &phase);
    assert_null(ask(host, 0));
    assert_null(ask(device, 0));
    void *c = ask(device, 100); /* a model of the host has none there */
    assert_int_equal(of_device.live, 2);
    host->Free(host, a);
    device->Free(device, b);
    wl_phase_end(&phase);
    device->Free(device, c);
    host->Free(host, NULL);
    device->Free(device, NULL);
    assert_ptr_equal(host->Info(host), &of_host);
    assert_ptr_equal(device->Info(device), &of_device);
    assert_ptr_equal(wl_memory_theirs(device), &of_device);
    assert_null(wl_memory_theirs(host));
    assert_ptr_equal(wl_memory_theirs(&of_host.table), &of_host);
    assert_int_equal(stats_of_client(one.client).allocations, 0);
    drop(&one);
}

static void test_a_request_is_the_accounts_with_a_rest(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, UNIT - SLACK, UNIT - SLACK + 1, 5000};
    ort_allocator *host = wl_memory_of_host();
    owner one = owner_of("one");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        wl_phase phase;
        wl_phase_begin(&phase, WL_LOADING, one.account);
        void *a = ask(host, sizes[i]), *b = host->Reserve(host, sizes[i]);
        wl_phase_end(&phase);
        memset(a, 1, sizes[i] + SLACK);
        memset(b, 2, sizes[i] + SLACK);
        has(&one, WEIR_CLASS_SCRATCH, 2 * charge(sizes[i]));
        host->Free(host, a); /* by nobody's phase */
        has(&one, WEIR_CLASS_SCRATCH, charge(sizes[i]));
        wl_phase_begin(&phase, WL_RUNNING, one.account);
        host->Free(host, b);
        wl_phase_end(&phase);
    }
    assert_int_equal(of_host.all, 0);
    drop(&one);
    assert_int_equal(said, 0);
}

/* In the middle of a run its reader may begin another model's, and that one's the first's again. */
static void test_phases_inside_one_another(void **state)
{
    (void)state;
    ort_allocator *host = wl_memory_of_host();
    owner one = owner_of("one"), other = owner_of("other");
    wl_phase first, second, third;
    void *all[5];
    wl_phase_begin(&first, WL_RUNNING, one.account);
    all[0] = ask(host, 1000);
    wl_phase_begin(&second, WL_LOADING, other.account);
    all[1] = ask(host, 2000);
    wl_phase_begin(&third, WL_RUNNING, one.account);
    all[2] = ask(host, 3000);
    has(&one, WEIR_CLASS_SCRATCH, charge(1000) + charge(3000));
    has(&other, WEIR_CLASS_SCRATCH, charge(2000));
    wl_phase_end(&third);
    assert_ptr_equal(wl_memory_phase(), &second);
    all[3] = ask(host, 4000);
    wl_phase_end(&second);
    assert_ptr_equal(wl_memory_phase(), &first);
    all[4] = ask(host, 5000);
    has(&one, WEIR_CLASS_SCRATCH, charge(1000) + charge(3000) + charge(5000));
    has(&other, WEIR_CLASS_SCRATCH, charge(2000) + charge(4000));
    wl_phase_end(&first);
    assert_null(wl_memory_phase());
    for (int i = 0; i < 5; i++)
        host->Free(host, all[i]);
    assert_int_equal(of_host.all, 0);
    drop(&one);
    drop(&other);
    assert_int_equal(said, 0);
}

static void test_classes_are_the_threads(void **state)
{
    (void)state;
    static const weir_class classes[] = {WEIR_CLASS_KV, WEIR_CLASS_ACTIVATIONS, WEIR_CLASS_WEIGHTS};
    ort_allocator *host = wl_memory_of_host();
    owner one = owner_of("one");
    wl_phase phase;
    void *all[4];
    weir_class was = WEIR_CLASS_SCRATCH;
    wl_phase_begin(&phase, WL_RUNNING, one.account);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wl_memory_class(classes[i]), was);
        was = classes[i];
        all[i] = ask(host, 1000);
        has(&one, was, charge(1000));
    }
    assert_int_equal(wl_memory_class(WEIR_CLASS_SCRATCH), was);
    all[3] = ask(host, 1000);
    has(&one, WEIR_CLASS_SCRATCH, charge(1000));
    wl_phase_end(&phase);
    for (int i = 0; i < 4; i++)
        host->Free(host, all[i]);
    drop(&one);
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

static void is_refused(owner *it, size_t size, weir_status status, const char *words)
{
    wl_phase phase;
    char text[1024] = "";
    uint64_t before = stats_of_client(it->client).live;
    wl_phase_begin(&phase, WL_RUNNING, it->account);
    assert_int_equal(wl_phase_refused(&phase, text, sizeof text), WEIR_OK);
    said = 0;
    assert_null(ask(wl_memory_of_host(), size));
    assert_int_equal(said, 1);
    assert_int_equal(wl_phase_refused(&phase, text, sizeof text), status);
    assert_words(text, words);
    wl_phase_end(&phase);
    assert_int_equal(stats_of_client(it->client).live, before);
    wl_phase_begin(&phase, WL_RUNNING, it->account); /* the next one knows nothing of it */
    assert_int_equal(wl_phase_refused(&phase, text, sizeof text), WEIR_OK);
    wl_phase_end(&phase);
    said = 0;
}

static void test_what_cannot_be_had_is_refused_and_nothing_else(void **state)
{
    (void)state;
    ort_allocator *host = wl_memory_of_host();
    owner one = owner_of("one");
    wl_phase phase;
    for (size_t less = 0; less < SLACK; less++)
        is_refused(&one, SIZE_MAX - less, WEIR_ERR_OUT_OF_MEMORY, "bytes are more than there can be");
    is_refused(&one, BUDGET, WEIR_ERR_OUT_OF_MEMORY, "one");
    wl_phase_begin(&phase, WL_RUNNING, one.account);
    void *most = ask(host, BUDGET - SLACK);
    wl_phase_end(&phase);
    assert_non_null(most);
    is_refused(&one, 1, WEIR_ERR_OUT_OF_MEMORY, "one");
    host->Free(host, most);
    drop(&one);
    assert_int_equal(said, 0);
}

/* Without host memory for the list of blocks the block goes back, and no account waits for it. */
static void test_a_block_that_cannot_be_noted_is_given_back(void **state)
{
    (void)state;
    ort_allocator *host = wl_memory_of_host();
    owner one = owner_of("one");
    wl_phase phase;
    wl_phase_begin(&phase, WL_RUNNING, one.account);
    void *kept = ask(host, 100);
    wl_phase_end(&phase);
    note_fails = true;
    is_refused(&one, 1000, WEIR_ERR_SYSTEM, "no memory to note a block of 1000 bytes");
    note_fails = false;
    host->Free(host, kept);
    drop(&one);
    assert_int_equal(said, 0);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* What is still there of a model that is gone is told, by number, and is given back when it comes. */
static void test_what_outlives_its_model_is_told(void **state)
{
    (void)state;
    ort_allocator *host = wl_memory_of_host();
    for (int left = 0; left < 4; left++) {
        owner one = owner_of("one"), other = owner_of("other");
        wl_phase phase;
        void *all[4], *others;
        char words[64];
        wl_phase_begin(&phase, WL_RUNNING, other.account);
        others = ask(host, 700);
        wl_phase_end(&phase);
        wl_phase_begin(&phase, WL_RUNNING, one.account);
        for (int i = 0; i < 4; i++)
            all[i] = ask(host, 1000);
        wl_phase_end(&phase);
        for (int i = left; i < 4; i++)
            host->Free(host, all[i]);
        said = 0;
        wl_account_drop(one.account);
        assert_int_equal(said, left > 0);
        snprintf(words, sizeof words, "keeps %d blocks", left);
        if (left > 0)
            assert_words(said_last, words);
        has(&one, WEIR_CLASS_SCRATCH, (uint64_t)left * charge(1000));
        for (int i = 0; i < left; i++)
            host->Free(host, all[i]);
        end(&one);
        host->Free(host, others);
        said = 0;
        drop(&other);
        assert_int_equal(said, 0);
    }
    wl_account_drop(NULL);
}

/* ---- bridges ----------------------------------------------------------------------------------------------------- */

static void test_an_account_has_one_bridge(void **state)
{
    (void)state;
    owner one = owner_of("one"), other = owner_of("other");
    drop(&other);
    assert_int_equal(bridges.ended, 0); /* where there was none */
    bridges.cannot_be_made = true;
    assert_null(wl_account_bridge(one.account));
    bridges.cannot_be_made = false;
    for (int i = 0; i < 2; i++)
        assert_ptr_equal(wl_account_bridge(one.account), &bridges);
    assert_int_equal(bridges.made, 1);
    assert_ptr_equal(bridges.options.api, &api);
    assert_null(bridges.options.env);
    assert_int_equal(bridges.options.version, 1);
    assert_ptr_equal(bridges.options.client, one.client);
    assert_int_equal(bridges.options.stream.id, WEIR_STREAM_HOST.id);
    drop(&one);
    assert_int_equal(bridges.ended, 1);
    assert_int_equal(said, 0);
    one = owner_of("one");
    wl_account_bridge(one.account);
    bridges.stays = true;
    drop(&one);
    assert_int_equal(said, 1);
    assert_words(said_last, "a session of ONNX Runtime stays: blocks are live");
}

/* What a bridge has refused before a phase is not what has failed in it. */
static void test_a_bridge_is_asked_from_the_phase_on(void **state)
{
    (void)state;
    owner one = owner_of("one");
    wl_phase phase;
    char text[64] = "as it was";
    wl_account_bridge(one.account);
    bridges.refused = 5;
    wl_phase_begin(&phase, WL_RUNNING, one.account);
    assert_int_equal(wl_phase_refused(&phase, text, sizeof text), WEIR_OK);
    assert_int_equal(bridges.asked, 5);
    assert_string_equal(text, "as it was");
    bridges.refused = 6;
    assert_int_equal(wl_phase_refused(&phase, text, sizeof text), WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(text, "the bridge has refused");
    wl_phase_end(&phase);
    drop(&one);
}

/* ---- on a device ------------------------------------------------------------------------------------------------- */

static void test_a_model_on_a_device_has_memory_there(void **state)
{
    (void)state;
    ort_allocator *host = wl_memory_of_host(), *there = wl_memory_of_device(&of_device.table);
    wl_phase phase;
    on_device.here = true;
    owner one = owner_of("one");
    wl_phase_begin(&phase, WL_RUNNING, one.account);
    assert_int_equal(on_device.entered, 1);
    assert_ptr_equal(on_device.scope->clients[0], one.client);
    assert_int_equal(on_device.scope->client_count, 1);
    assert_int_equal(on_device.scope->memory_class, WEIR_CLASS_SCRATCH);
    assert_string_equal(on_device.scope->tag, "search");
    void *a = ask(there, 1000);
    assert_int_equal(on_device.kind, WEIR_KIND_DEVICE);
    assert_int_equal(on_device.bytes, 1000); /* there is nothing that reads past it */
    void *b = ask(host, 1000);
    assert_int_equal(on_device.kind, WEIR_KIND_HOST);
    assert_int_equal(on_device.bytes, 1000 + SLACK);
    assert_int_equal(of_device.all + of_host.all, 0);
    there->Free(there, a);
    host->Free(host, b);
    wl_phase_end(&phase);
    assert_int_equal(on_device.entered, 0);
    on_device.has_no_scopes = true;
    wl_phase_begin(&phase, WL_RUNNING, one.account);
    wl_phase_end(&phase);
    assert_int_equal(on_device.entered, 0);
    drop(&one);
    on_device.here = false;
    one = owner_of("one");
    wl_phase_begin(&phase, WL_RUNNING, one.account);
    b = ask(host, 1000);
    assert_int_equal(on_device.kind, WEIR_KIND_DEVICE); /* of the host's runtime */
    host->Free(host, b);
    wl_phase_end(&phase);
    drop(&one);
}

static void test_what_a_scope_has_refused_is_told(void **state)
{
    (void)state;
    on_device.here = true;
    for (int scoped = 0; scoped < 2; scoped++) {
        owner one = owner_of("one");
        wl_phase phase;
        char text[64] = "as it was";
        on_device.has_no_scopes = !scoped;
        wl_phase_begin(&phase, WL_RUNNING, one.account);
        phase.scope.status = WEIR_ERR_OUT_OF_MEMORY;
        snprintf(phase.scope.refusal, sizeof phase.scope.refusal, "no room");
        assert_int_equal(wl_phase_refused(&phase, text, sizeof text), WEIR_OK);
        phase.scope.refused = 1;
        assert_int_equal(wl_phase_refused(&phase, text, sizeof text), scoped ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        assert_string_equal(text, scoped ? "no room" : "as it was");
        wl_phase_end(&phase);
        drop(&one);
    }
}

/* GenAI has one for the process. A model that comes before it is known learns it in its phase, a later one at once. */
static void test_the_stream_is_known_to_all_models_on_the_device(void **state)
{
    (void)state;
    ort_allocator *there = wl_memory_of_device(&of_device.table);
    wl_phase phase;
    owner on_host = owner_of("host");
    on_device.here = true;
    owner first = owner_of("first");
    wl_account_settle(first.account);
    assert_int_equal(on_device.synchronized, 0);
    on_device.knows_no_streams = true;
    wl_phase_begin(&phase, WL_LOADING, first.account);
    wl_memory_stream(&on_device);
    assert_words(said_last, "frees wait for the device: no such stream");
    on_device.knows_no_streams = false;
    assert_int_equal(on_device.streams, 0);
    for (int i = 0; i < 2; i++) {
        wl_memory_stream(&on_device);
        assert_int_equal(on_device.streams, 1);
    }
    void *block = ask(there, 1000);
    assert_int_equal(on_device.stream, STREAM);
    wl_phase_end(&phase);
    there->Free(there, block);
    assert_int_equal(on_device.freed_on, STREAM);
    wl_account_settle(first.account);
    assert_int_equal(on_device.synchronized, 1);
    wl_account_bridge(first.account);
    assert_int_equal(bridges.options.stream.id, STREAM);
    owner second = owner_of("second");
    assert_int_equal(on_device.streams, 2);
    on_device.here = false;
    wl_phase_begin(&phase, WL_LOADING, on_host.account);
    wl_memory_stream(&on_device);
    wl_phase_end(&phase);
    wl_account_settle(on_host.account);
    assert_int_equal(on_device.streams, 2);
    assert_int_equal(on_device.synchronized, 1);
    drop(&second);
    assert_int_equal(on_device.streams, 1);
    drop(&first);
    assert_int_equal(on_device.streams, 0);
    drop(&on_host);
    assert_int_equal(said, 0);
    wl_memory_stream(NULL);
}

/* ------------------------------------------------------------------------------------------------------------------ */

typedef struct worker {
    owner one;
    int wrong;
} worker;

static void *take_and_give(void *user)
{
    worker *it = user;
    ort_allocator *host = wl_memory_of_host();
    for (int i = 0; i < 200; i++) {
        wl_phase phase;
        void *all[3];
        wl_phase_begin(&phase, WL_RUNNING, it->one.account);
        for (int k = 0; k < 3; k++)
            all[k] = host->Alloc(host, 100 + 300 * (size_t)k);
        it->wrong += stats_of_client(it->one.client).live != charge(100) + charge(400) + charge(700);
        wl_phase_end(&phase);
        for (int k = 0; k < 3; k++)
            host->Free(host, all[k]);
    }
    return NULL;
}

static void test_threads_have_phases_of_their_own(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    static const char *const names[THREADS] = {"first", "second", "third", "fourth"};
    worker all[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        all[i] = (worker){owner_of(names[i]), 0};
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, &all[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(all[i].wrong, 0);
        drop(&all[i].one);
    }
    assert_int_equal(said, 0);
    assert_int_equal(of_host.all, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whoever_cannot_be_refused_gets_no_memory, begin, finish),
        cmocka_unit_test_setup_teardown(test_outside_of_phases_memory_is_onnx_runtimes_own, begin, finish),
        cmocka_unit_test_setup_teardown(test_a_request_is_the_accounts_with_a_rest, begin, finish),
        cmocka_unit_test_setup_teardown(test_phases_inside_one_another, begin, finish),
        cmocka_unit_test_setup_teardown(test_classes_are_the_threads, begin, finish),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_had_is_refused_and_nothing_else, begin, finish),
        cmocka_unit_test_setup_teardown(test_a_block_that_cannot_be_noted_is_given_back, begin, finish),
        cmocka_unit_test_setup_teardown(test_what_outlives_its_model_is_told, begin, finish),
        cmocka_unit_test_setup_teardown(test_an_account_has_one_bridge, begin, finish),
        cmocka_unit_test_setup_teardown(test_a_bridge_is_asked_from_the_phase_on, begin, finish),
        cmocka_unit_test_setup_teardown(test_a_model_on_a_device_has_memory_there, begin, finish),
        cmocka_unit_test_setup_teardown(test_what_a_scope_has_refused_is_told, begin, finish),
        cmocka_unit_test_setup_teardown(test_the_stream_is_known_to_all_models_on_the_device, begin, finish),
        cmocka_unit_test_setup_teardown(test_threads_have_phases_of_their_own, begin, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
