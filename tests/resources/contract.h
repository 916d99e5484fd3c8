/* What the suite of the resources shares: a runtime over the stack in question for each test, streams that are held up, and
 * looks at bytes, charges and the ledger. What a property may depend on is asked of weir_runtime_info. */
#ifndef CONTRACT_H
#define CONTRACT_H

#include "core/core.h"
#include "resources/contract_device.h"

enum { BUDGET = 64 << 20, PIECE = 4 << 20, MOST_HOLDS = 4 };

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *one, *two;
    weir_stream a, b;
    uint32_t features;
    gate holds[MOST_HOLDS];
    pthread_t openers[MOST_HOLDS]; /* threads that open one later */
    int held, opening;
} fixture;

/* A runtime with another client and another stream, open from the first test to the last. */
typedef struct elsewhere {
    weir_runtime *runtime;
    weir_client *client;
    weir_stream stream;
    void *block;
} elsewhere;
extern elsewhere other;

int set_up(void **state);
int tear_down(void **state);
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* Each runs the tests of its file; answers how many failed. */
int contract_blocks(void);
int contract_misuse(void);
int contract_order(void);
int contract_uses(void);
int contract_limits(void);
int contract_resize(void);
int contract_runtime(void);
int contract_threads(void);
int contract_model(void);

static inline bool can(const fixture *f, uint32_t feature)
{
    return (f->features & feature) == feature;
}

/* Whether a base of weir's own chooses the addresses, so that it is known when one serves again; else the driver does. */
bool chooses_addresses(void);
/* Whether what is freed on a stream is for that stream at once, rather than pending. */
bool hands_on(void);
/* Whether a thread cache keeps what its thread frees on a stream. */
bool thread_caches(void);
/* Whether the driver's own free of a block waits for the whole device, as cuMemFree does. */
bool freeing_waits(void);

/* The stream does nothing until it is let go; or for so long. A simulated stream has much to do instead, which the first
 * who waits for it does. A held stream goes on by itself after seconds, so that a driver that waits for all streams is
 * late and not stuck. */
gate *hold_up(fixture *f, weir_stream stream);
void let_go(gate *g);
void let_go_later(fixture *f, gate *g); /* from another thread, in some milliseconds */
void hold_up_for(fixture *f, weir_stream stream, unsigned microseconds);

/* What is kept back although the device is past it (quarantine) is given up, too. */
void drain(const fixture *f);
snapshot drained(const fixture *f);

weir_block_details details_of(const void *pointer);
/* What a block of so many bytes is charged; the largest request that is charged so much, a multiple of 64 KiB. */
uint64_t charge_of(const fixture *f, size_t bytes);
size_t bytes_for(const fixture *f, uint64_t charge);

void *take(weir_client *client, size_t bytes, weir_stream stream);
weir_status try_take(weir_client *client, size_t bytes, weir_stream stream, uint32_t flags, weir_block *out);
/* Takes pieces of PIECE bytes, as charged, until so many bytes are taken. `pieces` has room for BUDGET / PIECE. */
void take_pieces(fixture *f, weir_client *client, uint64_t bytes, void **pieces);
void give_pieces(fixture *f, weir_client *client, uint64_t bytes, void **pieces);

/* Whether all bytes are of this value, once the device is past what was queued; where memory cannot be read: true. */
bool filled(weir_runtime *runtime, const void *pointer, uint8_t value, size_t bytes);
#define check_filled(f, pointer, value, bytes) assert_true(filled((f)->runtime, pointer, value, bytes))

#endif
