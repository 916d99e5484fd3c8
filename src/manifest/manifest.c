/* weir_manifest_read and weir_manifest_check: what is at a path, and how it is read. */
#include "base/internal.h"
#include "base/paths.h"
#include <weir/manifest.h>
#include "manifest/parse.h"
#include "manifest/package.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4 << 20 };

/* What became of a path: problems, or else what is held. */
typedef struct outcome {
    wi_held *held;
    wi_parse_context reading;
    char *shown;       /* the file that has the problems */
    char detail[1024]; /* the caller's: sizes and words that were no good have left theirs */
} outcome;

static void clear(outcome *o, weir_status status)
{
    if (status == WEIR_OK)
        (void)weir_fail(status, "%s", o->detail);
    wi_held_release(o->held);
    wi_problems_clear(&o->reading.problems);
    free(o->shown);
    free(o);
}

static weir_status manifest_no_memory(const char *path)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory to read %s", path);
}

static weir_status read_json(outcome *o, const char *file, const char *folder, bool package)
{
    char *text;
    size_t length;
    weir_status status = wi_file_read(file, LARGEST, &text, &length);
    if (status != WEIR_OK)
        return status;
    wi_parse_context *r = &o->reading;
    r->text = text;
    r->folder = folder;
    r->package = package;
    wi_manifest_text(r, length);
    wi_problems_sort(&r->problems, r->text);
    free(text);
    return r->problems.out_of_memory ? manifest_no_memory(o->shown) : WEIR_OK;
}

static weir_status manifest_read_manifest(outcome *o, const char *path)
{
    char *folder = wi_path_folder(path);
    o->shown = strdup(path);
    weir_status status = folder && o->shown ? read_json(o, path, folder, false) : manifest_no_memory(path);
    free(folder);
    return status;
}

static weir_status read_package(outcome *o, const char *path, const weir_manifest_options *options)
{
    char *folder;
    weir_status status = wi_package_open(path, options, &folder, &o->held->use);
    if (status != WEIR_OK)
        return status;
    o->held->in_package = true;
    char *file = wi_path_in(folder, WI_PACKAGE_MANIFEST);
    if (asprintf(&o->shown, "%s/" WI_PACKAGE_MANIFEST, path) < 0)
        o->shown = NULL;
    status = file && o->shown ? read_json(o, file, folder, true) : manifest_no_memory(path);
    free(file);
    free(folder);
    return status;
}

static weir_status manifest_read_model(outcome *o, const char *path, wi_file_kind kind)
{
    char *model = wi_file_model(path, false, &kind);
    o->held->manifest.framework = wi_file_framework(kind);
    o->held->manifest.model_file = model ? wi_keep_text(&o->reading, model, strlen(model)) : NULL;
    o->shown = strdup(path);
    free(model);
    return o->held->manifest.model_file && o->shown ? WEIR_OK : manifest_no_memory(path);
}

static weir_status manifest_read_path(outcome *o, const char *path, const weir_manifest_options *options)
{
    const char *why = NULL;
    wi_file_kind kind = wi_file_look(path, &why);
    switch (kind) {
    case WI_FILE_MISSING:
        if (errno != ENOENT && errno != ENOTDIR)
            return weir_fail(WEIR_ERR_SYSTEM, "cannot look at %s: %s", path, strerror(errno));
        return weir_fail(WEIR_ERR_NOT_FOUND, "there is no %s", path);
    case WI_FILE_REFUSED:
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s cannot be run: %s", path, why);
    case WI_FILE_MANIFEST:
        return manifest_read_manifest(o, path);
    case WI_FILE_PACKAGE:
        return read_package(o, path, options);
    default:
        return manifest_read_model(o, path, kind);
    }
}

static weir_status manifest_begin(const char *call, const char *path, const weir_manifest_options *options,
                                  const void *out, outcome **o)
{
    weir_manifest_options given = WEIR_INIT(weir_manifest_options);
    char stored[PATH_MAX];
    if (!path || !*path || !out)
        return weir_fail(WEIR_ERR_INVALID, "%s: no path, or no place for the result", call);
    weir_status status = WI_COPY_OPTIONS_IN(weir_manifest_options, &given, options, call);
    if (status != WEIR_OK)
        return status;
    *o = calloc(1, sizeof **o);
    wi_held *held = calloc(1, sizeof *held);
    if (!*o || !held) {
        free(*o);
        free(held);
        return manifest_no_memory(path);
    }
    snprintf((*o)->detail, sizeof(*o)->detail, "%s", weir_detail());
    held->manifest.struct_size = sizeof held->manifest;
    (*o)->held = (*o)->reading.held = held;
    path = wi_path_meant(path, stored);
    held->manifest.path = wi_keep_text(&(*o)->reading, path, strlen(path));
    status = held->manifest.path ? manifest_read_path(*o, path, &given) : manifest_no_memory(path);
    if (status != WEIR_OK)
        clear(*o, status);
    return status;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

weir_status weir_manifest_read(const char *path, const weir_manifest_options *options, weir_manifest **out)
{
    outcome *o;
    weir_status status = manifest_begin("weir_manifest_read", path, options, out, &o);
    if (status != WEIR_OK)
        return status;
    const wi_problems *problems = &o->reading.problems;
    if (problems->count == 0) {
        *out = &o->held->manifest;
        o->held = NULL;
    } else {
        size_t others = problems->count - 1 + problems->more;
        char rest[96] = "";
        if (others > 0)
            snprintf(rest, sizeof rest, " (and %zu more; weir check lists them)", others);
        status = weir_fail(WEIR_ERR_INVALID, "%s:%u:%u: %s%s", o->shown, problems->found[0].line,
                           problems->found[0].column, problems->found[0].text, rest);
    }
    clear(o, status);
    return status;
}

void weir_manifest_destroy(weir_manifest *manifest)
{
    wi_held_release((wi_held *)manifest);
}

weir_status weir_manifest_check(const char *path, const weir_manifest_options *options, weir_manifest_problems **out)
{
    outcome *o;
    weir_status status = manifest_begin("weir_manifest_check", path, options, out, &o);
    if (status != WEIR_OK)
        return status;
    weir_manifest_problems *list = wi_problems_give(&o->reading.problems, o->shown);
    if (list)
        *out = list;
    else
        status = manifest_no_memory(path);
    clear(o, status);
    return status;
}

void weir_manifest_problems_destroy(weir_manifest_problems *problems)
{
    free(problems);
}
