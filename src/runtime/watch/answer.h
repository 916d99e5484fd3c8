/* The answer of a watched process: a JSON document. */
#ifndef WI_WATCH_ANSWER_H
#define WI_WATCH_ANSWER_H

#include <weir/stats.h>

/* An answer has no more bytes, and no more clients of a runtime. */
enum { WI_WATCH_BYTES = 256 * 1024, WI_WATCH_CLIENTS = 256 };

/* Writes the answer to a request and a line end into `text`, of WI_WATCH_BYTES, and returns its length. `clients` is room for
 * WI_WATCH_CLIENTS. Requests: "stats", and "layout", which has the sums of each runtime's layout besides.
 *
 * {weir, pid, command, runtimes[] {device, own, resource, the members of weir_stats but `clients` and `ordered`, ladder
 * {by rung}, client_count, layout {held, in_hand, segments, spans, bytes {by state}}, clients[] {name, the members of
 * weir_client_stats, live_class and peak_class {by class}}}, cores {the members of weir_cores_totals but `lines`, models[] {the
 * members of weir_cores_stats}}, left_out}. Runtimes and clients for which there is no room are left out: left_out and
 * client_count count them; of models, some.
 *
 * The ledgers are read as they are: nothing is reaped, and no driver is called. Takes their locks as weir_snapshot does, and
 * for the layout the resources' as weir_layout_walk. */
size_t wi_watch_answer(const char *request, const char *command, weir_client_stats *clients, char *text);

#endif
