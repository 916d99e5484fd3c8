/* The weights of a model on the host, in the client's memory while ONNX Runtime has them (model.h). */
#include "model.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/maps.h"
#include "interpose/interpose.h"

/* ---- what is mapped ------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static wi_pointer_map mapped; /* by `base`, of all models: the first onnx_weight of a list */

static bool weights_note(onnx_weight *weight, void *base, size_t length)
{
    uint64_t first = 0;
    pthread_mutex_lock(&lock);
    (void)wi_pointer_map_get(&mapped, base, &first);
    weight->next = (onnx_weight *)(uintptr_t)first;
    bool good = wi_pointer_map_put(&mapped, base, (uintptr_t)weight);
    if (good) {
        weight->base = base;
        weight->length = length;
    }
    pthread_mutex_unlock(&lock);
    return good;
}

/* Takes out the weight that is mapped at `base`; NULL: none. `base` lies up to a page before the block, so two weights
 * may have the same base, but then different lengths. */
static onnx_weight *weights_forget(const void *base, size_t length)
{
    uint64_t first = 0;
    pthread_mutex_lock(&lock);
    (void)wi_pointer_map_get(&mapped, base, &first);
    onnx_weight *head = (onnx_weight *)(uintptr_t)first, **at = &head;
    while (*at && (*at)->length != length)
        at = &(*at)->next;
    onnx_weight *found = *at;
    if (found) {
        *at = found->next;
        found->base = NULL;
        if (head)
            (void)wi_pointer_map_put(&mapped, base, (uintptr_t)head); /* there is room: it was in there */
        else
            (void)wi_pointer_map_remove(&mapped, base, &first);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static bool weights_is_mapped(const onnx_weight *weight)
{
    pthread_mutex_lock(&lock);
    bool is = weight->base != NULL;
    pthread_mutex_unlock(&lock);
    return is;
}

/* ---- blocks --------------------------------------------------------------------------------------------------------- */

weir_status onnx_weight_place(const weir_engine_model *model, const onnx_tensor *tensor, onnx_weight *weight)
{
    weir_block block;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = tensor->bytes + ORT_SLACK,
                            .stream = WEIR_STREAM_HOST,
                            .memory_class = WEIR_CLASS_WEIGHTS,
                            .tag = weight->name};
    weir_status status = weir_alloc_with(model->client, &request, &block);
    if (status != WEIR_OK)
        return status;
    weight->client = model->client;
    weight->data = block.pointer;
    memcpy(weight->data, tensor->data, tensor->bytes);
    memset((char *)weight->data + tensor->bytes, 0, ORT_SLACK);
    return WEIR_OK;
}

static void weights_give_back(onnx_weight *weight)
{
    if (weight->data && weir_free(weight->client, weight->data, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "onnx: tensor \"%s\" could not be freed: %s", weight->name, weir_detail());
    weight->data = NULL;
}

/* ---- this thread's load --------------------------------------------------------------------------------------------- */

typedef struct loading {
    weir_engine_model *model;
    const onnx_file *file;
    const weir_engine_load *load;
    uint64_t done, total;
    weir_status status; /* of the first weight that could not be placed */
    char words[960];    /* a thread's storage stays below 1 KiB: libraries that are opened late find little room */
} loading;

static _Thread_local loading here;

static int by_end(const void *a, const void *b)
{
    const onnx_weight *x = a, *y = b;
    return (x->end > y->end) - (x->end < y->end);
}

void onnx_weights_begin(weir_engine_model *model, const onnx_file *file, const weir_engine_load *load)
{
    qsort(model->weights, model->weight_count, sizeof *model->weights, by_end);
    here = (loading){.model = model, .file = file, .load = load, .total = 1};
    for (size_t i = 0; i < model->weight_count; i++)
        here.total += model->weights[i].left ? 0 : model->weights[i].tensor->bytes;
}

weir_status onnx_weights_end(weir_engine_model *model)
{
    weir_status status = here.status;
    here.model = NULL;
    return status == WEIR_OK ? WEIR_OK : weir_fail(status, "%s", here.words[0] ? here.words : model->name);
}

static bool is_there(const onnx_weight *weight, const struct stat *file, uint64_t offset, uint64_t page)
{
    uint64_t begin = weight->end - weight->tensor->bytes;
    return weight->file->device == file->st_dev && weight->file->number == file->st_ino && begin >= offset &&
           begin - offset < page;
}

/* Finds the weight with its first byte in the first page of the mapping and its end at the end of the mapping. NULL
 * also if several such weights begin at different places in the page, as the mapping does not tell which weight is
 * meant. */
static onnx_weight *weights_find(const weir_engine_model *model, const struct stat *file, uint64_t offset,
                                 uint64_t length)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), end = offset + length, bytes = 0;
    size_t low = 0, high = model->weight_count;
    onnx_weight *found = NULL;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (model->weights[middle].end < end)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < model->weight_count && model->weights[low].end == end; low++) {
        onnx_weight *weight = &model->weights[low];
        if (!is_there(weight, file, offset, page))
            continue;
        if (bytes && weight->tensor->bytes != bytes)
            return NULL;
        bytes = weight->tensor->bytes;
        found = !found && !weights_is_mapped(weight) ? weight : found;
    }
    return found;
}

static onnx_weight *weights_wanted(int fd, uint64_t offset, size_t length)
{
    struct stat file;
    return fd >= 0 && fstat(fd, &file) == 0 ? weights_find(here.model, &file, offset, length) : NULL;
}

weir_status onnx_goes_on(const weir_engine_model *model, const weir_engine_load *load)
{
    bool asks = load->struct_size > offsetof(weir_engine_load, stops) && load->stops;
    return asks && load->stops(load->progress_user)
               ? weir_fail(WEIR_ERR_CANCELLED, "%s: its load was stopped", model->name)
               : WEIR_OK;
}

static void weights_report(uint64_t bytes)
{
    here.done += bytes;
    if (here.load->progress && here.done <= here.total)
        here.load->progress(0.1 + 0.6 * (double)here.done / (double)here.total, here.load->progress_user);
}

static void *weights_serve(onnx_weight *weight, size_t length)
{
    weir_status status = here.status == WEIR_OK ? onnx_goes_on(here.model, here.load) : here.status;
    if (status == WEIR_OK)
        status = onnx_weight_place(here.model, weight->tensor, weight);
    size_t before = length - (size_t)weight->tensor->bytes;
    void *base = status == WEIR_OK ? (void *)((uintptr_t)weight->data - before)
                                   : MAP_FAILED; // NOLINT(performance-no-int-to-ptr)
    if (status == WEIR_OK && !weights_note(weight, base, length)) {
        weights_give_back(weight);
        status = weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for its weights", here.model->name);
    }
    if (status == WEIR_OK) {
        weights_report(weight->tensor->bytes);
        return base;
    }
    if (here.status == WEIR_OK)
        snprintf(here.words, sizeof here.words, "%s", weir_detail());
    here.status = status;
    errno = ENOMEM;
    return MAP_FAILED;
}

/* ---- in place of the library's calls ---------------------------------------------------------------------------------- */

static void *on_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    onnx_weight *weight =
        here.model && !address && length && offset >= 0 ? weights_wanted(fd, (uint64_t)offset, length) : NULL;
    if (weight && !weight->left)
        return weights_serve(weight, length);
    void *base = mmap(address, length, protection, flags, fd, offset);
    if (weight && base != MAP_FAILED)
        (void)weights_note(weight, base, length);
    return base;
}

static int on_munmap(void *address, size_t length)
{
    onnx_weight *weight = weights_forget(address, length);
    if (!weight || weight->left)
        return munmap(address, length);
    weights_give_back(weight);
    return 0;
}

/* The model's own files, and their folder, were found behind all links when they were opened. */
static bool is_real(const onnx_file *file, const char *path)
{
    bool is = strcmp(path, file->folder) == 0 || strcmp(path, file->real) == 0;
    for (const onnx_side_file *side = file->sides; side && !is; side = side->next)
        is = strcmp(path, side->real) == 0;
    return is;
}

/* ONNX Runtime asks three times for each weight whether the file that it maps lies in the model's folder, with a call of the system's
 * for each folder above it, which takes 15 us a weight. */
static char *on_realpath(const char *path, char *room)
{
    if (!here.model || !path || !is_real(here.file, path))
        return realpath(path, room);
    /* The caller has PATH_MAX bytes, which such a path has been read into. */
    return room ? memcpy(room, path, strlen(path) + 1) : strndup(path, PATH_MAX);
}

/* ONNX Runtime refuses weights of branches in a file that has other names too, as that may be somebody else's. The model's own file is
 * what it was given anyway. */
static int on_stat(const char *path, struct stat *about)
{
    int answer = stat(path, about);
    if (answer == 0 && here.model && strcmp(path, here.file->real) == 0)
        about->st_nlink = 1;
    return answer;
}

/* As programs called it that were built with glibc before 2.33. */
static int on_old_stat(int version, const char *path, struct stat *about)
{
    (void)version;
    return on_stat(path, about);
}

/* ---- whose calls come here ---------------------------------------------------------------------------------------------- */

enum { LIBRARIES = 8 };

bool onnx_weights_mapped(const onnx_library *library)
{
    static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
    static struct {
        const ort_api *api;
        wi_interpose *slots; /* for good: the library stays; NULL: it maps by itself */
    } known[LIBRARIES];
    const wi_replacement calls[] = {
        {"munmap", (void (*)(void))on_munmap, true},      {"mmap", (void (*)(void))on_mmap, true},
        {"realpath", (void (*)(void))on_realpath, false}, {"stat", (void (*)(void))on_stat, false},
        {"stat64", (void (*)(void))on_stat, false},       {"__xstat", (void (*)(void))on_old_stat, false},
        {"__xstat64", (void (*)(void))on_old_stat, false}};
    size_t i = 0;
    pthread_mutex_lock(&asking);
    while (i < LIBRARIES && known[i].api && known[i].api != library->api)
        i++;
    bool good = i < LIBRARIES && known[i].slots;
    if (i < LIBRARIES && !known[i].api) {
        wi_interpose *slots = NULL;
        good = wi_interpose_open(library->path, calls, sizeof calls / sizeof *calls, &slots) == WEIR_OK &&
               wi_interpose_apply(slots) == WEIR_OK;
        known[i].api = library->api;
        known[i].slots = good ? slots : NULL;
        if (!good) {
            weir_log(WEIR_LOG_INFO, "onnx: %s maps weights by itself: %s", library->path, weir_detail());
            (void)wi_interpose_close(slots);
        }
    }
    pthread_mutex_unlock(&asking);
    return good;
}

/* ---- of a model ----------------------------------------------------------------------------------------------------------- */

size_t onnx_weights_settle(weir_engine_model *model, uint64_t *gone)
{
    size_t left = 0;
    *gone = 0;
    for (size_t i = 0; i < model->weight_count; i++) {
        onnx_weight *weight = &model->weights[i];
        bool still = weight->left && weights_is_mapped(weight);
        if (still)
            *weight->left = false;
        left += still;
        *gone += weights_is_mapped(weight) ? 0 : weight->tensor->bytes;
        weight->tensor = NULL;
        weight->file = NULL;
    }
    return left;
}

void onnx_weights_free(weir_engine_model *model)
{
    bool all = true;
    for (size_t i = 0; model->weights && i < model->weight_count; i++) {
        onnx_weight *weight = &model->weights[i];
        if (weight->value)
            model->library->api->ReleaseValue(weight->value);
        weight->value = NULL;
        if (weights_is_mapped(weight)) { /* a later munmap finds the weight here */
            weir_log(WEIR_LOG_WARNING, "onnx: ONNX Runtime still has tensor \"%s\" mapped, which stays", weight->name);
            all = false;
            continue;
        }
        weights_give_back(weight);
        free(weight->name);
    }
    if (all)
        free(model->weights);
    model->weights = NULL;
    model->weight_count = 0;
}
