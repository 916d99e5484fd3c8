/* Runs that are computed together, as one run with the rows of all (model.h). */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weir/base.h>
#include <weir/engine.h>

enum stage { WAITS, TAKEN, COPIED, DONE };

/* A run in the line or in a group; on its thread's stack. */
typedef struct member {
    onnx_run run;
    const weir_inference *asked;
    int64_t rows;
    struct timespec until; /* end of the wait for further runs */
    bool alone;            /* has failed in a group, and is computed by itself */
    enum stage stage;
    struct group *group; /* from COPIED on */
    weir_status status;
    char detail[1024];
    weir_outputs *out;
    pthread_cond_t wake;
    struct member *next;
} member;

typedef struct group {
    member *members[ONNX_BATCH_MOST]; /* NULL: it has left */
    size_t count;
    int64_t rows;
    onnx_run run;
    weir_tensor *inputs; /* all rows, in memory of the client's */
    size_t input_count;
} group;

struct onnx_join {
    pthread_mutex_t lock; /* guards what follows; before the model's */
    member *first;
    size_t computing;
    size_t limit;
    bool unfit; /* results could not be split: from then on each run is computed by itself */
};

/* ---- begin and end --------------------------------------------------------------------------------------------------- */

static weir_status check_ports(const weir_engine_model *model, const onnx_ports *ports, const char *what)
{
    for (size_t i = 0; i < ports->count; i++) {
        const weir_port *port = &ports->list[i];
        if (!port->optional && (port->rank == 0 || port->shape[0] >= 0))
            return weir_fail(WEIR_ERR_INVALID,
                             "setting max_batch_size: runs are joined along the first extent, and the %s \"%s\" of %s "
                             "has no open one",
                             what, port->name, model->name);
    }
    return WEIR_OK;
}

weir_status onnx_join_begin(weir_engine_model *model)
{
    weir_status status = check_ports(model, &model->inputs, "input");
    if (status == WEIR_OK)
        status = check_ports(model, &model->outputs, "output");
    if (status != WEIR_OK)
        return status;
    onnx_join *j = calloc(1, sizeof *j);
    if (!j)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for the line of its runs", model->name);
    pthread_mutex_init(&j->lock, NULL);
    j->limit = model->device.cuda ? model->slot_count : (size_t)model->settings.concurrency;
    j->limit = j->limit ? j->limit : 1;
    model->join = j;
    return WEIR_OK;
}

void onnx_join_end(weir_engine_model *model)
{
    if (!model->join)
        return;
    pthread_mutex_destroy(&model->join->lock);
    free(model->join);
    model->join = NULL;
}

void onnx_outputs_together(weir_outputs *out, uint64_t runs)
{
    if (out->struct_size >= offsetof(weir_outputs, together) + sizeof out->together)
        out->together = runs;
}

/* ---- which go together ------------------------------------------------------------------------------------------------- */

static bool join_is_open(const weir_engine_model *model, const char *name)
{
    for (size_t i = 0; i < model->inputs.count; i++)
        if (strcmp(model->inputs.names[i], name) == 0)
            return model->inputs.list[i].rank > 0 && model->inputs.list[i].shape[0] < 0;
    return false;
}

/* Rows of all its inputs; 0: they have none, or not the same. */
static int64_t join_rows_of(const weir_engine_model *model, const weir_inference *inference)
{
    int64_t rows = inference->input_count ? onnx_input_at(inference, 0)->shape[0] : 0;
    for (size_t i = 0; i < inference->input_count; i++) {
        const weir_tensor *tensor = onnx_input_at(inference, i);
        if (!join_is_open(model, tensor->name) || tensor->shape[0] != rows)
            return 0;
    }
    return rows;
}

/* Inputs were checked against the model: same names have same types and ranks. */
static bool are_alike(const weir_inference *a, const weir_inference *b)
{
    if (a->input_count != b->input_count)
        return false;
    for (size_t i = 0; i < a->input_count; i++) {
        const weir_tensor *one = onnx_input_at(a, i), *other = onnx_input_named(b, one->name);
        if (!other || memcmp(one->shape + 1, other->shape + 1, (one->rank - 1) * sizeof *one->shape) != 0)
            return false;
    }
    return true;
}

/* The first of the line, and those behind it that go with it, in their order, as many as fit. *full: no more would.
 * `take`: out of the line. Behind a run that may be computed with others none is to be computed alone. */
static void join_look(const weir_engine_model *model, group *out, bool take, bool *full)
{
    onnx_join *j = model->join;
    const member *head = j->first;
    int64_t most = head->alone ? head->rows : model->settings.batch;
    *full = head->alone;
    out->count = 0;
    out->rows = 0;
    for (member **link = &j->first, *it; (it = *link) && out->rows < most;) {
        bool goes = it == head || are_alike(head->asked, it->asked);
        if (goes && out->rows + it->rows > most) {
            *full = true;
            break;
        }
        if (goes) {
            out->members[out->count++] = it;
            out->rows += it->rows;
        }
        if (goes && take) {
            it->stage = TAKEN;
            *link = it->next;
        } else {
            link = &it->next;
        }
    }
    *full = *full || out->rows == most;
}

/* ---- the call for several ---------------------------------------------------------------------------------------------- */

/* Makes the group's tensor for an input: the rows of the members in order. */
static weir_status join_input(weir_engine_model *model, const group *g, const weir_tensor *model_of, weir_tensor *out)
{
    weir_block block = {0};
    weir_request request = WEIR_INIT(weir_request);
    *out = WEIR_INIT(weir_tensor);
    out->name = model_of->name;
    out->type = model_of->type;
    out->rank = model_of->rank;
    memcpy(out->shape, model_of->shape, sizeof out->shape);
    out->shape[0] = g->rows;
    for (size_t i = 0; i < g->count; i++)
        out->bytes += onnx_input_named(g->members[i]->asked, out->name)->bytes;
    request.bytes = out->bytes;
    request.memory_class = WEIR_CLASS_ACTIVATIONS;
    request.stream = WEIR_STREAM_HOST;
    request.tag = "joined inputs";
    request.kind = WEIR_KIND_HOST;
    weir_status status = weir_alloc_with(model->client, &request, &block);
    out->data = block.pointer;
    char *to = block.pointer;
    for (size_t i = 0; status == WEIR_OK && i < g->count; i++) {
        const weir_tensor *from = onnx_input_named(g->members[i]->asked, out->name);
        if (from->bytes)
            memcpy(to, from->data, from->bytes);
        to += from->bytes;
    }
    return status;
}

static weir_status join_inputs(weir_engine_model *model, group *g)
{
    const weir_inference *head = g->members[0]->asked;
    g->inputs = calloc(head->input_count, sizeof *g->inputs);
    if (!g->inputs)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory for runs together", model->name);
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < head->input_count && status == WEIR_OK; i++)
        status = join_input(model, g, onnx_input_at(head, i), &g->inputs[g->input_count++]);
    return status;
}

static void free_inputs(weir_engine_model *model, group *g)
{
    for (size_t i = 0; i < g->input_count; i++)
        if (g->inputs[i].data && weir_free(model->client, g->inputs[i].data, WEIR_STREAM_HOST) != WEIR_OK)
            weir_log(WEIR_LOG_WARNING, "onnx: inputs of runs together could not be freed: %s", weir_detail());
    free(g->inputs);
}

/* From here on a member may leave, as its inputs are read no more; and the call ends when all have. */
static void join_let_go(weir_engine_model *model, group *g)
{
    pthread_mutex_lock(&model->join->lock);
    pthread_mutex_lock(&model->lock);
    for (size_t i = 0; i < g->count; i++) {
        member *it = g->members[i];
        it->stage = COPIED;
        it->group = g;
        it->run.within = &g->run;
        g->run.wanted += !it->run.cancelled;
        pthread_cond_signal(&it->wake);
    }
    g->run.cancelled = g->run.wanted == 0;
    pthread_mutex_unlock(&model->lock);
    pthread_mutex_unlock(&model->join->lock);
}

/* A cancel finds the call no more. */
static void take_back(weir_engine_model *model, const group *g)
{
    pthread_mutex_lock(&model->lock);
    for (size_t i = 0; i < g->count; i++)
        if (g->members[i])
            g->members[i]->run.within = NULL;
    pthread_mutex_unlock(&model->lock);
}

static bool can_be_split(const weir_outputs *all, int64_t rows)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->tensors[i].rank == 0 || all->tensors[i].shape[0] != rows || all->tensors[i].on_device)
            return false;
    return true;
}

/* Its rows of the results, in place. */
static weir_status give_part(member *it, const weir_outputs *all, int64_t rows, int64_t from, size_t together)
{
    weir_tensor *tensors = calloc(all->count + 1, sizeof *tensors);
    if (!tensors)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the results of a run");
    for (size_t i = 0; i < all->count; i++) {
        size_t row = all->tensors[i].bytes / (size_t)rows;
        tensors[i] = all->tensors[i];
        tensors[i].shape[0] = it->rows;
        tensors[i].bytes = row * (size_t)it->rows;
        if (tensors[i].data)
            tensors[i].data = (char *)tensors[i].data + row * (size_t)from;
    }
    onnx_results *results = all->engine_data;
    atomic_fetch_add(&results->others, 1);
    it->out->tensors = tensors;
    it->out->count = all->count;
    it->out->engine_data = results;
    onnx_outputs_together(it->out, together);
    return WEIR_OK;
}

static void end_with(member *it, weir_status status)
{
    it->status = status;
    snprintf(it->detail, sizeof it->detail, "%s", status == WEIR_OK ? "" : weir_detail());
    it->stage = DONE;
    pthread_cond_signal(&it->wake);
}

/* Puts the members back at the head of the line, in their order, each to be computed by itself. */
static void try_alone(onnx_join *j, const group *g)
{
    for (size_t i = g->count; i-- > 0;) {
        member *it = g->members[i];
        if (!it)
            continue;
        it->alone = true;
        it->stage = WAITS;
        it->group = NULL;
        it->next = j->first;
        j->first = it;
        pthread_cond_signal(&it->wake);
    }
}

/* With the lock. Rows of a member that has left are left out. */
static void join_hand_out(weir_engine_model *model, const group *g, const int64_t *rows, const weir_outputs *all)
{
    int64_t from = 0;
    for (size_t i = 0; i < g->count; from += rows[i], i++)
        if (g->members[i]) {
            member *it = g->members[i];
            weir_status status = onnx_strike_done(model, &it->run);
            end_with(it, status == WEIR_OK ? give_part(it, all, g->rows, from, g->count) : status);
            onnx_count_runs(model, it->status, 1, 0);
        }
}

static void compute_several(weir_engine_model *model, group *g)
{
    onnx_join *j = model->join;
    weir_inference all = WEIR_INIT(weir_inference);
    weir_outputs out = WEIR_INIT(weir_outputs);
    int64_t *rows = calloc(g->count, sizeof *rows);
    weir_status status = rows ? join_inputs(model, g) : weir_fail(WEIR_ERR_SYSTEM, "%s: no host memory", model->name);
    for (size_t i = 0; rows && i < g->count; i++)
        rows[i] = g->members[i]->rows;
    g->run = (onnx_run){.of_several = true};
    all.inputs = g->inputs;
    all.input_count = g->input_count;
    onnx_enlist(model, &g->run);
    join_let_go(model, g);
    if (status == WEIR_OK)
        status = onnx_infer_alone(model, &all, &g->run, &out);
    onnx_strike(model, &g->run);
    free_inputs(model, g);
    pthread_mutex_lock(&j->lock);
    take_back(model, g);
    bool split = status == WEIR_OK && can_be_split(&out, g->rows);
    if (split)
        join_hand_out(model, g, rows, &out);
    else
        try_alone(j, g);
    if (status == WEIR_OK && !split) {
        j->unfit = true;
        for (member *it = j->first; it; it = it->next)
            it->alone = true;
        weir_log(WEIR_LOG_WARNING,
                 "%s: results of several runs have not as many rows as the inputs: from now on each "
                 "is computed by itself",
                 model->name);
    }
    pthread_mutex_unlock(&j->lock);
    if (status == WEIR_OK)
        onnx_release_outputs(model, &out);
    free(rows);
}

/* ---- a run ------------------------------------------------------------------------------------------------------------- */

static bool join_is_over(const struct timespec *until)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

static void wake_first(const onnx_join *j)
{
    if (j->first)
        pthread_cond_signal(&j->first->wake);
}

static void compute_one(weir_engine_model *model, member *it)
{
    weir_status status = onnx_infer_alone(model, it->asked, &it->run, it->out);
    pthread_mutex_lock(&model->join->lock);
    end_with(it, status);
    pthread_mutex_unlock(&model->join->lock);
}

/* With the lock, which it gives up meanwhile. */
static void join_compute(weir_engine_model *model, group *g)
{
    onnx_join *j = model->join;
    bool full;
    join_look(model, g, true, &full);
    j->computing++;
    wake_first(j);
    pthread_mutex_unlock(&j->lock);
    if (g->count == 1)
        compute_one(model, g->members[0]);
    else
        compute_several(model, g);
    pthread_mutex_lock(&j->lock);
    j->computing--;
    wake_first(j);
}

static void join_leave(weir_engine_model *model, member *it)
{
    onnx_join *j = model->join;
    if (it->stage == WAITS) {
        member **link = &j->first;
        while (*link != it)
            link = &(*link)->next;
        *link = it->next;
        wake_first(j);
    } else {
        pthread_mutex_lock(&model->lock);
        it->run.within = NULL;
        pthread_mutex_unlock(&model->lock);
        for (size_t i = 0; i < it->group->count; i++)
            if (it->group->members[i] == it)
                it->group->members[i] = NULL;
    }
    end_with(it, onnx_check_cancelled(model, &it->run));
    onnx_count_runs(model, WEIR_ERR_CANCELLED, 1, 0);
}

/* What this thread does next for its run. With the lock, which it gives up meanwhile. */
static void join_go_on(weir_engine_model *model, member *it, group *g)
{
    onnx_join *j = model->join;
    bool is_first = it->stage == WAITS && j->first == it && j->computing < j->limit, full = false;
    if ((it->stage == WAITS || it->stage == COPIED) && onnx_check_cancelled(model, &it->run) != WEIR_OK) {
        join_leave(model, it);
        return;
    }
    if (is_first)
        join_look(model, g, false, &full);
    if (is_first && (full || join_is_over(&it->until)))
        join_compute(model, g);
    else if (is_first)
        pthread_cond_timedwait(&it->wake, &j->lock, &it->until);
    else
        pthread_cond_wait(&it->wake, &j->lock);
}

static void join_line_up(weir_engine_model *model, member *it)
{
    onnx_join *j = model->join;
    pthread_condattr_t monotonic;
    uint64_t delay = (uint64_t)model->settings.batch_delay;
    clock_gettime(CLOCK_MONOTONIC, &it->until);
    it->until.tv_sec += (time_t)(delay / 1000000);
    it->until.tv_nsec += (long)(delay % 1000000) * 1000;
    if (it->until.tv_nsec >= 1000000000) {
        it->until.tv_sec++;
        it->until.tv_nsec -= 1000000000;
    }
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&it->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    member **link = &j->first;
    while (*link)
        link = &(*link)->next;
    *link = it;
    it->run.wake = &it->wake;
    wake_first(j);
}

weir_status onnx_join_infer(weir_engine_model *model, const weir_inference *inference, weir_outputs *out)
{
    onnx_join *j = model->join;
    bool to_host;
    weir_status status = onnx_check_run(model, inference, &to_host);
    if (status != WEIR_OK)
        return status;
    int64_t rows = to_host ? join_rows_of(model, inference) : 0;
    group *g = rows > 0 && rows <= model->settings.batch ? malloc(sizeof *g) : NULL;
    if (!g)
        return onnx_infer_alone(model, inference, NULL, out);
    member it = {.run = {.id = inference->id}, .asked = inference, .rows = rows, .out = out};
    g->inputs = NULL;
    g->input_count = 0;
    out->tensors = NULL;
    out->count = 0;
    out->engine_data = NULL;
    pthread_mutex_lock(&j->lock);
    it.alone = j->unfit;
    join_line_up(model, &it);
    onnx_enlist(model, &it.run);
    while (it.stage != DONE)
        join_go_on(model, &it, g);
    pthread_mutex_unlock(&j->lock);
    onnx_strike(model, &it.run);
    pthread_cond_destroy(&it.wake);
    free(g);
    return it.status == WEIR_OK ? WEIR_OK : weir_fail(it.status, "%s", it.detail);
}

void onnx_join_wake(weir_engine_model *model)
{
    onnx_join *j = model->join;
    if (!j)
        return;
    pthread_mutex_lock(&j->lock);
    pthread_mutex_lock(&model->lock);
    for (onnx_run *run = model->runs; run; run = run->next)
        if (run->wake)
            pthread_cond_signal(run->wake);
    pthread_mutex_unlock(&model->lock);
    pthread_mutex_unlock(&j->lock);
}
