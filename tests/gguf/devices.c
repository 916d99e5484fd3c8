/* devices.c, cores.c: where a model lies; llama.cpp's library for CUDA, when it is opened and whose its memory is. */
#include "gguf/devices_rig.h"

#include <sys/stat.h>
#include <unistd.h>

#include <weir/cores.h>

/* ---- where a model lies --------------------------------------------------------------------------------------------- */

static void what_is_on_no_device_is_of_the_hosts_place_or_the_first_devices(void **state)
{
    (void)state;
    wg_devices of = PLACES(ON_HOST);
    assert_ptr_equal(of.host, clients[ON_HOST]);
    assert_int_equal(of.kind, WEIR_KIND_DEVICE);
    assert_int_equal(of.count, 0);
    of = PLACES(ON_1, ON_0);
    assert_int_equal(of.count, 2);
    assert_ptr_equal(of.clients[0], clients[ON_1]);
    assert_ptr_equal(of.clients[1], clients[ON_0]);
    assert_ptr_equal(of.host, clients[ON_1]);
    assert_int_equal(of.kind, WEIR_KIND_HOST);
    for (int first = 0; first < 2; first++) {
        of = first ? PLACES(ON_HOST, ON_0) : PLACES(ON_0, ON_HOST);
        assert_int_equal(of.count, 1);
        assert_ptr_equal(of.clients[0], clients[ON_0]);
        assert_ptr_equal(of.host, clients[ON_HOST]);
        assert_int_equal(of.kind, WEIR_KIND_DEVICE);
    }
    /* Of two places on the host, in whichever runtimes, the first. */
    snprintf(rig.names[ON_1], sizeof rig.names[ON_1], "host");
    for (int first = 0; first < 2; first++) {
        int host = first ? ON_1 : ON_HOST, other = first ? ON_HOST : ON_1;
        of = PLACES(host, other);
        assert_int_equal(of.count, 0);
        assert_ptr_equal(of.host, clients[host]);
        assert_int_equal(of.kind, WEIR_KIND_DEVICE);
        of = PLACES(ON_0, host, other);
        assert_int_equal(of.count, 1);
        assert_ptr_equal(of.host, clients[host]);
        assert_int_equal(of.kind, WEIR_KIND_DEVICE);
    }
    snprintf(rig.names[ON_1], sizeof rig.names[ON_1], "cuda:1");
    int all[WG_DEVICES];
    for (int i = 0; i < WG_DEVICES; i++)
        all[i] = i;
    assert_int_equal(places_of(all, WG_DEVICES).count, WG_DEVICES);
}

static void refused(const weir_engine_load *load, bool planning, weir_status status, const char *words)
{
    wg_devices read;
    assert_int_equal(wg_devices_read(load, planning, &read), status);
    if (status != WEIR_OK)
        says(words);
}

static void places_that_are_none_are_refused(void **state)
{
    (void)state;
    weir_engine_place list[WG_DEVICES + 1] = {{.client = clients[ON_0]}};
    weir_engine_load load = {.struct_size = sizeof load, .path = "m.gguf", .places = list, .place_count = 1};
    refused(&load, false, WEIR_OK, "");
    load.path = NULL;
    refused(&load, true, WEIR_ERR_INVALID, "needs a path and a place");
    load.path = "m.gguf";
    load.places = NULL;
    refused(&load, true, WEIR_ERR_INVALID, "needs a path and a place");
    load.place_count = 0;
    refused(&load, false, WEIR_ERR_INVALID, "needs a path and a place");
    refused(&load, true, WEIR_OK, "");
    load.places = list;
    load.place_count = 2;
    refused(&load, false, WEIR_ERR_INVALID, "m.gguf: place 1 has no client");
    list[1].client = clients[AGAIN_ON_0]; /* another runtime of the device is another place */
    refused(&load, false, WEIR_OK, "");
    list[1].client = clients[ON_0];
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the place 'cuda:0' is named twice");
    snprintf(rig.names[ON_1], sizeof rig.names[ON_1], "sim:1");
    list[1].client = clients[ON_1];
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the place 'sim:1' is none for it");
    snprintf(rig.names[ON_1], sizeof rig.names[ON_1], "cuda:1");
    for (int i = 0; i < WG_DEVICES + 1; i++)
        list[i].client = clients[i];
    load.place_count = WG_DEVICES + 1;
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the place 'cuda:16' is one too many");
}

static void a_provider_goes_with_its_places(void **state)
{
    (void)state;
    weir_engine_place list[2] = {{.client = clients[ON_0]}, {.client = clients[ON_HOST]}};
    weir_engine_load load = {.struct_size = sizeof load, .path = "m.gguf", .places = list, .place_count = 1};
    load.provider = "CUDA";
    refused(&load, false, WEIR_OK, "");
    load.provider = "cpu";
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the provider cpu needs a place on the host alone");
    load.provider = "vulkan";
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "has the providers cuda and cpu, not vulkan");
    load.struct_size = offsetof(weir_engine_load, provider); /* an older caller's */
    refused(&load, false, WEIR_OK, "");
    load.struct_size = sizeof load;
    load.places = &list[1];
    load.provider = "cuda";
    refused(&load, false, WEIR_ERR_UNSUPPORTED, "the provider cuda needs a place on cuda");
    load.provider = "CPU";
    refused(&load, false, WEIR_OK, "");
    load.place_count = 0;
    refused(&load, true, WEIR_OK, "");
    load.provider = NULL;
    refused(&load, true, WEIR_OK, "");
    load.provider = "cuda";
    refused(&load, true, WEIR_OK, "");
    load.provider = "vulkan";
    refused(&load, true, WEIR_ERR_UNSUPPORTED, "not vulkan");
}

/* ---- what is computed with ------------------------------------------------------------------------------------------ */

/* A model that is whole on devices computes with no cores; the last of its layers stands behind those that the file has. */
static void models_whole_on_devices_lease_no_cores(void **state)
{
    enum { LAYERS = 6 };
    static const struct {
        int64_t layers, threads;
        bool on_host, leases;
    } all[] = {{-1, 0, false, false}, {LAYERS + 1, 0, false, false}, {LAYERS, 0, false, true},
               {0, 3, false, true},   {-1, 0, true, true},           {LAYERS + 1, 2, true, true}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        weir_engine_model model = {.devices = all[i].on_host ? PLACES(ON_HOST) : PLACES(ON_0, ON_1)};
        weir_cores_stats line = {.struct_size = sizeof line};
        model.facts.layers = LAYERS;
        model.load.gpu_layers = all[i].layers;
        model.load.threads = all[i].threads;
        assert_int_equal(wg_cores_open(&model), WEIR_OK);
        assert_int_equal(model.cores != NULL, all[i].leases);
        assert_int_equal(weir_cores_look(0, &line), all[i].leases ? WEIR_OK : WEIR_ERR_NOT_FOUND);
        if (all[i].leases) {
            assert_string_equal(line.name, "model");
            assert_int_equal(line.least, all[i].threads ? all[i].threads : 1);
            assert_int_equal(line.most, all[i].threads);
        }
        wg_cores_close(&model);
        assert_null(model.cores);
        assert_int_equal(weir_cores_look(0, &line), WEIR_ERR_NOT_FOUND);
    }
}

/* ---- the library: tests one behind the other, as it stays open once it is ------------------------------------------- */

static void what_is_missing_is_told(void **state)
{
    (void)state;
    char path[600], missing[256] = "";
    wg_devices of = PLACES(ON_0);
    assert_int_equal(wg_devices_find("", path, sizeof path), WEIR_ERR_NOT_FOUND);
    says("no libggml-cuda.so in /nowhere/engines/llama-cuda/current or in its lib/");
    assert_int_equal(wg_devices_open(&library, "/nowhere", &of), WEIR_ERR_NOT_FOUND);
    says("no libggml-cuda.so in /nowhere or in its lib/");
    rig.mark = WEIR_ERR_UNSUPPORTED;
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_ERR_UNSUPPORTED);
    says("of another commit");
    rig.mark = WEIR_OK;
    assert_int_equal(wg_devices_find(rig.home, path, sizeof path), WEIR_OK);
    assert_string_equal(path, rig.file);
    assert_int_equal(wg_devices_needs(missing, sizeof missing), WEIR_OK);
    assert_string_equal(missing, "");
    rig.lacks = "libcublas.so.13";
    assert_int_equal(wg_devices_needs(missing, sizeof missing), WEIR_ERR_NOT_FOUND);
    assert_non_null(strstr(missing, "needs libcublas.so.13"));
    assert_int_equal(rig.opens, 0);
    assert_false(of.held);
}

static void nothing_is_opened_for_the_host(void **state)
{
    (void)state;
    wg_devices of = PLACES(ON_HOST);
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_OK);
    assert_false(of.held);
    wg_devices_settle(&of);
    wg_devices_close(&of);
    assert_int_equal(rig.opens + its.begun + its.settled, 0);
}

static void what_cannot_be_had_leaves_nothing(void **state)
{
    (void)state;
    wg_devices of = PLACES(ON_1, ON_0);
    rig.cannot_be_opened = true;
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_ERR_ENGINE);
    says("llama.cpp's library for CUDA cannot be opened");
    nothing_is_left(&of);
    rig.cannot_be_opened = false;
    its.cannot_begin = true;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_ERR_BUSY);
        says("no more redirects");
        nothing_is_left(&of);
    }
    its.cannot_begin = false;
    rig.device_count = 1;
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_ERR_ENGINE);
    says("finds 1 devices of CUDA, and cuda:1 is not among them: no driver");
    nothing_is_left(&of);
    rig.device_count = 2;
    rig.throws = "CUDA has no error for this";
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_ERR_ENGINE);
    says("llama.cpp cannot begin with CUDA: CUDA has no error for this");
    nothing_is_left(&of);
    rig.throws = NULL;
    assert_int_equal(rig.opens, 2); /* once it is open it stays */
    wg_devices_close(&of);
    nothing_is_left(&of);
}

/* Each device has an account for what no model asked for, as long as there are models at all. */
static void it_lasts_as_long_as_there_are_models(void **state)
{
    (void)state;
    wg_devices a = PLACES(ON_0), b = PLACES(ON_1, ON_0), c = PLACES(AGAIN_ON_0), d = PLACES(ON_1);
    for (int round = 0; round < 2; round++) {
        its = (struct redirects){0};
        assert_int_equal(wg_devices_open(&library, rig.home, &a), WEIR_OK);
        assert_true(a.held);
        assert_ptr_equal(wg_devices_redirect(), &its);
        assert_ptr_equal(a.list[0], &devices[0]);
        assert_int_equal(wg_devices_open(&library, "", &b), WEIR_OK); /* the one that is open */
        assert_ptr_equal(b.list[0], &devices[1]);
        assert_ptr_equal(b.list[1], &devices[0]);
        assert_null(b.list[2]);
        assert_int_equal(its.begun, 1);
        assert_int_equal(its.added, 1);
        assert_int_equal(clients_on(ON_0), 2);
        assert_int_equal(clients_on(ON_1), 2);
        assert_int_equal(wg_devices_open(&library, rig.home, &c), WEIR_ERR_BUSY);
        says("has models on cuda:0 in another runtime of this process");
        assert_false(c.held);
        assert_int_equal(clients_on(AGAIN_ON_0), 1);
        wg_devices_close(&c);
        assert_int_equal(wg_devices_open(&library, rig.home, &d), WEIR_OK);
        assert_int_equal(its.added, 1);
        wg_devices_settle(&b);
        assert_int_equal(its.settled, 1);
        wg_devices_close(&a);
        wg_devices_close(&a); /* it is no more */
        wg_devices_close(&b);
        assert_int_equal(its.ended, 0);
        assert_ptr_equal(wg_devices_redirect(), &its);
        wg_devices_close(&d);
        assert_int_equal(its.ended, 1);
        nothing_is_left(&d);
    }
    assert_int_equal(wg_devices_open(&library, rig.home, &c), WEIR_OK);
    assert_int_equal(clients_on(AGAIN_ON_0), 2);
    wg_devices_close(&c);
    assert_int_equal(clients_on(AGAIN_ON_0), 1);
}

static void there_is_one_library(void **state)
{
    (void)state;
    char other[128], path[160];
    wg_devices of = PLACES(ON_0);
    snprintf(other, sizeof other, "%s/lib", rig.home);
    snprintf(path, sizeof path, "%s/libggml-cuda.so", other);
    assert_int_equal(mkdir(other, 0700), 0);
    fclose(fopen(path, "we"));
    assert_int_equal(wg_devices_open(&library, other, &of), WEIR_ERR_CONFLICT);
    says("names ");
    says(path);
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_ERR_CONFLICT); /* in its lib/, which comes first */
    unlink(path);
    rmdir(other);
    assert_false(of.held);
    assert_null(wg_devices_redirect());
}

/* What llama.cpp keeps without a model is told, and the next model finds it. */
static void what_stays_is_told(void **state)
{
    (void)state;
    its = (struct redirects){.does_not_settle = true, .cannot_end = true};
    wg_devices of = PLACES(ON_0);
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_OK);
    wg_devices_settle(&of);
    assert_int_equal(rig.said, 1);
    assert_non_null(strstr(rig.said_last, "a stream's capture does not end"));
    wg_devices_close(&of);
    assert_int_equal(rig.said, 2);
    assert_non_null(strstr(rig.said_last, "keeps memory of CUDA without a model: memory of it is live"));
    assert_ptr_equal(wg_devices_redirect(), &its);
    assert_int_equal(clients_on(ON_0), 2);
    rig.device_count = 0; /* nor does a load that fails end it, and its own reason is what is told */
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_ERR_ENGINE);
    says("finds 0 devices");
    assert_int_equal(rig.said, 3);
    rig.device_count = 2;
    its.does_not_settle = its.cannot_end = false;
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_OK);
    assert_int_equal(its.begun, 1);
    wg_devices_settle(&of);
    wg_devices_close(&of);
    rig.said -= 3;
    nothing_is_left(&of);
}

/* A model's reserves go with it, each; what scratch a device has is that device's. */
static void reserves_and_scratch_are_each_devices(void **state)
{
    (void)state;
    uint64_t has[2] = {1, 1};
    void *scratch, *kv;
    wg_devices of = PLACES(ON_0, ON_1);
    assert_int_equal(wg_devices_open(&library, rig.home, &of), WEIR_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(weir_reservation_create(clients[i], 1 << 20, 0, &of.reserves[i]), WEIR_OK);
    assert_int_equal(weir_alloc(clients[1], 4096, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &scratch), WEIR_OK);
    assert_int_equal(weir_alloc(clients[0], 4096, WEIR_STREAM_HOST, WEIR_CLASS_KV, &kv), WEIR_OK);
    wg_devices_scratch(&of, has);
    assert_int_equal(has[0], 0);
    assert_int_equal(has[1], 4096);
    assert_int_equal(weir_free(clients[1], scratch, WEIR_STREAM_HOST), WEIR_OK);
    assert_int_equal(weir_free(clients[0], kv, WEIR_STREAM_HOST), WEIR_OK);
    wg_devices_close(&of);
    for (int i = 0; i < 2; i++) {
        assert_null(of.reserves[i]);
        assert_int_equal(account_of(clients[i]).promised, 0);
    }
    nothing_is_left(&of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_on_no_device_is_of_the_hosts_place_or_the_first_devices),
        cmocka_unit_test(places_that_are_none_are_refused),
        cmocka_unit_test(a_provider_goes_with_its_places),
        cmocka_unit_test(models_whole_on_devices_lease_no_cores),
        cmocka_unit_test(what_is_missing_is_told),
        cmocka_unit_test(nothing_is_opened_for_the_host),
        cmocka_unit_test(what_cannot_be_had_leaves_nothing),
        cmocka_unit_test(it_lasts_as_long_as_there_are_models),
        cmocka_unit_test(there_is_one_library),
        cmocka_unit_test(what_stays_is_told),
        cmocka_unit_test(reserves_and_scratch_are_each_devices),
    };
    return cmocka_run_group_tests(tests, devices_begin, devices_finish);
}
