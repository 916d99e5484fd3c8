/* One try: depth first, on a stack of its own. */
#include "planner/buffers.h"
#include "planner/search.h"
#include "base/internal.h"

/* What is being tried in a range of sections: the options of a choice, or the two sides of a border. */
typedef struct frame {
    wi_cover_state state; /* of a choice */
    uint32_t left, right;
    uint32_t at;         /* the section of a choice; the border of a split */
    size_t first_option; /* on the stack of options, the best last */
    size_t deeds;
    bool split, second; /* the side behind the border is being solved */
} frame;

typedef struct search {
    wi_cover *cover;
    const wi_cover_way *way;
    frame *frames;
    size_t frame_count, frames_room;
    wi_cover_option *options;
    size_t option_count, options_room;
    uint32_t left, right; /* the range that is entered */
    uint64_t limit;       /* nodes */
} search;

typedef enum outcome { ENTER, SOLVED, FAILED, NO_MEMORY } outcome;

static bool push(search *s, frame f)
{
    if (!wi_room_for((void **)&s->frames, sizeof f, &s->frames_room, s->frame_count + 1))
        return false;
    f.left = s->left;
    f.right = s->right;
    f.deeds = s->cover->deed_count;
    f.first_option = s->option_count;
    s->frames[s->frame_count++] = f;
    return true;
}

/* Takes the next option of the choice on top; without one the choice has failed. */
static outcome next_option(search *s)
{
    const frame *top = &s->frames[s->frame_count - 1];
    wi_cover_undo(s->cover, top->deeds);
    if (s->option_count == top->first_option) {
        wi_cover_remember(s->cover, top->state);
        s->frame_count--;
        return FAILED;
    }
    const wi_cover_option *option = &s->options[--s->option_count];
    s->left = top->left;
    s->right = top->right;
    if (option->item != UINT32_MAX)
        wi_cover_put(s->cover, option->item, option->floor);
    else if (!wi_cover_lift(s->cover, top->at, option->floor))
        return NO_MEMORY;
    return ENTER;
}

static outcome enter(search *s)
{
    uint32_t section;
    switch (wi_cover_look_at(s->cover, s->way, s->left, s->right, &section)) {
    case WI_LOOK_DONE:
        return SOLVED;
    case WI_LOOK_FAILED:
        return FAILED;
    case WI_LOOK_SPLIT:
        if (!push(s, (frame){.at = section, .split = true}))
            return NO_MEMORY;
        s->right = section;
        return ENTER;
    case WI_LOOK_CHOICE:
        break;
    default:
        return NO_MEMORY;
    }
    wi_cover_state state = wi_cover_state_of(s->cover, s->left, s->right);
    if (wi_cover_failed_before(s->cover, state))
        return FAILED;
    if (!push(s, (frame){.state = state, .at = section}) ||
        !wi_cover_options(s->cover, s->way, section, &s->options, &s->option_count, &s->options_room))
        return NO_MEMORY;
    return next_option(s);
}

/* Goes back to what waits for the range that was solved or has failed. */
static outcome go_back(search *s, outcome turn)
{
    frame *top = &s->frames[s->frame_count - 1];
    if (top->split && turn == SOLVED && !top->second) {
        top->second = true;
        s->left = top->at;
        s->right = top->right;
        return ENTER;
    }
    if (!top->split && turn == FAILED)
        return next_option(s);
    s->option_count = top->first_option;
    s->frame_count--;
    return turn;
}

static wi_cover_answer run(search *s, wi_work *work)
{
    uint64_t nodes = 0;
    outcome turn = ENTER;
    while (turn == ENTER || (turn != NO_MEMORY && s->frame_count > 0)) {
        if (turn != ENTER) {
            turn = go_back(s, turn);
            continue;
        }
        if (nodes++ >= s->limit || !wi_work_spend(work, 1))
            return WI_COVER_GAVE_UP;
        turn = enter(s);
    }
    return turn == SOLVED ? WI_COVER_FOUND : turn == FAILED ? WI_COVER_NONE : WI_COVER_NO_MEMORY;
}

static bool is_kept(const wi_cover_item *item, int64_t bottom, int64_t *cuts)
{
    bool kept = true;
    for (uint32_t s = item->left; s < item->right; s++)
        kept &= bottom < cuts[s];
    for (uint32_t s = item->left; s < item->right && !kept; s++)
        if (bottom < cuts[s])
            cuts[s] = bottom; /* what lay on it is free as well */
    return kept;
}

/* Puts down what lay below the cuts, where it lay; false when that leaves too little under the cap. */
static bool keep_below(wi_cover *cover, const wi_cover_before *before)
{
    for (uint32_t k = 0; k < cover->count; k++) {
        uint32_t index = before->order[k];
        const wi_cover_item *item = &cover->items[index];
        int64_t bottom = before->bottoms[index];
        if (!is_kept(item, bottom, before->cuts))
            continue;
        for (uint32_t s = item->left; s < item->right; s++)
            if (cover->floors[s] != bottom && !wi_cover_lift(cover, s, bottom))
                return false;
        wi_cover_put(cover, index, bottom);
    }
    for (uint32_t s = 0; s < cover->sections; s++)
        if (cover->floors[s] + cover->rest[s] > cover->cap)
            return false;
    return true;
}

wi_cover_answer wi_cover_try(wi_cover *cover, const wi_cover_way *way, const wi_cover_before *before, wi_work *work)
{
    search s = {.cover = cover, .way = way, .right = cover->sections};
    wi_cover_undo(cover, 0);
    memset(cover->changed, true, cover->sections * sizeof *cover->changed);
    for (uint32_t section = 0; section < cover->sections; section++)
        if (cover->rest[section] > cover->cap)
            return WI_COVER_NONE;
    if (before && !keep_below(cover, before))
        return WI_COVER_GAVE_UP;
    uint64_t waiting = 0;
    for (uint32_t i = 0; i <= cover->count / 64; i++)
        waiting += (uint64_t)__builtin_popcountll(cover->waiting[i]);
    s.limit = before ? way->nodes * waiting / wi_max(cover->count, 1) + 16 : way->nodes;
    wi_cover_answer answer = run(&s, work);
    free(s.frames);
    free(s.options);
    return answer == WI_COVER_NONE && before ? WI_COVER_GAVE_UP : answer;
}
