/* Leaves what it is asked to. */
#include <stdlib.h>

void *planted(size_t size);

void *planted(size_t size)
{
    return malloc(size);
}
