/* run.c: `weir run`, step by step. */
#include "run.h"

#include "cli.h"
#include "interrupt.h"
#include "names.h"
#include "report.h"
#include "text.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- before ---- */

/* A value in the environment that was not understood would otherwise be overlooked in silence; that of the budget is not:
 * without --budget there is no runtime then. */
static void warn_of_rejected_options(void)
{
    weir_option option = WEIR_INIT(weir_option);
    for (size_t i = 0; weir_option_at(i, &option) == WEIR_OK; i++) {
        const char *given = getenv(option.environment);
        if (option.rejected && strcmp(option.name, "budget") != 0)
            cli_fail("%s=%s is not understood and not used; see 'weir options'", option.environment,
                     given != NULL ? given : "");
        option = WEIR_INIT(weir_option);
    }
}

static void begin_phase(run *all, const char *what, const char *name)
{
    run_phase *phase = &all->phases[all->phase_count++];
    phase->from = phase->to = (uint64_t)(job_clock() * 1e9);
    snprintf(phase->label, sizeof phase->label, "%s%s", what, name);
}

static void end_phase(run *all)
{
    all->phases[all->phase_count - 1].to = (uint64_t)(job_clock() * 1e9);
}

/* ---- loading, one after another ---- */

static void load_all(run *all)
{
    for (size_t i = 0; i < all->count && !interrupt_seen(); i++) {
        job *work = &all->jobs[i];
        begin_phase(all, "load ", work->words->name);
        if (work->failed.status == WEIR_OK)
            job_load(work, all->options->inputs, all->options->input_count);
        end_phase(all);
        if (work->failed.status != WEIR_OK && work->failed.status != WEIR_ERR_CANCELLED)
            failure_tell(&work->failed, work->words->name);
    }
}

static char *known_inputs(const run *all)
{
    char *known = text_copy("");
    for (size_t i = 0; i < all->count; i++) {
        weir_model_info info = WEIR_INIT(weir_model_info);
        if (all->jobs[i].model == NULL || weir_model_info_get(all->jobs[i].model, &info) != WEIR_OK)
            continue;
        char *names = inputs_names(&info);
        char *more = text_print("%s%s%s has %s", known, known[0] != '\0' ? "; " : "", all->jobs[i].words->name, names);
        free(names);
        free(known);
        known = more;
    }
    return known;
}

/* An input that no model has is bad usage, which cannot be known before all models are loaded; with one of them missing
 * it cannot be known at all. Answers -1 to go on. */
static int check_inputs(const run *all)
{
    const run_options *options = all->options;
    bool complete = true;
    for (size_t i = 0; i < all->count; i++) {
        const failure *failed = &all->jobs[i].failed;
        if (failed->status == WEIR_ERR_NOT_FOUND && strcmp(failed->stage, "inputs") == 0)
            return CLI_USAGE; /* told already */
        complete = complete && all->jobs[i].model != NULL;
    }
    for (size_t i = 0; complete && i < options->input_count; i++)
        if (!options->inputs[i].used) {
            char *known = known_inputs(all);
            int status = cli_usage("run", "%s %s: no model has such an input: %s", options->inputs[i].option,
                                   options->inputs[i].name, known);
            free(known);
            return status;
        }
    return -1;
}

/* ---- running, each on a thread of its own ---- */

/* Threads wait here until all of them are made. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
} gate;

typedef struct runner {
    job *work;
    gate *start;
    pthread_t thread;
} runner;

static void *run_one(void *user)
{
    runner *self = user;
    pthread_mutex_lock(&self->start->lock);
    while (!self->start->open)
        pthread_cond_wait(&self->start->opened, &self->start->lock);
    pthread_mutex_unlock(&self->start->lock);
    job_run(self->work);
    return NULL;
}

static void open_gate(gate *start)
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
        job *work = &all->jobs[i];
        runners[made] = (runner){.work = work, .start = &start};
        if (!job_good(work))
            continue;
        if (pthread_create(&runners[made].thread, NULL, run_one, &runners[made]) == 0)
            made++;
        else
            failure_take(&work->failed, weir_fail(WEIR_ERR_SYSTEM, "no thread to run it on"), "run");
    }
    open_gate(&start);
    for (size_t i = 0; i < made; i++)
        pthread_join(runners[i].thread, NULL);
}

static void run_all(run *all)
{
    double start = job_clock();
    begin_phase(all, all->options->serial ? "one after another" : "all at once", "");
    if (!all->options->serial)
        run_at_once(all);
    for (size_t i = 0; all->options->serial && i < all->count; i++)
        if (job_good(&all->jobs[i]))
            job_run(&all->jobs[i]);
    end_phase(all);
    all->seconds = job_clock() - start;
    for (size_t i = 0; i < all->count; i++) {
        const failure *failed = &all->jobs[i].failed;
        if (failed->status != WEIR_OK && failed->status != WEIR_ERR_CANCELLED && strcmp(failed->stage, "run") == 0)
            failure_tell(failed, all->jobs[i].words->name);
    }
}

static void prepare_streams(run *all)
{
    size_t generating = 0;
    for (size_t i = 0; i < all->count; i++)
        generating += all->jobs[i].generates;
    for (size_t i = 0; i < all->count; i++)
        all->jobs[i].stream = (stream_print){.file = all->options->json ? stderr : stdout,
                                             .label = generating > 1 ? all->jobs[i].words->name : NULL};
}

/* ---- after ---- */

static void unload_all(run *all)
{
    begin_phase(all, "unload", "");
    for (size_t i = 0; i < all->count; i++) {
        bool good = all->jobs[i].failed.status == WEIR_OK;
        job_unload(&all->jobs[i]);
        run_uses_device(all, all->jobs[i].runtime);
        if (good && all->jobs[i].failed.status != WEIR_OK)
            failure_tell(&all->jobs[i].failed, all->jobs[i].words->name);
    }
    end_phase(all);
    run_close_devices(all);
}

static void write_outputs(run *all)
{
    const char *folder = all->options->output;
    for (size_t i = 0; folder != NULL && i < all->count; i++) {
        job *work = &all->jobs[i];
        if (work->out.count == 0)
            continue;
        char *base = names_of_file(work->words->name);
        char *own = all->count > 1 ? text_print("%s/%s", folder, base) : text_copy(folder);
        weir_status status = outputs_write(&work->out, own);
        if (status != WEIR_OK) {
            failure_take(&work->failed, status, "output");
            failure_tell(&work->failed, work->words->name);
        }
        free(own);
        free(base);
    }
}

static bool tell(weir_status status)
{
    if (status != WEIR_OK)
        cli_fail("%s", weir_detail());
    return status == WEIR_OK;
}

/* The trace and the report; what cannot be written is told, and the results are shown all the same. */
static bool write_files(run *all)
{
    const char *trace = all->options->trace, *report = all->options->report;
    if (!tell(timeline_stop(all->line)))
        return false;
    all->trace = trace != NULL && tell(timeline_write_csv(all->line, trace)) ? trace : NULL;
    all->report = report != NULL && tell(report_write(all, report)) ? report : NULL;
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
        if (all->jobs[i].failed.status != WEIR_OK) {
            *model = all->jobs[i].words->name;
            return &all->jobs[i].failed;
        }
    return NULL;
}

static int run_models(run *all)
{
    const char *model = NULL;
    load_all(all);
    int usage = check_inputs(all);
    if (usage < 0) {
        prepare_streams(all);
        run_all(all);
    }
    unload_all(all);
    if (usage >= 0)
        return usage;
    write_outputs(all);
    bool good = write_files(all) && !all->leaked;
    int shown = CLI_OK;
    if (all->options->json)
        shown = run_print_json(all);
    else
        run_print_table(all);
    if (interrupt_seen()) {
        cli_fail("stopped");
        return CLI_INTERRUPTED;
    }
    return good && run_failure(all, &model) == NULL ? cli_flush(shown) : CLI_FAILED;
}

static void clear(run *all)
{
    for (size_t i = 0; i < all->count; i++)
        job_clear(&all->jobs[i]);
    free(all->jobs);
    timeline_free(all->line);
}

static int start_and_run(run_options *options)
{
    run all = {.options = options, .count = options->model_count};
    all.jobs = text_zeroed(all.count, sizeof *all.jobs);
    for (size_t i = 0; i < all.count; i++)
        job_begin(&all.jobs[i], options, (int)i);
    int answer = run_prepare(&all);
    if (answer < 0)
        answer = run_models(&all);
    clear(&all);
    return answer;
}

int verb_run(int argc, char **argv)
{
    run_options options;
    interrupt_begin();
    int status = run_options_read(argc, argv, &options);
    if (status < 0) {
        warn_of_rejected_options();
        status = start_and_run(&options);
    }
    run_options_clear(&options);
    return status;
}
