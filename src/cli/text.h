/* text.h: memory and text for the command. Without memory for them the command ends, with a line that says so. */
#ifndef WEIR_CLI_TEXT_H
#define WEIR_CLI_TEXT_H

#include <weir/base.h>

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>

/* realloc(old, count * each), checked; the new part is not cleared. */
void *text_grow(void *old, size_t count, size_t each);

/* Ends the command with a line that says so. */
_Noreturn void text_out_of_memory(void);

/* open_memstream, but never NULL. */
FILE *text_stream(char **text, size_t *bytes);

/* Allocates zeroed memory for `count` elements, at least a byte; never NULL. */
void *text_zeroed(size_t count, size_t each);

char *text_copy(const char *text);
char *text_print(const char *format, ...) WEIR_PRINTF(1, 2);
/* Appends to a text of malloc's. */
void text_add(char **text, const char *format, ...) WEIR_PRINTF(2, 3);
char *text_vprint(const char *format, va_list arguments) WEIR_PRINTF(1, 0);

/* A copy for terminals, JSON and HTML: bytes that are not UTF-8 are replaced by '?', control characters too, but with
 * `lines` not line ends and tabs. */
char *text_clean(const char *text, size_t bytes, bool lines);

/* Cuts a clean text to `most` bytes, at the end of a character. */
void text_cut(char *text, size_t most);

/* The length in bytes of the UTF-8 character at `text`, of which `left` bytes remain; 0: it is not valid. */
size_t text_character(const char *text, size_t left);

/* The columns of a clean text on a terminal, and of its first character: two for an East Asian one, none for an accent
 * that is put on the one before it. */
size_t text_columns(const char *text);
size_t text_character_columns(const char *text);

/* Bytes of the text that fit into a line of so many columns: up to a blank, if it does not fit and has one. */
size_t text_line(const char *text, size_t columns);

/* A JSON string of any text. */
json_t *text_json(const char *text);
json_t *text_json_bytes(const char *text, size_t bytes);

/* A JSON number; a count above 2^63 - 1, where jansson's whole numbers end, is told as that. */
json_t *text_json_count(uint64_t value);

/* Read a member of an object that another process has told; 0 and "" where it is missing or something else. */
uint64_t text_json_number(const json_t *object, const char *key);
const char *text_json_text(const json_t *object, const char *key);

/* Writes "31 µs", "5.3 ms", "1.78 s" and returns it. */
char *text_seconds(double seconds, char *text, size_t capacity);

/* For the content of an HTML element, and for quoted attributes. */
void text_html(FILE *file, const char *text);

/* For the content of a <script>: no character in it can end the element. */
void text_html_json(FILE *file, const json_t *object);

/* Writes a page and replaces its marks, <!--weir:NAME-->: for each mark, calls `put` with NAME to write the
 * replacement. */
void text_page(FILE *file, const char *page, void (*put)(FILE *file, const char *mark, void *user), void *user);

/* Reads a whole decimal number from `least` to `most`. */
bool text_number(const char *text, uint64_t least, uint64_t most, uint64_t *out);

/* ---- a file that is written as a whole or not at all ------------------------------------------------------------- */

/* Whether a file could be made or written over there, as far as one can tell without doing it: WEIR_ERR_SYSTEM says why
 * not. */
weir_status output_file_check(const char *path, const char *what);

/* `what` is for the detail: "the trace", "the report"; "" for none. NULL with WEIR_ERR_SYSTEM set in the detail. */
FILE *output_file_open(const char *path, const char *what);

/* Removes a file that is not whole, unless it is none that can be made again: a device or a pipe stays. */
void output_file_remove(const char *path);

/* Closes it. When anything did not arrive, or `problem` is an errno of the caller's, the half-written file is removed,
 * unless it is none that can be made again: a device or a pipe stays. */
weir_status output_file_close(FILE *file, const char *path, const char *what, int problem);

#endif
