/* html.h: text into a page, where it stays text. */
#ifndef WEIR_CLI_HTML_H
#define WEIR_CLI_HTML_H

#include <jansson.h>
#include <stdio.h>

/* For element content and quoted attributes. */
void html_text(FILE *file, const char *text);

/* For the content of a <script>: no character in it can end the element. */
void html_json(FILE *file, const json_t *object);

#endif
