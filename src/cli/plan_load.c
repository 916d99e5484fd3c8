/* plan_load.c: what kind of file it is, by what is in it; lists of buffers. */
#include "plan.h"

#include "text.h"

#include "trace/format.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The begin of the file, as a text: enough for the names of a table's columns. */
static weir_status read_front(const char *path, char *front, size_t capacity, size_t *size)
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "cannot read %s: %s", path,
                         strerror(errno));
    *size = fread(front, 1, capacity - 1, file);
    front[*size] = '\0';
    weir_status status =
        ferror(file) ? weir_fail(WEIR_ERR_SYSTEM, "cannot read %s: %s", path, strerror(errno)) : WEIR_OK;
    fclose(file);
    if (status == WEIR_OK && *size == 0)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: the file is empty", path);
    return status;
}

static bool is_text(const char *front, size_t size)
{
    for (size_t i = 0; i < size && front[i] != '\n'; i++)
        if ((unsigned char)front[i] < 0x20 && front[i] != '\t' && front[i] != '\r')
            return false;
    return true;
}

static plan_kind kind_of(char *front, size_t size)
{
    static const unsigned char gzip[] = {0x1f, 0x8b};
    if ((size >= 8 && memcmp(front, WI_TRACE_MAGIC, 8) == 0) || (size >= 2 && memcmp(front, gzip, 2) == 0))
        return PLAN_TRACE;
    if (!is_text(front, size))
        return PLAN_MODEL;
    front[strcspn(front, "\n")] = '\0';
    if (strncmp(front, "weir-plan ", 10) == 0)
        return PLAN_SAVED;
    return strcasestr(front, "Action") && strcasestr(front, "Pointer") ? PLAN_TRACE : PLAN_LIST;
}

static weir_status no_model(const plan_words *words)
{
    if (words->dim_count + words->shape_count == 0)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "%s is no model: there is nothing that --%s could be for", words->file,
                     words->dim_count ? "dim" : "shape");
}

/* A saved plan is shown as it is. */
static weir_status no_planning(const plan_words *words)
{
    const char *option = words->align ? "align" : words->quick ? "quick" : words->seconds > 0 ? "seconds" : NULL;
    if (!option)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "%s is a plan, which is shown and not made again: there is nothing that --%s could "
                     "be for",
                     words->file, option);
}

weir_status plan_source_load(const plan_words *words, plan_source *out)
{
    char front[4096];
    size_t size = 0;
    *out = (plan_source){.buffers = NULL};
    weir_status status = read_front(words->file, front, sizeof front, &size);
    if (status != WEIR_OK)
        return status;
    plan_kind kind = kind_of(front, size);
    if (kind != PLAN_MODEL && (status = no_model(words)) != WEIR_OK)
        return status;
    if (kind == PLAN_SAVED && (status = no_planning(words)) != WEIR_OK)
        return status;
    status = kind == PLAN_MODEL   ? plan_source_model(words, out)
             : kind == PLAN_TRACE ? plan_source_trace(words, out)
             : kind == PLAN_SAVED ? weir_plan_load(words->file, &out->plan)
                                  : weir_buffers_read_csv(words->file, &out->buffers);
    out->kind = kind;
    if (status != WEIR_OK)
        plan_source_clear(out);
    return status;
}

void plan_source_clear(plan_source *source)
{
    uint32_t count = source->buffers ? weir_buffers_count(source->buffers) : 0;
    for (uint32_t i = 0; source->origins && i < count; i++) {
        free(source->origins[i].maker);
        free(source->origins[i].looks);
    }
    for (size_t i = 0; i < source->step_count; i++)
        free(source->steps[i]);
    free(source->origins);
    free(source->steps);
    free(source->remark);
    weir_buffers_destroy(source->buffers);
    weir_plan_destroy(source->plan);
    *source = (plan_source){.buffers = NULL};
}

#ifndef WEIR_PLAN_MODELS
weir_status plan_source_model(const plan_words *words, plan_source *out)
{
    (void)out;
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "%s: neither a list nor a trace, and this weir cannot read models: it was built without nanopb "
                     "(apt install libnanopb-dev)",
                     words->file);
}
#endif
