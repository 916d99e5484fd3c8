/* Further names: what they stand for is a part of what is there. */
#include "workspace/parameters.h"
#include <weir/workspace.h>

/* The next two with the lock held. */
static weir_status part_of(const weir_parameters *store, const char *of, uint64_t at, uint64_t elements,
                           weir_parameter *out)
{
    uint32_t whole;
    if (!wi_parameters_seek(store, of, &whole))
        return weir_fail(WEIR_ERR_NOT_FOUND, "the store %s has no parameter \"%.200s\"", store->tag, of);
    *out = store->list[whole];
    if (at > out->elements || elements > out->elements - at)
        return weir_fail(WEIR_ERR_INVALID, "%s: %llu elements from %llu on are not in \"%.200s\", which has %llu",
                         store->tag, (unsigned long long)elements, (unsigned long long)at, of,
                         (unsigned long long)out->elements);
    size_t each = weir_type_bytes(out->type);
    out->pointer = elements ? (char *)out->pointer + at * each : NULL;
    out->elements = elements;
    out->bytes = elements * each;
    return WEIR_OK;
}

static weir_status enter(weir_parameters *store, const char *name, weir_parameter *part)
{
    uint32_t index;
    if (wi_parameters_seek(store, name, &index)) {
        const weir_parameter *there = &store->list[index];
        if (there->pointer == part->pointer && there->elements == part->elements && there->type == part->type)
            return WEIR_OK;
        return weir_fail(WEIR_ERR_CONFLICT, "%s has \"%.200s\" as %s of %llu elements, which lie elsewhere", store->tag,
                         there->name, weir_type_name(there->type), (unsigned long long)there->elements);
    }
    part->name = wi_parameters_make_room(store) ? strdup(name) : NULL;
    if (!part->name)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a name of %s", store->tag);
    wi_parameters_publish(store, part);
    return WEIR_OK;
}

weir_status weir_parameters_alias(weir_parameters *store, const char *name, const char *of, uint64_t at,
                                  uint64_t elements)
{
    WI_ENTER();
    weir_parameter part;
    weir_status status = wi_parameters_check_name(store, name, "weir_parameters_alias");
    if (status == WEIR_OK)
        status = wi_parameters_check_name(store, of, "weir_parameters_alias");
    if (status == WEIR_OK)
        status = wi_parameters_take_turn(store);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&store->lock);
    status = part_of(store, of, at, elements, &part);
    if (status == WEIR_OK)
        status = enter(store, name, &part);
    pthread_mutex_unlock(&store->lock);
    wi_parameters_end_turn(store);
    return status;
}
