/* plan.c: what a model will take, by letting llama.cpp lay everything out without allocating it. */
#include "wg.h"
#include <weir/engine.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cores.h"

/* Of an elastic cache, what the first run has to have: cells come by 256. A promise is of whole pages. */
static void plan_cache(const weir_engine_model *model, uint64_t *bytes, bool *exact)
{
    enum { CELLS = 256, HOST_PAGE = 64 << 10, DEVICE_PAGE = 2 << 20 };
    uint64_t cells = (uint64_t)model->longest * (uint64_t)model->load.sequences;
    uint64_t page = model->places.devices > 0 ? DEVICE_PAGE : HOST_PAGE;
    if (!wg_cache_wanted(model))
        return;
    if (wg_cache_grows(model)) {
        *bytes = cells > CELLS ? *bytes / cells * CELLS : *bytes;
        *exact = false;
    } else {
        *bytes = (*bytes + page - 1) / page * page;
    }
}

static weir_status measure(weir_engine_model *model, const wg_phase *phase, weir_engine_plan *out)
{
    uint64_t bytes[WEIR_CLASS_MOST] = {0};
    bool exact[WEIR_CLASS_MOST] = {0};
    const wg_library *lib = model->library;
    bool on_device = model->places.devices > 0;
    ggml_backend_buffer_type_t type = on_device ? lib->ggml_backend_dev_buffer_type(model->places.list[0]) : NULL;
    if (!wg_breakdown(lib->breakdown, model->context, type, &bytes[WEIR_CLASS_WEIGHTS], &bytes[WEIR_CLASS_KV],
                      &bytes[WEIR_CLASS_SCRATCH]))
        return weir_fail(WEIR_ERR_ENGINE, "llama.cpp does not tell what a '%s' takes", model->facts.architecture);
    bytes[WEIR_CLASS_ACTIVATIONS] = on_device ? 0 : phase->planned_output; /* it lies on the host */
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        exact[i] = true;
    /* With more tokens at once than at load, the buffer of the outputs grows. On a device it is the scratch that kernels
     * and CUDA's libraries ask for. */
    exact[WEIR_CLASS_ACTIVATIONS] = !model->embeds;
    exact[WEIR_CLASS_SCRATCH] = !on_device;
    plan_cache(model, &bytes[WEIR_CLASS_KV], &exact[WEIR_CLASS_KV]);
    if (model->load.mmap && !on_device) {
        bytes[WEIR_CLASS_WEIGHTS] = 0;
        exact[WEIR_CLASS_WEIGHTS] = false;
    }
    memcpy(out->bytes, bytes, sizeof out->bytes);
    memcpy(out->exact, exact, sizeof out->exact);
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
static bool make_key(const weir_engine_load *load, const weir_engine_model *model, plan_key *key)
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
                          about.st_ctim.tv_nsec, library->file, wg_cores(), model->places.devices);
    /* The library is told by its file. */
    return length > 0 && (size_t)length < sizeof key->text &&
           wt_choices_words(&wg_choices, settings, offsetof(wg_load_settings, llama), key->text + length,
                            sizeof key->text - (size_t)length);
}

static bool recall(const plan_key *key, weir_engine_plan *out)
{
    bool found = false;
    pthread_mutex_lock(&remembering);
    for (size_t i = 0; i < REMEMBERED && !found; i++)
        if (strcmp(remembered[i].key.text, key->text) == 0) {
            memcpy(out->bytes, remembered[i].plan.bytes, sizeof out->bytes);
            memcpy(out->exact, remembered[i].plan.exact, sizeof out->exact);
            found = true;
        }
    pthread_mutex_unlock(&remembering);
    return found;
}

static void remember(const plan_key *key, const weir_engine_plan *plan)
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
    weir_status status = wg_prepare(load, model);
    if (status == WEIR_OK)
        status = wg_make_model(model, load, &phase, true);
    if (status == WEIR_OK)
        status = wg_make_context(model, &phase);
    return status == WEIR_OK ? measure(model, &phase, out) : status;
}

weir_status wg_plan(const weir_engine_load *load, weir_engine_plan *out)
{
    weir_engine_model model = {0};
    plan_key key;
    weir_status status = wg_read_request(load, true, &model);
    if (status != WEIR_OK)
        return status;
    bool known = make_key(load, &model, &key);
    if (known && recall(&key, out))
        return WEIR_OK;
    status = lay_out(load, &model, out);
    wg_drop(&model);
    if (status == WEIR_OK && known)
        remember(&key, out);
    return status;
}
