/* A store of parameters, inside.
 *
 * Laws, true whenever the lock is free:
 *   the used bytes of a chunk are at most its room; parameters lie in used bytes of one chunk, none over another unless it
 *   is a further name
 *   names[] has every published parameter once; what is published changes no more
 * Nobody calls the driver with the lock held. Adders take turns, which is no lock: whoever has the turn holds nothing that
 * readers, runs and closing wait for. */
#ifndef WI_ARENA_PARAMETERS_H
#define WI_ARENA_PARAMETERS_H

#include "base/internal.h"

#include <weir/workspace.h>
#include <weir/uses.h>

/* Of a block: beyond it no device has memory, and below it sums do not wrap. */
#define WI_LONGEST (UINT64_MAX / 4)

typedef struct wi_chunk {
    weir_block block;
    uint64_t room, used;
} wi_chunk;

struct weir_parameters {
    pthread_mutex_t lock;
    pthread_cond_t turn_ends;
    bool turn; /* somebody adds */
    uint32_t holders;
    uint32_t runs; /* that have begun and not ended; meanwhile nothing is added */

    weir_client *client;
    uint64_t expected, step;
    size_t alignment;
    char tag[48];

    wi_chunk *chunks;
    uint32_t chunk_count;
    weir_parameter *list;
    uint32_t count, list_room;
    uint32_t *names; /* number + 1; 0: empty; at most half full */
    uint32_t name_room;
    uint64_t bytes;
};

/* The turn of whoever adds: waits for the one before. WEIR_ERR_BUSY while a run reads the store, and inside another addition. */
weir_status wi_parameters_take_turn(weir_parameters *store);
void wi_parameters_end_turn(weir_parameters *store);

/* WEIR_ERR_INVALID, naming the call, for NULL and for a name that no parameter can have. */
weir_status wi_parameters_check_name(const weir_parameters *store, const char *name, const char *call);
/* By name; false: there is none. With the lock held. */
bool wi_parameters_seek(const weir_parameters *store, const char *name, uint32_t *index);
/* Room for one parameter more in the list and the names; false without host memory. With the lock held. */
bool wi_parameters_make_room(weir_parameters *store);
/* Publishes a parameter, or a further name of one; its name becomes the store's. With the lock held, behind wi_parameters_make_room. */
void wi_parameters_publish(weir_parameters *store, const weir_parameter *parameter);

/* A run begins, which reads the store (NULL: none): its uses, behind `before` of its own; to be freed. WEIR_ERR_SYSTEM: it does
 * not begin. */
weir_status wi_parameters_begin_run(weir_parameters *store, size_t before, weir_use **uses, size_t *count);
void wi_parameters_end_run(weir_parameters *store);

#endif
