/* pool.c: weir simulate pool: models under traffic in virtual time, and logs of decisions replayed. */
#include "simulate.h"

#include "cli/args.h"
#include "cli/cli.h"
#include "cli/text.h"
#include "cli/terminal.h"
#include "base/values.h"
#include "sim/pool/traffic.h"

#include <stdlib.h>
#include <string.h>

enum { YEAR_DAYS = 365 };

/* ---- arguments --------------------------------------------------------------------------------------------------- */

#define AT(member) .at = offsetof(pool_args, member)

static int simulate_pool_read_size(const arg *option, const char *value, void *to)
{
    uint64_t bytes;
    if (!wi_size_read(value, &bytes) || bytes > option->most)
        return cli_usage("simulate pool", "--%s %s: a size is wanted, as 48GiB", option->name, value);
    memcpy((char *)to + option->at, &bytes, sizeof bytes);
    return -1;
}

static int simulate_pool_read_time(const arg *option, const char *value, void *to)
{
    uint64_t time;
    if (!line_time_read(value, &time) || time < option->least || time > option->most)
        return cli_usage("simulate pool", "--%s %s: a time is wanted, as 250ms, 1.5s, 5m", option->name, value);
    memcpy((char *)to + option->at, &time, sizeof time);
    return -1;
}

/* option->least: hours of its unit. */
static int read_length(const arg *option, const char *value, void *to)
{
    pool_args *args = to;
    uint64_t number = 1, hours = option->least;
    if (option->value && !text_number(value, 1, option->most, &number))
        return cli_usage("simulate pool", "--%s %s: a number from 1 to %llu is wanted", option->name, value,
                         (unsigned long long)option->most);
    args->length = number * hours * 3600 * TRAFFIC_SECOND;
    args->length_given++;
    return -1;
}

#define SIZE_MOST (UINT64_C(1) << 50)
#define DAYS(n)   ((n)*TRAFFIC_DAY)

static const arg option_list[] = {
    {"traffic", "WHAT",
     "zipf, bursts, ping-pong, scan, diurnal, mix; a file of requests; all: each of the six (default)", ARG_FILE,
     AT(traffic)},
    {"models", "FILE", "the models (default: fourteen of 0.5 to 40 GiB)", ARG_FILE, AT(models)},
    {"policy", "NAME",
     "who decides: weir, weir-suspend, lru-count, lru-bytes, size, keep-alive; all: each of the six (default)",
     ARG_NAME, AT(policy)},
    {"budget", "SIZE", "of each device (default 48GiB)", ARG_CALL, AT(budget), .most = SIZE_MOST,
     .read = simulate_pool_read_size},
    {"devices", "N", "so many, and each model may be on each of them (default: as the models say; else 1)", ARG_COUNT,
     AT(devices), 1, TRAFFIC_DEVICES},
    {"host", "SIZE", "memory of the host's for suspended models (default 256GiB)", ARG_CALL, AT(host),
     .most = SIZE_MOST, .read = simulate_pool_read_size},
    {"seed", "S", "which requests; the same seed is the same traffic (default 1)", ARG_NUMBER, AT(seed), 0, UINT64_MAX},
    {"gap", "TIME", "the mean time between two requests (default 15s)", ARG_CALL, AT(gap), 1000, DAYS(1),
     .read = simulate_pool_read_time},
    {"hours", "N", "how much virtual time the traffic takes (default: one day)", ARG_CALL, .least = 1, .most = 100000,
     .read = read_length},
    {"days", "N", "the same", ARG_CALL, .least = 24, .most = 4000, .read = read_length},
    {"year", NULL, "365 days", ARG_CALL, .least = UINT64_C(24) * YEAR_DAYS, .most = 1, .read = read_length},
    {"wait", "TIME", "the longest that a request waits (default 2m)", ARG_CALL, AT(wait), 0, DAYS(1),
     .read = simulate_pool_read_time},
    {"queue", "N", "requests that wait, at the most (default 512)", ARG_NUMBER, AT(queue), 0, 100000},
    {"passing", "TIME",
     "of weir: requests for loaded models pass one that needs a swap for at most so long (default 10s)", ARG_CALL,
     AT(passing), 0, DAYS(1), .read = simulate_pool_read_time},
    {"minimum-stay", "TIME", "of weir: for so long after it came no model has to leave, unless its line says otherwise",
     ARG_CALL, AT(minimum_stay), 0, DAYS(1), .read = simulate_pool_read_time},
    {"most-models", "N", "of lru-count: loaded at once (default 4)", ARG_COUNT, AT(most_models), 1, TRAFFIC_MODELS},
    {"decisions", "FILE", "writes down what the policy was told and what it decided; one policy, one traffic", ARG_FILE,
     AT(decisions)},
    {"replay", "FILE",
     "instead of all that: gives the inputs of such a file to weir again, which has to decide the same", ARG_FILE,
     AT(replay)},
    {"save", "FILE", "writes the requests that were made; one traffic", ARG_FILE, AT(save)},
    {"save-models", "FILE", "writes the models", ARG_FILE, AT(save_models)},
    {"json", NULL, "the answer as JSON", ARG_FLAG, AT(json)},
    {.name = NULL}};

static const args_table arguments = {
    .verb = "simulate pool",
    .usage = "simulate pool [OPTION…]\nsimulate pool --replay FILE [--json]",
    .about = "Has a pool of models under traffic in virtual time: what weir would decide, and what others would, about "
             "the same "
             "requests and the same models, whose loads, suspends and resumes take their time on a shared link.",
    .options = option_list,
    .notes = "Exit status: 0; 1 when a policy has broken its promises, or a replay decides otherwise; 2 bad usage."};

/* ---- files ------------------------------------------------------------------------------------------------------- */

static weir_status save_models(const char *path, const traffic_models *models)
{
    FILE *file = output_file_open(path, "the models");
    if (!file)
        return WEIR_ERR_SYSTEM;
    traffic_models_write(models, file);
    return output_file_close(file, path, "the models", 0);
}

static weir_status open_traffic(const pool_args *args, const char *name, const traffic_models *models, traffic **out)
{
    traffic_options o = {.kind = traffic_kind_called(name),
                         .seed = args->seed,
                         .length = args->length,
                         .gap = args->gap,
                         .budget = args->budget};
    if (o.kind == TRAFFIC_KINDS)
        return traffic_open(name, models, out);
    *out = traffic_generate(&o, models);
    return *out ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no memory for requests");
}

static weir_status save_requests(const pool_args *args, const traffic_models *models)
{
    traffic *from;
    traffic_request q;
    bool got = true;
    weir_status status = open_traffic(args, args->traffic, models, &from);
    FILE *file = status == WEIR_OK ? output_file_open(args->save, "the requests") : NULL;
    if (status == WEIR_OK && !file)
        status = WEIR_ERR_SYSTEM;
    while (status == WEIR_OK && (status = traffic_next(from, &q, &got)) == WEIR_OK && got)
        traffic_request_write(&q, models, file);
    if (file && status == WEIR_OK)
        status = output_file_close(file, args->save, "the requests", 0);
    else if (file)
        fclose(file);
    traffic_close(from);
    return status;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

typedef struct shown {
    const char *traffic;
    const policy *policy;
} shown;

static void simulate_pool_show(void *user, double fraction)
{
    const shown *s = user;
    char name[128];
    snprintf(name, sizeof name, "%s, %s", s->traffic, s->policy->name);
    terminal_progress_of("simulating", name, fraction);
}

static weir_status simulate_pool_run_one(const pool_args *args, const traffic_models *models, pool_run *run)
{
    shown what = {run->traffic, run->policy};
    traffic *from = NULL;
    weir_status status = open_traffic(args, run->traffic, models, &from);
    FILE *log = status == WEIR_OK && args->decisions ? output_file_open(args->decisions, "the decisions") : NULL;
    if (status == WEIR_OK && args->decisions && !log)
        status = WEIR_ERR_SYSTEM;
    drive_options o = {.policy = run->policy,
                       .models = models,
                       .requests = from,
                       .limits = {.queue = (uint32_t)args->queue,
                                  .queue_bytes = WP_FOREVER,
                                  .longest = args->wait,
                                  .retry = 10 * TRAFFIC_SECOND,
                                  .host = run->policy->suspends ? args->host : 0,
                                  .passing = args->passing},
                       .budget = args->budget,
                       .most_models = args->most_models,
                       .seed = args->seed,
                       .log = log,
                       .progress = simulate_pool_show,
                       .user = &what};
    if (status == WEIR_OK)
        status = drive(&o, &run->result);
    terminal_progress_end();
    if (log && status == WEIR_OK)
        status = output_file_close(log, args->decisions, "the decisions", 0);
    else if (log)
        fclose(log);
    traffic_close(from);
    return status;
}

/* Others' are those that cannot suspend and are not weir's. */
static void simulate_pool_compare(pool_run *runs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t best = UINT64_MAX;
        for (size_t j = 0; j < count; j++)
            if (runs[j].traffic == runs[i].traffic && !runs[j].policy->sound && runs[j].result.reload < best)
                best = runs[j].result.reload;
        if (best != UINT64_MAX && best > 0)
            runs[i].beside = (double)runs[i].result.reload / (double)best;
    }
}

static int simulate_pool_run_all(const pool_args *args, const traffic_models *models)
{
    bool all_traffic = strcmp(args->traffic, "all") == 0, all_policies = strcmp(args->policy, "all") == 0;
    size_t kinds = all_traffic ? TRAFFIC_KINDS : 1, each = all_policies ? policy_count : 1, count = kinds * each;
    pool_run *runs = text_zeroed(count, sizeof *runs);
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        runs[i].traffic = all_traffic ? traffic_kind_name((traffic_kind)(i / each)) : args->traffic;
        runs[i].policy = all_policies ? policies[i % each] : policy_called(args->policy);
        status = simulate_pool_run_one(args, models, &runs[i]);
    }
    if (status == WEIR_OK)
        simulate_pool_compare(runs, count);
    int code = status == WEIR_OK ? pool_answer(args, runs, count) : cli_fail("%s", weir_detail());
    free(runs);
    return code;
}

static int simulate_models(const pool_args *args)
{
    traffic_models models;
    weir_status status = args->models ? traffic_models_read(args->models, &models) : traffic_models_default(&models);
    if (status != WEIR_OK)
        return cli_fail("%s", weir_detail());
    if (args->devices && !traffic_models_spread(&models, args->devices)) {
        traffic_models_free(&models);
        return cli_fail("--devices %u: a model has more variants than there may be on so many", args->devices);
    }
    for (uint32_t i = 0; i < models.count; i++)
        if (models.list[i].spec.minimum_stay == 0)
            models.list[i].spec.minimum_stay = args->minimum_stay;
    if (args->save_models)
        status = save_models(args->save_models, &models);
    if (status == WEIR_OK && args->save)
        status = save_requests(args, &models);
    int code = status == WEIR_OK ? simulate_pool_run_all(args, &models) : cli_fail("%s", weir_detail());
    traffic_models_free(&models);
    return code;
}

static void show_replay(void *user, double fraction)
{
    terminal_progress_of("replaying", user, fraction);
}

static int simulate_pool_replay(const pool_args *args)
{
    replay_result result;
    char *name = text_copy(args->replay);
    weir_status status = replay_decisions(args->replay, show_replay, name, &result);
    terminal_progress_end();
    free(name);
    return status == WEIR_OK ? pool_answer_replay(args, &result) : cli_fail("%s", weir_detail());
}

int simulate_pool(int argc, char **argv)
{
    pool_args args = {.traffic = "all",
                      .policy = "all",
                      .budget = 48 * WI_GIB,
                      .host = 256 * WI_GIB,
                      .seed = 1,
                      .gap = 15 * TRAFFIC_SECOND,
                      .length = TRAFFIC_DAY,
                      .wait = 120 * TRAFFIC_SECOND,
                      .passing = 10 * TRAFFIC_SECOND,
                      .queue = 512,
                      .most_models = 4};
    uint64_t seen;
    int status = args_read(&arguments, argc, argv, &args, &seen);
    if (status >= 0)
        return status;
    if (args.replay && seen & ~(args_bit(&arguments, "replay") | args_bit(&arguments, "json")))
        return cli_usage("simulate pool", "--replay goes with --json alone");
    if (args.replay)
        return simulate_pool_replay(&args);
    if (strcmp(args.policy, "all") != 0 && !policy_called(args.policy))
        return cli_usage("simulate pool", "--policy %s: there is no such policy", args.policy);
    if (args.length_given > 1)
        return cli_usage("simulate pool", "one of --hours, --days and --year");
    bool one_traffic = strcmp(args.traffic, "all") != 0;
    if (args.save && !one_traffic)
        return cli_usage("simulate pool", "--save is of one --traffic");
    if (args.decisions && (!one_traffic || strcmp(args.policy, "all") == 0))
        return cli_usage("simulate pool", "--decisions is of one --traffic and one --policy");
    return simulate_models(&args);
}
