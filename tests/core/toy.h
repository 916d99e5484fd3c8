/* A driver whose device exists on paper alone: a word of memory per unit, and streams that go on when they are told to, so
 * that a hundred thousand short traces take seconds. It watches what may not happen to memory: that it leaves an address
 * while work could still touch it there, or comes to whoever could meet such work. One thread. */
#ifndef TESTS_CORE_TOY_H
#define TESTS_CORE_TOY_H

#include "driver/driver.h"

extern const wi_driver toy_driver;

enum { TOY_STREAMS = 4 }; /* place 0: the host, whose work is done at once */

/* What work must be done before memory that was freed is past its use. */
typedef struct toy_death {
    uint64_t points[TOY_STREAMS];
} toy_death;

typedef struct toy_unit {
    uint32_t owner; /* 0: nobody's */
    uint32_t word;  /* what was written last */
    uint32_t death; /* of its former owners: a number of a toy_death; 0: nothing */
} toy_unit;

typedef struct toy_handle {
    uint64_t granules;
    const char *address; /* NULL: mapped nowhere */
    toy_unit units[];
} toy_handle;

typedef struct toy {
    uint64_t granule, capacity, used; /* the latter two in granules */
    uint64_t budget;                  /* bytes that may be held */
    long fail_in;                     /* so many calls later one fails; -1: none */
    bool failed;                      /* one has */
    const char *wrong;                /* the first thing that may not happen */
    void (*meanwhile)(void *user);    /* what others do while the driver maps or unmaps; NULL: nothing */
    void *user;
    long devices, ranges, mapped;
} toy;

extern toy the_toy;

void toy_reset(uint64_t granule, uint64_t capacity, uint64_t budget);
/* The handle and the unit at an address; NULL: there is no memory. */
toy_handle *toy_handle_at(const void *address);
toy_unit *toy_unit_at(const void *address);

/* Streams by number, from 1; `native` is what weir_stream_native answers, NULL the host. */
unsigned toy_stream(const void *native);
uint64_t toy_queue(unsigned stream); /* one more piece of work; answers its point */
void toy_go_on(unsigned stream, uint64_t most);
bool toy_is_idle(unsigned stream);

uint32_t toy_note_death(toy_death death);
/* All of both. */
toy_death toy_both(toy_death death, uint32_t other);
/* Whether work that is queued on the stream from now on comes behind all that; 0: whether it is done. */
bool toy_is_behind(uint32_t death, unsigned stream);

#endif
