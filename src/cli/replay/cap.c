/* cap.c: the search for the smallest cap under which a trace completes. */
#include "replay.h"

#include <stdlib.h>

enum { STEPS = 500, TIMES = 64, LAST = STEPS * (TIMES - 1) }; /* steps in a peak; the largest cap in peaks; its step */
enum { ATTEMPTS = 200, NEVER = -1 };

typedef struct attempt {
    long step;
    double ns; /* per event; negative: it did not complete */
} attempt;

typedef struct search {
    const wi_replay_plan *plan;
    wi_replay_settings settings;
    void (*progress)(double fraction);
    attempt attempts[ATTEMPTS];
    unsigned count;
    long low, high; /* the largest that failed; the smallest that completed, or NEVER */
} search;

static uint64_t replay_cap_of(const wi_replay_plan *plan, long step)
{
    uint64_t size = plan->peak / STEPS;
    return plan->peak + (uint64_t)step * (size ? size : 1);
}

/* Each attempt halves the distance that is left. */
static void tell_progress(const search *s)
{
    unsigned left = 2;
    for (long distance = s->high - s->low; distance > 1 && s->high != NEVER; distance /= 2)
        left++;
    if (s->progress)
        s->progress((double)s->count / (s->count + (s->high == NEVER ? 10 : left)));
}

static weir_status attempt_cap(search *s, long step, const attempt **out)
{
    for (unsigned i = 0; i < s->count; i++)
        if (s->attempts[i].step == step) {
            *out = &s->attempts[i];
            return WEIR_OK;
        }
    if (s->count == ATTEMPTS)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: no smallest cap after %d tries", s->plan->name, (int)ATTEMPTS);
    wi_replay_result result;
    tell_progress(s);
    s->settings.cap = replay_cap_of(s->plan, step);
    weir_status status = wi_replay_run(s->plan, &s->settings, &result);
    if (status == WEIR_OK) {
        bool failed = result.passes[result.count - 1].failures > 0;
        s->attempts[s->count] = (attempt){step, failed ? -1 : wi_replay_ns(s->plan, &result)};
        *out = &s->attempts[s->count++];
    }
    wi_replay_result_clear(&result);
    return status;
}

/* Goes up from `low` in doubling strides until a cap completes; high is NEVER if none does. */
static weir_status find_high(search *s)
{
    const attempt *t;
    s->high = NEVER;
    long from = s->low;
    for (long stride = 1; s->low < LAST; stride *= 2) {
        weir_status status = attempt_cap(s, from + stride < LAST ? from + stride : LAST, &t);
        if (status != WEIR_OK)
            return status;
        if (t->ns >= 0) {
            s->high = t->step;
            return WEIR_OK;
        }
        s->low = t->step;
    }
    return WEIR_OK;
}

static weir_status halve(search *s)
{
    const attempt *t;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && s->high - s->low > 1) {
        status = attempt_cap(s, s->low + (s->high - s->low) / 2, &t);
        if (status == WEIR_OK)
            *(t->ns >= 0 ? &s->high : &s->low) = t->step;
    }
    return status;
}

/* Searches until a cap completes and the next larger one does too. */
static weir_status cap_look(search *s, const attempt **found)
{
    const attempt *above;
    for (s->low = -1;;) {
        weir_status status = find_high(s);
        if (status == WEIR_OK && s->high == NEVER)
            return WEIR_OK;
        if (status == WEIR_OK)
            status = halve(s);
        if (status == WEIR_OK)
            status = attempt_cap(s, s->high + 1, &above);
        if (status != WEIR_OK)
            return status;
        if (above->ns >= 0)
            return attempt_cap(s, s->high, found);
        s->low = s->high + 1;
    }
}

weir_status wi_replay_min_cap(const wi_replay_plan *plan, const wi_replay_settings *settings,
                              void (*progress)(double fraction), wi_replay_cap *out)
{
    const attempt *found = NULL;
    search *s = calloc(1, sizeof *s);
    *out = (wi_replay_cap){0};
    if (!s)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for a search");
    *s = (search){.plan = plan, .settings = *settings, .progress = progress, .high = NEVER};
    s->settings.stop = true;
    weir_status status = cap_look(s, &found);
    if (status == WEIR_OK && found)
        *out = (wi_replay_cap){.bytes = replay_cap_of(plan, found->step), .ns = found->ns};
    out->attempts = s->count;
    free(s);
    return status;
}
