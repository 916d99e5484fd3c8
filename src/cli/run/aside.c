/* aside.c: models of a run that step aside for each other, with --serial --suspend-idle. */
#include "run.h"

#include "cli/terminal.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>

/* Notes that the model has left; it began to at `start`, by run_clock. */
static void aside_left(const run *all, model_run *m, double start, const weir_residency *receipt)
{
    aside made = {.suspended_at = start - all->began, .suspend_seconds = run_clock() - start};
    made.away = receipt->away;
    made.released = receipt->released;
    made.copied = receipt->copied;
    made.trusted = receipt->trusted;
    made.dropped = receipt->dropped;
    made.stayed = receipt->stayed;
    made.outside = receipt->outside;
    made.graphs = receipt->graphs;
    made.shown = receipt->shown;
    m->asides = text_grow(m->asides, m->aside_count + 1, sizeof *m->asides);
    m->asides[m->aside_count++] = made;
    m->is_aside = true;
}

/* Notes that the model is back; it began to come at `start`, by run_clock. */
static void aside_came(const run *all, model_run *m, double start)
{
    aside *last = &m->asides[m->aside_count - 1];
    last->resumed = true;
    last->resumed_at = start - all->began;
    last->resume_seconds = run_clock() - start;
    m->is_aside = false;
}

void aside_suspend(const run *all, model_run *m)
{
    weir_residency receipt = WEIR_INIT(weir_residency);
    double start = run_clock();
    weir_model_suspend_options options = WEIR_INIT(weir_model_suspend_options);
    options.show = all->args->show_idle;
    weir_status status = weir_model_suspend(m->model, &options, &receipt);
    failure_note(&m->failed, status, "suspend");
    if (status == WEIR_OK)
        aside_left(all, m, start, &receipt);
}

static weir_residency_state aside_state(const model_run *m)
{
    weir_model_presence now = WEIR_INIT(weir_model_presence);
    return weir_model_residency(m->model, &now) == WEIR_OK ? now.state : WEIR_RESIDENT;
}

bool aside_exchange(const run *all, model_run *leaves, model_run *comes)
{
    weir_residency receipt = WEIR_INIT(weir_residency);
    double start = run_clock();
    weir_status status = weir_model_exchange(leaves->model, NULL, comes->model, WEIR_STREAM_HOST, &receipt);
    if (status != WEIR_OK && aside_state(leaves) == WEIR_RESIDENT)
        return false;
    bool came = status == WEIR_OK || aside_state(comes) == WEIR_RESIDENT;
    if (came) /* but its engine may have failed */
        failure_note(&comes->failed, status, "resume");
    if (status == WEIR_OK || weir_client_residency(weir_model_client(leaves->model), &receipt) == WEIR_OK)
        aside_left(all, leaves, start, &receipt);
    if (came)
        aside_came(all, comes, start);
    return came;
}

void aside_resume(const run *all, model_run *m)
{
    double start = run_clock();
    weir_status status =
        all->args->show_idle ? weir_model_resume_behind(m->model) : weir_model_resume(m->model, WEIR_STREAM_HOST);
    failure_note(&m->failed, status, "resume");
    if (status == WEIR_OK)
        aside_came(all, m, start);
}

json_t *aside_json(const model_run *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->aside_count; i++) {
        const aside *one = &m->asides[i];
        json_array_append_new(
            list,
            json_pack("{s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "suspended_at",
                      one->suspended_at, "suspend_seconds", one->suspend_seconds, "away", text_json_count(one->away),
                      "released", text_json_count(one->released), "copied", text_json_count(one->copied), "trusted",
                      text_json_count(one->trusted), "dropped", text_json_count(one->dropped), "shown",
                      text_json_count(one->shown), "stayed", text_json_count(one->stayed), "outside",
                      text_json_count(one->outside), "graphs", text_json_count(one->graphs), "resumed_at",
                      one->resumed ? json_real(one->resumed_at) : json_null(), "resume_seconds",
                      one->resumed ? json_real(one->resume_seconds) : json_null()));
    }
    return list;
}

char *aside_text(const aside *one)
{
    char away[24], copied[24], at[24], took[24], back[24] = "", back_took[24] = "";
    if (one->resumed) {
        text_seconds(one->resumed_at, back, sizeof back);
        text_seconds(one->resume_seconds, back_took, sizeof back_took);
    }
    return text_print(
        "suspended at %s in %s, %s away, %s copied; %s%s%s%s", text_seconds(one->suspended_at, at, sizeof at),
        text_seconds(one->suspend_seconds, took, sizeof took), weir_size_format(one->away, away, sizeof away),
        weir_size_format(one->copied, copied, sizeof copied), one->resumed ? "resumed at " : "not resumed", back,
        one->resumed ? " in " : "", back_took);
}
