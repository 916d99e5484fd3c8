/* A pool for tests: what admission answers with is carried out when the test says so, or at once. */
#ifndef TESTS_POOL_WORLD_H
#define TESTS_POOL_WORLD_H

#include "pool/admission.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

typedef struct world {
    wp_admission *pool;
    uint64_t now;
    wp_action *log; /* all that there were */
    size_t count, room;
    uint32_t totals[WP_STOP + 1];
} world;

world world_begin(wp_limits limits, uint64_t ceiling); /* one device */
void world_end(world *w);
wp_limits world_limits(void);                         /* a wide queue, a minute, no passing, host to spare */
wp_spec world_spec(const char *name, uint64_t bytes); /* one variant, evictable, a second to load, a slot in plenty */
wp_model world_add(world *w, wp_spec spec);
void world_take(world *w);                                                  /* actions into the log */
const wp_action *world_last(world *w, wp_action_kind kind, wp_model model); /* NULL: none */
uint32_t world_number(world *w, wp_action_kind kind, wp_model model);
void world_answer(world *w, wp_model model); /* ends what the model does, well, as it was foreseen */
void world_run(world *w);                    /* the same, of all, until nothing moves */
wp_answer world_ask(world *w, wp_model model, uint64_t bytes);
void world_done(world *w, wp_ticket ticket);
void world_pass(world *w, uint64_t time); /* and a tick */
wp_state world_state(world *w, wp_model model);
bool world_granted(world *w, wp_ticket ticket);
wp_cause world_refused(world *w, wp_ticket ticket); /* WP_CAUSES: it was not */
void world_load(world *w, wp_model model);          /* by hand, and carried out */

#endif
