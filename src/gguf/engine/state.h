/* state.h: the header of a saved sequence: behind it come the tokens, i32, and llama.cpp's bytes. */
#ifndef WG_STATE_H
#define WG_STATE_H

#include <stddef.h>
#include <stdint.h>

typedef struct wg_state_head {
    char magic[8];
    uint32_t version;
    uint32_t tokens;   /* that it stands for: prompt and answer */
    uint32_t computed; /* of them are in the cache; the last one that was made is not */
    uint32_t none;
    uint64_t fingerprint;
    uint64_t bytes; /* of llama.cpp's */
    uint64_t sum;   /* over the members above and the bytes behind the header */
} wg_state_head;

uint64_t wg_sum(uint64_t sum, const void *data, size_t bytes);
uint64_t wg_state_sum(const wg_state_head *head, const uint8_t *behind);

#endif
