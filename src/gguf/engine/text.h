/* text.h: shared by the files that generate text: a run (wg_generation) and its parts. */
#ifndef WG_TEXT_H
#define WG_TEXT_H

#include "engines/text/text.h"
#include "grammar.h"
#include "wg.h"

/* ---- prompt.c: what a run begins with ---------------------------------------------------------------------------- */

typedef struct wg_prompt {
    int32_t *tokens;
    size_t count;
    size_t restored;      /* of them stand in `saved` */
    const uint8_t *saved; /* llama.cpp's bytes of a sequence, in the caller's input; NULL: none */
    size_t saved_bytes;
} wg_prompt;

weir_status wg_prompt_read(const weir_engine_model *model, const weir_inference *inference,
                           const wg_run_settings *settings, wg_prompt *out);
void wg_prompt_drop(wg_prompt *prompt);

/* ---- sampling.c ------------------------------------------------------------------------------------------------ */

typedef struct wg_sampler {
    struct llama_sampler *chain;
    struct llama_sampler *grammar; /* NULL: none */
    bool likeliest;                /* the likeliest token, whatever came before: no sampler is needed for that */
} wg_sampler;

weir_status wg_sampler_make(const weir_engine_model *model, const wg_run_settings *settings, const wg_prompt *prompt,
                            wg_sampler *out);
void wg_sampler_drop(const weir_engine_model *model, wg_sampler *sampler);
/* The next token by its logits; `room` is for as many candidates as the vocabulary has. May throw: to be guarded. */
int32_t wg_sampler_take(const weir_engine_model *model, const wg_sampler *sampler, const float *logits,
                        llama_token_data *room);

/* ---- generate.c, batch.c ----------------------------------------------------------------------------------------- */

/* A run. Some members belong to the run's own thread, some to the computing thread, some to the thread that has the
 * lock. */
typedef struct wg_generation {
    weir_engine_model *model;
    const wg_run_settings *settings;
    wg_run *run;
    weir_piece_fn piece;
    void *user;
    bool in_step; /* goes on only when its pieces are delivered: logits or state must belong to the last piece */
    wg_prompt prompt;

    /* Of the thread that computes, between the run's arrival and its end. */
    wg_sampler sampler;
    int32_t sequence, row; /* -1: none */
    bool begun, ready, finished;
    size_t computed; /* of the tokens of prompt and answer, one behind the other */
    size_t step;     /* of them in the decode under way */
    int32_t token;   /* chosen last */
    float *logits;
    uint8_t *saved;
    size_t saved_bytes;

    /* Of whoever has the model's lock. What is in the answer is written by the thread that computes, with the lock. */
    wt_answer answer;
    size_t delivered; /* tokens */
    bool done, lost;  /* lost: there was no memory for a piece */
    weir_status status;
    char detail[1024];
    struct wg_generation *next;

    atomic_bool quit; /* its reader wants no more */
} wg_generation;

/* Decodes a run to its end, together with the others of its model. The calling thread waits, or computes for all. */
weir_status wg_batch_run(wg_generation *it);
int32_t wg_token_at(const wg_generation *it, size_t place);
size_t wg_token_count(const wg_generation *it);

/* ---- state.c: a sequence saved ----------------------------------------------------------------------------------- */

/* Reads the head of a saved state, whose tokens come out in malloc memory; everything is checked that can be before
 * llama.cpp gets the bytes. */
weir_status wg_state_open(const weir_engine_model *model, const weir_tensor *saved, wg_prompt *out);
/* Puts the saved sequence into the run's; answers false, and the sequence is as it was, if llama.cpp refuses it. May
 * throw: to be guarded. */
bool wg_state_restore(wg_generation *it);
/* The run's sequence with its tokens, into it->saved. May throw: to be guarded. */
weir_status wg_state_save(wg_generation *it);
/* The tokens that a state of ours stands for. */
const int32_t *wg_state_tokens(const uint8_t *saved, size_t *count);

#endif
