/* Sentences about candidates: for the detail, for the record, for whoever is told as it happens. */
#include "model/open.h"
#include <weir/select.h>
#include <weir/model.h>

#include <stdarg.h>
#include <stdio.h>

/* As people call it: by its runtime where that tells it from others. */
static const char *device_of(const weir_candidate *candidate)
{
    bool plain = !candidate->runtime || !candidate->runtime[0] || strcmp(candidate->runtime, "host") == 0;
    if (!plain)
        return candidate->runtime;
    return candidate->device && candidate->device[0] ? candidate->device : "no device";
}

const char *wi_told_candidate(const weir_candidate *candidate, char text[WI_TOLD_BYTES])
{
    snprintf(text, WI_TOLD_BYTES, "%.31s with %.31s on %.63s", candidate->engine, candidate->provider,
             device_of(candidate));
    return text;
}

/* Things with their reasons, within one detail. Each gets an even part of the room that is left, so that a long reason does
 * not hide the others. */
typedef struct list {
    char text[960];
    size_t length;
    size_t left;   /* things to come */
    size_t hidden; /* that found no room */
} list;

enum { LINE_LEAST = 48, TAIL = 24 }; /* a shorter line helps nobody; for "; and N more" */

static void begin_list(list *it, const char *lead, size_t count)
{
    *it = (list){.left = count};
    snprintf(it->text, sizeof it->text, "%.480s", lead);
    it->length = strlen(it->text);
}

static void add_line(list *it, const char *name, const char *stage, const char *reason)
{
    char line[700];
    size_t room = sizeof it->text - TAIL - it->length;
    size_t most = wi_max(room / wi_max(it->left, 1), LINE_LEAST);
    (void)snprintf(line, wi_min(most, sizeof line), "%s%s (%s): %s", it->length ? "; " : "", name, stage, reason);
    it->left -= it->left > 0;
    if (room <= LINE_LEAST) {
        it->hidden++;
        return;
    }
    it->length += strlen(line);
    memcpy(it->text + it->length - strlen(line), line, strlen(line) + 1);
}

static weir_status end_list(list *it, weir_status status)
{
    if (it->hidden > 0)
        (void)snprintf(it->text + it->length, sizeof it->text - it->length, "; and %zu more", it->hidden);
    return weir_fail(status, "%s", it->text);
}

/* Whose attempt it was: texts are the candidate's own. */
static const weir_candidate *candidate_of(const wi_opening *opening, const weir_attempt *attempt)
{
    const weir_candidate *one = opening->choice->candidates;
    while (one->engine != attempt->engine || one->provider != attempt->provider || one->device != attempt->device)
        one++;
    return one;
}

/* What failed, and has no newer reason. With the lock held. */
static bool is_why(const wi_opening *opening, size_t place)
{
    const weir_attempt *one = &opening->attempts[place].told;
    bool is = one->status != WEIR_OK;
    for (size_t i = place + 1; is && i < opening->attempt_count; i++)
        is = opening->attempts[i].told.status == WEIR_OK ||
             candidate_of(opening, &opening->attempts[i].told) != candidate_of(opening, one);
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

weir_status wi_told_attempts(wi_opening *opening, size_t first, weir_status status, const char *lead)
{
    list it;
    char name[WI_TOLD_BYTES];
    pthread_mutex_lock(&opening->lock);
    size_t from = 0;
    while (from < opening->attempt_count && opening->attempts[from].number < first)
        from++;
    begin_list(&it, lead, count_reasons(opening, from));
    for (size_t i = from; i < opening->attempt_count; i++) {
        if (!is_why(opening, i))
            continue;
        const weir_attempt *one = &opening->attempts[i].told;
        add_line(&it, wi_told_candidate(candidate_of(opening, one), name), weir_stage_name(one->stage), one->reason);
    }
    pthread_mutex_unlock(&opening->lock);
    return end_list(&it, status);
}

void wi_told_notice(const wi_opening *opening, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    if (!opening->given.notice)
        return;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    opening->given.notice(text, opening->given.user);
}
