/* A world: one runtime on a simulated device, several clients with blocks on several streams, and an oracle that
 * watches.
 *
 * The world moves in steps; a step is one operation with numbers. The same steps in the same world always have the same
 * effect. A step that makes no sense at its place (a free of an empty slot) does nothing, so that steps can be left
 * out.
 *
 * During a step's calls of weir other steps may run, as other threads' calls would: whenever weir calls the driver. In
 * the list these steps follow the interrupted step, one level deeper, with the number of the place where they run. A
 * slot, a stream, a client or a launch that an unfinished step has in hand is left alone by other steps, as programs
 * must. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include "sim/oracle.h"

#include <weir/weir.h>
#include <weir/block_pool.h>
#include <weir/residency.h>

enum {
    WORLD_SLOTS = 256,
    WORLD_LAUNCHES = 4,
    WORLD_USES = 3,
    WORLD_RESERVATIONS = 3,
    WORLD_POOLS = 2,
    WORLD_PIECES = 80, /* of a pool, at most */
    WORLD_MEMBERS = 3,
    WORLD_STREAMS = 63,
    WORLD_CLIENTS = ORACLE_CLIENTS,
    WORLD_FREED = 4,
    WORLD_GONE = WI_SIM_OVER,
    WORLD_GRAPHS = 2,
    WORLD_GRAPH_BLOCKS = 6,
    WORLD_CAPTURES = 3,
    WORLD_NAMED = 2,
    NAMED_EXTENTS = 80, /* a close makes two more of each piece at most */
    NAMED_PIECES = 24,
    NAMED_NEW = 30, /* so many extents are got, at most */
    NAMED_LATE = 32,
    NAMED_STREAMS = 2,    /* of one capture */
    WORLD_SUSPENDERS = 8, /* clients with a stream for copies */
    WORLD_DEPTH = 2
};

typedef enum step_field {
    F_CLIENT,
    F_STREAM, /* 0 is the host */
    F_SLOT,
    F_BYTES,
    F_MORE, /* by operation: an alignment, an offset, a second size */
    F_CLASS,
    F_FLAGS,
    F_COUNT,
    F_SEED,   /* of the device's choices during the step */
    F_AT,     /* the place in the interrupted step before which this step runs; 0: the first */
    F_WINDOW, /* the window before the place F_AT; 0: the place itself */
    STEP_FIELDS
} step_field;

typedef struct step {
    uint8_t operation, depth; /* the latter: how many steps it runs within, at most WORLD_DEPTH */
    uint64_t field[STEP_FIELDS];
} step;

/* Steps in the order in which they begin. */
typedef struct steps {
    step *list;
    size_t count, capacity;
} step_list;

typedef struct world_options {
    uint64_t seed, budget, device, granule;
    unsigned clients, streams;
    const char *resource;
    bool faults;                /* the random steps have some */
    bool nested;                /* … and others within them */
    wi_sim_fault first, second; /* armed before the runtime is made; at < 0: none */
} world_options;

/* How requests were met (weir_rung), or why they were not. */
typedef enum ladder_rung {
    LADDER_REFUSED_BUDGET = WEIR_RUNG_COUNT,
    LADDER_REFUSED_MAXIMUM,
    LADDER_REFUSED_FRAGMENTATION,
    LADDER_REFUSED_PENDING,
    LADDER_REFUSED_DEVICE,
    LADDER_REFUSED_OTHER_PROCESS,
    LADDER_REFUSED_ADDRESS_RANGE,
    LADDER_REFUSED_RESERVATION,
    LADDER_RUNGS
} ladder_rung;

const char *ladder_name(ladder_rung rung);

/* Preferences of the random choice, by turns: each mood reaches states that are rare in the rest. */
typedef enum world_mood {
    MOOD_ORDINARY,
    MOOD_BEHIND,  /* the device hardly works, and much is asked for: what is freed has not passed */
    MOOD_FAILING, /* memory goes back to the device and is wanted again, and mapping it fails */
    WORLD_MOODS
} world_mood;

typedef struct slot {
    weir_block block; /* NULL: empty */
    oracle_block known;
    uint64_t bytes, charged;
    uint64_t offset, length; /* the part last written, which holds `version` */
    uint64_t touched;        /* bits of streams whose work the user knows nothing later of */
    uint64_t recorded;       /* … and of streams with recorded reads, for which the free waits by itself */
    uint32_t version;        /* 0: nothing is known */
    uint8_t client, memory_class, writer;
    bool declared; /* used through launches alone */
    uint8_t readers;
    bool written;
    bool in_hand; /* of a step that has not ended */
    bool stable;
    uint32_t alignment;
    unsigned home; /* the stream of the allocation, as it was then */
    uint64_t home_id;
} slot;

typedef enum world_residency { RESIDENT, SUSPENDED, SUSPENDED_UNTIL_ALLOC } world_residency;

/* How a client is suspended: bits of the step's count. */
enum { SUSPEND_VERIFY = 1, SUSPEND_KEEP = 2, SUSPEND_ON_ALLOC = 4, SUSPEND_FOLDER = 8, SUSPEND_SHOW = 16 };

/* What was done so, counted. */
typedef enum world_move {
    MOVE_SUSPENDED,
    MOVE_LEFT, /* … and something went */
    MOVE_TRUSTED,
    MOVE_NOT_SUSPENDED,
    MOVE_SHOWN,
    MOVE_RESUMED,
    MOVE_PIECES, /* a part came back */
    MOVE_NOT_RESUMED,
    MOVE_EXCHANGED,
    MOVE_NOT_EXCHANGED,
    WORLD_MOVES
} world_move;

/* What somebody may want again. */
typedef struct freed_block {
    uint64_t bytes; /* 0: none */
    unsigned client, stream;
} freed_block;

typedef struct launch {
    weir_launch *launch; /* NULL: none is open */
    unsigned stream, count;
    bool late; /* the work is queued just before the end */
    bool in_hand;
    uint8_t slots[WORLD_USES];
    bool write[WORLD_USES];
} launch;

typedef struct reserved {
    weir_reservation *reservation; /* NULL: none */
    unsigned client;
    uint8_t in_hand;
} reserved;

/* A block of a pool, with its last member and the point of the give. */
typedef struct pool_piece {
    slot slot;
    uint64_t had;         /* the membership's serial number; 0: nobody */
    uint64_t least, most; /* between these points of the driver's stream */
    unsigned stream;
} pool_piece;

typedef struct pool_member {
    weir_block_pool_member *member; /* NULL: none */
    unsigned client, opening;
    uint32_t cap;
    uint64_t serial;
    uint8_t in_hand;
    bool takes_nothing; /* until a step has ended */
} pool_member;

typedef struct pool {
    weir_block_pool *pool; /* NULL: none */
    oracle_block known;
    char *base;
    unsigned client;
    uint32_t count, flags;
    uint8_t memory_class;
    uint64_t bytes; /* of a piece */
    pool_member members[WORLD_MEMBERS];
    pool_piece pieces[WORLD_PIECES];
    bool closed; /* being made or ended */
    uint64_t
        untaken[WI_SIM_STREAMS + 1]; /* the point on each of the driver's streams behind which takings were undone */
    uint8_t in_hand;
} pool;

/* A block of a graph's pool, all of which are alike; live, or free there. */
typedef struct graph_block {
    void *pointer;
    oracle_block known;
    bool live;
} graph_block;

typedef struct world_graph {
    weir_capture_pool *graph; /* NULL: none */
    unsigned client, home;    /* the latter: the stream of its launches, which stays as long as it does */
    uint64_t bytes, charged;
    graph_block blocks[WORLD_GRAPH_BLOCKS];
    unsigned count, captures;
    wi_sim_graph *recorded[WORLD_CAPTURES];
    bool in_hand;
} world_graph;

/* Bytes that a capture pool got from outside, all in the order of one stream. */
typedef struct named_extent {
    char *address;
    uint64_t bytes, order; /* the stream's id; 0: of captures between begin and end */
    oracle_block known;
} named_extent;

/* A live block of a capture pool. */
typedef struct named_piece {
    weir_block block;
    uint64_t bytes, charged, order; /* the latter as the extent's */
    uint64_t home_id;               /* of the stream of its request */
    unsigned home;
    uint32_t version; /* 0: nothing is known of the contents */
    uint8_t memory_class;
} named_piece;

/* Bytes that the pool may use again when the device is past a point. */
typedef struct named_late {
    char *address;
    uint64_t bytes, point;
    unsigned number; /* the driver's, of the stream; 0: nothing */
} named_late;

typedef struct named_graph {
    wi_sim_graph *branch[NAMED_STREAMS];
} named_graph;

/* A capture pool that requests name. */
typedef struct world_named {
    weir_capture_pool *pool; /* NULL: none */
    unsigned client, home;   /* the latter: the stream of the launches, which stays as long as the pool does */
    uint64_t worked;         /* bits of streams: what is done next with the pool's memory comes behind their work */
    unsigned capturing;      /* so many streams are captured, … */
    unsigned streams[NAMED_STREAMS];
    bool begun;      /* … the first of them for the pool, by weir_capture_begin */
    unsigned graphs; /* that can be launched */
    named_graph recorded[WORLD_CAPTURES];
    named_extent extents[NAMED_EXTENTS];
    named_piece pieces[NAMED_PIECES];
    named_late late[NAMED_LATE];
    unsigned extent_count, piece_count;
    bool in_hand;
} world_named;

/* What pools that requests name were used for, counted. */
typedef enum named_count {
    NAMED_FRESH,  /* a block of new memory */
    NAMED_AGAIN,  /* … of what the pool kept */
    NAMED_SPLIT,  /* … of a part of it */
    NAMED_AFTER,  /* … of what was freed or used on another stream */
    NAMED_BESIDE, /* … for a stream that joined a capture */
    NAMED_LAUNCHED,
    NAMED_CLOSED,
    NAMED_LEFT_LIVE, /* blocks that were live when their pool was closed */
    NAMED_REFUSED,   /* mistakes that were refused */
    NAMED_COUNTS
} named_count;

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
    reserved reservations[WORLD_RESERVATIONS];
    pool pools[WORLD_POOLS];
    world_graph graphs[WORLD_GRAPHS];
    world_named named[WORLD_NAMED];
    uint64_t named_counts[NAMED_COUNTS];
    uint64_t memberships;
    uint8_t owner[WORLD_CLIENTS]; /* as versions tell them apart; odd ones scrub */
    unsigned openings, opening[WORLD_CLIENTS];
    uint8_t suspended[WORLD_CLIENTS];                        /* world_residency */
    uint8_t written[WORLD_CLIENTS];                          /* bits of classes: since the client was resumed */
    bool asked_to_show[WORLD_CLIENTS], shown[WORLD_CLIENTS]; /* by the suspend; and it is: the client may be used */
    uint64_t moves[WORLD_MOVES];
    bool left_behind; /* some stream ended without notice */
    weir_runtime *host;
    bool foreign[WORLD_STREAMS + 1], captured[WORLD_STREAMS + 1];
    bool registered_twice[WORLD_STREAMS + 1]; /* by two threads, and only one of them could unregister it yet */
    bool unsettled[WORLD_STREAMS + 1];        /* it took another one's place, and could not be registered yet */
    unsigned registering;              /* the stream that somebody else shall register, too, where he can; 0: none */
    bool twice;                        /* he has */
    uint64_t calls_queued, calls_done; /* of users' functions */
    weir_block last_freed;
    freed_block freed[WORLD_FREED]; /* the last ones, … */
    uint64_t frees;                 /* … of so many */
    weir_stream last_released;
    uint32_t last_version;
    uint64_t random, held_back; /* of the generator; bytes that another process has */
    world_mood mood;
    unsigned mood_left; /* steps that it lasts */
    uint64_t ladder[LADDER_RUNGS], done[256], faults;
    uint64_t fault_base, fault_mark;       /* faults before the last arming, and before this step */
    uint64_t captures_ended, capture_mark; /* in all, and before this step */
    unsigned captured_new;                 /* the depth of the step that registers a captured stream; 0: none does */
    uint8_t stream_in_hand[WORLD_STREAMS + 1], client_in_hand[WORLD_CLIENTS]; /* of so many steps that have not ended */
    bool stream_closed[WORLD_STREAMS + 1], client_closed[WORLD_CLIENTS];      /* being made or ended: not to be used */
    uint8_t stream_ends[WORLD_STREAMS + 1]; /* how deep the step is that ends it, from 1; 0: none does */
    unsigned late, late_depth;              /* the stream that the step of that depth uses nevertheless; 0: none does */
    uint64_t late_refused;
    bool budget_in_hand;
    unsigned depth;         /* steps under way */
    uint64_t nested, place; /* steps that ran within others; where the innermost step is, … */
    uint64_t window;        /* … and windows that it has come to since */
    uint64_t pressed;       /* times that somebody was asked to do without a block */
    const step *script;     /* what runs within the step under way, … */
    size_t script_left;     /* … so many; without a script it is chosen, where `choosing` */
    bool choosing;
    step_list *log; /* where the chosen ones are written; NULL: nowhere */
} world;

/* Makes the runtime; without one (a fault) the world only ends. False: no host memory, or the driver's status is none
 * that was armed. */
world *world_create(const world_options *options);
/* Runs the first of the steps with those that stand within it; answers how many that were. */
size_t world_step(world *w, const step *list, size_t count);
/* Chooses the next step at random, with others within it, and runs it. Adds the steps that ran to *log, if not NULL.
 * False: no host memory for the log. */
bool world_advance(world *w, step_list *log);
/* Frees, closes and gives back all; the oracle looks at what is left. The findings stay until world_destroy. */
void world_end(world *w);
void world_destroy(world *w);
static inline const oracle_findings *world_found(const world *w)
{
    return oracle_found(w->oracle);
}

/* Operations by number. */
unsigned operation_count(void);
const char *operation_name(unsigned number);
const char *field_name(step_field field);

/* For the files of the world alone. */
bool world_answer(world *w, const char *call, weir_status status, const weir_status *allowed, size_t count);
#define ANSWER(w, call, status, ...)                                                                                   \
    world_answer(w, call, status, (const weir_status[]){WEIR_OK, __VA_ARGS__},                                         \
                 sizeof((weir_status[]){WEIR_OK, __VA_ARGS__}) / sizeof(weir_status))
/* The next random step, fitting the state of the world. */
void world_choose(world *w, step *out);
/* Reports the call, unless its status is the expected status. */
void world_must_answer(world *w, const char *call, weir_status status, weir_status expected);
/* Between what a step takes in hand and what it lets go. */
void world_take_stream(world *w, unsigned stream, int by);
bool world_knows_foreign(const world_options *options); /* streams of others are registered */
/* True: the call lacked the point behind all work, which cannot be had during a capture. Frees that wait for a stream
 * that ended without notice need this point. */
bool world_lacks_a_point(const world *w, weir_status status);
uint64_t world_faults(const world *w); /* since it was made */
/* Whether nothing else could have happened since `nested` was read: no other step ran, and this one is within none. */
bool world_undisturbed(const world *w, uint64_t nested);
/* What the runtime will charge for so many bytes; 0 for none. */
uint64_t world_charge(const world *w, uint64_t bytes, uint64_t alignment);
unsigned world_number(const world *w, unsigned stream);
/* The stream's bit in a mask of streams; 0 for the host. */
static inline uint64_t world_bit(unsigned stream)
{
    return stream ? UINT64_C(1) << stream : 0;
}
bool world_has_stream(const world *w, uint64_t stream);
bool world_has_launch(const world *w, unsigned stream); /* one is open there */
bool world_captures(const world *w);                    /* some stream is being captured */
/* True: another step ends the stream while this step uses the stream. */
bool world_is_late(const world *w, uint64_t stream);
unsigned world_ending(const world *w);
bool world_has_client(const world *w, unsigned client);
uint32_t world_features(const world *w);
/* Whether a step under way flushes thread caches. The end of a stream waits for that, which it cannot do here. */
bool world_frees_for_others(const world *w);
uint64_t world_random(world *w, uint64_t below);
void world_hear_guard(world *w); /* turns the guard's reports into findings */

typedef struct operation {
    const char *name;
    unsigned weight[WORLD_MOODS];
    void (*run)(world *w, const step *s);
    void (*choose)(world *w, step *s);
} operation;
extern const operation operations[];

/* What the operations do, by concept. */
void run_allocate(world *w, const step *s);
void world_give_up(const weir_pressure *pressure, void *user);
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
void run_fill(world *w, const step *s);
void run_copy(world *w, const step *s);
void run_call(world *w, const step *s);
void run_record(world *w, const step *s);
void run_capture(world *w, const step *s);
void run_replace(world *w, const step *s);
void run_late(world *w, const step *s);
void run_reserve(world *w, const step *s);
void run_pool(world *w, const step *s);
void run_member(world *w, const step *s);
void run_take(world *w, const step *s);
void run_give(world *w, const step *s);
void run_piece(world *w, const step *s);

/* Whether a launch holds the block. */
static inline bool world_is_held(const slot *b)
{
    return b->readers > 0 || b->written;
}
/* A slot; a reservation of a slot and a stream, until world_let_slot_go; and the user's order before a use. */
slot *world_slot(world *w, uint64_t index);
bool world_take_slot(world *w, slot *b, unsigned stream, bool full);
void world_let_slot_go(world *w, slot *b, unsigned stream);
bool world_follow(world *w, unsigned stream, uint64_t mask); /* streams' work; false: a fault was in the way */
bool world_order_use(world *w, slot *b, unsigned stream, bool write);
void world_touch(world *w, slot *b, unsigned stream, bool write, uint64_t offset, uint64_t bytes);
void world_forget_in_slot(slot *b, unsigned stream); /* when the host is behind the stream's work */
/* Makes `other` wait for the stream's work, if the slot was used on the stream, and replaces the stream by `other` in
 * the slot's uses. */
void world_pass_on(world *w, slot *b, unsigned stream, unsigned other);
/* True: weir knows of the user's read on the stream, and waits for the read. */
bool world_is_told(const slot *b, unsigned stream);
/* A block, a pool or a member that something holds is refused, and nothing changes. */
void world_expect_busy(world *w, const char *call, weir_status status);

/* In the middle of a registration; and at the end, where nothing fails any more. */
void world_register_beside(world *w);
void world_settle_all(world *w);
void world_check_rest(world *w);

/* Clients are suspended where each can have a stream for its copies. */
bool world_knows_residency(const world_options *options);
void run_suspend(world *w, const step *s);
void run_resume(world *w, const step *s);
void run_exchange(world *w, const step *s);
void run_forget(world *w, const step *s);
bool world_is_away(const world *w, const slot *b);
/* A call begins that allocates for the client, which it may resume. False: it must not, as the client is in hand. */
bool world_asks(world *w, unsigned client);
/* It has ended. False: the client is suspended, and it was refused for that. */
bool world_was_admitted(world *w, unsigned client, const char *call, weir_status status);
void world_step_aside(world *w);
void world_resume_all(world *w); /* of those that are suspended */

/* between.c: the simulated device's driver with calls that are interrupted, and what runs at each interruption from now on;
 * NULL: nothing. It does not run after a failed call, because the failure's detail belongs to the calling thread. */
const wi_driver *between_driver(void);
void between_calls(void (*fn)(void *user), void *user);

void run_graph(world *w, const step *s);
void world_end_graphs(world *w);

/* Capture pools that requests name. By the flags of its step something is done with an open one: each number up to the
 * next one is that action, and so is chosen the more often. */
enum {
    NAMED_BEGINS = 0, /* a capture; or another stream joins it */
    NAMED_ALLOCATES = 4,
    NAMED_FREES = 13,
    NAMED_TOUCHES = 20,
    NAMED_LAUNCHES = 23,
    NAMED_MISTAKES = 26,
    NAMED_CLOSES = 28,
    NAMED_ENDS = 29, /* the capture */
    NAMED_FORGETS = 31,
    NAMED_ACTIONS = 32
};
void run_named(world *w, const step *s);
bool named_can_move(const world *w, unsigned client);
void named_take_client(world *w, unsigned client, bool take);
bool named_has_client(const world *w, unsigned client);
/* Replaces the stream by `other` in what the pools' next work comes behind; 0: the host is behind the stream's work. */
void named_pass_on(world *w, unsigned stream, unsigned other);
void named_end_captures(world *w);
void world_end_named(world *w);

/* All pools. */
void world_check_pools(world *w);
void world_forget_in_pools(world *w, unsigned stream);
void world_end_pools(world *w);

#endif
