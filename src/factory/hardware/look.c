/* A look at the hardware: the processor, and what the sources tell. */
#include "factory/hardware/hardware.h"
#include <weir/select.h>

#include "base/system.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
enum { LIMIT_MS = 400, REMARKS = 4096 };

/* What a look gives away, in one piece. */
typedef struct look {
    weir_hardware hardware;
    char remarks[REMARKS];
    weir_hardware_device devices[];
} look;

static void look_add_line(char *remarks, const char *format, ...)
{
    size_t used = strlen(remarks);
    if (used > 0 && used + 1 < REMARKS)
        remarks[used++] = '\n';
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(remarks + used, REMARKS - used, format, arguments);
    va_end(arguments);
}

/* What a source has to say, and of when that is where it is not of this look. */
static void write_remark(const wi_answer *a, char *remarks)
{
    unsigned long long ms = (unsigned long long)(a->since / MS);
    if (a->late)
        look_add_line(remarks, "%s: no answer within %llu ms; %s", a->source, ms,
                      a->found.told ? "what it told before is shown" : "what it will tell is shown by a later look");
    if (a->failed && a->found.told)
        look_add_line(remarks, "%s: could not be asked; what it told %llu ms ago is shown", a->source, ms);
    else if ((a->failed || !a->found.told) && !a->late && !a->found.remark[0])
        look_add_line(remarks, "%s: could not be asked", a->source);
    if (a->found.remark[0] && (a->left || (a->failed && !a->found.told)))
        look_add_line(remarks, "%s: %s (%llu ms ago; %s)", a->source, a->found.remark, ms,
                      a->left ? "it takes long to fail, and is asked again later" : "it could not be asked again");
    else if (a->found.remark[0])
        look_add_line(remarks, "%s: %s", a->source, a->found.remark);
}

static void write_remarks(const char *root, const wi_answer answers[WI_SOURCES], bool full, char *remarks)
{
    char path[PATH_MAX];
    remarks[0] = '\0';
    for (size_t i = 0; i < WI_SOURCES; i++)
        write_remark(&answers[i], remarks);
    if (full)
        look_add_line(remarks, "there is room for %d devices, and there may be more", WI_MOST_CARDS);
    if (snprintf(path, sizeof path, "%s/dev/dxg", root) < (int)sizeof path && access(path, F_OK) == 0)
        look_add_line(remarks,
                      "wsl: devices of the Windows host are reached through the libraries of /usr/lib/wsl/lib alone");
    look_add_line(remarks, "metal, directml: not of this platform");
}

static weir_status look_give(wi_found *found, const char *root, const wi_answer answers[WI_SOURCES], uint64_t begun,
                             weir_hardware **out)
{
    look *l = malloc(sizeof *l + found->count * sizeof *l->devices);
    if (!l)
        return weir_fail(WEIR_ERR_SYSTEM, "weir_hardware_create: no host memory");
    for (size_t i = 0; i < found->count; i++)
        l->devices[i] = found->cards[i].device;
    write_remarks(root, answers, found->count == WI_MOST_CARDS, l->remarks);
    l->hardware = (weir_hardware){.struct_size = sizeof l->hardware,
                                  .devices = l->devices,
                                  .device_count = found->count,
                                  .remarks = l->remarks,
                                  .seconds = (double)(wi_now() - begun) * 1e-9};
    *out = &l->hardware;
    return WEIR_OK;
}

/* The options with their defaults; the root without a final slash, ready to be put before a path. */
static weir_status look_read_options(const weir_hardware_options *given, weir_hardware_options *o, char *root)
{
    *o = (weir_hardware_options){.struct_size = sizeof *o};
    root[0] = '\0';
    weir_status read = WI_COPY_OPTIONS_IN(weir_hardware_options, o, given, "weir_hardware_create");
    if (read != WEIR_OK)
        return read;
    if (o->limit_ms == 0)
        o->limit_ms = LIMIT_MS;
    if (!o->sysroot || !o->sysroot[0])
        return WEIR_OK;
    struct stat status;
    if (stat(o->sysroot, &status) != 0 || !S_ISDIR(status.st_mode) || !realpath(o->sysroot, root))
        return weir_fail(WEIR_ERR_NOT_FOUND,
                         "%s is no directory; a sysroot has another machine's /proc, /sys and /usr/lib", o->sysroot);
    if (strcmp(root, "/") == 0)
        root[0] = '\0';
    return WEIR_OK;
}

/* With what cgroups tell of devices, beside what a source does. A slice is not the device at its address. */
static void look_limit(const char *root, wi_found *found)
{
    for (size_t i = 0; i < found->count; i++) {
        wi_card *card = &found->cards[i];
        wi_device_limits limits;
        if (!card->device.parent[0] && wi_cgroup_device_memory(root, card->device.pci, &limits))
            wi_device_limits_join(&card->limits, &limits);
        wi_card_limit(card);
    }
}

weir_status weir_hardware_create(const weir_hardware_options *options, weir_hardware **out)
{
    WI_ENTER();
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_hardware_create: out is NULL");
    uint64_t begun = wi_now();
    char root[PATH_MAX];
    weir_hardware_options o;
    weir_status status = look_read_options(options, &o, root);
    if (status != WEIR_OK)
        return status;
    wi_watch_forks();
    wi_answer answers[WI_SOURCES];
    status = wi_probe(root, o.limit_ms * MS, o.anew, answers);
    if (status != WEIR_OK)
        return status;
    wi_visibility visibility = {
        .given = o.visible, .cuda = getenv("CUDA_VISIBLE_DEVICES"), .order = getenv("CUDA_DEVICE_ORDER")};
    wi_found found = {0};
    wi_card *processor = wi_found_add(&found, WEIR_HARDWARE_CPU);
    if (processor)
        wi_processor(root, &processor->device);
    bool whole = processor && wi_merge(answers, &visibility, &found);
    look_limit(root, &found);
    if (whole || found.count == WI_MOST_CARDS) /* too many hide none of the first */
        status = look_give(&found, root, answers, begun, out);
    else
        status = weir_fail(WEIR_ERR_SYSTEM, "weir_hardware_create: no host memory");
    free(found.cards);
    wi_answers_clear(answers);
    return status;
}

void weir_hardware_destroy(weir_hardware *hardware)
{
    free(hardware);
}
