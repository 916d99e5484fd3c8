/* stream_print.h: generated text as it comes: plainly from one model, line by line with its name from several. */
#ifndef WEIR_CLI_STREAM_PRINT_H
#define WEIR_CLI_STREAM_PRINT_H

#include <weir/engine.h>

#include <stdio.h>

typedef struct stream_print {
    FILE *file;
    const char *label; /* NULL: plainly */
    char *line;        /* what of a labelled line has come so far */
    size_t used, capacity;
} stream_print;

/* A weir_piece_fn; `user` is the stream_print. */
bool stream_print_piece(const weir_piece *piece, void *user);

/* The answer is complete. */
void stream_print_end(stream_print *out);

#endif
