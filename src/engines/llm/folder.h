/* folder.h: a model's folder: genai_config.json, the graph it names and the tokenizer beside them, read and checked before
 * GenAI sees them. */
#ifndef WL_FOLDER_H
#define WL_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include <weir/base.h>

#define WL_CONFIG "genai_config.json"

typedef struct wl_folder {
    char path[512];
    char type[64];      /* "llama", "phi3" */
    char model[256];    /* the graph's file, in the folder */
    int64_t context;    /* tokens that the model has positions for */
    int64_t vocabulary; /* tokens */
    int64_t layers, kv_heads, head_size;
    int64_t threads;       /* that the config gives ONNX Runtime; 0: none */
    int64_t top_k;         /* of the search section, that GenAI begins with */
    bool shares_cache;     /* keys and values lie in one buffer for the whole context */
    bool paged;            /* "dynamic_batching": its graph takes a table of blocks */
    int64_t block;         /* tokens of such a block */
    uint64_t weight_bytes; /* in the graph and beside it */
    uint64_t table_bytes;  /* of these, tables of tokens and positions, and scales: no matrix product uses them */
    uint64_t token_bytes;  /* of a token's keys and values in all layers, as the graph has them */
    uint64_t state_bytes;  /* of what a sequence has however long it is: states of layers that keep no keys */
    uint64_t nodes;
    bool flat; /* the graph and its files lie in the folder itself */
} wl_folder;

/* Reads `path`, the folder or its genai_config.json. WEIR_ERR_CORRUPT for what is not well-formed, WEIR_ERR_UNSUPPORTED
 * for what this engine does not run, each with the file and the place. */
weir_status wl_folder_read(const char *path, wl_folder *out);

/* known.c: sums that change when a file of the folder changes. A subfolder counts with its own attributes, without its
 * files. */
typedef struct wl_files {
    uint64_t sums[2];
    bool settled; /* no file was written just now, so that the sums are reliable */
} wl_files;
void wl_files_look(const char *path, wl_files *out);
/* True: the folder at folder->path was found good with the same files; *folder gets the result of that reading. Any
 * thread. */
bool wl_folder_recall(const wl_files *files, wl_folder *folder);
/* Remembers a folder that was found good. `files` is from before the reading. */
void wl_folder_keep(const wl_files *files, const wl_folder *folder);

/* An object of JSON in the folder; `flags` are jansson's. */
weir_status wl_folder_json(const wl_folder *folder, const char *name, int64_t most, size_t flags, json_t **out);
/* config.c: whether each word of genai_config.json that has a rule keeps it, what has none is harmless, and all go
 * together. */
weir_status wl_config_check(const wl_folder *folder, const json_t *root);
/* Whether it is a whole number, which may be written as 256.0. */
bool wl_config_whole(const json_t *value, int64_t *out);
/* tokenizer.c */
weir_status wl_tokenizer_check(const wl_folder *folder);
/* Whether the template is one that GenAI can read; `what` names it. */
weir_status wl_template_check(const char *what, const char *text);

/* Bytes of the cache of one sequence of so many tokens; UINT64_MAX where they are beyond all measure. */
uint64_t wl_folder_cache(const wl_folder *folder, uint64_t tokens);

#endif
