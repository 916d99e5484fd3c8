/* What became of the candidates of a model. Lists that were handed out stay as they were until the model is unloaded. */
#include "choice/open.h"

struct wi_attempt_list {
    wi_attempt_list *next;
    uint64_t changes; /* as they were when it was made */
    size_t count;
    weir_attempt of[];
};

/* With the lock held. Texts of reasons are kept, as lists that were handed out may name them. */
static bool grow(wi_opening *opening)
{
    if (opening->attempt_count < opening->attempt_room)
        return true;
    size_t room = opening->attempt_room ? 2 * opening->attempt_room : 8;
    weir_attempt *more = realloc(opening->attempts, room * sizeof *more);
    if (!more)
        return false;
    opening->attempts = more;
    opening->attempt_room = room;
    return true;
}

static const char *keep_reason(const weir_attempt *attempt)
{
    char *text = attempt->status == WEIR_OK ? NULL : strdup(attempt->reason);
    return text ? text : "";
}

/* A model without a place asks for one with every request: what fails as it did before is not listed for each of them. With
 * the lock held. */
static size_t listed_before(const wi_opening *opening, const weir_candidate *candidate, const weir_attempt *attempt)
{
    for (size_t i = opening->adrift; i < opening->attempt_count; i++) {
        const weir_attempt *one = &opening->attempts[i];
        if (one->engine == candidate->engine && one->provider == candidate->provider &&
            one->device == candidate->device && one->status == attempt->status && one->stage == attempt->stage)
            return i;
    }
    return SIZE_MAX;
}

size_t wi_record_add(wi_opening *opening, size_t rank, const weir_attempt *attempt)
{
    const weir_candidate *candidate = &opening->choice->candidates[rank];
    pthread_mutex_lock(&opening->lock);
    size_t place = listed_before(opening, candidate, attempt);
    if (place == SIZE_MAX && grow(opening)) {
        place = opening->attempt_count++;
        weir_attempt *kept = &opening->attempts[place];
        *kept = *attempt;
        kept->size = sizeof *kept;
        kept->engine = candidate->engine;
        kept->provider = candidate->provider;
        kept->device = candidate->device;
        kept->reason = keep_reason(attempt);
        opening->changes++;
    }
    pthread_mutex_unlock(&opening->lock);
    return place;
}

void wi_record_note(wi_opening *opening, size_t place, const weir_attempt *now)
{
    pthread_mutex_lock(&opening->lock);
    /* What two runs say of their stages may come out of order. */
    if (place < opening->attempt_count && opening->attempts[place].status == WEIR_OK &&
        now->stage >= opening->attempts[place].stage) {
        weir_attempt *kept = &opening->attempts[place];
        kept->stage = now->stage;
        kept->status = now->status;
        kept->reason = keep_reason(now);
        kept->ms = now->ms;
        kept->bytes = now->bytes;
        opening->changes++;
    }
    pthread_mutex_unlock(&opening->lock);
}

void wi_record_adrift(wi_opening *opening, bool adrift)
{
    pthread_mutex_lock(&opening->lock);
    opening->adrift = adrift ? opening->attempt_count : SIZE_MAX;
    pthread_mutex_unlock(&opening->lock);
}

size_t wi_record_count(wi_opening *opening)
{
    pthread_mutex_lock(&opening->lock);
    size_t count = opening->attempt_count;
    pthread_mutex_unlock(&opening->lock);
    return count;
}

void wi_record_clear(wi_opening *opening)
{
    for (size_t i = 0; i < opening->attempt_count; i++)
        if (opening->attempts[i].reason[0])
            free((char *)opening->attempts[i].reason);
    free(opening->attempts);
    for (wi_attempt_list *next; opening->lists; opening->lists = next) {
        next = opening->lists->next;
        free(opening->lists);
    }
}

/* The list as it is now: the one that was handed out last, if nothing has changed. With the lock held. */
static const wi_attempt_list *present_list(wi_opening *opening)
{
    if (opening->lists && opening->lists->changes == opening->changes)
        return opening->lists;
    size_t bytes = opening->attempt_count * sizeof opening->attempts[0];
    wi_attempt_list *list = malloc(sizeof *list + bytes);
    if (!list)
        return NULL;
    list->next = opening->lists;
    list->changes = opening->changes;
    list->count = opening->attempt_count;
    if (bytes > 0)
        memcpy(list->of, opening->attempts, bytes);
    opening->lists = list;
    return list;
}

weir_status weir_model_record(weir_model *model, weir_record *out)
{
    WI_ENTER();
    if (!model || !out)
        return weir_fail(WEIR_INVALID, "weir_model_record: NULL");
    wi_opening *opening = model->opening;
    if (!opening)
        return weir_fail(WEIR_UNSUPPORTED, "weir_model_record: the model is weir_model_load's, which chooses nothing");
    weir_record record = {.size = sizeof record, .choice = opening->choice};
    pthread_mutex_lock(&opening->lock);
    const wi_attempt_list *list = present_list(opening);
    record.on_cpu_unasked = opening->on_cpu;
    pthread_mutex_unlock(&opening->lock);
    if (!list)
        return weir_fail(WEIR_SYSTEM, "no host memory for a model's record");
    record.attempts = list->of;
    record.attempt_count = list->count;
    return wi_copy_out(out, out->size, &record, sizeof record)
               ? WEIR_OK
               : weir_fail(WEIR_INVALID, "weir_model_record: member size is not set");
}

const char *weir_stage_name(weir_stage stage)
{
    static const char *const names[WEIR_STAGES] = {"detect", "construct", "load", "first-run", "later-run"};
    return (unsigned)stage < WEIR_STAGES ? names[stage] : "?";
}
