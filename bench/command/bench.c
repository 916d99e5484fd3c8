/* bench.c: weir-bench, the program that `weir bench` is: its arguments, and the order of its parts. */
#include "bench.h"

#include "cli/args.h"

#include <stdio.h>
#include <string.h>

typedef int part(const bench_args *args, json_t *answer);

static const struct {
    const char *name;
    part *run;
} parts[] = {{"allocator", bench_part_allocator}, {"operations", bench_part_operations},
             {"lending", bench_part_lending},     {"bounds", bench_part_bounds},
             {"traces", bench_part_traces},       {"plans", bench_part_plans}};
enum { PARTS = sizeof parts / sizeof parts[0], PART_TRACES = 4, PART_PLANS = 5, MOST_LAG = 1 << 20 };

typedef struct verb_args {
    bench_args bench;
    bool wanted[PARTS]; /* all false: all */
    bool json;
} verb_args;

static int bench_read_part(const arg *option, const char *value, void *to)
{
    (void)option;
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(value, parts[i].name) == 0) {
            ((verb_args *)to)->wanted[i] = true;
            return -1;
        }
    return cli_usage("bench", "--only %s: the parts are allocator, operations, lending, bounds, traces and plans",
                     value);
}

static int bench_read_path(const arg *option, const char *value, void *to)
{
    bench_paths *paths = (bench_paths *)(void *)((char *)to + option->at);
    if (paths->count == BENCH_PATHS)
        return cli_usage("bench", "--%s %s: there are %d already", option->name, value, BENCH_PATHS);
    paths->at[paths->count++] = value;
    return -1;
}

#define AT(member) .at = offsetof(verb_args, member)

static const arg option_list[] = {
    {"device", "NAME", "host, cuda, cuda:1 (default host)", ARG_TEXT, AT(bench.device)},
    {"only", "PART", "this part alone; may be given more than once", ARG_CALL, .read = bench_read_part},
    {"resource", "NAME", "which resource of weir's the allocator's and the traces' rows are of (default: the default)",
     ARG_TEXT, AT(bench.resource)},
    {"peer", "PATH",
     "also measure the allocators of a shared object (bench/command/peer.h), or of all in a folder; may be given more "
     "than "
     "once",
     ARG_CALL, AT(bench.peers), .read = bench_read_path},
    {"traces", "PATH", "a trace that weir replay reads, or a folder of them; may be given more than once", ARG_CALL,
     AT(bench.traces), .read = bench_read_path},
    {"problems", "PATH",
     "buffers to plan, a CSV as MiniMalloc reads it, or a folder of them; may be given more than once. A number before "
     ".csv "
     "is the capacity into which they have to fit",
     ARG_CALL, AT(bench.problems), .read = bench_read_path},
    {"minimalloc", "PATH", "MiniMalloc's program, to be run on the same problems", ARG_TEXT, AT(bench.minimalloc)},
    {"lag", "N", "replays also with each stream's work N operations behind the host; 0: not (default 64)", ARG_NUMBER,
     AT(bench.lag), 0, MOST_LAG},
    {"rounds", "N", "how many rounds (default 5)", ARG_NUMBER, AT(bench.rounds), 1, 1000},
    {"laps", "N", "how often an operation is run in a round, at the most (default 2000)", ARG_NUMBER, AT(bench.laps), 1,
     10000000},
    {"json", NULL,
     "the answer as JSON: device; allocator {threads, rows[] {load, by, own, ns, p50, p99, mean, of_weir}, goals[] "
     "{load, "
     "what, wanted, measured, met}, left_out[]}; rows[] {operation, who, peer, median, p99, ratio}; lending[] {what, "
     "bytes, "
     "us, driver_calls, moved, without_driver_call}, lending_beside[] {what, pairs, alone_ms, beside_ms, slowed, "
     "lends, "
     "bytes, moved}, lending_goals[]; bounds[] {what, calls, mean_ms, p999_ms, worst_ms}, bounds_goals[]; traces {lag, "
     "rows[] {trace, by, own, events, streams, peak_requested, held, ns, min_cap, min_cap_ns, ns_105, ns_110, "
     "driver_calls, moves, lag_held, lag_min_cap, lag_min_cap_ns}, goals[], left_out[]}; plans {graphs[] {graph, "
     "buffers, "
     "quick_seconds, quick_over_bound, seconds, over_bound}, problems[] {problem, buffers, lower_bound, arena, proven, "
     "seconds, fit_seconds, retold_seconds, peer_seconds}, goals[]}",
     ARG_FLAG, AT(json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "bench",
    .usage = "bench [OPTION…]\nbench serve --model NAME [OPTION…]",
    .about =
        "Measures weir, and beside it, in the same run, what a program would use instead. Six parts:\n\n"
        "  allocator    pairs of an allocation and a free, blocks that come and go at random, several threads: by "
        "weir, "
        "by CUDA's stream-ordered pool or the host's malloc and mimalloc, and by further peers (scripts/bench-peers "
        "builds PyTorch's and RMM's). Every row is measured in every round; the figures are those of its best round, "
        "in nanoseconds\n"
        "  operations   single operations by each resource, and by the C library or CUDA's driver; the ratio is that "
        "of "
        "the medians to the first peer's\n"
        "  lending      memory that one client left behind (what the first of --traces leaves, or blocks of many "
        "sizes), taken by another in one block, taken back, and given back to the device; on a GPU also what a kernel "
        "feels that runs beside lends\n"
        "  bounds       how long a refusal without waiting, the release of a stream and the emptying of the cache take "
        "at the worst, beside twelve threads that allocate and free; a second each, and a round\n"
        "  traces       with --traces: recorded traces replayed by weir and by the peers: what they hold, the smallest "
        "cap, what it costs\n"
        "  plans        with --problems, or when asked for: static plans of graphs of ten thousands of buffers, and of "
        "given problems: how near to the lower bound they come, and after which time",
    .options = option_list,
    .notes = "'weir bench serve --help' tells of load on a running server."};

/* Without --only, selects every part whose inputs are given. */
static void choose_parts(verb_args *args)
{
    bool chosen = false;
    for (size_t i = 0; i < PARTS; i++)
        chosen |= args->wanted[i];
    for (size_t i = 0; i < PARTS && !chosen; i++)
        args->wanted[i] = i == PART_TRACES  ? args->bench.traces.count > 0
                          : i == PART_PLANS ? args->bench.problems.count > 0
                                            : true;
}

static int bench_measure(int argc, char **argv)
{
    verb_args args = {.bench = {.device = "host", .lag = 64, .rounds = 5, .laps = 2000}};
    int status = args_read(&arguments, argc, argv, &args, NULL);
    if (status >= 0)
        return status;
    if (args.wanted[PART_TRACES] && args.bench.traces.count == 0)
        return cli_usage("bench", "--only traces: --traces says which");
    choose_parts(&args);
    json_t *answer = args.json ? json_pack("{s:s}", "device", args.bench.device) : NULL;
    status = CLI_OK;
    for (size_t i = 0, done = 0; i < PARTS; i++) {
        if (!args.wanted[i])
            continue;
        if (!args.json && done++ > 0)
            puts("");
        int answered = parts[i].run(&args.bench, answer);
        status = status == CLI_OK ? answered : status;
    }
    int printed = answer ? cli_print_json(answer) : cli_flush(CLI_OK);
    return status == CLI_OK ? printed : status;
}

int main(int argc, char **argv)
{
    cli_keep_streams();
    bool serves = argc > 1 && strcmp(argv[1], "serve") == 0;
    return cli_end(serves ? bench_serve(argc - 1, argv + 1) : bench_measure(argc, argv), argv + 1);
}
