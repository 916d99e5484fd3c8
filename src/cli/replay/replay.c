/* replay.c: `weir replay`. */
#include "replay.h"
#include "cli/cli.h"
#include "layout.h"
#include "print.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir replay TRACE… [OPTION…]\n\n"
    "Has a resource do again what a trace recorded, and says what it took: physical memory at the peak, time, calls "
    "of\n"
    "the driver. A trace is RMM's CSV log, plain or gzip, what 'weir run --trace' wrote, or weir's binary trace. Each\n"
    "stream of the trace is a stream of its own; nothing is put on the streams but what --lag puts there.\n\n"
    "  --driver NAME    host, sim, cuda, cuda:1 (default sim)\n"
    "  --resource STACK the resources that serve the blocks, as \"log(async)\" (default: weir's)\n"
    "  --cap SIZE       the budget: bytes, or times what the trace had live at its peak, as 1.05x (default: none)\n"
    "  --min-cap        also looks for the smallest cap under which the trace completes, to 0.2 %\n"
    "  --lag N          the work of each stream trails the host by N operations (default 0: it is done at once)\n"
    "  --repeat N       so many passes; the first and the later ones are told apart (default 1)\n"
    "  --layout FILE    writes where memory lies at the end of each trace, as JSON\n"
    "  --json           the answer as JSON: events, peak_requested, peak_reserved, ns_per_event, driver_calls, moves,\n"
    "                   failures, min_cap, lag, traces[]\n\n"
    "Exit status: 0; 1 also where an allocation was refused, or no cap was found; 2 bad usage.\n";

enum { LAG_MOST = 1 << 20 };

typedef struct words {
    const char *device, *resource, *cap, *layout;
    uint64_t cap_bytes, lag, repeat;
    double cap_times; /* of the peak; 0: none */
    bool min_cap, json;
} words;

/* Words ------------------------------------------------------------------------------------------------------------ */

enum { W_DRIVER = 256, W_RESOURCE, W_CAP, W_MIN_CAP, W_LAG, W_REPEAT, W_LAYOUT, W_JSON };

static const struct option long_words[] = {{"driver", required_argument, NULL, W_DRIVER},
                                           {"resource", required_argument, NULL, W_RESOURCE},
                                           {"cap", required_argument, NULL, W_CAP},
                                           {"min-cap", no_argument, NULL, W_MIN_CAP},
                                           {"lag", required_argument, NULL, W_LAG},
                                           {"repeat", required_argument, NULL, W_REPEAT},
                                           {"layout", required_argument, NULL, W_LAYOUT},
                                           {"json", no_argument, NULL, W_JSON},
                                           {"help", no_argument, NULL, 'h'},
                                           {NULL, 0, NULL, 0}};

/* Answers -1 to go on, else the exit status. */
static int read_count(const char *option, uint64_t least, uint64_t most, uint64_t *out)
{
    if (text_number(optarg, least, most, out))
        return -1;
    return cli_usage("replay", "%s %s: a whole number from %llu to %llu is wanted", option, optarg,
                     (unsigned long long)least, (unsigned long long)most);
}

static int read_cap(words *w)
{
    char *end;
    size_t length = strlen(optarg);
    w->cap_bytes = 0;
    w->cap_times = 0;
    if (length > 1 && optarg[length - 1] == 'x' && strspn(optarg, "0123456789.") == length - 1) {
        w->cap_times = strtod(optarg, &end);
        if (end == optarg + length - 1 && w->cap_times > 0 && w->cap_times <= 1000)
            return -1;
    } else if (weir_size_parse(optarg, &w->cap_bytes) == WEIR_OK && w->cap_bytes > 0) {
        return -1;
    }
    return cli_usage("replay", "--cap %s: a size, or a multiple of the peak such as 1.05x, is wanted", optarg);
}

static int read_word(int code, words *w)
{
    switch (code) {
    case W_DRIVER:
        w->device = optarg;
        return -1;
    case W_RESOURCE:
        w->resource = optarg;
        return -1;
    case W_CAP:
        return read_cap(w);
    case W_MIN_CAP:
        w->min_cap = true;
        return -1;
    case W_LAG:
        return read_count("--lag", 0, LAG_MOST, &w->lag);
    case W_LAYOUT:
        w->layout = optarg;
        return -1;
    case W_REPEAT:
        return read_count("--repeat", 1, WI_REPLAY_PASSES, &w->repeat);
    default:
        w->json = true;
        return -1;
    }
}

static int read_words(int argc, char **argv, words *w)
{
    *w = (words){.device = "sim", .repeat = 1};
    opterr = 0;
    optind = 1;
    for (int code; (code = getopt_long(argc, argv, ":h", long_words, NULL)) != -1;) {
        if (code == 'h') {
            fputs(help, stdout);
            return cli_flush(CLI_OK);
        }
        if (code == '?' || code == ':')
            return cli_bad_option("replay", code, argv);
        int status = read_word(code, w);
        if (status >= 0)
            return status;
    }
    return optind < argc ? -1 : cli_usage("replay", "which trace?");
}

/* Replays ---------------------------------------------------------------------------------------------------------- */

static const char *searched; /* whose smallest cap is being looked for */

static void show_search(double fraction)
{
    terminal_progress_of("replaying", searched, fraction);
}

/* The best of some passes with an allocator that does nothing. */
static weir_status measure_loop(replay_answer *a)
{
    enum { PASSES = 3 };
    uint64_t best = UINT64_MAX;
    weir_status status = WEIR_OK;
    for (int i = 0; i < PASSES && status == WEIR_OK; i++) {
        wi_replay_pass pass;
        status = wi_replay_loop(&a->plan, &wi_replay_nobody, false, &pass);
        best = pass.nanoseconds < best ? pass.nanoseconds : best;
    }
    a->own = (double)best / (double)a->plan.count;
    return status;
}

static weir_status replay_one(const char *path, const words *w, replay_layout *layout, replay_answer *a)
{
    weir_status status = wi_replay_load(path, &a->plan);
    if (status != WEIR_OK)
        return status;
    a->cap = w->cap_times > 0 ? (uint64_t)ceil(w->cap_times * (double)a->plan.peak) : w->cap_bytes;
    a->min_cap = w->min_cap;
    wi_replay_settings settings = {
        .device = w->device, .resource = w->resource, .cap = a->cap, .lag = w->lag, .repeat = (unsigned)w->repeat};
    layout->trace = a->plan.name;
    settings.at_end = w->layout ? replay_layout_take : NULL;
    settings.at_end_user = layout;
    status = measure_loop(a);
    if (status == WEIR_OK)
        status = wi_replay_run(&a->plan, &settings, &a->result);
    if (status != WEIR_OK || !w->min_cap)
        return status;
    settings.repeat = 1;
    settings.at_end = NULL;
    searched = a->plan.name;
    status = wi_replay_min_cap(&a->plan, &settings, show_search, &a->smallest);
    terminal_progress_end();
    return status;
}

/* What is wrong with the answer that was just given, in one line. */
static int judge(const replay_answers *all)
{
    for (size_t i = 0; i < all->count; i++) {
        const replay_answer *a = &all->list[i];
        uint64_t failures = replay_failures(a), asked = a->plan.allocations * a->result.count;
        if (failures > 0)
            return cli_fail("%s: %llu of %llu allocations were refused", a->plan.name, (unsigned long long)failures,
                            (unsigned long long)asked);
        if (a->min_cap && a->smallest.bytes == 0)
            return cli_fail("%s: no cap was found under which it completes", a->plan.name);
    }
    return CLI_OK;
}

int verb_replay(int argc, char **argv)
{
    words w;
    int status = read_words(argc, argv, &w);
    if (status >= 0)
        return status;
    size_t count = (size_t)(argc - optind);
    replay_answer *answers = text_zeroed(count, sizeof *answers);
    replay_answers all = {.device = w.device, .resource = w.resource, .lag = w.lag, .list = answers, .count = count};
    replay_layout layout = {.traces = json_array()};
    status = CLI_OK;
    for (size_t i = 0; i < count && status == CLI_OK; i++) {
        const char *path = argv[(size_t)optind + i];
        if (replay_one(path, &w, &layout, &answers[i]) != WEIR_OK)
            status =
                strstr(weir_detail(), path) ? cli_fail("%s", weir_detail()) : cli_fail("%s: %s", path, weir_detail());
    }
    if (status == CLI_OK && w.layout && !replay_layout_write(&layout, w.layout))
        status = cli_fail("%s: %s", w.layout, strerror(errno));
    json_decref(layout.traces);
    if (status == CLI_OK)
        status = w.json ? cli_print_json(replay_json(&all)) : (replay_print(&all), cli_flush(CLI_OK));
    if (status == CLI_OK)
        status = judge(&all);
    for (size_t i = 0; i < count; i++) {
        wi_replay_plan_clear(&answers[i].plan);
        wi_replay_result_clear(&answers[i].result);
    }
    free(answers);
    return status;
}
