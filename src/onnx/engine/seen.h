/* What an answer rests on: paths as they were found, and which libraries the process had open. The answer holds for as long as all of
 * that is so. */
#ifndef WEIR_ONNX_SEEN_H
#define WEIR_ONNX_SEEN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/stamp.h"

typedef struct onnx_seen_path {
    char *path;
    wi_stamp stamp;
    bool there; /* else it has no stamp */
} onnx_seen_path;

typedef struct onnx_seen {
    onnx_seen_path *paths;
    size_t count, room;
    unsigned long long opened, closed; /* libraries, since the process began */
    bool whole; /* all was noted, and nothing was written so lately that it may change and have the same stamp */
} onnx_seen;

void onnx_seen_begin(onnx_seen *it);
/* Before the path is looked at, whether a file or a folder. Without host memory, or where the working directory says which path it
 * is, the answer will not do again. */
void onnx_seen_note(onnx_seen *it, const char *path);
/* True: the paths and the open libraries are unchanged. False also if a path could not be noted. */
bool onnx_seen_holds(const onnx_seen *it);
void onnx_seen_end(onnx_seen *it);

#endif
