#include "stub.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void read_line(stub_machine *m, const char *line)
{
    stub_gpu g = {.parent = -1};
    stub_limit l;
    char again = ' ';
    if (sscanf(line, "gpu %63s %31s %d %d.%d %u %llu %llu %63s %95[^\n]", g.uuid, g.pci, &g.rank, &g.major, &g.minor,
               &g.units, &g.total, &g.free, g.flags, g.name) == 10) {
        m->gpus[m->count++] = g;
    } else if (sscanf(line, "mig%c %63s %u %llu %llu %95[^\n]", &again, g.uuid, &g.units, &g.total, &g.free, g.name) ==
               6) {
        g.instance = m->gpus[m->count - 1].instance + (again != '+');
        for (g.parent = m->count - 1; m->gpus[g.parent].parent >= 0;)
            g.parent--;
        const stub_gpu *whole = &m->gpus[g.parent];
        memcpy(g.pci, whole->pci, sizeof g.pci);
        memcpy(g.flags, whole->flags, sizeof g.flags);
        g.major = whole->major;
        g.minor = whole->minor;
        m->gpus[m->count++] = g;
    } else if (m->limit_count < STUB_MOST &&
               sscanf(line, "limit %31s %127s %llu %llu %llu", l.pci, l.group, &l.soft, &l.hard, &l.used) == 5) {
        m->limits[m->limit_count++] = l;
    } else {
        (void)(sscanf(line, "driver %31s", m->driver) || sscanf(line, "cuda %d", &m->cuda) ||
               sscanf(line, "sleep %d %d", &m->sleep_nvml, &m->sleep_cuda) ||
               sscanf(line, "fail %d %d", &m->fail_nvml, &m->fail_cuda));
    }
}

void stub_read(stub_machine *machine, void (*self)(void))
{
    Dl_info info;
    char path[4096], line[512];
    *machine = (stub_machine){.count = 0};
    if (!dladdr((void *)(uintptr_t)self, &info))
        return;
    snprintf(path, sizeof path, "%s", info.dli_fname);
    snprintf(strrchr(path, '/'), sizeof "/gpus.txt", "/gpus.txt");
    FILE *file = fopen(path, "re");
    while (file && machine->count < STUB_MOST && fgets(line, sizeof line, file))
        read_line(machine, line);
    if (file)
        fclose(file);
}

bool stub_flag(const stub_gpu *gpu, const char *word)
{
    return strstr(gpu->flags, word) != NULL;
}

void stub_sleep(int milliseconds)
{
    struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    nanosleep(&t, NULL);
}
