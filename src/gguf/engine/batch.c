/* batch.c: the runs of a model, decoded together.
 *
 * A run waits in a line until one of the context's sequences is free. The runs that have one are decoded in steps: a
 * step is one call of llama_decode, with a token of every run that generates and, in the room that is left, the next
 * tokens of prompts, the oldest run first. The batch has no thread of its own: of the threads that wait for their runs,
 * one computes a step for all runs (`computing`). The computing thread goes on with the next step unless it has pieces
 * of its own run to deliver; then, and when its run is done, it wakes another waiting thread. Samplers work within the
 * step, right behind the decode, so that nothing of the step is needed later; each thread delivers the pieces of its
 * own run.
 *
 * The lock is not held while llama.cpp computes. The computing thread writes its own members of a run without the lock:
 * wg.h. */
#include "wg.h"

#include <weir/cores.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wg_batch {
    wg_generation *seated[WG_MOST_SEQUENCES]; /* runs that have a sequence, oldest first */
    size_t seated_count;
    bool taken[WG_MOST_SEQUENCES];
    wg_generation *first, **last; /* runs that wait for a sequence */
    bool computing;
    bool unclean; /* a sequence did not go away: nobody is seated before all are gone and the memory is cleared */

    /* Of the thread that computes. */
    struct llama_batch tokens;
    llama_token_data *candidates;
    wg_generation *in[WG_MOST_SEQUENCES]; /* the decode under way */
    size_t in_count;
};

weir_status wg_batch_make(weir_engine_model *model)
{
    const wg_library *lib = model->library;
    struct wg_batch *it = model->batch = calloc(1, sizeof *it);
    if (!it)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the list of runs");
    it->last = &it->first;
    it->tokens = lib->llama_batch_init((int32_t)model->step, 0, 1);
    it->candidates = calloc((size_t)lib->llama_vocab_n_tokens(model->vocab), sizeof *it->candidates);
    return it->candidates ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no memory for the candidates of a token");
}

void wg_batch_drop(weir_engine_model *model)
{
    if (!model->batch)
        return;
    model->library->llama_batch_free(model->batch->tokens);
    free(model->batch->candidates);
    free(model->batch);
    model->batch = NULL;
}

/* True: every run of the decode was cancelled, so that the decode may be aborted. */
bool wg_batch_stopped(const struct wg_batch *batch)
{
    for (size_t i = 0; i < batch->in_count; i++)
        if (!atomic_load(&batch->in[i]->run->stop))
            return false;
    return batch->in_count > 0;
}

/* ---- the tokens of a run ----------------------------------------------------------------------------------------- */

int32_t wg_token_at(const wg_generation *it, size_t place)
{
    return place < it->prompt.count ? it->prompt.tokens[place] : it->answer.tokens[place - it->prompt.count];
}

size_t wg_token_count(const wg_generation *it)
{
    return it->prompt.count + it->answer.count;
}

static size_t pending(const wg_generation *it)
{
    return wg_token_count(it) - it->computed;
}

static bool leaves(const wg_generation *it)
{
    return it->status != WEIR_OK || atomic_load(&it->run->stop) || atomic_load(&it->quit);
}

/* Keeps what weir_fail said on this thread for the run's own. */
static void gguf_batch_fail(wg_generation *it, weir_status status)
{
    it->status = status;
    snprintf(it->detail, sizeof it->detail, "%s", weir_detail());
}

/* ---- within llama.cpp -------------------------------------------------------------------------------------------- */

static void remove_sequence(void *user)
{
    wg_generation *it = user;
    const wg_library *lib = it->model->library;
    llama_memory_t memory = lib->llama_get_memory(it->model->context);
    lib->llama_memory_seq_rm(memory, it->sequence, -1, -1);
    /* A forged state may have cells before the first position, which are never removed, and which a run would see. */
    if (memory && lib->llama_memory_seq_pos_min(memory, it->sequence) != -1)
        it->model->batch->unclean = true;
}

static void clear_memory(void *user)
{
    weir_engine_model *model = user;
    model->library->llama_memory_clear(model->library->llama_get_memory(model->context), false);
}

/* Leaves `computed` tokens of it; a memory that cannot forget only a part (a recurrent one) begins again. No more is taken
 * back than the last step has added, so that layers with a window still have all that the next one looks at. */
static void shorten(void *user)
{
    wg_generation *it = user;
    const wg_library *lib = it->model->library;
    llama_memory_t memory = lib->llama_get_memory(it->model->context);
    if (lib->llama_memory_seq_rm(memory, it->sequence, (llama_pos)it->computed, -1))
        return;
    lib->llama_memory_seq_rm(memory, it->sequence, -1, -1);
    it->computed = 0;
}

static void restore(void *user)
{
    wg_generation *it = user;
    if (!wg_state_restore(it)) {
        gguf_batch_fail(it, weir_fail(WEIR_ERR_INVALID, "the input 'state' does not fit into this model's sequence: %s",
                                      wg_log_first_error()[0] ? wg_log_first_error() : "no reason given"));
        return;
    }
    it->computed = it->prompt.restored;
    /* A run needs a token to begin with, so the last one is computed again when none is new. */
    if (it->computed == it->prompt.count) {
        it->computed--;
        shorten(it);
    }
}

static void save(void *user)
{
    wg_generation *it = user;
    size_t most = wg_token_count(it);
    if (it->computed > most) {
        it->computed = most;
        shorten(it);
    }
    weir_status status = wg_state_save(it);
    if (status != WEIR_OK)
        gguf_batch_fail(it, status);
}

/* Everything of llama.cpp's that is one run's own. An exception fails that run; what it left behind in the context is
 * unknown then, so the model is broken when `shared`. */
static void guarded(wg_generation *it, void (*what)(void *user), bool shared)
{
    char thrown[512] = "";
    wg_log_forget();
    if (wg_guarded(what, it, thrown, sizeof thrown))
        return;
    if (shared)
        atomic_store(&it->model->broken, true);
    gguf_batch_fail(it, weir_fail(WEIR_ERR_ENGINE, "llama.cpp failed in the middle of a run: %s", thrown));
}

/* ---- begin and end of a run's sequence --------------------------------------------------------------------------- */

static void gguf_batch_begin(wg_generation *it)
{
    it->begun = true;
    guarded(it, remove_sequence, true);
    if (!it->prompt.saved || it->status != WEIR_OK)
        return;
    weir_status status = wg_cache_grow(it->model, it->sequence, (uint32_t)it->prompt.restored);
    if (status != WEIR_OK)
        gguf_batch_fail(it, status);
    else
        guarded(it, restore, true);
}

/* The reader has taken `delivered` tokens, and what was made beyond them is dropped. */
static void cut_where_its_reader_stopped(wg_generation *it)
{
    pthread_mutex_lock(&it->model->runs.lock);
    wt_answer_stop(&it->answer);
    pthread_mutex_unlock(&it->model->runs.lock);
}

static void conclude(wg_generation *it)
{
    if (it->status == WEIR_OK && !it->answer.finish) {
        if (atomic_load(&it->run->stop))
            gguf_batch_fail(it, weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled"));
        else
            cut_where_its_reader_stopped(it);
    }
    if (!atomic_load(&it->model->broken) && it->begun) {
        if (it->settings->state && it->status == WEIR_OK)
            guarded(it, save, true);
        guarded(it, remove_sequence, true);
        wg_cache_shrink(it->model, it->sequence, 0);
    }
    it->finished = true;
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

static void add_token(struct llama_batch *to, int32_t token, size_t place, int32_t sequence, bool output)
{
    int32_t at = to->n_tokens++;
    to->token[at] = token;
    to->pos[at] = (llama_pos)place;
    to->n_seq_id[at] = 1;
    to->seq_id[at][0] = sequence;
    to->logits[at] = output;
}

/* The run's next tokens, at most `room`. */
static void add_run(struct wg_batch *batch, wg_generation *it, size_t room)
{
    size_t next = pending(it) < room ? pending(it) : room, all = wg_token_count(it);
    it->row = -1;
    it->step = 0;
    if (next == 0)
        return;
    weir_status status = wg_cache_grow(it->model, it->sequence, (uint32_t)(it->computed + next));
    if (status != WEIR_OK) {
        gguf_batch_fail(it, status);
        conclude(it);
        return;
    }
    for (size_t i = 0; i < next; i++) {
        size_t place = it->computed + i;
        if (place + 1 == all)
            it->row = batch->tokens.n_tokens;
        add_token(&batch->tokens, wg_token_at(it, place), place, it->sequence, place + 1 == all);
    }
    it->step = next;
    batch->in[batch->in_count++] = it;
}

/* Fills the next decode: first a token for each run that generates, then tokens of prompts. */
static void gguf_batch_fill(weir_engine_model *model)
{
    struct wg_batch *batch = model->batch;
    batch->tokens.n_tokens = 0;
    batch->in_count = 0;
    for (int prompts = 0; prompts < 2; prompts++)
        for (size_t i = 0; i < batch->seated_count; i++) {
            wg_generation *it = batch->seated[i];
            if (it->ready && !it->finished && (pending(it) > 1) == prompts)
                add_run(batch, it, model->step - (size_t)batch->tokens.n_tokens);
        }
}

typedef struct call {
    weir_engine_model *model;
    int code;
} call;

static void gguf_batch_decode(void *user)
{
    call *it = user;
    it->code = it->model->library->llama_decode(it->model->context, it->model->batch->tokens);
}

static weir_status decode_all(weir_engine_model *model)
{
    char thrown[512] = "";
    wg_phase phase;
    call it = {.model = model};
    wg_log_forget();
    wg_cache_begin(model);
    wg_phase_begin(&phase, WG_RUNNING, model);
    bool whole = wg_guarded(gguf_batch_decode, &it, thrown, sizeof thrown);
    wg_phase_end(&phase);
    wg_cache_end(model);
    if (!whole) {
        atomic_store(&model->broken, true);
        return weir_fail(WEIR_ERR_ENGINE, "llama.cpp failed in the middle of a run: %s",
                         phase.refusal == WEIR_OK ? thrown : phase.detail);
    }
    return it.code == 0 ? WEIR_OK : wg_run_failed(model, &phase, it.code);
}

/* The next token, by the logits that the run has got. */
static void gguf_batch_choose(void *user)
{
    wg_generation *it = user;
    const wg_library *lib = it->model->library;
    const float *logits = lib->llama_get_logits_ith(it->model->context, it->row);
    if (!logits) {
        gguf_batch_fail(it, weir_fail(WEIR_ERR_ENGINE, "llama.cpp has no logits after the run"));
        return;
    }
    if (it->logits)
        memcpy(it->logits, logits, (size_t)lib->llama_vocab_n_tokens(it->model->vocab) * sizeof *logits);
    if (it->answer.most == 0)
        return;
    it->token = wg_sampler_take(it->model, &it->sampler, logits, it->model->batch->candidates);
    if (it->token < 0)
        gguf_batch_fail(it, weir_fail(WEIR_ERR_INVALID,
                                      "no token of the vocabulary is left that the settings ('grammar', "
                                      "'logit_bias') allow after %zu tokens",
                                      it->answer.count));
}

/* The token with its piece of text; a vocabulary may hold longer ones than any guess, so the size answered is
 * believed. */
static bool add_piece(wg_generation *it)
{
    const weir_engine_model *model = it->model;
    const wg_library *lib = model->library;
    char small[256], *text = small;
    int32_t bytes = lib->llama_token_to_piece(model->vocab, it->token, small, sizeof small, 0, false);
    if (bytes < 0) {
        int32_t room = -bytes;
        text = malloc((size_t)room);
        bytes = text ? lib->llama_token_to_piece(model->vocab, it->token, text, room, 0, false) : -1;
    }
    bool stored = bytes >= 0 && wt_answer_add(&it->answer, it->token, text, (size_t)bytes,
                                              lib->llama_get_logits_ith(model->context, it->row),
                                              lib->llama_vocab_n_tokens(model->vocab));
    if (text != small)
        free(text);
    return stored;
}

static void gguf_batch_note(void *user)
{
    wg_generation *it = user;
    const wg_library *lib = it->model->library;
    if (it->answer.most == 0)
        wt_answer_end(&it->answer, "length");
    else if (!it->settings->ignore_eos && lib->llama_vocab_is_eog(it->model->vocab, it->token))
        wt_answer_end(&it->answer, "stop");
    else if (!add_piece(it))
        gguf_batch_fail(it, weir_fail(WEIR_ERR_SYSTEM, "no memory for the text made so far"));
}

static void gguf_batch_settle(wg_generation *it, weir_status status)
{
    if (status != WEIR_OK) {
        gguf_batch_fail(it, status);
    } else {
        it->computed += it->step;
        if (it->row >= 0)
            guarded(it, gguf_batch_choose, false);
        if (it->row >= 0 && it->status == WEIR_OK) {
            pthread_mutex_lock(&it->model->runs.lock);
            guarded(it, gguf_batch_note, false);
            pthread_mutex_unlock(&it->model->runs.lock);
        }
    }
    if (it->status != WEIR_OK || it->answer.finish)
        conclude(it);
}

/* Computes a step for all runs, without the lock. Without `cores`, only removes the runs that leave. */
static void gguf_batch_compute(weir_engine_model *model, bool cores)
{
    struct wg_batch *batch = model->batch;
    for (size_t i = 0; i < batch->seated_count; i++) {
        wg_generation *it = batch->seated[i];
        if (!it->begun && !leaves(it))
            gguf_batch_begin(it);
        if (leaves(it))
            conclude(it);
    }
    if (!cores)
        return;
    gguf_batch_fill(model);
    if (batch->in_count == 0)
        return;
    weir_status status = decode_all(model);
    char why[sizeof batch->in[0]->detail];
    snprintf(why, sizeof why, "%s", weir_detail());
    for (size_t i = 0; i < batch->in_count; i++) {
        if (status != WEIR_OK)
            weir_fail(status, "%s", why);
        gguf_batch_settle(batch->in[i], status);
    }
    batch->in_count = 0;
}

/* ---- who computes, and for whom ---------------------------------------------------------------------------------- */

static void gguf_batch_wake(wt_run *run)
{
    if (!run->sleeps)
        return;
    run->sleeps = false;
    pthread_cond_signal(&run->wake);
}

static void sleep_on(wg_generation *it)
{
    it->run->sleeps = true;
    pthread_cond_wait(&it->run->wake, &it->model->runs.lock);
    it->run->sleeps = false;
}

static bool waits_for_its_reader(const wg_generation *it)
{
    return it->in_step && it->answer.delivered < it->answer.released;
}

static bool has_pieces(const wg_generation *it)
{
    return it->piece && it->answer.delivered < it->answer.released && !atomic_load(&it->quit) &&
           !atomic_load(&it->run->stop);
}

static bool has_work(const weir_engine_model *model)
{
    const struct wg_batch *batch = model->batch;
    for (size_t i = 0; i < batch->seated_count; i++)
        if (leaves(batch->seated[i]) || !waits_for_its_reader(batch->seated[i]))
            return true;
    return batch->first && batch->seated_count < (batch->unclean ? 1 : (size_t)model->load.sequences);
}

/* Somebody has to go on when this thread does not. */
static void gguf_batch_hand_over(weir_engine_model *model)
{
    if (model->batch->computing || !has_work(model))
        return;
    for (wt_run *run = model->runs.first; run; run = run->next)
        if (run->sleeps) {
            gguf_batch_wake(run);
            return;
        }
}

static void join_line(wg_generation *it)
{
    struct wg_batch *batch = it->model->batch;
    it->sequence = -1;
    it->next = NULL;
    *batch->last = it;
    batch->last = &it->next;
}

static void gguf_batch_leave_line(wg_generation *it)
{
    struct wg_batch *batch = it->model->batch;
    wg_generation **at = &batch->first;
    while (*at != it)
        at = &(*at)->next;
    *at = it->next;
    if (batch->last == &it->next)
        batch->last = at;
}

static void gguf_batch_clean(weir_engine_model *model)
{
    char thrown[512] = "";
    if (!wg_guarded(clear_memory, model, thrown, sizeof thrown))
        atomic_store(&model->broken, true);
    model->batch->unclean = false;
}

static void seat(weir_engine_model *model)
{
    struct wg_batch *batch = model->batch;
    if (batch->unclean && batch->seated_count == 0)
        gguf_batch_clean(model);
    while (batch->first && !batch->unclean && batch->seated_count < (size_t)model->load.sequences) {
        wg_generation *it = batch->first;
        gguf_batch_leave_line(it);
        for (it->sequence = 0; batch->taken[it->sequence];)
            it->sequence++;
        batch->taken[it->sequence] = true;
        batch->seated[batch->seated_count++] = it;
    }
    for (size_t i = 0; i < batch->seated_count; i++)
        batch->seated[i]->ready = !waits_for_its_reader(batch->seated[i]);
}

/* Those that are finished get up, and who has something to do is woken. */
static void unseat(struct wg_batch *batch)
{
    size_t left = 0;
    for (size_t i = 0; i < batch->seated_count; i++) {
        wg_generation *it = batch->seated[i];
        if (it->finished) {
            batch->taken[it->sequence] = false;
            it->done = true;
        } else {
            batch->seated[left++] = it;
        }
        if (it->done || has_pieces(it))
            gguf_batch_wake(it->run);
    }
    batch->seated_count = left;
}

/* Asked while the thread waits for cores. */
static bool gguf_batch_somebody_leaves(void *user)
{
    const struct wg_batch *batch = user;
    for (size_t i = 0; i < batch->seated_count; i++)
        if (leaves(batch->seated[i]))
            return true;
    return false;
}

static void gguf_batch_step(weir_engine_model *model, bool *leased)
{
    struct wg_batch *batch = model->batch;
    batch->computing = true;
    seat(model);
    pthread_mutex_unlock(&model->runs.lock);
    bool cores = wg_cores_take(model, gguf_batch_somebody_leaves, batch, leased) != WEIR_ERR_CANCELLED;
    double from = wt_seconds_now();
    if (atomic_load(&model->broken))
        for (size_t i = 0; i < batch->seated_count; i++)
            gguf_batch_fail(batch->seated[i], wg_health(model));
    gguf_batch_compute(model, cores);
    double took = wt_seconds_now() - from;
    pthread_mutex_lock(&model->runs.lock);
    model->runs.metrics.busy_seconds += took;
    unseat(batch);
    batch->computing = false;
    if (batch->seated_count == 0 && !batch->first)
        (void)wg_cache_rest(model, false);
}

/* ---- a run's own thread ------------------------------------------------------------------------------------------ */

/* Hands one piece to the reader; others go on meanwhile. */
static void gguf_batch_deliver(wg_generation *it)
{
    weir_engine_model *model = it->model;
    gguf_batch_hand_over(model);
    if (wt_answer_deliver(&it->answer, &model->runs.lock, it->piece, it->user, &it->lost))
        return;
    atomic_store(&it->quit, true);
    weir_cores_wake(model->cores);
}

static void wait_until_done(wg_generation *it)
{
    weir_engine_model *model = it->model;
    bool leased = false; /* cores, by this thread; no longer than it computes */
    while (!it->done) {
        if (has_pieces(it)) {
            wt_cores_give(model->cores, &leased);
            gguf_batch_deliver(it);
        } else if (it->sequence < 0 && atomic_load(&it->run->stop)) {
            gguf_batch_leave_line(it);
            gguf_batch_fail(it, weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled before it began"));
            it->done = true;
        } else if (!model->batch->computing && has_work(model)) {
            gguf_batch_step(model, &leased);
        } else {
            wt_cores_give(model->cores, &leased);
            sleep_on(it);
        }
    }
    wt_cores_give(model->cores, &leased);
    while (has_pieces(it))
        gguf_batch_deliver(it);
}

weir_status wg_batch_run(wg_generation *it)
{
    weir_engine_model *model = it->model;
    pthread_mutex_lock(&model->runs.lock);
    join_line(it);
    wait_until_done(it);
    /* From here on no cancel finds the run. */
    wt_run_leave(&model->runs, it->run);
    if (it->status == WEIR_OK && atomic_load(&it->run->stop))
        gguf_batch_fail(it, weir_fail(WEIR_ERR_CANCELLED, "the run was cancelled"));
    if (it->status == WEIR_OK && it->lost)
        gguf_batch_fail(it, weir_fail(WEIR_ERR_SYSTEM, "no memory for a piece of the text"));
    gguf_batch_hand_over(model);
    pthread_mutex_unlock(&model->runs.lock);
    if (it->status == WEIR_OK && atomic_load(&it->quit) && it->answer.delivered < it->answer.count)
        wt_answer_stop(&it->answer);
    return it->status == WEIR_OK ? WEIR_OK : weir_fail(it->status, "%s", it->detail);
}
