/* Callers whose header is older: an engine fills in what they have room for, and no byte more; of a newer one's structures all
 * that it knows. */
#ifndef TESTS_OLDER_H
#define TESTS_OLDER_H

#include <weir/engine.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef struct older {
    const weir_engine *engine;
    weir_engine_model *model; /* loaded */
    const weir_engine_load *load;
} older;

/* A structure of the engine's, with room behind it for what a newer caller would have. */
typedef union older_room {
    size_t struct_size;
    weir_engine_probe probe;
    weir_engine_plan plan;
    weir_engine_metrics metrics;
    weir_model_details info;
    weir_engine_provider provider;
    unsigned char bytes[8192];
} older_room;

static inline weir_status older_ask(const older *it, int what, older_room *room, size_t *known)
{
    static const size_t sizes[] = {sizeof(weir_engine_probe), sizeof(weir_engine_plan), sizeof(weir_engine_metrics),
                                   sizeof(weir_model_details), sizeof(weir_engine_provider)};
    *known = sizes[what];
    switch (what) {
    case 0:
        return it->engine->probe(&room->probe);
    case 1:
        return it->engine->plan(it->load, &room->plan);
    case 2:
        return it->engine->metrics(it->model, &room->metrics);
    case 3:
        return it->engine->info(it->model, &room->info);
    default:
        return it->engine->provider(0, &room->provider);
    }
}

/* Each size of each structure; how many of them were not as they should be. */
static inline int older_callers_get_too_much(const older *it)
{
    enum { STRUCTURES = 5, STEP = 8, MORE = 64 };
    static older_room room;
    int wrong = 0;
    for (int what = 0; what < STRUCTURES; what++)
        for (size_t size = 2 * sizeof(size_t), known = size; size <= known + MORE;
             size += known > 1024 ? 5 * STEP : STEP) {
            memset(&room, 0x5a, sizeof room);
            room.struct_size = size;
            bool good = older_ask(it, what, &room, &known) == WEIR_OK && room.struct_size == size;
            for (size_t i = size < known ? size : known; i < known + 2 * (size_t)MORE; i++)
                good &= room.bytes[i] == 0x5a;
            if (!good)
                fprintf(stderr, "structure %d of %zu bytes, for a caller who has %zu\n", what, known, size);
            wrong += !good;
        }
    return wrong;
}

#endif
