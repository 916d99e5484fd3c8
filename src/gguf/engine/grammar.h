/* grammar.h: a grammar is read before llama.cpp gets it. */
#ifndef WG_GRAMMAR_H
#define WG_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/base.h>

/* The tokens that a grammar may name: `<[12]>` by number, `<word>` by text. */
typedef struct wg_grammar_tokens {
    int32_t count;
    bool (*is_one)(const void *user, const char *text, size_t bytes);
    const void *user;
} wg_grammar_tokens;

/* WEIR_ERR_INVALID, with the line, for what llama.cpp cannot parse, or would not come to an end with. */
weir_status wg_grammar_check(const char *grammar, const wg_grammar_tokens *tokens);

#endif
