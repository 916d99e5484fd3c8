/* The table at exit: what a program that has used CUDA's memory had of it, and how; as text, or as one JSON object. */
#include "interpose/preload/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static atomic_bool exiting;
static pid_t watched; /* who has registered; a forked child has inherited that alone */

static const char *const kind_names[WP_KINDS] = {
    [WP_KIND_HANDLE] = "cuMemCreate", [WP_KIND_MANAGED] = "cuMemAllocManaged",
    [WP_KIND_ARRAY] = "arrays",       [WP_KIND_DIRECT] = "direct",
    [WP_KIND_PINNED] = "pinned",      [WP_KIND_REGISTERED] = "registered",
};

static const struct {
    wp_event event;
    const char *json, *text; /* the text stands behind a number; NULL: it is in a line of its own */
} event_names[] = {
    {WP_EVENT_SERVED, "served", NULL},
    {WP_EVENT_FREED, "freed", NULL},
    {WP_EVENT_REFUSED, "refused", NULL},
    {WP_EVENT_GRAPH, "in_graphs", "allocations became memory of graphs, which no budget counts"},
    {WP_EVENT_WAITED, "frees_that_waited", "frees waited for the device"},
    {WP_EVENT_HELD_UP, "frees_held_up", "frees waited for the end of a capture"},
    {WP_EVENT_NO_IPC, "exports_refused", "exports to other processes were refused: --direct allows them"},
};
enum { EVENT_NAMES = sizeof event_names / sizeof *event_names };

/* Functions by which memory came that is in no budget. */
static const enum wp_function past[] = {WP_cuIpcOpenMemHandle_v2, WP_cuImportExternalMemory, WP_cuGraphAddMemAllocNode,
                                        WP_cuMemImportFromShareableHandle, WP_cuMemPoolImportPointer};

static bool is_past(enum wp_function function)
{
    for (size_t i = 0; i < sizeof past / sizeof *past; i++)
        if (past[i] == function)
            return true;
    return false;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

typedef struct figures {
    weir_stats stats;
    uint64_t total, foreign, foreign_peak, tree_peak;
    wp_gauge kinds[WP_KINDS];
} figures;

static figures preload_table_look(wp_device *d)
{
    figures f = {.stats = WEIR_INIT(weir_stats), .tree_peak = wp_tree_look(d->ordinal).peak};
    if (weir_snapshot(d->runtime, &f.stats, NULL, 0, NULL) != WEIR_OK)
        f.stats = WEIR_INIT(weir_stats);
    pthread_mutex_lock(&d->lock);
    f.total = d->total;
    f.foreign = d->foreign;
    f.foreign_peak = d->foreign_peak;
    memcpy(f.kinds, d->kinds, sizeof f.kinds);
    pthread_mutex_unlock(&d->lock);
    return f;
}

/* Text ------------------------------------------------------------------------------------------------------------- */

static void print_sizes(FILE *file, const uint64_t *sizes, size_t count)
{
    char text[24];
    for (size_t i = 0; i < count; i++)
        fprintf(file, "%s%14s", i ? " " : "", weir_size_format(sizes[i], text, sizeof text));
    fputs("\n", file);
}

static void print_kinds(FILE *file, const wp_gauge *kinds)
{
    char most[24], live[24];
    for (size_t i = 0; i < WP_KINDS; i++)
        if (kinds[i].peak)
            fprintf(file, "    of CUDA's own, %s: %s at most, %s at the end\n", kind_names[i],
                    weir_size_format(kinds[i].peak, most, sizeof most),
                    weir_size_format(kinds[i].bytes, live, sizeof live));
}

static void preload_table_print_devices(FILE *file)
{
    char most[24];
    fprintf(file, "  %-8s%14s %14s %14s %14s %14s\n", "", "budget", "weir's most", "held most", "CUDA's most",
            "at the end");
    for (int i = 0; i < WP_DEVICES; i++) {
        wp_device *d = wp_device_started(i);
        if (!d)
            continue;
        figures f = preload_table_look(d);
        fprintf(file, "  %-8s", d->name);
        print_sizes(
            file,
            (const uint64_t[]){f.total, f.stats.peak, f.stats.peak_held, f.foreign_peak, f.stats.live + f.foreign}, 5);
        if (f.tree_peak > f.stats.peak_held + f.foreign_peak) /* others had some as well */
            fprintf(file, "    all processes together: %s at most so far\n",
                    weir_size_format(f.tree_peak, most, sizeof most));
        print_kinds(file, f.kinds);
    }
    wp_gauge host[WP_KINDS] = {0};
    host[WP_KIND_PINNED] = wp_host_gauge(WP_KIND_PINNED);
    host[WP_KIND_REGISTERED] = wp_host_gauge(WP_KIND_REGISTERED);
    if (host[WP_KIND_PINNED].peak || host[WP_KIND_REGISTERED].peak) {
        fputs("  host\n", file);
        print_kinds(file, host);
    }
}

static void print_calls(FILE *file, const char *title, bool outside)
{
    const char *before = title;
    for (int i = 0; i < WP_FUNCTIONS; i++)
        if (wp_calls((enum wp_function)i) && is_past((enum wp_function)i) == outside) {
            fprintf(file, "%s%s %llu", before, wp_function_name((enum wp_function)i),
                    (unsigned long long)wp_calls((enum wp_function)i));
            before = ", ";
        }
    if (before != title)
        fputs("\n", file);
}

static void preload_table_print_text(FILE *file)
{
    wp_reason refusal = wp_last_refusal();
    fprintf(file, "weir exec: %s (process %ld)\n", program_invocation_short_name, (long)getpid());
    preload_table_print_devices(file);
    fprintf(file, "  weir served %llu allocations and %llu frees; %llu were refused\n",
            (unsigned long long)wp_noted(WP_EVENT_SERVED), (unsigned long long)wp_noted(WP_EVENT_FREED),
            (unsigned long long)wp_noted(WP_EVENT_REFUSED));
    if (*refusal.text)
        fprintf(file, "  last refusal: %s\n", refusal.text);
    for (size_t i = 0; i < EVENT_NAMES; i++)
        if (event_names[i].text && wp_noted(event_names[i].event))
            fprintf(file, "  %llu %s\n", (unsigned long long)wp_noted(event_names[i].event), event_names[i].text);
    print_calls(file, "  calls: ", false);
    print_calls(file, "  past the budget: ", true);
}

/* JSON ------------------------------------------------------------------------------------------------------------- */

static void print_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            fprintf(file, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, file);
    fputc('"', file);
}

static void print_json_kinds(FILE *file, const wp_gauge *kinds)
{
    const char *before = "{";
    for (size_t i = 0; i < WP_KINDS; i++)
        if (kinds[i].peak) {
            fprintf(file, "%s\"%s\": {\"peak\": %llu, \"live_at_end\": %llu}", before, kind_names[i],
                    (unsigned long long)kinds[i].peak, (unsigned long long)kinds[i].bytes);
            before = ", ";
        }
    fputs(*before == '{' ? "{}" : "}", file);
}

static void print_json_devices(FILE *file)
{
    const char *before = "";
    for (int i = 0; i < WP_DEVICES; i++) {
        wp_device *d = wp_device_started(i);
        if (!d)
            continue;
        figures f = preload_table_look(d);
        fprintf(file,
                "%s{\"device\": \"%s\", \"budget\": %llu, \"peak\": %llu, \"peak_held\": %llu, \"peak_cuda\": %llu, "
                "\"peak_all\": %llu, \"live_at_end\": %llu, \"cuda\": ",
                before, d->name, (unsigned long long)f.total, (unsigned long long)f.stats.peak,
                (unsigned long long)f.stats.peak_held, (unsigned long long)f.foreign_peak,
                (unsigned long long)f.tree_peak, (unsigned long long)f.stats.live + f.foreign);
        print_json_kinds(file, f.kinds);
        fputs("}", file);
        before = ", ";
    }
}

static void preload_table_print_json(FILE *file)
{
    wp_reason refusal = wp_last_refusal();
    wp_gauge host[WP_KINDS] = {0};
    host[WP_KIND_PINNED] = wp_host_gauge(WP_KIND_PINNED);
    host[WP_KIND_REGISTERED] = wp_host_gauge(WP_KIND_REGISTERED);
    fputs("{\"program\": ", file);
    print_string(file, program_invocation_short_name);
    fprintf(file, ", \"process\": %ld, \"devices\": [", (long)getpid());
    print_json_devices(file);
    fputs("], \"host\": ", file);
    print_json_kinds(file, host);
    for (size_t i = 0; i < EVENT_NAMES; i++)
        fprintf(file, ", \"%s\": %llu", event_names[i].json, (unsigned long long)wp_noted(event_names[i].event));
    fputs(", \"last_refusal\": ", file);
    print_string(file, refusal.text);
    const char *before = "";
    fputs(", \"calls\": {", file);
    for (int i = 0; i < WP_FUNCTIONS; i++)
        if (wp_calls((enum wp_function)i)) {
            fprintf(file, "%s\"%s\": %llu", before, wp_function_name((enum wp_function)i),
                    (unsigned long long)wp_calls((enum wp_function)i));
            before = ", ";
        }
    fputs("}}\n", file);
}

/* Exit ------------------------------------------------------------------------------------------------------------- */

/* In one write, as other processes may write into the same file. */
static void preload_table_put(const char *text, size_t length)
{
    const char *path = getenv("WEIR_EXEC_STATS");
    int file = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : STDERR_FILENO;
    if (file < 0) {
        fprintf(stderr, "weir: %s cannot be written: %s\n", path, strerror(errno));
        return;
    }
    (void)!write(file, text, length);
    if (file != STDERR_FILENO)
        close(file);
}

static void preload_table_print_table(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = getpid() == watched && !wp_settings_of()->quiet ? open_memstream(&text, &length) : NULL;
    if (!file)
        return;
    if (wp_settings_of()->json)
        preload_table_print_json(file);
    else
        preload_table_print_text(file);
    if (fclose(file) == 0)
        preload_table_put(text, length);
    free(text);
}

static void preload_table_begin_exit(void)
{
    atomic_store(&exiting, true);
}

static void preload_table_watch(void)
{
    watched = getpid();
    atexit(preload_table_print_table);
}

void wp_watch_exit(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, preload_table_watch);
}

/* What is registered later is called sooner: before weir has ended its driver, which it does before the table. */
void wp_watch_runtime(void)
{
    atexit(preload_table_begin_exit);
}

bool wp_is_exiting(void)
{
    return atomic_load_explicit(&exiting, memory_order_relaxed);
}
