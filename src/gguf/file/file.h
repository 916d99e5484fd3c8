/* file.h: a GGUF file as weir reads it by itself, before llama.cpp sees it. It is in libweir and in the plug-in.
 *
 * wi_gguf_file_open reads header, keys and tensor directory in one pass, with every count and length held against the file's
 * size first, so that a hostile file costs no more than its own bytes. Arrays stay in the file; their place is kept. */
#ifndef WG_FILE_H
#define WG_FILE_H

#include <weir/base.h>

enum wg_kind {
    WG_U8 = 0,
    WG_I8 = 1,
    WG_U16 = 2,
    WG_I16 = 3,
    WG_U32 = 4,
    WG_I32 = 5,
    WG_F32 = 6,
    WG_BOOL = 7,
    WG_TEXT = 8,
    WG_ARRAY = 9,
    WG_U64 = 10,
    WG_I64 = 11,
    WG_F64 = 12,
    WG_KIND_COUNT
};

enum { WG_MAX_DIMS = 4, WG_NAME_BYTES = 64, WG_TEXT_KEPT = 127 };

typedef struct wg_key {
    char *name;
    uint64_t at;         /* where the key begins in the file */
    uint64_t value_at;   /* where its value, or the first element of its array, begins */
    uint32_t kind;       /* enum wg_kind */
    uint32_t element;    /* of an array */
    uint64_t count;      /* of an array's elements; 1 otherwise */
    uint64_t integer;    /* an integer's or bool's value, negative ones sign-extended */
    double number;       /* the same or a float's, as a double */
    uint64_t text_bytes; /* of a text */
    char text[WG_TEXT_KEPT + 1];
} wg_key;

typedef struct wg_tensor {
    char name[WG_NAME_BYTES];
    uint64_t at; /* where its entry begins in the file */
    uint32_t type;
    uint32_t dims;
    uint64_t ne[WG_MAX_DIMS]; /* beyond `dims`: 1 */
    uint64_t offset;          /* into the data section */
    uint64_t bytes;
} wg_tensor;

typedef struct wg_file {
    int descriptor;
    const char *path; /* the caller's */
    uint64_t size;
    uint32_t version;
    uint64_t alignment;
    uint64_t data_at;
    wg_key *keys; /* sorted by name */
    size_t key_count;
    wg_tensor *tensors; /* in the order of the file */
    size_t tensor_count;
    const wg_tensor **by_name;
} wg_file;

/* WEIR_ERR_NOT_FOUND or WEIR_ERR_SYSTEM when the file cannot be read, WEIR_ERR_CORRUPT naming key or tensor and the
 * byte, and WEIR_ERR_UNSUPPORTED for another version or byte order. On success wi_gguf_file_close gives everything back. */
weir_status wi_gguf_file_open(const char *path, wg_file *out);
void wi_gguf_file_close(wg_file *file);

/* NULL when there is none of that name. */
const wg_key *wi_gguf_file_key(const wg_file *file, const char *name);
const wg_tensor *wi_gguf_file_tensor(const wg_file *file, const char *name);

/* WEIR_ERR_UNSUPPORTED for a part of a model that was split; the message names the part and says what to do. */
weir_status wi_gguf_file_whole(const wg_file *file);

/* "u32"; "?" for a number that is none. */
const char *wi_gguf_kind_name(uint32_t kind);

/* Bytes of one element of a fixed size; 0 for texts, arrays and numbers that are none. */
size_t wi_gguf_kind_bytes(uint32_t kind);

/* Elements and bytes of one block of a tensor type; false for a type that is none. */
bool wi_gguf_type_block(uint32_t type, uint32_t *elements, uint32_t *bytes);

/* Reads the file in order through a window of its own, so that arrays can be gone through without holding them. */
typedef struct wg_cursor {
    const wg_file *file;
    uint64_t at, window_at;
    size_t window_bytes;
    unsigned char *window;
} wg_cursor;

weir_status wi_gguf_cursor_open(const wg_file *file, uint64_t at, wg_cursor *out);
void wi_gguf_cursor_close(wg_cursor *cursor);
/* WEIR_ERR_CORRUPT when the file ends before `bytes` more; `out` NULL skips them. */
weir_status wi_gguf_cursor_read(wg_cursor *cursor, void *out, uint64_t bytes);
/* The length in front of a text, held against what is left of the file. */
weir_status wi_gguf_cursor_text_bytes(wg_cursor *cursor, uint64_t *bytes);

#endif
