/* bench.c: `weir bench`: what is measured, and in what order. */
#include "bench.h"

#include "cli/text.h"

#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: weir bench [OPTION…]\n\n"
    "Measures weir, and beside it, in the same run, what a program would use instead. Six parts:\n\n"
    "  allocator    pairs of an allocation and a free, blocks that come and go at random, several threads: by weir,\n"
    "               by CUDA's stream-ordered pool or the host's malloc and mimalloc, and by further peers\n"
    "               (scripts/bench-peers builds PyTorch's and RMM's). Every row is measured in every round; the\n"
    "               figures are those of its best round, in nanoseconds\n"
    "  operations   single operations by each resource, and by the C library or CUDA's driver; the ratio is that of\n"
    "               the medians to the first peer's\n"
    "  lending      memory that one client left behind (what the first of --traces leaves, or blocks of many sizes),\n"
    "               taken by another in one block, taken back, and given back to the device; on a GPU also what\n"
    "               a kernel feels that runs beside lends\n"
    "  bounds       how long a refusal without waiting, the release of a stream and the emptying of the cache take at\n"
    "               the worst, beside twelve threads that allocate and free; a second each, and a round\n"
    "  traces       with --traces: recorded traces replayed by weir and by the peers: what they hold, the smallest\n"
    "               cap, what it costs\n"
    "  plans        with --problems, or when asked for: static plans of graphs of ten thousands of buffers, and of\n"
    "               given problems: how near to the lower bound they come, and after which time\n\n"
    "  --device NAME    host, cuda, cuda:1 (default host)\n"
    "  --only PART      this part alone; may be given more than once\n"
    "  --resource NAME  which resource of weir's the allocator's and the traces' rows are of (default: the default)\n"
    "  --peer PATH      also measure the allocators of a shared object (bench/peer.h), or of all in a folder;\n"
    "                   may be given more than once\n"
    "  --traces PATH    a trace that weir replay reads, or a folder of them; may be given more than once\n"
    "  --problems PATH  buffers to plan, a CSV as MiniMalloc reads it, or a folder of them; may be given more than\n"
    "                   once. A number before .csv is the capacity into which they have to fit\n"
    "  --minimalloc PATH  MiniMalloc's program, to be run on the same problems\n"
    "  --lag N          replays also with each stream's work N operations behind the host; 0: not (default 64)\n"
    "  --rounds N       how many rounds (default 5)\n"
    "  --laps N         how often an operation is run in a round, at the most (default 2000)\n"
    "  --json           the answer as JSON: device; allocator {threads, rows[] {load, by, own, ns, p50, p99, mean,\n"
    "                   of_weir}, goals[] {load, what, wanted, measured, met}, left_out[]}; rows[] {operation, who,\n"
    "                   peer, median, p99, ratio}; lending[] {what, bytes, us, driver_calls, moved,\n"
    "                   without_driver_call}, lending_beside[] {what, pairs, alone_ms, beside_ms, slowed, lends,\n"
    "                   bytes, moved}, lending_goals[]; bounds[] {what, calls, mean_ms, p999_ms, worst_ms},\n"
    "                   bounds_goals[]; traces {lag, rows[] {trace, by, own, events, streams, peak_requested,\n"
    "                   held, ns, min_cap, min_cap_ns, ns_105, ns_110, driver_calls, moves, lag_held,\n"
    "                   lag_min_cap, lag_min_cap_ns}, goals[], left_out[]}; plans {graphs[] {graph, buffers,\n"
    "                   quick_seconds, quick_over_bound, seconds, over_bound}, problems[] {problem, buffers,\n"
    "                   lower_bound, arena, proven, seconds, fit_seconds, retold_seconds, peer_seconds}, goals[]}\n";

typedef int part(const bench_args *args, json_t *answer);

static const struct {
    const char *name;
    part *run;
} parts[] = {{"allocator", bench_part_allocator}, {"operations", bench_part_operations},
             {"lending", bench_part_lending},     {"bounds", bench_part_bounds},
             {"traces", bench_part_traces},       {"plans", bench_part_plans}};
enum { PARTS = sizeof parts / sizeof parts[0], PART_TRACES = 4, PART_PLANS = 5, MOST_LAG = 1 << 20 };

typedef struct words {
    bench_args options;
    bool wanted[PARTS]; /* all false: all */
    bool json;
} words;

enum {
    W_DEVICE = 256,
    W_ONLY,
    W_RESOURCE,
    W_PEER,
    W_TRACES,
    W_PROBLEMS,
    W_MINIMALLOC,
    W_LAG,
    W_ROUNDS,
    W_LAPS,
    W_JSON
};

static const struct option long_words[] = {{"device", required_argument, NULL, W_DEVICE},
                                           {"only", required_argument, NULL, W_ONLY},
                                           {"resource", required_argument, NULL, W_RESOURCE},
                                           {"peer", required_argument, NULL, W_PEER},
                                           {"traces", required_argument, NULL, W_TRACES},
                                           {"problems", required_argument, NULL, W_PROBLEMS},
                                           {"minimalloc", required_argument, NULL, W_MINIMALLOC},
                                           {"lag", required_argument, NULL, W_LAG},
                                           {"rounds", required_argument, NULL, W_ROUNDS},
                                           {"laps", required_argument, NULL, W_LAPS},
                                           {"json", no_argument, NULL, W_JSON},
                                           {"help", no_argument, NULL, 'h'},
                                           {NULL, 0, NULL, 0}};

/* These answer -1 to go on, else the exit status. */
static int read_count(const char *option, uint64_t least, uint64_t most, uint64_t *out)
{
    if (text_number(optarg, least, most, out))
        return -1;
    return cli_usage("bench", "%s %s: a whole number from %llu to %llu is wanted", option, optarg,
                     (unsigned long long)least, (unsigned long long)most);
}

static int read_part(words *w)
{
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(optarg, parts[i].name) == 0) {
            w->wanted[i] = true;
            return -1;
        }
    return cli_usage("bench", "--only %s: the parts are allocator, operations, lending, bounds, traces and plans",
                     optarg);
}

static int read_path(const char *option, const char **paths, size_t *count)
{
    if (*count == BENCH_PATHS)
        return cli_usage("bench", "%s %s: there are %d already", option, optarg, BENCH_PATHS);
    paths[(*count)++] = optarg;
    return -1;
}

static int read_word(int code, words *w)
{
    switch (code) {
    case W_DEVICE:
        w->options.device = optarg;
        return -1;
    case W_ONLY:
        return read_part(w);
    case W_RESOURCE:
        w->options.resource = optarg;
        return -1;
    case W_PEER:
        return read_path("--peer", w->options.peers, &w->options.peer_count);
    case W_TRACES:
        return read_path("--traces", w->options.traces, &w->options.trace_count);
    case W_PROBLEMS:
        return read_path("--problems", w->options.problems, &w->options.problem_count);
    case W_MINIMALLOC:
        w->options.minimalloc = optarg;
        return -1;
    case W_LAG:
        return read_count("--lag", 0, MOST_LAG, &w->options.lag);
    case W_ROUNDS:
        return read_count("--rounds", 1, 1000, &w->options.rounds);
    case W_LAPS:
        return read_count("--laps", 1, 10000000, &w->options.laps);
    default:
        w->json = true;
        return -1;
    }
}

static int read_words(int argc, char **argv, words *w)
{
    *w = (words){.options = {.device = "host", .lag = 64, .rounds = 5, .laps = 2000}};
    opterr = 0;
    optind = 1;
    for (int code; (code = getopt_long(argc, argv, ":h", long_words, NULL)) != -1;) {
        if (code == 'h') {
            fputs(help, stdout);
            return cli_flush(CLI_OK);
        }
        if (code == '?' || code == ':')
            return cli_bad_option("bench", code, argv);
        int status = read_word(code, w);
        if (status >= 0)
            return status;
    }
    if (w->wanted[PART_TRACES] && w->options.trace_count == 0)
        return cli_usage("bench", "--only traces: --traces says which");
    return optind < argc ? cli_usage("bench", "what is '%s'?", argv[optind]) : -1;
}

/* Without --only: all for which there is what they need. */
static void choose(words *w)
{
    bool chosen = false;
    for (size_t i = 0; i < PARTS; i++)
        chosen |= w->wanted[i];
    for (size_t i = 0; i < PARTS && !chosen; i++)
        w->wanted[i] = i == PART_TRACES  ? w->options.trace_count > 0
                       : i == PART_PLANS ? w->options.problem_count > 0
                                         : true;
}

int verb_bench(int argc, char **argv)
{
    words w;
    int status = read_words(argc, argv, &w);
    if (status >= 0)
        return status;
    choose(&w);
    json_t *answer = w.json ? json_pack("{s:s}", "device", w.options.device) : NULL;
    status = CLI_OK;
    for (size_t i = 0, done = 0; i < PARTS; i++) {
        if (!w.wanted[i])
            continue;
        if (!w.json && done++ > 0)
            puts("");
        int answered = parts[i].run(&w.options, answer);
        status = status == CLI_OK ? answered : status;
    }
    int printed = answer ? cli_print_json(answer) : cli_flush(CLI_OK);
    return status == CLI_OK ? printed : status;
}
