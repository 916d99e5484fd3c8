/* What the path of a model tells: the model's name, and the engines that take the model. For programs and libraries
 * beside libweir, too. */
#ifndef WI_MODEL_PATH_H
#define WI_MODEL_PATH_H

#include "base/internal.h"

#include <limits.h>

/* The path that a word means where a model is wanted: a bare name, which is no file or folder here, may be one of the
 * models in the store (the option `home`, folder models/). Answers `word`, or `stored` with the path there. */
const char *wi_path_meant(const char *word, char stored[PATH_MAX]);
/* WEIR_ERR_NOT_FOUND, for what wi_path_meant has answered: where it was looked for. */
weir_status wi_path_missing(const char *path);

/* The part of the path that people know the model by, and its length: the last part, without slashes behind it. A model
 * of ONNX Runtime GenAI's has the name of its folder, even if the path is that of its genai_config.json. */
const char *wi_path_model_name(const char *path, size_t *length);

/* Whether one of the words, which are separated by blanks, matches the name of a file. A word that begins with a point
 * is an ending, in any case; every other word is the whole name. */
bool wi_suffix_of(const char *words, const char *path);
/* The same for a file or a folder at the path: a word matches a folder if it is the whole name of a file in the
 * folder. */
bool wi_path_taken(const char *words, const char *path);
/* A name by which a file with these first bytes would be taken; "" if none. */
const char *wi_suffix_by_content(const char *path);

#endif
