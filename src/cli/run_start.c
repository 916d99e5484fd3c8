/* run_start.c: what a run needs before a model is loaded: budgets, runtimes, the trace. */
#include "cli.h"
#include "placing.h"
#include "run.h"
#include "text.h"

#include "trace/output_file.h"

#include <inttypes.h>

static weir_status set_budget(const run_budget *budget)
{
    weir_runtime *runtime = NULL;
    weir_runtime_options wanted = WEIR_INIT(weir_runtime_options);
    char bytes[24];
    if (budget->device[0] == '\0') { /* of every runtime that is made from here on */
        snprintf(bytes, sizeof bytes, "%" PRIu64, budget->bytes);
        return weir_option_set("budget", bytes);
    }
    wanted.budget = budget->bytes;
    return weir_runtime_get_with(budget->device, &wanted, &runtime);
}

static weir_status set_budgets(const run *all)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < all->options->budget_count && status == WEIR_OK; i++)
        status = set_budget(&all->options->budgets[i]);
    return status;
}

/* There is nothing to run on: a device that is no text for one was bad usage, anything else a failure. */
static int cannot_start(const run_options *options, weir_status status)
{
    failure failed = {0};
    bool words = options->budget_count > 0 || options->driver != NULL;
    if (status == WEIR_ERR_INVALID && words)
        return cli_usage("run", "--%s: %s", options->budget_count > 0 ? "budget" : "driver", weir_detail());
    failure_take(&failed, status, "start");
    cli_fail("%s", failed.detail);
    if (options->json)
        cli_print_json(json_pack("{s:o}", "error", failure_json(&failed, NULL)));
    failure_clear(&failed);
    return CLI_FAILED;
}

static int look_at_chosen(run *all)
{
    int answer = -1;
    for (size_t i = 0; i < all->count && answer < 0; i++)
        if (all->jobs[i].words->chosen)
            answer = placing_look(&all->jobs[i]);
    return answer;
}

/* --driver's device, for the models that are for it; else that of the first model that has one. */
static weir_status find_runtime(run *all)
{
    bool wanted = all->options->driver != NULL;
    weir_runtime *chosen = NULL;
    for (size_t i = 0; i < all->count; i++) {
        wanted = wanted || !all->jobs[i].words->chosen;
        chosen = chosen != NULL ? chosen : all->jobs[i].runtime;
    }
    if (!wanted && chosen != NULL) {
        all->runtime = chosen;
        return WEIR_OK;
    }
    return weir_runtime_get(run_driver(all->options), &all->runtime);
}

/* Before anything is done whose trace would be lost. */
static weir_status check_files(const run_options *options)
{
    weir_status status = options->trace != NULL ? sink_check(options->trace, "the trace") : WEIR_OK;
    return status == WEIR_OK && options->report != NULL ? sink_check(options->report, "the report") : status;
}

int run_prepare(run *all)
{
    const run_options *options = all->options;
    bool kept = options->trace != NULL || options->report != NULL;
    weir_status status = check_files(options);
    if (status == WEIR_OK)
        status = set_budgets(all);
    if (status != WEIR_OK)
        return cannot_start(options, status);
    int answer = look_at_chosen(all);
    if (answer >= 0)
        return answer;
    status = find_runtime(all);
    if (status == WEIR_OK)
        status = timeline_start(all->runtime, kept, &all->line);
    if (status != WEIR_OK)
        return cannot_start(options, status);
    run_uses_device(all, all->runtime);
    for (size_t i = 0; i < all->count; i++) {
        if (all->jobs[i].runtime == NULL)
            all->jobs[i].runtime = all->runtime;
        run_uses_device(all, all->jobs[i].runtime);
    }
    return -1;
}
