/* policy.h: what decides in a simulated pool: weir's own state machine, or what others do. All of them are told the same
 * events (pool/decisions.h) and answer with the same actions, and what they decide about has the same doubles. */
#ifndef SIM_POOL_POLICY_H
#define SIM_POOL_POLICY_H

#include "pool/decisions.h"
#include "sim/pool/traffic.h"

typedef struct policy_world {
    wp_limits limits;
    uint32_t devices;
    uint32_t most_models; /* of lru-count: loaded at once */
} policy_world;

typedef struct policy {
    const char *name;
    bool suspends;
    /* Begins, as WP_EVENT_BEGIN says. NULL: no memory. Freed with `destroy`. */
    void *(*create)(const policy_world *world);
    void (*destroy)(void *it);
    /* As wp_apply and wp_take. A simulation has these events: add, ceiling, ask, done, the ends of loads, suspends,
     * resumes and unloads, and tick. */
    void (*apply)(void *it, wp_event *event);
    bool (*take)(void *it, wp_event *event, wp_action *action);
    uint64_t (*wake)(const void *it);
    bool (*sound)(const void *it); /* its invariants; NULL: it has none */
} policy;

/* What there is; `count` of them. The first are weir's. */
extern const policy *const policies[];
extern const size_t policy_count;
const policy *policy_called(const char *name); /* NULL: none */

extern const policy policy_weir, policy_weir_suspend;
/* These policies load a model only on its own device, as added. They load on request, one request after the other, and
 * unload idle models until the requested model fits, first: */
extern const policy policy_lru_count; /* …the least recently used; and no more than `most_models` at once */
extern const policy policy_lru_bytes; /* …the least recently used */
extern const policy policy_size;      /* …the largest */
extern const policy
    policy_keep_alive; /* …the one whose keep-alive (5 minutes unless its model says otherwise) ends first;
                                        * when it ends the model goes anyway; one load at a time */

#endif
