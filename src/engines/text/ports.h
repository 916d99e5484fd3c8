/* ports.h: inputs and results of engines that go on with a text. */
#ifndef WT_PORTS_H
#define WT_PORTS_H

#include <weir/engine.h>

/* Whether an input is a row of bytes of that type (WEIR_TYPE_TEXT, WEIR_TYPE_U8) that has some. */
weir_status wt_check_bytes(const weir_tensor *input, weir_type type);
/* Copies the bytes of such an input and adds a byte 0, for engines that take terminated texts. WEIR_ERR_INVALID: a byte
 * 0 in the input would cut the text. The caller frees *out. */
weir_status wt_text_copy(const weir_tensor *input, char **out);
/* Whether an input is tokens, i32, of rank 1 to `rank`, each below `vocabulary`. With `padded`, -1 may stand in one of rank 2. */
weir_status wt_check_tokens(const weir_tensor *input, uint32_t rank, int32_t vocabulary, bool padded);

enum { WT_PARTS = 13 };

/* Results are put together in one block of the client's. */
typedef struct wt_part {
    const char *name;
    weir_type type;
    uint32_t rank;
    int64_t shape[2];
    const void *data;
    size_t bytes;
} wt_part;

typedef struct wt_parts {
    wt_part list[WT_PARTS];
    size_t count;
} wt_parts;

void wt_parts_add(wt_parts *parts, const char *name, weir_type type, const void *data, size_t count);
void wt_parts_add_rows(wt_parts *parts, const char *name, weir_type type, const void *data, size_t rows,
                       size_t columns);
/* Copies the parts into host memory of the client: of its device, or of the kind `kind`. */
weir_status wt_hand_out(weir_client *client, weir_kind kind, const wt_parts *parts, weir_outputs *out);
/* On failure the block stays with the client, and is the results' no more. */
weir_status wt_release_outputs(weir_client *client, weir_outputs *outputs);

#endif
