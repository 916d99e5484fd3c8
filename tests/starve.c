/* See starve.h. The module's calls are led here by its import slots. */
#include "starve.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "interpose/interpose.h"

static atomic_long left = -1;
static atomic_bool was;

static bool starves(void)
{
    if (atomic_load(&left) < 0 || atomic_fetch_sub(&left, 1) > 0)
        return false;
    atomic_store(&was, true);
    return true;
}

static void *its_malloc(size_t bytes)
{
    return starves() ? NULL : malloc(bytes);
}

static void *its_calloc(size_t count, size_t bytes)
{
    return starves() ? NULL : calloc(count, bytes);
}

static void *its_realloc(void *block, size_t bytes)
{
    return starves() ? NULL : realloc(block, bytes);
}

static char *its_strdup(const char *text)
{
    return starves() ? NULL : strdup(text);
}

static char *its_strndup(const char *text, size_t bytes)
{
    return starves() ? NULL : strndup(text, bytes);
}

static wi_interpose *slots; /* for as long as the process lives, as the module is */

void starve_open(const char *module)
{
    const wi_replacement all[] = {{"malloc", (void (*)(void))its_malloc, true},
                                  {"calloc", (void (*)(void))its_calloc, true},
                                  {"realloc", (void (*)(void))its_realloc, false},
                                  {"strdup", (void (*)(void))its_strdup, false},
                                  {"strndup", (void (*)(void))its_strndup, false}};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("WEIR_ENGINE_PATH") ? getenv("WEIR_ENGINE_PATH") : ".", module);
    if (wi_interpose_open(path, all, sizeof all / sizeof *all, &slots) == WEIR_OK &&
        wi_interpose_apply(slots) == WEIR_OK)
        return;
    fprintf(stderr, "%s: %s\n", path, weir_detail());
    abort();
}

void starve_at(long number)
{
    atomic_store(&was, false);
    atomic_store(&left, number);
}

bool starve_was(void)
{
    return atomic_load(&was);
}
