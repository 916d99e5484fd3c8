/* Files that may be a manifest, a package or a model. */
#ifndef WI_MANIFEST_FILES_H
#define WI_MANIFEST_FILES_H

#include <weir/base.h>

typedef enum wi_file_kind {
    WI_FILE_MISSING,
    WI_FILE_UNKNOWN, /* for the engines that are here to tell */
    WI_FILE_REFUSED, /* known, and nothing that weir reads */
    WI_FILE_MANIFEST,
    WI_FILE_PACKAGE,
    WI_FILE_ONNX,
    WI_FILE_GGUF,
    WI_FILE_GENAI /* a folder, or its genai_config.json */
} wi_file_kind;

/* What is at `path`: by its suffix, else by its first bytes. For what is refused *why gets a sentence; for what is
 * missing errno says why. */
wi_file_kind wi_file_look(const char *path, const char **why);

/* The path of the model that the file at `path` is or belongs to: models for ONNX Runtime GenAI are folders, for which
 * their genai_config.json stands and, if the framework is llm, a model file in them. To be freed; NULL without
 * memory. */
char *wi_file_model(const char *path, bool llm, wi_file_kind *kind);

/* "onnx", "gguf", "llm"; NULL for what is no model. */
const char *wi_file_framework(wi_file_kind kind);
/* "onnx", "gguf", "genai" */
const char *wi_file_format(wi_file_kind kind);

/* The folder that a file lies in, "" for one of the working directory; and a name in it. To be freed; NULL without
 * memory. */
char *wi_path_folder(const char *path);
char *wi_path_in(const char *folder, const char *name);

/* Whether a name stays in its folder wherever that is: relative, and without "..". */
bool wi_path_stays(const char *name);

/* Reads a regular file of at most `most` bytes, with a zero behind it. *out is to be freed. */
weir_status wi_file_read(const char *path, size_t most, char **out, size_t *length);

#endif
