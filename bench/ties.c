/* See ties.h. */
#include "ties.h"

#include <math.h>

/* One position of one sequence. */
typedef struct spot {
    int sequence, position, words;
    int32_t alone, together;
    const float *a, *t; /* the logits alone and together */
    float unit;         /* what one u is there: the type's, of the greatest logit */
    float difference;   /* the greatest, in those; not a number where one of the two is none */
} spot;

static bool chooses(const float *logits, int words, int32_t token)
{
    if (token < 0 || token >= words)
        return false;
    for (int i = 0; i < words; i++)
        if (!(logits[i] <= logits[token]))
            return false;
    return true;
}

static spot spot_of(const ties_run *alone, const ties_run *together, int sequence, int position, int words, float unit)
{
    spot it = {.sequence = sequence,
               .position = position,
               .words = words,
               .alone = alone[sequence].tokens[position],
               .together = together[sequence].tokens[position]};
    size_t row = (size_t)position * (size_t)words;
    float greatest = 0;
    it.a = alone[sequence].logits ? alone[sequence].logits + row : NULL;
    it.t = together[sequence].logits ? together[sequence].logits + row : NULL;
    if (!it.a || !it.t)
        it.difference = NAN;
    for (int i = 0; i < words && it.a; i++) {
        greatest = fmaxf(greatest, fabsf(it.a[i]));
        if (it.t && !(fabsf(it.a[i] - it.t[i]) <= it.difference)) /* not a number stays one */
            it.difference = isnan(it.difference) ? NAN : fabsf(it.a[i] - it.t[i]);
    }
    it.unit = unit * greatest;
    it.difference = it.difference == 0 ? 0 : it.difference / it.unit;
    return it;
}

static float logit(const float *row, int32_t token, int words)
{
    return row && token >= 0 && token < words ? row[token] : NAN;
}

/* Why it is none that rounding explains; NULL: it is. `allowed` in u. */
static const char *wrong(const spot *it, float allowed)
{
    float apart = logit(it->a, it->alone, it->words) - logit(it->a, it->together, it->words);
    float back = it->t ? logit(it->t, it->together, it->words) - logit(it->t, it->alone, it->words) : 0;
    if (!it->a || isnan(it->difference))
        return "there are no logits, or no numbers";
    if (!(it->difference <= allowed))
        return "the logits differ by more than rounding";
    if (!chooses(it->a, it->words, it->alone) || (it->t && !chooses(it->t, it->words, it->together)))
        return "a token is not the likeliest";
    if (!(apart <= 2 * allowed * it->unit && back <= 2 * allowed * it->unit))
        return "the two tokens are farther apart than rounding";
    return NULL;
}

static void tell(const spot *it, const char *why, float allowed, const char *what, FILE *to)
{
    fprintf(to,
            "%s: %s sequence %d, position %d: alone token %d with logit %.6g, %d has %.6g; %s token %d with %.6g, "
            "%d has %.6g; logits differ by %.2f u at the most, allowed are %.2f (u: %.3g)%s%s\n",
            why ? "FAULT" : "tie", what, it->sequence, it->position, it->alone,
            (double)logit(it->a, it->alone, it->words), it->together, (double)logit(it->a, it->together, it->words),
            what, it->together, (double)logit(it->t, it->together, it->words), it->alone,
            (double)logit(it->t, it->alone, it->words), (double)it->difference, (double)allowed, (double)it->unit,
            why ? "; " : "", why ? why : "");
}

static void count(ties_found *found, const spot *it, float allowed, const char *what, FILE *to)
{
    const char *why = wrong(it, allowed);
    found->faults += why != NULL;
    found->ties += !why && it->alone != it->together;
    if (why || it->alone != it->together)
        tell(it, why, allowed, what, to);
}

ties_found ties_find(const ties_run *alone, const ties_run *together, int sequences, int tokens, int words, float unit,
                     FILE *to)
{
    ties_found found = {.allowed = TIES_ROUNDINGS};
    for (int i = 0; i < sequences; i++)
        for (int k = 0; k < tokens && alone[i].tokens[k] == together[i].tokens[k]; k++) {
            spot it = spot_of(alone, together, i, k, words, unit);
            found.agreed++;
            found.rounding = it.difference > found.rounding ? it.difference : found.rounding;
            count(&found, &it, TIES_ROUNDINGS, "together", to);
        }
    if (found.agreed)
        found.allowed = fminf(TIES_ROUNDINGS, 2 * found.rounding);
    for (int i = 0; i < sequences; i++) {
        int k = 0;
        while (k < tokens && alone[i].tokens[k] == together[i].tokens[k])
            k++;
        if (k < tokens) {
            spot it = spot_of(alone, together, i, k, words, unit);
            count(&found, &it, found.allowed, "together", to);
        }
    }
    return found;
}

void ties_judge(ties_found *by, const ties_run *alone, const ties_run *other, int sequences, int tokens, int words,
                float unit, const char *what, FILE *to)
{
    for (int i = 0; i < sequences; i++) {
        int k = 0;
        while (k < tokens && alone[i].tokens[k] == other[i].tokens[k])
            k++;
        if (k == tokens)
            continue;
        spot it = spot_of(alone, other, i, k, words, unit);
        it.difference = 0; /* nobody saw the other logits */
        count(by, &it, by->allowed, what, to);
    }
}
