/* folders.h: copies of a model's folder, to be changed. */
#ifndef LLM_FOLDERS_H
#define LLM_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>

enum { FOLDER_NAME = 64, FOLDER_FILES = 4 };
/* genai_config.json, tokenizer.json, tokenizer_config.json, model.onnx */
extern const char *const folder_files[FOLDER_FILES];

/* A copy under /tmp, of which `path` gets the name. Each of these ends the test where it fails. */
void folder_copy(const char *model, char path[FOLDER_NAME]);
void folder_drop(const char *path);
/* The whole of a file, with a byte 0 behind it; malloc memory. */
char *folder_read(const char *path, const char *file, size_t *bytes);
void folder_write(const char *path, const char *file, const char *data, size_t bytes);
/* The one place where the file has the one text gets the other. */
void folder_replace(const char *path, const char *file, const char *one, const char *other);

#endif
