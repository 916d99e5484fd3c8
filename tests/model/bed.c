#include "info.h"
#include "model/bed.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>
#include <weir/model.h>

#include <stdatomic.h>
#include <strings.h>

bed b = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The machine, as weir_hardware_create tells it ---------------------------------------------------------------------- */

weir_status __wrap_weir_hardware_create(const weir_hardware_options *options, weir_hardware **out);
void __wrap_weir_hardware_destroy(weir_hardware *hardware);
weir_status __wrap_weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out);
weir_status __real_weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out);

weir_status __wrap_weir_hardware_create(const weir_hardware_options *options, weir_hardware **out)
{
    (void)options;
    machine *copy = malloc(sizeof *copy);
    if (!copy)
        return weir_fail(WEIR_ERR_SYSTEM, "the machine has no memory");
    pthread_mutex_lock(&b.lock);
    *copy = b.m;
    copy->hardware.devices = copy->devices;
    b.looks++;
    for (size_t i = 0; b.looks > 1 && i < copy->hardware.device_count; i++)
        if (strcmp(copy->devices[i].key, b.hidden) == 0) {
            copy->devices[i].usable = false;
            snprintf(copy->devices[i].remark, sizeof copy->devices[i].remark, "it has fallen off the bus");
        }
    pthread_mutex_unlock(&b.lock);
    *out = &copy->hardware;
    return WEIR_OK;
}

void __wrap_weir_hardware_destroy(weir_hardware *hardware)
{
    free(hardware);
}

weir_status __wrap_weir_client_create(weir_runtime *runtime, const weir_client_options *options, weir_client **out)
{
    pthread_mutex_lock(&b.lock);
    bool fails_now = ++b.constructs == b.fail_construct;
    pthread_mutex_unlock(&b.lock);
    return fails_now ? weir_fail(WEIR_ERR_DRIVER, "the driver would not have a client")
                     : __real_weir_client_create(runtime, options, out);
}

/* The engine ------------------------------------------------------------------------------------------------------- */

struct weir_engine_model {
    char provider[16];
    weir_client *client;
    void *weights;
    atomic_int answered, running;
    atomic_int ill_with; /* how its last run failed, if the fault was not that run's own: a warm-up fails likewise */
    atomic_bool failed, broken, cancelled;
};

/* Whether to fail here, and how. */
static bool faulty(const char *provider, weir_stage stage, fault_plan *out)
{
    bool found = false;
    pthread_mutex_lock(&b.lock);
    for (size_t i = 0; i < MOST_FAULTS && !found; i++) {
        fault_plan *one = &b.faults[i];
        found = one->provider && one->stage == stage && one->times != 0 &&
                (!one->provider[0] || strcmp(one->provider, provider) == 0);
        if (found) {
            one->times -= one->times > 0;
            *out = *one;
        }
    }
    pthread_mutex_unlock(&b.lock);
    return found;
}

static void count(int *what, int by)
{
    pthread_mutex_lock(&b.lock);
    *what += by;
    pthread_mutex_unlock(&b.lock);
}

static weir_status double_probe(weir_engine_probe *out)
{
    out->available = true;
    return WEIR_OK;
}

static weir_status double_provider(size_t index, weir_engine_provider *out)
{
    if (index >= KINDS_OF_PROVIDERS)
        return weir_fail(WEIR_ERR_NOT_FOUND, "no such provider");
    *out = (weir_engine_provider){.struct_size = out->struct_size, .state = WEIR_PROVIDER_HERE};
    snprintf(out->name, sizeof out->name, "%s", provider_names[index]);
    return WEIR_OK;
}

static void give_back(weir_client *client, void *block)
{
    if (block && weir_free(client, block, WEIR_STREAM_HOST) != WEIR_OK)
        print_error("a block could not be given back: %s\n", weir_detail());
}

static void note_settings(const weir_engine_load *load)
{
    pthread_mutex_lock(&b.lock);
    b.settings[0] = '\0';
    for (size_t i = 0; i < load->setting_count; i++) {
        size_t length = strlen(b.settings);
        snprintf(b.settings + length, sizeof b.settings - length, "%s=%s ", load->settings[i].key,
                 load->settings[i].value);
    }
    pthread_mutex_unlock(&b.lock);
}

static weir_status double_load(const weir_engine_load *load, weir_engine_model **out)
{
    fault_plan fault;
    count(&b.loads, 1);
    weir_engine_model *model = calloc(1, sizeof *model);
    if (!model)
        return weir_fail(WEIR_ERR_SYSTEM, "the double has no memory");
    note_settings(load);
    model->client = load->places[0].client;
    snprintf(model->provider, sizeof model->provider, "%s", load->provider ? load->provider : "plain");
    weir_status status = weir_alloc(model->client, b.weights, WEIR_STREAM_HOST, WEIR_CLASS_WEIGHTS, &model->weights);
    if (b.inside_load)
        pass_gate(b.inside_load);
    if (status == WEIR_OK && faulty(model->provider, WEIR_STAGE_LOAD, &fault)) {
        if (fault.keeps)
            b.kept = model->weights, b.kept_by = model->client;
        else
            give_back(model->client, model->weights);
        status = weir_fail(fault.status, "%s would not load it", model->provider);
    }
    if (status == WEIR_OK) {
        *out = model;
        count(&b.alive, 1);
    } else {
        free(model);
    }
    return status;
}

static weir_status fail_run(weir_engine_model *model, const fault_plan *fault)
{
    atomic_store(&model->failed, true);
    atomic_store(&model->ill_with, fault->alone ? WEIR_OK : fault->status);
    if (fault->breaks)
        atomic_store(&model->broken, true);
    return weir_fail(fault->status, "%s would not run it", model->provider);
}

static weir_status make_output(weir_engine_model *model, size_t bytes, void **block)
{
    if (!b.on_host)
        return weir_alloc(model->client, bytes, WEIR_STREAM_HOST, WEIR_CLASS_ACTIVATIONS, block);
    *block = malloc(bytes);
    if (!*block)
        return weir_fail(WEIR_ERR_SYSTEM, "the double has no memory");
    memset(*block, b.answers + 1, bytes);
    return WEIR_OK;
}

static weir_status answer(weir_engine_model *model, weir_outputs *out)
{
    void *block;
    size_t bytes = b.output ? b.output : OUTPUT;
    weir_tensor *tensor = calloc(1, sizeof *tensor);
    if (!tensor)
        return weir_fail(WEIR_ERR_SYSTEM, "the double has no memory");
    weir_status status = make_output(model, bytes, &block);
    if (status != WEIR_OK) {
        free(tensor);
        return status;
    }
    *tensor = (weir_tensor){.struct_size = sizeof *tensor,
                            .name = model->provider,
                            .type = WEIR_TYPE_U8,
                            .rank = 1,
                            .shape = {(int64_t)bytes},
                            .data = block,
                            .bytes = bytes,
                            .on_device = !b.on_host};
    *out = (weir_outputs){.struct_size = out->struct_size, .tensors = tensor, .count = 1, .engine_data = model};
    atomic_fetch_add(&model->answered, 1);
    count(&b.answers, 1);
    return WEIR_OK;
}

static weir_status use_scratch(weir_engine_model *model)
{
    void *scratch = NULL;
    if (b.scratch == 0)
        return WEIR_OK;
    weir_status status = weir_alloc(model->client, b.scratch, WEIR_STREAM_HOST, WEIR_CLASS_SCRATCH, &scratch);
    give_back(model->client, scratch);
    return status;
}

/* One that is told to fail its first run does so until it has answered. */
static weir_status run(weir_engine_model *model, weir_piece_fn piece, void *user, weir_outputs *out)
{
    fault_plan fault = {0};
    weir_stage stage = atomic_load(&model->answered) > 0 ? WEIR_STAGE_LATER_RUN : WEIR_STAGE_FIRST_RUN;
    count(&b.runs, 1);
    atomic_store(&model->ill_with, WEIR_OK);
    if (atomic_load(&model->broken))
        return weir_fail(WEIR_ERR_ENGINE, "%s is broken", model->provider);
    bool fails_now = faulty(model->provider, stage, &fault);
    int pieces = fails_now ? fault.pieces : b.pieces_of_runs;
    for (int i = 0; piece && i < pieces; i++) {
        weir_piece one = {.struct_size = sizeof one, .text = model->provider, .bytes = 1, .index = (uint64_t)i};
        count(&b.pieces, 1);
        if (!piece(&one, user))
            break;
    }
    if (b.inside_run && !b.holds_warm_ups && b.runs >= b.hold_from)
        pass_gate(b.inside_run);
    if (atomic_exchange(&model->cancelled, false))
        return weir_fail(WEIR_ERR_CANCELLED, "stopped");
    if (fails_now)
        return fail_run(model, &fault);
    weir_status status = use_scratch(model);
    return status == WEIR_OK ? answer(model, out) : status;
}

static void note_asked(const weir_inference *inference)
{
    size_t at = 0;
    char text[sizeof b.asked] = "";
    for (size_t i = 0; inference->inputs && i < inference->input_count; i++) {
        const weir_tensor *input = (const void *)((const char *)inference->inputs + i * inference->inputs->struct_size);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s:%.*s ", input->name ? input->name : "",
                               (int)input->bytes, input->type == WEIR_TYPE_TEXT ? (const char *)input->data : "");
    }
    for (size_t i = 0; i < inference->setting_count; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s=%s ", inference->settings[i].key,
                               inference->settings[i].value);
    pthread_mutex_lock(&b.lock);
    memcpy(b.asked, text, sizeof text);
    pthread_mutex_unlock(&b.lock);
}

static weir_status double_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    atomic_fetch_add(&model->running, 1);
    note_asked(inference);
    weir_status status = run(model, NULL, NULL, out);
    atomic_fetch_sub(&model->running, 1);
    return status;
}

static weir_status double_stream(weir_engine_model *model, const weir_inference *inference, weir_piece_fn piece,
                                 void *user, weir_outputs *out)
{
    (void)inference;
    atomic_fetch_add(&model->running, 1);
    weir_status status = run(model, piece, user, out);
    atomic_fetch_sub(&model->running, 1);
    return status;
}

static void double_release(weir_engine_model *model, weir_outputs *outputs)
{
    assert_ptr_equal(outputs->engine_data, model); /* an instance gets its own back */
    if (outputs->tensors->on_device)
        give_back(model->client, outputs->tensors->data);
    else
        free(outputs->tensors->data);
    free(outputs->tensors);
    outputs->tensors = NULL;
    count(&b.releases, 1);
}

static weir_status double_cancel(weir_engine_model *model, uint64_t id)
{
    (void)id;
    count(&b.cancels, 1);
    if (b.inside_cancel)
        pass_gate(b.inside_cancel);
    if (b.deaf || atomic_load(&model->running) == 0)
        return weir_fail(WEIR_ERR_NOT_FOUND, "nothing runs");
    atomic_store(&model->cancelled, true);
    return WEIR_OK;
}

static weir_status double_warm_up(weir_engine_model *model)
{
    fault_plan fault;
    weir_stage stage = atomic_load(&model->answered) > 0 ? WEIR_STAGE_LATER_RUN : WEIR_STAGE_FIRST_RUN;
    weir_status ill_with = (weir_status)atomic_load(&model->ill_with);
    count(&b.warm_ups, 1);
    if (b.inside_run && b.hold_from == 0)
        pass_gate(b.inside_run);
    if (atomic_load(&model->broken))
        return weir_fail(WEIR_ERR_ENGINE, "%s is broken", model->provider);
    if (ill_with != WEIR_OK)
        return weir_fail(ill_with, "%s fails all that it is asked", model->provider);
    if (!faulty(model->provider, stage, &fault))
        return WEIR_OK;
    weir_status status = fail_run(model, &fault);
    atomic_store(&model->ill_with, WEIR_OK);
    return status;
}

static weir_status double_health(weir_engine_model *model)
{
    return b.ill && atomic_load(&model->failed) ? weir_fail(WEIR_ERR_ENGINE, "it is ill") : WEIR_OK;
}

static weir_status double_metrics(weir_engine_model *model, weir_engine_metrics *out)
{
    pthread_mutex_lock(&b.lock);
    gate *held = b.inside_metrics;
    b.inside_metrics = NULL;
    pthread_mutex_unlock(&b.lock);
    if (held)
        pass_gate(held);
    out->runs = (uint64_t)atomic_load(&model->answered);
    out->sessions = SESSIONS;
    out->sessions_failed = SESSIONS_FAILED;
    return WEIR_OK;
}

static weir_status double_info(weir_engine_model *model, weir_model_details *out)
{
    static _Thread_local weir_provider_share shares[2];
    shares[0] = (weir_provider_share){model->provider, (uint64_t)(b.share * 100), 100};
    shares[1] = (weir_provider_share){"cpu", 100 - shares[0].parts, 100};
    *out = (weir_model_details){.struct_size = out->struct_size,
                                .engine = "onnx",
                                .version = "1",
                                .provider = model->provider,
                                .architecture = "a double",
                                .remarks = "",
                                .shares = shares,
                                .share_count = b.share > 0 ? 2 : 0};
    return WEIR_OK;
}

static void double_unload(weir_engine_model *model)
{
    if (b.keeper && strcmp(b.keeper, model->provider) == 0)
        b.kept = model->weights, b.kept_by = model->client;
    else
        give_back(model->client, model->weights);
    free(model);
    count(&b.unloads, 1);
    count(&b.alive, -1);
}

weir_engine double_onnx = {.abi = WEIR_ENGINE_ABI,
                           .struct_size = sizeof(weir_engine),
                           .name = "onnx",
                           .summary = "fails where it is told to",
                           .suffixes = ".onnx",
                           .probe = double_probe,
                           .load = double_load,
                           .infer = double_infer,
                           .infer_stream = double_stream,
                           .release_outputs = double_release,
                           .cancel = double_cancel,
                           .warm_up = double_warm_up,
                           .health = double_health,
                           .metrics = double_metrics,
                           .info = double_info,
                           .unload = double_unload,
                           .provider = double_provider};

/* The bed ---------------------------------------------------------------------------------------------------------- */

int bed_begin(void **state)
{
    (void)state;
    const char *device = getenv("WEIR_TEST_DEVICE");
    ok(weir_option_set("engine_path", "/nowhere"));
    ok(weir_option_set("home", "/dev/null/nowhere"));
    ok(weir_option_set("budget", "64MiB"));
    ok(weir_option_set("wait", "0"));
    ok(weir_engine_register(&double_onnx));
    ok(weir_runtime_get("host", NULL, &b.host));
    ok(weir_runtime_get(device ? device : "host", NULL, &b.device));
    return 0;
}

int bed_end(void **state)
{
    (void)state;
    return 0;
}

int bed_reset(void **state)
{
    (void)state;
    static const weir_hardware_kind kinds[] = {WEIR_HARDWARE_CUDA, WEIR_HARDWARE_ROCM, WEIR_HARDWARE_INTEL,
                                               WEIR_HARDWARE_METAL, WEIR_HARDWARE_DIRECTML};
    weir_runtime *host = b.host, *device = b.device;
    double_onnx.warm_up = double_warm_up;
    double_onnx.cancel = double_cancel;
    double_onnx.infer_stream = double_stream;
    double_onnx.health = double_health;
    b = (bed){.lock = PTHREAD_MUTEX_INITIALIZER, .host = host, .device = device, .weights = WEIGHTS};
    machine_begin(&b.m, 8 * GIB);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        weir_hardware_device *added = machine_add(&b.m, kinds[i], 8 * GIB);
        snprintf(added->runtime, sizeof added->runtime, "%s", runtime_details(device).device);
    }
    return 0;
}

void bed_fault(const char *provider, weir_stage stage, weir_status status, int times)
{
    size_t i = 0;
    while (b.faults[i].provider)
        i++;
    assert_true(i < MOST_FAULTS);
    b.faults[i] = (fault_plan){.provider = provider, .stage = stage, .status = status, .times = times};
}

const weir_manifest *wants(wanted *w, const char *providers)
{
    static const char *path;
    size_t count_of = 0;
    if (!path)
        path = model_file("model.onnx", 100);
    *w = (wanted){.manifest = WEIR_INIT(weir_manifest)};
    snprintf(w->text, sizeof w->text, "%s", providers);
    char *rest = w->text;
    for (char *one; (one = strsep(&rest, " ")) && *one;)
        w->rest[count_of++] = one;
    w->manifest.path = "";
    w->manifest.model_file = path;
    w->manifest.name = "bert";
    w->manifest.requirements.preferred_provider = count_of > 0 ? w->rest[0] : NULL;
    w->manifest.requirements.fallback_providers = w->rest + 1;
    w->manifest.requirements.fallback_count = count_of > 0 ? count_of - 1 : 0;
    return &w->manifest;
}

static void note(const char *text, void *user)
{
    assert_ptr_equal(user, &b);
    pthread_mutex_lock(&b.lock); /* nothing of the bed's is held, nor of weir's */
    if (b.notice_count < MOST_TEXTS)
        snprintf(b.notices[b.notice_count++], sizeof b.notices[0], "%s", text);
    pthread_mutex_unlock(&b.lock);
}

weir_opening_options opening_options(weir_choice_options *choice)
{
    return (weir_opening_options){
        .struct_size = sizeof(weir_opening_options), .choice = choice, .notice = note, .user = &b};
}

weir_model *open_model(const weir_manifest *manifest, const weir_opening_options *options)
{
    weir_model *model;
    ok(weir_model_create_chosen(manifest, options, &model));
    return model;
}

weir_record record_of(weir_model *model)
{
    weir_record record = WEIR_INIT(weir_record);
    ok(weir_model_record(model, &record));
    return record;
}

void check_attempt(const weir_record *record, size_t place, const char *provider, weir_stage stage, weir_status status)
{
    assert_true(place < record->attempt_count);
    const weir_attempt *one = &record->attempts[place];
    assert_string_equal(one->engine, "onnx");
    assert_string_equal(one->provider, provider);
    assert_string_equal(weir_name_of(WEIR_NAMES_STAGE, one->stage), weir_name_of(WEIR_NAMES_STAGE, stage));
    assert_string_equal(weir_name_of(WEIR_NAMES_STATUS, one->status), weir_name_of(WEIR_NAMES_STATUS, status));
    assert_int_equal(one->reason[0] != '\0', status != WEIR_OK);
    assert_true(one->ms >= 0);
    if (stage >= WEIR_STAGE_LOAD)
        assert_true(one->bytes >= b.weights);
    else
        assert_int_equal(one->bytes, 0);
}

weir_status infer_once(weir_model *model, weir_outputs *out)
{
    weir_inference inference = WEIR_INIT(weir_inference);
    *out = WEIR_INIT(weir_outputs);
    return weir_model_infer(model, &inference, out);
}

void infer_and_release(weir_model *model)
{
    weir_outputs out;
    ok(infer_once(model, &out));
    weir_model_release_outputs(model, &out);
}

void *make_request(void *user)
{
    request *it = user;
    weir_inference inference = WEIR_INIT(weir_inference);
    inference.id = REQUEST;
    it->out = WEIR_INIT(weir_outputs);
    it->status = weir_model_infer(it->model, &inference, &it->out);
    return NULL;
}

void wait_for(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->reached)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

const char *provider_of(weir_model *model)
{
    weir_model_details info = WEIR_INIT(weir_model_details);
    ok(weir_model_info(model, &info));
    return info.provider;
}

weir_model *opened_on(const char *providers)
{
    wanted w;
    weir_opening_options options = opening_options(NULL);
    const weir_manifest *manifest = wants(&w, providers);
    w.manifest.requirements.cpu = strstr(providers, "cpu") ? WEIR_CPU_LAST : WEIR_CPU_FORBIDDEN;
    return open_model(manifest, &options);
}

const char *made_on(const weir_outputs *out)
{
    return out->tensors->name;
}

books take_books(void)
{
    books all = {0};
    weir_runtime *of[2] = {b.host, b.device};
    for (int i = 0; i < 2; i++) {
        weir_stats s = WEIR_INIT(weir_stats);
        ok(weir_snapshot(of[i], &s, NULL, 0, NULL));
        all.live[i] = s.live;
        all.pending[i] = s.pending;
        all.promised[i] = s.promised;
        all.guaranteed[i] = s.guaranteed;
        all.clients[i] = s.clients;
    }
    return all;
}

void check_books(const books *before)
{
    books now = take_books();
    assert_memory_equal(now.live, before->live, sizeof now.live);
    assert_memory_equal(now.pending, before->pending, sizeof now.pending);
    assert_memory_equal(now.promised, before->promised, sizeof now.promised);
    assert_memory_equal(now.guaranteed, before->guaranteed, sizeof now.guaranteed);
    assert_memory_equal(now.clients, before->clients, sizeof now.clients);
}
