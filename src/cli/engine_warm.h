/* engine_warm.h: the engine of a model file, opened before anything is measured. */
#ifndef WEIR_CLI_ENGINE_WARM_H
#define WEIR_CLI_ENGINE_WARM_H

/* Opens the engine that a file's name asks for, with its own library. Failures are left to the load, which says them. */
void engine_warm(const char *path);

#endif
