/* statistics.c: what a model has done, as Triton's statistics extension tells it. */
#include "serve.h"

#include "cli/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- counting ------------------------------------------------------------------------------------------------------ */

static uint64_t milliseconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return (uint64_t)at.tv_sec * 1000 + (uint64_t)at.tv_nsec / 1000000;
}

static void count_batch(served_batches *to, uint64_t input, uint64_t infer, uint64_t output)
{
    atomic_fetch_add(&to->input, input);
    atomic_fetch_add(&to->infer, infer);
    atomic_fetch_add(&to->output, output);
    atomic_fetch_add(&to->runs, 1);
}

/* A second run with the same lease has not waited for the model. */
void served_count(served_run *run)
{
    if (!run->ended)
        return;
    served_statistics *to = &run->model->statistics;
    uint64_t now = served_now();
    if (run->status == WEIR_OK) {
        atomic_fetch_add(&to->success, now - run->asked);
        atomic_fetch_add(&to->queue, run->had - run->asked);
        atomic_fetch_add(&to->input, run->began - run->had);
        atomic_fetch_add(&to->infer, run->ended - run->began);
        atomic_fetch_add(&to->output, now - run->ended);
        atomic_fetch_add(&to->succeeded, 1);
        uint64_t place = run->together ? run->together - 1 : 0;
        count_batch(&to->batches[place < STATISTICS_BATCHES ? place : STATISTICS_BATCHES - 1], run->began - run->had,
                    run->ended - run->began, now - run->ended);
    } else {
        atomic_fetch_add(&to->failure, now - run->asked);
        atomic_fetch_add(&to->failed, 1);
    }
    atomic_store(&to->last, milliseconds() - (now - run->began) / 1000000);
    run->asked = run->had = now;
    run->ended = 0;
}

/* ---- telling ------------------------------------------------------------------------------------------------------- */

static json_t *duration(uint64_t count, uint64_t nanoseconds)
{
    return json_pack("{s:o, s:o}", "count", text_json_count(count), "ns", text_json_count(nanoseconds));
}

static json_t *sums_json(served_statistics *from)
{
    uint64_t good = from->succeeded;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "success", duration(good, from->success), "fail",
                     duration(from->failed, from->failure), "queue", duration(good, from->queue), "compute_input",
                     duration(good, from->input), "compute_infer", duration(good, from->infer), "compute_output",
                     duration(good, from->output), "cache_hit", duration(0, 0), "cache_miss", duration(0, 0));
}

/* Calls of an engine's library: each counts for all runs that it has computed together, which end one after the other. */
static uint64_t calls_of(served_batches *batches, size_t size)
{
    return (batches[size - 1].runs + size - 1) / size;
}

static json_t *batches_json(served_batches *batches)
{
    json_t *list = json_array();
    for (size_t size = 1; size <= STATISTICS_BATCHES; size++) {
        served_batches *of = &batches[size - 1];
        uint64_t calls = calls_of(batches, size);
        if (calls)
            json_array_append_new(list, json_pack("{s:I, s:o, s:o, s:o}", "batch_size", (json_int_t)size,
                                                  "compute_input", duration(calls, of->input / size), "compute_infer",
                                                  duration(calls, of->infer / size), "compute_output",
                                                  duration(calls, of->output / size)));
    }
    return list;
}

static uint64_t all_calls(served_batches *batches)
{
    uint64_t calls = 0;
    for (size_t size = 1; size <= STATISTICS_BATCHES; size++)
        calls += calls_of(batches, size);
    return calls;
}

static json_t *memory_json(const weir_pool_entry *entry)
{
    const char *number = strchr(entry->device, ':');
    bool of_device = strncmp(entry->device, "cuda", 4) == 0;
    uint64_t ordinal = 0;
    json_t *list = json_array();
    if (number)
        (void)text_number(number + 1, 0, UINT32_MAX, &ordinal);
    if (entry->taken)
        json_array_append_new(list, json_pack("{s:s, s:o, s:o}", "type", of_device ? "GPU" : "CPU", "id",
                                              text_json_count(ordinal), "byte_size", text_json_count(entry->taken)));
    return list;
}

static json_t *model_json(served *all, served_model *model)
{
    weir_pool_entry entry;
    served_statistics *from = &model->statistics;
    (void)served_look(all, model, &entry); /* all 0 where the pool knows nothing */
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "name", text_json(model->name), "version", "1",
                     "last_inference", text_json_count(from->last), "inference_count", text_json_count(from->succeeded),
                     "execution_count", text_json_count(all_calls(from->batches)), "inference_stats", sums_json(from),
                     "batch_stats", batches_json(from->batches), "memory_usage", memory_json(&entry));
}

/* Of the model that the path names, or of all. */
void v2_statistics(ws_request *request, void *user)
{
    served *all = user;
    json_t *list = json_array();
    if (ws_segment(request, 0)[0]) {
        served_model *model = v2_find(all, request);
        if (!model) {
            json_decref(list);
            return;
        }
        json_array_append_new(list, model_json(all, model));
        served_drop(model);
    } else {
        size_t count;
        served_model **models = served_list(all, &count);
        for (size_t i = 0; i < count; i++)
            json_array_append_new(list, model_json(all, models[i]));
        served_list_free(models, count);
    }
    answer_json(request, 200, json_pack("{s:o}", "model_stats", list));
}
