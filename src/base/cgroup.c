#include "base/system.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* Groups ----------------------------------------------------------------------------------------------------------- */

/* Called for a group's directory. */
typedef void (*visit)(const char *directory, bool second, void *user);

/* Visits the group and its parents up to the mount, as each of them may limit. */
static void visit_up(const char *mount, const char *group, bool second, visit each, void *user)
{
    char path[PATH_MAX];
    size_t top = strlen(mount);
    if (snprintf(path, sizeof path, "%s%s", mount, group) >= (int)sizeof path)
        return;
    for (;;) {
        each(path, second, user);
        char *slash = strrchr(path + top, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

static bool cgroup_has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    while (*words) {
        size_t one = strcspn(words, ",");
        if (one == length && strncmp(words, word, one) == 0)
            return true;
        words += one + (words[one] == ',');
    }
    return false;
}

/* Visits the groups of the process that `controller` may limit, in the second version and in the first. A line tells
 * NUMBER:CONTROLLERS:GROUP; one without controllers is of the second. */
static void visit_groups(const char *root, const char *controller, visit each, void *user)
{
    char text[WI_SYSFS_BYTES], mount[PATH_MAX];
    wi_sysfs_text(text, sizeof text, "%s/proc/self/cgroup", root);
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        bool second = *controllers == '\0';
        if (!second && !cgroup_has_word(controllers, controller))
            continue;
        /* Controllers of the first version that are mounted together have a link each, but not everywhere. */
        const char *const names[] = {controllers, controller};
        for (size_t i = 0; i < (second || strcmp(controllers, controller) == 0 ? 1u : 2u); i++) {
            if (snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, second ? "" : "/", names[i]) <
                (int)sizeof mount)
                visit_up(mount, group, second, each, user);
        }
    }
}

/* Memory ----------------------------------------------------------------------------------------------------------- */

typedef struct memory {
    const char *root;
    uint64_t machine, total, available;
    uint64_t low; /* bytes below which the kernel begins to look for more; 0: not read, as no group limits */
} memory;

/* The low watermarks of all zones. */
static uint64_t low_watermark(const char *root)
{
    char path[PATH_MAX], line[256];
    unsigned long long pages;
    uint64_t sum = 0;
    if (snprintf(path, sizeof path, "%s/proc/zoneinfo", root) >= (int)sizeof path)
        return 0;
    FILE *zones = fopen(path, "re");
    while (zones && fgets(line, sizeof line, zones))
        if (sscanf(line, " low %llu", &pages) == 1)
            sum += pages;
    if (zones)
        fclose(zones);
    return sum * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Returns the bytes that the kernel reclaims from a group before it refuses memory: pages of files, inactive (read
 * once) and active (read again). As in MemAvailable of the machine, the low watermark stays, or half of the pages if
 * that is less. */
static uint64_t files_of(const char *directory, bool second, uint64_t low)
{
    char text[WI_SYSFS_BYTES];
    uint64_t once = 0, again = 0;
    wi_sysfs_text(text, sizeof text, "%s/memory.stat", directory);
    wi_sysfs_field(text, second ? "inactive_file " : "total_inactive_file ", &once);
    wi_sysfs_field(text, second ? "active_file " : "total_active_file ", &again);
    uint64_t files = once + again;
    return files - wi_min(files / 2, low);
}

static void limit_memory(const char *directory, bool second, void *user)
{
    memory *m = user;
    uint64_t limit = UINT64_MAX, high = UINT64_MAX, used;
    wi_sysfs_number(&limit, "%s/%s", directory, second ? "memory.max" : "memory.limit_in_bytes");
    if (second)
        wi_sysfs_number(&high, "%s/memory.high", directory);
    limit = wi_min(limit, high);
    if (limit >= m->machine) /* also covers the first version's value for no limit, a huge number */
        return;
    m->total = wi_min(m->total, limit);
    if (!wi_sysfs_number(&used, "%s/%s", directory, second ? "memory.current" : "memory.usage_in_bytes"))
        used = 0;
    m->low = m->low ? m->low : low_watermark(m->root);
    used -= wi_min(used, files_of(directory, second, m->low));
    m->available = wi_min(m->available, limit > used ? limit - used : 0);
}

bool wi_cgroup_memory(const char *root, uint64_t *available, uint64_t *total)
{
    char text[WI_SYSFS_BYTES];
    memory m = {.root = root};
    wi_sysfs_text(text, sizeof text, "%s/proc/meminfo", root);
    if (wi_sysfs_field(text, "MemTotal:", &m.total) &&
        (wi_sysfs_field(text, "MemAvailable:", &m.available) || wi_sysfs_field(text, "MemFree:", &m.available))) {
        m.total *= WI_KIB;
        m.available *= WI_KIB;
    } else if (*root == '\0') {
        m.total = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        m.available = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    m.available = wi_min(m.available, m.total);
    m.machine = m.total;
    visit_groups(root, "memory", limit_memory, &m);
    *available = m.available;
    *total = m.total;
    return m.machine > 0; /* a limit of 0 bytes is known, too */
}

/* Device memory ---------------------------------------------------------------------------------------------------- */

/* Reads an address such as "0000:3b:00.0" or "00000000:3B:00.0", a function of 0 where none is told. */
static bool cgroup_read_bus(const char *text, unsigned address[4])
{
    address[3] = 0;
    return sscanf(text, "%8x:%2x:%2x.%1x", &address[0], &address[1], &address[2], &address[3]) >= 3;
}

/* Whether a region, such as drm/0000:03:00.0/vram0 or nvidia/0000:3b:00.0/vidmem, is memory of the device's own there. */
static bool cgroup_is_of_device(const char *region, size_t length, const unsigned address[4])
{
    char text[128];
    unsigned there[4];
    if (length >= sizeof text)
        return false;
    memcpy(text, region, length);
    text[length] = '\0';
    const char *last = strrchr(text, '/');
    if (!last || (strncmp(last, "/vram", 5) != 0 && strncmp(last, "/vidmem", 7) != 0))
        return false;
    for (const char *part = strchr(text, '/'); part && part != last; part = strchr(part + 1, '/'))
        if (cgroup_read_bus(part + 1, there) && memcmp(there, address, sizeof there) == 0)
            return true;
    return false;
}

/* Adds up what a file with a line for each region, "REGION NUMBER" or "REGION max", tells of the device's memory; "max" is
 * UINT64_MAX, and so is a sum with one. False: no line is the device's. */
static bool cgroup_device_sum(const char *directory, const char *file, const unsigned address[4], uint64_t *sum)
{
    char text[WI_SYSFS_BYTES];
    char *rest = text;
    bool any = false;
    *sum = 0;
    if (!wi_sysfs_text(text, sizeof text, "%s/%s", directory, file))
        return false;
    for (const char *line; (line = strsep(&rest, "\n"));) {
        size_t name = strcspn(line, " ");
        uint64_t bytes = UINT64_MAX;
        if (!line[name] || !cgroup_is_of_device(line, name, address))
            continue;
        if (strncmp(line + name + 1, "max", 3) != 0 && !wi_sysfs_field(line + name + 1, "", &bytes))
            continue;
        any = true;
        *sum = bytes > UINT64_MAX - *sum ? UINT64_MAX : *sum + bytes;
    }
    return any;
}

typedef struct device_memory {
    unsigned address[4];
    wi_device_limits *out;
    bool any; /* a group has told what it is guaranteed */
} device_memory;

static void limit_device_memory(const char *directory, bool second, void *user)
{
    device_memory *m = user;
    uint64_t most, used, guaranteed;
    if (!second)
        return;
    if (cgroup_device_sum(directory, "dmem.min", m->address, &guaranteed)) {
        m->out->guaranteed = m->any ? wi_min(m->out->guaranteed, guaranteed) : guaranteed;
        m->any = true;
    }
    if (!cgroup_device_sum(directory, "dmem.max", m->address, &most) || most == UINT64_MAX)
        return;
    if (!cgroup_device_sum(directory, "dmem.current", m->address, &used))
        used = 0;
    m->out->most = wi_min(m->out->most, most);
    m->out->left = wi_min(m->out->left, most > used ? most - used : 0);
}

bool wi_cgroup_device_memory(const char *root, const char *bus, wi_device_limits *out)
{
    device_memory m = {.out = out};
    *out = (wi_device_limits){.most = UINT64_MAX, .left = UINT64_MAX};
    if (!cgroup_read_bus(bus, m.address))
        return false;
    visit_groups(root, "dmem", limit_device_memory, &m);
    return out->most != UINT64_MAX || out->guaranteed > 0;
}

/* NVML's, of nvml.h of CUDA 13.4. No limit is a `hard` of UINT64_MAX. */
typedef struct nvml_limits {
    const char *group; /* the path of its directory */
    unsigned long long soft, hard, used;
} nvml_limits;

typedef struct nvml_asking {
    wi_nvml_limits_function get;
    void *device;
    nvml_limits told;
    bool answered;
} nvml_asking;

/* Asks for the group, unless one below it has limits of its own: NVML's do not nest. */
static void cgroup_ask_nvml(const char *directory, bool second, void *user)
{
    nvml_asking *a = user;
    if (a->answered || !second)
        return;
    a->told = (nvml_limits){.group = directory};
    a->answered = a->get(a->device, &a->told) == 0;
}

bool wi_cgroup_nvml_limits(const char *root, wi_nvml_limits_function get, void *device, wi_device_limits *out)
{
    nvml_asking a = {.get = get, .device = device};
    *out = (wi_device_limits){.most = UINT64_MAX, .left = UINT64_MAX};
    if (get)
        visit_groups(root, "dmem", cgroup_ask_nvml, &a);
    if (!a.answered)
        return false;
    out->guaranteed = a.told.soft;
    if (a.told.hard != UINT64_MAX) {
        out->most = a.told.hard;
        out->left = a.told.hard - wi_min(a.told.hard, a.told.used);
    }
    return out->most != UINT64_MAX || out->guaranteed > 0;
}

void wi_device_limits_join(wi_device_limits *to, const wi_device_limits *other)
{
    to->most = wi_min(to->most, other->most);
    to->left = wi_min(to->left, other->left);
    to->guaranteed = wi_max(to->guaranteed, other->guaranteed);
}

/* Processors ------------------------------------------------------------------------------------------------------- */

enum { MOST_PROCESSORS = 8192 };

typedef struct processors {
    uint64_t set[MOST_PROCESSORS / 64];
    uint64_t quota; /* UINT64_MAX: none */
} processors;

/* Keeps the processors in a list such as 0-3,8. A text that is not a list changes nothing. */
static void keep_listed(processors *p, const char *list)
{
    uint64_t listed[MOST_PROCESSORS / 64] = {0};
    bool any = false;
    while (*list >= '0' && *list <= '9') {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long i = first; i <= last && i < MOST_PROCESSORS; i++) {
            listed[i / 64] |= UINT64_C(1) << i % 64;
            any = true;
        }
        list = end + (*end == ',');
    }
    for (size_t i = 0; any && i < MOST_PROCESSORS / 64; i++)
        p->set[i] &= listed[i];
}

static void limit_time(const char *directory, bool second, void *user)
{
    processors *p = user;
    char text[64];
    uint64_t time = 0, period = 0;
    if (second) {
        wi_sysfs_text(text, sizeof text, "%s/cpu.max", directory);
        const char *space = strchr(text, ' ');
        if (!space || !wi_sysfs_field(text, "", &time) || !wi_sysfs_field(space + 1, "", &period))
            return;
    } else if (!wi_sysfs_number(&time, "%s/cpu.cfs_quota_us", directory) ||
               !wi_sysfs_number(&period, "%s/cpu.cfs_period_us", directory)) {
        return;
    }
    if (time > 0 && period > 0)
        p->quota = wi_min(p->quota, (time - 1) / period + 1);
}

static void limit_set(const char *directory, bool second, void *user)
{
    char text[WI_SYSFS_BYTES];
    if (wi_sysfs_text(text, sizeof text, "%s/%s", directory,
                      second ? "cpuset.cpus.effective" : "cpuset.effective_cpus"))
        keep_listed(user, text);
}

uint32_t wi_cgroup_quota(const char *root)
{
    processors p = {.quota = UINT64_MAX};
    visit_groups(root, "cpu", limit_time, &p);
    return p.quota == UINT64_MAX ? 0 : (uint32_t)wi_min(p.quota, UINT32_MAX);
}

uint32_t wi_cgroup_processors(const char *root)
{
    processors p = {.quota = UINT64_MAX};
    memset(p.set, 0xff, sizeof p.set);
    char text[WI_SYSFS_BYTES];
    bool told = wi_sysfs_text(text, sizeof text, "%s/sys/devices/system/cpu/online", root);
    if (told)
        keep_listed(&p, text);
    wi_sysfs_text(text, sizeof text, "%s/proc/self/status", root);
    const char *allowed = wi_sysfs_line(text, "Cpus_allowed_list:");
    if (allowed)
        keep_listed(&p, allowed);
    visit_groups(root, "cpuset", limit_set, &p);
    visit_groups(root, "cpu", limit_time, &p);
    uint64_t count = 0;
    for (size_t i = 0; i < MOST_PROCESSORS / 64; i++)
        count += (uint64_t)__builtin_popcountll(p.set[i]);
    if (!told && !allowed)
        count = *root ? 0 : (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    return (uint32_t)wi_min(count, p.quota);
}
