/* cache.c: an elastic KV cache: memory behind the cells that sequences use, and none behind the others. The KV cache
 * grows in `wg_cache_grow` and shrinks in `wg_cache_shrink`.
 *
 * llama.cpp makes its cache whole, as one buffer on each device. Here that buffer is an elastic block (weir/elastic.h):
 * before a decode the pages behind the cells that it writes are committed. Attention reads cells that were never
 * written, too, because it goes in steps of 256 cells and over all sequences alike. Attention masks these cells, so
 * unused pages may lie behind the cells.
 *
 * A sequence of n tokens is in the first n cells of its stream: sequences only grow at their end and are shortened from
 * there. That is so for tensors with a row for each cell of the context. Everything else in the buffer is committed from
 * the start: V where it is transposed (without flash attention), windows with fewer cells than the context, states of
 * recurrent layers.
 *
 * Pages are exchanged while the device is idle, between two decodes: a kernel may look at any cell of the cache. Pages
 * of sequences that are gone stay until somebody needs memory, or until the model has nothing to do. */
#include "wg.h"

#include <weir/elastic.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A tensor of the cache in its buffer. */
typedef struct rows {
    size_t at, row, stream; /* bytes: where it begins, from cell to cell, from stream to stream */
    uint32_t cells, streams;
    size_t bytes;
    bool whole;
} rows;

typedef struct piece {
    weir_elastic *memory;
    char *base;
    size_t bytes, page;
    rows *tensors;
    size_t count;
    enum ggml_status (*init_tensor)(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor);
    ggml_backend_buffer_t buffer; /* NULL while it is being made */
    weir_client *client;
    wi_cuda_source source;
    bool taken; /* the redirect took the memory, and gives it back */
    struct wg_cache *cache;
    struct piece *next;
} piece;

/* `cells`: cells that a sequence uses; `covered`: cells of the sequence whose pages are committed; `ahead`: number of
 * tensors whose page behind the covered cells is committed. The computing thread changes these arrays, with the lock;
 * other threads give pages up, with the lock and not during a decode. */
struct wg_cache {
    weir_engine_model *model;
    pthread_mutex_t lock;
    pthread_cond_t quiet;
    piece *pieces;
    bool computing;
    uint64_t decodes;
    bool broken;        /* no host memory for a tensor's record: all is committed */
    pthread_t computer; /* while it computes */
    uint32_t cells[WG_MOST_SEQUENCES], covered[WG_MOST_SEQUENCES], ahead[WG_MOST_SEQUENCES];
    uint32_t barred[WG_MOST_SEQUENCES];     /* pages behind so many cells were refused when nobody needed them yet */
    weir_runtime *runtimes[WG_DEVICES + 1]; /* whose requests ask for pages */
    wt_listener *listeners[WG_DEVICES + 1];
    size_t listener_count;
};

enum { SPARE_STEPS = 8 };

/* ---- making ------------------------------------------------------------------------------------------------------ */

bool wg_cache_wanted(const weir_engine_model *model)
{
    return strcasecmp(model->load.cache_memory, "whole") != 0;
}

bool wg_cache_grows(const weir_engine_model *model)
{
    return wg_cache_wanted(model) && strcasecmp(model->load.cache_memory, "promised") != 0;
}

static struct wg_cache *gguf_cache_of(weir_engine_model *model)
{
    if (!model->cache) {
        model->cache = calloc(1, sizeof *model->cache);
        if (!model->cache)
            return NULL;
        model->cache->model = model;
        pthread_mutex_init(&model->cache->lock, NULL);
        pthread_cond_init(&model->cache->quiet, NULL);
    }
    return model->cache;
}

static weir_status make_memory(piece *it, size_t bytes)
{
    weir_elastic_options options = WEIR_INIT(weir_elastic_options);
    weir_elastic_stats about = WEIR_INIT(weir_elastic_stats);
    options.bytes = bytes;
    options.memory_class = WEIR_CLASS_KV;
    options.tag = "KV cache";
    options.promised = strcasecmp(it->cache->model->load.cache_memory, "promised") == 0;
    weir_status status = weir_elastic_create(it->client, &options, &it->memory);
    if (status != WEIR_OK)
        return status;
    status = weir_elastic_info(it->memory, &about);
    it->base = about.base;
    it->bytes = bytes;
    it->page = about.page;
    return status;
}

static void end_piece(piece *it)
{
    if (it->memory && weir_elastic_destroy(it->memory, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "gguf: a KV cache could not be given back: %s", weir_detail());
    free(it->tensors);
    free(it);
}

/* Another model's thread does this, too, when a capture of its has ended. */
static void forget_piece(piece *it)
{
    pthread_mutex_lock(&it->cache->lock);
    piece **at = &it->cache->pieces;
    while (*at && *at != it)
        at = &(*at)->next;
    if (*at)
        *at = it->next;
    pthread_mutex_unlock(&it->cache->lock);
    end_piece(it);
}

static piece *new_piece(weir_engine_model *model, weir_client *client)
{
    struct wg_cache *cache = gguf_cache_of(model);
    piece *it = cache ? calloc(1, sizeof *it) : NULL;
    if (!it)
        return NULL;
    it->cache = cache;
    it->client = client;
    pthread_mutex_lock(&cache->lock);
    it->next = cache->pieces;
    cache->pieces = it;
    pthread_mutex_unlock(&cache->lock);
    return it;
}

static piece *cache_piece_of(const struct wg_cache *cache, const void *address)
{
    for (piece *it = cache->pieces; it; it = it->next)
        if ((const char *)address >= it->base && (const char *)address < it->base + it->bytes)
            return it;
    return NULL;
}

static bool has_rows(const weir_engine_model *model, const struct ggml_tensor *tensor)
{
    bool v = strncmp(tensor->name, "cache_v_l", 9) == 0, k = strncmp(tensor->name, "cache_k_l", 9) == 0;
    bool transposed = v && strcasecmp(model->load.flash_attention, "off") == 0;
    transposed |= v && strcmp(model->facts.architecture, "grok") == 0; /* llama.cpp runs grok without flash attention */
    return (k || v) && !transposed && (uint64_t)tensor->ne[1] >= model->longest && tensor->ne[3] == 1;
}

static void cache_note(piece *it, const struct ggml_tensor *tensor)
{
    rows *grown = realloc(it->tensors, (it->count + 1) * sizeof *grown);
    if (!grown) {
        it->cache->broken = true;
        return;
    }
    it->tensors = grown;
    it->tensors[it->count++] = (rows){.at = (size_t)((char *)tensor->data - it->base),
                                      .row = tensor->nb[1],
                                      .stream = tensor->nb[2],
                                      .cells = (uint32_t)tensor->ne[1],
                                      .streams = (uint32_t)tensor->ne[2],
                                      .bytes = it->cache->model->library->ggml_nbytes(tensor),
                                      .whole = !has_rows(it->cache->model, tensor)};
}

/* ggml calls with the buffer alone, on a thread that is at work for the model. */
static enum ggml_status cache_note_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor)
{
    weir_engine_model *model = wg_phase_model();
    piece *it = model && model->cache ? cache_piece_of(model->cache, tensor->data) : NULL;
    if (it && !tensor->view_src)
        cache_note(it, tensor);
    return it && it->init_tensor ? it->init_tensor(buffer, tensor) : GGML_STATUS_SUCCESS;
}

/* The cache is cleared when it is made, and only then: nothing is there yet. */
static void clear_on_host(ggml_backend_buffer_t buffer, uint8_t value)
{
    (void)buffer, (void)value;
}

/* Frees a buffer of the cache on the host. Its context is being freed, so that no decode uses the buffer. */
static void free_on_host(ggml_backend_buffer_t buffer)
{
    weir_engine_model *model = wg_phase_model();
    for (piece *it = model && model->cache ? model->cache->pieces : NULL; it; it = it->next)
        if (it->buffer == buffer) {
            forget_piece(it);
            return;
        }
}

/* A piece with its memory. WEIR_ERR_UNSUPPORTED where the device cannot map memory: the cache is whole there. */
static weir_status make_piece(weir_engine_model *model, weir_client *client, size_t bytes, piece **out)
{
    piece *it = *out = new_piece(model, client);
    if (!it)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the list of a KV cache");
    weir_status status = make_memory(it, bytes);
    if (status != WEIR_OK)
        forget_piece(it);
    return status;
}

weir_status wg_cache_on_host(weir_engine_model *model, ggml_backend_buffer_type_t type, size_t bytes,
                             ggml_backend_buffer_t *out)
{
    piece *it;
    weir_status status = make_piece(model, model->devices.host, bytes, &it);
    if (status != WEIR_OK)
        return status;
    it->buffer = model->library->ggml_backend_cpu_buffer_from_ptr(it->base, bytes);
    it->buffer->buft = type;
    it->buffer->iface.free_buffer = free_on_host;
    it->buffer->iface.init_tensor = cache_note_tensor;
    it->buffer->iface.clear = clear_on_host;
    *out = it->buffer;
    return WEIR_OK;
}

static weir_status take_on_device(void *user, size_t bytes, void **pointer)
{
    piece *it = user;
    if (bytes > it->bytes)
        return weir_fail(WEIR_ERR_ENGINE, "a KV cache of %zu bytes asks for %zu", it->bytes, bytes);
    *pointer = it->base;
    it->taken = true;
    return WEIR_OK;
}

/* If making the buffer fails, its piece stays until the model is dropped. */
static void give_back_on_device(void *user, void *pointer)
{
    piece *it = user;
    (void)pointer;
    pthread_mutex_lock(&it->cache->lock);
    it->taken = false;
    pthread_mutex_unlock(&it->cache->lock);
    if (it->buffer)
        forget_piece(it);
}

weir_status wg_cache_on_device(weir_engine_model *model, weir_client *client, size_t bytes, const wi_cuda_source **out)
{
    piece *it;
    weir_status status = make_piece(model, client, bytes, &it);
    if (status != WEIR_OK)
        return status;
    it->source = (wi_cuda_source){take_on_device, give_back_on_device, it};
    *out = &it->source;
    return WEIR_OK;
}

/* The memory of a buffer that could not be made goes with the model. */
void wg_cache_made(const wi_cuda_source *source, ggml_backend_buffer_t buffer)
{
    piece *it = source->user;
    if (!buffer)
        return;
    it->buffer = buffer;
    it->init_tensor = buffer->iface.init_tensor;
    buffer->iface.init_tensor = cache_note_tensor;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static size_t begin_of(const rows *tensor, uint32_t stream)
{
    return tensor->at + stream * tensor->stream;
}

static uint32_t cache_stream_of(const rows *tensor, int32_t sequence)
{
    return (uint32_t)sequence < tensor->streams ? (uint32_t)sequence : 0;
}

static weir_status cache_commit(piece *it, const rows *tensor, int32_t sequence, uint32_t cells)
{
    cells = cells < tensor->cells ? cells : tensor->cells;
    return weir_elastic_commit(it->memory, begin_of(tensor, cache_stream_of(tensor, sequence)), cells * tensor->row,
                               WEIR_STREAM_HOST);
}

/* How many cells the pages behind the first `cells` hold. */
static uint32_t covered_by(const piece *it, const rows *tensor, int32_t sequence, uint32_t cells)
{
    size_t begin = begin_of(tensor, cache_stream_of(tensor, sequence)), end = begin + cells * tensor->row;
    end = cells ? (end + it->page - 1) / it->page * it->page : begin;
    size_t whole = (end - begin) / tensor->row;
    return whole < tensor->cells ? (uint32_t)whole : tensor->cells;
}

static uint32_t covered_of(const struct wg_cache *cache, int32_t sequence, uint32_t cells)
{
    uint32_t least = UINT32_MAX;
    for (const piece *it = cache->pieces; it; it = it->next)
        for (size_t i = 0; i < it->count; i++)
            if (!it->tensors[i].whole) {
                uint32_t here = covered_by(it, &it->tensors[i], sequence, cells);
                least = here < least ? here : least;
            }
    return least;
}

static void need(const piece *it, size_t begin, size_t end, unsigned char *pages)
{
    for (size_t page = begin / it->page; begin < end && page <= (end - 1) / it->page; page++)
        pages[page] = 1;
}

/* Which pages the sequences use; NULL without host memory. */
static unsigned char *needed_pages(const struct wg_cache *cache, const piece *it)
{
    unsigned char *pages = calloc(it->bytes / it->page + 1, 1);
    for (size_t i = 0; pages && i < it->count; i++) {
        const rows *tensor = &it->tensors[i];
        if (tensor->whole)
            need(it, tensor->at, tensor->at + tensor->bytes, pages);
        for (uint32_t s = 0; !tensor->whole && s < WG_MOST_SEQUENCES; s++) {
            size_t begin = begin_of(tensor, cache_stream_of(tensor, (int32_t)s));
            uint32_t cells = cache->cells[s] < tensor->cells ? cache->cells[s] : tensor->cells;
            need(it, begin, begin + cells * tensor->row, pages);
        }
    }
    return pages;
}

static void release_range(piece *it, size_t first, size_t past)
{
    if (weir_elastic_release(it->memory, first * it->page, (past - first) * it->page, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_ERROR, "gguf: pages of a KV cache could not be given back: %s", weir_detail());
}

/* Releases the pages not used by any sequence. Called with the lock held and no decode under way. */
static void release_unused(struct wg_cache *cache)
{
    for (piece *it = cache->pieces; it && !cache->broken; it = it->next) {
        unsigned char *pages = needed_pages(cache, it);
        size_t count = (it->bytes + it->page - 1) / it->page;
        for (size_t first = 0; pages && first < count;) {
            size_t past = first;
            while (past < count && !pages[past])
                past++;
            if (past > first)
                release_range(it, first, past);
            first = past + 1;
        }
        free(pages);
    }
    for (int32_t s = 0; s < WG_MOST_SEQUENCES; s++) {
        cache->covered[s] = covered_of(cache, s, cache->cells[s]);
        cache->ahead[s] = cache->barred[s] = 0;
    }
}

/* ---- others need memory ------------------------------------------------------------------------------------------ */

/* Releases unused pages when another client needs memory. Waits at most A_DECODE_MS for a decode, because two computing
 * threads may ask each other; does not wait when the computing thread itself asks. */
static void cache_give_up(void *user)
{
    enum { A_DECODE_MS = 100 };
    struct wg_cache *cache = user;
    struct timespec until = wt_soon(A_DECODE_MS);
    int waited = 0;
    pthread_mutex_lock(&cache->lock);
    while (cache->computing && !pthread_equal(cache->computer, pthread_self()) && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&cache->quiet, &cache->lock, &until);
    if (!cache->computing)
        release_unused(cache);
    pthread_mutex_unlock(&cache->lock);
}

static weir_status listen_to(struct wg_cache *cache, weir_client *client)
{
    weir_runtime *runtime = weir_client_runtime(client);
    for (size_t i = 0; i < cache->listener_count; i++)
        if (cache->runtimes[i] == runtime)
            return WEIR_OK;
    weir_status status = wt_listener_begin(runtime, cache_give_up, cache, &cache->listeners[cache->listener_count]);
    if (status == WEIR_OK)
        cache->runtimes[cache->listener_count++] = runtime;
    return status;
}

weir_status wg_cache_settle(weir_engine_model *model)
{
    struct wg_cache *cache = model->cache;
    weir_status status = WEIR_OK;
    for (piece *it = cache ? cache->pieces : NULL; it && status == WEIR_OK; it = it->next) {
        if (cache->broken)
            status = weir_elastic_commit(it->memory, 0, it->bytes, WEIR_STREAM_HOST);
        for (size_t i = 0; i < it->count && status == WEIR_OK; i++)
            if (it->tensors[i].whole)
                status = weir_elastic_commit(it->memory, it->tensors[i].at, it->tensors[i].bytes, WEIR_STREAM_HOST);
        if (status == WEIR_OK)
            status = listen_to(cache, it->client);
    }
    return status;
}

void wg_cache_silence(weir_engine_model *model)
{
    struct wg_cache *cache = model->cache;
    for (size_t i = 0; cache && i < cache->listener_count; i++)
        wt_listener_end(cache->listeners[i]);
    if (cache)
        cache->listener_count = 0;
}

/* Finds a piece that the redirect does not have: the piece of a buffer that could not be made. NULL if no piece is
 * left. */
static piece *piece_to_forget(struct wg_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    piece *it = cache->pieces;
    while (it && it->taken)
        it = it->next;
    pthread_mutex_unlock(&cache->lock);
    return it;
}

void wg_cache_drop(weir_engine_model *model)
{
    struct wg_cache *cache = model->cache;
    if (!cache)
        return;
    model->cache = NULL;
    for (piece *it; (it = piece_to_forget(cache));)
        forget_piece(it);
    if (cache->pieces) {
        weir_log(WEIR_LOG_ERROR, "gguf: a KV cache stays, as llama.cpp has not given it back");
        return; /* a buffer that is freed later still finds the cache */
    }
    pthread_cond_destroy(&cache->quiet);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

/* ---- growing ----------------------------------------------------------------------------------------------------- */

static weir_status commit_all(struct wg_cache *cache, int32_t sequence, uint32_t cells)
{
    weir_status status = WEIR_OK;
    for (piece *it = cache->pieces; it && status == WEIR_OK; it = it->next)
        for (size_t i = 0; i < it->count && status == WEIR_OK; i++)
            if (!it->tensors[i].whole)
                status = cache_commit(it, &it->tensors[i], sequence, cells);
    return status;
}

weir_status wg_cache_grow(weir_engine_model *model, int32_t sequence, uint32_t cells)
{
    struct wg_cache *cache = model->cache;
    if (!cache || cache->broken)
        return WEIR_OK;
    pthread_mutex_lock(&cache->lock);
    uint32_t before = cache->cells[sequence];
    cache->cells[sequence] = cells > before ? cells : before;
    bool there = cells <= cache->covered[sequence];
    pthread_mutex_unlock(&cache->lock);
    if (there)
        return WEIR_OK;
    weir_status status = commit_all(cache, sequence, cells);
    pthread_mutex_lock(&cache->lock);
    cache->cells[sequence] = status == WEIR_OK ? cache->cells[sequence] : before;
    cache->covered[sequence] = covered_of(cache, sequence, cache->cells[sequence]);
    cache->ahead[sequence] = cache->barred[sequence] = 0;
    pthread_mutex_unlock(&cache->lock);
    return status;
}

/* A page more for one tensor of the sequence, so that no decode has to wait for all of them. */
static void look_ahead(struct wg_cache *cache, int32_t sequence)
{
    uint32_t place = cache->ahead[sequence], cells = cache->covered[sequence] + 1;
    for (piece *it = cache->pieces; it; it = it->next)
        for (size_t i = 0; i < it->count; i++) {
            if (it->tensors[i].whole || place-- > 0)
                continue;
            if (cache_commit(it, &it->tensors[i], sequence, cells) == WEIR_OK)
                cache->ahead[sequence]++;
            else
                cache->barred[sequence] = cache->covered[sequence];
            return;
        }
    cache->covered[sequence] = covered_of(cache, sequence, cells);
    cache->ahead[sequence] = 0;
}

/* A token, and so a page, each step: begun early enough that all tensors have theirs when the last cell is used. */
static bool is_near_its_end(const struct wg_cache *cache, int32_t sequence)
{
    uint32_t cells = cache->cells[sequence], covered = cache->covered[sequence], steps = SPARE_STEPS;
    if (cells == 0 || covered >= cache->model->longest || covered == cache->barred[sequence])
        return false;
    for (const piece *it = cache->pieces; it; it = it->next)
        steps += (uint32_t)it->count;
    return cells + steps >= covered;
}

void wg_cache_begin(weir_engine_model *model)
{
    struct wg_cache *cache = model->cache;
    if (!cache)
        return;
    pthread_mutex_lock(&cache->lock);
    cache->computing = true;
    cache->computer = pthread_self();
    pthread_mutex_unlock(&cache->lock);
}

/* That nothing was written where there is no memory. It takes milliseconds. */
static void cache_check(struct wg_cache *cache)
{
#ifdef WEIR_INVARIANTS
    enum { EVERY = 64 };
    bool due = cache->decodes++ % EVERY == 0;
    for (const piece *it = cache->pieces; due && it; it = it->next)
        if (weir_elastic_check(it->memory) != WEIR_OK) {
            weir_log(WEIR_LOG_ERROR, "gguf: cells without memory were written: %s", weir_detail());
            abort();
        }
#else
    (void)cache;
#endif
}

void wg_cache_end(weir_engine_model *model)
{
    struct wg_cache *cache = model->cache;
    if (!cache)
        return;
    model->library->llama_synchronize(model->context);
    cache_check(cache);
    for (int32_t s = 0; s < WG_MOST_SEQUENCES && !cache->broken; s++)
        if (is_near_its_end(cache, s))
            look_ahead(cache, s);
    pthread_mutex_lock(&cache->lock);
    cache->computing = false;
    pthread_cond_broadcast(&cache->quiet);
    pthread_mutex_unlock(&cache->lock);
}

void wg_cache_shrink(weir_engine_model *model, int32_t sequence, uint32_t cells)
{
    struct wg_cache *cache = model->cache;
    if (!cache)
        return;
    pthread_mutex_lock(&cache->lock);
    if (cells < cache->cells[sequence])
        cache->cells[sequence] = cells;
    pthread_mutex_unlock(&cache->lock);
}

static uint64_t cache_committed(const struct wg_cache *cache)
{
    uint64_t bytes = 0;
    for (const piece *it = cache->pieces; it; it = it->next) {
        weir_elastic_stats now = WEIR_INIT(weir_elastic_stats);
        bytes += weir_elastic_info(it->memory, &now) == WEIR_OK ? now.committed : 0;
    }
    return bytes;
}

/* The next run has the first sequence, and finds its first page there. */
uint64_t wg_cache_rest(weir_engine_model *model, bool all)
{
    struct wg_cache *cache = model->cache;
    uint64_t before = 0, after = 0;
    if (!cache)
        return 0;
    pthread_mutex_lock(&cache->lock);
    if (!cache->computing) {
        uint32_t first = cache->cells[0];
        before = cache_committed(cache);
        cache->cells[0] = first || all ? first : 1;
        release_unused(cache);
        cache->covered[0] = first || all ? cache->covered[0] : covered_of(cache, 0, 0);
        cache->cells[0] = first;
        after = cache_committed(cache);
    }
    pthread_mutex_unlock(&cache->lock);
    return before - after;
}
