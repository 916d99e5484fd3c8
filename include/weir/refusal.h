/* weir/refusal.h: why there was no memory, in numbers. weir_detail() says the same in words. */
#ifndef WEIR_REFUSAL_H
#define WEIR_REFUSAL_H

#include <weir/memory.h>

WEIR_BEGIN

typedef enum weir_refusal_cause {
    WEIR_CAUSE_NONE = 0,
    WEIR_CAUSE_BUDGET = 1,        /* the device's budget is spent or guaranteed to others */
    WEIR_CAUSE_MAXIMUM = 2,       /* the client's own maximum */
    WEIR_CAUSE_FRAGMENTATION = 3, /* enough bytes are free, but not in one piece */
    WEIR_CAUSE_PENDING = 4,       /* freed bytes that the device is not past would do */
    WEIR_CAUSE_DEVICE = 5,        /* the device itself has no more, though the budget would allow it */
    WEIR_CAUSE_OTHER_PROCESS = 6, /* as before, and another process holds it */
    WEIR_CAUSE_ADDRESS_RANGE = 7, /* larger than the range of addresses of this runtime */
    WEIR_CAUSE_RESERVATION = 8,   /* more than what is left of the reservation that it was to come from */
    WEIR_CAUSE_COUNT = 9
} weir_refusal_cause;

/* "none", "budget" and so on, as in the command's JSON; "?" for a number that is none. Any thread; static storage. */
WEIR_API const char *weir_refusal_cause_name(weir_refusal_cause cause);

enum { WEIR_REFUSAL_HOLDERS = 4 };

typedef struct weir_refusal {
    size_t struct_size;
    weir_refusal_cause cause;
    char client[64]; /* who asked */
    char device[32];
    weir_class memory_class;
    uint64_t requested; /* bytes asked for, as they would have been charged */
    uint64_t current;   /* what the client had live, pending and promised */
    uint64_t remaining; /* what was left for it under the limit that refused */
    uint64_t limit;     /* that limit: the budget or the maximum */
    uint64_t largest;   /* the largest request that would have been met */
    uint64_t needed;    /* the value of that limit under which this request would have been met, other limits apart */
    struct {
        char client[64];
        uint64_t bytes;              /* live + pending, or guaranteed if that is more */
    } holders[WEIR_REFUSAL_HOLDERS]; /* most first; an empty name ends the list */
} weir_refusal;

/* The calling thread's last refusal; cause WEIR_CAUSE_NONE if it had none. */
WEIR_API WEIR_NODISCARD weir_status weir_refusal_last(weir_refusal *out);

WEIR_END
#endif
