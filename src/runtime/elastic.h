/* Elastic blocks: what elastic.c and elastic_pages.c share. */
#ifndef WI_RUNTIME_ELASTIC_H
#define WI_RUNTIME_ELASTIC_H

#include "memory/elastic.h"
#include "runtime/runtime.h"

struct weir_elastic {
    weir_client *client;
    wi_elastic_range *range; /* NULL while it is being made; set under the runtime's clients_lock */
    bool ending;             /* under the same: a suspend that begins now leaves it where it is */
    atomic_uint_fast64_t refused;
    weir_elastic *next; /* of the client */
};

#endif
