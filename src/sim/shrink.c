/* The shortest script: delta debugging. Ever smaller runs of steps are left out, as long as what is left still leads to
 * the same kind of finding; then numbers are made smaller. Of a long script all steps of some slots, clients or streams go
 * first, with which most of it goes in few attempts. */
#include "sim/simulate.h"

/* What making a world costs, in steps. */
enum { WORLD_STEPS = 100 };

typedef struct attempt {
    const world_options *options;
    oracle_kind kind;
    uint64_t left; /* steps that may still be run, so that the script does not depend on how fast the machine is */
} attempt;

/* True: the steps still show the finding first. Cuts off the steps after the finding. */
static bool happens(attempt *a, const step *steps, size_t *count)
{
    steps_outcome outcome;
    a->left -= wi_min(a->left, *count + WORLD_STEPS);
    if (!run_steps(a->options, steps, *count, &outcome) || outcome.found.count[a->kind] == 0 ||
        outcome.found.first_kind != a->kind)
        return false;
    *count = outcome.used;
    return true;
}

/* The `left` steps in `spare` take the place of the steps, if they still show the finding first. */
static bool shrink_replace(attempt *a, step *steps, size_t *count, const step *spare, size_t left)
{
    if (!happens(a, spare, &left))
        return false;
    memcpy(steps, spare, left * sizeof *steps);
    *count = left;
    return true;
}

static bool shrink_leave_out(attempt *a, step *steps, size_t *count, size_t from, size_t length, step *spare)
{
    size_t left = *count - length;
    memcpy(spare, steps, from * sizeof *steps);
    memcpy(spare + from, steps + from + length, (left - from) * sizeof *steps);
    return shrink_replace(a, steps, count, spare, left);
}

/* From the back, where most of what is not needed came after what is. */
static bool leave_out_runs(attempt *a, step *steps, size_t *count, size_t length, step *spare)
{
    bool any = false;
    for (size_t end = *count; end > 0 && a->left > 0;) {
        size_t from = end > length ? end - length : 0;
        any |= shrink_leave_out(a, steps, count, from, end - from, spare);
        end = wi_min(from, *count);
    }
    return any;
}

/* A step on its own is easier to understand than one within another. */
static void take_apart(attempt *a, step *steps, size_t *count, step *spare)
{
    for (size_t i = 0; i < *count && a->left > 0; i++) {
        if (steps[i].depth == 0)
            continue;
        memcpy(spare, steps, *count * sizeof *steps);
        spare[i].depth = 0;
        spare[i].field[F_AT] = spare[i].field[F_WINDOW] = 0;
        (void)shrink_replace(a, steps, count, spare, *count);
    }
}

/* Some steps, as acquiring and releasing, can only be left out together. */
static void leave_out_pairs(attempt *a, step *steps, size_t *count, step *spare)
{
    enum { MOST = 60 };
    for (size_t i = 0; *count <= MOST && i + 1 < *count; i++)
        for (size_t k = i + 1; k < *count && a->left > 0;) {
            size_t left = 0;
            for (size_t n = 0; n < *count; n++)
                if (n != i && n != k)
                    spare[left++] = steps[n];
            k = shrink_replace(a, steps, count, spare, left) ? i + 1 : k + 1;
        }
}

static void make_smaller(attempt *a, step *steps, size_t *count, step *spare)
{
    for (size_t i = 0; i < *count && a->left > 0; i++)
        for (int f = 0; f < STEP_FIELDS && i < *count; f++) {
            if (steps[i].field[f] == 0)
                continue;
            memcpy(spare, steps, *count * sizeof *steps);
            spare[i].field[f] = 0;
            (void)shrink_replace(a, steps, count, spare, *count);
        }
}

/* All steps that name a value in [from, +length). */
static void leave_out_values(attempt *a, step *steps, size_t *count, step_field field, uint64_t from, uint64_t length,
                             step *spare)
{
    size_t left = 0;
    for (size_t i = 0; i < *count; i++)
        if (steps[i].field[field] < from || steps[i].field[field] - from >= length)
            spare[left++] = steps[i];
    if (left < *count)
        (void)shrink_replace(a, steps, count, spare, left);
}

static void leave_out_things(attempt *a, step *steps, size_t *count, step *spare)
{
    enum { MANY = 10000 };
    static const struct {
        step_field field;
        uint64_t values;
    } things[] = {{F_SLOT, WORLD_SLOTS}, {F_CLIENT, WORLD_CLIENTS}, {F_STREAM, WORLD_STREAMS + 1}};
    for (size_t i = 0; i < sizeof things / sizeof things[0]; i++)
        for (uint64_t length = things[i].values / 2; length > 0; length /= 2)
            for (uint64_t from = 0; from < things[i].values; from += length)
                if (*count > MANY && a->left > 0)
                    leave_out_values(a, steps, count, things[i].field, from, length, spare);
}

static void leave_out_all(attempt *a, step *steps, size_t *count, step *spare)
{
    for (size_t length = (*count + 1) / 2; length > 0 && a->left > 0;) {
        bool any = leave_out_runs(a, steps, count, length, spare);
        if (length == 1 && !any)
            break;
        length = length > 1 ? length / 2 : 1;
    }
}

void shrink(const world_options *options, oracle_kind kind, uint64_t most, step *steps, size_t *count)
{
    enum { TIMES = 32 }; /* of a long script, which many attempts cannot be made with */
    attempt a = {options, kind, most ? wi_max(most, TIMES * (uint64_t)*count) : 0};
    step *spare = malloc((*count + 1) * sizeof *spare);
    if (!spare || !happens(&a, steps, count)) {
        free(spare);
        return;
    }
    leave_out_things(&a, steps, count, spare);
    for (size_t before = SIZE_MAX; *count < before && a.left > 0;) { /* smaller numbers leave less to do */
        before = *count;
        leave_out_all(&a, steps, count, spare);
        take_apart(&a, steps, count, spare);
        leave_out_pairs(&a, steps, count, spare);
        make_smaller(&a, steps, count, spare);
    }
    free(spare);
}
