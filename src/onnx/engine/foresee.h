/* Forecasts of ONNX Runtime's work on a file: the needs of providers, the bytes of a run. */
#ifndef WEIR_ONNX_FORESEE_H
#define WEIR_ONNX_FORESEE_H

#include <stdbool.h>
#include <stddef.h>

#include <weir/engine.h>

#include "base/stamp.h"
#include "model.h"
#include "onnx/file/file.h"
#include "onnx/file/main_graph.h"

/* ---- needs.c ----------------------------------------------------------------------------------------------------- */

/* What a library needs, and would not get: its dependencies as the dynamic linker would look them up, without opening
 * them. */

/* Writes the names of the missing libraries among the direct and indirect dependencies of `file`, with found libraries
 * of a different version, like "libnvinfer.so.10 (found libnvinfer.so.8), libnvonnxparser.so.10". `also` names a
 * library that `file` opens by itself at run time; NULL: none. Returns how many libraries are missing; -1: the file is
 * no library that can be read. Any thread. */
int onnx_needs_missing(const char *file, const char *also, char *text, size_t capacity);

/* Where the dynamic linker would find a library of that name, were none of it open yet; false: nowhere. Any thread. */
bool onnx_needs_find(const char *name, char *path, size_t capacity);

/* ---- seen.c ------------------------------------------------------------------------------------------------------ */

/* What an answer rests on: paths as they were found, and which libraries the process had open. The answer holds for as long as all of
 * that is so. */

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

/* ---- foresee.c --------------------------------------------------------------------------------------------------- */

/* What a run will take, found out of the model's graph before anything is loaded. */

typedef struct onnx_foreseen {
    /* Peak bytes of a run, in places that are shared as by ONNX Runtime's planner, each place as charged, without the
     * caller's inputs. Set only if `runs`: all shapes follow from the given sizes. */
    bool runs;
    uint64_t activations;
    uint64_t packed;   /* bytes of weights as kernels lay them out */
    uint64_t replaced; /* bytes of weights that are then not kept as they are in the file */
    bool whole;        /* `packed` and `replaced` are complete: host memory sufficed */
} onnx_foreseen;

/* Inputs of the prediction beside the file. `dims` belongs to the load, which outlives it. */
typedef struct onnx_foresee_ask {
    const char *dims; /* the setting, or "" */
    int threads;      /* from 1 */
    int optimization;
    bool cuda, memory_pattern, prepack;
    const onnx_graph *model; /* as far as constants of it are lifted (onnx_uses_lift); NULL: none are */
} onnx_foresee_ask;

/* As a load asks for it; `cuda`: its nodes run on a GPU. */
onnx_foresee_ask onnx_foresee_asked(const weir_engine_load *load, const onnx_settings *settings, bool cuda);

/* Open dimensions have the sizes of the setting "dims" ("batch=1,sequence=128"). Without a size there, an input's first
 * open dimension is 1, and each further open dimension is 16. If not all shapes follow, the next extents that the
 * command would try are tried in place of 16, up to the first with which all shapes follow. Figures that cannot be told
 * are 0. */
void onnx_foresee_now(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out);

/* foreseen.c: the same, but for what this process was asked before of a file that has not changed since. Any thread. */
void onnx_foresee(onnx_file *file, const onnx_foresee_ask *ask, onnx_foreseen *out);

/* The setting's value is well-formed. */
bool onnx_dims_good(const char *value);

#endif
