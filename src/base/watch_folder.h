/* The folder with the sockets of processes that can be watched, for the user alone. Used by the watched process, which
 * makes the folder, and by programs that look into it. */
#ifndef WI_WATCH_FOLDER_H
#define WI_WATCH_FOLDER_H

#include "base/internal.h"

#include <sys/types.h>
#include <sys/un.h>

/* The places: weir/ in $XDG_RUNTIME_DIR, and /tmp/weir-UID. A process has its socket in the first place that can be
 * had; programs that look go through every place. */
enum { WI_WATCH_PLACES = 2, WI_WATCH_PATH = 256 };

/* Opens the folder of a place; `path` gets its name. With `make`, makes a missing folder. WEIR_ERR_NOT_FOUND: the
 * folder is missing, or the place does not exist; WEIR_ERR_SYSTEM: the folder cannot be had, or is not this user's
 * alone. Each error has a detail. */
weir_status wi_watch_folder_open(int place, bool make, char path[WI_WATCH_PATH], int *file);

/* The same for a path. Refuses a folder that others may enter, and a folder of another owner, who could have laid it
 * out for this process. Root may look into every user's folder, but makes nothing there. */
weir_status wi_watch_folder_take(const char *path, bool make, uid_t self, int *file);

/* The address of a socket in an open folder, whatever the length of the folder's name, and whoever has moved it since. */
void wi_watch_address(int folder, const char *name, struct sockaddr_un *out);

/* Whether a process of the user `self` answers one of the user `peer`: itself and root. */
bool wi_watch_allows(uid_t self, uid_t peer);

#endif
