/* regular.h: files whose length is known before they are read. */
#ifndef WEIR_CLI_REGULAR_H
#define WEIR_CLI_REGULAR_H

#include <weir/status.h>

#include <stdio.h>

/* Opens a regular file to read, with its length, and never waits: for one who writes into a pipe there may be nobody. WEIR_ERR_NOT_FOUND,
 * WEIR_ERR_SYSTEM, WEIR_ERR_UNSUPPORTED for what is no regular file. */
weir_status regular_open(const char *path, FILE **file, uint64_t *bytes);

#endif
