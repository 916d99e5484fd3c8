/* run_json.c: a run as one JSON object. The keys stay put: scripts and measurements read them. */
#include "run.h"

#include "cli/cli.h"
#include "measure.h"
#include "cli/text.h"

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *classes_json(const uint64_t by_class[WEIR_CLASS_COUNT])
{
    json_t *object = json_object();
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        json_object_set_new(object, weir_class_name((weir_class)i), integer(by_class[i]));
    return object;
}

static json_t *client_json(const job *work)
{
    const weir_client_stats *stats = &work->stats;
    json_t *object = json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "name", text_json(work->words->name), "engine",
                               text_json(work->engine), "version", text_json(work->version), "provider",
                               text_json(work->provider), "device", weir_runtime_device(work->runtime), "architecture",
                               text_json(work->architecture), "peak", integer(stats->peak));
    json_t *by_class = classes_json(stats->peak_class);
    json_object_update(object, by_class);
    json_decref(by_class);
    json_object_set_new(object, "outside", work->measured ? integer(work->outside) : json_null());
    if (measure_is_device(work->runtime))
        json_object_set_new(object, "outside_host", work->measured ? integer(work->outside_host) : json_null());
    json_object_set_new(object, "outside_once", work->measured ? integer(work->outside_once) : json_null());
    json_object_set_new(object, "outside_method",
                        text_json(work->measured ? stats->outside_method : "not measured here"));
    json_object_set_new(object, "remarks", text_json(work->remarks));
    json_object_set_new(object, "guaranteed", integer(stats->guaranteed));
    json_object_set_new(object, "maximum", integer(stats->maximum));
    json_object_set_new(object, "allocations", integer(stats->allocations));
    json_object_set_new(object, "refusals", integer(stats->refusals));
    json_object_set_new(object, "load_seconds", json_real(work->load_seconds));
    json_object_set_new(object, "first_run_seconds", json_real(work->first_seconds));
    json_object_set_new(object, "seconds", json_real(work->seconds));
    json_object_set_new(object, "runs", integer(work->runs));
    json_object_set_new(object, "shares", work->shares != NULL ? json_incref(work->shares) : json_array());
    json_object_set_new(object, "attempts", work->attempts != NULL ? json_incref(work->attempts) : json_array());
    json_object_set_new(object, "left_out", integer(work->left_out));
    json_object_set_new(object, "last_resort", json_boolean(work->last_resort));
    json_object_set_new(object, "outputs", outputs_json(&work->out));
    if (work->failed.status != WEIR_OK)
        json_object_set_new(object, "error", failure_json(&work->failed, work->words->name));
    return object;
}

static json_t *peak_clients_json(const run *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++) {
        uint64_t by_class[WEIR_CLASS_COUNT];
        uint64_t bytes = run_peak_share(all, all->jobs[i].words->name, by_class);
        if (bytes == 0)
            continue;
        json_t *object = json_pack("{s:o, s:o}", "name", text_json(all->jobs[i].words->name), "bytes", integer(bytes));
        json_t *classes = classes_json(by_class);
        json_object_update(object, classes);
        json_decref(classes);
        json_array_append_new(list, object);
    }
    return list;
}

static json_t *failures_json(const run *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++)
        if (all->jobs[i].failed.status != WEIR_OK)
            json_array_append_new(list, failure_json(&all->jobs[i].failed, all->jobs[i].words->name));
    return list;
}

static json_t *devices_json(const run *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->device_count; i++) {
        const run_device *one = &all->devices[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:o, s:o, s:o, s:o}", "device", weir_runtime_device(one->runtime),
                                        "budget", integer(one->budget), "peak", integer(one->end.peak), "peak_held",
                                        integer(one->end.peak_held), "live_at_end", integer(one->end.live)));
    }
    return list;
}

int run_print_json(const run *all)
{
    const char *model = NULL;
    const failure *failed = run_failure(all, &model);
    json_t *object = json_object(), *clients = json_array();
    if (failed != NULL) {
        json_object_set_new(object, "error", failure_json(failed, model));
        json_object_set_new(object, "errors", failures_json(all));
    }
    for (size_t i = 0; i < all->count; i++)
        if (all->jobs[i].loaded)
            json_array_append_new(clients, client_json(&all->jobs[i]));
    json_object_set_new(object, "budget", integer(all->budget));
    json_object_set_new(object, "peak", integer(all->end.peak));
    json_object_set_new(object, "peak_held", integer(all->end.peak_held));
    json_object_set_new(object, "peak_clients", peak_clients_json(all));
    json_object_set_new(object, "live_at_end", integer(all->end.live));
    json_object_set_new(object, "devices", devices_json(all));
    json_object_set_new(object, "seconds", json_real(all->seconds));
    json_object_set_new(object, "events", integer(timeline_events(all->line)));
    json_object_set_new(object, "events_lost", integer(timeline_lost(all->line)));
    json_object_set_new(object, "driver_calls", integer(all->end.driver_calls));
    json_object_set_new(object, "trace", all->trace != NULL ? text_json(all->trace) : json_null());
    json_object_set_new(object, "report", all->report != NULL ? text_json(all->report) : json_null());
    json_object_set_new(object, "clients", clients);
    return cli_print_json(object);
}
