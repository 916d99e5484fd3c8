#include "stream_print.h"

#include "interrupt.h"
#include "cli/text.h"

#include <stdlib.h>

/* A model may say anything, and a terminal may obey it: control characters do not get through. */
static bool is_shown(unsigned char byte)
{
    return (byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t';
}

static void print_line(stream_print *out)
{
    if (out->used > 0)
        fprintf(out->file, "%s: %.*s\n", out->label, (int)out->used, out->line);
    out->used = 0;
}

static void put_byte(stream_print *out, char byte)
{
    if (out->label == NULL) {
        fputc(byte, out->file);
        return;
    }
    if (byte == '\n') {
        print_line(out);
        return;
    }
    if (out->used == out->capacity) {
        out->capacity = out->capacity * 2 + 128;
        out->line = text_grow(out->line, out->capacity, 1);
    }
    out->line[out->used++] = byte;
}

bool stream_print_piece(const weir_piece *piece, void *user)
{
    stream_print *out = user;
    for (size_t i = 0; i < piece->bytes; i++)
        if (is_shown((unsigned char)piece->text[i]))
            put_byte(out, piece->text[i]);
    fflush(out->file);
    return !interrupt_seen();
}

void stream_print_end(stream_print *out)
{
    if (out->label == NULL)
        fputc('\n', out->file);
    else
        print_line(out);
    fflush(out->file);
    free(out->line);
    out->line = NULL;
    out->used = out->capacity = 0;
}
