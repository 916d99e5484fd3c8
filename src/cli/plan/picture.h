/* plan_picture.h: what the parts of the picture share: where it puts things, and who is live when. */
#ifndef WEIR_CLI_PLAN_PICTURE_H
#define WEIR_CLI_PLAN_PICTURE_H

#include "plan.h"

#include <stdio.h>

enum {
    PICTURE_WIDTH = 1280,
    PICTURE_HEIGHT = 800,
    PICTURE_LEFT = 96,
    PICTURE_RIGHT = 1252,
    PICTURE_TOP = 112,
    PICTURE_BOTTOM = 612,   /* of the arena */
    PICTURE_LIVE_TOP = 642, /* of what is live, below it */
    PICTURE_LIVE_BOTTOM = 722,
};

typedef struct picture {
    FILE *file;
    const plan_answer *answer;
    const weir_buffers *buffers;
    plan_storage *storages;
    size_t count;
    uint64_t steps, arena;
    uint64_t peak, peak_step; /* the most that is live, and when that begins */
    size_t unseen;            /* storages that are too small to be drawn */
} picture;

/* The kinds of tensors that have a colour of their own. */
enum { PICTURE_COLOURS = 8 };
unsigned picture_colour(const picture *p, size_t i); /* of the ith storage */
const char *picture_colour_name(const picture *p, unsigned colour);

double picture_x(const picture *p, uint64_t step);
double picture_y(const picture *p, uint64_t address);

/* Finds the peak; to be called first. */
void picture_find_peak(picture *p);
/* What is live, step by step, below the arena. */
void picture_put_live(const picture *p);

#endif
