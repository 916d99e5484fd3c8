/* engine_file.h: model files before they are loaded: their paths and their engines. */
#ifndef WEIR_CLI_ENGINE_FILE_H
#define WEIR_CLI_ENGINE_FILE_H

#include <weir/engine.h>

/* The engine that takes a file of this name, or this folder; NULL if none does. */
const weir_engine *engine_for_file(const char *path);

/* The engine's provider number `index`, from 0; WEIR_ERR_NOT_FOUND past the last. */
weir_status engine_provider_at(const weir_engine *engine, size_t index, weir_engine_provider *out);

/* Opens the library of the file's engine. Failures are left to the load, which reports them. */
void engine_open_library(const char *path);

/* The path that a word on the command line means: a bare name that is no file here may be one of the store's models.
 * The caller frees it. */
char *engine_file_named(const char *word);

#endif
