/* Watching: the option `watch` has a thread of the process answer weir ps and weir top, on a Unix socket PID.sock in a folder
 * of the user's alone (base/paths.h). With it stand the answers, the writer of their JSON, and the commands of weir yield.
 *
 * The thread takes no signals, calls no driver and no resource, and allocates nothing of weir's; a command has a thread of its
 * own. Where something fails
 * the log says so, and the program goes on as without the option. The socket is removed at exit. The socket of a killed
 * process is removed by the next program that finds it. */
#ifndef WI_WATCH_H
#define WI_WATCH_H

#include <sys/types.h>

#include <weir/stats.h>

#include "base/internal.h"

/* Called when a runtime has been made, with no lock held: the first time that the option says so, the thread is started. */
void wi_watch_start(void);

/* A file of this process's, by what it is and not only by its number: a program that closes files it did not open may have
 * given the number to another one. */
typedef struct wi_watch_file {
    int number; /* -1: none */
    dev_t device;
    ino_t inode;
} wi_watch_file;

/* The file with this number, as it is now. */
wi_watch_file wi_watch_file_of(int number);
bool wi_watch_file_is(const wi_watch_file *file);

/* How many connections there are at a time; others wait in the socket's queue. One has so long for its request and for
 * taking the answer. */
enum { WI_WATCH_CONNECTIONS = 16, WI_WATCH_SECONDS = 5, WI_WATCH_REQUEST = 64 };
/* And so long for a command, which goes on if its reader does not wait. */
enum { WI_WATCH_COMMAND_SECONDS = 120 };

/* A new socket, for the server to listen on; -1, with errno. */
int wi_watch_open(void);
/* Closes the socket, if it was not used. */
void wi_watch_close(void);
/* Host memory for the answers; false: there is none. `command` stays. */
bool wi_watch_prepare(const char *command);
/* Answers whoever connects, until the socket is no more this process's: a program may close files that are not its own. */
void wi_watch_serve(void);

/* In the child of a fork: closes the thread's files, so that only the parent has them open. Before a fork, and after it
 * in both: no file of the thread's is just being opened or closed. */
void wi_watch_before_fork(void);
void wi_watch_after_fork(bool child);

/* ---- answer.c ---------------------------------------------------------------------------------------------------- */

/* The answer of a watched process: a JSON document. */

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

/* ---- command.c --------------------------------------------------------------------------------------------------- */

/* Commands: requests that change something, of the process's own user alone. 
 *
 * yield SIZE [DEVICE [SECONDS]]: weir_yield (weir/outside.h) of so many bytes on each device, or the named one, held for so long.
 * {weir, pid, command, runtimes[] {device, own, asked, and the members of weir_yielded, with `suspends` for its clients}}
 *
 * suspend NAME, resume NAME: the clients of that name that are offered (weir_client_idle), of every runtime.
 * {weir, pid, command, runtimes[] {device, own, clients[] {name, moved, bytes, why}}} */

typedef struct wi_watch_job wi_watch_job;
enum { WI_WATCH_ANSWER = 64 * 1024 };

bool wi_watch_is_command(const char *request);
/* Has a thread carry it out; `command` stays. NULL: no thread, or no host memory. */
wi_watch_job *wi_watch_begin(const char *request, const char *command);
/* The answer; NULL: not yet. */
const char *wi_watch_result(const wi_watch_job *job, size_t *length);
/* Ends the connection's interest in the job; NULL is nothing. */
void wi_watch_leave(wi_watch_job *job);

/* ---- json.c ------------------------------------------------------------------------------------------------------ */

/* JSON into a buffer of a fixed size. */

/* Invariant: used < capacity. What does not fit is left out, and `full` says so: the text is none of JSON then. A copy of
 * the structure is a place to go back to. */
typedef struct wi_json {
    char *text;
    size_t used, capacity;
    bool between; /* a value has been written at this level: the next one follows a comma */
    bool full;
} wi_json;

/* `key` is NULL in a list and for the document itself. `bracket` is '{' or '['; its end is '}' or ']'. */
void wi_json_open(wi_json *json, const char *key, char bracket);
void wi_json_close(wi_json *json, char bracket);
/* At most 2^63 - 1, as readers have no more. */
void wi_json_number(wi_json *json, const char *key, uint64_t value);
void wi_json_bool(wi_json *json, const char *key, bool value);
/* Any bytes: those that are no UTF-8 become '?'. */
void wi_json_text(wi_json *json, const char *key, const char *value);
/* What is left of the buffer. */
size_t wi_json_room(const wi_json *json);

#endif
