/* What the tests of manifests share: a folder of their own with files in it, and what is said of them. */
#ifndef TESTS_MANIFEST_H
#define TESTS_MANIFEST_H

#include "core/core.h"

#include <weir/manifest.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* The test's folder, which the working directory is; made anew for each test and removed after it. */
static char folder[64];

static inline int folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weir-manifest-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static inline int folder_remove(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "chmod -R u+w %s; rm -rf %s", folder, folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static inline void write_bytes(const char *path, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static inline void write_text(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

/* The first bytes of an ONNX file: nobody here reads more. */
static inline void write_model(const char *path)
{
    write_bytes(path, "\x08\x07\x12\x00", 4);
}

static inline weir_manifest *read_manifest(const char *path)
{
    weir_manifest *manifest = NULL;
    ok(weir_manifest_read(path, NULL, &manifest));
    assert_non_null(manifest);
    assert_int_equal(manifest->struct_size, sizeof *manifest);
    return manifest;
}

static inline weir_manifest_problems *check_path(const char *path)
{
    weir_manifest_problems *list = NULL;
    (void)weir_fail(WEIR_ERR_INVALID, "of a call before");
    ok(weir_manifest_check(path, NULL, &list));
    assert_string_equal(weir_detail(), "of a call before"); /* which a success leaves alone */
    assert_non_null(list);
    return list;
}

/* That a text has exactly the problems that are named, in this order: "LINE:COLUMN words" each, ending with NULL. */
static inline void has_problems(const char *text, const char *const *wanted)
{
    write_text("manifest.json", text);
    weir_manifest_problems *list = check_path("manifest.json");
    size_t count = 0;
    for (; wanted[count]; count++) {
        unsigned line, column;
        int end;
        assert_int_equal(sscanf(wanted[count], "%u:%u %n", &line, &column, &end), 2);
        if (count >= list->count)
            fail_msg("%s\nlacks the problem %s", text, wanted[count]);
        const weir_manifest_problem *found = &list->problems[count];
        if (found->line != line || found->column != column || !strstr(found->text, wanted[count] + end))
            fail_msg("%s\nhas %u:%u %s\ninstead of %s", text, found->line, found->column, found->text, wanted[count]);
    }
    if (list->count != count)
        fail_msg("%s\nhas also %u:%u %s", text, list->problems[count].line, list->problems[count].column,
                 list->problems[count].text);
    weir_manifest_problems_destroy(list);
    weir_manifest *manifest = NULL;
    weir_status status = weir_manifest_read("manifest.json", NULL, &manifest);
    assert_int_equal(status, count ? WEIR_ERR_INVALID : WEIR_OK);
    weir_manifest_destroy(manifest);
}

#endif
