/* The runtime and its clients, inside. */
#ifndef WI_RUNTIME_H
#define WI_RUNTIME_H

#include "driver/driver.h"
#include "memory/budget.h"
#include "runtime/recording.h"
#include "runtime/streams.h"

#include <weir/weir.h>

struct weir_client {
    atomic_uint state; /* WI_CLIENT_OPEN, or WI_CLIENT_CLOSED */
    weir_runtime *runtime;
    wi_account account;
    atomic_uint reservations; /* open ones */
    weir_client *next_closed;
};

struct weir_reservation {
    wi_reservation claim;
    weir_client *client;
};

enum { WI_CLIENT_OPEN = 0x6f70656e, WI_CLIENT_CLOSED = 0x73687574 };

/* Records of closed clients are kept this long before they serve again, so that a late call finds a closed client rather
 * than somebody else's. */
enum { WI_CLOSED_KEPT = 64 };

struct weir_runtime {
    char name[16]; /* "host", "cuda:0" */
    int ordinal;
    bool shared; /* made by weir_runtime_get */
    const wi_driver *driver;
    wi_device *device;
    wi_ledger ledger;
    wi_recorder recorder;
    wi_resource *resource; /* the top of the stack that serves the device's memory */
    wi_pending pending;
    wi_streams streams;
    char stack[256]; /* of resources, as it was given */

    pthread_mutex_t clients_lock;
    weir_client *closed_first, *closed_last;
    size_t closed_count;
    weir_runtime *next; /* in the list of all runtimes */
};

/* weir_runtime_create over a driver that need not be in the list of drivers; for tests. */
weir_status wi_runtime_create_over(const wi_driver *driver, int ordinal, const weir_runtime_options *options,
                                   weir_runtime **out);

/* The runtime whose memory holds `pointer`, kept from being destroyed until wi_runtimes_unlock; NULL if none. */
weir_runtime *wi_runtime_of(const void *pointer);
void wi_runtimes_unlock(void);
/* The runtime that hands out streams under this number; NULL if none. */
weir_runtime *wi_runtime_of_pool(uint16_t pool);

/* WEIR_INVALID for NULL and for a closed client. */
weir_status wi_client_check(const weir_client *client, const char *call);

/* Frees what is pending and passed; answers how many bytes that were. */
uint64_t wi_runtime_reap(weir_runtime *runtime);
/* Frees what is pending and passed until nothing of `account` (NULL: of anyone) is pending, waiting for it. */
void wi_runtime_drain(weir_runtime *runtime, wi_account *account);

#endif
