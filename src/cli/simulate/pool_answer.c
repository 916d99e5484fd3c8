/* pool_answer.c: what weir simulate pool prints. */
#include "simulate.h"

#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <string.h>

static double in_seconds(uint64_t nanoseconds)
{
    return (double)nanoseconds / 1e9;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void pool_answer_set_count(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, text_json_count(value));
}

static void set_real(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, json_real(value));
}

static json_t *pool_answer_refusals_json(const drive_result *r)
{
    json_t *object = json_object();
    for (int i = 0; i < WP_CAUSES; i++)
        if (r->refused[i] > 0)
            pool_answer_set_count(object, wp_cause_name((wp_cause)i), r->refused[i]);
    return object;
}

static void add_waits(json_t *object, const drive_result *r)
{
    set_real(object, "wait_mean", r->granted ? in_seconds(r->wait_sum) / (double)r->granted : 0);
    set_real(object, "wait_p50", in_seconds(drive_wait(r, 0.5)));
    set_real(object, "wait_p99", in_seconds(drive_wait(r, 0.99)));
    set_real(object, "wait_most", in_seconds(r->wait_most));
}

static json_t *run_json(const pool_run *run)
{
    const drive_result *r = &run->result;
    json_t *object = json_object();
    json_object_set_new(object, "traffic", text_json(run->traffic));
    json_object_set_new(object, "policy", json_string(run->policy->name));
    pool_answer_set_count(object, "requests", r->requests);
    pool_answer_set_count(object, "granted", r->granted);
    pool_answer_set_count(object, "refused", drive_refusals(r));
    json_object_set_new(object, "causes", pool_answer_refusals_json(r));
    set_real(object, "reload_seconds", in_seconds(r->reload));
    set_real(object, "coming_seconds", in_seconds(r->coming));
    json_object_set_new(object, "beside_best", run->beside > 0 ? json_real(run->beside) : json_null());
    set_real(object, "suspend_seconds", in_seconds(r->suspending));
    pool_answer_set_count(object, "loads", r->loads);
    pool_answer_set_count(object, "resumes", r->resumes);
    pool_answer_set_count(object, "suspends", r->suspends);
    pool_answer_set_count(object, "unloads", r->unloads);
    pool_answer_set_count(object, "failures", r->failures);
    pool_answer_set_count(object, "evictions", r->evictions);
    pool_answer_set_count(object, "bytes_in", r->bytes_in);
    pool_answer_set_count(object, "bytes_out", r->bytes_out);
    add_waits(object, r);
    pool_answer_set_count(object, "most_taken", r->most_taken);
    pool_answer_set_count(object, "over_ceiling", r->over);
    pool_answer_set_count(object, "most_host", r->most_host);
    pool_answer_set_count(object, "over_host", r->over_host);
    pool_answer_set_count(object, "events", r->events);
    pool_answer_set_count(object, "actions", r->actions);
    set_real(object, "virtual_seconds", in_seconds(r->virtual_end));
    set_real(object, "seconds", r->seconds);
    pool_answer_set_count(object, "violations", r->violations);
    json_object_set_new(object, "first_violation", r->violations ? text_json(r->first) : json_null());
    return object;
}

static json_t *pool_answer_answer_json(const pool_args *args, const pool_run *runs, size_t count)
{
    json_t *list = json_array(), *object = json_object();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, run_json(&runs[i]));
    pool_answer_set_count(object, "budget", args->budget);
    pool_answer_set_count(object, "seed", args->seed);
    json_object_set_new(object, "runs", list);
    return object;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void pool_answer_put_time(table *grid, uint64_t nanoseconds)
{
    char text[24];
    table_cell(grid, nanoseconds ? text_seconds(in_seconds(nanoseconds), text, sizeof text) : "0", "", true);
}

static void put_run(table *grid, const pool_run *run, bool first)
{
    const drive_result *r = &run->result;
    char text[24];
    table_row(grid);
    table_cell(grid, first ? run->traffic : "", "", false);
    table_cell(grid, run->policy->name, "", false);
    table_count(grid, r->requests, "");
    table_count(grid, drive_refusals(r), "");
    table_count(grid, r->loads, "");
    table_count(grid, r->resumes, "");
    table_own(grid, text_print("%.0f", in_seconds(r->reload)), "", true);
    table_own(grid, run->beside > 0 ? text_print("%.2f", run->beside) : text_copy(""),
              run->beside > 1.05                      ? terminal_yellow()
              : run->beside > 0 && run->beside <= 0.8 ? terminal_green()
                                                      : "",
              true);
    table_own(grid, text_print("%.0f", in_seconds(r->coming)), "", true);
    pool_answer_put_time(grid, drive_wait(r, 0.5));
    pool_answer_put_time(grid, drive_wait(r, 0.99));
    table_cell(grid, weir_size_format(r->bytes_in + r->bytes_out, text, sizeof text), "", true);
}

static void pool_answer_print_table(const pool_run *runs, size_t count)
{
    static const char *const heads[] = {"traffic",  "policy",  "requests", "refused", "loads", "resumes",
                                        "reload s", "of best", "coming s", "p50",     "p99",   "moved"};
    table grid = {0};
    char time[24];
    uint64_t events = 0;
    double seconds = 0;
    table_titles(&grid, heads, sizeof heads / sizeof *heads, terminal_bold(), 2);
    for (size_t i = 0; i < count; i++)
        put_run(&grid, &runs[i], i == 0 || runs[i].traffic != runs[i - 1].traffic);
    table_end(&grid);
    for (size_t i = 0; i < count; i++) {
        events += runs[i].result.events;
        seconds += runs[i].result.seconds;
    }
    printf("\n%llu events in %s, %.0f a second\n", (unsigned long long)events, text_seconds(seconds, time, sizeof time),
           seconds > 0 ? (double)events / seconds : 0);
}

int pool_answer(const pool_args *args, const pool_run *runs, size_t count)
{
    const pool_run *bad = NULL;
    for (size_t i = 0; i < count && !bad; i++)
        bad = runs[i].result.violations > 0 ? &runs[i] : NULL;
    int status = args->json ? cli_print_json(pool_answer_answer_json(args, runs, count))
                            : (pool_answer_print_table(runs, count), cli_flush(CLI_OK));
    if (status != CLI_OK || !bad)
        return status;
    return cli_fail("%s under %s: %llu violations, the first %s", bad->policy->name, bad->traffic,
                    (unsigned long long)bad->result.violations, bad->result.first);
}

/* ---- replays ----------------------------------------------------------------------------------------------------- */

static json_t *replay_json(const replay_result *r)
{
    json_t *object = json_object();
    pool_answer_set_count(object, "lines", r->lines);
    pool_answer_set_count(object, "events", r->events);
    pool_answer_set_count(object, "actions", r->actions);
    json_object_set_new(object, "differs_at", r->differs ? text_json_count(r->line) : json_null());
    json_object_set_new(object, "recorded", r->differs ? text_json(r->recorded) : json_null());
    json_object_set_new(object, "decided", r->differs ? text_json(r->decided) : json_null());
    set_real(object, "seconds", r->seconds);
    set_real(object, "events_per_second", r->seconds > 0 ? (double)r->events / r->seconds : 0);
    return object;
}

int pool_answer_replay(const pool_args *args, const replay_result *r)
{
    char time[24];
    if (!args->json)
        printf("%llu events and %llu actions in %s (%.0f events a second): %s\n", (unsigned long long)r->events,
               (unsigned long long)r->actions, text_seconds(r->seconds, time, sizeof time),
               r->seconds > 0 ? (double)r->events / r->seconds : 0,
               r->differs ? "it decides otherwise" : "all the same");
    int status = args->json ? cli_print_json(replay_json(r)) : cli_flush(CLI_OK);
    if (status != CLI_OK || !r->differs)
        return status;
    return cli_fail("%s, line %llu: \"%s\" was recorded, and \"%s\" is decided now", args->replay,
                    (unsigned long long)r->line, r->recorded, r->decided);
}
