/* sum.c: the sum over a saved sequence. It finds what was cut or changed by accident; it is no seal. */
#include "state.h"

#include <string.h>

/* Eight bytes at a time, each mixed into all bits of the sum. */
uint64_t wg_sum(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    while (bytes > 0) {
        uint64_t word = 0;
        size_t step = bytes < sizeof word ? bytes : sizeof word;
        memcpy(&word, at, step);
        sum = (sum ^ word ^ (uint64_t)step << 56) * 0x9E3779B97F4A7C15ull;
        sum ^= sum >> 29;
        at += step;
        bytes -= step;
    }
    return sum;
}

uint64_t wg_state_sum(const wg_state_head *head, const uint8_t *behind)
{
    uint64_t sum = wg_sum(0, head, offsetof(wg_state_head, sum));
    return wg_sum(sum, behind, head->tokens * sizeof(int32_t) + (size_t)head->bytes);
}
