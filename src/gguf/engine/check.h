/* check.h: what llama.cpp takes for granted about a model, asked before it can end the process over it. */
#ifndef WG_CHECK_H
#define WG_CHECK_H

#include "gguf/file/layout.h"

/* What was learnt on the way and later steps want to know. */
typedef struct wg_facts {
    char architecture[64];
    uint32_t layers, context, width; /* block_count, context_length, embedding_length */
    uint32_t tokens;                 /* of the vocabulary */
    int pooling;                     /* enum llama_pooling_type; -1: the model does not say */
    bool known;                      /* an architecture whose every rule is written down here */
} wg_facts;

/* Opens the file, checks structure and meaning, closes it. WEIR_ERR_CORRUPT names key or tensor and the byte;
 * WEIR_ERR_UNSUPPORTED what this engine does not run. */
weir_status wg_check(const char *path, wg_facts *out);
/* The same of a file that is open. */
weir_status wg_check_file(const wg_file *file, wg_facts *out);
/* checked.c: the same, and what its memory depends on (`hyper`; NULL: not wanted). A file that this process has found good
 * and that has not changed since is not opened. Any thread. */
weir_status wg_check_once(const char *path, wg_facts *facts, wg_hyper *hyper);

/* check_tensors.c: shapes and types of what the architectures `llama` and `bert` compute with. */
weir_status wg_check_tensors(const wg_file *file, const wg_facts *facts);
/* check_vocabulary.c: the tokenizer's arrays agree with one another and with the embedding table. */
weir_status wg_check_vocabulary(const wg_file *file, wg_facts *facts);

/* For the three of them: WEIR_ERR_CORRUPT about a key, and one about a tensor. */
weir_status wg_bad_key(const wg_file *file, const wg_key *key, const char *what);
weir_status wg_bad_tensor(const wg_file *file, const wg_tensor *tensor, const char *what);
weir_status wg_no_key(const wg_file *file, const char *name);

#endif
