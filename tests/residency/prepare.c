/* Memory for copies that is made beside the work: ahead of a suspend and within one, taken once, in no one's way, given back by a
 * thread of its own; with faults, shortages and ends in the middle of it. */
#include "core/faulty.h"
#include "residency/residency.h"

#include "runtime/prepare.h"
#include "runtime/residence.h"
#include "runtime/runtime.h"

#include <weir/engine.h>
#include <weir/model.h>
#include <weir/pressure.h>

#include "test_places.h"

#include <stdatomic.h>
#include <sys/wait.h>

enum { BLOCKS = 6, EACH = 2 * GRANULE, SLAB = 4 * GRANULE };

/* The driver: page-locked memory is made, and given back, at gates ---------------------------------------------------- */

static wi_driver prepare_driver;
static gate at_gate, *made_at, *given_at;
static atomic_int gated; /* so many pieces pass before one waits at `made_at` */
static atomic_uint made, made_here, given, given_here, refused;
static atomic_int refuse_from; /* pieces from this one on are not made; -1: none */
static pthread_t here;

static weir_status prepare_allocate(wi_device *device, weir_kind kind, uint64_t bytes, void **address)
{
    if (kind == WEIR_KIND_PINNED) {
        unsigned number = atomic_fetch_add(&made, 1);
        atomic_fetch_add(&made_here, pthread_equal(pthread_self(), here) != 0);
        if (made_at && atomic_fetch_sub(&gated, 1) == 0)
            pass_gate(made_at);
        if (atomic_load(&refuse_from) >= 0 && number >= (unsigned)atomic_load(&refuse_from)) {
            atomic_fetch_add(&refused, 1);
            return weir_fail(WEIR_ERR_DRIVER, "the test's driver locks no more pages");
        }
    }
    return faulty_driver.allocate(device, kind, bytes, address);
}

static weir_status prepare_release(wi_device *device, weir_kind kind, void *address, uint64_t bytes)
{
    if (kind == WEIR_KIND_PINNED) {
        atomic_fetch_add(&given, 1);
        atomic_fetch_add(&given_here, pthread_equal(pthread_self(), here) != 0);
        if (given_at)
            pass_gate(given_at);
    }
    return faulty_driver.release(device, kind, address, bytes);
}

/* The machine's memory, which the linker leads through here. */
static uint64_t machine_free;
bool __wrap_wi_cgroup_memory(const char *root, uint64_t *available, uint64_t *total);
bool __wrap_wi_cgroup_memory(const char *root, uint64_t *available, uint64_t *total)
{
    (void)root;
    *available = machine_free;
    *total = 64 * MIB;
    return true;
}

/* A client -------------------------------------------------------------------------------------------------------- */

typedef struct place {
    weir_runtime *host, *runtime;
    weir_client *model;
    unsigned char *blocks[BLOCKS];
} place;

static int begin(void **state)
{
    place *p = calloc(1, sizeof *p);
    weir_runtime_options options = {.struct_size = sizeof options, .budget = 32 * GRANULE};
    faults_reset(-1);
    prepare_driver = faulty_driver;
    prepare_driver.allocate = prepare_allocate;
    prepare_driver.release = prepare_release;
    at_gate = (gate)GATE;
    made_at = given_at = NULL;
    here = pthread_self();
    machine_free = 48 * MIB;
    atomic_store(&refuse_from, -1);
    atomic_store(&wi_slab_most, SLAB);
    atomic_store(&wi_aside_most, 64 * MIB);
    p->host = make_runtime(16 * MIB);
    options.host = p->host;
    ok(wi_runtime_create_over(&prepare_driver, 0, &options, &p->runtime));
    p->model = open_client(p->runtime, "model", 0, 0);
    for (int i = 0; i < BLOCKS; i++) {
        p->blocks[i] =
            allocate(p->model, EACH, WEIR_STREAM_HOST, i < BLOCKS - 1 ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH);
        write_block(p->runtime, p->blocks[i], EACH, (uint64_t)i + 1);
    }
    made = made_here = given = given_here = refused = 0;
    *state = p;
    return 0;
}

static void contents_are_right(const place *p)
{
    for (int i = 0; i < BLOCKS; i++)
        if (p->blocks[i])
            block_holds(p->runtime, p->blocks[i], EACH, (uint64_t)i + 1);
}

static void close_model(place *p)
{
    for (int i = 0; i < BLOCKS; i++)
        if (p->blocks[i])
            ok(weir_free(p->model, p->blocks[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(p->model));
    p->model = NULL;
}

static int end(void **state)
{
    place *p = *state;
    open_gate(&at_gate);
    if (p->model)
        close_model(p);
    ok(weir_runtime_destroy(p->runtime));
    check_empty(p->host);
    ok(weir_runtime_destroy(p->host));
    assert_true(faults_nothing_left());
    free(p);
    return 0;
}

static weir_preparation told(weir_client *client)
{
    weir_preparation now = WEIR_INIT(weir_preparation);
    ok(weir_client_preparation(client, &now));
    return now;
}

static uint64_t locked(const place *p)
{
    return take_snapshot(p->host).device.live;
}

static const weir_prepare_options and_wait = {.struct_size = sizeof and_wait, .wait = true};

static void *open_soon(void *user)
{
    wait_for_gate(user);
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    open_gate(user);
    return NULL;
}

/* Ahead ------------------------------------------------------------------------------------------------------------ */

static void a_suspend_takes_what_is_there(void **state)
{
    place *p = *state;
    ok(weir_client_prepare(p->model, &and_wait));
    assert_int_equal(told(p->model).ready, BLOCKS * EACH); /* to the byte */
    assert_int_equal(told(p->model).coming, 0);
    assert_int_equal(locked(p), BLOCKS * EACH);
    assert_int_equal(made, BLOCKS * EACH / SLAB);
    assert_int_equal(made_here, 0);
    contents_are_right(p);
    ok(weir_client_prepare(p->model, &and_wait)); /* there is nothing more to be made */
    assert_int_equal(made, BLOCKS * EACH / SLAB);
    weir_residency receipt = suspend(p->model);
    assert_int_equal(receipt.copied, BLOCKS * EACH);
    assert_int_equal(receipt.stored, BLOCKS * EACH);
    assert_int_equal(made, BLOCKS * EACH / SLAB);
    assert_int_equal(told(p->model).ready, 0);
    fails(WEIR_ERR_BUSY, weir_client_prepare(p->model, NULL));
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    contents_are_right(p);
    ok(weir_client_prepare(p->model, &and_wait)); /* the copies have their memory */
    assert_int_equal(made, BLOCKS * EACH / SLAB);
}

/* A suspend that drops, and classes that are not prepared for. */
static void what_is_not_needed_goes_back(void **state)
{
    place *p = *state;
    weir_prepare_options o = and_wait;
    ok(weir_client_prepare(p->model, &o));
    (void)suspend_with(p->model, (weir_suspend_options){.drop = WEIR_CLASS_BIT(WEIR_CLASS_WEIGHTS)});
    assert_int_equal(told(p->model).ready, 0);
    (void)wi_free_aside_wait(p->model);
    assert_int_equal(locked(p), SLAB); /* of one block, in what was made first */
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    assert_int_equal(weir_client_forget_copies(p->model), SLAB);
    assert_int_equal(locked(p), 0);
    o.drop = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH);
    ok(weir_client_prepare(p->model, &o));
    assert_int_equal(locked(p), (BLOCKS - 1) * EACH);
    assert_int_equal(weir_client_forget_copies(p->model), (BLOCKS - 1) * EACH);
    assert_int_equal(locked(p), 0);
    for (int i = 0; i < BLOCKS - 1; i++)
        write_block(p->runtime, p->blocks[i], EACH, (uint64_t)i + 1);
}

/* The suspend comes while the second slab is being made: it waits for that, and makes none. */
static void a_suspend_goes_on_with_the_rest(void **state)
{
    place *p = *state;
    pthread_t opener;
    atomic_store(&gated, 1);
    made_at = &at_gate;
    ok(weir_client_prepare(p->model, NULL));
    wait_for_gate(&at_gate);
    assert_int_equal(told(p->model).ready, SLAB);
    assert_int_equal(told(p->model).coming, BLOCKS * EACH - SLAB);
    assert_int_equal(pthread_create(&opener, NULL, open_soon, &at_gate), 0);
    weir_residency receipt = suspend(p->model);
    pthread_join(opener, NULL);
    assert_int_equal(receipt.stored, BLOCKS * EACH);
    assert_int_equal(made, BLOCKS * EACH / SLAB);
    assert_int_equal(made_here, 0);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    contents_are_right(p);
}

/* Without preparation other threads make the slabs, the next one while the former is filled; one slab is the caller's work. */
static void a_suspend_has_help(void **state)
{
    place *p = *state;
    weir_residency receipt = suspend(p->model);
    assert_int_equal(receipt.stored, BLOCKS * EACH);
    assert_int_equal(made, BLOCKS * EACH / SLAB);
    assert_int_equal(made_here, 0);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    contents_are_right(p);
    assert_int_equal(weir_client_forget_copies(p->model), BLOCKS * EACH);
    atomic_store(&wi_slab_most, 64 * MIB);
    (void)suspend(p->model);
    assert_int_equal(made_here, 1);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    contents_are_right(p);
}

/* Blocks that came or went since do no harm. */
static void what_changed_since_is_made_then(void **state)
{
    place *p = *state;
    ok(weir_client_prepare(p->model, &and_wait));
    ok(weir_free(p->model, p->blocks[0], WEIR_STREAM_HOST));
    p->blocks[0] = NULL;
    void *late = allocate(p->model, 5 * GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV);
    write_block(p->runtime, late, 5 * GRANULE, 50);
    (void)suspend(p->model);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    contents_are_right(p);
    block_holds(p->runtime, late, 5 * GRANULE, 50);
    ok(weir_free(p->model, late, WEIR_STREAM_HOST));
}

/* Short ------------------------------------------------------------------------------------------------------------ */

static void count_call(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    atomic_fetch_add((atomic_uint *)user, 1);
}

/* The host's budget ends it: told, nobody is asked for memory, and what was made serves. */
static void the_budget_is_short(void **state)
{
    place *p = *state;
    atomic_uint calls = 0;
    uint64_t id;
    ok(weir_pressure_register(p->host, 0, count_call, &calls, &id));
    ok(weir_runtime_set_budget(p->host, SLAB + GRANULE));
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_prepare(p->model, &and_wait));
    weir_preparation now = told(p->model);
    assert_int_equal(now.ready, SLAB);
    assert_int_equal(now.coming, 0);
    assert_int_equal(now.status, WEIR_ERR_OUT_OF_MEMORY);
    assert_non_null(strstr(now.why, "host"));
    assert_int_equal(calls, 0);
    contents_are_right(p);
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_suspend(p->model, NULL, NULL));
    contents_are_right(p);
    ok(weir_pressure_unregister(p->host, id));
    ok(weir_runtime_set_budget(p->host, 16 * MIB));
    (void)suspend(p->model);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    contents_are_right(p);
}

/* The machine, or the process' group, has less than a 32nd of its memory beyond what would be taken. */
static void the_machine_is_short(void **state)
{
    place *p = *state;
    machine_free = 2 * MIB + SLAB - 1;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_client_prepare(p->model, &and_wait));
    assert_int_equal(told(p->model).ready, 0);
    assert_int_equal(made, 0);
    (void)suspend(p->model); /* which must have its memory */
    assert_int_equal(made_here, BLOCKS * EACH / SLAB);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    (void)weir_client_forget_copies(p->model);
    machine_free = 2 * MIB + SLAB;
    ok(weir_client_prepare(p->model, &and_wait));
    assert_int_equal(told(p->model).ready, BLOCKS * EACH);
    assert_int_equal(told(p->model).status, WEIR_OK);
}

/* Who needs the host's memory has what was only prepared. */
static void others_come_first(void **state)
{
    place *p = *state;
    weir_client *other = open_client(p->runtime, "other", 0, 0);
    weir_request request = {.struct_size = sizeof request, .bytes = 16 * MIB, .kind = WEIR_KIND_PINNED};
    weir_block block;
    ok(weir_client_prepare(p->model, &and_wait));
    ok(weir_alloc_with(other, &request, &block));
    assert_int_equal(told(p->model).ready, 0);
    ok(weir_free_block(other, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(other));
    (void)suspend(p->model);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    contents_are_right(p);
}

/* The driver refuses the first, the second, the third slab: what was made stays, and a suspend that needs more fails cleanly. */
static void the_driver_refuses(void **state)
{
    place *p = *state;
    for (int from = 0; from < BLOCKS * EACH / SLAB; from++) {
        made = 0;
        atomic_store(&refuse_from, from);
        fails(WEIR_ERR_DRIVER, weir_client_prepare(p->model, &and_wait));
        assert_int_equal(told(p->model).ready, (uint64_t)from * SLAB);
        fails(WEIR_ERR_DRIVER, weir_client_suspend(p->model, NULL, NULL));
        assert_int_equal(residency(p->model).state, WEIR_RESIDENT);
        assert_int_equal(locked(p), 0); /* nothing of the suspend that failed */
        contents_are_right(p);
        atomic_store(&refuse_from, -1);
        (void)suspend(p->model);
        ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
        contents_are_right(p);
        (void)weir_client_forget_copies(p->model);
    }
}

/* A fault at each call of the driver: of those that the look and the makers make, and of a suspend with makers. */
static void a_fault_at_every_call(void **state)
{
    place *p = *state;
    for (long at = 0;; at++) {
        fault.calls = 0;
        fault.fail_at = at;
        weir_status status = weir_client_prepare(p->model, &and_wait);
        if (status == WEIR_OK)
            status = weir_client_suspend(p->model, NULL, NULL);
        bool met = atomic_load(&fault.calls) > at;
        fault.fail_at = -1;
        if (!met)
            break;
        if (residency(p->model).state == WEIR_RESIDENT && status != WEIR_OK)
            contents_are_right(p);
        if (residency(p->model).state == WEIR_RESIDENT)
            (void)suspend(p->model);
        ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
        contents_are_right(p);
        (void)weir_client_forget_copies(p->model);
        assert_int_equal(locked(p), 0);
    }
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
}

/* Ends ------------------------------------------------------------------------------------------------------------- */

/* The slab that is being made meanwhile is given back, too. */
static void it_is_given_up_in_the_middle(void **state)
{
    place *p = *state;
    atomic_store(&gated, 1);
    made_at = &at_gate;
    ok(weir_client_prepare(p->model, NULL));
    wait_for_gate(&at_gate);
    assert_int_equal(weir_client_forget_copies(p->model), SLAB); /* without a wait for the other slab */
    assert_int_equal(told(p->model).ready, 0);
    open_gate(&at_gate);
    while (told(p->model).coming > 0)
        sched_yield();
    assert_int_equal(told(p->model).ready, 0);
    wi_makers_end(p->model);
    (void)wi_free_aside_wait(p->model);
    assert_int_equal(made, 2);
    assert_int_equal(locked(p), 0);
}

static void a_close_waits_for_it(void **state)
{
    place *p = *state;
    pthread_t opener;
    atomic_store(&gated, 0);
    made_at = &at_gate;
    ok(weir_client_prepare(p->model, NULL));
    wait_for_gate(&at_gate);
    assert_int_equal(pthread_create(&opener, NULL, open_soon, &at_gate), 0);
    close_model(p); /* and `end` looks whether anything is left */
    pthread_join(opener, NULL);
    assert_int_equal(made, 1);
    check_empty(p->host);
}

static void a_child_is_refused(void **state)
{
    place *p = *state;
    int status;
    atomic_store(&gated, 0);
    made_at = &at_gate;
    ok(weir_client_prepare(p->model, NULL));
    wait_for_gate(&at_gate);
    pid_t child = fork();
    if (child == 0) {
        weir_preparation now = WEIR_INIT(weir_preparation);
        _exit(weir_client_prepare(p->model, NULL) == WEIR_ERR_FORKED &&
                      weir_client_preparation(p->model, &now) == WEIR_ERR_FORKED
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    open_gate(&at_gate);
}

static void wrong_calls(void **state)
{
    place *p = *state;
    weir_prepare_options o = {.struct_size = sizeof o, .stay = WEIR_CLASS_BIT(WEIR_CLASS_COUNT)};
    fails(WEIR_ERR_INVALID, weir_client_prepare(NULL, NULL));
    fails(WEIR_ERR_INVALID, weir_client_prepare(p->model, &o));
    fails(WEIR_ERR_INVALID, weir_client_preparation(p->model, NULL));
    assert_int_equal(told(p->model).ready, 0);
    weir_runtime *direct;
    weir_runtime_options options = {
        .struct_size = sizeof options, .budget = MIB, .resource = "budget(direct)", .host = p->host};
    ok(wi_runtime_create_over(&prepare_driver, 0, &options, &direct));
    weir_client *client = open_client(direct, "direct", 0, 0);
    fails(WEIR_ERR_UNSUPPORTED, weir_client_prepare(client, NULL));
    ok(weir_client_destroy(client));
    ok(weir_runtime_destroy(direct));
    client = open_client(p->host, "host", 0, 0); /* there copies are in files */
    ok(weir_client_prepare(client, &and_wait));
    assert_int_equal(told(client).ready, 0);
    ok(weir_client_destroy(client));
}

/* Given back aside ------------------------------------------------------------------------------------------------- */

/* A suspend to a file drops the copies in memory, and does not wait until the driver has that back. */
static void move_to_a_file(place *p)
{
    (void)suspend(p->model);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    given = given_here = 0;
    given_at = &at_gate;
    (void)suspend_with(p->model, (weir_suspend_options){.folder = "/tmp"});
    wait_for_gate(&at_gate);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    contents_are_right(p);
    assert_true(locked(p) > 8 * MIB); /* a stage, and more that the ledger still has */
}

static void older_copies_are_freed_aside(void **state)
{
    place *p = *state;
    move_to_a_file(p);
    open_gate(&at_gate);
    (void)wi_free_aside_wait(p->model);
    assert_int_equal(given, BLOCKS * EACH / SLAB);
    assert_int_equal(given_here, 0);
    assert_true(locked(p) <= 8 * MIB); /* a stage */
}

/* More than may wait is freed by the caller. */
static void the_rest_is_the_callers(void **state)
{
    place *p = *state;
    pthread_t opener;
    ok(weir_client_prepare(p->model, &and_wait));
    atomic_store(&wi_aside_most, SLAB);
    given_at = &at_gate;
    assert_int_equal(pthread_create(&opener, NULL, open_soon, &at_gate), 0);
    (void)suspend_with(p->model, (weir_suspend_options){.drop = ~0u >> (32 - WEIR_CLASS_COUNT)});
    pthread_join(opener, NULL);
    (void)wi_free_aside_wait(p->model);
    assert_int_equal(given, BLOCKS * EACH / SLAB);
    assert_true(given_here >= 1);
    given_at = NULL;
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    for (int i = 0; i < BLOCKS; i++)
        write_block(p->runtime, p->blocks[i], EACH, (uint64_t)i + 1);
}

/* A ledger that is short waits for what is being freed, before it refuses. */
static void what_is_being_freed_serves(void **state)
{
    place *p = *state;
    pthread_t opener;
    move_to_a_file(p);
    ok(weir_runtime_set_budget(p->host, 8 * MIB + BLOCKS * EACH + GRANULE));
    assert_int_equal(pthread_create(&opener, NULL, open_soon, &at_gate), 0);
    (void)suspend(p->model);
    pthread_join(opener, NULL);
    ok(weir_client_resume(p->model, WEIR_STREAM_HOST));
    contents_are_right(p);
}

/* A model ---------------------------------------------------------------------------------------------------------- */

struct weir_engine_model {
    weir_client *client;
    void *weights, *scratch;
};

static weir_status engine_probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static weir_status engine_load(const weir_engine_load *load, weir_engine_model **out)
{
    weir_engine_model *model = calloc(1, sizeof *model);
    model->client = load->places[0].client;
    model->weights = allocate(model->client, EACH, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS);
    model->scratch = allocate(model->client, EACH, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH);
    *out = model;
    return WEIR_OK;
}

static void engine_unload(weir_engine_model *model)
{
    ok(weir_free(model->client, model->weights, WEIR_STREAM_HOST));
    ok(weir_free(model->client, model->scratch, WEIR_STREAM_HOST));
    free(model);
}

static weir_status engine_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    (void)model, (void)inference;
    *out = (weir_outputs){.struct_size = sizeof *out};
    return WEIR_OK;
}

static void engine_release(weir_engine_model *model, weir_outputs *outputs)
{
    (void)model, (void)outputs;
}

static weir_status engine_cancel(weir_engine_model *model, uint64_t id)
{
    (void)model, (void)id;
    return WEIR_OK;
}

static weir_status engine_info(weir_engine_model *model, weir_model_details *out)
{
    (void)model;
    *out = (weir_model_details){.struct_size = out->struct_size, .engine = "made-up", .provider = "cpu"};
    return WEIR_OK;
}

static weir_status engine_suspend(weir_engine_model *model, weir_engine_leaving *out)
{
    (void)model;
    out->drop = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH);
    return WEIR_OK;
}

#define TABLE                                                                                                          \
    .abi = WEIR_ENGINE_ABI, .struct_size = sizeof(weir_engine), .summary = "of a test", .suffixes = "",                \
    .probe = engine_probe, .load = engine_load, .infer = engine_infer, .release_outputs = engine_release,              \
    .cancel = engine_cancel, .info = engine_info, .unload = engine_unload
static const weir_engine leaves = {.name = "leaves", .suspend = engine_suspend, TABLE};
static const weir_engine stays = {.name = "stays", TABLE};

/* How much is prepared for it. */
static uint64_t loaded_with(place *p, const char *engine, bool prepare)
{
    weir_model *model;
    weir_model_options o = {.struct_size = sizeof o, .engine = engine, .runtime = p->runtime, .prepare = prepare};
    ok(weir_model_create(data_folder, &o, &model));
    weir_client *client = weir_model_client(model);
    while (told(client).coming > 0)
        sched_yield();
    uint64_t ready = told(client).ready;
    made = 0;
    if (strcmp(engine, leaves.name) == 0)
        ok(weir_model_suspend(model, NULL, NULL));
    assert_int_equal(made, strcmp(engine, leaves.name) == 0 && ready == 0);
    ok(weir_model_destroy(model));
    return ready;
}

static void a_model_is_loaded(void **state)
{
    ok(weir_engine_register(&leaves));
    ok(weir_engine_register(&stays));
    assert_int_equal(loaded_with(*state, "leaves", true), EACH); /* but scratch */
    assert_int_equal(loaded_with(*state, "leaves", false), 0);
    assert_int_equal(loaded_with(*state, "stays", true), 0);
}

/* Threads ---------------------------------------------------------------------------------------------------------- */

typedef struct crowd {
    place *p;
    atomic_bool over;
} crowd;

static void *prepare_always(void *user)
{
    crowd *c = user;
    for (unsigned i = 0; !atomic_load(&c->over); i++) {
        weir_prepare_options o = {.struct_size = sizeof o, .wait = i % 3 == 0};
        weir_status status = weir_client_prepare(c->p->model, &o);
        if (status != WEIR_ERR_BUSY)
            ok(status);
        (void)told(c->p->model);
        if (i % 5 == 0)
            (void)weir_client_forget_copies(c->p->model);
    }
    return NULL;
}

static void *allocate_always(void *user)
{
    crowd *c = user;
    while (!atomic_load(&c->over)) {
        void *block;
        if (weir_alloc(c->p->model, GRANULE, WEIR_STREAM_HOST, WEIR_CLASS_KV, &block) == WEIR_OK)
            ok(weir_free(c->p->model, block, WEIR_STREAM_HOST));
    }
    return NULL;
}

static void with_many_threads(void **state)
{
    enum { ROUNDS = 60 };
    crowd c = {.p = *state};
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, prepare_always, &c), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, allocate_always, &c), 0);
    for (int round = 0; round < ROUNDS; round++) {
        weir_status status = weir_client_suspend(c.p->model, NULL, NULL);
        if (status != WEIR_ERR_BUSY)
            ok(status);
        ok(weir_client_resume(c.p->model, WEIR_STREAM_HOST));
        contents_are_right(c.p);
    }
    atomic_store(&c.over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_suspend_takes_what_is_there),
        TEST(what_is_not_needed_goes_back),
        TEST(a_suspend_goes_on_with_the_rest),
        TEST(a_suspend_has_help),
        TEST(what_changed_since_is_made_then),
        TEST(the_budget_is_short),
        TEST(the_machine_is_short),
        TEST(others_come_first),
        TEST(the_driver_refuses),
        TEST(a_fault_at_every_call),
        TEST(it_is_given_up_in_the_middle),
        TEST(a_close_waits_for_it),
        TEST(a_child_is_refused),
        TEST(wrong_calls),
        TEST(older_copies_are_freed_aside),
        TEST(the_rest_is_the_callers),
        TEST(what_is_being_freed_serves),
        TEST(a_model_is_loaded),
        TEST(with_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
