/* run.c: the verb run: prepares and loads the models one by one, runs the models together or one by one, unloads them and
 * prints the answer. */
#include "run.h"
#include <weir/engine.h>
#include <weir/model.h>

#include "cli/cli.h"
#include "cli/text.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The devices that models were on ---------------------------------------------------------------------------------- */

static void add_device(run *all, weir_runtime *runtime)
{
    for (size_t i = 0; i < all->device_count; i++)
        if (all->devices[i].runtime == runtime)
            return;
    all->devices[all->device_count++] = (run_device){.runtime = runtime};
}

static void close_devices(run *all)
{
    for (size_t i = 0; i < all->device_count; i++) {
        run_device *device = &all->devices[i];
        device->end = WEIR_INIT(weir_stats);
        device->budget = cli_runtime(device->runtime).budget;
        if (weir_snapshot(device->runtime, &device->end, NULL, 0, NULL) != WEIR_OK)
            cli_fail("%s", weir_detail());
        if (device->end.live == 0)
            continue;
        all->leaked = true;
        cli_fail("%" PRIu64 " bytes are still live on %s after everything was unloaded", device->end.live,
                 cli_runtime(device->runtime).device);
    }
    all->budget = all->devices[0].budget;
    all->end = all->devices[0].end;
}

/* Before a model is loaded: budgets, runtimes, the trace ----------------------------------------------------------- */

static weir_status run_set_budget(const run_budget *budget)
{
    weir_runtime *runtime = NULL;
    weir_runtime_options wanted = WEIR_INIT(weir_runtime_options);
    char bytes[24];
    if (budget->device[0] == '\0') { /* of every runtime made from here on */
        snprintf(bytes, sizeof bytes, "%" PRIu64, budget->bytes);
        return weir_option_set("budget", bytes);
    }
    wanted.budget = budget->bytes;
    return weir_runtime_get(budget->device, &wanted, &runtime);
}

static weir_status set_budgets(const run *all)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < all->args->budget_count && status == WEIR_OK; i++)
        status = run_set_budget(&all->args->budgets[i]);
    return status;
}

/* A device that cannot be parsed is bad usage; everything else is a failure. */
static int cannot_start(const run_args *args, const char *model, weir_status status)
{
    failure failed = {0};
    bool from_args = model == NULL && (args->budget_count > 0 || args->driver != NULL);
    if (status == WEIR_ERR_INVALID && from_args)
        return cli_usage("run", "--%s: %s", args->budget_count > 0 ? "budget" : "driver", weir_detail());
    failure_note(&failed, status, "start");
    cli_fail("%s", failed.detail);
    if (args->json)
        cli_print_json(json_pack("{s:o}", "error", failure_json(&failed, model)));
    failure_clear(&failed);
    return CLI_FAILED;
}

static int prepare_selected(run *all)
{
    int answer = -1;
    for (size_t i = 0; i < all->count && answer < 0; i++)
        if (all->models[i].args->selects)
            answer = selected_model_prepare(&all->models[i]);
    return answer;
}

/* Chooses the runtime of the run: that of --driver's device if --driver is given, a model makes no selection or no
 * model has a runtime; else the runtime of the first model that has a runtime. */
static weir_status find_runtime(run *all)
{
    bool wanted = all->args->driver != NULL;
    weir_runtime *chosen = NULL;
    for (size_t i = 0; i < all->count; i++) {
        wanted = wanted || !all->models[i].args->selects;
        chosen = chosen != NULL ? chosen : all->models[i].runtime;
    }
    if (!wanted && chosen != NULL) {
        all->runtime = chosen;
        return WEIR_OK;
    }
    return weir_runtime_get(run_driver(all->args), NULL, &all->runtime);
}

/* Checked first, so that no run is lost because its trace cannot be written. */
static weir_status check_files(const run_args *args)
{
    weir_status status = args->trace != NULL ? output_file_check(args->trace, "the trace") : WEIR_OK;
    return status == WEIR_OK && args->report != NULL ? output_file_check(args->report, "the report") : status;
}

/* What each model is guaranteed, and may have at most, binds before the first one is loaded. Answers as prepare. */
static int run_open_clients(run *all)
{
    for (size_t i = 0; i < all->count; i++) {
        model_run *m = &all->models[i];
        weir_status status = m->failed.status == WEIR_OK ? model_run_open(m) : WEIR_OK;
        if (status != WEIR_OK)
            return cannot_start(all->args, m->args->name, status);
    }
    return -1;
}

/* Answers -1 to go on, else the exit status. */
static int run_prepare(run *all)
{
    const run_args *args = all->args;
    bool written = args->trace != NULL || args->report != NULL;
    weir_status status = check_files(args);
    if (status == WEIR_OK)
        status = set_budgets(all);
    if (status != WEIR_OK)
        return cannot_start(args, NULL, status);
    int answer = prepare_selected(all);
    if (answer >= 0)
        return answer;
    status = find_runtime(all);
    if (status == WEIR_OK)
        status = timeline_start(all->runtime, written, &all->line);
    if (status != WEIR_OK)
        return cannot_start(args, NULL, status);
    add_device(all, all->runtime);
    for (size_t i = 0; i < all->count; i++) {
        if (all->models[i].runtime == NULL)
            all->models[i].runtime = all->runtime;
        add_device(all, all->models[i].runtime);
    }
    return run_open_clients(all);
}

/* A value in the environment that does not parse would go unnoticed. The budget needs no warning: with a bad
 * WEIR_BUDGET and no --budget no runtime is made. */
static void warn_of_rejected_options(void)
{
    weir_option option = WEIR_INIT(weir_option);
    for (size_t i = 0; weir_option_info(NULL, i, &option) == WEIR_OK; i++) {
        const char *given = getenv(option.environment);
        if (option.rejected && strcmp(option.name, "budget") != 0)
            cli_fail("%s=%s is not understood and not used; see 'weir options'", option.environment,
                     given != NULL ? given : "");
        option = WEIR_INIT(weir_option);
    }
}

static void run_begin_phase(run *all, const char *what, const char *name)
{
    run_phase *phase = &all->phases[all->phase_count++];
    phase->from = phase->to = (uint64_t)(run_clock() * 1e9);
    snprintf(phase->label, sizeof phase->label, "%s%s", what, name);
}

static void end_phase(run *all)
{
    all->phases[all->phase_count - 1].to = (uint64_t)(run_clock() * 1e9);
}

/* Stepping aside --------------------------------------------------------------------------------------------------- */

static void tell_failure(const model_run *m)
{
    if (m->failed.status != WEIR_OK && m->failed.status != WEIR_ERR_CANCELLED)
        failure_print(&m->failed, m->args->name);
}

/* A model that has failed gives back what it has before the next one is tried. */
static void run_give_back(run *all, model_run *m)
{
    if (m->failed.status == WEIR_OK)
        return;
    model_run_unload(m);
    add_device(all, m->runtime);
}

/* Whether the model has to leave for another model. */
static bool run_leaves(const run *all, const model_run *m, const model_run *next)
{
    return all->args->suspend_idle && m != next && m->model && !m->is_aside && m->failed.status == WEIR_OK;
}

/* Has `next` come where the only model was that has to leave. False: there is none, or there are more, or that was
 * refused, as for models of two devices. */
static bool run_change_places(run *all, model_run *next)
{
    model_run *leaves = NULL;
    size_t count = 0;
    for (size_t i = 0; i < all->count; i++)
        if (run_leaves(all, &all->models[i], next)) {
            leaves = &all->models[i];
            count++;
        }
    if (count != 1 || !next->is_aside || next->failed.status != WEIR_OK || all->args->show_idle)
        return false;
    run_begin_phase(all, "change to ", next->args->name);
    bool came = aside_exchange(all, leaves, next);
    end_phase(all);
    return came;
}

/* With --suspend-idle: suspends all models except `next`, and resumes `next`. */
static void run_make_room(run *all, model_run *next)
{
    if (run_change_places(all, next)) {
        tell_failure(next);
        run_give_back(all, next);
        return;
    }
    for (size_t i = 0; i < all->count; i++) {
        model_run *m = &all->models[i];
        if (!run_leaves(all, m, next))
            continue;
        run_begin_phase(all, "suspend ", m->args->name);
        aside_suspend(all, m);
        end_phase(all);
        tell_failure(m);
        run_give_back(all, m);
    }
    if (!next->is_aside || next->failed.status != WEIR_OK)
        return;
    run_begin_phase(all, "resume ", next->args->name);
    aside_resume(all, next);
    end_phase(all);
    tell_failure(next);
    run_give_back(all, next);
}

/* Loading, one model after another --------------------------------------------------------------------------------- */

static void load_all(run *all)
{
    all->began = run_clock();
    for (size_t i = 0; i < all->count && !interrupt_seen(); i++) {
        model_run *m = &all->models[i];
        run_make_room(all, m);
        run_begin_phase(all, "load ", m->args->name);
        if (m->failed.status == WEIR_OK)
            model_run_load(m, all->args->inputs, all->args->input_count);
        end_phase(all);
        tell_failure(m);
        run_give_back(all, m);
    }
}

static char *known_inputs(const run *all)
{
    char *known = text_copy("");
    for (size_t i = 0; i < all->count; i++) {
        weir_model_details info = WEIR_INIT(weir_model_details);
        if (all->models[i].model == NULL || weir_model_info(all->models[i].model, &info) != WEIR_OK)
            continue;
        char *names = inputs_names(&info);
        text_add(&known, "%s%s has %s", known[0] != '\0' ? "; " : "", all->models[i].args->name, names);
        free(names);
    }
    return known;
}

/* An input that no model has is bad usage. That is known when all models are loaded, and not at all if one failed to
 * load. Answers -1 to go on. */
static int run_check_inputs(const run *all)
{
    const run_args *args = all->args;
    bool complete = true;
    for (size_t i = 0; i < all->count; i++) {
        const failure *failed = &all->models[i].failed;
        if (failed->status == WEIR_ERR_NOT_FOUND && strcmp(failed->stage, "inputs") == 0)
            return CLI_USAGE; /* printed already */
        complete = complete && all->models[i].loaded;
    }
    for (size_t i = 0; complete && i < args->input_count; i++)
        if (!args->inputs[i].used) {
            char *known = known_inputs(all);
            int status = cli_usage("run", "%s %s: no model has such an input: %s", args->inputs[i].option,
                                   args->inputs[i].name, known);
            free(known);
            return status;
        }
    return -1;
}

/* Running, each model on a thread of its own ----------------------------------------------------------------------- */

/* Threads wait here until all of them exist. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
} gate;

typedef struct runner {
    model_run *model;
    gate *start;
    pthread_t thread;
} runner;

static void *run_model(void *user)
{
    runner *self = user;
    pthread_mutex_lock(&self->start->lock);
    while (!self->start->open)
        pthread_cond_wait(&self->start->opened, &self->start->lock);
    pthread_mutex_unlock(&self->start->lock);
    model_run_run(self->model);
    return NULL;
}

static void run_open_gate(gate *start)
{
    pthread_mutex_lock(&start->lock);
    start->open = true;
    pthread_cond_broadcast(&start->opened);
    pthread_mutex_unlock(&start->lock);
}

static void run_at_once(run *all)
{
    gate start = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    runner runners[RUN_MODELS_MOST];
    size_t made = 0;
    for (size_t i = 0; i < all->count; i++) {
        model_run *m = &all->models[i];
        runners[made] = (runner){.model = m, .start = &start};
        if (!model_run_good(m))
            continue;
        if (pthread_create(&runners[made].thread, NULL, run_model, &runners[made]) == 0)
            made++;
        else
            failure_note(&m->failed, weir_fail(WEIR_ERR_SYSTEM, "no thread to run it on"), "run");
    }
    run_open_gate(&start);
    for (size_t i = 0; i < made; i++)
        pthread_join(runners[i].thread, NULL);
}

static void run_one_by_one(run *all)
{
    for (size_t i = 0; i < all->count; i++) {
        model_run *m = &all->models[i];
        if (!model_run_good(m))
            continue;
        model_run_run(m);
        run_give_back(all, m);
    }
}

/* Runs the models one by one, each run as a phase of its own, as models are suspended and resumed between the runs. */
static void run_and_suspend(run *all)
{
    for (size_t i = 0; i < all->count; i++) {
        model_run *m = &all->models[i];
        if (!model_run_good(m) || interrupt_seen())
            continue;
        run_make_room(all, m);
        if (!model_run_good(m))
            continue;
        run_begin_phase(all, "run ", m->args->name);
        model_run_run(m);
        end_phase(all);
        run_give_back(all, m);
    }
}

static void run_run_all(run *all)
{
    double start = run_clock();
    if (all->args->suspend_idle) {
        run_and_suspend(all);
    } else {
        run_begin_phase(all, all->args->serial ? "one after another" : "all at once", "");
        if (all->args->serial)
            run_one_by_one(all);
        else
            run_at_once(all);
        end_phase(all);
    }
    all->seconds = run_clock() - start;
    for (size_t i = 0; i < all->count; i++) {
        const failure *failed = &all->models[i].failed;
        if (failed->status != WEIR_OK && failed->status != WEIR_ERR_CANCELLED && strcmp(failed->stage, "run") == 0)
            failure_print(failed, all->models[i].args->name);
    }
}

static void prepare_streams(run *all)
{
    size_t generating = 0;
    for (size_t i = 0; i < all->count; i++)
        generating += all->models[i].generates;
    for (size_t i = 0; i < all->count; i++)
        all->models[i].stream = (stream_print){.file = all->args->json ? stderr : stdout,
                                               .label = generating > 1 ? all->models[i].args->name : NULL};
}

/* Afterwards ------------------------------------------------------------------------------------------------------- */

static void run_unload_all(run *all)
{
    run_begin_phase(all, "unload", "");
    for (size_t i = 0; i < all->count; i++) {
        bool good = all->models[i].failed.status == WEIR_OK;
        model_run_unload(&all->models[i]);
        add_device(all, all->models[i].runtime);
        if (good && all->models[i].failed.status != WEIR_OK)
            failure_print(&all->models[i].failed, all->models[i].args->name);
    }
    end_phase(all);
    close_devices(all);
}

static void write_outputs(run *all)
{
    const char *folder = all->args->output;
    for (size_t i = 0; folder != NULL && i < all->count; i++) {
        model_run *m = &all->models[i];
        if (m->out.count == 0)
            continue;
        char *base = file_name_of(m->args->name);
        char *own = all->count > 1 ? text_print("%s/%s", folder, base) : text_copy(folder);
        weir_status status = outputs_write(&m->out, own);
        if (status != WEIR_OK) {
            failure_note(&m->failed, status, "output");
            failure_print(&m->failed, m->args->name);
        }
        free(own);
        free(base);
    }
}

static bool run_worked(weir_status status)
{
    if (status != WEIR_OK)
        cli_fail("%s", weir_detail());
    return status == WEIR_OK;
}

/* A trace or report that cannot be written is a failure, but the results are shown all the same. */
static bool write_files(run *all)
{
    const char *trace = all->args->trace, *report = all->args->report;
    if (!run_worked(timeline_stop(all->line)))
        return false;
    all->trace = trace != NULL && run_worked(timeline_write_csv(all->line, trace)) ? trace : NULL;
    all->report = report != NULL && run_worked(report_write(all, report)) ? report : NULL;
    return all->trace == trace && all->report == report;
}

uint64_t run_peak_share(const run *all, const char *client, uint64_t by_class[WEIR_CLASS_COUNT])
{
    const holdings *peak = timeline_peak(all->line);
    size_t place = holdings_find(peak, client);
    uint64_t sum = 0;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++) {
        int64_t bytes = place < peak->count ? peak->clients[place].bytes[i] : 0;
        uint64_t value = bytes > 0 ? (uint64_t)bytes : 0;
        if (by_class != NULL)
            by_class[i] = value;
        sum += value;
    }
    return sum;
}

const failure *run_failure(const run *all, const char **model)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->models[i].failed.status != WEIR_OK) {
            *model = all->models[i].args->name;
            return &all->models[i].failed;
        }
    return NULL;
}

static int run_models(run *all)
{
    const char *model = NULL;
    load_all(all);
    int usage = run_check_inputs(all);
    if (usage < 0) {
        prepare_streams(all);
        run_run_all(all);
    }
    run_unload_all(all);
    if (usage >= 0)
        return usage;
    write_outputs(all);
    bool good = write_files(all) && !all->leaked;
    int shown = CLI_OK;
    if (all->args->json)
        shown = run_print_json(all);
    else
        run_print_table(all);
    if (interrupt_seen()) {
        cli_fail("stopped");
        return CLI_INTERRUPTED;
    }
    return good && run_failure(all, &model) == NULL ? cli_flush(shown) : CLI_FAILED;
}

static void run_clear(run *all)
{
    for (size_t i = 0; i < all->count; i++)
        model_run_clear(&all->models[i]);
    free(all->models);
    timeline_free(all->line);
}

static int start_and_run(run_args *args)
{
    run all = {.args = args, .count = args->model_count};
    all.models = text_zeroed(all.count, sizeof *all.models);
    for (size_t i = 0; i < all.count; i++)
        model_run_begin(&all.models[i], args, (int)i);
    int answer = run_prepare(&all);
    if (answer < 0)
        answer = run_models(&all);
    run_clear(&all);
    return answer;
}

int verb_run(int argc, char **argv)
{
    run_args args;
    interrupt_begin();
    int status = run_args_read(argc, argv, &args);
    if (status < 0) {
        warn_of_rejected_options();
        status = start_and_run(&args);
    }
    run_args_clear(&args);
    return status;
}
