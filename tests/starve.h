/* starve.h: host memory that a loaded plug-in does not get. */
#ifndef TESTS_STARVE_H
#define TESTS_STARVE_H

#include <stdbool.h>

/* Calls of malloc, calloc, realloc, strdup and strndup that this module makes are counted from now on; until the end of the
 * process. Ends the test where that fails. */
void starve_open(const char *module);
/* Of the calls from now on the one of this number, from 0, answers NULL; -1: none. */
void starve_at(long number);
/* Whether it has come to that since. */
bool starve_was(void);

#endif
