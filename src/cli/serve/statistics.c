/* statistics.c: what a model has done, as Triton's statistics extension tells it. */
#include "serve.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- counting ------------------------------------------------------------------------------------------------------ */

static uint64_t statistics_milliseconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    return (uint64_t)at.tv_sec * 1000 + (uint64_t)at.tv_nsec / 1000000;
}

static void count_batch(served_batches *to, uint64_t input, uint64_t infer, uint64_t output)
{
    to->input += input;
    to->infer += infer;
    to->output += output;
    to->runs++;
}

static void count_success(served_statistics *to, const served_run *run, uint64_t now)
{
    uint64_t input = run->began - run->had, infer = run->ended - run->began, output = now - run->ended;
    uint64_t place = run->together ? run->together - 1 : 0;
    to->success += now - run->asked;
    to->queue += run->had - run->asked;
    to->input += input;
    to->infer += infer;
    to->output += output;
    to->succeeded++;
    count_batch(&to->batches[place < STATISTICS_BATCHES ? place : STATISTICS_BATCHES - 1], input, infer, output);
}

/* A second run with the same lease has not waited for the model. */
void served_count(served_run *run)
{
    if (!run->ended)
        return;
    served_statistics *to = &run->model->statistics;
    uint64_t now = cli_now(), began = statistics_milliseconds() - (now - run->began) / 1000000;
    pthread_mutex_lock(&run->model->counting);
    if (run->status == WEIR_OK) {
        count_success(to, run, now);
    } else {
        to->failure += now - run->asked;
        to->failed++;
    }
    to->last = began;
    pthread_mutex_unlock(&run->model->counting);
    run->asked = run->had = now;
    run->ended = 0;
}

void served_count_call(served_run *run)
{
    served_statistics *to = &run->model->statistics;
    pthread_mutex_lock(&run->model->counting);
    to->runs++;
    to->cancelled += run->status == WEIR_ERR_CANCELLED;
    to->failures += run->status != WEIR_OK && run->status != WEIR_ERR_CANCELLED;
    to->computed += run->ended - run->began;
    pthread_mutex_unlock(&run->model->counting);
}

void served_counted(served_model *model, served_statistics *out)
{
    pthread_mutex_lock(&model->counting);
    *out = model->statistics;
    pthread_mutex_unlock(&model->counting);
}

/* ---- telling ------------------------------------------------------------------------------------------------------- */

static json_t *duration(uint64_t count, uint64_t nanoseconds)
{
    return json_pack("{s:o, s:o}", "count", text_json_count(count), "ns", text_json_count(nanoseconds));
}

static json_t *sums_json(const served_statistics *from)
{
    uint64_t good = from->succeeded;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "success", duration(good, from->success), "fail",
                     duration(from->failed, from->failure), "queue", duration(good, from->queue), "compute_input",
                     duration(good, from->input), "compute_infer", duration(good, from->infer), "compute_output",
                     duration(good, from->output), "cache_hit", duration(0, 0), "cache_miss", duration(0, 0));
}

/* Returns the number of engine calls that computed `size` runs together, rounded up, as the runs of a call end one
 * after another. */
static uint64_t calls_of(const served_batches *batches, size_t size)
{
    return (batches[size - 1].runs + size - 1) / size;
}

static json_t *batches_json(const served_batches *batches)
{
    json_t *list = json_array();
    for (size_t size = 1; size <= STATISTICS_BATCHES; size++) {
        const served_batches *of = &batches[size - 1];
        uint64_t calls = calls_of(batches, size);
        if (calls)
            json_array_append_new(list, json_pack("{s:I, s:o, s:o, s:o}", "batch_size", (json_int_t)size,
                                                  "compute_input", duration(calls, of->input / size), "compute_infer",
                                                  duration(calls, of->infer / size), "compute_output",
                                                  duration(calls, of->output / size)));
    }
    return list;
}

static uint64_t all_calls(const served_batches *batches)
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

static json_t *statistics_model_json(served *all, served_model *model)
{
    weir_pool_entry entry;
    served_statistics from;
    served_counted(model, &from);
    (void)served_look(all, model, &entry); /* all 0 where the pool knows nothing */
    return json_pack("{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "name", text_json(model->name), "version", "1",
                     "last_inference", text_json_count(from.last), "inference_count", text_json_count(from.succeeded),
                     "execution_count", text_json_count(all_calls(from.batches)), "inference_stats", sums_json(&from),
                     "batch_stats", batches_json(from.batches), "memory_usage", memory_json(&entry));
}

/* Of the model that the path names, or of all. */
void v2_statistics(ws_request *request, void *user)
{
    served *all = user;
    bool named = ws_segment(request, 0)[0];
    served_model *model = named ? v2_find(all, request) : NULL;
    if (model || !named)
        answer_json(request, 200,
                    json_pack("{s:o}", "model_stats",
                              model ? json_pack("[o]", statistics_model_json(all, model))
                                    : served_list_json(all, statistics_model_json)));
    served_drop(model);
}
