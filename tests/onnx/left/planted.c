/* Leaves what it is asked to. */
#include <stdlib.h>

void *planted(size_t size);

void *planted(size_t size)
{
    void *volatile p = malloc(size); /* no jump: this library stays on the stack */
    return p;
}
