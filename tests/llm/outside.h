/* outside.h: which files a process opens: the test exports open, fopen and their kin, which libraries call before those of
 * libc. */
#ifndef LLM_OUTSIDE_H
#define LLM_OUTSIDE_H

#include <stddef.h>

/* From now on; the folder's own files, and what the system has for every program, are right. */
void outside_watch(const char *folder);
/* The first other one; NULL: there was none. */
const char *outside_found(void);
/* How many libraries are open. */
size_t outside_libraries(void);

#endif
