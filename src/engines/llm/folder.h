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
    uint64_t table_bytes;  /* of these, what nothing is multiplied by: tables of tokens and positions, scales */
    uint32_t cache_width;  /* bytes of one number in the cache; 0: unknown */
    uint64_t nodes;
    bool flat; /* the graph and all files that it names lie in the folder itself */
} wl_folder;

/* Reads `path`, the folder or its genai_config.json. WEIR_ERR_CORRUPT for what is not well-formed, WEIR_ERR_UNSUPPORTED
 * for what this engine does not run, each with the file and the place. */
weir_status wl_folder_read(const char *path, wl_folder *out);

/* known.c: the files of a folder, told from others and from what they were; of folders in it, what they are themselves. */
typedef struct wl_files {
    uint64_t sums[2];
    bool settled; /* none was written just now, so that they tell */
} wl_files;
void wl_files_look(const char *path, wl_files *out);
/* Whether the folder at folder->path was found good as its files are now: what it was then is filled in. Any thread. */
bool wl_folder_recall(const wl_files *files, wl_folder *folder);
/* It was found good, and its files were so before it was read. */
void wl_folder_keep(const wl_files *files, const wl_folder *folder);

/* An object of JSON in the folder; `flags` are jansson's. */
weir_status wl_folder_json(const wl_folder *folder, const char *name, int64_t most, size_t flags, json_t **out);
/* config.c: whether each word of genai_config.json has a rule, and keeps it. */
weir_status wl_config_check(const wl_folder *folder, const json_t *root);
/* tokenizer.c */
weir_status wl_tokenizer_check(const wl_folder *folder);
/* Whether the template is one that GenAI can read; `what` names it. */
weir_status wl_template_check(const char *what, const char *text);

/* Bytes of the cache of one sequence of so many tokens. */
uint64_t wl_folder_cache(const wl_folder *folder, uint64_t tokens);

#endif
