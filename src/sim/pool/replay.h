/* replay.h: a log of decisions (pool/decisions.h) given to a new state machine, which has to decide the same. */
#ifndef SIM_POOL_REPLAY_H
#define SIM_POOL_REPLAY_H

#include <weir/base.h>

typedef struct replay_result {
    uint64_t lines, events, actions;    /* read; given to the machine; compared */
    bool differs;                       /* then it has ended there */
    uint64_t line;                      /* where */
    char recorded[2048], decided[2048]; /* the two lines; "" for none */
    double seconds;
} replay_result;

/* WEIR_OK also when it differs. WEIR_ERR_INVALID names the line that is none; WEIR_ERR_SYSTEM: it cannot be read. */
weir_status replay_decisions(const char *path, void (*progress)(void *user, double fraction), void *user,
                             replay_result *out);

#endif
