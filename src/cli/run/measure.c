/* measure.c: what the process took outside weir. */
#include "measure.h"

#include <weir/stats.h>

#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

typedef int result; /* types are cuda.h's */

bool measure_device_taken(weir_runtime *runtime, uint64_t *taken)
{
    result (*push)(void *context) = NULL;
    result (*pop)(void **context) = NULL;
    result (*info)(size_t * available, size_t * total) = NULL;
    const cuda_wanted wanted[] = {{"cuCtxPushCurrent", &push}, {"cuCtxPopCurrent", &pop}, {"cuMemGetInfo", &info}};
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    size_t available = 0, total = 0;
    void *ignored;
    if (!cuda_find(wanted, sizeof wanted / sizeof wanted[0]) || weir_runtime_info(runtime, &its) != WEIR_OK ||
        push(its.native) != 0)
        return false;
    bool known = info(&available, &total) == 0;
    pop(&ignored);
    *taken = total - available;
    return known;
}

bool measure_is_device(const weir_runtime *runtime)
{
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    return weir_runtime_info(runtime, &its) == WEIR_OK && strncmp(its.device, "cuda", 4) == 0;
}

const char *measure_method(const weir_runtime *runtime)
{
    return measure_is_device(runtime) ? "growth of what the driver says is taken, over serialised load and first run, "
                                        "less what weir holds"
                                      : "RssAnon growth over serialised load and first run, after malloc_trim, less "
                                        "weir's resident pages; see outside_once";
}

static bool measure_is_weirs(uint64_t address)
{
    weir_block_details details = WEIR_INIT(weir_block_details);
    return weir_block_info((const void *)(uintptr_t)address, &details) == WEIR_OK;
}

/* A mapping's head line: "start-end perms offset device inode   [name]". Field lines begin with a capital letter. */
static bool measure_read_head(const char *line, uint64_t *start, uint64_t *end, bool *file)
{
    uint64_t inode = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64, start, end, &inode) != 3)
        return false;
    *file = inode != 0;
    return true;
}

static bool measure_device(weir_runtime *runtime, measure *out)
{
    weir_stats stats = WEIR_INIT(weir_stats);
    if (!measure_device_taken(runtime, &out->device) || weir_snapshot(runtime, &stats, NULL, 0, NULL) != WEIR_OK)
        return false;
    out->held = stats.held;
    return true;
}

/* Reads how many libraries the process has opened; each entry tells the same. */
static int read_libraries(struct dl_phdr_info *info, size_t size, void *count)
{
    (void)size;
    *(uint64_t *)count = info->dlpi_adds;
    return 1;
}

bool measure_now(weir_runtime *runtime, measure *out)
{
    char line[4352]; /* a path, and the fields before the path */
    uint64_t start = 0, end = 0, kilobytes;
    bool file = false, any = false;
    *out = (measure){0};
    dl_iterate_phdr(read_libraries, &out->libraries);
    malloc_trim(0);
    FILE *maps = fopen("/proc/self/smaps", "r");
    if (maps == NULL)
        return false;
    while (fgets(line, sizeof line, maps) != NULL) {
        if (measure_read_head(line, &start, &end, &file) || sscanf(line, "Anonymous: %" SCNu64, &kilobytes) != 1)
            continue;
        any = true;
        out->anonymous += kilobytes * 1024;
        if (kilobytes > 0 && !file && (measure_is_weirs(start) || measure_is_weirs(end - 1)))
            out->own += kilobytes * 1024;
    }
    fclose(maps);
    return any && (!measure_is_device(runtime) || measure_device(runtime, out));
}

uint64_t measure_outside(const measure *before, const measure *after)
{
    uint64_t then = before->anonymous - before->own, now = after->anonymous - after->own;
    return now > then ? now - then : 0;
}

uint64_t measure_opened(const measure *before, const measure *after)
{
    return after->libraries > before->libraries ? measure_outside(before, after) : 0;
}

uint64_t measure_outside_device(const measure *before, const measure *after)
{
    uint64_t then = before->device - before->held, now = after->device - after->held;
    return now > then ? now - then : 0;
}

bool cuda_find(const cuda_wanted *wanted, size_t count)
{
    enum { VERSION = 12000 };
    int (*find)(const char *, void **, int, unsigned long long, int *) = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    memcpy(&find, &symbol, sizeof symbol);
    for (size_t i = 0; i < count; i++) {
        if (!find || find(wanted[i].name, &symbol, VERSION, 0, NULL) != 0 || !symbol)
            return false;
        memcpy(wanted[i].to, &symbol, sizeof symbol);
    }
    return true;
}
