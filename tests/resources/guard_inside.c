/* What cannot happen over a resource that works: the guard over one that hands out memory twice, and that fails. */
#include "core.h"
#include <weir/guard.h>
#include "memory/adaptors/adaptors.h"

#include <stdatomic.h>

/* A base over an array, which places blocks where the test says. */
typedef struct size_index {
    wi_base base;
    wi_block blocks[8];
    size_t count;
    uint64_t next; /* where the next one begins */
    weir_status answer;
    _Alignas(256) char bytes[16384];
} size_index;

static void shelf_measure(wi_resource *resource, wi_placement *p)
{
    (void)resource;
    p->charged = wi_round_up(p->before + p->bytes + p->after, WI_UNIT);
}

static weir_status shelf_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    size_index *s = (size_index *)resource;
    (void)shortage;
    *out = &s->blocks[s->count++];
    **out = wi_block_make(p, s->bytes + s->next, WI_CLEAN);
    return WEIR_OK;
}

static atomic_int discarded, released;
static int fills_left = -1; /* that go well; -1: all */
static bool fills_half;     /* and fails then */
static int waits, waits_that_fail, waits_at_discard;
static wi_block *order[8]; /* of the releases */
static gate *hold;         /* NULL: a release goes through */

static weir_status place(wi_resource *guard, size_index *s, uint64_t at, uint64_t bytes, wi_block **out);
static wi_resource *served_in_discard; /* NULL: none; the bytes serve the next request at once */
static wi_block *served;

static void shelf_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    wi_resource *guard = served_in_discard;
    (void)block, (void)p;
    served_in_discard = NULL;
    fills_left = guard ? -1 : fills_left;
    if (guard)
        ok(place(guard, (size_index *)resource, 0, 300, &served));
    waits_at_discard = waits;
    atomic_fetch_add(&discarded, 1);
}

static void shelf_publish(wi_resource *resource, wi_block *block)
{
    (void)resource;
    wi_block_set_phase(block, WI_LIVE);
}

static bool shelf_retire(wi_resource *resource, wi_block *block, weir_stream stream, void *native, wi_past past)
{
    (void)resource, (void)stream, (void)native;
    wi_block_set_phase(block, WI_PENDING);
    return past == WI_PASSED;
}

static weir_status shelf_release(wi_resource *resource, wi_block *block)
{
    weir_status status = ((size_index *)resource)->answer;
    if (hold)
        pass_gate(hold);
    if (status == WEIR_OK)
        order[atomic_fetch_add(&released, 1)] = block;
    return status;
}

static void shelf_destroy(wi_resource *resource)
{
    wi_base_end(wi_base_of(resource));
    free(resource);
}

static uint64_t shelf_charge(wi_base *base, uint64_t bytes)
{
    (void)base;
    return wi_round_up(bytes, WI_UNIT);
}

static wi_block *shelf_find(wi_base *base, const void *pointer, bool *freed)
{
    (void)base, (void)pointer;
    *freed = false;
    return NULL;
}

static void shelf_each(wi_base *base, void (*fn)(wi_block *block, void *user), void *user)
{
    (void)base, (void)fn, (void)user;
}

static void shelf_walk(wi_base *base, struct wi_layout *layout)
{
    (void)base, (void)layout;
}

static bool shelf_owns(wi_base *base, const void *pointer)
{
    const size_index *s = (const size_index *)base;
    return (const char *)pointer >= s->bytes && (const char *)pointer < s->bytes + sizeof s->bytes;
}

static uint64_t shelf_trim(wi_base *base, uint64_t keep)
{
    (void)base, (void)keep;
    return 0;
}

static void shelf_look(wi_base *base, weir_class memory_class, uint64_t charged, uint64_t alignment,
                       wi_shortage *shortage)
{
    (void)base, (void)memory_class, (void)charged, (void)alignment, (void)shortage;
}

static const wi_base_table shelf_table = {.all.name = "shelf",
                                          .all.measure = shelf_measure,
                                          .all.allocate = shelf_allocate,
                                          .all.discard = shelf_discard,
                                          .all.publish = shelf_publish,
                                          .all.retire = shelf_retire,
                                          .all.release = shelf_release,
                                          .all.destroy = shelf_destroy,
                                          .charge = shelf_charge,
                                          .find = shelf_find,
                                          .each = shelf_each,
                                          .walk = shelf_walk,
                                          .owns = shelf_owns,
                                          .trim = shelf_trim,
                                          .look = shelf_look};

/* The host's copies and fills, or none. */
static bool broken;
static gate *_Atomic hold_copies; /* NULL: a copy goes through */

static weir_status copy(wi_device *device, void *to, const void *from, size_t bytes, void *stream)
{
    gate *g = hold_copies;
    if (g)
        pass_gate(g);
    return broken ? weir_fail(WEIR_ERR_DEVICE_LOST, "gone") : wi_host_driver.copy(device, to, from, bytes, stream);
}

static weir_status fill(wi_device *device, void *to, uint8_t value, size_t bytes, void *stream)
{
    if (fills_left == 0)
        return weir_fail(WEIR_ERR_DRIVER, "not filled on purpose");
    (void)stream; /* all is done at once */
    fills_left -= fills_left > 0;
    if (fills_half)
        (void)wi_host_driver.fill(device, to, value, bytes / 2, NULL);
    return broken || fills_half ? weir_fail(WEIR_ERR_DEVICE_LOST, "gone")
                                : wi_host_driver.fill(device, to, value, bytes, NULL);
}

static weir_status synchronize(wi_device *device, void *stream)
{
    (void)device, (void)stream;
    return ++waits <= waits_that_fail ? weir_fail(WEIR_ERR_DRIVER, "not waited for on purpose") : WEIR_OK;
}

static wi_driver driver;
static wi_account account = {.name = "bert"};

static wi_resource *make_with(size_index **out, const wi_arguments *arguments)
{
    wi_resource *guard;
    driver = wi_host_driver;
    driver.copy = copy;
    driver.fill = fill;
    driver.stream_synchronize = synchronize;
    broken = false;
    size_index *s = calloc(1, sizeof *s);
    wi_base_init(&s->base, &shelf_table, &driver, NULL);
    ok(wi_guard_create(&s->base.resource, arguments, &guard));
    atomic_store(&discarded, 0);
    atomic_store(&released, 0);
    *out = s;
    return guard;
}

static wi_resource *make(size_index **out)
{
    return make_with(out, &(wi_arguments){.part = "guard", .count = 1, .text = {"zone=256"}});
}

static weir_status place(wi_resource *guard, size_index *s, uint64_t at, uint64_t bytes, wi_block **out)
{
    wi_placement p = {
        .bytes = bytes, .alignment = WI_UNIT, .account = &account, .tag = "x", .memory_class = WEIR_CLASS_KV};
    wi_shortage ignored;
    s->next = at;
    wi_measure(guard, &p);
    weir_status status = wi_allocate(guard, &p, out, &ignored);
    if (status == WEIR_OK)
        wi_publish(guard, *out);
    return status;
}

static void a_block_over_another_is_found(void **state)
{
    (void)state;
    size_index *s;
    wi_resource *guard = make(&s);
    wi_block *one, *two, *three, *four;
    weir_guard_report reports[8] = {{.struct_size = sizeof reports[0]}};
    size_t count;
    ok(place(guard, s, 1024, 300, &one));   /* [1024, 2048) */
    ok(place(guard, s, 2048, 300, &two));   /* side by side is no overlap */
    ok(place(guard, s, 2816, 300, &three)); /* 256 bytes of the second's end */
    ok(place(guard, s, 768, 10, &four));    /* from before the first into it */
    wi_guard_reports(wi_guard_in(guard), reports, 8, &count);
    assert_int_equal(count, 2);
    assert_int_equal(reports[0].kind, WEIR_GUARD_OVERLAP);
    assert_ptr_equal(reports[0].block.pointer, three->pointer);
    assert_ptr_equal(reports[0].other.pointer, two->pointer);
    assert_int_equal(reports[0].other.generation, wi_block_generation(two));
    assert_int_equal(reports[0].offset, -256);
    assert_int_equal(reports[0].damaged, 256);
    assert_ptr_equal(reports[1].block.pointer, four->pointer);
    assert_ptr_equal(reports[1].other.pointer, one->pointer);
    assert_int_equal(reports[1].damaged, 512);
    char words[512];
    wi_guard_words(&reports[0], words, sizeof words);
    assert_non_null(strstr(words, "shares 256 bytes from offset -256"));
    assert_null(strstr(words, "freed")); /* nobody has */
    wi_block *again;                     /* where the second begins, too: each has a record of its own */
    ok(place(guard, s, 2048, 300, &again));
    assert_ptr_equal(wi_guard_set_find(wi_guard_in(guard), two)->block, two);
    assert_ptr_equal(wi_guard_set_find(wi_guard_in(guard), again)->block, again);
    assert_false(wi_retire(guard, again, WEIR_STREAM_HOST, NULL, WI_PASSED));
    ok(wi_release(guard, again));
    assert_int_equal(atomic_exchange(&released, 0), 1); /* it is told of, and not kept */
    ok(wi_guard_check(wi_guard_in(guard)));             /* what was there is as it was */
    wi_block *blocks[] = {two, four, one, three};
    for (int i = 0; i < 4; i++) {
        assert_false(wi_retire(guard, blocks[i], WEIR_STREAM_HOST, NULL, WI_PASSED));
        ok(wi_release(guard, blocks[i]));
    }
    (void)wi_release_kept(guard);
    wi_guard_reports(wi_guard_in(guard), NULL, 0, &count);
    assert_int_equal(count, 3);
    assert_int_equal(atomic_load(&released), 4);
    wi_resource_destroy(guard);
}

/* A pending block's memory is not free either; what has left is. */
static void a_pending_block_counts_until_it_is_released(void **state)
{
    (void)state;
    size_index *s;
    wi_resource *guard = make(&s);
    wi_block *one, *two, *three;
    size_t count;
    ok(place(guard, s, 0, 300, &one));
    (void)wi_retire(guard, one, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(place(guard, s, 0, 300, &two));
    wi_guard_reports(wi_guard_in(guard), NULL, 0, &count);
    assert_int_equal(count, 1);
    (void)wi_retire(guard, two, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, one));
    ok(wi_release(guard, two));
    (void)wi_release_kept(guard);
    ok(place(guard, s, 0, 300, &three));
    wi_guard_reports(wi_guard_in(guard), NULL, 0, &count);
    assert_int_equal(count, 1);
    (void)wi_retire(guard, three, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, three));
    assert_int_equal(wi_release_kept(guard), three->charged);
    wi_resource_destroy(guard);
}

static void a_resource_that_refuses_is_asked_again(void **state)
{
    (void)state;
    size_index *s;
    wi_resource *guard = make(&s);
    wi_block *one, *two;
    ok(place(guard, s, 0, 300, &one));
    ok(place(guard, s, 2048, 300, &two));
    (void)wi_retire(guard, one, WEIR_STREAM_HOST, NULL, WI_PASSED);
    (void)wi_retire(guard, two, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, one));
    ok(wi_release(guard, two));
    s->answer = WEIR_ERR_DRIVER;
    assert_int_equal(wi_release_kept(guard), 0);
    assert_int_equal(atomic_load(&released), 0);
    s->answer = WEIR_OK;
    assert_int_equal(wi_release_kept(guard), one->charged + two->charged);
    assert_int_equal(atomic_load(&released), 2);
    assert_ptr_equal(order[0], one); /* it is still the oldest */
    assert_ptr_equal(order[1], two);
    wi_resource_destroy(guard);
}

/* Without a quarantine, too: until its memory is given back, a block over it is one over another. */
static void a_block_that_was_not_taken_back_is_still_there(void **state)
{
    (void)state;
    size_index *s;
    wi_resource *guard =
        make_with(&s, &(wi_arguments){.part = "guard", .count = 2, .text = {"zone=256", "quarantine=0"}});
    wi_block *one, *two, *three;
    size_t count;
    ok(place(guard, s, 0, 300, &one));
    (void)wi_retire(guard, one, WEIR_STREAM_HOST, NULL, WI_PASSED);
    s->answer = WEIR_ERR_DRIVER;
    assert_int_equal(wi_release(guard, one), WEIR_ERR_DRIVER);
    ok(place(guard, s, 0, 300, &two));
    wi_guard_reports(wi_guard_in(guard), NULL, 0, &count);
    assert_int_equal(count, 1);
    s->answer = WEIR_OK;
    ok(wi_release(guard, one));
    (void)wi_retire(guard, two, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, two));
    assert_int_equal(atomic_load(&released), 2);
    ok(place(guard, s, 0, 300, &three));
    wi_guard_reports(wi_guard_in(guard), NULL, 0, &count);
    assert_int_equal(count, 1);
    (void)wi_retire(guard, three, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, three));
    wi_resource_destroy(guard);
}

/* Zones that were queued are waited for, before the memory is somebody else's; a wait that fails is tried again. */
static void a_block_whose_zones_were_not_all_written_goes_back_behind_them(void **state)
{
    (void)state;
    int stream;
    for (int failing = 0; failing < 3; failing++)
        for (int painted = 0; painted < 3; painted++) {
            size_index *s;
            wi_resource *guard = make(&s);
            wi_block *block;
            wi_shortage ignored;
            wi_placement p = {.bytes = 300, .alignment = WI_UNIT, .account = &account, .tag = "x", .native = &stream};
            wi_measure(guard, &p);
            waits = waits_at_discard = 0;
            waits_that_fail = failing;
            fills_left = painted;
            served_in_discard = guard;
            fails(WEIR_ERR_DRIVER, wi_allocate(guard, &p, &block, &ignored));
            fills_left = -1;
            assert_int_equal(atomic_load(&discarded), 1);
            assert_int_equal(waits_at_discard, failing + 1);
            size_t count;
            wi_guard_reports(wi_guard_in(guard), NULL, 0, &count);
            assert_int_equal(count, 0); /* what serves there lies over nobody's block */
            (void)wi_retire(guard, served, WEIR_STREAM_HOST, NULL, WI_PASSED);
            ok(wi_release(guard, served));
            (void)wi_release_kept(guard);
            wi_resource_destroy(guard);
        }
    waits_that_fail = 0;
}

/* Half of it is poisoned, and it cannot be given back either: what is in its zones by then says nothing. */
static void a_block_that_could_not_be_buried_is_not_looked_at(void **state)
{
    (void)state;
    size_index *s;
    wi_resource *guard = make(&s);
    wi_block *block;
    size_t count;
    ok(place(guard, s, 0, 300, &block));
    (void)wi_retire(guard, block, WEIR_STREAM_HOST, NULL, WI_PASSED);
    fills_half = true;
    s->answer = WEIR_ERR_DRIVER;
    assert_int_equal(wi_release(guard, block), WEIR_ERR_DRIVER);
    fills_half = false;
    s->answer = WEIR_OK;
    ok(wi_release(guard, block));
    wi_guard_reports(wi_guard_in(guard), NULL, 0, &count);
    assert_int_equal(count, 0);
    assert_int_equal(atomic_load(&released), 1);
    wi_resource_destroy(guard);
}

static bool nothing_grows;
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size)
{
    return nothing_grows ? NULL : __real_realloc(old, size);
}

static void a_block_without_a_record_goes_back(void **state)
{
    (void)state;
    size_index *s;
    wi_resource *guard = make(&s);
    wi_block *block;
    nothing_grows = true;
    weir_status status = place(guard, s, 0, 300, &block);
    nothing_grows = false;
    fails(WEIR_ERR_SYSTEM, status);
    assert_int_equal(atomic_load(&discarded), 1);
    ok(place(guard, s, 0, 300, &block));
    (void)wi_retire(guard, block, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, block));
    assert_int_equal(wi_release_kept(guard), block->charged);
    wi_resource_destroy(guard);
}

static atomic_bool relieved;

static void *release_kept(void *user)
{
    uint64_t *bytes = user;
    *bytes = wi_release_kept((wi_resource *)(uintptr_t)bytes[1]);
    atomic_store(&relieved, true);
    return NULL;
}

/* Whoever finds nothing kept back must not take that for nothing pending. */
static void what_another_thread_has_in_hand_is_waited_for(void **state)
{
    (void)state;
    size_index *s;
    wi_resource *guard = make(&s);
    wi_block *one;
    gate g = GATE;
    pthread_t first, second;
    ok(place(guard, s, 0, 300, &one));
    (void)wi_retire(guard, one, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, one));
    uint64_t bytes[2][2] = {{0, (uintptr_t)guard}, {0, (uintptr_t)guard}};
    hold = &g;
    assert_int_equal(pthread_create(&first, NULL, release_kept, bytes[0]), 0);
    pthread_mutex_lock(&g.lock);
    while (!g.reached)
        pthread_cond_wait(&g.changed, &g.lock);
    pthread_mutex_unlock(&g.lock);
    atomic_store(&relieved, false);
    assert_int_equal(pthread_create(&second, NULL, release_kept, bytes[1]), 0);
    nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
    assert_false(atomic_load(&relieved));
    open_gate(&g);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    hold = NULL;
    assert_int_equal(bytes[0][0], one->charged);
    assert_int_equal(bytes[1][0], one->charged); /* another try is worth it for both */
    wi_resource_destroy(guard);
}

static void *check_it(void *user)
{
    uint64_t *status = user;
    *status = wi_guard_check(wi_guard_in((wi_resource *)(uintptr_t)status[1]));
    atomic_store(&relieved, true);
    return NULL;
}

/* A check does not read what another thread has in hand; it waits for it. */
static void a_check_waits_for_what_another_thread_has_in_hand(void **state)
{
    (void)state;
    size_index *s;
    wi_resource *guard = make(&s);
    wi_block *one, *two;
    gate g = GATE;
    pthread_t first, second;
    ok(place(guard, s, 0, 300, &one));
    ok(place(guard, s, 2048, 300, &two));
    (void)wi_retire(guard, one, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, one));
    uint64_t bytes[2] = {0, (uintptr_t)guard}, status[2] = {0, (uintptr_t)guard};
    hold_copies = &g;
    assert_int_equal(pthread_create(&first, NULL, release_kept, bytes), 0);
    pthread_mutex_lock(&g.lock);
    while (!g.reached)
        pthread_cond_wait(&g.changed, &g.lock);
    pthread_mutex_unlock(&g.lock);
    hold_copies = NULL;
    atomic_store(&relieved, false);
    assert_int_equal(pthread_create(&second, NULL, check_it, status), 0);
    nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
    assert_false(atomic_load(&relieved));
    open_gate(&g);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    assert_int_equal(bytes[0], one->charged);
    assert_int_equal(status[0], WEIR_OK);
    (void)wi_retire(guard, two, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, two));
    assert_int_equal(wi_release_kept(guard), two->charged);
    wi_resource_destroy(guard);
}

/* What cannot be filled is not handed out; what cannot be read is given back all the same. */
static void a_device_that_is_gone_keeps_nothing_back(void **state)
{
    (void)state;
    size_index *s;
    wi_resource *guard = make(&s);
    wi_block *one, *two, *three;
    size_t count;
    ok(place(guard, s, 0, 300, &one));
    ok(place(guard, s, 2048, 300, &two));
    (void)wi_retire(guard, one, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, one));
    broken = true;
    fails(WEIR_ERR_DEVICE_LOST, place(guard, s, 4096, 300, &three));
    assert_int_equal(atomic_load(&discarded), 1);
    fails(WEIR_ERR_DEVICE_LOST, wi_guard_check(wi_guard_in(guard)));
    (void)wi_retire(guard, two, WEIR_STREAM_HOST, NULL, WI_PASSED);
    ok(wi_release(guard, two));
    assert_int_equal(atomic_load(&released), 1);
    assert_int_equal(wi_release_kept(guard), one->charged);
    wi_guard_reports(wi_guard_in(guard), NULL, 0, &count);
    assert_int_equal(count, 0);
    wi_resource_destroy(guard);
}

/* A block that leaves lies between two that overlap, and has its bytes in common with both. */
static void one_that_leaves_hides_nobody(void **state)
{
    (void)state;
    static char bytes[100];
    wi_guard guard = {.count = 0};
    wi_guarded live = {.start = bytes, .end = bytes + 100, .state = WI_GUARDED_LIVE},
               leaving = {.start = bytes + 10, .end = bytes + 50, .state = WI_GUARDED_LEAVING},
               next = {.start = bytes + 30, .end = bytes + 40, .state = WI_GUARDED_LIVE};
    const wi_guarded *under;
    ok(wi_guard_set_reserve(&guard));
    wi_guard_set_insert(&guard, &live, &under);
    assert_null(under);
    wi_guard_set_insert(&guard, &leaving, &under);
    assert_ptr_equal(under, &live);
    wi_guard_set_insert(&guard, &next, &under);
    assert_ptr_equal(under, &live);
    wi_guard_set_remove(&guard, &next);
    wi_guard_set_remove(&guard, &live);
    wi_guard_set_insert(&guard, &next, &under); /* over one that leaves alone */
    assert_null(under);
    free(guard.set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_over_another_is_found),
        cmocka_unit_test(one_that_leaves_hides_nobody),
        cmocka_unit_test(a_pending_block_counts_until_it_is_released),
        cmocka_unit_test(a_resource_that_refuses_is_asked_again),
        cmocka_unit_test(a_block_that_was_not_taken_back_is_still_there),
        cmocka_unit_test(a_block_whose_zones_were_not_all_written_goes_back_behind_them),
        cmocka_unit_test(a_block_that_could_not_be_buried_is_not_looked_at),
        cmocka_unit_test(a_block_without_a_record_goes_back),
        cmocka_unit_test(what_another_thread_has_in_hand_is_waited_for),
        cmocka_unit_test(a_check_waits_for_what_another_thread_has_in_hand),
        cmocka_unit_test(a_device_that_is_gone_keeps_nothing_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
