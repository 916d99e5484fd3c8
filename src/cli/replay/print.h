/* replay_print.h: what `weir replay` says of the traces it replayed. */
#ifndef WEIR_CLI_REPLAY_PRINT_H
#define WEIR_CLI_REPLAY_PRINT_H

#include "replay.h"

#include <jansson.h>

typedef struct replay_answer {
    wi_replay_plan plan;
    wi_replay_result result;
    wi_replay_cap smallest;
    uint64_t cap; /* 0: none */
    double own;   /* nanoseconds an event that the loop takes by itself; part of every figure */
    bool min_cap; /* it was looked for */
} replay_answer;

typedef struct replay_answers {
    const char *device, *resource;
    uint64_t lag;
    const replay_answer *list;
    size_t count;
} replay_answers;

json_t *replay_json(const replay_answers *all);
void replay_print(const replay_answers *all);
uint64_t replay_failures(const replay_answer *answer);

#endif
