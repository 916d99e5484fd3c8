/* The model file and the files beside it that hold tensor data, mapped for reading. */
#ifndef WI_ONNX_FILE_FILE_H
#define WI_ONNX_FILE_FILE_H

#include <weir/base.h>

#include "base/stamp.h"
#include "onnx/file/wire.h"

typedef struct onnx_side_file {
    struct onnx_side_file *next;
    char *location;     /* as the model names it */
    char *named;        /* where it was looked for and found */
    char *real;         /* the same without links */
    bool beside_target; /* not beside the path that was given, but beside the file to which it leads */
    const uint8_t *data;
    size_t size;
    wi_stamp stamp;
} onnx_side_file;

typedef struct onnx_file {
    char *named;      /* the model's path as it was given */
    char *real;       /* the same without links */
    const char *name; /* the last part of `named` */
    char *home;       /* the folder of `named`, without links */
    char *folder;     /* without links, above the model and all its side files */
    const uint8_t *data;
    size_t size;
    wi_stamp stamp;
    onnx_side_file *sides;
    /* onnx_check finds out: */
    bool texts;    /* some constant is of texts */
    bool plain;    /* no attribute has a graph inside */
    bool nested;   /* some that is no initializer of the main graph lies beside */
    bool two_bits; /* some is of 2-bit numbers, in rows that do not fill their bytes */
} onnx_file;

/* Maps the file at `path`. WEIR_ERR_NOT_FOUND, WEIR_ERR_SYSTEM, or WEIR_ERR_CORRUPT for an empty one. */
weir_status onnx_file_open(const char *path, onnx_file *file);
void onnx_file_close(onnx_file *file);

/* The file that a tensor of the model names as the place of its data. It is looked for beside the path that was given,
 * and then beside the file to which that leads. After all links are followed it has to lie in or below the folder of
 * either: caches keep models as links to files elsewhere. `why` gets a text when the answer is NULL. */
const onnx_side_file *onnx_file_side(onnx_file *file, onnx_text location, char *why, size_t capacity);

/* Where `side` lies as seen from file->folder, without links; NULL is the model itself. To be asked once all side files
 * are open. */
const char *onnx_file_inside(const onnx_file *file, const onnx_side_file *side);

/* The path by which an engine finds the model and its side files by itself: as it was given, or without links where a
 * side file lies beside the file to which that leads alone. */
const char *onnx_file_path(const onnx_file *file);

/* The files by which a model was loaded, for who reads them again by their paths later. */
typedef struct onnx_origins onnx_origins;

/* NULL: no host memory. */
onnx_origins *onnx_origins_of(const onnx_file *file);
void onnx_origins_free(onnx_origins *origins);
/* WEIR_ERR_CONFLICT names the first file that has changed. */
weir_status onnx_origins_check(const onnx_origins *origins);

/* check.c: is this an ONNX file all the way down? Asked before ONNX Runtime sees a byte of it. */

/* Walks every message of the file: wire format, schema, texts, nesting, tensors and the files they name.
 * WEIR_ERR_CORRUPT with the byte where it breaks; WEIR_ERR_UNSUPPORTED for what no ONNX Runtime takes. */
weir_status onnx_check(onnx_file *file);

/* The same, but for a file that this process has found good and that has not changed since, nor the files that it names:
 * those are opened, and nothing is walked. Any thread. */
weir_status onnx_check_once(onnx_file *file);

#endif
