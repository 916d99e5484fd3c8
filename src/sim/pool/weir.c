/* weir's own decisions, as a policy; and the list of all. */
#include "sim/pool/traffic.h"

#include <stdlib.h>
#include <string.h>

static void *weir_create(const policy_world *world)
{
    wp_admission *it = NULL;
    wp_apply(&it, &(wp_event){.kind = WP_EVENT_BEGIN, .limits = world->limits, .devices = world->devices});
    return it;
}

static void weir_destroy(void *it)
{
    wp_admission_destroy(it);
}

static void weir_apply(void *it, wp_event *event)
{
    wp_admission *admission = it;
    wp_apply(&admission, event);
}

static bool weir_take(void *it, wp_event *event, wp_action *action)
{
    return wp_take(it, event, action);
}

static uint64_t weir_wake(const void *it)
{
    return wp_wake(it);
}

static bool sound(const void *it)
{
    return wp_invariants(it);
}

const policy policy_weir = {"weir", false, weir_create, weir_destroy, weir_apply, weir_take, weir_wake, sound};
const policy policy_weir_suspend = {"weir-suspend", true,      weir_create, weir_destroy,
                                    weir_apply,     weir_take, weir_wake,   sound};

const policy *const policies[] = {&policy_weir,      &policy_weir_suspend, &policy_lru_count,
                                  &policy_lru_bytes, &policy_size,         &policy_keep_alive};
const size_t policy_count = sizeof policies / sizeof *policies;

const policy *policy_called(const char *name)
{
    for (size_t i = 0; i < policy_count; i++)
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    return NULL;
}
