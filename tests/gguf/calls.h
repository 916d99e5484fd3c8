/* calls.h: llama.cpp's functions, in whose place tests put their own: each call can be made to fail or to throw, and a run can be
 * cancelled within it; what calls make is counted, and has to be given back. */
#ifndef TESTS_GGUF_CALLS_H
#define TESTS_GGUF_CALLS_H

#include "common.h"

#include <dlfcn.h>
#include <unistd.h>

#include "gguf/engine/wg.h"

enum { PROMPT = 6, MADE = 4, VOCABULARY = 286, PACK = 128, SEQUENCES = 16, WIDTH = 32 };

static char llama_path[64], bert_path[64];
static int32_t prompt[PROMPT];

/* ---- what is in their place -------------------------------------------------------------------------------------- */

enum kind { MODELS, CONTEXTS, BATCHES, SAMPLERS, POOLS, KINDS };
static const char *const kind_names[KINDS] = {"models", "contexts", "batches", "samplers", "pools"};
static wg_library real, *watched;
static void (*end_it)(const char *file, int line, const char *format, ...); /* ggml's assertion, which throws */
static int made[KINDS], all_made[KINDS];
static int calls, fails_at; /* this one of the calls fails; 0: none */
static bool throws;         /* it does not answer, but throws */
static bool pool_fails;     /* and so does each that makes a pool of threads */

static const fixture *asked; /* whose runs are cancelled, */
static int cancels_at;       /* at this one of the calls; 0: none */
static int moments;          /* calls in which a cancel may come */
static bool was_found;       /* it has found the run */

/* Within a call, as from another thread: not where the engine holds the model's lock, for which a cancel waits. */
static void may_cancel(void)
{
    if (++moments != cancels_at || pthread_mutex_trylock(&asked->model->runs.lock) != 0)
        return;
    pthread_mutex_unlock(&asked->model->runs.lock);
    was_found = asked->it.engine->cancel(asked->model, 0) == WEIR_OK;
}

/* Whether the call is to answer that it has failed. Each is one that may throw. */
static bool fails(void)
{
    may_cancel();
    if (++calls != fails_at)
        return false;
    if (throws)
        end_it("calls.h", 1, "thrown on purpose");
    return true;
}

static void *count_if(enum kind kind, void *it)
{
    made[kind] += it != NULL;
    all_made[kind] += it != NULL;
    return it;
}

static struct llama_model_params model_params; /* of the last call */
static struct llama_context_params context_params;

static struct llama_model *its_model(const char *path, struct llama_model_params params)
{
    model_params = params;
    return fails() ? NULL : count_if(MODELS, real.llama_model_load_from_file(path, params));
}

static struct llama_context *its_context(struct llama_model *model, struct llama_context_params params)
{
    context_params = params;
    return fails() ? NULL : count_if(CONTEXTS, real.llama_init_from_model(model, params));
}

static struct llama_batch its_batch(int32_t tokens, int32_t width, int32_t sequences)
{
    made[BATCHES]++;
    all_made[BATCHES]++;
    return real.llama_batch_init(tokens, width, sequences);
}

static struct llama_sampler *its_chain(struct llama_sampler_chain_params params)
{
    (void)fails();
    return count_if(SAMPLERS, real.llama_sampler_chain_init(params));
}

static struct llama_sampler *its_grammar(const struct llama_vocab *vocab, const char *grammar, const char *root)
{
    return fails() ? NULL : count_if(SAMPLERS, real.llama_sampler_init_grammar(vocab, grammar, root));
}

static uint32_t polling; /* the most that a pool's waiting threads were told to look for work before they sleep */

static struct ggml_threadpool *its_pool(struct ggml_threadpool_params *params)
{
    polling = params->poll > polling ? params->poll : polling;
    if (pool_fails && throws)
        end_it("calls.h", 1, "thrown on purpose");
    return pool_fails ? NULL : count_if(POOLS, real.ggml_threadpool_new(params));
}

/* What is given back may fail, and has words of its own then: they are not why a load has failed. */
static void say_other_words(void)
{
    (void)weir_fail(WEIR_ERR_SYSTEM, "words of what is given back");
}

static void model_gone(struct llama_model *model)
{
    made[MODELS]--;
    say_other_words();
    real.llama_model_free(model);
}

static void context_gone(struct llama_context *context)
{
    made[CONTEXTS]--;
    say_other_words();
    real.llama_free(context);
}

static void batch_gone(struct llama_batch batch)
{
    made[BATCHES]--;
    real.llama_batch_free(batch);
}

static void sampler_gone(struct llama_sampler *sampler)
{
    made[SAMPLERS]--;
    may_cancel();
    real.llama_sampler_free(sampler);
}

static void pool_gone(struct ggml_threadpool *pool)
{
    made[POOLS]--;
    real.ggml_threadpool_free(pool);
}

/* What the last calls computed: tokens and sequences of each. */
static int computed, tokens_of[64], sequences_of[64];

static int32_t its_decode(struct llama_context *context, struct llama_batch tokens)
{
    return fails() ? -3 : real.llama_decode(context, tokens);
}

static int32_t its_encode(struct llama_context *context, struct llama_batch tokens)
{
    if (fails())
        return -3;
    if (computed < 64) {
        tokens_of[computed] = tokens.n_tokens;
        sequences_of[computed] = tokens.n_tokens ? tokens.seq_id[tokens.n_tokens - 1][0] + 1 : 0;
    }
    computed++;
    return real.llama_encode(context, tokens);
}

static float *its_embeddings(struct llama_context *context, llama_seq_id sequence)
{
    return fails() ? NULL : real.llama_get_embeddings_seq(context, sequence);
}

static int32_t its_tokens(const struct llama_vocab *vocab, const char *text, int32_t length, llama_token *tokens,
                          int32_t most, bool marks, bool special)
{
    return fails() ? INT32_MIN : real.llama_tokenize(vocab, text, length, tokens, most, marks, special);
}

static int32_t its_template(const char *name, const struct llama_chat_message *chat, size_t count, bool begins,
                            char *text, int32_t length)
{
    return fails() ? -1 : real.llama_chat_apply_template(name, chat, count, begins, text, length);
}

static size_t its_state_size(struct llama_context *context, llama_seq_id sequence)
{
    size_t size = real.llama_state_seq_get_size(context, sequence);
    return fails() ? size + 8 : size;
}

static size_t its_state(struct llama_context *context, uint8_t *to, size_t size, llama_seq_id sequence)
{
    return fails() ? 0 : real.llama_state_seq_get_data(context, to, size, sequence);
}

static size_t state_read(struct llama_context *context, const uint8_t *from, size_t size, llama_seq_id sequence)
{
    return fails() ? 0 : real.llama_state_seq_set_data(context, from, size, sequence);
}

/* These do not fail, but may throw. */
static void its_choice(struct llama_sampler *sampler, llama_token_data_array *list)
{
    (void)fails();
    real.llama_sampler_apply(sampler, list);
}

static void its_note(struct llama_sampler *sampler, llama_token token)
{
    (void)fails();
    real.llama_sampler_accept(sampler, token);
}

static bool its_removal(llama_memory_t memory, llama_seq_id sequence, llama_pos from, llama_pos to)
{
    (void)fails();
    return real.llama_memory_seq_rm(memory, sequence, from, to);
}

static int32_t its_piece(const struct llama_vocab *vocab, llama_token token, char *text, int32_t room, int32_t strip,
                         bool special)
{
    if (special) /* texts of the likeliest tokens are made without a guard */
        return real.llama_token_to_piece(vocab, token, text, room, strip, special);
    (void)fails();
    return real.llama_token_to_piece(vocab, token, text, room, strip, special);
}

/* The library is one for all models, and known from the first on. */
static int watch(void **state)
{
    (void)state;
    fixture its = fixture_open(llama_path, NULL, 0);
    watched = (wg_library *)(uintptr_t)its.model->library;
    fixture_close(&its);
    real = *watched;
    *(void **)&end_it = dlsym(real.handle, "ggml_abort");
    assert_non_null(end_it);
    watched->llama_model_load_from_file = its_model;
    watched->llama_init_from_model = its_context;
    watched->llama_batch_init = its_batch;
    watched->llama_sampler_chain_init = its_chain;
    watched->llama_sampler_init_grammar = its_grammar;
    watched->ggml_threadpool_new = its_pool;
    watched->llama_model_free = model_gone;
    watched->llama_free = context_gone;
    watched->llama_batch_free = batch_gone;
    watched->llama_sampler_free = sampler_gone;
    watched->ggml_threadpool_free = pool_gone;
    watched->llama_decode = its_decode;
    watched->llama_encode = its_encode;
    watched->llama_get_embeddings_seq = its_embeddings;
    watched->llama_tokenize = its_tokens;
    watched->llama_chat_apply_template = its_template;
    watched->llama_state_seq_get_size = its_state_size;
    watched->llama_state_seq_get_data = its_state;
    watched->llama_state_seq_set_data = state_read;
    watched->llama_sampler_apply = its_choice;
    watched->llama_sampler_accept = its_note;
    watched->llama_memory_seq_rm = its_removal;
    watched->llama_token_to_piece = its_piece;
    memset(made, 0, sizeof made);
    memset(all_made, 0, sizeof all_made);
    calls = fails_at = cancels_at = computed = 0;
    throws = pool_fails = false;
    return 0;
}

static int unwatch(void **state)
{
    (void)state;
    if (watched)
        *watched = real;
    return 0;
}

static void nothing_stays(const int *before, const char *after)
{
    int left = 0;
    for (int k = 0; k < KINDS; k++) {
        int more = made[k] - (before ? before[k] : 0);
        if (more)
            print_error("%s: %d %s stay\n", after, more, kind_names[k]);
        left += more != 0;
    }
    assert_int_equal(left, 0);
}

/* The tests' models, before and after. */
static int write_models(void **state)
{
    (void)state;
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-calls-%d-l.gguf", (int)getpid());
    snprintf(bert_path, sizeof bert_path, "/tmp/weir-calls-%d-b.gguf", (int)getpid());
    write_llama(llama_path, &small_shape);
    write_bert(bert_path, &small_shape);
    for (int i = 0; i < PROMPT; i++)
        prompt[i] = i == 0 ? 1 : 260 + i * 7 % 26;
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    unlink(llama_path);
    unlink(bert_path);
    return 0;
}

#endif
