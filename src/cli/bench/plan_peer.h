/* bench_plan_peer.h: MiniMalloc's own program, on a problem. */
#ifndef WEIR_CLI_BENCH_PLAN_PEER_H
#define WEIR_CLI_BENCH_PLAN_PEER_H

#include <weir/base.h>

/* Seconds from its start to its end; NAN if it finds no plan in `limit` seconds. */
double bench_plan_peer(const char *program, const char *problem, uint64_t capacity, double limit);

#endif
