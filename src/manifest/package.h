/* Packages: gzip tars with a manifest and its model. */
#ifndef WI_MANIFEST_PACKAGE_H
#define WI_MANIFEST_PACKAGE_H

#include <weir/manifest.h>

#include <sys/stat.h>

#define WI_PACKAGE_MANIFEST "metadata.json"

/* Finds or makes the folder in which the package is unpacked. *folder is to be freed; nobody clears it away before *use
 * is given to wi_package_leave. Errors: see weir_manifest_read. */
weir_status wi_package_open(const char *path, const weir_manifest_options *options, char **folder, int *use);
void wi_package_leave(int use);

/* An open package, and what it may become. */
typedef struct wi_package {
    const char *path;
    int file;
    uint64_t bytes, limit;
} wi_package;

/* package_unpack.c: unpacks it into the empty folder that is open as `folder`. */
weir_status wi_package_unpack(const wi_package *package, int folder);

/* WEIR_ERR_SYSTEM when `bytes` do not fit onto the disk of `folder`, naming them and what is free. */
weir_status wi_package_check_space(const wi_package *package, int folder, uint64_t bytes);

/* The bytes that the tar has at least, by the length and the end of the gzip file; 0 if it is none. */
uint64_t wi_package_expected(const wi_package *package);

/* ---- package_store.c ---- */

/* Where packages are unpacked: packages/ below the store has a folder for each content, and links by which the content
 * of a file that has not changed since is known without reading it. */

enum { WI_CONTENT_BYTES = 65, WI_FRESH_NAME = 16 };

/* Opens packages/ below `store`, and makes it where it is not there. `path` gets its path. */
weir_status wi_store_open(const char *store, int *packages, char **path);

/* Whether the folder of a content is there. */
bool wi_store_has(int packages, const char *content);

/* Opens the folder of a content, with a lock that keeps all processes from clearing the folder until wi_store_leave.
 * -1: the folder is not there, or has just been cleared. */
int wi_store_use(int packages, const char *content);

/* Leaves the folder. wi_store_use and wi_store_leave note the time, from which a package's age counts. */
void wi_store_leave(int folder);

/* Finds the content of a file that was noted and has not changed since. False: the content is unknown. */
bool wi_store_known(int packages, const struct stat *file, char content[WI_CONTENT_BYTES]);
void wi_store_note(int packages, const struct stat *file, const char *content);

/* An empty folder for something new; nobody else takes it away while `folder` is open. */
typedef struct wi_fresh {
    char name[WI_FRESH_NAME];
    int folder;
} wi_fresh;
weir_status wi_store_begin(int packages, const char *path, wi_fresh *out);

/* Makes the new folder the folder of a content. If another process has already made a folder of this content, that
 * folder stays, and the new folder is removed. */
weir_status wi_store_finish(int packages, wi_fresh *fresh, const char *content);

/* Removes the new folder. */
void wi_store_drop(int packages, wi_fresh *fresh);

/* Clearing the store: by age, and by bytes the package that was used longest ago first. */

typedef struct wi_bounds {
    uint64_t bytes;   /* that may stay */
    uint64_t seconds; /* since its last use, after which a package goes */
} wi_bounds;

/* What the options `unpacked` and `unpacked_age` say. */
wi_bounds wi_bounds_of_options(void);

/* The bytes of a folder's files. */
uint64_t wi_packages_bytes_below(int parent, const char *name);

/* Counts the bytes of all packages, and of packages not in use. */
typedef struct wi_packages_there {
    uint64_t bytes, idle;
} wi_packages_there;
weir_status wi_packages_count(int packages, const char *path, wi_packages_there *out);

/* Removes packages until what is there keeps the bounds, or is in use; open as `packages`, whose path is `path`.
 * WEIR_ERR_SYSTEM where the folder cannot be read. What cannot be removed stays, and counts. */
weir_status wi_packages_clear(int packages, const char *path, wi_bounds bounds, weir_manifest_cleared *out);

#endif
