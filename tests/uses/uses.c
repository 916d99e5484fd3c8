/* Declared uses: what they wait for, what a free waits for, and that nothing is lost between begin and end. On the device
 * that WEIR_TEST_DEVICE names, or the host. */
#include "core.h"

enum { BUDGET = 8 << 20, BLOCK = 1 << 20 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream a, b, c;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    const char *device = getenv("WEIR_TEST_DEVICE");
    f->runtime = make_runtime_on(device ? device : "host", BUDGET);
    f->client = open_client(f->runtime, "one", 0, 0);
    ok(weir_stream_acquire(f->runtime, &f->a));
    ok(weir_stream_acquire(f->runtime, &f->b));
    ok(weir_stream_acquire(f->runtime, &f->c));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ok(weir_stream_release(f->a));
    ok(weir_stream_release(f->b));
    ok(weir_stream_release(f->c));
    check_empty(f->runtime);
    ok(weir_client_destroy(f->client));
    ok(weir_runtime_destroy(f->runtime));
    free(f);
    return 0;
}

static weir_launch *begin(fixture *f, weir_stream stream, void *pointer, weir_access access)
{
    weir_use use = {{pointer, 0}, access};
    weir_launch *launch;
    ok(weir_launch_begin(f->runtime, stream, &use, 1, &launch));
    return launch;
}

static weir_status try_begin(fixture *f, weir_stream stream, void *pointer, weir_access access)
{
    weir_use use = {{pointer, 0}, access};
    weir_launch *launch = (weir_launch *)f;
    weir_status status = weir_launch_begin(f->runtime, stream, &use, 1, &launch);
    if (status == WEIR_OK)
        weir_launch_abort(launch);
    else
        assert_null(launch);
    return status;
}

/* Work of 1 MiB that is held up by a gate, declared as a use. */
static void gated_use(fixture *f, weir_stream stream, void *pointer, weir_access access, gate *g)
{
    weir_launch *launch = begin(f, stream, pointer, access);
    ok(weir_call(f->runtime, pass_gate, g, stream));
    ok(weir_launch_end(launch));
}

/* Time enough for what is not ordered to run too early. */
static void short_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*s %ld", &pages), 1);
    fclose(file);
    return pages * 4;
}

static uint64_t pending(fixture *f)
{
    return take_snapshot(f->runtime).device.pending;
}

/* A real CUDA runs the host functions of all streams on one thread: one closed gate holds them all up. */
static void skip_where_gates_block_one_another(void)
{
    if (getenv("WEIR_TEST_ONE_GATE"))
        skip();
}

static void a_free_waits_for_every_declared_use(void **state)
{
    fixture *f = *state;
    skip_where_gates_block_one_another();
    gate reads = GATE, writes = GATE;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV), *q = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    gated_use(f, f->b, p, WEIR_ACCESS_READ, &reads);
    gated_use(f, f->c, q, WEIR_ACCESS_WRITE, &writes);
    ok(weir_free(f->client, p, f->a)); /* nothing is queued on a */
    ok(weir_free(f->client, q, WEIR_STREAM_HOST));
    assert_int_equal(pending(f), 2 * BLOCK);
    weir_request request = {.struct_size = sizeof request, .bytes = BUDGET - BLOCK, .flags = WEIR_ALLOC_NO_WAIT};
    weir_block block;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_alloc_with(f->client, &request, &block));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_PENDING);
    open_gate(&reads);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(pending(f), BLOCK);
    open_gate(&writes);
    ok(weir_stream_synchronize(f->c));
    assert_int_equal(pending(f), 0);
    ok(weir_alloc_with(f->client, &request, &block));
    ok(weir_free_block(f->client, block, WEIR_STREAM_HOST));
}

static void an_allocation_waits_for_the_uses_of_a_freed_block(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    void *p = allocate(f->client, BUDGET, f->a, WEIR_CLASS_KV);
    gated_use(f, f->b, p, WEIR_ACCESS_READ, &g);
    ok(weir_free(f->client, p, f->a));
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    void *q = allocate(f->client, BUDGET, f->a, WEIR_CLASS_KV); /* option wait: one second */
    pthread_join(opener, NULL);
    ok(weir_free(f->client, q, WEIR_STREAM_HOST));
}

/* Adds what it is given to the end of a list of letters, in the order of execution. */
typedef struct letters {
    pthread_mutex_t lock;
    char text[32];
} letters;
typedef struct letter {
    letters *list;
    char which;
} letter;

static void write_letter(void *user)
{
    letter *l = user;
    pthread_mutex_lock(&l->list->lock);
    size_t length = strlen(l->list->text);
    l->list->text[length] = l->which;
    l->list->text[length + 1] = '\0';
    pthread_mutex_unlock(&l->list->lock);
}

/* Reads wait for the write before them, a write for the reads: W, then R and r in any order, then X. */
static void uses_are_ordered_by_what_they_do(void **state)
{
    fixture *f = *state;
    skip_where_gates_block_one_another();
    letters list = {.lock = PTHREAD_MUTEX_INITIALIZER};
    letter w = {&list, 'W'}, r1 = {&list, 'R'}, r2 = {&list, 'r'}, x = {&list, 'X'};
    gate first = GATE, between = GATE;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    weir_launch *launch = begin(f, f->a, p, WEIR_ACCESS_WRITE);
    ok(weir_call(f->runtime, pass_gate, &first, f->a));
    ok(weir_call(f->runtime, write_letter, &w, f->a));
    ok(weir_launch_end(launch));
    launch = begin(f, f->b, p, WEIR_ACCESS_READ);
    ok(weir_call(f->runtime, pass_gate, &between, f->b));
    ok(weir_call(f->runtime, write_letter, &r1, f->b));
    ok(weir_launch_end(launch));
    launch = begin(f, f->c, p, WEIR_ACCESS_READ);
    ok(weir_call(f->runtime, write_letter, &r2, f->c));
    ok(weir_launch_end(launch));
    launch = begin(f, f->a, p, WEIR_ACCESS_READ_WRITE);
    ok(weir_call(f->runtime, write_letter, &x, f->a));
    ok(weir_launch_end(launch));
    short_nap();
    pthread_mutex_lock(&list.lock);
    assert_string_equal(list.text, ""); /* everything waits for the first write */
    pthread_mutex_unlock(&list.lock);
    open_gate(&first);
    ok(weir_stream_synchronize(f->c));
    short_nap();
    pthread_mutex_lock(&list.lock);
    assert_string_equal(list.text, "Wr"); /* the second write waits for the read that is held up */
    pthread_mutex_unlock(&list.lock);
    open_gate(&between);
    ok(weir_stream_synchronize(f->a));
    assert_string_equal(list.text, "WrRX");
    ok(weir_free(f->client, p, f->a));
}

/* The same seen in values, with one gate: each reader finds what the write before it left, and nothing later. */
static void values_show_the_order(void **state)
{
    fixture *f = *state;
    enum { ROUNDS = 20 };
    unsigned char *seen = malloc(BLOCK);
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV),
         *q = allocate(f->client, ROUNDS * 4096, f->b, WEIR_CLASS_KV);
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    for (int i = 0; i < ROUNDS; i++) {
        weir_launch *launch = begin(f, i % 2 ? f->a : f->c, p, WEIR_ACCESS_WRITE);
        ok(weir_fill(f->runtime, p, (uint8_t)(i + 1), BLOCK, i % 2 ? f->a : f->c));
        ok(weir_launch_end(launch));
        launch = begin(f, f->b, p, WEIR_ACCESS_READ);
        ok(weir_copy(f->runtime, (char *)q + i * 4096, (char *)p + BLOCK - 4096, 4096, f->b));
        ok(weir_launch_end(launch));
        if (i == 1) { /* both streams are behind the gate by now */
            short_nap();
            open_gate(&g);
        }
    }
    ok(weir_stream_synchronize(f->b));
    ok(weir_copy(f->runtime, seen, q, ROUNDS * 4096, WEIR_STREAM_HOST));
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < 4096; k++)
            assert_int_equal(seen[i * 4096 + k], i + 1);
    ok(weir_free(f->client, p, f->b));
    ok(weir_free(f->client, q, f->b));
    free(seen);
}

static void zeroing_is_the_first_write(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    unsigned char *copy = malloc(BLOCK);
    memset(copy, 1, BLOCK);
    void *before = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV); /* what lies there is not zero already */
    ok(weir_fill(f->runtime, before, 7, BLOCK, f->a));
    ok(weir_stream_synchronize(f->a));
    ok(weir_free(f->client, before, f->a));
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .stream = f->a, .flags = WEIR_ALLOC_ZEROED};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    assert_ptr_equal(block.pointer, before);
    weir_launch *launch = begin(f, f->b, block.pointer, WEIR_ACCESS_READ);
    pthread_t opener; /* a copy to ordinary memory may wait for what is before it */
    assert_int_equal(pthread_create(&opener, NULL, open_gate_later, &g), 0);
    ok(weir_copy(f->runtime, copy, block.pointer, BLOCK, f->b));
    ok(weir_launch_end(launch));
    pthread_join(opener, NULL);
    ok(weir_stream_synchronize(f->b));
    for (size_t i = 0; i < BLOCK; i++)
        assert_int_equal(copy[i], 0);
    ok(weir_free_block(f->client, block, f->b));
    free(copy);
}

/* A zeroed block that is freed elsewhere is not another's before the zeros are written. */
static void a_free_elsewhere_waits_for_the_zeros(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    ok(weir_call(f->runtime, pass_gate, &g, f->a));
    weir_request request = {.struct_size = sizeof request, .bytes = BLOCK, .stream = f->a, .flags = WEIR_ALLOC_ZEROED};
    weir_block block;
    ok(weir_alloc_with(f->client, &request, &block));
    ok(weir_free_block(f->client, block, WEIR_STREAM_HOST));
    assert_int_equal(pending(f), BLOCK);
    open_gate(&g);
    ok(weir_stream_synchronize(f->a));
    assert_int_equal(pending(f), 0);
    /* On a stream that is gone they are written. */
    weir_stream gone;
    ok(weir_stream_acquire(f->runtime, &gone));
    request.stream = gone;
    ok(weir_alloc_with(f->client, &request, &block));
    ok(weir_stream_release(gone));
    ok(try_begin(f, f->b, block.pointer, WEIR_ACCESS_READ));
    ok(weir_free_block(f->client, block, f->b));
}

static void tickets_exclude_what_conflicts(void **state)
{
    fixture *f = *state;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    weir_launch *one = begin(f, f->a, p, WEIR_ACCESS_READ), *two = begin(f, f->b, p, WEIR_ACCESS_READ);
    fails(WEIR_ERR_BUSY, try_begin(f, f->c, p, WEIR_ACCESS_WRITE));
    detail_names("read");
    fails(WEIR_ERR_BUSY, weir_free(f->client, p, f->a));
    fails(WEIR_ERR_BUSY, weir_resize(f->client, p, BLOCK / 2, f->a));
    weir_launch_abort(one);
    fails(WEIR_ERR_BUSY, weir_free(f->client, p, f->a));
    ok(weir_launch_end(two));
    one = begin(f, f->c, p, WEIR_ACCESS_WRITE);
    fails(WEIR_ERR_BUSY, try_begin(f, f->a, p, WEIR_ACCESS_READ));
    detail_names("written");
    fails(WEIR_ERR_BUSY, weir_use_record(f->runtime, (weir_block){.pointer = p}, f->a));
    fails(WEIR_ERR_BUSY, weir_free(f->client, p, f->a));
    ok(weir_launch_end(one));
    ok(try_begin(f, f->a, p, WEIR_ACCESS_READ_WRITE));
    ok(weir_free(f->client, p, f->a));
}

/* However the launches of several streams overlap, each is remembered. */
static void open_reads_of_several_streams(void **state)
{
    fixture *f = *state;
    const weir_stream streams[] = {f->a, f->b, f->c};
    weir_launch *launches[3];
    gate g = GATE;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    for (int i = 0; i < 3; i++)
        launches[i] = begin(f, streams[i], p, WEIR_ACCESS_READ);
    ok(weir_call(f->runtime, pass_gate, &g, f->c));
    for (int i = 0; i < 3; i++)
        ok(weir_launch_end(launches[i]));
    ok(weir_free(f->client, p, f->a));
    assert_int_equal(pending(f), BLOCK);
    open_gate(&g);
    ok(weir_stream_synchronize(f->c));
    assert_int_equal(pending(f), 0);
}

static void the_last_of_several_uses_counts(void **state)
{
    fixture *f = *state;
    gate first = GATE, second = GATE;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    gated_use(f, f->b, p, WEIR_ACCESS_READ, &first);
    gated_use(f, f->b, p, WEIR_ACCESS_READ, &second);
    ok(weir_free(f->client, p, f->a));
    open_gate(&first);
    wait_for_gate(&second);
    assert_int_equal(pending(f), BLOCK);
    open_gate(&second);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(pending(f), 0);
}

static void a_launch_that_cannot_end_holds_its_blocks(void **state)
{
    fixture *f = *state;
    weir_stream gone;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    ok(weir_stream_acquire(f->runtime, &gone));
    weir_launch *launch = begin(f, gone, p, WEIR_ACCESS_WRITE);
    ok(weir_stream_release(gone));
    fails(WEIR_ERR_STREAM_MISUSE, weir_launch_end(launch));
    fails(WEIR_ERR_BUSY, weir_free(f->client, p, f->a));
    weir_launch_abort(launch);
    ok(weir_free(f->client, p, f->a));
}

static void all_blocks_or_none(void **state)
{
    fixture *f = *state;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV), *q = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    weir_launch *launch = NULL;
    weir_use uses[] = {{{p, 0}, WEIR_ACCESS_WRITE}, {{(char *)q + 512, 0}, WEIR_ACCESS_READ}};
    fails(WEIR_ERR_INTERIOR, weir_launch_begin(f->runtime, f->b, uses, 2, &launch));
    assert_null(launch);
    ok(weir_free(f->client, p, f->a)); /* it holds no ticket */
    p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    /* A block named twice is used in both ways, and once. */
    weir_use twice[] = {{{p, 0}, WEIR_ACCESS_READ}, {{q, 0}, WEIR_ACCESS_READ}, {{p, 0}, WEIR_ACCESS_WRITE}};
    ok(weir_launch_begin(f->runtime, f->b, twice, 3, &launch));
    fails(WEIR_ERR_BUSY, try_begin(f, f->c, p, WEIR_ACCESS_READ));
    ok(try_begin(f, f->c, q, WEIR_ACCESS_READ));
    ok(weir_launch_end(launch));
    ok(weir_launch_begin(f->runtime, f->b, NULL, 0, &launch));
    ok(weir_launch_end(launch));
    ok(weir_free(f->client, p, f->a));
    ok(weir_free(f->client, q, f->a));
}

static void bad_calls_change_nothing(void **state)
{
    fixture *f = *state;
    weir_launch *launch;
    int foreign = 0;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(p, &d));
    snapshot before = take_snapshot(f->runtime);
    weir_use stale = {{p, d.block.generation + 1}, WEIR_ACCESS_READ}, no_access = {{p, 0}, (weir_access)0};
    weir_use null = {{NULL, 0}, WEIR_ACCESS_READ}, good = {{p, 0}, WEIR_ACCESS_READ};
    weir_stream gone;
    ok(weir_stream_acquire(f->runtime, &gone));
    ok(weir_stream_release(gone));
    fails(WEIR_ERR_FOREIGN, try_begin(f, f->a, &foreign, WEIR_ACCESS_READ));
    fails(WEIR_ERR_STALE, weir_launch_begin(f->runtime, f->a, &stale, 1, &launch));
    fails(WEIR_ERR_STALE, weir_launch_begin(f->runtime, f->a, (weir_use[]){good, stale}, 2, &launch));
    weir_use named = {d.block, WEIR_ACCESS_READ}, older = {{p, d.block.generation - 1}, WEIR_ACCESS_READ};
    assert_true(older.block.generation > 0);
    fails(WEIR_ERR_STALE, weir_launch_begin(f->runtime, f->a, (weir_use[]){older, good, named}, 3, &launch));
    fails(WEIR_ERR_INVALID, weir_launch_begin(f->runtime, f->a, &no_access, 1, &launch));
    fails(WEIR_ERR_INVALID, weir_launch_begin(f->runtime, f->a, &null, 1, &launch));
    fails(WEIR_ERR_STREAM_MISUSE, weir_launch_begin(f->runtime, gone, &good, 1, &launch));
    fails(WEIR_ERR_INVALID, weir_launch_begin(NULL, f->a, &good, 1, &launch));
    fails(WEIR_ERR_INVALID, weir_launch_begin(f->runtime, f->a, &good, 1, NULL));
    fails(WEIR_ERR_INVALID, weir_launch_begin(f->runtime, f->a, NULL, 1, &launch));
    fails(WEIR_ERR_INVALID, weir_launch_end(NULL));
    fails(WEIR_ERR_FOREIGN, weir_use_record(f->runtime, (weir_block){.pointer = &foreign}, f->a));
    fails(WEIR_ERR_INVALID, weir_use_record(f->runtime, (weir_block){.pointer = NULL}, f->a));
    weir_launch_abort(NULL);
    unchanged(f->runtime, before);
    ok(weir_free(f->client, p, f->a));
    fails(WEIR_ERR_DOUBLE_FREE, try_begin(f, f->a, p, WEIR_ACCESS_READ));
    fails(WEIR_ERR_DOUBLE_FREE, weir_use_record(f->runtime, (weir_block){.pointer = p}, f->a));
}

static void the_simple_form_delays_the_free(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    ok(weir_call(f->runtime, pass_gate, &g, f->b));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = p}, f->b));
    ok(weir_free(f->client, p, f->a));
    assert_int_equal(pending(f), BLOCK);
    open_gate(&g);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(pending(f), 0);
}

static weir_block_details looked_at(const void *pointer)
{
    weir_block_details d = WEIR_INIT(weir_block_details);
    ok(weir_block_info(pointer, &d));
    return d;
}

/* The point on the stream that the block waits for; 0: none. */
static uint64_t wait_on(const weir_block_details *d, weir_stream stream)
{
    uint64_t point = 0;
    unsigned found = 0;
    for (uint32_t i = 0; i < d->waits; i++)
        if (d->wait[i].stream.id == stream.id) {
            point = d->wait[i].point;
            found++;
        }
    assert_true(found <= 1);
    return point;
}

/* Each stream that the device is not past is told, once, with the latest point there; and none that it is past. */
static void what_a_block_waits_for_is_told(void **state)
{
    fixture *f = *state;
    gate g = GATE, h = GATE;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    assert_int_equal(looked_at(p).waits, 0);
    ok(weir_launch_end(begin(f, f->c, p, WEIR_ACCESS_READ)));
    ok(weir_stream_synchronize(f->c));
    assert_int_equal(looked_at(p).waits, 0);
    gated_use(f, f->b, p, WEIR_ACCESS_WRITE, &g);
    weir_block_details d = looked_at(p);
    assert_int_equal(d.state, WEIR_BLOCK_LIVE);
    assert_int_equal(d.waits, 1);
    uint64_t first = wait_on(&d, f->b);
    assert_true(first > 0);
    ok(weir_fill(f->runtime, p, 1, BLOCK, f->b));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = p}, f->b));
    ok(weir_call(f->runtime, pass_gate, &h, f->c));
    ok(weir_use_record(f->runtime, (weir_block){.pointer = p}, f->c));
    d = looked_at(p);
    assert_int_equal(d.waits, 2);
    assert_true(wait_on(&d, f->b) > first);
    assert_true(wait_on(&d, f->c) > 0);
    ok(weir_free(f->client, p, f->b));
    d = looked_at((char *)p + 10);
    assert_int_equal(d.state, WEIR_BLOCK_PENDING);
    assert_int_equal(d.waits, 2);
    assert_true(wait_on(&d, f->b) > first && wait_on(&d, f->c) > 0);
    open_gate(&g);
    ok(weir_stream_synchronize(f->b));
    d = looked_at(p);
    assert_int_equal(d.waits, 1);
    assert_true(wait_on(&d, f->c) > 0);
    open_gate(&h);
    ok(weir_stream_synchronize(f->c));
    assert_int_equal(pending(f), 0);
    assert_int_equal(looked_at(p).state, WEIR_BLOCK_FREE);
    assert_int_equal(looked_at(p).waits, 0);
}

/* By name the use is that block's alone: what has taken its address since is neither delayed nor held to be used. */
static void a_use_by_name_is_no_later_blocks(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    weir_block_details d = WEIR_INIT(weir_block_details);
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    ok(weir_block_info(p, &d));
    weir_block old = d.block;
    ok(weir_free(f->client, p, f->a));
    assert_ptr_equal(allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV), p);
    ok(weir_block_info(p, &d));
    snapshot before = take_snapshot(f->runtime);
    fails(WEIR_ERR_STALE, weir_use_record(f->runtime, old, f->b));
    fails(WEIR_ERR_STALE, weir_use_record(f->runtime, (weir_block){p, d.block.generation + 1}, f->b));
    fails(WEIR_ERR_INVALID, weir_use_record(f->runtime, (weir_block){NULL, 0}, f->b));
    fails(WEIR_ERR_INVALID, weir_use_record(NULL, d.block, f->b));
    unchanged(f->runtime, before);
    ok(weir_call(f->runtime, pass_gate, &g, f->b));
    ok(weir_use_record(f->runtime, d.block, f->b));
    ok(weir_free(f->client, p, f->a));
    assert_int_equal(pending(f), BLOCK);
    fails(WEIR_ERR_DOUBLE_FREE, weir_use_record(f->runtime, d.block, f->b));
    open_gate(&g);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(pending(f), 0);
}

/* A tail that is given back is as much in use as the block was. */
static void a_tail_waits_for_the_uses(void **state)
{
    fixture *f = *state;
    gate g = GATE;
    void *p = allocate(f->client, 2 * BLOCK, f->a, WEIR_CLASS_KV);
    gated_use(f, f->b, p, WEIR_ACCESS_READ, &g);
    ok(weir_resize(f->client, p, BLOCK, f->a));
    assert_int_equal(pending(f), BLOCK);
    ok(weir_free(f->client, p, f->a));
    assert_int_equal(pending(f), 2 * BLOCK);
    open_gate(&g);
    ok(weir_stream_synchronize(f->b));
    assert_int_equal(pending(f), 0);
}

static void a_million_reads_cost_no_memory(void **state)
{
    fixture *f = *state;
    const int rounds = getenv("WEIR_SANITIZED") ? 20000 : 1000000;
    void *p = allocate(f->client, BLOCK, f->a, WEIR_CLASS_WEIGHTS);
    long before = resident_kib();
    for (int i = 0; i < rounds; i++)
        ok(weir_launch_end(begin(f, i % 2 ? f->b : f->c, p, WEIR_ACCESS_READ)));
    assert_true(getenv("WEIR_SANITIZED") || resident_kib() - before < 1024);
    ok(weir_free(f->client, p, f->a));
}

/* Launches of several threads on shared blocks; conflicts answer busy, and at the end nothing is held or lost. */
typedef struct worker {
    fixture *f;
    weir_stream stream;
    void **blocks;
    unsigned seed;
    int done, busy;
} worker;

static void *work(void *user)
{
    worker *w = user;
    for (int i = 0; i < 3000; i++) {
        unsigned x = (unsigned)rand_r(&w->seed);
        weir_use uses[] = {{{w->blocks[x % 4], 0}, x & 16 ? WEIR_ACCESS_READ : WEIR_ACCESS_WRITE},
                           {{w->blocks[(x >> 8) % 4], 0}, WEIR_ACCESS_READ}};
        weir_launch *launch;
        weir_status status = weir_launch_begin(w->f->runtime, w->stream, uses, 2, &launch);
        if (status == WEIR_OK && x & 32)
            status = weir_launch_end(launch);
        else if (status == WEIR_OK)
            weir_launch_abort(launch);
        if (status == WEIR_OK)
            w->done++;
        else if (status == WEIR_ERR_BUSY)
            w->busy++;
    }
    return NULL;
}

static void launches_of_several_threads(void **state)
{
    fixture *f = *state;
    void *blocks[4];
    for (int i = 0; i < 4; i++)
        blocks[i] = allocate(f->client, BLOCK, f->a, WEIR_CLASS_KV);
    worker workers[3] = {{f, f->a, blocks, 1, 0, 0}, {f, f->b, blocks, 2, 0, 0}, {f, f->c, blocks, 3, 0, 0}};
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].done + workers[i].busy, 3000);
    }
    for (int i = 0; i < 4; i++)
        ok(weir_free(f->client, blocks[i], f->a));
}

/* Nobody asks for what is pending meanwhile, as a look at statistics would. */
static void what_has_passed_comes_before_new_memory(void **state)
{
    fixture *f = *state;
    weir_stats before = WEIR_INIT(weir_stats), after = WEIR_INIT(weir_stats);
    void *block = allocate(f->client, 2 * BLOCK, f->a, WEIR_CLASS_KV);
    ok(weir_snapshot(f->runtime, &before, NULL, 0, NULL));
    for (int i = 0; i < 20; i++) {
        gate g = GATE;
        gated_use(f, f->b, block, WEIR_ACCESS_READ, &g);
        ok(weir_free(f->client, block, f->a));
        open_gate(&g);
        ok(weir_stream_synchronize(f->b));
        ok(weir_alloc(f->client, 2 * BLOCK, i % 2 ? f->a : f->c, WEIR_CLASS_KV, &block));
    }
    ok(weir_snapshot(f->runtime, &after, NULL, 0, NULL));
    assert_int_equal(after.held, before.held);
    assert_int_equal(after.created, before.created);
    assert_int_equal(after.ladder[WEIR_RUNG_COMPLETED] - before.ladder[WEIR_RUNG_COMPLETED], 20);
    ok(weir_free(f->client, block, f->a));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_free_waits_for_every_declared_use),
        CASE(what_has_passed_comes_before_new_memory),
        CASE(an_allocation_waits_for_the_uses_of_a_freed_block),
        CASE(uses_are_ordered_by_what_they_do),
        CASE(values_show_the_order),
        CASE(zeroing_is_the_first_write),
        CASE(a_free_elsewhere_waits_for_the_zeros),
        CASE(tickets_exclude_what_conflicts),
        CASE(open_reads_of_several_streams),
        CASE(the_last_of_several_uses_counts),
        CASE(a_launch_that_cannot_end_holds_its_blocks),
        CASE(all_blocks_or_none),
        CASE(bad_calls_change_nothing),
        CASE(the_simple_form_delays_the_free),
        CASE(a_use_by_name_is_no_later_blocks),
        CASE(what_a_block_waits_for_is_told),
        CASE(a_tail_waits_for_the_uses),
        CASE(a_million_reads_cost_no_memory),
        CASE(launches_of_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
