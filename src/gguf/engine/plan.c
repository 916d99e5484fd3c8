/* plan.c: what a model will take, by letting llama.cpp lay everything out without allocating it; or, where its libraries
 * are not here or nothing is to be opened, out of the file alone. */
#include "wg.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "gguf/file/layout.h"

/* Of an elastic cache, what the first run has to have: cells come by 256, but for windows and states, which are there from
 * the start. A promise is of whole pages. */
static void plan_cache(const weir_engine_model *model, uint64_t fixed, uint64_t *bytes, uint64_t *whole, bool *exact)
{
    enum { CELLS = 256, HOST_PAGE = 64 << 10, DEVICE_PAGE = 2 << 20 };
    uint64_t cells = (uint64_t)model->longest * (uint64_t)model->load.sequences;
    uint64_t page = model->devices.count > 0 ? DEVICE_PAGE : HOST_PAGE;
    if (!wg_cache_wanted(model))
        return;
    uint64_t pages = (*bytes + page - 1) / page * page;
    fixed = fixed < *bytes ? fixed : *bytes;
    if (!wg_cache_grows(model) || fixed == *bytes) {
        *bytes = pages;
        return;
    }
    *whole = pages;
    *bytes = cells > CELLS ? fixed + (*bytes - fixed) / cells * CELLS : *bytes;
    *exact = false;
}

/* Where a model is asked for without a place, the provider says whether it is to be on a device. */
static bool on_device(const weir_engine_load *load, const weir_engine_model *model)
{
    const char *asked = load->struct_size > offsetof(weir_engine_load, provider) ? load->provider : NULL;
    return model->devices.count > 0 || (load->place_count == 0 && asked && strcasecmp(asked, "cuda") == 0);
}

/* What holds for both ways. With more tokens at once than at load, the buffer of the outputs grows. On a device it is the
 * scratch that kernels and CUDA's libraries ask for. */
static void gguf_plan_finish(const weir_engine_model *model, bool device, uint64_t fixed, weir_prediction_source source,
                             weir_engine_plan *out)
{
    bool laid_out = source == WEIR_PREDICTED_DRY_RUN;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        out->exact[i] = laid_out;
        out->source[i] = source;
    }
    out->exact[WEIR_CLASS_ACTIVATIONS] = laid_out && !model->embeds;
    out->exact[WEIR_CLASS_SCRATCH] = laid_out && !device;
    plan_cache(model, fixed, &out->bytes[WEIR_CLASS_KV], &out->whole[WEIR_CLASS_KV], &out->exact[WEIR_CLASS_KV]);
    if (model->load.mmap && !device) {
        out->bytes[WEIR_CLASS_WEIGHTS] = 0;
        out->exact[WEIR_CLASS_WEIGHTS] = false;
    }
    out->context = model->longest;
    out->sequences = model->embeds ? 1 : (uint32_t)model->load.sequences;
    out->layers = model->facts.layers + 1;
    uint64_t wanted = (uint64_t)model->load.gpu_layers; /* -1: all */
    out->layers_on_device = !device ? 0 : wanted < out->layers ? (uint32_t)wanted : out->layers;
}

/* Bytes of the first device, and of everything that is on none. */
static bool gguf_plan_add_up(const weir_engine_model *model, weir_engine_plan *out)
{
    const wg_library *lib = model->library;
    uint64_t *to = model->devices.count > 0 ? out->host : out->bytes;
    bool good = wg_breakdown(lib->breakdown, model->context, NULL, &to[WEIR_CLASS_WEIGHTS], &to[WEIR_CLASS_KV],
                             &to[WEIR_CLASS_SCRATCH]);
    for (size_t i = 0; good && i < model->devices.count; i++) {
        uint64_t weights, cache, compute;
        ggml_backend_buffer_type_t type = lib->ggml_backend_dev_buffer_type(model->devices.list[i]);
        good = wg_breakdown(lib->breakdown, model->context, type, &weights, &cache, &compute);
        to[WEIR_CLASS_WEIGHTS] -= weights < to[WEIR_CLASS_WEIGHTS] ? weights : to[WEIR_CLASS_WEIGHTS];
        to[WEIR_CLASS_KV] -= cache < to[WEIR_CLASS_KV] ? cache : to[WEIR_CLASS_KV];
        to[WEIR_CLASS_SCRATCH] -= compute < to[WEIR_CLASS_SCRATCH] ? compute : to[WEIR_CLASS_SCRATCH];
        if (i == 0) {
            out->bytes[WEIR_CLASS_WEIGHTS] = weights;
            out->bytes[WEIR_CLASS_KV] = cache;
            out->bytes[WEIR_CLASS_SCRATCH] = compute;
        }
    }
    return good;
}

/* Out of the file --------------------------------------------------------------------------------------------------- */

static void gguf_plan_take_bytes(const wg_bytes *from, uint64_t to[WEIR_CLASS_MOST])
{
    to[WEIR_CLASS_WEIGHTS] = (from->weights + 255) / 256 * 256;
    to[WEIR_CLASS_KV] = (from->cache + 255) / 256 * 256;
    to[WEIR_CLASS_SCRATCH] = (from->compute + 255) / 256 * 256;
    to[WEIR_CLASS_ACTIVATIONS] = from->outputs;
}

static wg_asked asked_of(const weir_engine_model *model, bool device)
{
    const wg_load_settings *load = &model->load;
    wg_asked asked = {.context = model->longest,
                      .sequences = model->embeds ? WG_EMBED_SEQUENCES : (uint32_t)load->sequences,
                      .shared = model->embeds,
                      .batch = model->embeds ? model->longest : model->pack,
                      .flash = strcasecmp(load->flash_attention, "off") != 0,
                      .whole_windows = load->swa_full,
                      .embeds = model->embeds,
                      .device_layers = !device                ? 0
                                       : load->gpu_layers < 0 ? UINT32_MAX
                                                              : (uint32_t)load->gpu_layers};
    asked.outputs = model->embeds ? 0 : asked.sequences;
    (void)wi_gguf_cache_type(load->cache_k, &asked.type_k); /* both were checked */
    (void)wi_gguf_cache_type(load->cache_v, &asked.type_v);
    return asked;
}

static weir_status read_layout(const weir_engine_load *load, const weir_engine_model *model, bool device,
                               wg_layout *out)
{
    wg_facts facts;
    wg_hyper *hyper = malloc(sizeof *hyper);
    if (!hyper)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory to look at it", load->path);
    weir_status status = wg_check_once(load->path, &facts, hyper);
    if (status == WEIR_OK) {
        wg_asked asked = asked_of(model, device);
        wi_gguf_layout_make(hyper, &asked, out);
    }
    free(hyper);
    return status;
}

static weir_status gguf_plan_work_out(const weir_engine_load *load, const weir_engine_model *model,
                                      weir_engine_plan *out)
{
    wg_layout layout;
    bool device = on_device(load, model);
    weir_status status = read_layout(load, model, device, &layout);
    if (status != WEIR_OK)
        return status;
    gguf_plan_take_bytes(device ? &layout.device : &layout.host, out->bytes);
    if (device)
        gguf_plan_take_bytes(&layout.host, out->host);
    gguf_plan_finish(model, device, device ? layout.device.fixed : layout.host.fixed, WEIR_PREDICTED_METADATA, out);
    return WEIR_OK;
}

/* The file tells how much of the cache is there from the start; llama.cpp does not. */
static weir_status gguf_plan_measure(const weir_engine_load *load, weir_engine_model *model, const wg_phase *phase,
                                     weir_engine_plan *out)
{
    wg_layout layout;
    bool device = model->devices.count > 0;
    if (!gguf_plan_add_up(model, out))
        return weir_fail(WEIR_ERR_ENGINE, "llama.cpp does not tell what a '%s' takes", model->facts.architecture);
    if (read_layout(load, model, device, &layout) != WEIR_OK)
        layout = (wg_layout){0};
    (device ? out->host : out->bytes)[WEIR_CLASS_ACTIVATIONS] = phase->planned_output; /* it lies on the host */
    gguf_plan_finish(model, device, device ? layout.device.fixed : layout.host.fixed, WEIR_PREDICTED_DRY_RUN, out);
    return WEIR_OK;
}

/* What is remembered ----------------------------------------------------------------------------------------------- */

/* All that a plan depends on, in words. */
typedef struct plan_key {
    char text[1024];
} plan_key;

enum { REMEMBERED = 8 };

static struct {
    plan_key key;
    weir_engine_plan plan;
} remembered[REMEMBERED];
static size_t next_place;
static pthread_mutex_t remembering = PTHREAD_MUTEX_INITIALIZER;

/* llama.cpp reads the whole vocabulary for a plan, which takes most of a tenth of a second; a file that has not changed
 * is laid out once. */
static bool gguf_plan_make_key(const weir_engine_load *load, const weir_engine_model *model, plan_key *key)
{
    struct stat about;
    const wg_library *library;
    const wg_load_settings *settings = &model->load;
    if (stat(load->path, &about) != 0 || wg_library_get(settings->llama, &library) != WEIR_OK)
        return false;
    int length = snprintf(key->text, sizeof key->text,
                          "%ju %ju %jd, written %jd.%09ld, changed %jd.%09ld, %s, %d cores, %zu devices,",
                          (uintmax_t)about.st_dev, (uintmax_t)about.st_ino, (intmax_t)about.st_size,
                          (intmax_t)about.st_mtim.tv_sec, about.st_mtim.tv_nsec, (intmax_t)about.st_ctim.tv_sec,
                          about.st_ctim.tv_nsec, library->file, wg_cores(), model->devices.count);
    /* The library is told by its file. */
    return length > 0 && (size_t)length < sizeof key->text &&
           wt_choices_words(&wg_choices, settings, offsetof(wg_load_settings, llama), key->text + length,
                            sizeof key->text - (size_t)length);
}

static bool gguf_plan_recall(const plan_key *key, weir_engine_plan *out)
{
    bool found = false;
    pthread_mutex_lock(&remembering);
    for (size_t i = 0; i < REMEMBERED && !found; i++)
        if (strcmp(remembered[i].key.text, key->text) == 0) {
            *out = remembered[i].plan;
            found = true;
        }
    pthread_mutex_unlock(&remembering);
    return found;
}

static void gguf_plan_remember(const plan_key *key, const weir_engine_plan *plan)
{
    pthread_mutex_lock(&remembering);
    remembered[next_place].key = *key;
    remembered[next_place].plan = *plan;
    next_place = (next_place + 1) % REMEMBERED;
    pthread_mutex_unlock(&remembering);
}

static weir_status lay_out(const weir_engine_load *load, weir_engine_model *model, weir_engine_plan *out)
{
    wg_phase phase = {0};
    weir_status status = wg_make_model(model, load, &phase, true);
    if (status == WEIR_OK)
        status = wg_make_context(model, &phase);
    return status == WEIR_OK ? gguf_plan_measure(load, model, &phase, out) : status;
}

/* The whole -------------------------------------------------------------------------------------------------------- */

/* Of the settings that count: neither threads nor where libraries lie. */
static uint64_t gguf_plan_number_of(const weir_engine_model *model)
{
    char words[1024];
    wg_load_settings counted = model->load;
    counted.threads = 0;
    counted.llama_cuda[0] = '\0';
    if (!wt_choices_words(&wg_choices, &counted, offsetof(wg_load_settings, llama), words, sizeof words))
        return 0;
    return wt_sum(1, words, strlen(words)) | 1;
}

/* By the file alone where that is asked for, where no device is named to lay it out on, and where the library is not
 * here. */
static weir_status gguf_plan(const weir_engine_load *load, weir_engine_model *model, weir_engine_plan *out)
{
    plan_key key;
    bool quick = load->struct_size > offsetof(weir_engine_load, quick) && load->quick;
    bool nowhere = model->devices.count == 0 && on_device(load, model);
    bool known = !quick && !nowhere && gguf_plan_make_key(load, model, &key);
    if (known && gguf_plan_recall(&key, out))
        return WEIR_OK;
    weir_status status = wg_look(load, model);
    if (status == WEIR_OK && !quick && !nowhere) {
        status = wg_open(model);
        if (status == WEIR_OK)
            status = lay_out(load, model, out);
        else if (status == WEIR_ERR_NOT_FOUND)
            quick = true;
        wg_drop(model);
    }
    if (quick || (status == WEIR_OK && nowhere))
        status = status == WEIR_OK || status == WEIR_ERR_NOT_FOUND ? gguf_plan_work_out(load, model, out) : status;
    else if (status == WEIR_OK && known)
        gguf_plan_remember(&key, out);
    return status;
}

weir_status wg_plan(const weir_engine_load *load, weir_engine_plan *out)
{
    weir_engine_model model = {0};
    weir_engine_plan made = {.struct_size = sizeof made};
    weir_status status = wg_read_request(load, true, &model);
    if (status == WEIR_OK)
        status = gguf_plan(load, &model, &made);
    if (status != WEIR_OK)
        return status;
    made.settings = gguf_plan_number_of(&model);
    size_t size = out->struct_size < sizeof made ? out->struct_size : sizeof made;
    made.struct_size = out->struct_size;
    memcpy(out, &made, size);
    return WEIR_OK;
}
