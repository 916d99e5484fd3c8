/* Where the sockets of processes are that can be watched: a folder of the user's alone. For the process itself, which makes
 * it, and for programs that look into it. */
#ifndef WI_WATCH_FOLDER_H
#define WI_WATCH_FOLDER_H

#include "base/internal.h"

#include <sys/types.h>
#include <sys/un.h>

/* The places: weir/ in $XDG_RUNTIME_DIR, and /tmp/weir-UID. A process has its socket in the first one that can be had; who
 * looks goes through all of them. */
enum { WI_WATCH_PLACES = 2, WI_WATCH_PATH = 256 };

/* Opens the folder of a place; `path` gets its name. With `make` it is made if it is not there. WEIR_ERR_NOT_FOUND: it is not
 * there, or there is no such place; WEIR_ERR_SYSTEM: it cannot be had, or is not this user's alone. The detail has both. */
weir_status wi_watch_folder_open(int place, bool make, char path[WI_WATCH_PATH], int *file);

/* The same for a path. A folder of another owner is refused, so that nobody can lay one out for this process, and one that
 * others may enter. Root may look into that of any user, but makes nothing there. */
weir_status wi_watch_folder_take(const char *path, bool make, uid_t self, int *file);

/* The address of a socket in an open folder, whatever the length of the folder's name, and whoever has moved it since. */
void wi_watch_address(int folder, const char *name, struct sockaddr_un *out);

/* Whether a process of the user `self` answers one of the user `peer`: itself and root. */
bool wi_watch_allows(uid_t self, uid_t peer);

#endif
