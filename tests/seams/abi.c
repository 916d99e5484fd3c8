/* What the seam of PyTorch puts in the place of functions that throw (src/seams/torch_abi.c), over stand-ins for PyTorch's
 * libraries: what they answer, and states of pools as PyTorch's C++ has them. */
#include "seams/torch.h"
#include "seams/seams.h"

#include "core.h"
#include "info.h"
#include "seams/places.h"
#include "test_places.h"

#include <dlfcn.h>

enum { BLOCK = 1 << 20, MANY = 20, POOL = 7, ANOTHER = 3 };
/* Slots of fake_torch.c's table. */
enum { CACHE_INFO, FRACTION, RESET_PEAKS, RESET_ACCUMULATED, GET_STATE, SET_STATE, SHARE, OPEN, OTHER };

typedef struct allocator {
    void (**table)(void);
} allocator;

typedef struct counted {
    void (*const *table)(struct counted *self);
    int uses, weak;
} counted;

typedef struct shared {
    void *state;
    counted *counted;
} shared;

typedef struct data_ptr {
    void *data;
    void (*deleter)(void *);
    void *context;
    int8_t device_type, device;
} data_ptr;

typedef struct delta {
    void **freed, **freed_end, **freed_room;
    data_ptr *alive, *alive_end, *alive_room;
} delta;

/* A std::function, as far as it is asked. */
typedef struct filter {
    void *functor[2];
    bool (*manager)(void *to, const void *from, int what);
    bool (*invoker)(const void *functor, void *const *stream);
} filter;

/* A std::string, and c10's ShareableHandle. */
typedef struct string {
    char *text;
    size_t bytes, room[2];
} string;

typedef struct shareable {
    int64_t offset;
    string handle;
} shareable;

static allocator torch;
static void *cpp, *c10;
static weir_client *client, *second;
static int *thrown;
static void *(*torch_malloc)(void *self, size_t bytes, int8_t device, void *stream);
static void (*torch_delete)(void *self, void *pointer);

/* The second device's memory is not mapped. */
static void open_device(int device)
{
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_runtime_options of_second = WEIR_INIT(weir_runtime_options);
    weir_client **opened = device ? &second : &client;
    weir_runtime *runtime;
    options.name = "torch";
    of_second.resource = "segments";
    ok(weir_runtime_get(device ? "cuda:1" : "cuda:0", device ? &of_second : NULL, &runtime));
    ok(weir_client_create(runtime, &options, opened));
    ok(wseam_torch_give(device, *opened));
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fail_msg("%s", dlerror());
    return found;
}

#define ALLOCATOR "5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator"

/* The program has PyTorch with a pluggable allocator, which is the seam's. */
static int set_up(void **state)
{
    (void)state;
    c10 = dlopen(built_path("tests/torch/libc10_cuda.so"), RTLD_NOW);
    void *cuda = dlopen(built_path("tests/torch/libtorch_cuda.so"), RTLD_NOW);
    cpp = dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL);
    if (!cpp || !c10 || !cuda)
        return -1;
    thrown = symbol(cuda, "fake_thrown");
    *(void **)&torch_malloc = symbol(cuda, "_ZN" ALLOCATOR "6mallocEmaP11CUstream_st");
    *(void **)&torch_delete = symbol(cuda, "_ZN" ALLOCATOR "10raw_deleteEPv");
    *(void *(**)(size_t, int, void *))symbol(cuda, "fake_alloc") = wseam_torch_alloc;
    *(void (**)(void *, size_t, int, void *))symbol(cuda, "fake_free") = wseam_torch_free;
    torch.table = (void (**)(void))symbol(cuda, "_ZTVN" ALLOCATOR "E") + 2;
    ok(wseam_torch_begin(open_device));
    assert_int_equal(wseam_torch_complete(), 0); /* PyTorch has no allocator yet */
    *(allocator **)symbol(c10, "_ZN3c104cuda20CUDACachingAllocator9allocatorE") = &torch;
    void (**of_all)(void) = torch.table;
    assert_int_equal(wseam_torch_complete(), WTORCH_REPLACED);
    assert_ptr_not_equal(torch.table, of_all); /* other allocators of the class keep theirs */
    return 0;
}

static void *take_on(int8_t device, size_t bytes)
{
    void *pointer = torch_malloc(&torch, bytes, device, NULL);
    assert_non_null(pointer);
    return pointer;
}

static void *take(size_t bytes)
{
    return take_on(0, bytes);
}

static void give(void *pointer)
{
    torch_delete(&torch, pointer);
}

static size_t largest(size_t known)
{
    ((void (*)(void *, int8_t, size_t *))torch.table[CACHE_INFO])(&torch, 0, &known);
    return known;
}

static double fraction(int8_t device)
{
    return ((double (*)(void *, int8_t))torch.table[FRACTION])(&torch, device);
}

static weir_gauge bytes_now(void)
{
    wseam_torch_counts counts;
    wseam_torch_count(0, &counts);
    return counts.requested_bytes;
}

static void what_throws_is_answered(void **state)
{
    gate g = GATE;
    weir_stream legacy, other;
    weir_runtime *runtime;
    void *native;
    int (*create)(void **stream, unsigned flags);
    (void)state;
    assert_ptr_equal(wtorch_abi_current_stream(1), (void *)41);
    void *a = take(10 * MIB), *b = take(2 * MIB);
    give(b);
    ok(wseam_place_of(client, NULL, &legacy));
    ok(weir_stream_synchronize(legacy));
    assert_int_equal(largest(0), 54 * MIB);
    assert_int_equal(largest(60 * MIB), 60 * MIB); /* what PyTorch knows of is more */
    assert_true(fraction(0) == 1 && fraction(1) == 1);
    wseam_torch_set_fraction(0.125, 0); /* of 256 MiB */
    assert_true(fraction(0) == 0.125 && fraction(1) == 1);
    assert_int_equal(largest(0), 22 * MIB);
    runtime = weir_client_runtime(client);
    *(void **)&create = symbol(dlopen("libcuda.so.1", RTLD_NOW), "cuStreamCreate");
    ok(weir_runtime_enter(runtime));
    assert_int_equal(create(&native, 1), 0);
    weir_runtime_leave(runtime);
    ok(wseam_place_of(client, native, &other));
    ok(weir_call(runtime, pass_gate, &g, other));
    wseam_torch_record_stream(a, native);
    give(a);
    size_t pending = largest(0); /* as long as the other stream is at work with it */
    wseam_torch_set_fraction(1, 0);
    size_t of_all = largest(0);
    open_gate(&g);
    ok(weir_stream_synchronize(other));
    assert_int_equal(pending, 22 * MIB);
    assert_int_equal(of_all, 54 * MIB);
    a = take(3 * MIB);
    ((void (*)(void *, int8_t))torch.table[RESET_PEAKS])(&torch, 0);
    assert_int_equal(bytes_now().peak, 3 * MIB);
    assert_int_equal(bytes_now().allocated, 15 * MIB);
    ((void (*)(void *, int8_t))torch.table[RESET_ACCUMULATED])(&torch, 0);
    assert_int_equal(bytes_now().allocated + bytes_now().freed, 0);
    give(a);
    assert_int_equal(*thrown, 0);
    torch.table[OTHER]();
    assert_int_equal(*thrown, 1);
}

static bool manage(void *to, const void *from, int what)
{
    (void)to;
    return from && what < 0;
}

static bool every(const void *functor, void *const *stream)
{
    return functor && stream;
}

/* C++ returns an object with a destructor where the caller says, as C does with a structure of more than two words. */
typedef struct returned {
    shared state;
    void *nothing;
} returned;

static shared get_state(void)
{
    returned answer =
        ((returned(*)(void *, int8_t, uint64_t, uint64_t))torch.table[GET_STATE])(&torch, 0, POOL, ANOTHER);
    assert_int_equal(answer.state.counted->uses, 1);
    return answer.state;
}

static delta set_state(const shared *state)
{
    return ((delta(*)(void *, int8_t, const shared *))torch.table[SET_STATE])(&torch, 0, state);
}

/* More blocks than a list has room for at first. */
static void a_state_is_set_as_cpp_has_it(void **ignored)
{
    const filter of_all = {.manager = manage, .invoker = every};
    void *stay[MANY], *go[MANY];
    (void)ignored;
    void *outside = take(BLOCK);
    wseam_torch_begin_pool(0, POOL, ANOTHER, &of_all);
    for (int i = 0; i < MANY; i++)
        stay[i] = take(BLOCK);
    shared state = get_state();
    for (int i = 0; i < MANY; i++) {
        give(stay[i]);
        go[i] = take(BLOCK);
    }
    assert_int_equal(bytes_now().current, (MANY + 1) * BLOCK);
    delta changes = set_state(&state);
    assert_int_equal(changes.freed_end - changes.freed, MANY);
    assert_int_equal(changes.alive_end - changes.alive, MANY);
    for (int i = 0; i < MANY; i++) {
        int freed = 0, alive = 0;
        for (int k = 0; k < MANY; k++) {
            freed += changes.freed[k] == go[i];
            alive += changes.alive[k].data == stay[i] && changes.alive[k].context == stay[i];
        }
        assert_int_equal(freed, 1);
        assert_int_equal(alive, 1);
        assert_int_equal(changes.alive[i].device_type, 1); /* CUDA */
        assert_int_equal(changes.alive[i].device, 0);
    }
    assert_int_equal(bytes_now().current, (MANY + 1) * BLOCK);
    assert_int_equal(client_details(client).live, (MANY + 1) * BLOCK);
    for (int i = 0; i < MANY; i++)
        changes.alive[i].deleter(changes.alive[i].context);
    assert_int_equal(client_details(client).live, (MANY + 1) * BLOCK); /* the state has them */
    state.counted->table[2](state.counted);                            /* its last use has gone, */
    assert_int_equal(client_details(client).live, BLOCK);
    state.counted->table[3](state.counted); /* and the last that knows of it */
    wseam_torch_end_pool(0, POOL, ANOTHER);
    wseam_torch_release_pool(0, POOL, ANOTHER);
    give(outside);
    assert_int_equal(bytes_now().current, 0);
    void (*drop)(void *);
    *(void **)&drop = symbol(cpp, "_ZdlPv"); /* of the library that the seam has them from */
    drop(changes.freed);
    drop(changes.alive);
}

static shareable share(void *pointer)
{
    return ((shareable(*)(void *, void *))torch.table[SHARE])(&torch, pointer);
}

// NOLINTNEXTLINE(readability-non-const-parameter) ; a string has what it may write
static shared open_handle(char *text, size_t bytes)
{
    const string handle = {.text = text, .bytes = bytes};
    return ((returned(*)(void *, const string *))torch.table[OPEN])(&torch, &handle).state;
}

static void let_go(shared memory)
{
    memory.counted->table[2](memory.counted);
    memory.counted->table[3](memory.counted);
}

/* Blocks of one allocation of the driver's have one handle, which is mapped once, and as long as one of them is in use. */
static void tensors_are_shared_as_cpp_has_it(void **state)
{
    int *opened = symbol(c10, "fake_opened"), *closed = symbol(c10, "fake_closed"),
        *device = symbol(c10, "fake_device"), *closed_on = symbol(c10, "fake_closed_on");
    void (*drop)(void *);
    (void)state;
    *(void **)&drop = symbol(cpp, "_ZdlPv");
    void *a = take_on(1, 300), *b = take_on(1, 5000);
    shareable of_a = share(a), of_b = share(b);
    assert_true(of_a.handle.bytes == 64 && of_a.handle.room[0] == 64 && of_a.handle.text[64] == 0);
    assert_memory_equal(of_a.handle.text, of_b.handle.text, 64);
    assert_int_equal(of_b.offset - of_a.offset, (char *)b - (char *)a);
    *device = 1;
    shared first = open_handle(of_a.handle.text, 64);
    char versioned[66] = {2, 'c'}; /* as PyTorch's own allocator has it */
    memcpy(versioned + 2, of_b.handle.text, 64);
    shared more = open_handle(versioned, sizeof versioned);
    assert_ptr_equal((char *)first.state + of_a.offset, a);
    assert_ptr_equal((char *)more.state + of_b.offset, b);
    assert_int_equal(*opened, 1);
    *device = 0; /* another thing is current when the last one goes */
    let_go(first);
    assert_int_equal(*closed, 0);
    let_go(more);
    assert_true(*closed == 1 && *closed_on == 1 && *device == 0);
    let_go(open_handle(of_a.handle.text, 64));
    assert_true(*opened == 2 && *closed == 2 && *closed_on == 0);
    drop(of_a.handle.text);
    drop(of_b.handle.text);
    give(a);
    give(b);
}

static void what_cannot_be_shared_is_refused_and_loses_nothing(void **state)
{
    char nothing[64] = {0}, mapped[66] = {2, 'e'};
    int *errors = symbol(c10, "fake_errors"), local = 0;
    (void)state;
    void *a = take(3000);
    shareable answer = share(a);
    assert_true(answer.handle.bytes == 0 && !answer.handle.text[0]);
    assert_int_equal(wseam_torch_shareable(a, false), WEIR_ERR_UNSUPPORTED);
    detail_names("3000 bytes on cuda:0");
    detail_names("resource=\"segments\"");
    assert_int_equal(wseam_torch_shareable(a, true), WEIR_ERR_UNSUPPORTED);
    detail_names("in a segment of 3000 bytes");
    detail_names("not what cuMemAlloc gave");
    assert_int_equal(wseam_torch_shareable(&local, false), WEIR_ERR_UNSUPPORTED);
    detail_names("not weir's");
    ok(wseam_torch_shareable(&local, true)); /* of a segment that PyTorch has from CUDA */
    ok(wseam_torch_shareable(NULL, false));
    assert_null(open_handle(nothing, sizeof nothing).counted);
    assert_null(open_handle(mapped, sizeof mapped).counted);
    assert_null(open_handle(mapped, 65).counted);
    assert_null(open_handle(mapped, 0).counted);
    assert_int_equal(*errors, 1); /* the driver was asked once, and PyTorch does not come upon its error */
    give(a);
    assert_int_equal(bytes_now().current, 0);
}

/* A segment of PyTorch's own is shared from its beginning, which has to be that of an allocation. */
static void a_segment_is_shared_as_a_whole(void **state)
{
    (void)state;
    char *a = take_on(1, 2 * MIB), *b = take_on(1, 2 * MIB);
    ok(wseam_torch_shareable(b + 5000, false));
    int refused = 0;
    refused += wseam_torch_shareable(a + 5000, true) != WEIR_OK;
    refused += wseam_torch_shareable(b + 5000, true) != WEIR_OK;
    assert_int_equal(refused, 1); /* they lie in one allocation */
    detail_names("a part of an allocation");
    detail_names("resource=\"direct\"");
    give(a);
    give(b);
}

static void what_others_have_let_go_is_freed_before_memory_is_refused(void **state)
{
    void **kept = symbol(dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD), "fake_shared"), (*drop)(void *);
    (void)state;
    *(void **)&drop = symbol(cpp, "_ZdlPv");
    *kept = take_on(1, 40 * MIB);
    shareable answer = share(*kept);
    void *large = take_on(1, 50 * MIB); /* of 64 MiB */
    assert_null(*kept);
    drop(answer.handle.text);
    give(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_throws_is_answered),
        cmocka_unit_test(a_state_is_set_as_cpp_has_it),
        cmocka_unit_test(tensors_are_shared_as_cpp_has_it),
        cmocka_unit_test(what_cannot_be_shared_is_refused_and_loses_nothing),
        cmocka_unit_test(a_segment_is_shared_as_a_whole),
        cmocka_unit_test(what_others_have_let_go_is_freed_before_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
