/* What the system says of the process. */
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "left.h"

static left_mapping *mapping_named(left_process *p, const char *name)
{
    for (size_t i = 0; i < p->mapping_count; i++)
        if (strcmp(p->mappings[i].name, name) == 0)
            return &p->mappings[i];
    if (p->mapping_count == LEFT_MAPPINGS)
        return &p->mappings[0];
    left_mapping *m = &p->mappings[p->mapping_count++];
    snprintf(m->name, sizeof m->name, "%s", name);
    return m;
}

/* A line that begins a mapping: "START-END FLAGS OFFSET DEVICE INODE NAME". */
static left_mapping *begin_mapping(left_process *p, const char *line)
{
    unsigned long start, end;
    char flags[8], path[256] = "", name[sizeof p->mappings->name];
    if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255[^\n]", &start, &end, flags, path) < 3)
        return NULL;
    const char *slash = strncmp(path, "/dev/", 5) == 0 ? NULL : strrchr(path, '/');
    if (*path)
        snprintf(name, sizeof name, "%.90s", slash ? slash + 1 : path);
    else
        snprintf(name, sizeof name, "no name, %s", flags);
    left_mapping *m = mapping_named(p, name);
    m->count++;
    m->size += (int64_t)(end - start);
    return m;
}

static void read_mappings(left_process *p)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    left_mapping *m = NULL;
    while (file && fgets(line, sizeof line, file)) {
        long long kib;
        left_mapping *next = begin_mapping(p, line);
        m = next ? next : m;
        if (!next && m && sscanf(line, "Rss: %lld", &kib) == 1)
            m->resident += kib * 1024;
        if (!next && m && sscanf(line, "Anonymous: %lld", &kib) == 1)
            m->anonymous += kib * 1024;
    }
    if (file)
        fclose(file);
}

static void read_status(left_process *p)
{
    struct {
        const char *name;
        int64_t *to;
        int64_t unit;
    } wanted[] = {{"RssAnon", &p->anonymous, 1024},
                  {"RssFile", &p->files, 1024},
                  {"RssShmem", &p->shared, 1024},
                  {"Threads", &p->threads, 1}};
    FILE *file = fopen("/proc/self/status", "r");
    char line[256], name[32];
    long long value;
    while (file && fgets(line, sizeof line, file))
        for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
            if (sscanf(line, "%31[^:]: %lld", name, &value) == 2 && strcmp(name, wanted[i].name) == 0)
                *wanted[i].to = value * wanted[i].unit;
    if (file)
        fclose(file);
}

static int64_t count_descriptors(void)
{
    int64_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

void left_process_read(left_process *p)
{
    memset(p, 0, sizeof *p);
    malloc_trim(0);
    struct mallinfo2 heap = mallinfo2();
    p->arenas = (int64_t)(heap.arena + heap.hblkhd);
    p->given = (int64_t)(heap.uordblks + heap.hblkhd);
    p->descriptors = count_descriptors();
    read_status(p);
    read_mappings(p);
}
