/* buffers.c, cache.c: what a device's buffers are for, and an elastic cache there. */
#include "gguf/devices_rig.h"

static weir_engine_model model;

static void open_model(void)
{
    model = (weir_engine_model){.library = &library, .devices = PLACES(ON_0, ON_1)};
    its = (struct redirects){0};
    assert_int_equal(wg_devices_open(&library, rig.home, &model.devices), WEIR_OK);
}

static void close_model(void)
{
    wg_devices_close(&model.devices);
    nothing_is_left(&model.devices);
}

/* ggml asks for the size of a tensor, and then for the buffer. */
static ggml_backend_buffer_t ask(ggml_backend_buffer_type_t type, const char *tensor, size_t size)
{
    struct ggml_tensor its_tensor = {.op = GGML_OP_NONE};
    bool of_host = type == &cpu || type == &devices[0].of_host;
    if (tensor) {
        snprintf(its_tensor.name, sizeof its_tensor.name, "%s", tensor);
        assert_int_equal(type->iface.get_alloc_size(type, &its_tensor), of_host ? 100 : 128);
    }
    return type->iface.alloc_buffer(type, size);
}

static void is_for(weir_class memory_class, const char *tag)
{
    assert_int_equal(rig.during.memory_class, memory_class);
    assert_string_equal(rig.during.tag, tag);
    assert_false(rig.during.overruns);
    assert_int_equal(rig.during.client_count, 2);
    assert_ptr_equal(rig.during.clients[0], clients[0]);
    assert_ptr_equal(rig.during.clients[1], clients[1]);
}

static void between_buffers_it_is_scratch(const wg_phase *phase)
{
    assert_int_equal(phase->scope.memory_class, phase->stage == WG_LOADING ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH);
    assert_string_equal(phase->scope.tag, phase->stage == WG_LOADING ? "upload" : "scratch");
    assert_true(phase->scope.overruns);
    assert_null(phase->scope.source);
}

static void a_buffer_is_for_what_it_was_asked_for(void **state)
{
    struct ggml_backend_buffer buffer = {.size = 0};
    ggml_backend_buffer_type_t type = &devices[1].type;
    (void)state;
    open_model();
    rig.made = &buffer;
    rig.allocated = 0;
    assert_ptr_equal(ask(type, "cache_k_l0", 5000), &buffer); /* of nobody's */
    assert_int_equal(rig.during.client_count, 99);
    for (enum wg_stage stage = WG_LOADING; stage <= WG_RUNNING; stage++) {
        wg_phase phase;
        wg_phase_begin(&phase, stage, &model);
        assert_ptr_equal(wg_phase_model(), &model);
        between_buffers_it_is_scratch(&phase);
        assert_ptr_equal(phase.scope.reservations, stage == WG_RUNNING ? model.devices.reserves : NULL);
        bool loads = stage == WG_LOADING;
        assert_ptr_equal(ask(type, "cache_k_l0", 5000), &buffer);
        is_for(loads ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_KV, loads ? "weights" : "KV cache");
        assert_ptr_equal(ask(type, "ffn", 5000), &buffer);
        is_for(loads ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_SCRATCH, loads ? "weights" : "compute buffer");
        assert_ptr_equal(ask(&devices[0].of_host, NULL, 5000), &buffer); /* what was asked for before is over */
        is_for(loads ? WEIR_CLASS_WEIGHTS : WEIR_CLASS_ACTIVATIONS, loads ? "weights" : "output buffer");
        between_buffers_it_is_scratch(&phase);
        wg_phase_end(&phase);
        assert_int_equal(phase.refusal, WEIR_OK);
        assert_null(rig.entered);
        assert_null(wg_phase_model());
    }
    assert_int_equal(rig.allocated, 10);
    close_model();
}

static void a_plan_adds_up_the_outputs(void **state)
{
    wg_phase phase;
    (void)state;
    open_model();
    wg_phase_begin(&phase, WG_PLANNING, &model);
    (void)ask(&devices[0].type, "ffn", 5000);
    (void)ask(&devices[0].type, NULL, 1000);
    (void)ask(&devices[1].type, NULL, 1);
    wg_phase_end(&phase);
    assert_int_equal(phase.planned_output, 1024 + 256);
    close_model();
}

/* Of the type that was asked for, in the account of the host's place until ggml frees it. */
static void a_buffer_of_the_cpus_is_a_block(void **state)
{
    wg_phase phase;
    (void)state;
    open_model();
    model.devices.host = clients[ON_HOST];
    model.devices.kind = WEIR_KIND_DEVICE;
    wg_phase_begin(&phase, WG_CONTEXT, &model);
    ggml_backend_buffer_t buffer = ask(&cpu, "cache_k_l0", 5000);
    assert_ptr_equal(buffer, &from_host);
    assert_ptr_equal(buffer->buft, &cpu);
    assert_int_equal(buffer->size, 5000);
    assert_true(account_of(clients[ON_HOST]).live_class[WEIR_CLASS_KV] >= 5000);
    wg_phase_end(&phase);
    buffer->iface.free_buffer(buffer);
    assert_int_equal(account_of(clients[ON_HOST]).live, 0);
    assert_int_equal(account_of(clients[ON_0]).live, 0);
    close_model();
}

static void what_is_refused_is_the_phases(void **state)
{
    wg_phase phase;
    (void)state;
    open_model();
    rig.refuses = true;
    wg_phase_begin(&phase, WG_CONTEXT, &model);
    assert_null(ask(&devices[0].type, "ffn", 5000));
    assert_int_equal(phase.refusal, WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(phase.detail, "the device has no more");
    snprintf(phase.detail, sizeof phase.detail, "the first"); /* which explains the others */
    assert_null(ask(&devices[0].type, "ffn", 5000));
    wg_phase_end(&phase);
    assert_string_equal(phase.detail, "the first");
    /* Scratch of no buffer, and an older refusal than that of a buffer that nobody refused. */
    wg_phase_begin(&phase, WG_RUNNING, &model);
    phase.scope.refused = 1;
    phase.scope.status = WEIR_ERR_DRIVER;
    snprintf(phase.scope.refusal, sizeof phase.scope.refusal, "of scratch");
    rig.refuses = false;
    rig.made = NULL;
    assert_null(ask(&devices[0].type, "ffn", 5000));
    assert_int_equal(phase.refusal, WEIR_OK);
    wg_phase_end(&phase);
    assert_int_equal(phase.refusal, WEIR_ERR_DRIVER);
    assert_string_equal(phase.detail, "of scratch");
    close_model();
}

static void an_elastic_cache_has_a_place_of_its_own(void **state)
{
    struct ggml_backend_buffer buffer = {.size = 0};
    wg_phase phase;
    (void)state;
    open_model();
    rig.elastic = true;
    rig.made = &buffer;
    wg_phase_begin(&phase, WG_CONTEXT, &model);
    for (size_t i = 0; i < 2; i++) {
        assert_ptr_equal(ask(&devices[i].type, "cache_v_l1", 5000), &buffer);
        assert_ptr_equal(rig.cache_of, clients[i]);
        assert_ptr_equal(rig.during.source, &rig.its_source);
        assert_ptr_equal(rig.cache_made, &buffer);
        between_buffers_it_is_scratch(&phase);
    }
    rig.made = NULL;
    rig.cache_made = &buffer;
    assert_null(ask(&devices[0].type, "cache_v_l1", 5000)); /* that it was not made is told, too */
    assert_null(rig.cache_made);
    assert_int_equal(rig.caches_made, 3);
    rig.made = &buffer;
    assert_ptr_equal(ask(&devices[0].type, "ffn", 5000), &buffer);
    assert_null(rig.during.source);
    assert_ptr_equal(ask(&devices[0].of_host, "cache_v_l1", 5000), &buffer); /* the host's is no device's */
    assert_null(rig.during.source);
    rig.on_device = WEIR_ERR_UNSUPPORTED; /* memory cannot be mapped there: the cache is whole */
    assert_ptr_equal(ask(&devices[0].type, "cache_v_l1", 5000), &buffer);
    assert_null(rig.during.source);
    is_for(WEIR_CLASS_KV, "KV cache");
    assert_int_equal(rig.caches_made, 3);
    assert_int_equal(phase.refusal, WEIR_OK);
    int before = rig.allocated;
    rig.on_device = WEIR_ERR_OUT_OF_MEMORY;
    assert_null(ask(&devices[0].type, "cache_v_l1", 5000));
    assert_int_equal(rig.allocated, before);
    between_buffers_it_is_scratch(&phase);
    wg_phase_end(&phase);
    assert_int_equal(phase.refusal, WEIR_ERR_OUT_OF_MEMORY);
    assert_string_equal(phase.detail, "no pages for the cache");
    rig.on_device = WEIR_OK;
    rig.elastic = false;
    close_model();
}

/* A buffer that is freed has its pages no more; those of one that was not made go with the model. */
static void pages_on_a_device_are_given_back(void **state)
{
    enum { BYTES = 1 << 20 };
    const wi_cuda_source *source;
    (void)state;
    open_model();
    snprintf(model.load.cache_memory, sizeof model.load.cache_memory, "promised");
    for (int made_of_it = 1; made_of_it >= 0; made_of_it--) {
        struct ggml_backend_buffer buffer = {.size = 0};
        void *first = NULL, *second = NULL;
        assert_int_equal(__real_wg_cache_on_device(&model, clients[ON_1], BYTES, &source), WEIR_OK);
        assert_true(account_of(clients[ON_1]).promised >= BYTES);
        assert_int_equal(source->take(source->user, BYTES + 1, &first), WEIR_ERR_ENGINE);
        says("a KV cache of 1048576 bytes asks for 1048577");
        assert_null(first);
        assert_int_equal(source->take(source->user, BYTES, &second), WEIR_OK);
        assert_non_null(second);
        __real_wg_cache_made(source, made_of_it ? &buffer : NULL);
        assert_int_equal(buffer.iface.init_tensor != NULL, made_of_it);
        source->give_back(source->user, second);
        assert_int_equal(account_of(clients[ON_1]).promised > 0, !made_of_it);
    }
    wg_cache_drop(&model);
    assert_null(model.cache);
    assert_int_equal(account_of(clients[ON_1]).promised, 0);
    close_model();
}

static void run(uint64_t granted)
{
    wg_phase phase;
    wg_phase_begin(&phase, WG_RUNNING, &model);
    phase.scope.overrun = granted;
    wg_phase_end(&phase);
}

/* In no ledger, it is in the accounts of those that have it, until it has gone back. */
static void what_was_granted_past_the_budget_is_noted_while_it_is_live(void **state)
{
    (void)state;
    open_model();
    run(0);
    assert_int_equal(its.asked, 0);
    its.overrun[ON_1] = 3000;
    run(3000);
    assert_int_equal(account_of(clients[ON_0]).outside, 0);
    assert_int_equal(account_of(clients[ON_1]).outside, 3000);
    assert_non_null(strstr(account_of(clients[ON_1]).outside_method, "past the budget"));
    its.overrun[ON_0] = 500;
    its.overrun[ON_1] = 1000;
    run(0);
    assert_int_equal(account_of(clients[ON_0]).outside, 500);
    assert_int_equal(account_of(clients[ON_1]).outside, 1000);
    its.overrun[ON_1] = 0; /* the last of several has none, and the first has */
    run(0);
    its.overrun[ON_0] = 0;
    run(0);
    assert_int_equal(account_of(clients[ON_0]).outside, 0);
    assert_int_equal(account_of(clients[ON_1]).outside, 0);
    int asked = its.asked;
    run(0);
    assert_int_equal(its.asked, asked); /* there is nothing more to look for */
    assert_int_equal(rig.said, 0);
    close_model();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_buffer_is_for_what_it_was_asked_for),
        cmocka_unit_test(a_plan_adds_up_the_outputs),
        cmocka_unit_test(a_buffer_of_the_cpus_is_a_block),
        cmocka_unit_test(what_is_refused_is_the_phases),
        cmocka_unit_test(an_elastic_cache_has_a_place_of_its_own),
        cmocka_unit_test(pages_on_a_device_are_given_back),
        cmocka_unit_test(what_was_granted_past_the_budget_is_noted_while_it_is_live),
    };
    return cmocka_run_group_tests(tests, devices_begin, devices_finish);
}
