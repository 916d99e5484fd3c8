/* Where packages are unpacked: packages/ below the store has a folder for each content, and links by which the content of a file
 * that has not changed since is known without reading it. */
#ifndef WI_MANIFEST_PACKAGE_STORE_H
#define WI_MANIFEST_PACKAGE_STORE_H

#include <weir/base.h>

#include <sys/stat.h>

enum { WI_CONTENT_BYTES = 65, WI_FRESH_NAME = 16 };

/* Opens packages/ below `store`, and makes it where it is not there. `path` gets its path. */
weir_status wi_store_open(const char *store, int *packages, char **path);

/* Whether the folder of a content is there, and whether a name can be one's. */
bool wi_store_has(int packages, const char *content);
bool wi_store_is_content(const char *name);

/* Opens the folder of a content, which nobody clears away until it is left: by a lock that other processes see. -1: it is not
 * there, or has just been cleared. */
int wi_store_use(int packages, const char *content);

/* Both note the time, from which a package's age counts. */
void wi_store_leave(int folder);

/* Whether nobody uses the folder of a content just now. */
bool wi_store_is_idle(int packages, const char *content);

/* Clears the folder of a content away, unless somebody uses it. */
bool wi_store_remove(int packages, const char *path, const char *content);

/* The content of a file, if it is known: it has to be the one that was noted, unchanged. */
bool wi_store_known(int packages, const struct stat *file, char content[WI_CONTENT_BYTES]);
void wi_store_note(int packages, const struct stat *file, const char *content);
void wi_store_forget(int packages); /* all whose content is not there any more */

/* An empty folder for something new; nobody else takes it away while `folder` is open. */
typedef struct wi_fresh {
    char name[WI_FRESH_NAME];
    int folder;
} wi_fresh;
weir_status wi_store_begin(int packages, const char *path, wi_fresh *out);

/* Makes it the folder of that content; it is what it was where another process has been faster. */
weir_status wi_store_finish(int packages, wi_fresh *fresh, const char *content);

/* Takes it away again. */
void wi_store_drop(int packages, wi_fresh *fresh);

#endif
