/* What became of the candidates of a model. */
#include "factory/model/open.h"
#include <weir/select.h>
#include <weir/model.h>

#include <stdarg.h>
#include <stdio.h>

/* The record: lists that were handed out stay as they were until the model is unloaded ----------------------------- */

struct wi_attempt_list {
    wi_attempt_list *next;
    uint64_t changes; /* the opening's `changes` when the list was made */
    size_t count;
    weir_attempt of[];
};

/* Reasons are the list's own, as those of attempts that are left out by then are freed. */
static const char *keep_reason(const weir_attempt *attempt)
{
    char *text = attempt->status == WEIR_OK ? NULL : strdup(attempt->reason);
    return text ? text : "";
}

static void free_reason(const wi_numbered_attempt *attempt)
{
    if (attempt->attempt.reason[0])
        free((char *)attempt->attempt.reason);
}

/* With the lock held. */
static bool attempts_grow(wi_opening *opening)
{
    if (opening->attempt_count < opening->attempt_room)
        return true;
    size_t room = opening->attempt_room ? 2 * opening->attempt_room : 8;
    wi_numbered_attempt *more = realloc(opening->attempts, room * sizeof *more);
    if (!more)
        return false;
    opening->attempts = more;
    opening->attempt_room = room;
    return true;
}

static bool attempts_alike(const weir_attempt *one, const weir_attempt *other)
{
    return one->engine == other->engine && one->provider == other->provider && one->device == other->device &&
           one->status == other->status && one->stage == other->stage;
}

/* Requests without end may fail alike: of such attempts the first and the newest are listed. With the lock held. */
static void leave_one_out(wi_opening *opening, size_t newest)
{
    wi_numbered_attempt *all = opening->attempts;
    size_t before = 0, last = 0;
    if (all[newest].attempt.status == WEIR_OK)
        return;
    for (size_t i = 0; i < newest; i++)
        if (attempts_alike(&all[i].attempt, &all[newest].attempt)) {
            before++;
            last = i;
        }
    if (before < 2)
        return;
    free_reason(&all[last]);
    opening->attempt_count--;
    memmove(&all[last], &all[last + 1], (opening->attempt_count - last) * sizeof *all);
}

size_t wi_attempts_add(wi_opening *opening, size_t rank, const weir_attempt *attempt)
{
    const weir_candidate *candidate = &opening->choice->candidates[rank];
    pthread_mutex_lock(&opening->lock);
    size_t number = SIZE_MAX;
    if (attempts_grow(opening)) {
        size_t index = opening->attempt_count++;
        wi_numbered_attempt *stored = &opening->attempts[index];
        number = opening->attempts_made++;
        *stored = (wi_numbered_attempt){*attempt, number};
        stored->attempt.struct_size = sizeof stored->attempt;
        stored->attempt.engine = candidate->engine;
        stored->attempt.provider = candidate->provider;
        stored->attempt.device = candidate->device;
        stored->attempt.reason = keep_reason(attempt);
        leave_one_out(opening, index);
        opening->changes++;
    }
    pthread_mutex_unlock(&opening->lock);
    return number;
}

/* Returns the index of the attempt with this number, or attempt_count. With the lock held. */
static size_t attempts_index_of(const wi_opening *opening, size_t number)
{
    size_t index = 0;
    while (index < opening->attempt_count && opening->attempts[index].number != number)
        index++;
    return index;
}

bool wi_attempts_update(wi_opening *opening, size_t number, const weir_attempt *now)
{
    pthread_mutex_lock(&opening->lock);
    size_t index = attempts_index_of(opening, number);
    weir_attempt *stored = index < opening->attempt_count ? &opening->attempts[index].attempt : NULL;
    /* What two runs say of their stages may come out of order; but what has failed does not serve. */
    bool news = stored && stored->status == WEIR_OK && (now->status != WEIR_OK || now->stage >= stored->stage);
    if (news) {
        stored->ms = now->ms;
        stored->stage = now->stage;
        stored->status = now->status;
        stored->reason = keep_reason(now);
        stored->bytes = now->bytes;
        leave_one_out(opening, index);
        opening->changes++;
    }
    pthread_mutex_unlock(&opening->lock);
    return news;
}

size_t wi_attempts_count(wi_opening *opening)
{
    pthread_mutex_lock(&opening->lock);
    size_t count = opening->attempts_made;
    pthread_mutex_unlock(&opening->lock);
    return count;
}

void wi_attempts_clear(wi_opening *opening)
{
    for (size_t i = 0; i < opening->attempt_count; i++)
        free_reason(&opening->attempts[i]);
    free(opening->attempts);
    for (wi_attempt_list *next; opening->lists; opening->lists = next) {
        next = opening->lists->next;
        free(opening->lists);
    }
}

/* A copy with texts of its own behind it. With the lock held. */
static wi_attempt_list *copy_list(const wi_opening *opening)
{
    size_t bytes = opening->attempt_count * sizeof(weir_attempt), texts = 0;
    for (size_t i = 0; i < opening->attempt_count; i++)
        texts += strlen(opening->attempts[i].attempt.reason) + 1;
    wi_attempt_list *list = malloc(sizeof *list + bytes + texts);
    if (!list)
        return NULL;
    *list = (wi_attempt_list){.changes = opening->changes, .count = opening->attempt_count};
    char *text = (char *)list + sizeof *list + bytes;
    for (size_t i = 0; i < list->count; i++) {
        size_t length = strlen(opening->attempts[i].attempt.reason) + 1;
        list->of[i] = opening->attempts[i].attempt;
        list->of[i].reason = memcpy(text, opening->attempts[i].attempt.reason, length);
        text += length;
    }
    return list;
}

/* The list as it is now: the one that was handed out last, if nothing has changed. With the lock held. */
static const wi_attempt_list *present_list(wi_opening *opening)
{
    if (opening->lists && opening->lists->changes == opening->changes)
        return opening->lists;
    wi_attempt_list *list = copy_list(opening);
    if (!list)
        return NULL;
    list->next = opening->lists;
    opening->lists = list;
    return list;
}

weir_status weir_model_record(weir_model *model, weir_record *out)
{
    WI_ENTER();
    if (!model || !out)
        return weir_fail(WEIR_ERR_INVALID, "weir_model_record: NULL");
    wi_opening *opening = model->opening;
    if (!opening)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "weir_model_record: the model is weir_model_create's, which chooses nothing");
    weir_status status = wi_model_visit(model, "weir_model_record");
    if (status != WEIR_OK)
        return status;
    weir_record record = {.struct_size = sizeof record, .choice = opening->choice};
    pthread_mutex_lock(&opening->lock);
    const wi_attempt_list *list = present_list(opening);
    record.left_out = opening->attempts_made - opening->attempt_count;
    pthread_mutex_unlock(&opening->lock);
    pthread_mutex_lock(&model->lock);
    record.on_cpu_unasked = model->present->present && wi_opening_last_resort(opening, model->present->rank);
    pthread_mutex_unlock(&model->lock);
    if (list) {
        record.attempts = list->of;
        record.attempt_count = list->count;
    }
    wi_model_visit_end(model);
    if (!list)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for a model's record");
    return wi_copy_out(out, out->struct_size, &record, sizeof record)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "weir_model_record: member struct_size is not set");
}

/* Sentences, for the detail, for the record, for whoever is told as it happens ------------------------------------- */

/* Returns the device's name for people: the runtime's name; for "host" or without a runtime the device's own. */
static const char *attempts_device_of(const weir_candidate *candidate)
{
    bool plain = !candidate->runtime || !candidate->runtime[0] || strcmp(candidate->runtime, "host") == 0;
    if (!plain)
        return candidate->runtime;
    return candidate->device && candidate->device[0] ? candidate->device : "no device";
}

const char *wi_candidate_text(const weir_candidate *candidate, char text[WI_CANDIDATE_TEXT])
{
    snprintf(text, WI_CANDIDATE_TEXT, "%.31s with %.31s on %.63s", candidate->engine, candidate->provider,
             attempts_device_of(candidate));
    return text;
}

/* A list of names with reasons, within one detail. Each entry gets an even part of the room that is left, so that a
 * long reason does not hide later entries. */
typedef struct list {
    char text[960];
    size_t length;
    size_t left;   /* things to come */
    size_t hidden; /* that found no room */
} list;

enum { LINE_LEAST = 48, TAIL = 24 }; /* a shorter line helps nobody; for "; and N more" */

static void attempts_add_line(list *it, const char *name, const char *stage, const char *reason)
{
    char line[1300], cut[sizeof it->text];
    size_t room = sizeof it->text - TAIL - it->length;
    size_t most = wi_max(room / wi_max(it->left, 1), LINE_LEAST);
    (void)snprintf(line, sizeof line, "%s%s (%s): %s", it->length ? "; " : "", name, stage, reason);
    it->left -= it->left > 0;
    if (room <= LINE_LEAST) {
        it->hidden++;
        return;
    }
    wi_shorten(line, cut, wi_min(most, sizeof cut));
    memcpy(it->text + it->length, cut, strlen(cut) + 1);
    it->length += strlen(cut);
}

/* Whose attempt it was: texts are the candidate's own. */
static const weir_candidate *attempts_candidate_of(const wi_opening *opening, const weir_attempt *attempt)
{
    const weir_candidate *one = opening->choice->candidates;
    while (one->engine != attempt->engine || one->provider != attempt->provider || one->device != attempt->device)
        one++;
    return one;
}

/* What failed, and has no newer reason. With the lock held. */
static bool is_why(const wi_opening *opening, size_t index)
{
    const weir_attempt *one = &opening->attempts[index].attempt;
    bool is = one->status != WEIR_OK;
    for (size_t i = index + 1; is && i < opening->attempt_count; i++)
        is = opening->attempts[i].attempt.status == WEIR_OK ||
             attempts_candidate_of(opening, &opening->attempts[i].attempt) != attempts_candidate_of(opening, one);
    return is;
}

/* With the lock held. */
static size_t count_reasons(const wi_opening *opening, size_t from)
{
    size_t count = 0;
    for (size_t i = from; i < opening->attempt_count; i++)
        count += is_why(opening, i);
    return count;
}

weir_status wi_attempts_fail(wi_opening *opening, size_t first, weir_status status, const char *lead)
{
    list it = {.left = 0};
    char name[WI_CANDIDATE_TEXT];
    pthread_mutex_lock(&opening->lock);
    size_t from = 0;
    while (from < opening->attempt_count && opening->attempts[from].number < first)
        from++;
    it.left = count_reasons(opening, from);
    (void)wi_shorten(lead, it.text, sizeof it.text / 2);
    it.length = strlen(it.text);
    for (size_t i = from; i < opening->attempt_count; i++) {
        if (!is_why(opening, i))
            continue;
        const weir_attempt *one = &opening->attempts[i].attempt;
        attempts_add_line(&it, wi_candidate_text(attempts_candidate_of(opening, one), name),
                          weir_name_of(WEIR_NAMES_STAGE, one->stage), one->reason);
    }
    pthread_mutex_unlock(&opening->lock);
    if (it.hidden > 0)
        (void)snprintf(it.text + it.length, sizeof it.text - it.length, "; and %zu more", it.hidden);
    return weir_fail(status, "%s", it.text);
}

void wi_notify(const wi_opening *opening, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    if (!opening->options.notice)
        return;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    opening->options.notice(text, opening->options.user);
}
