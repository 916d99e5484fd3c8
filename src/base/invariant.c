/* The end of a program whose invariant is broken; see internal.h. */
#include "base/internal.h"

#include <stdio.h>

#ifdef WEIR_INVARIANTS
void wi_invariant_broken(const char *invariant, const char *file, int line)
{
    fprintf(stderr, "weir: broken invariant: %s (%s:%d)\n", invariant, file, line);
    abort();
}
#endif
