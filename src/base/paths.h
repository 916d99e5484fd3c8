/* Paths: of models, and of the folder with the sockets of processes that can be watched. */
#ifndef WI_PATHS_H
#define WI_PATHS_H

#include "base/internal.h"

#include <limits.h>
#include <sys/types.h>
#include <sys/un.h>

/* Models ----------------------------------------------------------------------------------------------------------- */

/* What the path of a model tells: the model's name, and the engines that take the model. For programs and libraries
 * beside libweir, too. */

/* The path that a word means where a model is wanted: a bare name, which is no file or folder here, may be one of the
 * models in the store (the option `home`, folder models/). Answers `word`, or `stored` with the path there. */
const char *wi_path_meant(const char *word, char stored[PATH_MAX]);
/* WEIR_ERR_NOT_FOUND, for what wi_path_meant has answered: where it was looked for. */
weir_status wi_path_missing(const char *path);

/* The part of the path that people know the model by, and its length: the last part, without slashes behind it. A model
 * of ONNX Runtime GenAI's has the name of its folder, even if the path is that of its genai_config.json. */
const char *wi_path_model_name(const char *path, size_t *length);

/* Whether one of the words, which are separated by blanks, matches the name of a file. A word that begins with a point
 * is an ending, in any case; every other word is the whole name. */
bool wi_suffix_of(const char *words, const char *path);
/* The same for a file or a folder at the path: a word matches a folder if it is the whole name of a file in the
 * folder. */
bool wi_path_taken(const char *words, const char *path);
/* A name by which a file with these first bytes would be taken; "" if none. */
const char *wi_suffix_by_content(const char *path);

/* Watched processes ------------------------------------------------------------------------------------------------ */

/* The folder with the sockets of processes that can be watched, for the user alone. Used by the watched process, which
 * makes the folder, and by programs that look into it. */

/* The folders: weir/ in $XDG_RUNTIME_DIR, and /tmp/weir-UID. A process has its socket in the first folder that can be
 * had; programs that look go through every folder. */
enum { WI_WATCH_FOLDERS = 2, WI_WATCH_PATH = 256 };

/* Opens the folder of that number; `path` gets its name. With `make`, makes a missing folder. WEIR_ERR_NOT_FOUND: the
 * folder is missing, or there is no such number; WEIR_ERR_SYSTEM: the folder cannot be had, or is not this user's
 * alone. Each error has a detail. */
weir_status wi_watch_folder_open(int number, bool make, char path[WI_WATCH_PATH], int *file);

/* The same for a path. Refuses a folder that others may enter, and a folder of another owner, who could have laid it
 * out for this process. Root may look into every user's folder, but makes nothing there. */
weir_status wi_watch_folder_take(const char *path, bool make, uid_t self, int *file);

/* The address of a socket in an open folder, whatever the length of the folder's name, and whoever has moved it since. */
void wi_watch_address(int folder, const char *name, struct sockaddr_un *out);

/* Whether a process of the user `self` answers one of the user `peer`: itself and root. */
bool wi_watch_allows(uid_t self, uid_t peer);

#endif
