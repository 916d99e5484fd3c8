/* answer.h: the answer of a run that goes on with a text: tokens, text, the decided part of both, and the reason of the
 * end. */
#ifndef WT_ANSWER_H
#define WT_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

#include "words.h"

typedef struct wt_answer {
    wt_words stops;
    int32_t *tokens;
    size_t *ends; /* of each token's text in `text` */
    size_t count, most;
    char *text;
    size_t bytes, room;
    size_t released;     /* tokens whose text is decided: no stop word begins in it that may still end */
    const wt_word *stop; /* the stop word that ended the answer */
    const char *finish;  /* the reason of the end: "stop", "length", "cancelled"; NULL: it goes on */
    size_t alternatives; /* for each token */
    float *logprobs, *top_logprobs;
    int32_t *top_tokens;
} wt_answer;

/* Makes an answer with room for `tokens` tokens, each with `alternatives` alternatives and their probabilities (0:
 * none). `stop` is the setting of that name, or NULL. */
weir_status wt_answer_make(const char *stop, size_t tokens, size_t alternatives, wt_answer *out);
void wt_answer_drop(wt_answer *answer);
/* Adds a token with its text; of the logits it came from, `width` wide, the probabilities are taken where they were asked
 * for. false: no memory. The answer may be at its end then. */
bool wt_answer_add(wt_answer *it, int32_t token, const char *text, size_t bytes, const float *logits, int32_t width);
/* Nothing comes any more: what was held back is decided. */
void wt_answer_end(wt_answer *it, const char *finish);
/* Leaves the first `count` tokens of it. */
void wt_answer_cut(wt_answer *it, size_t count);
size_t wt_answer_begin_of(const wt_answer *it, size_t token);

/* What the model gives a token, before any sampler, and the `most` likeliest ones with theirs: logarithms. */
float wt_log_probabilities(const float *logits, int32_t width, int32_t token, size_t most, int32_t *top_tokens,
                           float *top_values);

#endif
