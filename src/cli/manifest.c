#include "cli.h"
#include <weir/manifest.h>

#ifdef WEIR_MANIFESTS

weir_status manifest_read(const char *path, weir_manifest **out)
{
    return weir_manifest_read(path, NULL, out);
}

void manifest_release(weir_manifest *manifest)
{
    weir_manifest_destroy(manifest);
}

weir_status manifest_check(const char *path, weir_manifest_problems **out)
{
    return weir_manifest_check(path, NULL, out);
}

void manifest_problems_release(weir_manifest_problems *problems)
{
    weir_manifest_problems_destroy(problems);
}

weir_status manifest_clear(weir_manifest_cleared *out)
{
    return weir_manifest_clear(NULL, 0, 0, out);
}

#else

#include <stdlib.h>
#include <string.h>

#include "base/paths.h"

/* True: the path is that of a model, which needs no manifest. The engines identify the model. */
static bool cli_manifest_is_model(const char *path)
{
    return !wi_suffix_of(".json .aimod", path) || wi_suffix_of("genai_config.json", path);
}

weir_status manifest_read(const char *path, weir_manifest **out)
{
    *out = NULL;
    if (!cli_manifest_is_model(path))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "cannot read %s: this weir was built without libweir-manifest (WEIR_MANIFEST=OFF)", path);
    size_t length = strlen(path) + 1;
    weir_manifest *manifest = calloc(1, sizeof *manifest + length);
    if (manifest == NULL)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for %s", path);
    manifest->struct_size = sizeof *manifest;
    manifest->path = manifest->model_file = memcpy(manifest + 1, path, length);
    *out = manifest;
    return WEIR_OK;
}

void manifest_release(weir_manifest *manifest)
{
    free(manifest);
}

weir_status manifest_check(const char *path, weir_manifest_problems **out)
{
    *out = NULL;
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "cannot check %s: this weir was built without libweir-manifest (WEIR_MANIFEST=OFF)", path);
}

void manifest_problems_release(weir_manifest_problems *problems)
{
    (void)problems;
}

weir_status manifest_clear(weir_manifest_cleared *out)
{
    (void)out;
    return weir_fail(WEIR_ERR_UNSUPPORTED, "cannot clear packages: this weir was built without libweir-manifest "
                                           "(WEIR_MANIFEST=OFF), and unpacks none");
}

#endif
