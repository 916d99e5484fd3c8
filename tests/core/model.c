/* Engines and models: an engine that is linked in and does what the test tells it to, and plug-ins, good and bad. */
#include "info.h"
#include "core.h"

#include "copy_file.h"
#include "test_places.h"
#include <weir/engine.h>
#include <weir/model.h>

#include <dlfcn.h>
#include <sys/stat.h>

/* The engine ------------------------------------------------------------------------------------------------------- */

static struct {
    weir_status load, infer;
    bool keep_block; /* the engine keeps a block after a failed load, or an unload */
    int loads, unloads, releases, cancels;
    uint64_t cancelled;
    gate *inside; /* infer waits here */
    weir_engine_load request;
    weir_engine_place place;
    void *block;
} told;

static weir_status probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static weir_status load(const weir_engine_load *request, weir_engine_model **out)
{
    told.loads++;
    told.request = *request;
    told.place = request->places[0];
    void *block = NULL;
    weir_client *client = request->places[0].client;
    if (weir_alloc(client, 1000, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block) != WEIR_OK)
        return WEIR_ERR_OUT_OF_MEMORY;
    if (request->progress)
        request->progress(1, request->progress_user);
    if (told.load != WEIR_OK) {
        if (!told.keep_block && weir_free(client, block, WEIR_STREAM_HOST) != WEIR_OK)
            return WEIR_ERR_ENGINE;
        return weir_fail(told.load, "the file is odd");
    }
    told.block = block;
    *out = (weir_engine_model *)block;
    return WEIR_OK;
}

static weir_status infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    assert_ptr_equal(model, told.block);
    assert_non_null(inference);
    if (told.inside)
        pass_gate(told.inside);
    out->count = 0;
    return told.infer == WEIR_OK ? WEIR_OK : weir_fail(told.infer, "the engine says no");
}

static weir_status infer_stream(weir_engine_model *model, const weir_inference *inference, weir_piece_fn piece,
                                void *user, weir_outputs *out)
{
    weir_piece p = {.struct_size = sizeof p, .text = "x", .bytes = 1};
    while (piece(&p, user))
        p.index++;
    return infer(model, inference, out);
}

static void release_outputs(weir_engine_model *model, weir_outputs *outputs)
{
    assert_ptr_equal(model, told.block);
    assert_non_null(outputs);
    told.releases++;
}

static weir_status cancel(weir_engine_model *model, uint64_t id)
{
    assert_ptr_equal(model, told.block);
    told.cancelled = id;
    return id == 5 ? WEIR_OK : weir_fail(WEIR_ERR_NOT_FOUND, "no run %llu", (unsigned long long)id);
}

static weir_status fine(weir_engine_model *model)
{
    assert_ptr_equal(model, told.block);
    return WEIR_OK;
}

static weir_status metrics(weir_engine_model *model, weir_engine_metrics *out)
{
    out->runs = 7;
    return fine(model);
}

static weir_status info(weir_engine_model *model, weir_model_details *out)
{
    out->engine = "full";
    return fine(model);
}

static void unload(weir_engine_model *model)
{
    told.unloads++;
    if (!told.keep_block && weir_free(told.place.client, model, WEIR_STREAM_HOST) != WEIR_OK)
        told.unloads += 100;
}

static const weir_engine full = {.abi = WEIR_ENGINE_ABI,
                                 .struct_size = sizeof(weir_engine),
                                 .name = "full",
                                 .summary = "has everything",
                                 .suffixes = ".full .fll",
                                 .probe = probe,
                                 .load = load,
                                 .infer = infer,
                                 .infer_stream = infer_stream,
                                 .release_outputs = release_outputs,
                                 .cancel = cancel,
                                 .warm_up = fine,
                                 .health = fine,
                                 .metrics = metrics,
                                 .info = info,
                                 .unload = unload};
static weir_engine bare;

/* Files and fixtures ----------------------------------------------------------------------------------------------- */

static char directory[] = "/tmp/weir-core-XXXXXX", path[64], odd_path[64];
static weir_runtime *runtime;

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/model.full", directory);
    snprintf(odd_path, sizeof odd_path, "%s/model.odd", directory);
    write_file(path, "x");
    write_file(odd_path, "GGUFxxxx");
    runtime = make_runtime(4 * MIB);
    bare = full;
    bare.name = "bare";
    bare.suffixes = ".bare";
    bare.infer_stream = NULL;
    bare.cancel = NULL;
    bare.warm_up = bare.health = NULL;
    bare.metrics = NULL;
    ok(weir_engine_register(&full));
    ok(weir_engine_register(&bare));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    unlink(odd_path);
    rmdir(directory);
    ok(weir_runtime_destroy(runtime));
    return 0;
}

static int forget(void **state)
{
    (void)state;
    memset(&told, 0, sizeof told);
    return 0;
}

static weir_model_options with(const char *engine)
{
    return (weir_model_options){.struct_size = sizeof(weir_model_options), .engine = engine, .runtime = runtime};
}

static weir_model *load_model(const char *engine)
{
    weir_model_options options = with(engine);
    weir_model *model;
    ok(weir_model_create(path, &options, &model));
    return model;
}

static weir_client_stats first_client(void)
{
    snapshot s = take_snapshot(runtime);
    assert_int_equal(s.count, 1);
    return s.clients[0];
}

/* Models ----------------------------------------------------------------------------------------------------------- */

static double furthest;

static void note_progress(double fraction, void *user)
{
    assert_ptr_equal(user, &furthest);
    furthest = fraction;
}

static void a_model_from_load_to_unload(void **state)
{
    (void)state;
    static const weir_setting settings[] = {{"threads", "4"}};
    weir_model_options options = with(NULL);
    options.name = "bert";
    options.guaranteed = MIB;
    options.maximum = 2 * MIB;
    options.settings = settings;
    options.setting_count = 1;
    options.progress = note_progress;
    options.progress_user = &furthest;
    weir_model *model;
    ok(weir_model_create(path, &options, &model));
    assert_true(furthest == 1);
    assert_string_equal(told.request.path, path);
    assert_int_equal(told.request.place_count, 1);
    assert_ptr_equal(told.place.runtime, runtime);
    assert_ptr_equal(told.request.settings, settings);
    assert_int_equal(told.request.setting_count, 1);
    assert_string_equal(engine_name(model), "full");
    assert_ptr_equal(weir_model_client(model), told.place.client);
    weir_client_stats line = first_client();
    assert_string_equal(line.name, "bert");
    assert_int_equal(line.guaranteed, MIB);
    assert_int_equal(line.maximum, 2 * MIB);
    assert_int_equal(line.live_class[WEIR_CLASS_WEIGHTS], 1024);
    weir_model_details about = WEIR_INIT(weir_model_details);
    ok(weir_model_info(model, &about));
    assert_string_equal(about.engine, "full");
    ok(weir_model_warm_up(model));
    ok(weir_model_health(model));
    weir_engine_metrics numbers = WEIR_INIT(weir_engine_metrics);
    ok(weir_model_metrics(model, &numbers));
    assert_int_equal(numbers.runs, 7);
    fails(WEIR_ERR_NOT_FOUND, weir_model_cancel(model, 5)); /* nothing runs, which the engine need not be asked */
    assert_int_equal(told.cancelled, 0);
    ok(weir_model_destroy(model));
    assert_int_equal(told.unloads, 1);
    check_empty(runtime);
    assert_int_equal(take_snapshot(runtime).count, 0);
}

static void loads_that_fail_leave_nothing(void **state)
{
    (void)state;
    snapshot before = take_snapshot(runtime);
    weir_model *model = (weir_model *)state;
    weir_model_options options = with(NULL);
    static const weir_status statuses[] = {WEIR_ERR_CORRUPT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_ENGINE, WEIR_ERR_INVALID};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        told.load = statuses[i];
        fails(statuses[i], weir_model_create(path, &options, &model));
        assert_null(model);
        assert_string_equal(weir_detail(), "the file is odd");
        assert_int_equal(take_snapshot(runtime).count, 0);
    }
    assert_int_equal(told.unloads, 0);
    options.maximum = 256;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_model_create(path, &options, &model));
    assert_int_equal(last_refusal().cause, WEIR_CAUSE_MAXIMUM);
    assert_string_equal(last_refusal().client, "model.full"); /* called by its file */
    options.maximum = 0;
    options.guaranteed = 64 * MIB;
    fails(WEIR_ERR_OUT_OF_MEMORY, weir_model_create(path, &options, &model));
    options = with("nonesuch");
    fails(WEIR_ERR_NOT_FOUND, weir_model_create(path, &options, &model));
    detail_names("nonesuch");
    options = with("Not A Name");
    fails(WEIR_ERR_INVALID, weir_model_create(path, &options, &model));
    options = with(NULL);
    fails(WEIR_ERR_NOT_FOUND, weir_model_create("/there/is/none.full", &options, &model));
    detail_names("/there/is/none.full");
    options.runtime = NULL;
    options.device = "host:7";
    fails(WEIR_ERR_NOT_FOUND, weir_model_create(path, &options, &model));
    fails(WEIR_ERR_INVALID, weir_model_create(NULL, NULL, &model));
    fails(WEIR_ERR_INVALID, weir_model_create(path, NULL, NULL));
    snapshot after = take_snapshot(runtime);
    assert_int_equal(after.count, before.count);
    assert_int_equal(after.device.guaranteed, 0);
}

static char logged[512];

static void listen(weir_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == WEIR_LOG_ERROR)
        snprintf(logged, sizeof logged, "%s", text);
}

static void engines_that_keep_memory_are_named(void **state)
{
    (void)state;
    ok(weir_log_set(listen, NULL, WEIR_LOG_ERROR));
    told.keep_block = true;
    told.load = WEIR_ERR_CORRUPT;
    weir_model_options options = with(NULL);
    options.name = "leaky";
    weir_model *model;
    fails(WEIR_ERR_CORRUPT, weir_model_create(path, &options, &model)); /* its own reason comes first */
    assert_string_equal(weir_detail(), "the file is odd");
    assert_non_null(strstr(logged, "leaky has 1 blocks of 1 KiB"));
    weir_client_stats line = first_client(); /* the bytes stay charged */
    weir_client *client = (weir_client *)(uintptr_t)line.client;
    void *block;
    ok(weir_alloc(client, 1, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &block));
    ok(weir_free(client, (char *)block - 1024, WEIR_STREAM_HOST));
    ok(weir_free(client, block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    told.load = WEIR_OK;
    logged[0] = '\0';
    ok(weir_model_create(path, &options, &model));
    client = weir_model_client(model);
    fails(WEIR_ERR_ENGINE, weir_model_destroy(model)); /* gone all the same: not WEIR_ERR_BUSY */
    detail_names("full");
    detail_names("leaky");
    assert_non_null(strstr(logged, "leaky"));
    ok(weir_free(client, told.block, WEIR_STREAM_HOST));
    ok(weir_client_destroy(client));
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
}

static bool three_pieces(const weir_piece *piece, void *user)
{
    *(uint64_t *)user = piece->index + 1;
    return piece->index < 2;
}

static void runs_and_outputs(void **state)
{
    (void)state;
    weir_model *model = load_model(NULL);
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs), more = WEIR_INIT(weir_outputs);
    uint64_t pieces = 0;
    ok(weir_model_infer(model, &inference, &out));
    fails(WEIR_ERR_BUSY, weir_model_destroy(model)); /* not released */
    detail_names("1 result");
    ok(model_infer_stream(model, &inference, three_pieces, &pieces, &more));
    assert_int_equal(pieces, 3);
    weir_model_release_outputs(model, &out);
    fails(WEIR_ERR_BUSY, weir_model_destroy(model));
    weir_model_release_outputs(model, &more);
    assert_int_equal(told.releases, 2);
    weir_model_release_outputs(model, &more); /* once too often: not counted, not passed on */
    assert_int_equal(told.releases, 2);
    weir_model_release_outputs(model, NULL);
    weir_model_release_outputs(NULL, &more);
    told.infer = WEIR_ERR_CANCELLED;
    fails(WEIR_ERR_CANCELLED, weir_model_infer(model, &inference, &out)); /* has no outputs to release */
    fails(WEIR_ERR_CANCELLED, model_infer_stream(model, &inference, three_pieces, &pieces, &out));
    assert_string_equal(weir_detail(), "the engine says no");
    fails(WEIR_ERR_INVALID, weir_model_infer(model, NULL, &out));
    fails(WEIR_ERR_INVALID, weir_model_infer(model, &inference, NULL));
    fails(WEIR_ERR_INVALID, weir_model_infer(NULL, &inference, &out));
    ok(weir_model_destroy(model));
    check_empty(runtime);
}

typedef struct run {
    weir_model *model;
    weir_status status;
    weir_outputs out;
} run;

static void *infer_in_thread(void *user)
{
    run *r = user;
    weir_inference inference = WEIR_INIT(weir_inference);
    r->status = weir_model_infer(r->model, &inference, &r->out);
    return NULL;
}

static void no_unload_while_a_run_is_under_way(void **state)
{
    (void)state;
    gate inside = GATE;
    run r = {.model = load_model(NULL), .out = WEIR_INIT(weir_outputs)};
    pthread_t thread;
    told.inside = &inside;
    pthread_create(&thread, NULL, infer_in_thread, &r);
    pthread_mutex_lock(&inside.lock);
    while (!inside.reached)
        pthread_cond_wait(&inside.changed, &inside.lock);
    pthread_mutex_unlock(&inside.lock);
    fails(WEIR_ERR_BUSY, weir_model_destroy(r.model));
    detail_names("1 run");
    assert_int_equal(told.unloads, 0);
    open_gate(&inside);
    pthread_join(thread, NULL);
    assert_int_equal(r.status, WEIR_OK);
    fails(WEIR_ERR_BUSY, weir_model_destroy(r.model));
    weir_model_release_outputs(r.model, &r.out);
    ok(weir_model_destroy(r.model));
}

static void what_an_engine_lacks(void **state)
{
    (void)state;
    weir_model *model = load_model("bare");
    weir_inference inference = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    weir_engine_metrics numbers = WEIR_INIT(weir_engine_metrics);
    weir_model_details about = WEIR_INIT(weir_model_details);
    uint64_t pieces;
    fails(WEIR_ERR_UNSUPPORTED, model_infer_stream(model, &inference, three_pieces, &pieces, &out));
    detail_names("bare");
    fails(WEIR_ERR_UNSUPPORTED, weir_model_cancel(model, 0));
    fails(WEIR_ERR_UNSUPPORTED, weir_model_warm_up(model));
    fails(WEIR_ERR_UNSUPPORTED, weir_model_health(model));
    fails(WEIR_ERR_UNSUPPORTED, weir_model_metrics(model, &numbers));
    fails(WEIR_ERR_INVALID, weir_model_cancel(NULL, 0));
    fails(WEIR_ERR_INVALID, weir_model_warm_up(NULL));
    fails(WEIR_ERR_INVALID, weir_model_health(NULL));
    fails(WEIR_ERR_INVALID, weir_model_metrics(NULL, &numbers));
    fails(WEIR_ERR_INVALID, weir_model_info(NULL, &about));
    fails(WEIR_ERR_INVALID, weir_model_info(model, NULL));
    fails(WEIR_ERR_INVALID, weir_model_destroy(NULL));
    assert_null(weir_model_client(NULL));
    ok(weir_model_destroy(model));
    model = load_model("full");
    fails(WEIR_ERR_INVALID, weir_model_metrics(model, NULL));
    ok(weir_model_destroy(model));
}

/* The registry ----------------------------------------------------------------------------------------------------- */

static void registering(void **state)
{
    (void)state;
    const weir_engine *found;
    ok(weir_engine_get("full", &found));
    assert_ptr_equal(found, &full);
    fails(WEIR_ERR_CONFLICT, weir_engine_register(&full));
    weir_engine broken = full;
    broken.name = "Broken";
    fails(WEIR_ERR_ENGINE, weir_engine_register(&broken));
    broken.name = NULL;
    fails(WEIR_ERR_ENGINE, weir_engine_register(&broken));
    broken.name = "a-name-that-is-much-too-long-for-it";
    fails(WEIR_ERR_ENGINE, weir_engine_register(&broken));
    broken = full;
    broken.name = "broken";
    broken.infer = NULL;
    fails(WEIR_ERR_ENGINE, weir_engine_register(&broken));
    broken.infer = infer;
    broken.abi = 0;
    fails(WEIR_ERR_ENGINE, weir_engine_register(&broken));
    fails(WEIR_ERR_ENGINE, weir_engine_register(NULL));
    fails(WEIR_ERR_INVALID, weir_engine_get("", &found));
    fails(WEIR_ERR_INVALID, weir_engine_get(NULL, &found));
    fails(WEIR_ERR_INVALID, weir_engine_get("../full", &found));
    fails(WEIR_ERR_INVALID, weir_engine_get("full", NULL));
}

/* Weir knows what its own plug-ins take by their names: gguf stands before good. */
static void no_plug_in_is_opened_for_another_s_file(void **state)
{
    (void)state;
    char folders[1200], plug_in[112], named[112];
    snprintf(plug_in, sizeof plug_in, "%s/weir-engine-gguf.so", directory);
    copy_file(built_path("tests/plugins/weir-engine-other-name.so"), plug_in);
    snprintf(folders, sizeof folders, "%s:%s", directory, built_path("tests/plugins"));
    ok(weir_option_set("engine_path", folders));
    weir_model_options options = with(NULL);
    weir_model *model;
    snprintf(named, sizeof named, "%s/an.test", directory);
    write_file(named, "x");
    ok(weir_model_create(named, &options, &model));
    assert_string_equal(engine_name(model), "good");
    ok(weir_model_destroy(model));
    assert_null(dlopen(plug_in, RTLD_NOW | RTLD_NOLOAD));
    unlink(named);
    snprintf(named, sizeof named, "%s/an.gguf", directory);
    write_file(named, "x");
    fails(WEIR_ERR_NOT_FOUND, weir_model_create(named, &options, &model));
    assert_non_null(dlopen(plug_in, RTLD_NOW | RTLD_NOLOAD));
    unlink(named);
    unlink(plug_in);
    ok(weir_option_set("engine_path", NULL));
}

static void plugins(void **state)
{
    (void)state;
    const weir_engine *found, *again;
    char folders[1100];
    snprintf(folders, sizeof folders, "/nowhere:%s", built_path("tests/plugins"));
    ok(weir_option_set("engine_path", folders));
    ok(weir_engine_get("good", &found));
    assert_string_equal(found->name, "good");
    ok(weir_engine_get("good", &again));
    assert_ptr_equal(again, found);
    static const struct {
        const char *name, *reason;
    } bad[] = {{"no-entry", "weir_engine_entry"},
               {"no-table", "version"},
               {"newer-abi", "version"},
               {"old-abi", "version"},
               {"small-table", "bytes"},
               {"other-name", "\"otherwise\""},
               {"no-load", "load"},
               {"no-library", "plug-in"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (int twice = 0; twice < 2; twice++) {
            fails(WEIR_ERR_ENGINE, weir_engine_get(bad[i].name, &found));
            assert_null(found);
            detail_names(bad[i].name);
            detail_names(bad[i].reason);
        }
    fails(WEIR_ERR_NOT_FOUND, weir_engine_get("absent", &found));
    detail_names("/nowhere");
    detail_names("weir-engine-absent.so");
    detail_names("WEIR_ENGINE_PATH");
    bool good = false, full_there = false, sorted = true;
    char last[40] = "";
    size_t i = 0;
    for (const char *name; (name = weir_engine_name_at(i)); i++) {
        good |= strcmp(name, "good") == 0;
        full_there |= strcmp(name, "full") == 0;
        sorted &= strcmp(last, name) < 0;
        assert_null(strchr(name, '_')); /* a name that could not be opened */
        snprintf(last, sizeof last, "%s", name);
    }
    assert_true(good && full_there && sorted);
    assert_null(weir_engine_name_at(i));
    assert_null(weir_engine_name_at(SIZE_MAX));
    /* The engine for a file: by its suffix, in any case, else by what it holds. */
    char named[80];
    snprintf(named, sizeof named, "%s/a.TEST", directory);
    write_file(named, "x");
    weir_model_options options = with(NULL);
    weir_model *model;
    ok(weir_model_create(named, &options, &model));
    assert_string_equal(engine_name(model), "good");
    ok(weir_model_destroy(model));
    unlink(named);
    const weir_engine *real;
    if (weir_engine_get("gguf", &real) != WEIR_OK) { /* nobody here takes .gguf */
        fails(WEIR_ERR_NOT_FOUND, weir_model_create(odd_path, &options, &model));
        detail_names("model.odd");
        detail_names(".full");
    }
    weir_engine gguf = full;
    gguf.name = "as-gguf";
    gguf.suffixes = ".gguf";
    static weir_engine kept;
    kept = gguf;
    ok(weir_engine_register(&kept));
    ok(weir_model_create(odd_path, &options, &model));
    assert_string_equal(engine_name(model), "as-gguf");
    ok(weir_model_destroy(model));
    ok(weir_option_set("engine_path", NULL));
}

/* The engine for a folder is that of a file in it. */
static void folders(void **state)
{
    (void)state;
    static weir_engine whole;
    static const char *const names[] = {"phi.full", "phi.full/", "phi.full/whole.cfg"};
    char folder[80], config[112], named[112];
    snprintf(folder, sizeof folder, "%s/phi.full", directory);
    snprintf(config, sizeof config, "%s/whole.cfg", folder);
    whole = full;
    whole.name = "whole";
    whole.suffixes = ".whole whole.cfg";
    ok(weir_option_set("engine_path", "/nowhere"));
    ok(weir_engine_register(&whole));
    assert_int_equal(mkdir(folder, 0700), 0);
    weir_model_options options = with(NULL);
    weir_model *model;
    fails(WEIR_ERR_NOT_FOUND, weir_model_create(folder, &options, &model)); /* .full is the end of files' names */
    detail_names("phi.full");
    write_file(config, "{}");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(named, sizeof named, "%s/%s", directory, names[i]);
        ok(weir_model_create(named, &options, &model));
        assert_string_equal(engine_name(model), "whole");
        assert_string_equal(told.request.path, named);
        assert_string_equal(first_client().name, i < 2 ? "phi.full" : "whole.cfg");
        ok(weir_model_destroy(model));
    }
    assert_int_equal(unlink(config), 0);
    assert_int_equal(rmdir(folder), 0);
    ok(weir_option_set("engine_path", NULL));
}

static void the_table_of_engines_is_finite(void **state)
{
    (void)state;
    static weir_engine many[70];
    static char names[70][16];
    int registered = 0;
    weir_status status = WEIR_OK;
    for (int i = 0; i < 70 && status == WEIR_OK; i++) {
        many[i] = full;
        snprintf(names[i], sizeof names[i], "many-%d", i);
        many[i].name = names[i];
        status = weir_engine_register(&many[i]);
        registered += status == WEIR_OK;
    }
    assert_int_equal(status, WEIR_ERR_BUSY);
    assert_true(registered >= 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define test(name) cmocka_unit_test_setup(name, forget)
        test(a_model_from_load_to_unload),
        test(loads_that_fail_leave_nothing),
        test(engines_that_keep_memory_are_named),
        test(runs_and_outputs),
        test(no_unload_while_a_run_is_under_way),
        test(what_an_engine_lacks),
        test(registering),
        test(no_plug_in_is_opened_for_another_s_file),
        test(plugins),
        test(folders),
        test(the_table_of_engines_is_finite),
    };
    return cmocka_run_group_tests_name("model", tests, set_up, tear_down);
}
