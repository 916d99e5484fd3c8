/* ties.h: whether sequences that chose other tokens together than alone were moved by rounding, or by a fault.
 *
 * A value of a type with the unit roundoff u, added up in another order, comes out another by some u of the greatest values around
 * it. So the logits of one position may differ by `ROUNDINGS` u of their greatest, and no more; where two of them are closer than
 * that, rounding chooses. The same is measured, at the positions where both chose alike: where they choose otherwise, logits may
 * differ by twice the greatest difference found there. */
#ifndef BENCH_TIES_H
#define BENCH_TIES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A dozen values a layer are stored and rounded, in the small models' four layers, and some before and after. */
enum { TIES_ROUNDINGS = 64 };
#define TIES_UNIT_F16 0x1p-11f
#define TIES_UNIT_F32 0x1p-24f

/* `logits`: a row of `words` for each token, what it was chosen from. NULL: they were not looked at. */
typedef struct ties_run {
    const int32_t *tokens;
    const float *logits;
} ties_run;

typedef struct ties_found {
    int ties, faults;
    int agreed;     /* positions at which both chose alike and before which they did */
    float rounding; /* the greatest difference of logits there, in u of the greatest logit */
    float allowed;  /* where they do not choose alike, in the same; TIES_ROUNDINGS where nothing agreed */
} ties_found;

/* Of each sequence, the positions up to the first at which the two runs chose otherwise, which have the same tokens before them. A
 * fault: logits that differ by more than is allowed, or are missing or no numbers; a token that is not the likeliest; a choice
 * between logits that are farther apart than twice what is allowed. Each tie and each fault is a line in `to`. */
ties_found ties_find(const ties_run *alone, const ties_run *together, int sequences, int tokens, int words, float unit,
                     FILE *to);

/* Other tokens than those of `alone`, of a run whose logits nobody saw, judged by the logits of `alone` and `by`. Adds to the ties
 * and faults of `by`. */
void ties_judge(ties_found *by, const ties_run *alone, const ties_run *other, int sequences, int tokens, int words,
                float unit, const char *what, FILE *to);

#endif
