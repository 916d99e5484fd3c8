/* A prepared call: its request is read once, and its results lie in memory of its own, which is filled again by each run.
 *
 * A run is weir_model_infer's in everything: it passes the model's gate, can be cancelled, and moves as any other. Its
 * results are the engine's; what lies in the host's memory is copied and given back at once, so that a call keeps nothing
 * of a model between two runs. What lies on a device is held until the next run begins. */
#include "factory/model/model.h"

#include <weir/engine.h>
#include <weir/model.h>

enum { ROOM_LEAST = 64 }; /* bytes, and their alignment */

/* Memory of the call's own for a result. One that has become too small is kept: it may still be read. */
typedef struct room {
    struct room *smaller;
    _Alignas(ROOM_LEAST) char memory[];
} room;

/* What a result has of the call's. */
typedef struct spot {
    char *memory; /* NULL: none yet */
    size_t bytes; /* of it */
    room *own;    /* NULL: it is the caller's */
    char *name;
} spot;

struct weir_model_call {
    weir_model *model;
    atomic_bool under_way;
    weir_inference asked;
    weir_model_call_options options;
    weir_outputs held; /* while `holds`: results on a device are among them */
    bool holds;
    weir_tensor *results;
    spot *places;
    size_t count, place_count; /* of results; of places for them */
    uint64_t layout;
    _Alignas(max_align_t) char memory[]; /* what was asked: inputs, settings, texts */
};

/* The request ------------------------------------------------------------------------------------------------------- */

static weir_status check_request(weir_model *model, const weir_inference *inference, weir_inference *out)
{
    static const char name[] = "weir_model_call_create";
    if (!model || !inference)
        return weir_fail(WEIR_ERR_INVALID, "%s: NULL", name);
    weir_status status = wi_request_check(inference, name, out);
    if (status == WEIR_OK && out->piece)
        status = weir_fail(WEIR_ERR_INVALID, "%s: a prepared call has its answer whole, and `piece` is set", name);
    return status;
}

/* The model stays for as long as there is a call of it. */
static weir_status call_join(weir_model *model)
{
    pthread_mutex_lock(&model->lock);
    bool gone = model->unloading;
    model->calls += !gone;
    pthread_mutex_unlock(&model->lock);
    return gone ? weir_fail(WEIR_ERR_INVALID, "weir_model_call_create: the model is being unloaded") : WEIR_OK;
}

weir_status weir_model_call_create(weir_model *model, const weir_inference *inference,
                                   const weir_model_call_options *options, weir_model_call **out)
{
    WI_ENTER();
    weir_inference asked;
    weir_model_call_options chosen = {0};
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_call_create: no place for the result");
    *out = NULL;
    weir_status status = check_request(model, inference, &asked);
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_model_call_options, &chosen, options, "weir_model_call_create");
    if (status != WEIR_OK)
        return status;
    wi_packer size = {NULL, 0};
    weir_inference counted;
    wi_request_pack(&size, &asked, false, &counted);
    weir_model_call *call = calloc(1, sizeof *call + size.used);
    if (!call)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a prepared call");
    status = call_join(model);
    if (status != WEIR_OK) {
        free(call);
        return status;
    }
    call->model = model;
    call->options = chosen;
    wi_request_pack(&(wi_packer){call->memory, 0}, &asked, false, &call->asked);
    *out = call;
    return WEIR_OK;
}

/* Results ----------------------------------------------------------------------------------------------------------- */

static bool call_make_places(weir_model_call *call, size_t count)
{
    if (count <= call->place_count)
        return true;
    weir_tensor *results = realloc(call->results, count * sizeof *results);
    if (!results)
        return false;
    call->results = results;
    spot *places = realloc(call->places, count * sizeof *places);
    if (!places)
        return false;
    call->places = places;
    memset(results + call->place_count, 0, (count - call->place_count) * sizeof *results);
    memset(places + call->place_count, 0, (count - call->place_count) * sizeof *places);
    call->place_count = count;
    return true;
}

static char *make_own(spot *of, size_t bytes)
{
    room *made = NULL;
    if (posix_memalign((void **)&made, ROOM_LEAST, sizeof *made + bytes) != 0)
        return NULL;
    made->smaller = of->own;
    of->own = made;
    return made->memory;
}

/* Makes at least `bytes` of room for a result. Doubles the last room, so that all outgrown rooms together are no larger
 * than the new room. */
static bool call_make_room(weir_model_call *call, size_t index, size_t bytes)
{
    spot *of = &call->places[index];
    if (of->memory && of->bytes >= bytes)
        return true;
    size_t wanted = wi_round_up(wi_max(bytes, of->memory ? 2 * of->bytes : ROOM_LEAST), ROOM_LEAST);
    if (wanted < bytes)
        return false;
    char *memory = call->options.room ? call->options.room(index, wanted, call->options.user) : make_own(of, wanted);
    if (!memory)
        return false;
    of->memory = memory;
    of->bytes = wanted;
    return true;
}

static bool make_name(char **of, const char *name)
{
    if (*of && strcmp(*of, name) == 0)
        return true;
    char *made = strdup(name);
    if (!made)
        return false;
    free(*of);
    *of = made;
    return true;
}

/* Makes room for every result of a run before results of the last run are touched. */
static bool call_prepare(weir_model_call *call, const weir_outputs *from)
{
    bool good = call_make_places(call, from->count);
    for (size_t i = 0; good && i < from->count; i++) {
        const weir_tensor *output = wi_tensor_at(from->tensors, i);
        good = wi_tensor_on_device(output) || call_make_room(call, i, output->bytes);
    }
    for (size_t i = 0; good && i < from->count; i++) {
        char *before = call->places[i].name;
        const char *name = wi_tensor_at(from->tensors, i)->name;
        good = make_name(&call->places[i].name, name ? name : "");
        if (before != call->places[i].name)
            call->results[i].rank = UINT32_MAX; /* as no result has */
    }
    return good;
}

static bool call_same_layout(const weir_tensor *a, const weir_tensor *b)
{
    return a->type == b->type && a->rank == b->rank && a->bytes == b->bytes && a->data == b->data &&
           a->on_device == b->on_device && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0;
}

/* Answers whether it lies and looks as the one before did. */
static bool take_result(weir_model_call *call, size_t index, const weir_tensor *from)
{
    weir_tensor made = {0};
    memcpy(&made, from, wi_min(from->struct_size, sizeof made));
    if (!made.on_device) {
        char *memory = call->places[index].memory;
        if (made.bytes > 0)
            memcpy(memory, made.data, made.bytes);
        made.data = memory;
    }
    made.struct_size = sizeof made;
    made.name = call->places[index].name;
    bool same = call_same_layout(&call->results[index], &made);
    call->results[index] = made;
    return same;
}

static void call_let_go(weir_model_call *call)
{
    if (!call->holds)
        return;
    weir_model_release_outputs(call->model, &call->held);
    call->holds = false;
    call->count = 0;
}

static weir_status model_call_take(weir_model_call *call, weir_outputs *from)
{
    if (!call_prepare(call, from)) {
        weir_model_release_outputs(call->model, from);
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the results of a prepared call");
    }
    bool same = call->layout > 0 && call->count == from->count, stays = false;
    for (size_t i = 0; i < from->count; i++) {
        same = take_result(call, i, wi_tensor_at(from->tensors, i)) && same;
        stays |= call->results[i].on_device;
    }
    call->count = from->count;
    call->layout += !same;
    call->holds = stays;
    if (stays)
        call->held = *from;
    else
        weir_model_release_outputs(call->model, from);
    return WEIR_OK;
}

/* Runs -------------------------------------------------------------------------------------------------------------- */

static weir_status call_run(weir_model_call *call, weir_model_call_results *out)
{
    weir_outputs made = WEIR_INIT(weir_outputs);
    call_let_go(call);
    weir_status status = weir_model_infer(call->model, &call->asked, &made);
    if (status == WEIR_OK)
        status = model_call_take(call, &made);
    if (status != WEIR_OK)
        return status;
    const weir_model_call_results results = {
        .struct_size = sizeof results, .tensors = call->results, .count = call->count, .layout = call->layout};
    (void)wi_copy_out(out, out->struct_size, &results, sizeof results);
    return WEIR_OK;
}

weir_status weir_model_call_run(weir_model_call *call, weir_model_call_results *out)
{
    WI_ENTER();
    if (!call || !out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_model_call_run: NULL, or member struct_size of the results is not set");
    if (atomic_exchange(&call->under_way, true))
        return weir_fail(WEIR_ERR_BUSY,
                         "weir_model_call_run: another thread runs this call; each thread prepares its own");
    weir_status status = call_run(call, out);
    atomic_store(&call->under_way, false);
    return status;
}

/* Its end ----------------------------------------------------------------------------------------------------------- */

static void free_results(weir_model_call *call)
{
    for (size_t i = 0; i < call->place_count; i++) {
        for (room *smaller, *at = call->places[i].own; at; at = smaller) {
            smaller = at->smaller;
            free(at);
        }
        free(call->places[i].name);
    }
    free(call->places);
    free(call->results);
}

weir_status weir_model_call_destroy(weir_model_call *call)
{
    WI_ENTER();
    if (!call)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_call_destroy: NULL");
    if (atomic_exchange(&call->under_way, true))
        return weir_fail(WEIR_ERR_BUSY, "weir_model_call_destroy: another thread runs this call");
    weir_model *model = call->model;
    call_let_go(call);
    pthread_mutex_lock(&model->lock);
    model->calls--;
    pthread_mutex_unlock(&model->lock);
    free_results(call);
    free(call);
    return WEIR_OK;
}
