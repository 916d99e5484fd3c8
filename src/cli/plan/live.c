/* plan_live.c: what is live when: the peak, and the curve below the arena. */
#include "picture.h"

#include "cli/text.h"

#include <stdlib.h>

typedef struct change {
    uint64_t step;
    uint64_t bytes;
    bool ends;
} change;

/* At one step ends come first: what ends there is not live in it. */
static int by_step(const void *a, const void *b)
{
    const change *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return (int)y->ends - (int)x->ends;
}

static change *changes(const picture *p)
{
    change *list = text_zeroed(2 * p->count, sizeof *list);
    for (size_t i = 0; i < p->count; i++) {
        const plan_storage *s = &p->storages[i];
        list[2 * i] = (change){s->begin, s->length, false};
        list[2 * i + 1] = (change){s->end, s->length, true};
    }
    qsort(list, 2 * p->count, sizeof *list, by_step);
    return list;
}

/* Tells each span of steps in which the same bytes are live. */
static void sweep(const picture *p, void (*tell)(uint64_t from, uint64_t to, uint64_t live, void *user), void *user)
{
    change *list = changes(p);
    uint64_t live = 0;
    for (size_t i = 0; i < 2 * p->count; i++) {
        live += list[i].ends ? 0 - list[i].bytes : list[i].bytes;
        uint64_t next = i + 1 < 2 * p->count ? list[i + 1].step : p->steps;
        if (next > list[i].step)
            tell(list[i].step, next, live, user);
    }
    free(list);
}

static void take_peak(uint64_t from, uint64_t to, uint64_t live, void *user)
{
    picture *p = user;
    (void)to;
    if (live > p->peak) {
        p->peak = live;
        p->peak_step = from;
    }
}

void picture_find_peak(picture *p)
{
    p->peak = p->peak_step = 0;
    sweep(p, take_peak, p);
}

/* The curve -------------------------------------------------------------------------------------------------------- */

enum { COLUMNS = PICTURE_RIGHT - PICTURE_LEFT };

typedef struct curve {
    const picture *p;
    uint64_t most[COLUMNS]; /* in each column of the picture */
} curve;

static void take_columns(uint64_t from, uint64_t to, uint64_t live, void *user)
{
    curve *c = user;
    double each = (double)COLUMNS / (double)c->p->steps;
    size_t first = (size_t)((double)from * each), last = (size_t)((double)to * each);
    for (size_t i = first; i < COLUMNS && (i < last || i == first); i++)
        c->most[i] = live > c->most[i] ? live : c->most[i];
}

static double height(const picture *p, uint64_t live)
{
    double room = PICTURE_LIVE_BOTTOM - PICTURE_LIVE_TOP;
    return PICTURE_LIVE_BOTTOM - (p->peak ? room * (double)live / (double)p->peak : 0);
}

void picture_put_live(const picture *p)
{
    curve *c = text_zeroed(1, sizeof *c);
    c->p = p;
    sweep(p, take_columns, c);
    fprintf(p->file, "<path class=\"live\" d=\"M%d %d", PICTURE_LEFT, PICTURE_LIVE_BOTTOM);
    for (int i = 0; i < COLUMNS; i++)
        if (i == 0 || c->most[i] != c->most[i - 1])
            fprintf(p->file, "H%dV%.1f", PICTURE_LEFT + i, height(p, c->most[i]));
    fprintf(p->file, "H%dV%dZ\"/>\n", PICTURE_RIGHT, PICTURE_LIVE_BOTTOM);
    free(c);
}
