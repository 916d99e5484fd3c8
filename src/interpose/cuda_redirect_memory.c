/* What the module asks of memory; see cuda_redirect.h. */
#include "interpose/cuda_redirect_parts.h"

#include <stdio.h>
#include <time.h>

/* Taking ----------------------------------------------------------------------------------------------------------- */

static int cuda_redirect_memory_refuse(wi_cuda_redirect *r, wi_cuda_scope *scope, weir_client *client,
                                       const weir_request *request, weir_status status)
{
    wi_saved_detail why; /* the log's function may call weir */
    snprintf(why.text, sizeof why.text, "%s", weir_detail());
    atomic_fetch_add(&r->refused, 1);
    if (scope && request->kind == WEIR_KIND_DEVICE) {
        scope->refused++;
        scope->status = status;
        snprintf(scope->refusal, sizeof scope->refusal, "%s", why.text);
    }
    pthread_mutex_lock(&r->lock);
    snprintf(r->refusal, sizeof r->refusal, "%s", why.text);
    pthread_mutex_unlock(&r->lock);
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    bool told = weir_runtime_info(weir_client_runtime(client), &its) == WEIR_OK;
    weir_log(WEIR_LOG_WARNING, "%s asked %s for %zu bytes of %s memory: %s", wi_interpose_module(r->interpose),
             told ? its.device : "weir", request->bytes, weir_name_of(WEIR_NAMES_KIND, request->kind), why.text);
    return wi_cuda_fail(r, CUDA_MEMORY_ALLOCATION);
}

/* The block is the module's from now on; false without host memory. */
static bool cuda_redirect_memory_enlist(wi_cuda_redirect *r, wi_cuda_block *block)
{
    pthread_mutex_lock(&r->lock);
    bool listed = wi_pointer_map_put(&r->blocks, block->pointer, (uintptr_t)block);
    if (listed) {
        r->live[block->kind]++;
        r->live_bytes[block->kind] += block->bytes;
    }
    if (listed && block->granted) {
        r->overrun_bytes += block->bytes;
        block->next = r->granted_blocks;
        r->granted_blocks = block;
    }
    pthread_mutex_unlock(&r->lock);
    return listed;
}

/* With the lock held. */
static void forget_granted(wi_cuda_redirect *r, const wi_cuda_block *block)
{
    wi_cuda_block **at = &r->granted_blocks;
    while (*at != block)
        at = &(*at)->next;
    *at = block->next;
    r->overrun_bytes -= block->bytes;
}

uint64_t wi_cuda_redirect_overrun(wi_cuda_redirect *r, const weir_client *client)
{
    uint64_t sum = 0;
    pthread_mutex_lock(&r->lock);
    for (const wi_cuda_block *it = r->granted_blocks; it; it = it->next)
        sum += it->client == client ? it->bytes : 0;
    pthread_mutex_unlock(&r->lock);
    return sum;
}

static uint64_t cuda_redirect_memory_clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* What waits for other threads' captures may be just what is missing, and modules do not survive each refusal: so it is
 * asked for again when some of it has been freed, and waited for a while, as long as weir waits for pending frees. */
static weir_status cuda_redirect_memory_allocate(wi_cuda_redirect *r, weir_client *client, const weir_request *request,
                                                 void **out)
{
    enum { MOST_MS = 1000 };
    bool may_wait = !(request->flags & WEIR_ALLOC_NO_WAIT);
    uint64_t seen = atomic_load(&r->frees), until = cuda_redirect_memory_clock_ms() + MOST_MS;
    weir_block block;
    weir_status status = weir_alloc_with(client, request, &block);
    for (int i = 0; status == WEIR_ERR_OUT_OF_MEMORY && cuda_redirect_memory_clock_ms() < until; i++) {
        bool waits = atomic_load(&r->waiting) > 0;
        wi_cuda_free_waiting(r);
        uint64_t now = atomic_load(&r->frees);
        if (now == seen && !(waits && may_wait))
            break;
        if (now == seen)
            wi_cuda_yield(i);
        else
            status = weir_alloc_with(client, request, &block);
        seen = now;
    }
    *out = status == WEIR_OK ? block.pointer : NULL;
    return status;
}

static weir_status no_record(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the record of a block");
}

/* Where the block's memory comes from, and where it goes. */
static weir_status find_memory(wi_cuda_redirect *r, const weir_request *request, wi_cuda_block *block)
{
    if (block->source.take)
        return block->source.take(block->source.user, block->bytes, &block->pointer);
    if (!block->granted)
        return cuda_redirect_memory_allocate(r, block->client, request, &block->pointer);
    int error = wi_real(r, cudaMalloc)(&block->pointer, block->bytes);
    return error == CUDA_OK ? WEIR_OK : weir_fail(WEIR_ERR_DRIVER, "cudaMalloc answered %d", error);
}

static weir_status give_memory_back(wi_cuda_redirect *r, const wi_cuda_block *block)
{
    if (block->source.give_back)
        block->source.give_back(block->source.user, block->pointer);
    else if (!block->granted)
        return weir_free(block->client, block->pointer, WEIR_STREAM_HOST);
    else if (wi_real(r, cudaFree)(block->pointer) != CUDA_OK)
        weir_log(WEIR_LOG_ERROR, "CUDA did not take %p back", block->pointer);
    return WEIR_OK;
}

static weir_status cuda_redirect_memory_take(wi_cuda_redirect *r, const weir_request *request,
                                             const wi_cuda_block *like, void **out)
{
    wi_cuda_block *block = malloc(sizeof *block);
    if (!block)
        return no_record();
    *block = *like;
    weir_status status = find_memory(r, request, block);
    if (status == WEIR_OK && !cuda_redirect_memory_enlist(r, block)) {
        if (give_memory_back(r, block) != WEIR_OK)
            weir_log(WEIR_LOG_ERROR, "%p stays: %s", block->pointer, weir_detail());
        status = no_record();
    }
    if (status != WEIR_OK) {
        free(block);
        return status;
    }
    atomic_fetch_add(&r->allocations, 1);
    *out = block->pointer;
    return WEIR_OK;
}

/* CUDA grants it past the budget. False: the scope does not ask for that, or the device has no more either; the
 * detail is that of weir's refusal. */
static bool overrun(wi_cuda_redirect *r, wi_cuda_scope *scope, const weir_request *request, wi_cuda_block *like,
                    weir_status refusal, void **out)
{
    wi_saved_detail why;
    like->granted = true;
    snprintf(why.text, sizeof why.text, "%s", weir_detail());
    if (!scope || !scope->overruns || request->kind != WEIR_KIND_DEVICE ||
        cuda_redirect_memory_take(r, request, like, out) != WEIR_OK) {
        (void)weir_fail(refusal, "%s", why.text);
        return false;
    }
    scope->overrun += request->bytes;
    atomic_fetch_add(&r->overruns, 1);
    weir_log(WEIR_LOG_WARNING, "%s cannot be refused %zu bytes and got them from CUDA, past the budget: %s",
             wi_interpose_module(r->interpose), request->bytes, why.text);
    return true;
}

/* A thread that captures waits for nothing. */
static int serve_request(wi_cuda_redirect *r, weir_client *client, weir_request *request, bool managed, void **out)
{
    wi_cuda_scope *scope = wi_cuda_scope_of(r);
    wi_cuda_block like = {.client = client, .bytes = request->bytes, .kind = request->kind, .managed = managed};
    if (scope && scope->source && request->kind == WEIR_KIND_DEVICE)
        like.source = *scope->source;
    if (atomic_load(&r->waiting) > 0)
        wi_cuda_free_waiting(r);
    request->flags = wi_cuda_captures_here(r) ? WEIR_ALLOC_NO_WAIT : 0;
    weir_status status = cuda_redirect_memory_take(r, request, &like, out);
    if (status == WEIR_ERR_OUT_OF_MEMORY && request->reservation) {
        request->reservation = NULL;
        status = cuda_redirect_memory_take(r, request, &like, out);
    }
    if (status == WEIR_OK || overrun(r, scope, request, &like, status, out))
        return CUDA_OK;
    return cuda_redirect_memory_refuse(r, scope, client, request, status);
}

/* Whether the request is weir's; *result is the answer then. */
static bool cuda_redirect_memory_serve(wi_cuda_redirect *r, void **out, size_t bytes, weir_kind kind, bool managed,
                                       int *result)
{
    weir_request request = {.struct_size = sizeof request, .bytes = bytes, .stream = WEIR_STREAM_HOST, .kind = kind};
    weir_client *client;
    bool passes = kind == WEIR_KIND_PINNED && !managed && r->pinned_passes;
    bool entered = wi_cuda_enter(r);
    bool ours = entered && !passes && wi_cuda_request(r, wi_cuda_device(r), &client, &request);
    if (kind != WEIR_KIND_DEVICE)
        request.reservation = NULL;
    if (!ours) {
        atomic_fetch_add(&r->passed_on, 1);
    } else if (!out) {
        *result = wi_cuda_fail(r, CUDA_INVALID_VALUE);
    } else if (bytes == 0) {
        *out = NULL;
        *result = CUDA_OK;
    } else {
        *result = serve_request(r, client, &request, managed, out);
    }
    if (entered)
        wi_cuda_leave(r);
    return ours;
}

int wi_on_cudaMalloc(wi_cuda_redirect *r, void **out, size_t bytes)
{
    int result;
    return cuda_redirect_memory_serve(r, out, bytes, WEIR_KIND_DEVICE, false, &result)
               ? result
               : wi_real(r, cudaMalloc)(out, bytes);
}

int wi_on_cudaMallocHost(wi_cuda_redirect *r, void **out, size_t bytes)
{
    int result;
    return cuda_redirect_memory_serve(r, out, bytes, WEIR_KIND_PINNED, false, &result)
               ? result
               : wi_real(r, cudaMallocHost)(out, bytes);
}

/* What the flags ask for is so of all pinned memory of weir's, but that it is never write-combined, which only speeds
 * things up. */
int wi_on_cudaHostAlloc(wi_cuda_redirect *r, void **out, size_t bytes, unsigned flags)
{
    int result;
    if (flags & ~(unsigned)CUDA_HOST_ALLOC_FLAGS)
        return wi_real(r, cudaHostAlloc)(out, bytes, flags); /* which says what is wrong */
    return cuda_redirect_memory_serve(r, out, bytes, WEIR_KIND_PINNED, false, &result)
               ? result
               : wi_real(r, cudaHostAlloc)(out, bytes, flags);
}

int wi_on_cudaMallocManaged(wi_cuda_redirect *r, void **out, size_t bytes, unsigned flags)
{
    int result;
    weir_kind kind = r->managed_on_device ? WEIR_KIND_DEVICE : WEIR_KIND_PINNED;
    if (flags != CUDA_MANAGED_GLOBAL && flags != CUDA_MANAGED_HOST)
        return wi_real(r, cudaMallocManaged)(out, bytes, flags);
    return cuda_redirect_memory_serve(r, out, bytes, kind, true, &result)
               ? result
               : wi_real(r, cudaMallocManaged)(out, bytes, flags);
}

/* Freeing ---------------------------------------------------------------------------------------------------------- */

static uint64_t rounds_of(wi_cuda_redirect *r)
{
    pthread_mutex_lock(&r->lock);
    uint64_t rounds = r->rounds;
    pthread_mutex_unlock(&r->lock);
    return rounds;
}

/* The block waits for the next end of a capture or a stream. False: the blocks that wait have been looked at since `rounds`, so
 * that the end which this one met may be over already. */
static bool wait_for_end(wi_cuda_redirect *r, wi_cuda_block *block, uint64_t rounds)
{
    pthread_mutex_lock(&r->lock);
    bool waits = r->rounds == rounds;
    if (waits) {
        block->next = r->waiting_blocks;
        r->waiting_blocks = block;
        if (!block->waits)
            atomic_fetch_add(&r->waiting, 1);
        block->waits = true;
    }
    pthread_mutex_unlock(&r->lock);
    return waits;
}

/* CUDA's own free waits for the device. */
static weir_status cuda_redirect_memory_give_back(wi_cuda_redirect *r, wi_cuda_block *block)
{
    weir_status status = block->granted ? WEIR_OK : wi_cuda_order_free(r, block);
    return status == WEIR_OK ? give_memory_back(r, block) : status;
}

/* Frees the block, which is in the calling thread's hands, or has it wait. */
static void cuda_redirect_memory_release(wi_cuda_redirect *r, wi_cuda_block *block)
{
    uint64_t rounds = rounds_of(r);
    for (weir_status status; (status = cuda_redirect_memory_give_back(r, block)) != WEIR_OK; rounds = rounds_of(r)) {
        if (status != WEIR_ERR_STREAM_MISUSE)
            weir_log(WEIR_LOG_WARNING, "%p, which %s freed, waits: %s", block->pointer,
                     wi_interpose_module(r->interpose), weir_detail());
        if (wait_for_end(r, block, rounds))
            return;
    }
    atomic_fetch_add(&r->frees, 1);
    pthread_mutex_lock(&r->lock);
    r->live[block->kind]--;
    r->live_bytes[block->kind] -= block->bytes;
    if (block->granted)
        forget_granted(r, block);
    if (block->waits)
        atomic_fetch_sub(&r->waiting, 1);
    pthread_mutex_unlock(&r->lock);
    free(block);
}

void wi_cuda_free_waiting(wi_cuda_redirect *r)
{
    pthread_mutex_lock(&r->lock);
    wi_cuda_block *next = r->waiting_blocks;
    r->waiting_blocks = NULL;
    r->rounds++;
    pthread_mutex_unlock(&r->lock);
    while (next) {
        wi_cuda_block *block = next;
        next = block->next;
        cuda_redirect_memory_release(r, block);
    }
}

bool wi_cuda_redirect_settle(wi_cuda_redirect *r, uint32_t most_ms)
{
    uint64_t until = cuda_redirect_memory_clock_ms() + most_ms;
    for (int i = 0;; i++) {
        wi_cuda_free_waiting(r);
        if (atomic_load(&r->waiting) == 0)
            return true;
        if (cuda_redirect_memory_clock_ms() >= until)
            return false;
        wi_cuda_yield(i);
    }
}

/* Takes the block out of the list, if it is there and is to be freed by this function. */
static wi_cuda_block *cuda_redirect_memory_acquire(wi_cuda_redirect *r, const void *pointer, bool of_host)
{
    uint64_t value;
    wi_cuda_block *block = NULL;
    pthread_mutex_lock(&r->lock);
    if (wi_pointer_map_remove(&r->blocks, pointer, &value)) {
        block = (wi_cuda_block *)(uintptr_t)value; // NOLINT(performance-no-int-to-ptr)
        if (of_host != (block->kind == WEIR_KIND_PINNED && !block->managed)) {
            (void)wi_pointer_map_put(&r->blocks, pointer, value); /* there is room: it was just there */
            block = NULL;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return block;
}

/* Whether it is weir's, be it freed or somebody else's: CUDA must not free that. */
static bool cuda_redirect_memory_is_weirs(const void *pointer)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    return weir_block_info(pointer, &details) == WEIR_OK;
}

static int cuda_redirect_memory_free_of(wi_cuda_redirect *r, void *pointer, bool of_host)
{
    int (*real)(void *pointer) = of_host ? wi_real(r, cudaFreeHost) : wi_real(r, cudaFree);
    wi_cuda_block *block = pointer ? cuda_redirect_memory_acquire(r, pointer, of_host) : NULL;
    if (block) {
        if (atomic_load(&r->waiting) > 0)
            wi_cuda_free_waiting(r);
        cuda_redirect_memory_release(r, block);
        return CUDA_OK;
    }
    /* A free of NULL goes on, too: programs have it make the device's context. */
    return pointer && cuda_redirect_memory_is_weirs(pointer) ? wi_cuda_fail(r, CUDA_INVALID_VALUE) : real(pointer);
}

int wi_on_cudaFree(wi_cuda_redirect *r, void *pointer)
{
    return cuda_redirect_memory_free_of(r, pointer, false);
}

int wi_on_cudaFreeHost(wi_cuda_redirect *r, void *pointer)
{
    return cuda_redirect_memory_free_of(r, pointer, true);
}

/* How much there is ------------------------------------------------------------------------------------------------ */

static uint64_t cuda_redirect_memory_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t cuda_redirect_memory_used(const weir_client_stats *client)
{
    return client->live + client->pending + client->promised;
}

/* What the budget has for the client: others' guarantees are theirs, whether they use them or not. */
static uint64_t left_of(uint64_t budget, const weir_client_stats *clients, size_t count, const weir_client *own,
                        uint64_t *limit)
{
    uint64_t taken = 0, mine = 0;
    *limit = budget;
    for (size_t i = 0; i < count; i++) {
        bool is_own = clients[i].client == own;
        taken += is_own ? cuda_redirect_memory_used(&clients[i])
                        : wi_max(cuda_redirect_memory_used(&clients[i]), clients[i].guaranteed);
        if (is_own) {
            mine = cuda_redirect_memory_used(&clients[i]);
            *limit = clients[i].maximum;
        }
    }
    return wi_min(cuda_redirect_memory_less(budget, taken), cuda_redirect_memory_less(*limit, mine));
}

static weir_status cuda_redirect_memory_look(weir_runtime *runtime, weir_stats *stats, weir_client_stats **clients,
                                             size_t *count)
{
    weir_status status = weir_snapshot(runtime, stats, NULL, 0, count);
    for (size_t capacity = 0; status == WEIR_OK && capacity < *count;) {
        capacity = *count + 4;
        weir_client_stats *more = realloc(*clients, capacity * sizeof *more);
        if (!more)
            return weir_fail(WEIR_ERR_SYSTEM, "no host memory for what %zu clients have", capacity);
        *clients = more;
        (*clients)->struct_size = sizeof **clients;
        status = weir_snapshot(runtime, stats, *clients, capacity, count);
    }
    return status;
}

/* Measures the client's part of the budget, at most the free memory of the device, which other processes use, too. */
static weir_status cuda_redirect_memory_measure(const wi_cuda_redirect *r, const weir_client *client, size_t *available,
                                                size_t *total)
{
    weir_runtime *runtime = weir_client_runtime(client);
    weir_stats stats = WEIR_INIT(weir_stats);
    weir_client_stats *clients = NULL;
    size_t count = 0, device_free, device_total;
    uint64_t limit;
    weir_status status = cuda_redirect_memory_look(runtime, &stats, &clients, &count);
    if (status == WEIR_OK) {
        uint64_t left = left_of(stats.budget, clients, count, client, &limit);
        if (wi_real(r, cudaMemGetInfo)(&device_free, &device_total) == CUDA_OK)
            left = wi_min(left, device_free + stats.cached + stats.spare);
        *available = (size_t)left;
        *total = (size_t)limit;
    }
    free(clients);
    return status;
}

int wi_on_cudaMemGetInfo(wi_cuda_redirect *r, size_t *available, size_t *total)
{
    weir_request request = {.struct_size = sizeof request};
    weir_client *client;
    bool entered = wi_cuda_enter(r), ours = entered && wi_cuda_request(r, wi_cuda_device(r), &client, &request);
    int result = !ours                  ? wi_real(r, cudaMemGetInfo)(available, total)
                 : !available || !total ? wi_cuda_fail(r, CUDA_INVALID_VALUE)
                 : cuda_redirect_memory_measure(r, client, available, total) == WEIR_OK
                     ? CUDA_OK
                     : wi_cuda_fail(r, CUDA_MEMORY_ALLOCATION);
    if (entered)
        wi_cuda_leave(r);
    return result;
}
