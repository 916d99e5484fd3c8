/* A world: one runtime on a simulated device, several clients with blocks on several streams, and an oracle that watches.
 *
 * It moves in steps, each of which is one operation with numbers; the same steps in the same world always have the same
 * effect. A step that makes no sense where it is (a free of an empty slot) does nothing, so that steps can be left out. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "sim/oracle.h"

#include <weir/weir.h>

enum { WORLD_SLOTS = 256, WORLD_LAUNCHES = 4, WORLD_USES = 3, WORLD_STREAMS = 63, WORLD_CLIENTS = ORACLE_CLIENTS };

typedef enum step_field {
    F_CLIENT,
    F_STREAM, /* 0 is the host */
    F_SLOT,
    F_BYTES,
    F_MORE, /* what the operation makes of it: an alignment, an offset, a second size */
    F_CLASS,
    F_FLAGS,
    F_COUNT,
    F_SEED, /* of the device's choices during the step */
    STEP_FIELDS
} step_field;

typedef struct step {
    uint8_t operation;
    uint64_t field[STEP_FIELDS];
} step;

typedef struct world_options {
    uint64_t seed, budget, device, granule;
    unsigned clients, streams;
    const char *resource;
    bool faults;                /* the random steps have some */
    wi_sim_fault first, second; /* armed before the runtime is made; at < 0: none */
} world_options;

/* How requests were met, or why they were not. */
typedef enum ladder_rung {
    LADDER_FIT,    /* in free memory, without a driver call */
    LADDER_SPARE,  /* a spare handle was mapped */
    LADDER_CREATE, /* a new handle */
    LADDER_REMAP,  /* handles moved from under free memory */
    LADDER_WAIT,   /* a pending free was waited for */
    LADDER_REFUSED_BUDGET,
    LADDER_REFUSED_MAXIMUM,
    LADDER_REFUSED_FRAGMENTATION,
    LADDER_REFUSED_PENDING,
    LADDER_REFUSED_DEVICE,
    LADDER_REFUSED_OTHER_PROCESS,
    LADDER_REFUSED_ADDRESS_RANGE,
    LADDER_RUNGS
} ladder_rung;

const char *ladder_name(ladder_rung rung);

typedef struct slot {
    weir_block block; /* NULL: empty */
    oracle_block known;
    uint64_t bytes, offset, length; /* the part last written, which holds `version` */
    uint64_t touched;               /* bits of streams whose work the user knows nothing later of */
    uint32_t version;               /* 0: nothing is known */
    uint8_t client, memory_class, writer;
    bool declared; /* used through launches alone */
    uint8_t readers;
    bool written;
} slot;

typedef struct launch {
    weir_launch *launch; /* NULL: none is open */
    unsigned stream, count;
    bool late; /* the work is queued just before the end */
    uint8_t slots[WORLD_USES];
    bool write[WORLD_USES];
} launch;

typedef struct world {
    world_options options;
    oracle *oracle;
    weir_runtime *runtime;
    wi_device *device;
    weir_client *clients[WORLD_CLIENTS];
    weir_stream streams[WORLD_STREAMS + 1]; /* [0] is the host's */
    void *native[WORLD_STREAMS + 1];
    slot slots[WORLD_SLOTS];
    launch launches[WORLD_LAUNCHES];
    weir_block last_freed;
    weir_stream last_released;
    uint32_t last_version;
    uint64_t random, held_back; /* of the generator; bytes that another process has */
    uint64_t ladder[LADDER_RUNGS], done[256], faults;
    unsigned fault_mark;
} world;

/* Makes the runtime; without one (a fault) the world only ends. False: no host memory, or the driver's status is none
 * that was armed. */
world *world_create(const world_options *options);
void world_step(world *w, const step *s);
/* Frees, closes and gives back all; the oracle looks at what is left. The findings stay until world_destroy. */
void world_end(world *w);
void world_destroy(world *w);
static inline const oracle_findings *world_found(const world *w)
{
    return oracle_found(w->oracle);
}

/* The next random step, fitting the state of the world. */
void world_choose(world *w, step *out);

/* Operations by number. */
unsigned operation_count(void);
const char *operation_name(unsigned number);
const char *field_name(step_field field);

/* For the files of the world alone. */
bool world_answer(world *w, const char *call, weir_status status, const weir_status *allowed, size_t count);
#define ANSWER(w, call, status, ...)                                                                                   \
    world_answer(w, call, status, (const weir_status[]){WEIR_OK, __VA_ARGS__},                                         \
                 sizeof((weir_status[]){WEIR_OK, __VA_ARGS__}) / sizeof(weir_status))
unsigned world_number(const world *w, unsigned stream);
bool world_has_stream(const world *w, uint64_t stream);
uint64_t world_random(world *w, uint64_t below);

typedef struct operation {
    const char *name;
    unsigned weight;
    void (*run)(world *w, const step *s);
    void (*choose)(world *w, step *s);
} operation;
extern const operation operations[];

/* What the operations do, by concept. */
void run_allocate(world *w, const step *s);
void run_free(world *w, const step *s);
void run_resize(world *w, const step *s);
void run_touch(world *w, const step *s);
void run_begin(world *w, const step *s);
void run_end(world *w, const step *s);
void run_abort(world *w, const step *s);
void run_device_work(world *w, const step *s);
void run_stall(world *w, const step *s);
void run_synchronize(world *w, const step *s);
void run_stream(world *w, const step *s);
void run_client(world *w, const step *s);
void run_limits(world *w, const step *s);
void run_budget(world *w, const step *s);
void run_trim(world *w, const step *s);
void run_device_bytes(world *w, const step *s);
void run_snapshot(world *w, const step *s);
void run_info(world *w, const step *s);
void run_misuse(world *w, const step *s);
void run_fault(world *w, const step *s);

#endif
