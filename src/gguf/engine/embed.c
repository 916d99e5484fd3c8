/* embed.c: texts become vectors. Several texts share one call of llama.cpp's, each as a sequence of its own. */
#include "wg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tokens of all texts, without gaps. */
typedef struct texts {
    int32_t *tokens;
    size_t token_count, token_room;
    size_t *ends; /* of each text in `tokens` */
    size_t count, room;
} texts;

static void drop_texts(texts *it)
{
    free(it->tokens);
    free(it->ends);
}

static weir_status embed_add_text(const weir_engine_model *model, const wg_run_settings *settings,
                                  const int32_t *tokens, size_t count, texts *to)
{
    if (count == 0)
        return weir_fail(WEIR_ERR_INVALID, "text %zu has no tokens", to->count + 1);
    if (count > model->longest && !settings->truncate)
        return weir_fail(WEIR_ERR_INVALID,
                         "text %zu has %zu tokens, and the context holds %u; cut it, or set 'truncate'%s",
                         to->count + 1, count, model->longest,
                         model->longest < model->facts.context ? ", or load with a larger 'context'" : "");
    bool cut = count > model->longest;
    size_t taken = cut ? model->longest : count;
    if (!to->tokens || to->token_count + taken > to->token_room) {
        size_t room = (to->token_count + taken) * 2 + 64;
        int32_t *grown = realloc(to->tokens, room * sizeof *grown);
        if (!grown)
            return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu tokens", room);
        to->tokens = grown;
        to->token_room = room;
    }
    if (to->count == to->room) {
        size_t room = to->room ? to->room * 2 : 16;
        size_t *grown = realloc(to->ends, room * sizeof *grown);
        if (!grown)
            return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu texts", room);
        to->ends = grown;
        to->room = room;
    }
    for (size_t i = 0; i < taken; i++)
        to->tokens[to->token_count + i] = tokens[i];
    /* The last token of a text is the tokenizer's mark of its end, which a cut text needs as well. */
    if (cut)
        to->tokens[to->token_count + taken - 1] = tokens[count - 1];
    to->token_count += taken;
    to->ends[to->count++] = to->token_count;
    return WEIR_OK;
}

static weir_status embed_read_lines(const weir_engine_model *model, const wg_run_settings *settings,
                                    const weir_tensor *input, texts *to)
{
    const char *text = input->data, *end = text + input->bytes;
    weir_status status = WEIR_OK;
    if (input->bytes > 0 && end[-1] == '\n')
        end--;
    for (const char *line = text; status == WEIR_OK && line <= end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t bytes = (size_t)((stop ? stop : end) - line), count = 0;
        int32_t *tokens = NULL;
        status = wg_tokenize(model, line, bytes, true, false, &tokens, &count);
        if (status == WEIR_OK)
            status = embed_add_text(model, settings, tokens, count, to);
        free(tokens);
        line += bytes + 1;
    }
    return status;
}

static weir_status embed_read_rows(const weir_engine_model *model, const wg_run_settings *settings,
                                   const weir_tensor *input, texts *to)
{
    size_t rows = input->rank == 2 ? (size_t)input->shape[0] : 1;
    size_t columns = (size_t)input->shape[input->rank - 1];
    weir_status status = WEIR_OK;
    for (size_t row = 0; row < rows && status == WEIR_OK; row++) {
        const int32_t *tokens = (const int32_t *)input->data + row * columns;
        size_t count = columns;
        while (count > 0 && tokens[count - 1] == -1)
            count--;
        for (size_t i = 0; i < count && status == WEIR_OK; i++)
            if (tokens[i] == -1)
                status = weir_fail(WEIR_ERR_INVALID, "the input 'tokens' has a -1 before the end of row %zu", row);
        if (status == WEIR_OK)
            status = embed_add_text(model, settings, tokens, count, to);
    }
    return status;
}

/* ---- one call of llama.cpp's ------------------------------------------------------------------------------------- */

typedef struct call {
    weir_engine_model *model;
    const texts *all;
    size_t first, past; /* texts of this call */
    struct llama_batch batch;
    float *out; /* of the first text */
    int code;
} call;

static void embed_fill(call *it)
{
    struct llama_batch *batch = &it->batch;
    size_t begin = it->first ? it->all->ends[it->first - 1] : 0;
    batch->n_tokens = 0;
    for (size_t text = it->first; text < it->past; text++) {
        for (size_t i = begin; i < it->all->ends[text]; i++) {
            int32_t at = batch->n_tokens++;
            batch->token[at] = it->all->tokens[i];
            batch->pos[at] = (llama_pos)(i - begin);
            batch->n_seq_id[at] = 1;
            batch->seq_id[at][0] = (llama_seq_id)(text - it->first);
            batch->logits[at] = 1;
        }
        begin = it->all->ends[text];
    }
}

static void embed_compute(void *user)
{
    call *it = user;
    const wg_library *lib = it->model->library;
    llama_memory_t memory = lib->llama_get_memory(it->model->context);
    if (memory)
        lib->llama_memory_clear(memory, false);
    it->code =
        memory ? lib->llama_decode(it->model->context, it->batch) : lib->llama_encode(it->model->context, it->batch);
    for (size_t text = it->first; it->code == 0 && text < it->past; text++) {
        const float *vector = lib->llama_get_embeddings_seq(it->model->context, (llama_seq_id)(text - it->first));
        if (!vector)
            it->code = -1;
        else
            memcpy(it->out + (text - it->first) * it->model->width, vector, it->model->width * sizeof *vector);
    }
}

static weir_status make_call(call *it)
{
    char thrown[512] = "";
    wg_phase phase;
    wg_log_forget();
    embed_fill(it);
    weir_status status = wg_cache_grow(it->model, 0, (uint32_t)it->batch.n_tokens);
    if (status != WEIR_OK)
        return status;
    wg_cache_begin(it->model);
    wg_phase_begin(&phase, WG_RUNNING, it->model);
    bool whole = wg_guarded(embed_compute, it, thrown, sizeof thrown);
    wg_phase_end(&phase);
    wg_cache_end(it->model);
    wg_cache_shrink(it->model, 0, 0);
    if (!whole) {
        atomic_store(&it->model->broken, true);
        return weir_fail(WEIR_ERR_ENGINE, "llama.cpp failed in the middle of a run: %s",
                         phase.refusal == WEIR_OK ? thrown : phase.detail);
    }
    return it->code == 0 ? WEIR_OK : wg_run_failed(it->model, &phase, it->code);
}

static weir_status call_all(weir_engine_model *model, const texts *all, float *vectors, wt_run *run)
{
    call it = {.model = model, .all = all};
    weir_status status = WEIR_OK;
    bool leased = false;
    it.batch = model->library->llama_batch_init((int32_t)model->longest, 0, 1);
    while (it.first < all->count && status == WEIR_OK) {
        size_t begin = it.first ? all->ends[it.first - 1] : 0;
        for (it.past = it.first + 1; it.past < all->count; it.past++)
            if (it.past - it.first == WG_EMBED_SEQUENCES || all->ends[it.past] - begin > model->pack)
                break;
        it.out = vectors + it.first * model->width;
        status = wt_run_is_stopped(run) ? WEIR_ERR_CANCELLED : wg_cores_take(model, wt_run_is_stopped, run, &leased);
        if (status == WEIR_OK)
            status = make_call(&it);
        it.first = it.past;
    }
    wt_cores_give(model->cores, &leased);
    if (status == WEIR_ERR_CANCELLED)
        status = weir_fail(status, "the run was cancelled");
    model->library->llama_batch_free(it.batch);
    return status;
}

static void normalize(float *vector, size_t width)
{
    double sum = 0;
    for (size_t i = 0; i < width; i++)
        sum += (double)vector[i] * vector[i];
    double scale = sum > 0 ? 1.0 / sqrt(sum) : 0;
    for (size_t i = 0; i < width; i++)
        vector[i] = (float)(vector[i] * scale);
}

static weir_status embed_all(weir_engine_model *model, const wg_run_settings *settings, const texts *all, wt_run *run,
                             weir_outputs *out)
{
    size_t bytes = all->count * model->width * sizeof(float);
    float *vectors = malloc(bytes);
    int32_t *counts = malloc((all->count + 1) * sizeof *counts);
    if (!vectors || !counts) {
        free(vectors);
        free(counts);
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu embeddings", all->count);
    }
    for (size_t i = 0; i < all->count; i++)
        counts[i] = (int32_t)(all->ends[i] - (i ? all->ends[i - 1] : 0));
    weir_status status = call_all(model, all, vectors, run);
    for (size_t i = 0; status == WEIR_OK && settings->normalize && i < all->count; i++)
        normalize(vectors + i * model->width, model->width);
    wt_parts parts = {.count = 0};
    wt_parts_add_rows(&parts, "embeddings", WEIR_TYPE_F32, vectors, all->count, model->width);
    wt_parts_add(&parts, "prompt_tokens", WEIR_TYPE_I32, counts, all->count);
    if (status == WEIR_OK)
        status = wt_hand_out(model->devices.host, model->devices.kind, &parts, out);
    free(vectors);
    free(counts);
    return status;
}

weir_status wg_embed(weir_engine_model *model, const weir_inference *inference, const wg_run_settings *settings,
                     wt_run *run, weir_outputs *out, uint64_t *tokens_in)
{
    wt_inputs in;
    texts all = {0};
    weir_status status = wg_health(model); /* another run may have broken the model */
    if (status == WEIR_OK)
        status = wg_the_inputs(model, inference, &in);
    if (status == WEIR_OK)
        status = in.text ? embed_read_lines(model, settings, in.text, &all)
                         : embed_read_rows(model, settings, in.tokens, &all);
    if (status == WEIR_OK)
        status = embed_all(model, settings, &all, run, out);
    if (status == WEIR_OK)
        *tokens_in = all.token_count;
    drop_texts(&all);
    return status;
}
