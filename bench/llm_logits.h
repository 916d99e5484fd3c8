/* llm_logits.h: the logits that models of the engine llm compute in a process, seen where GenAI runs ONNX Runtime: also of runs that
 * are decoded together, of which GenAI shows none. */
#ifndef BENCH_LLM_LOGITS_H
#define BENCH_LLM_LOGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is looked for: so many sequences, each of a prompt of `after` tokens that begins differently, and `tokens` made after it. */
typedef struct llm_wanted {
    const int32_t *const *prompts;
    int sequences, after, tokens;
} llm_wanted;

typedef struct llm_seen {
    int words;
    bool half;     /* all of them are float16s: the model computes in that */
    int steps;     /* that had logits */
    int unknown;   /* rows of them that are of no sequence that is looked for */
    float *logits; /* [sequences][tokens][words], of free(); a row that was not seen is not a number. NULL: none was */
} llm_seen;

/* Has the engine's runs looked at from now on; `inside` is any address in the plug-in, of which a model has been loaded. Once in a
 * process. What is wrong; NULL: nothing. */
const char *llm_logits_watch(const void *inside);
/* One at a time, while no run is under way. `it` is kept until the end. */
void llm_logits_begin(const llm_wanted *it);
llm_seen llm_logits_end(void);

#endif
