/* Watching: the option `watch` has a thread of the process answer weir ps and weir top, on a Unix socket PID.sock in a folder
 * of the user's alone (base/paths.h).
 *
 * The thread takes no signals, calls no driver and no resource, and allocates nothing of weir's. Where something fails
 * the log says so, and the program goes on as without the option. The socket is removed at exit. The socket of a killed
 * process is removed by the next program that finds it. */
#ifndef WI_WATCH_H
#define WI_WATCH_H

#include "base/internal.h"

#include <sys/types.h>

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

#endif
