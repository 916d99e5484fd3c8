/* answer.h: what a run of weir's answers, and what ONNX Runtime GenAI answers without weir (plain.c), in one form. */
#ifndef LLM_ANSWER_H
#define LLM_ANSWER_H

#include "common.h"

enum { MOST_MADE = 256, MOST_TEXT = 8192, MOST_WORDS = 16 };

typedef struct answer {
    int32_t prompt[512], tokens[MOST_MADE];
    size_t prompt_count, count;
    char text[MOST_TEXT];
    size_t bytes, ends[MOST_MADE]; /* of each token's text; a run without weir's alone knows them always */
    float *logits;                 /* of each token; without weir */
    char finish[16], stop[64];     /* with weir, like what follows */
    float logprobs[MOST_MADE], last[VOCABULARY];
    int32_t top_tokens[MOST_MADE * 8];
    float top_logprobs[MOST_MADE * 8];
    size_t pieces;
} answer;

/* Words as plain.c takes them, the last one NULL. Ends the test where it fails. The answer's logits are malloc memory. */
answer *answer_without_weir(const weir_engine *engine, const char *folder, const char *const *words);
/* Through infer_stream; checks that the pieces are the whole. */
answer *answer_of(const bench *it, const weir_tensor *input, const weir_setting *settings, size_t count);
void answer_drop(answer *it);
/* The same tokens and the same text, token for token. */
void assert_same_answer(const answer *got, const answer *expected);

#endif
