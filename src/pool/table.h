/* table.h: the tables behind admission.h: models, devices, requests, actions. Which file has which part:
 *
 *   admission.c  the calls: what is asked, what has happened
 *   queue.c      requests: those that wait in order, their deadlines, tickets
 *   ways.c       the ways in which a model may be had, and whether there can be any
 *   earmarks.c   who may take which bytes: victims, earmarks, starts
 *   schedule.c   which request goes first: grants, refusals, ceilings that fell, time
 *   victims.c    what a set of victims costs, and how soon a model is wanted again
 *   check.c      the invariants
 *
 * Indexes everywhere and no pointers, so that tables can grow and addresses mean nothing. */
#ifndef WEIR_POOL_TABLE_H
#define WEIR_POOL_TABLE_H

#include "base/internal.h"
#include "pool/admission.h"
#include "pool/victims.h"

#define WP_NONE       UINT32_MAX       /* no model */
#define WP_CEILING_OF (UINT32_MAX - 1) /* what a victim leaves for: the device's ceiling */

/* A request, from wp_ask to its end. */
typedef struct wp_job {
    wp_ticket ticket; /* 0: the record is free */
    wp_model model;
    bool granted;
    int32_t priority; /* without its model's */
    uint64_t bytes, arrived, deadline;
    /* Links in the model's tree, while the request waits; 0: none. A free record's next is `left`. */
    uint32_t left, right, size;
    uint32_t heap; /* place in the heap of deadlines, while the request waits */
} wp_job;

typedef enum wp_earmark_state {
    WP_EARMARK_NONE = 0,
    WP_EARMARK_DRAINS, /* one of a device: keeps what is free, and waits until its victims are idle; then they are chosen again */
    WP_EARMARK_LEAVES /* the victims are leaving, and the earmark keeps the bytes that they free */
} wp_earmark_state;

/* What a model keeps of its device's free bytes, until that is enough. */
typedef struct wp_earmark {
    wp_earmark_state state;
    wp_ticket why;      /* 0: by hand */
    uint64_t order;     /* older ones first */
    uint64_t need, has; /* has <= need */
    uint32_t device;    /* the device whose bytes the earmark keeps */
    uint32_t variant;
} wp_earmark;

/* A model. */
typedef struct wp_row {
    bool there, removed;
    wp_spec spec;
    wp_state state;
    uint32_t device;     /* the present device, else the last, which has the residue */
    uint32_t variant;    /* as it was loaded */
    uint64_t bytes;      /* on the device, without the residue; while the model moves, the reserved bytes */
    uint64_t residue;    /* of it, behind unloads */
    uint64_t resident;   /* measured when it was loaded last */
    uint64_t stayed;     /* bytes before it began to be loaded or resumed */
    uint64_t host;       /* host bytes taken or reserved for the copy */
    uint64_t promised;   /* of its running requests */
    uint32_t running;    /* requests */
    uint32_t tree;       /* root of the tree of waiting requests; 0: none waits */
    uint32_t first;      /* of them */
    wp_cause cause;      /* why the first of them waits */
    bool blocked;        /* in a round: its first was looked at */
    wp_earmark earmark;  /* of its own */
    uint32_t victim_of;  /* a model, WP_CEILING_OF or WP_NONE: it is held, and leaves or will leave */
    bool suspends;       /* it leaves by a suspend */
    bool by_hand;        /* it is loaded by hand: also if no request wants it */
    bool stopped;        /* its load was asked to end */
    wp_ticket moves_for; /* the request that caused the present move */
    uint64_t since, used;
    uint64_t virtual_time; /* grants so far, by weight; schedule.c */
    uint64_t retry, no_suspend;
    uint32_t failed;               /* in a row */
    uint32_t lacked;               /* of them, for want of memory since its last round began */
    bool measured[3];              /* the times of its load, resume and suspend */
    uint64_t learned[WP_VARIANTS]; /* the most that was measured */
    wp_arrivals arrivals;
    uint64_t run_time; /* of its requests, a mean */
    wp_view counts;    /* only its counters */
} wp_row;

typedef struct wp_device {
    uint64_t ceiling;
    uint64_t taken;     /* of models and requests */
    uint64_t earmarked; /* the sum of what earmarks have */
    uint64_t clock;     /* the virtual time of the last grant */
    uint32_t earmarks;
    bool dirty; /* something has changed that may let others on */
    bool
        barrier; /* a request has waited long, and models have to go first that are no victims yet: others do not come */
} wp_device;

struct wp_admission {
    wp_limits limits;
    uint64_t now, earmark_order;
    wp_device *devices;
    uint32_t device_count;
    wp_row *rows;
    uint32_t count, room;
    uint64_t host_taken;

    wp_job *jobs; /* from 1 */
    uint32_t job_count, job_room, free_job;
    uint32_t *heap; /* from 1: the earliest deadline first */
    uint32_t waiting;
    uint64_t waiting_bytes;
    uint32_t *tickets; /* indexes of jobs by their tickets; a power of two, half empty at least */
    uint32_t ticket_room;
    uint64_t next_ticket;
    wp_ticket asking; /* the request that wp_ask still has to answer: it needs no action */
    wp_answer asked;

    wp_action *actions; /* a ring */
    uint32_t first_action, action_count, action_room, job_actions;

    wp_candidate *candidates; /* room for all rows */
    uint8_t *chosen;
    wp_solver *solver;
};

static inline uint64_t wp_sum(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
static inline uint64_t wp_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}
static inline wp_device *wp_device_of(wp_admission *it, const wp_row *row)
{
    return &it->devices[row->device];
}
static inline wp_device *wp_earmarked_on(wp_admission *it, const wp_row *row)
{
    return &it->devices[row->earmark.device];
}
static inline wp_model wp_number(const wp_admission *it, const wp_row *row)
{
    return (wp_model)(row - it->rows);
}
static inline uint32_t wp_waiting(const wp_admission *it, const wp_row *row)
{
    return row->tree ? it->jobs[row->tree].size : 0;
}
/* Returns the bytes that are neither taken nor earmarked. */
static inline uint64_t wp_spare(const wp_device *device)
{
    return wp_less(device->ceiling, wp_sum(device->taken, device->earmarked));
}
static inline int64_t wp_rank(const wp_row *row, const wp_job *job)
{
    return (int64_t)row->spec.priority + job->priority;
}

/* ---- queue.c ----------------------------------------------------------------------------------------------------- */

bool wp_queue_reserve(wp_admission *it); /* room for one more request, and its action. False: no memory */
bool wp_actions_reserve(wp_admission *it, uint32_t rows);
uint32_t wp_job_make(wp_admission *it, const wp_request *request);
void wp_job_forget(wp_admission *it, uint32_t job);             /* it waits no more */
uint32_t wp_job_find(const wp_admission *it, wp_ticket ticket); /* 0: none */
void wp_job_wait(wp_admission *it, uint32_t job);
void wp_job_leave(wp_admission *it, uint32_t job);                                                 /* the queue */
uint32_t wp_job_before(const wp_admission *it, const wp_row *row, int64_t rank, wp_ticket ticket); /* how many */
uint32_t wp_job_position(const wp_admission *it, uint32_t job); /* of all that wait, from 1 */
uint32_t wp_job_tree_check(const wp_admission *it, uint32_t tree,
                           wp_model model); /* their number; UINT32_MAX: broken */

void wp_push(wp_admission *it, const wp_action *action, bool of_job);

/* ---- ways.c ------------------------------------------------------------------------------------------------------ */

uint64_t wp_resident(const wp_row *row, uint32_t variant);
uint64_t wp_need(const wp_row *row, uint32_t variant, uint64_t bytes); /* bytes that the model still lacks */
bool wp_fixed(const wp_row *row); /* the model is in a variant, and stays in it until it is unloaded */
/* True: the model can be had in the variant now. A fixed model has one open variant. With a residue, an earmark or an
 * unload under way only the variants on that device are open. */
bool wp_way_open(const wp_row *row, uint32_t variant);
uint32_t wp_way_device(const wp_row *row, uint32_t variant);
/* True: `steps` allow the variant, whatever ties the model to a device now. A fixed model: only its own variant. */
bool wp_way_listed(const wp_row *row, uint32_t variant, uint32_t steps);
bool wp_way_allowed(const wp_row *row, uint32_t variant, uint32_t steps); /* the variant is listed and open */
bool wp_may_be_on(const wp_row *row, uint32_t device);
/* Writes the model's list of steps, without the wait, and returns their number. *waits: whether the list ends with a
 * wait. */
uint32_t wp_steps_of(const wp_row *row, wp_step steps[WP_STEPS], bool *waits);
uint32_t wp_all_steps(const wp_row *row);           /* the same steps as bits */
void wp_touch(wp_admission *it, const wp_row *row); /* makes the devices that the model may be on decide again */
bool wp_never(const wp_admission *it, const wp_row *row, uint64_t bytes, wp_answer *answer);

/* ---- earmarks.c -------------------------------------------------------------------------------------------------- */

/* Who wants room: a request, or a call by hand (job 0). */
typedef struct wp_asker {
    wp_row *row;
    uint32_t job;
    uint32_t device; /* the device that is looked at */
    uint32_t steps;  /* allowed steps: bits by wp_step */
    bool drains;     /* busy models that the asker goes before count as victims, too */
    wp_model over;   /* a model whose victims count as well; WP_NONE */
} wp_asker;

void wp_set_bytes(wp_admission *it, wp_row *row, uint64_t bytes);
void wp_set_state(wp_admission *it, wp_row *row, wp_state state);
bool wp_plan(wp_admission *it, wp_row *row, uint32_t job); /* true: the model has started, or will have the room */
/* True: the model will have the room when busy models have ended. */
bool wp_drain(wp_admission *it, wp_row *row, uint32_t job);
/* True: another model's earmark drains on the device, and goes first. */
bool wp_waits_for_drain(wp_admission *it, const wp_row *row, uint32_t job, uint32_t device);
/* True: there would be room on the device if every model went that may have to go some time. */
bool wp_hopes(const wp_admission *it, const wp_row *row, uint32_t job, uint32_t device);
bool wp_advance(wp_admission *it, wp_device *device); /* advances the earmarks; true: something has changed */
void wp_dissolve(wp_admission *it, wp_row *row);      /* ends the model's earmark */
/* Ends draining earmarks on other devices whose models this device could take by now. */
void wp_free_drains(wp_admission *it, uint32_t device);
/* A request is over for which the model's earmark may have been made: the earmark goes to the model's first request, if it
 * is large enough, or ends. */
void wp_earmark_lost(wp_admission *it, wp_row *row, wp_ticket ticket);
/* Gives the victim's freed bytes to the earmark of the victim_of model, and resets victim_of. */
void wp_freed(wp_admission *it, wp_row *victim, uint64_t bytes);
void wp_leave(wp_admission *it, wp_row *row, wp_ticket why);   /* unloads the model */
bool wp_suspend(wp_admission *it, wp_row *row, wp_ticket why); /* false: the host has no room */
void wp_relieve(wp_admission *it, wp_device *device);          /* the ceiling */
uint64_t wp_host_spare(const wp_admission *it);
uint64_t wp_stays(const wp_admission *it, const wp_row *row); /* bytes that no request can free */
bool wp_still(const wp_row *row);                             /* loaded or suspended, and nothing is asked of it */

/* ---- schedule.c -------------------------------------------------------------------------------------------------- */

void wp_grant(wp_admission *it, uint32_t job);
void wp_refuse(wp_admission *it, uint32_t job, const wp_answer *answer);
void wp_expire(wp_admission *it);
void wp_idle_times(wp_admission *it);
uint64_t wp_idle_due(const wp_admission *it, const wp_row *row); /* when it is suspended or unloaded; WP_FOREVER */
bool wp_serve(wp_admission *it,
              wp_row *row); /* its first request. True: look again; false: it waits, `cause` says why */
void wp_refuse_nevers(wp_admission *it, uint32_t device);
void wp_refuse_all(wp_admission *it, wp_row *row, const wp_answer *answer);
void wp_decide(wp_admission *it); /* devices that are dirty */
wp_answer wp_answer_of(const wp_admission *it, uint32_t job);

#endif
