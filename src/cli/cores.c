/* cores.c: who computes with what, as JSON and as a line for people. */
#include "cli.h"

#include "terminal.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *cores_line_json(const weir_cores_stats *line)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:f}", "least", text_json_count(line->least), "most",
                     text_json_count(line->most), "last", text_json_count(line->last), "leases",
                     text_json_count(line->leases), "waits", text_json_count(line->waits), "waited_seconds",
                     (double)line->waited / 1e9);
}

static json_t *cores_models_json(void)
{
    weir_cores_stats line = WEIR_INIT(weir_cores_stats);
    json_t *list = json_array();
    for (size_t i = 0; weir_cores_look(i, &line) == WEIR_OK; i++) {
        json_t *model = cores_line_json(&line);
        json_object_set_new(model, "name", text_json(line.name));
        json_object_set_new(model, "now", text_json_count(line.now));
        json_array_append_new(list, model);
    }
    return list;
}

json_t *cores_json(void)
{
    weir_cores_totals all = WEIR_INIT(weir_cores_totals);
    if (weir_cores_info(&all) != WEIR_OK)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "cores", text_json_count(all.cores), "leased",
                     text_json_count(all.leased), "peak", text_json_count(all.peak), "waiting",
                     text_json_count(all.waiting), "coupled", text_json_count(all.coupled), "models",
                     cores_models_json());
}

bool cores_of_model(const char *name, weir_cores_stats *out)
{
    weir_cores_stats line = WEIR_INIT(weir_cores_stats);
    bool any = false;
    *out = (weir_cores_stats){.struct_size = sizeof *out};
    for (size_t i = 0; weir_cores_look(i, &line) == WEIR_OK; i++)
        if (strcmp(line.name, name) == 0) {
            any = true;
            out->now += line.now;
            out->leases += line.leases;
            out->waits += line.waits;
            out->waited += line.waited;
        }
    return any;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

static void cores_print_model(const json_t *model)
{
    uint64_t now = text_json_number(model, "now"), last = text_json_number(model, "last");
    const char *told = text_json_text(model, "name");
    char *name = text_clean(told, strlen(told), false);
    printf(now > 0 ? "%s computes with %llu" : "%s computed with %llu", name,
           (unsigned long long)(now > 0 ? now : last));
    if (text_json_number(model, "waits") > 0)
        printf(" and waited for them %llu times", (unsigned long long)text_json_number(model, "waits"));
    free(name);
}

void cores_print(const char *title, const json_t *cores)
{
    const json_t *model;
    bool any = false;
    size_t i;
    json_array_foreach(json_object_get(cores, "models"), i, model)
    {
        if (text_json_number(model, "leases") == 0)
            continue;
        if (!any)
            printf("%s: %llu, %llu leased, %llu waiting", title, (unsigned long long)text_json_number(cores, "cores"),
                   (unsigned long long)text_json_number(cores, "leased"),
                   (unsigned long long)text_json_number(cores, "waiting"));
        fputs(any ? ", " : "; ", stdout);
        cores_print_model(model);
        any = true;
    }
    if (any)
        puts("");
}
