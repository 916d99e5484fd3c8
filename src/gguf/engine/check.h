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

/* Checks structure and meaning. WEIR_ERR_CORRUPT names key or tensor and the byte; WEIR_ERR_UNSUPPORTED what this engine
 * does not run. */
weir_status wg_check_file(const wg_file *file, wg_facts *out);
/* checked.c: opens the file and does the same, and tells what its memory depends on (`hyper`; NULL: not wanted). A file
 * that this process has found good and that has not changed since is not opened. Any thread. */
weir_status wg_check_once(const char *path, wg_facts *facts, wg_hyper *hyper);

/* check_tensors.c: shapes and types of what the architectures `llama` and `bert` compute with. */
weir_status wg_check_tensors(const wg_file *file, const wg_facts *facts);
/* check_vocabulary.c: the tokenizer's arrays agree with one another and with the embedding table. */
weir_status wg_check_vocabulary(const wg_file *file, wg_facts *facts);

/* For the three of them: WEIR_ERR_CORRUPT about a key, and one about a tensor. */
weir_status wg_bad_key(const wg_file *file, const wg_key *key, const char *what);
weir_status wg_bad_tensor(const wg_file *file, const wg_tensor *tensor, const char *what);
weir_status wg_no_key(const wg_file *file, const char *name);

/* ---- grammar.c: a grammar is read before llama.cpp gets it -------------------------------------------------------- */

/* The tokens that a grammar may name: `<[12]>` by number, `<word>` by text. */
typedef struct wg_grammar_tokens {
    int32_t count;
    bool (*is_one)(const void *user, const char *text, size_t bytes);
    const void *user;
} wg_grammar_tokens;

/* WEIR_ERR_INVALID, with the line, for what llama.cpp cannot parse, or would not come to an end with. */
weir_status wg_grammar_check(const char *grammar, const wg_grammar_tokens *tokens);

#endif
