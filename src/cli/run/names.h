/* names.h: names of models and of files made from them. */
#ifndef WEIR_CLI_NAMES_H
#define WEIR_CLI_NAMES_H

#include <weir/base.h>

/* A model's name: the last part of its path, at most 63 bytes, made unlike each of the `count` names before it with
 * "#2", "#3" … The caller frees it. */
char *names_of_model(const char *path, char *const *before, size_t count);

/* A name as one part of a path: no slash, no leading dot, no control character, and not too long. The caller frees it. */
char *names_of_file(const char *name);

#endif
