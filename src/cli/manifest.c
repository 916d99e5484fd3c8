#include "manifest.h"

#ifdef WEIR_MANIFESTS

weir_status manifest_read(const char *path, weir_manifest **out)
{
    return weir_manifest_read(path, NULL, out);
}

void manifest_release(weir_manifest *manifest)
{
    weir_manifest_release(manifest);
}

weir_status manifest_check(const char *path, weir_manifest_problems **out)
{
    return weir_manifest_check(path, NULL, out);
}

void manifest_problems_release(weir_manifest_problems *problems)
{
    weir_manifest_problems_release(problems);
}

#else

static weir_status not_built(const char *path)
{
    return weir_fail(WEIR_UNSUPPORTED,
                     "cannot read %s: this weir was built without libweir-manifest (WEIR_MANIFEST=OFF)", path);
}

weir_status manifest_read(const char *path, weir_manifest **out)
{
    *out = NULL;
    return not_built(path);
}

void manifest_release(weir_manifest *manifest)
{
    (void)manifest;
}

weir_status manifest_check(const char *path, weir_manifest_problems **out)
{
    *out = NULL;
    return not_built(path);
}

void manifest_problems_release(weir_manifest_problems *problems)
{
    (void)problems;
}

#endif
