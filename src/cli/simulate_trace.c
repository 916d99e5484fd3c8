#include "simulate_trace.h"

#include "cli.h"
#include "text.h"

#include "trace/race_check.h"
#include "trace/read_binary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct checked {
    uint64_t events, lost, cut_at;
    bool cut;
    race_check *race_check;
} checked;

/* WEIR_OK at the end of the file, also when that was cut off. */
static weir_status check(reader *r, checked *all)
{
    weir_event event;
    bool got = true;
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && got) {
        status = reader_next(r, &event, &got);
        if (status != WEIR_OK || !got)
            continue;
        all->events++;
        status = race_check_event(all->race_check, &event);
    }
    all->cut = reader_cut(r, &all->cut_at);
    all->lost = reader_lost(r);
    return status;
}

static json_t *finding_json(const race_finding *f)
{
    char pointer[24];
    snprintf(pointer, sizeof pointer, "0x%llx", (unsigned long long)f->pointer);
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:o}", "kind", race_kind_name(f->kind), "pointer",
                     pointer, "bytes", (json_int_t)f->bytes, "client", text_json(f->client), "tag", text_json(f->tag),
                     "stream", (json_int_t)f->stream, "other_stream", (json_int_t)f->other_stream, "order_first",
                     (json_int_t)f->order_first, "order_second", (json_int_t)f->order_second, "text",
                     text_json(f->text));
}

/* As the other findings of simulate are told: kind and words. */
static json_t *first_json(const race_finding *f)
{
    char *text = text_print("%s: %s", race_kind_name(f->kind), f->text);
    json_t *value = text_json(text);
    free(text);
    return value;
}

static json_t *answer_json(const checked *all)
{
    size_t count;
    const race_finding *found = race_check_found(all->race_check, &count);
    json_t *findings = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(findings, finding_json(&found[i]));
    return json_pack("{s:I, s:I, s:o, s:o, s:I, s:o}", "events", (json_int_t)all->events, "violations",
                     (json_int_t)race_check_violations(all->race_check), "first_violation",
                     count > 0 ? first_json(&found[0]) : json_null(), "findings", findings, "lost",
                     (json_int_t)all->lost, "cut_at", all->cut ? json_integer((json_int_t)all->cut_at) : json_null());
}

static void print_answer(const checked *all)
{
    size_t count;
    const race_finding *found = race_check_found(all->race_check, &count);
    uint64_t violations = race_check_violations(all->race_check);
    printf("%llu events: ", (unsigned long long)all->events);
    if (violations == 0)
        puts("nothing found");
    else
        printf("%llu found\n", (unsigned long long)violations);
    if (all->lost > 0)
        printf("%llu events are missing: what was found may be wrong, and something may not have been found\n",
               (unsigned long long)all->lost);
    if (all->cut)
        printf("the file is cut off at byte %llu: what came after that is not known\n",
               (unsigned long long)all->cut_at);
    for (size_t i = 0; i < count; i++) {
        char *text = text_clean(found[i].text, strlen(found[i].text), false);
        printf("%s%s: %s\n", i == 0 ? "\n" : "", race_kind_name(found[i].kind), text);
        free(text);
    }
    if (violations > count)
        printf("and %llu more\n", (unsigned long long)(violations - count));
}

static int answer(const checked *all, bool json)
{
    int status = json ? cli_print_json(answer_json(all)) : (print_answer(all), cli_flush(CLI_OK));
    uint64_t violations = race_check_violations(all->race_check);
    if (status != CLI_OK || violations == 0)
        return status;
    size_t count;
    const race_finding *first = race_check_found(all->race_check, &count);
    return cli_fail("%s: %s", race_kind_name(first->kind), first->text);
}

int simulate_trace(const char *path, bool json)
{
    reader *r;
    checked all = {.race_check = race_check_create()};
    if (!all.race_check)
        return cli_fail("no memory to follow %s", path);
    weir_status status = reader_open(path, &r);
    if (status != WEIR_OK) {
        race_check_destroy(all.race_check);
        return cli_fail("%s", weir_detail());
    }
    status = check(r, &all);
    int code = status == WEIR_OK ? answer(&all, json) : cli_fail("%s", weir_detail());
    race_check_destroy(all.race_check);
    reader_close(r);
    return code;
}
