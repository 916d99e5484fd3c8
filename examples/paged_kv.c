/* paged_kv.c: the keys and values of several sequences in one block pool: written and read by a kernel through tables of
 * blocks, and checked against the same attention computed from the tokens on the host.
 *
 *     paged-kv [DEVICE]
 *
 * The second sequence is a fork of the first, a copy of its blocks that goes its own way. One sequence leaves the device and
 * comes back, one moves to other blocks, and a prompt that finds too few blocks is refused until another sequence has ended. */
#include "paged_kv.h"
#include <weir/block_pool.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KV_HEADS = 2, GROUP = 2, HEADS = KV_HEADS * GROUP, POOL_BLOCKS = 16, STEPS = 20 };

/* Bytes from the row of a token to the next, from a head to the next, and from the plane of keys to that of values. A block
 * is [planes][heads][tokens][head size]. */
enum {
    TOKEN_BYTES = PAGED_SIZE * sizeof(float),
    HEAD_BYTES = PAGED_TOKENS * TOKEN_BYTES,
    PLANE_BYTES = KV_HEADS * HEAD_BYTES,
    BLOCK_BYTES = 2 * PLANE_BYTES
};

typedef struct sequence {
    uint32_t tokens[PAGED_LENGTH], length;
    uint32_t written; /* tokens whose keys and values are in blocks */
    uint32_t blocks[PAGED_BLOCKS], count;
} sequence;

typedef struct engine {
    bool on_gpu;
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    weir_block_pool *pool;
    weir_block_pool_member *member;
    weir_block_pool_view view;
    paged_batch batch, *device_batch;
    float out[PAGED_SEQUENCES][HEADS][PAGED_SIZE], *device_out;
    paged_work work[2];
    float most; /* the largest difference that was found */
} engine;

/* Making and ending ---------------------------------------------------------------------------------------------------- */

static weir_status open_pool(engine *e)
{
    weir_block_pool_options options = WEIR_INIT(weir_block_pool_options);
    weir_block_pool_stats stats = WEIR_INIT(weir_block_pool_stats);
    options.bytes = BLOCK_BYTES;
    options.count = POOL_BLOCKS;
    weir_status status = weir_block_pool_create(e->client, &options, &e->pool);
    if (status == WEIR_OK)
        status = weir_block_pool_member_create(e->pool, e->client, 0, &e->member);
    if (status == WEIR_OK)
        status = weir_block_pool_info(e->pool, &stats, NULL, 0, NULL);
    e->view = stats.view;
    return status;
}

static weir_status open_engine(engine *e, const char *device)
{
    weir_client_options who = WEIR_INIT(weir_client_options);
    who.name = "paged";
    e->on_gpu = strncmp(device, "cuda:", 5) == 0;
    weir_status status = weir_runtime_get(device, NULL, &e->runtime);
    if (status == WEIR_OK)
        status = weir_client_create(e->runtime, &who, &e->client);
    if (status == WEIR_OK)
        status = weir_stream_acquire(e->runtime, &e->stream);
    if (status == WEIR_OK && e->on_gpu)
        status = paged_cuda_open(atoi(device + 5));
    if (status == WEIR_OK)
        status = open_pool(e);
    if (status == WEIR_OK)
        status = weir_alloc(e->client, sizeof e->batch, e->stream, WEIR_CLASS_SCRATCH, (void **)&e->device_batch);
    if (status == WEIR_OK)
        status = weir_alloc(e->client, sizeof e->out, e->stream, WEIR_CLASS_SCRATCH, (void **)&e->device_out);
    return status;
}

static weir_status close_engine(engine *e)
{
    weir_status status = weir_block_pool_destroy(e->pool);
    if (status == WEIR_OK)
        status = weir_free(e->client, e->device_batch, e->stream);
    if (status == WEIR_OK)
        status = weir_free(e->client, e->device_out, e->stream);
    if (status == WEIR_OK)
        status = weir_stream_release(e->stream);
    return status == WEIR_OK ? weir_client_destroy(e->client) : status;
}

/* Sequences ------------------------------------------------------------------------------------------------------------ */

/* A prompt of `length` tokens, and the blocks that they need. */
static weir_status begin(engine *e, sequence *s, uint32_t length, uint32_t number)
{
    uint32_t wanted = (length + PAGED_TOKENS - 1) / PAGED_TOKENS;
    memset(s, 0, sizeof *s);
    weir_status status = weir_block_pool_alloc(e->member, wanted, 0, e->stream, s->blocks);
    if (status != WEIR_OK)
        return status;
    s->count = wanted;
    s->length = length;
    for (uint32_t i = 0; i < length; i++)
        s->tokens[i] = 10000 * number + i;
    return WEIR_OK;
}

static weir_status end(engine *e, sequence *s)
{
    weir_status status = weir_block_pool_free(e->member, s->blocks, NULL, s->count, 0, e->stream);
    s->count = s->length = s->written = 0;
    return status;
}

/* Other blocks with the same contents. */
static weir_status copy_blocks(engine *e, const uint32_t *from, uint32_t count, uint32_t *fresh)
{
    weir_status status = weir_block_pool_alloc(e->member, count, 0, e->stream, fresh);
    for (uint32_t k = 0; status == WEIR_OK && k < count; k++)
        status = weir_copy(e->runtime, weir_block_pool_at(&e->view, fresh[k]), weir_block_pool_at(&e->view, from[k]),
                           e->view.bytes, e->stream);
    return status;
}

static weir_status fork_sequence(engine *e, const sequence *from, sequence *to)
{
    *to = *from;
    return copy_blocks(e, from->blocks, from->count, to->blocks);
}

static weir_status append(engine *e, sequence *s, uint32_t token)
{
    weir_status status = WEIR_OK;
    if (s->length % PAGED_TOKENS == 0) {
        status = weir_block_pool_alloc(e->member, 1, 0, e->stream, &s->blocks[s->count]);
        s->count += status == WEIR_OK;
    }
    if (status == WEIR_OK)
        s->tokens[s->length++] = token;
    return status;
}

/* Computing ------------------------------------------------------------------------------------------------------------ */

static void run_here(void *user)
{
    const paged_work *work = user;
    for (uint64_t i = 0; i < work->count; i++)
        paged_step(work, i);
}

static weir_status queue(engine *e, paged_kind kind, uint64_t count)
{
    paged_work *w = &e->work[kind]; /* stays as it is until the stream is past it */
    *w = (paged_work){.kind = kind,
                      .kv_heads = KV_HEADS,
                      .group = GROUP,
                      .count = count,
                      .base = e->view.base,
                      .block = e->view.bytes,
                      .plane = PLANE_BYTES,
                      .head = HEAD_BYTES,
                      .token = TOKEN_BYTES,
                      .batch = e->device_batch,
                      .out = e->device_out};
    return e->on_gpu ? paged_cuda_queue(w, e->stream) : weir_call(e->runtime, run_here, w, e->stream);
}

/* The same from the tokens, without blocks, and with the largest score known beforehand. */
static void attend_densely(const sequence *s, uint32_t head, double *out)
{
    double scores[PAGED_LENGTH], most = -1e30, weights = 0;
    for (uint32_t p = 0; p < s->length; p++) {
        scores[p] = 0;
        for (uint32_t d = 0; d < PAGED_SIZE; d++)
            scores[p] += (double)paged_value(0, head / GROUP, s->tokens[p], p, d) *
                         (double)paged_value(2, head, s->tokens[s->length - 1], s->length - 1, d);
        most = scores[p] > most ? scores[p] : most;
    }
    memset(out, 0, PAGED_SIZE * sizeof *out);
    for (uint32_t p = 0; p < s->length; p++) {
        double weight = exp(scores[p] - most);
        weights += weight;
        for (uint32_t d = 0; d < PAGED_SIZE; d++)
            out[d] += weight * (double)paged_value(1, head / GROUP, s->tokens[p], p, d);
    }
    for (uint32_t d = 0; d < PAGED_SIZE; d++)
        out[d] /= weights;
}

static void compare(engine *e, uint32_t number, const sequence *s)
{
    double wanted[PAGED_SIZE];
    for (uint32_t head = 0; s->length > 0 && head < HEADS; head++) {
        attend_densely(s, head, wanted);
        for (uint32_t d = 0; d < PAGED_SIZE; d++) {
            float difference = fabsf(e->out[number][head][d] - (float)wanted[d]);
            e->most = difference > e->most || isnan(difference) ? difference : e->most;
        }
    }
}

/* Writes what is not written yet, computes the attention of each sequence's last token, and looks whether it is right. */
static weir_status step(engine *e, sequence *all)
{
    for (uint32_t i = 0; i < PAGED_SEQUENCES; i++) {
        e->batch.written[i] = all[i].written;
        e->batch.length[i] = all[i].length;
        memcpy(e->batch.tables[i], all[i].blocks, sizeof all[i].blocks);
        memcpy(e->batch.tokens[i], all[i].tokens, sizeof all[i].tokens);
    }
    weir_status status = weir_copy(e->runtime, e->device_batch, &e->batch, sizeof e->batch, e->stream);
    if (status == WEIR_OK)
        status = queue(e, PAGED_WRITE, (uint64_t)PAGED_SEQUENCES * PAGED_LENGTH * KV_HEADS * PAGED_SIZE);
    if (status == WEIR_OK)
        status = queue(e, PAGED_ATTEND, (uint64_t)PAGED_SEQUENCES * HEADS);
    if (status == WEIR_OK)
        status = weir_copy(e->runtime, e->out, e->device_out, sizeof e->out, e->stream);
    if (status == WEIR_OK)
        status = weir_stream_synchronize(e->stream);
    for (uint32_t i = 0; status == WEIR_OK && i < PAGED_SEQUENCES; i++) {
        all[i].written = all[i].length;
        compare(e, i, &all[i]);
    }
    return status;
}

/* The program ---------------------------------------------------------------------------------------------------------- */

static bool right(engine *e, const char *what)
{
    bool good = e->most < 1e-4f;
    printf("%s: largest difference to the dense computation %.2g%s\n", what, (double)e->most, good ? "" : ", WRONG");
    e->most = 0;
    return good;
}

/* The sequence's blocks go to pinned memory of the host, others may have the room, and the sequence comes back to other
 * blocks. */
static weir_status leave_and_come_back(engine *e, sequence *s)
{
    weir_request request = WEIR_INIT(weir_request);
    weir_block pinned;
    size_t bytes = e->view.bytes;
    request.kind = WEIR_KIND_PINNED;
    request.bytes = s->count * bytes;
    weir_status status = weir_alloc_with(e->client, &request, &pinned);
    if (status != WEIR_OK)
        return status;
    char *host = pinned.pointer;
    for (uint32_t k = 0; status == WEIR_OK && k < s->count; k++)
        status = weir_copy(e->runtime, host + k * bytes, weir_block_pool_at(&e->view, s->blocks[k]), bytes, e->stream);
    if (status == WEIR_OK)
        status = weir_block_pool_free(e->member, s->blocks, NULL, s->count, 0, e->stream);
    if (status == WEIR_OK)
        status = weir_block_pool_alloc(e->member, s->count, 0, e->stream, s->blocks);
    for (uint32_t k = 0; status == WEIR_OK && k < s->count; k++)
        status = weir_copy(e->runtime, weir_block_pool_at(&e->view, s->blocks[k]), host + k * bytes, bytes, e->stream);
    if (status == WEIR_OK)
        status = weir_stream_synchronize(e->stream);
    printf("a sequence of %u blocks came back from the host\n", s->count);
    weir_status freed = weir_free_block(e->client, pinned, WEIR_STREAM_HOST);
    return status == WEIR_OK ? freed : status;
}

static weir_status move_elsewhere(engine *e, sequence *s)
{
    uint32_t fresh[PAGED_BLOCKS];
    weir_status status = copy_blocks(e, s->blocks, s->count, fresh);
    if (status == WEIR_OK)
        status = weir_block_pool_free(e->member, s->blocks, NULL, s->count, 0, e->stream);
    if (status == WEIR_OK)
        memcpy(s->blocks, fresh, s->count * sizeof *fresh);
    return status;
}

static weir_status say(engine *e)
{
    weir_block_pool_stats stats = WEIR_INIT(weir_block_pool_stats);
    weir_status status = weir_block_pool_info(e->pool, &stats, NULL, 0, NULL);
    if (status == WEIR_OK)
        printf("%u of %u blocks are held, %u at most so far\n", stats.held, stats.view.count, stats.peak);
    return status;
}

/* Two prompts and a fork of the first, and all of them decode past the ends of blocks. */
static bool decode(engine *e, sequence *all)
{
    weir_status status = begin(e, &all[0], 40, 1);
    if (status == WEIR_OK)
        status = begin(e, &all[1], 45, 2);
    if (status == WEIR_OK)
        status = step(e, all);
    if (status == WEIR_OK)
        status = fork_sequence(e, &all[0], &all[2]);
    if (status != WEIR_OK || !right(e, "prompts") || say(e) != WEIR_OK)
        return false;
    for (uint32_t i = 0; i < STEPS && status == WEIR_OK; i++) {
        for (uint32_t s = 0; s < 3 && status == WEIR_OK; s++)
            status = append(e, &all[s], 500 + 7 * i + s);
        if (status == WEIR_OK)
            status = step(e, all);
    }
    return status == WEIR_OK && right(e, "decoding") && say(e) == WEIR_OK;
}

/* Out and in, to other blocks, and a prompt for which another sequence has to give way. */
static bool move(engine *e, sequence *all)
{
    weir_status status = end(e, &all[0]);
    if (status == WEIR_OK)
        status = leave_and_come_back(e, &all[1]);
    if (status == WEIR_OK)
        status = step(e, all);
    if (status == WEIR_OK)
        status = move_elsewhere(e, &all[2]);
    if (status == WEIR_OK)
        status = step(e, all);
    if (status != WEIR_OK || !right(e, "moved") || say(e) != WEIR_OK)
        return false;
    if (begin(e, &all[3], PAGED_LENGTH, 4) != WEIR_ERR_OUT_OF_MEMORY)
        return false;
    printf("refused: %s\n", weir_detail());
    status = end(e, &all[2]);
    if (status == WEIR_OK)
        status = begin(e, &all[3], PAGED_LENGTH, 4);
    if (status == WEIR_OK)
        status = step(e, all);
    if (status != WEIR_OK || !right(e, "a long prompt") || say(e) != WEIR_OK)
        return false;
    status = end(e, &all[1]);
    return status == WEIR_OK && end(e, &all[3]) == WEIR_OK && weir_stream_synchronize(e->stream) == WEIR_OK;
}

int main(int argc, char **argv)
{
    static engine e;
    static sequence all[PAGED_SEQUENCES];
    const char *device = argc > 1 ? argv[1] : "host";
    bool good = open_engine(&e, device) == WEIR_OK && decode(&e, all) && move(&e, all);
    if (good && close_engine(&e) == WEIR_OK) {
        printf("%s: right\n", device);
        return 0;
    }
    fprintf(stderr, "paged-kv: %s\n", weir_detail());
    return 1;
}
