/* The model file and the files beside it that hold tensor data, mapped for reading. */
#ifndef WI_ONNX_FILE_FILE_H
#define WI_ONNX_FILE_FILE_H

#include <sys/types.h>
#include <time.h>

#include <weir/base.h>

#include "onnx_file/wire.h"

/* What tells a file from another one in its place, and from what it was before it was written to. */
typedef struct onnx_stamp {
    dev_t device;
    ino_t number;
    off_t size;
    struct timespec written;
    struct timespec changed; /* also by another name or mode */
} onnx_stamp;

typedef struct onnx_side_file {
    struct onnx_side_file *next;
    char *location; /* as the model names it */
    char *real;
    const uint8_t *data;
    size_t size;
    onnx_stamp stamp;
} onnx_side_file;

typedef struct onnx_file {
    char *real;       /* the model's path without links */
    char *folder;     /* where it lies */
    const char *name; /* its name there */
    const uint8_t *data;
    size_t size;
    onnx_stamp stamp;
    onnx_side_file *sides;
    bool texts; /* some constant is of texts, and */
    bool plain; /* no attribute has a graph inside: onnx_check finds out */
} onnx_file;

/* Maps the file at `path`. WEIR_ERR_NOT_FOUND, WEIR_ERR_SYSTEM, or WEIR_ERR_CORRUPT for an empty one. */
weir_status onnx_file_open(const char *path, onnx_file *file);
void onnx_file_close(onnx_file *file);

/* The file that a tensor of the model names as the place of its data: one that lies in the model's folder or below,
 * also after all links are followed. `why` gets a text when the answer is NULL. */
const onnx_side_file *onnx_file_side(onnx_file *file, onnx_text location, char *why, size_t capacity);

/* Where `side` lies as seen from the folder. */
const char *onnx_file_inside(const onnx_file *file, const onnx_side_file *side);

/* The files by which a model was loaded, for who reads them again by their paths later. */
typedef struct onnx_origins onnx_origins;

/* NULL: no host memory. */
onnx_origins *onnx_origins_of(const onnx_file *file);
void onnx_origins_free(onnx_origins *origins);
/* WEIR_ERR_CONFLICT names the first that is not what it was. */
weir_status onnx_origins_check(const onnx_origins *origins);

#endif
