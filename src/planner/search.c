#include "planner/solve.h"
#include "base/internal.h"
#include "planner/buffers.h"

#define LOG_ONE 65536 /* of a logarithm */

/* What was done: an item was put down, or a section lifted. */
typedef struct wi_search_move {
    int64_t level; /* before */
    uint32_t what; /* an item, or a section */
    bool lift;
} move;

uint64_t wi_search_random(wi_search *search)
{
    uint64_t x = search->random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Moves ------------------------------------------------------------------------------------------------------------ */

/* The neighbours have another wall. */
static void mark_changed(wi_search *search, uint32_t left, uint32_t right)
{
    uint32_t first = left > 0 ? left - 1 : left, end = right < search->sections ? right + 1 : right;
    memset(search->changed + first, true, end - first);
}

/* Puts an item down at `level`. The list of moves always has room for all items; lift() enlarges the list when
 * needed. */
static void search_put(wi_search *search, uint32_t item, int64_t level)
{
    const wi_search_item *it = &search->items[item];
    search->waiting[item / 64] &= ~(UINT64_C(1) << (item % 64));
    for (uint32_t s = it->left; s < it->right; s++) {
        search->levels[s] = level + it->height;
        search->rest[s] -= it->height;
    }
    for (uint32_t s = it->left + 1; s < it->right; s++)
        search->crossing[s]--;
    mark_changed(search, it->left, it->right);
    search->bottoms[item] = level;
    search->moves[search->move_count++] = (move){level, item, false};
}

static bool lift(wi_search *search, uint32_t section, int64_t level)
{
    if (search->move_count + search->count + 1 >= search->moves_room) {
        void *grown = realloc(search->moves, 2 * search->moves_room * sizeof *search->moves);
        if (!grown)
            return false;
        search->moves = grown;
        search->moves_room *= 2;
    }
    search->moves[search->move_count++] = (move){search->levels[section], section, true};
    search->levels[section] = level;
    mark_changed(search, section, section + 1);
    return true;
}

static void undo(wi_search *search, size_t moves)
{
    while (search->move_count > moves) {
        const move *m = &search->moves[--search->move_count];
        if (m->lift) {
            search->levels[m->what] = m->level;
            mark_changed(search, m->what, m->what + 1);
            continue;
        }
        const wi_search_item *it = &search->items[m->what];
        search->waiting[m->what / 64] |= UINT64_C(1) << (m->what % 64);
        for (uint32_t s = it->left; s < it->right; s++) {
            search->levels[s] = m->level;
            search->rest[s] += it->height;
        }
        for (uint32_t s = it->left + 1; s < it->right; s++)
            search->crossing[s]++;
        mark_changed(search, it->left, it->right);
    }
}

/* Valleys ---------------------------------------------------------------------------------------------------------- */

static const int64_t no_wall = INT64_MAX;

/* A run of sections with equal levels. */
typedef struct run {
    uint32_t left, right;
    int64_t level, wall; /* the lower of the neighbours' levels */
    bool changed;
} run;

/* By section, for sections in valleys: what was found there when something last changed. */
typedef struct wi_search_valleys {
    run *runs;
    uint32_t run_count;
    uint32_t *run_of;
    uint32_t *covers;   /* number of items inside the valley that cover the section; equal items count once */
    uint32_t *options;  /* the same, plus one if the section may be left empty; 0: no option */
    int64_t *lifted;    /* level of the section if left empty */
    int64_t *ends_here; /* by section + 1: least height of the valley's items that end there or before */
    int64_t *begins;    /* least height of the valley's items that begin at the section or behind */
    int64_t *inside;    /* sum of the heights of the valley's items that cover the section */
} valleys;

/* The next waiting item at or behind `i`, or `end`. */
static uint32_t next_waiting(const wi_search *search, uint32_t i, uint32_t end)
{
    while (i < end) {
        uint64_t bits = search->waiting[i / 64] >> (i % 64);
        if (bits) {
            i += (uint32_t)__builtin_ctzll(bits);
            return i < end ? i : end;
        }
        i = (i / 64 + 1) * 64;
    }
    return end;
}

static bool search_waits(const wi_search *search, uint32_t item)
{
    return search->waiting[item / 64] >> (item % 64) & 1;
}

/* Of equal items the first that waits stands for all. */
static bool stands_for_others(const wi_search *search, uint32_t i)
{
    return !search->items[i].twin || !search_waits(search, i - 1);
}

static void find_runs(wi_search *search, uint32_t left, uint32_t right)
{
    valleys *x = search->valleys;
    x->run_count = 0;
    for (uint32_t s = left; s < right;) {
        run *r = &x->runs[x->run_count];
        bool changed = false;
        *r = (run){.left = s, .level = search->levels[s], .wall = no_wall};
        for (; s < right && search->levels[s] == r->level; s++) {
            x->run_of[s] = x->run_count;
            changed |= search->changed[s];
        }
        r->right = s;
        r->changed = changed;
        x->run_count++;
    }
    for (uint32_t i = 0; i < x->run_count; i++) {
        run *r = &x->runs[i];
        int64_t before = i > 0 ? x->runs[i - 1].level : no_wall;
        int64_t behind = i + 1 < x->run_count ? x->runs[i + 1].level : no_wall;
        r->wall = before < behind ? before : behind;
    }
}

/* What lies inside of the valley. */
static void find_items(wi_search *search, const run *r)
{
    valleys *x = search->valleys;
    for (uint32_t s = r->left; s < r->right; s++) {
        x->covers[s] = 0;
        x->inside[s] = 0;
        x->ends_here[s] = x->begins[s] = no_wall;
    }
    x->ends_here[r->right] = no_wall;
    int64_t inside = x->inside[r->right]; /* they are the next valley's */
    uint32_t covers = x->covers[r->right];
    uint32_t end = search->first[r->right];
    for (uint32_t i = next_waiting(search, search->first[r->left], end); i < end;
         i = next_waiting(search, i + 1, end)) {
        const wi_search_item *item = &search->items[i];
        if (item->right > r->right)
            continue;
        x->inside[item->left] += item->height; /* differences as yet */
        x->inside[item->right] -= item->height;
        if (!stands_for_others(search, i))
            continue;
        x->covers[item->left]++;
        x->covers[item->right]--;
        if (item->height < x->ends_here[item->right])
            x->ends_here[item->right] = item->height;
        if (item->height < x->begins[item->left])
            x->begins[item->left] = item->height;
    }
    for (uint32_t s = r->left + 1; s < r->right; s++) {
        x->covers[s] += x->covers[s - 1];
        x->inside[s] += x->inside[s - 1];
        if (x->ends_here[s - 1] < x->ends_here[s])
            x->ends_here[s] = x->ends_here[s - 1];
    }
    x->inside[r->right] = inside;
    x->covers[r->right] = covers;
    for (uint32_t s = r->right - 1; s > r->left; s--)
        if (x->begins[s] < x->begins[s - 1])
            x->begins[s - 1] = x->begins[s];
}

/* Where the level of a section that is left empty is at the least, before anything can be put on it: at the lower wall,
 * or on an item of the valley beside it. */
static int64_t lifted_level(const valleys *x, const run *r, uint32_t s)
{
    int64_t beside = s > r->left ? x->ends_here[s] : no_wall;
    if (s + 1 < r->right && x->begins[s + 1] < beside)
        beside = x->begins[s + 1];
    if (beside == no_wall)
        return r->wall;
    return r->level + beside < r->wall ? r->level + beside : r->wall;
}

static int64_t slack_of(const wi_search *search, uint32_t s)
{
    return search->cap - search->levels[s] - search->rest[s];
}

static void count_options(wi_search *search, const run *r)
{
    valleys *x = search->valleys;
    find_items(search, r);
    for (uint32_t s = r->left; s < r->right; s++) {
        x->lifted[s] = lifted_level(x, r, s);
        bool empty = x->lifted[s] != no_wall && x->lifted[s] - r->level <= slack_of(search, s);
        x->options[s] = x->covers[s] + empty;
        if (r->wall != no_wall && r->wall - r->level - x->inside[s] > slack_of(search, s))
            x->options[s] = 0;
        search->changed[s] = false;
    }
}

static bool may_be_empty(const valleys *x, uint32_t s)
{
    return x->options[s] > x->covers[s];
}

static uint32_t item_covering(const wi_search *search, const run *r, uint32_t s, uint32_t from)
{
    uint32_t end = search->first[s + 1];
    for (uint32_t i = next_waiting(search, from, end); i < end; i = next_waiting(search, i + 1, end)) {
        const wi_search_item *item = &search->items[i];
        if (item->right > s && item->right <= r->right && stands_for_others(search, i))
            return i;
    }
    return end;
}

static bool lies_free(const wi_search *search, const wi_search_item *item, int64_t level)
{
    for (uint32_t s = item->left; s < item->right; s++)
        if (search->levels[s] != level)
            return false;
    return true;
}

/* What comes of looking at a range of sections, or at a valley of it. */
typedef enum propagation { DONE, STUCK, SPLIT, CHOICE, OUT_OF_MEMORY } propagation;

static propagation stuck(wi_search *search, uint32_t s)
{
    search->failures[s]++;
    search->weights[s] = 1.0 / (1.0 + search->failures[s]);
    return STUCK;
}

/* Does what the sections with one option leave no choice in. Two items that both have to lie there and meet are a
 * failure. */
static propagation do_forced(wi_search *search, const run *r)
{
    const valleys *x = search->valleys;
    for (uint32_t s = r->left; s < r->right; s++) {
        if (x->options[s] != 1 || search->levels[s] != r->level)
            continue;
        if (!may_be_empty(x, s)) {
            uint32_t item = item_covering(search, r, s, search->first[r->left]);
            if (item == search->first[s + 1] || !lies_free(search, &search->items[item], r->level))
                return stuck(search, s);
            search_put(search, item, r->level);
        } else if (!lift(search, s, x->lifted[s])) {
            return OUT_OF_MEMORY;
        }
    }
    return DONE;
}

typedef struct pick {
    double score;
    int64_t slack;
    uint32_t section;
} pick;

/* Looks at one valley: DONE when something was done in it, else it may have a better section to choose in. */
static propagation look_in_valley(wi_search *search, const wi_strategy *strategy, const run *r, pick *best)
{
    const valleys *x = search->valleys;
    bool forced = false;
    if (r->changed)
        count_options(search, r);
    for (uint32_t s = r->left; s < r->right; s++) {
        uint32_t options = x->options[s];
        if (options == 0)
            return stuck(search, s);
        forced |= options == 1;
        double score = strategy->weighted ? options * search->weights[s] : options;
        if (score > best->score)
            continue;
        int64_t slack = slack_of(search, s);
        if (score < best->score || slack < best->slack)
            *best = (pick){score, slack, s};
    }
    return forced ? do_forced(search, r) : CHOICE;
}

/* A border that no waiting item crosses, or `right`. */
static uint32_t find_split(const wi_search *search, uint32_t left, uint32_t right)
{
    for (uint32_t s = left + 1; s < right; s++)
        if (search->crossing[s] == 0)
            return s;
    return right;
}

/* Does what has to be done without a choice. CHOICE: `section` is the one to choose in, and its valley is as it was
 * counted. SPLIT: no waiting item crosses `section`'s left border. */
static propagation propagate(wi_search *search, const wi_strategy *strategy, uint32_t left, uint32_t right,
                             uint32_t *section)
{
    for (;;) {
        if ((*section = find_split(search, left, right)) < right)
            return SPLIT;
        if (search->rest[left] == 0)
            return DONE;
        pick best = {.score = 1e300};
        bool done = false;
        find_runs(search, left, right);
        for (uint32_t i = 0; i < search->valleys->run_count; i++) {
            const run *r = &search->valleys->runs[i];
            if (r->level >= r->wall)
                continue;
            propagation look = look_in_valley(search, strategy, r, &best);
            if (look == STUCK || look == OUT_OF_MEMORY)
                return look;
            done |= look == DONE;
        }
        *section = best.section;
        if (!done)
            return CHOICE;
    }
}

/* Options ---------------------------------------------------------------------------------------------------------- */

typedef struct option {
    int64_t score;
    uint32_t item; /* UINT32_MAX: the section is lifted to `level` */
    int64_t level;
} option;

/* How many of the item's edges lie against something: the walls at its sides, and, half as good, a neighbour's level at
 * its top. In halves. */
static int edges_flush(const wi_search *search, const run *r, const wi_search_item *item)
{
    const valleys *x = search->valleys;
    int64_t top = r->level + item->height;
    const run *before = r > x->runs ? r - 1 : NULL;
    const run *behind = r + 1 < x->runs + x->run_count ? r + 1 : NULL;
    int halves = 0;
    if (item->left == r->left)
        halves += 2 + (before && before->level == top);
    if (item->right == r->right)
        halves += 2 + (behind && behind->level == top);
    return halves;
}

static int64_t score_of(wi_search *search, const wi_strategy *strategy, const run *r, const wi_search_item *item)
{
    int64_t score = strategy->height * (int64_t)item->log_height + strategy->width * (int64_t)item->log_width;
    if (strategy->edges)
        score += strategy->edges * (int64_t)edges_flush(search, r, item) * (LOG_ONE / 2);
    if (strategy->noise)
        score += strategy->noise * (int64_t)(wi_search_random(search) >> 48) / 16 * (LOG_ONE / 4096);
    return score;
}

/* Appends the options of the section that was chosen, the best last. */
static bool add_options(wi_search *search, const wi_strategy *strategy, uint32_t section, option **options,
                        size_t *count, size_t *room)
{
    valleys *x = search->valleys;
    const run *r = &x->runs[x->run_of[section]];
    size_t first = *count;
    if (!wi_room_for((void **)options, sizeof **options, room, *count + x->covers[section] + 1))
        return false;
    if (may_be_empty(x, section))
        (*options)[(*count)++] = (option){INT64_MIN, UINT32_MAX, x->lifted[section]};
    uint32_t end = search->first[section + 1];
    for (uint32_t i = item_covering(search, r, section, search->first[r->left]); i < end;
         i = item_covering(search, r, section, i + 1)) {
        option next = {score_of(search, strategy, r, &search->items[i]), i, r->level};
        size_t at = (*count)++;
        for (; at > first && (*options)[at - 1].score > next.score; at--)
            (*options)[at] = (*options)[at - 1];
        (*options)[at] = next;
    }
    return true;
}

/* Failed states ---------------------------------------------------------------------------------------------------- */

/* Two states are the same when the same items wait and the levels under them are equal; both are summed up in 128 bits,
 * so that a false answer is far less likely than a broken machine. */
typedef struct state {
    uint64_t key, check;
} state;

enum { TABLE_BITS = 18, BUCKET = 4 };

/* By a hash of the state: buckets, of which the oldest state gives way. */
struct wi_search_failed {
    state states[1 << TABLE_BITS];
    uint32_t next; /* which of a full bucket gives way */
};

/* A state that failed under a cap fails under a lower one. */
void wi_search_limit(wi_search *search, int64_t cap)
{
    if (cap > search->failed_cap)
        memset(search->failed, 0, sizeof *search->failed);
    search->failed_cap = search->cap = cap;
    search->salt = 0;
}

void wi_search_limit_once(wi_search *search, int64_t cap)
{
    search->cap = cap;
    search->salt = wi_search_random(search) | 1;
}

static uint64_t search_mix(uint64_t x)
{
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static void search_add(state *sum, uint64_t number, uint64_t salt)
{
    uint64_t mixed = search_mix(number);
    sum->key += mixed;
    sum->check += mixed * (salt | 1);
}

static state search_state_of(const wi_search *search, uint32_t left, uint32_t right)
{
    state sum = {left + 1 + search->salt, right};
    for (uint32_t s = left; s < right; s++)
        search_add(&sum, search->level_keys[s] + (uint64_t)search->levels[s], search->level_keys[s]);
    uint32_t i = search->first[left], end = search->first[right];
    while (i < end) {
        uint64_t bits = search->waiting[i / 64] >> (i % 64);
        if (bits == 0) {
            i = (i / 64 + 1) * 64;
            continue;
        }
        i += (uint32_t)__builtin_ctzll(bits);
        if (i < end)
            search_add(&sum, search->items[i].key, search->items[i].key >> 7);
        i++;
    }
    return sum;
}

static state *bucket_of(const wi_search *search, state sought)
{
    return &search->failed->states[(sought.key >> (64 - TABLE_BITS)) & ~(uint64_t)(BUCKET - 1)];
}

static bool search_failed_before(const wi_search *search, state sought)
{
    const state *bucket = bucket_of(search, sought);
    for (int i = 0; i < BUCKET; i++)
        if (bucket[i].key == sought.key && bucket[i].check == sought.check)
            return true;
    return false;
}

static void remember_failed(wi_search *search, state failed)
{
    state *bucket = bucket_of(search, failed);
    for (int i = 0; i < BUCKET; i++)
        if (bucket[i].key == 0 && bucket[i].check == 0) {
            bucket[i] = failed;
            return;
        }
    bucket[search->failed->next++ % BUCKET] = failed;
}

/* A try: depth first, on a stack of its own ------------------------------------------------------------------------ */

/* What is being tried in a range of sections: the options of a choice, or the two sides of a border. */
typedef struct frame {
    state state; /* of a choice */
    uint32_t left, right;
    uint32_t at;         /* the section of a choice; the border of a split */
    size_t first_option; /* on the stack of options, the best last */
    size_t moves;
    bool split, second; /* the side behind the border is being solved */
} frame;

typedef struct descent {
    wi_search *search;
    const wi_strategy *strategy;
    frame *frames;
    size_t frame_count, frames_room;
    option *options;
    size_t option_count, options_room;
    uint32_t left, right; /* the range that is entered */
    uint64_t limit;       /* nodes */
} descent;

typedef enum outcome { ENTER, SOLVED, FAILED, NO_MEMORY } outcome;

static bool search_push(descent *d, frame f)
{
    if (!wi_room_for((void **)&d->frames, sizeof f, &d->frames_room, d->frame_count + 1))
        return false;
    f.left = d->left;
    f.right = d->right;
    f.moves = d->search->move_count;
    f.first_option = d->option_count;
    d->frames[d->frame_count++] = f;
    return true;
}

/* Takes the next option of the choice on top; without one the choice has failed. */
static outcome next_option(descent *d)
{
    const frame *top = &d->frames[d->frame_count - 1];
    undo(d->search, top->moves);
    if (d->option_count == top->first_option) {
        remember_failed(d->search, top->state);
        d->frame_count--;
        return FAILED;
    }
    const option *next = &d->options[--d->option_count];
    d->left = top->left;
    d->right = top->right;
    if (next->item != UINT32_MAX)
        search_put(d->search, next->item, next->level);
    else if (!lift(d->search, top->at, next->level))
        return NO_MEMORY;
    return ENTER;
}

static outcome search_enter(descent *d)
{
    uint32_t section;
    switch (propagate(d->search, d->strategy, d->left, d->right, &section)) {
    case DONE:
        return SOLVED;
    case STUCK:
        return FAILED;
    case SPLIT:
        if (!search_push(d, (frame){.at = section, .split = true}))
            return NO_MEMORY;
        d->right = section;
        return ENTER;
    case CHOICE:
        break;
    default:
        return NO_MEMORY;
    }
    state now = search_state_of(d->search, d->left, d->right);
    if (search_failed_before(d->search, now))
        return FAILED;
    if (!search_push(d, (frame){.state = now, .at = section}) ||
        !add_options(d->search, d->strategy, section, &d->options, &d->option_count, &d->options_room))
        return NO_MEMORY;
    return next_option(d);
}

/* Goes back to what waits for the range that was solved or has failed. */
static outcome go_back(descent *d, outcome came)
{
    frame *top = &d->frames[d->frame_count - 1];
    if (top->split && came == SOLVED && !top->second) {
        top->second = true;
        d->left = top->at;
        d->right = top->right;
        return ENTER;
    }
    if (!top->split && came == FAILED)
        return next_option(d);
    d->option_count = top->first_option;
    d->frame_count--;
    return came;
}

static wi_search_result descend(descent *d, wi_work *work)
{
    uint64_t nodes = 0;
    outcome came = ENTER;
    while (came == ENTER || (came != NO_MEMORY && d->frame_count > 0)) {
        if (came != ENTER) {
            came = go_back(d, came);
            continue;
        }
        if (nodes++ >= d->limit || !wi_work_spend(work, 1))
            return WI_SEARCH_GAVE_UP;
        came = search_enter(d);
    }
    return came == SOLVED ? WI_SEARCH_FOUND : came == FAILED ? WI_SEARCH_NONE : WI_SEARCH_NO_MEMORY;
}

static bool search_stays(const wi_search_item *item, int64_t bottom, int64_t *cuts)
{
    bool stays = true;
    for (uint32_t s = item->left; s < item->right; s++)
        stays &= bottom < cuts[s];
    for (uint32_t s = item->left; s < item->right && !stays; s++)
        if (bottom < cuts[s])
            cuts[s] = bottom; /* what lay on it is free as well */
    return stays;
}

/* Puts down what lay below the cuts, where it lay; false when that leaves too little under the cap. */
static bool keep_below(wi_search *search, const wi_search_solution *solution)
{
    for (uint32_t k = 0; k < search->count; k++) {
        uint32_t index = solution->order[k];
        const wi_search_item *item = &search->items[index];
        int64_t bottom = solution->bottoms[index];
        if (!search_stays(item, bottom, solution->cuts))
            continue;
        for (uint32_t s = item->left; s < item->right; s++)
            if (search->levels[s] != bottom && !lift(search, s, bottom))
                return false;
        search_put(search, index, bottom);
    }
    for (uint32_t s = 0; s < search->sections; s++)
        if (search->levels[s] + search->rest[s] > search->cap)
            return false;
    return true;
}

wi_search_result wi_search_try(wi_search *search, const wi_strategy *strategy, const wi_search_solution *solution,
                               wi_work *work)
{
    descent d = {.search = search, .strategy = strategy, .right = search->sections};
    undo(search, 0);
    memset(search->changed, true, search->sections * sizeof *search->changed);
    for (uint32_t section = 0; section < search->sections; section++)
        if (search->rest[section] > search->cap)
            return WI_SEARCH_NONE;
    if (solution && !keep_below(search, solution))
        return WI_SEARCH_GAVE_UP;
    uint64_t waiting = 0;
    for (uint32_t i = 0; i <= search->count / 64; i++)
        waiting += (uint64_t)__builtin_popcountll(search->waiting[i]);
    d.limit = solution ? strategy->nodes * waiting / wi_max(search->count, 1) + 16 : strategy->nodes;
    wi_search_result result = descend(&d, work);
    free(d.frames);
    free(d.options);
    return result == WI_SEARCH_NONE && solution ? WI_SEARCH_GAVE_UP : result;
}

/* Tables ----------------------------------------------------------------------------------------------------------- */

bool wi_search_tables_make(wi_search *search)
{
    valleys *s = search->valleys = calloc(1, sizeof *s);
    search->failed = calloc(1, sizeof *search->failed);
    search->moves_room = search->count + 1024;
    search->moves = calloc(search->moves_room, sizeof *search->moves);
    if (!s || !search->failed || !search->moves)
        return false;
    size_t sections = (size_t)search->sections + 2;
    s->runs = calloc(sections, sizeof *s->runs);
    s->run_of = calloc(sections, sizeof *s->run_of);
    s->covers = calloc(sections, sizeof *s->covers);
    s->options = calloc(sections, sizeof *s->options);
    s->lifted = calloc(sections, sizeof *s->lifted);
    s->ends_here = calloc(sections, sizeof *s->ends_here);
    s->begins = calloc(sections, sizeof *s->begins);
    s->inside = calloc(sections, sizeof *s->inside);
    return s->runs && s->run_of && s->covers && s->options && s->lifted && s->ends_here && s->begins && s->inside;
}

void wi_search_tables_clear(wi_search *search)
{
    valleys none = {.runs = NULL}, *s = search->valleys ? search->valleys : &none;
    void *const all[] = {search->valleys, search->failed, search->moves, s->runs,   s->run_of, s->covers,
                         s->options,      s->lifted,      s->ends_here,  s->begins, s->inside};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}
