/* How a world moves: steps from a script or by chance, and others within them. */
#include "base/probes.h"
#include "sim/world.h"

#include "runtime/runtime.h"

enum { /* of the places where another step could run */
       NESTED_PERCENT = 10,
       ENDING_PERCENT = 40 /* while a stream is ended */
};

static bool write_down(step_list *log, const step *s)
{
    if (!wi_make_room(&log->list, log->count, &log->capacity, sizeof *log->list))
        return false;
    log->list[log->count++] = *s;
    return true;
}

static void steps_run(world *w, const step *s)
{
    uint64_t mark = w->fault_mark, place = w->place, window = w->window, captures = w->capture_mark;
    if (s->operation >= operation_count())
        return;
    w->fault_mark = world_faults(w);
    w->capture_mark = w->captures_ended;
    w->place = w->window = 0;
    w->depth++;
    bool users = oracle_by_user(w->oracle, false);
    wi_sim_seed(w->device, s->field[F_SEED]);
    operations[s->operation].run(w, s);
    (void)oracle_by_user(w->oracle, users);
    w->depth--;
    w->place = place;
    w->window = window;
    w->fault_mark = mark;
    w->capture_mark = captures;
    w->done[s->operation]++;
}

/* Those that stand within the first of the steps. */
static size_t count_within(const step *list, size_t count)
{
    size_t within = 0;
    while (1 + within < count && list[1 + within].depth > list[0].depth)
        within++;
    return within;
}

static size_t run_with_others(world *w, const step *list, size_t count)
{
    const step *script = w->script;
    size_t left = w->script_left, within = count_within(list, count);
    w->script = list + 1;
    w->script_left = within;
    steps_run(w, list);
    w->script = script;
    w->script_left = left;
    return 1 + within;
}

/* Whether a step of a script is due here, or was due before. Windows exist only in some builds and do not count as
 * places, so that the script's steps run at the same places in every build. */
static bool is_due(const world *w, const step *s, uint64_t window)
{
    uint64_t at = s->field[F_AT], before = s->field[F_WINDOW];
    return at < w->place || (at == w->place && (window == 0 || (before > 0 && before <= window)));
}

static void run_next(world *w, uint64_t window)
{
    while (w->script_left > 0 && is_due(w, &w->script[0], window)) {
        const step *first = w->script;
        size_t used = 1 + count_within(first, w->script_left);
        w->script += used;
        w->script_left -= used;
        w->nested++;
        (void)run_with_others(w, first, used);
    }
}

static void choose_next(world *w, uint64_t window)
{
    step s;
    if (world_random(w, 100) >= (world_ending(w) ? ENDING_PERCENT : NESTED_PERCENT))
        return;
    world_choose(w, &s);
    s.depth = (uint8_t)w->depth;
    s.field[F_AT] = w->place;
    s.field[F_WINDOW] = window;
    if (w->log && !write_down(w->log, &s))
        return;
    w->nested++;
    steps_run(w, &s);
}

static bool lets_others(const world *w)
{
    return w->depth > 0 && w->depth <= WORLD_DEPTH && !wi_has_bug(WI_BUG_UNMAP_UNDER_USE); /* which keeps its locks */
}

/* At a place, or at a window before it. */
static void run_other(world *w, uint64_t window)
{
    if (w->choosing)
        choose_next(w, window);
    else
        run_next(w, window);
}

/* weir calls the driver, with no lock held. */
static void interrupt(void *user)
{
    world *w = user;
    if (!lets_others(w))
        return;
    run_other(w, 0);
    w->place++;
    w->window = 0;
}

#ifdef WEIR_INVARIANTS
static world *at_windows;

/* At the window of a thread cache its thread's own lock is held. */
static void at_window(wi_window_point place)
{
    if (place == WI_WINDOW_STREAM_SETTLED && at_windows->registering)
        world_register_beside(at_windows);
    if (place != WI_WINDOW_BLOCK_CHOSEN && lets_others(at_windows))
        run_other(at_windows, ++at_windows->window);
}
#endif

/* Others may run within what is done from now on; NULL: none. */
static void let_others(world *w)
{
    between_calls(w ? interrupt : NULL, w);
#ifdef WEIR_INVARIANTS
    at_windows = w;
    wi_window_hook = w ? at_window : NULL;
#endif
}

size_t world_step(world *w, const step *list, size_t count)
{
    if (!w->runtime)
        return 1;
    let_others(w);
    size_t used = run_with_others(w, list, count);
    let_others(NULL);
    return used;
}

bool world_advance(world *w, step_list *log)
{
    step s;
    world_choose(w, &s);
    if (log && !write_down(log, &s))
        return false;
    if (!w->runtime)
        return true;
    w->log = log;
    w->choosing = w->options.nested;
    let_others(w->choosing ? w : NULL);
    steps_run(w, &s);
    let_others(NULL);
    w->choosing = false;
    w->log = NULL;
    return true;
}

bool world_undisturbed(const world *w, uint64_t nested)
{
    return w->depth <= 1 && w->nested == nested;
}

uint64_t world_charge(const world *w, uint64_t bytes, uint64_t alignment)
{
    wi_placement placement = {.bytes = bytes, .alignment = wi_max(alignment, WI_UNIT)};
    if (bytes > 0)
        wi_measure(w->runtime->resource, &placement);
    return placement.charged;
}
