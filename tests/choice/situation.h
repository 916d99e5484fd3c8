/* Situations: random machines, manifests, options, residents and engines. */
#ifndef TESTS_CHOICE_SITUATION_H
#define TESTS_CHOICE_SITUATION_H

#include "choice/machine.h"
#include <weir/manifest.h>
#include <weir/select.h>

typedef struct situation {
    machine here;
    weir_manifest manifest;
    weir_choice_options options;
    const char *format;
    const char *fallbacks[4];
    int32_t ids[2];
    weir_obtainable residents[MOST_DEVICES];
} situation;

/* Models of 100 bytes, and some amounts that memory comes in, to which up to `more` bytes are added. */
void situations_begin(const uint64_t *some, size_t count, size_t more);
/* The same for the same number. */
void situation_make(situation *s, unsigned number);

size_t random_below(size_t most);
bool chance(size_t of);
uint64_t random_bytes(void);

#endif
