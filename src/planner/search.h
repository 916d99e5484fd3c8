/* The exact search: whether items fit under a height.
 *
 * Items are put down from below, each on the floor that the ones before leave. In a hollow of that floor (a run of equal
 * height with higher neighbours) only what lies inside it can be put down; so for each section of a hollow, either one of
 * those that cover the section and lie in the hollow is put there, or the section is left empty up to where that can
 * change. These options exclude each other and leave nothing out, in whatever order sections are looked at. What is left
 * empty is paid from the section's slack: the height less the floor and all that is still to come in the section.
 *
 * Where no item that is left crosses a boundary of sections, the two sides are solved one after the other: if one fails,
 * nothing has to be tried again in the other. States that failed are remembered. */
#ifndef WI_ARENA_COVER_H
#define WI_ARENA_COVER_H

#include "planner/solve.h"

#define WI_COVER_LOG_ONE 65536

/* In the order of left, right, height; so equal ones lie side by side. */
typedef struct wi_cover_item {
    int64_t height; /* in units */
    uint64_t key;   /* equal items, equal keys */
    uint32_t left, right;
    uint32_t source;               /* in the problem */
    int32_t log_height, log_width; /* of base 2, WI_COVER_LOG_ONE is 1 */
    bool twin;                     /* equal to the one before */
} wi_cover_item;

/* What was done: an item put down, or a section lifted. */
typedef struct wi_cover_deed {
    int64_t floor; /* before */
    uint32_t what; /* an item, or a section */
    bool lift;
} wi_cover_deed;

typedef struct wi_cover {
    uint32_t count, sections;
    uint64_t unit; /* of heights */
    int64_t cap;
    int64_t table_cap; /* the highest since the table was cleared */
    uint64_t salt;     /* of states that are nobody's but this try's; 0: they are everybody's */
    wi_cover_item *items;
    uint32_t *first;      /* of a section: the first item with its left there or behind */
    uint64_t *waiting;    /* bits of items that are not put down */
    int64_t *floors;      /* by section */
    int64_t *rest;        /* by section: heights of all waiting items */
    uint32_t *crossing;   /* by section: waiting items that are live in it and the one before */
    int64_t *bottoms;     /* by item: where it was put down */
    uint32_t *weights;    /* by section: how often it was the reason of a failure */
    double *pulls;        /* by section: 1 / (1 + its weight) */
    bool *changed;        /* by section: since its options were counted */
    uint64_t *floor_keys; /* by section: numbers for hashing */
    wi_cover_deed *deeds;
    size_t deed_count, deeds_room;
    struct wi_cover_scratch *scratch;
    struct wi_cover_table *table;
    uint64_t random;
} wi_cover;

/* How a try goes about it: which options come first. An item's score is the sum of what is told here times the logarithms
 * of its height and its width, the number of its edges that lie flush, and a random number from 0 to 1/4 … */
typedef struct wi_cover_way {
    int8_t height, width, edges, noise;
    bool weighted;  /* sections that were the reason of failures are chosen sooner */
    uint64_t nodes; /* at the most */
} wi_cover_way;

typedef enum wi_cover_answer { WI_COVER_FOUND, WI_COVER_NONE, WI_COVER_GAVE_UP, WI_COVER_NO_MEMORY } wi_cover_answer;

/* cover.c: of a plain problem. NULL without host memory. */
wi_cover *wi_cover_create(const wi_problem *problem);
void wi_cover_destroy(wi_cover *cover);
void wi_cover_put(wi_cover *cover, uint32_t item, int64_t floor);
bool wi_cover_lift(wi_cover *cover, uint32_t section, int64_t floor);
void wi_cover_undo(wi_cover *cover, size_t deeds);
uint64_t wi_cover_random(wi_cover *cover);

static inline bool wi_cover_waits(const wi_cover *cover, uint32_t item)
{
    return cover->waiting[item / 64] >> (item % 64) & 1;
}

/* cover_choice.c: what the hollows of sections left … right - 1 leave to do. */
typedef struct wi_cover_option {
    int64_t score;
    uint32_t item; /* UINT32_MAX: the section is lifted to `floor` */
    int64_t floor;
} wi_cover_option;

typedef enum wi_cover_look {
    WI_LOOK_DONE,
    WI_LOOK_FAILED,
    WI_LOOK_SPLIT,
    WI_LOOK_CHOICE,
    WI_LOOK_NO_MEMORY
} wi_cover_look;

bool wi_cover_scratch_create(wi_cover *cover);
void wi_cover_scratch_destroy(wi_cover *cover);
/* Does what has to be done without a choice. WI_LOOK_CHOICE: `section` is the one to choose in; the hollow of it is left
 * for wi_cover_options. WI_LOOK_SPLIT: no waiting item crosses `section`'s left border. */
wi_cover_look wi_cover_look_at(wi_cover *cover, const wi_cover_way *way, uint32_t left, uint32_t right,
                               uint32_t *section);
/* Appends the options of the section that was chosen, the best last. */
bool wi_cover_options(wi_cover *cover, const wi_cover_way *way, uint32_t section, wi_cover_option **options,
                      size_t *count, size_t *room);

/* cover_table.c: states that failed, by what waits and by floors; valid for the cap and all below. */
bool wi_cover_table_create(wi_cover *cover);
void wi_cover_table_destroy(wi_cover *cover);
/* Sets the cap; forgets what failed under a lower one. */
void wi_cover_limit(wi_cover *cover, int64_t cap);
/* The same for one try under a higher cap, whose failures say nothing of other tries, nor theirs of it. */
void wi_cover_limit_once(wi_cover *cover, int64_t cap);
typedef struct wi_cover_state {
    uint64_t key, check;
} wi_cover_state;
wi_cover_state wi_cover_state_of(const wi_cover *cover, uint32_t left, uint32_t right);
bool wi_cover_failed_before(const wi_cover *cover, wi_cover_state state);
void wi_cover_remember(wi_cover *cover, wi_cover_state state);

/* An earlier answer, perhaps for a larger cap, of which a try keeps what lies below the cuts, and on nothing that is free. */
typedef struct wi_cover_before {
    const int64_t *bottoms; /* by item */
    const uint32_t *order;  /* items, the lowest bottom first */
    int64_t *cuts;          /* by section; lowered by the try */
} wi_cover_before;

/* cover_search.c: one try, from the beginning, or from what is kept of an answer before (NULL: nothing), which then is
 * never WI_COVER_NONE. `bottoms` are the answer when found. */
wi_cover_answer wi_cover_try(wi_cover *cover, const wi_cover_way *way, const wi_cover_before *before, wi_work *work);

/* cover_repair.c: an answer that gets better by making parts of it anew. */
typedef struct wi_cover_repair wi_cover_repair;
wi_cover_repair *wi_cover_repair_create(wi_cover *cover); /* NULL without host memory */
void wi_cover_repair_destroy(wi_cover_repair *repair);
/* By item: the answer, to be filled in before it begins, and read when a try has found a lower one. */
int64_t *wi_cover_repair_bottoms(wi_cover_repair *repair);
void wi_cover_repair_begin(wi_cover_repair *repair, int64_t low);
/* Now and then an answer that is as high, and otherwise different, takes its place, so that others come within reach. */
void wi_cover_repair_wander(wi_cover_repair *repair);
/* One try; WI_COVER_FOUND when the answer got lower, WI_COVER_NONE when it is as low as `low`. */
wi_cover_answer wi_cover_repair_try(wi_cover_repair *repair, int64_t low, wi_work *work);

#endif
