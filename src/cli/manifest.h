/* manifest.h: manifests for the verbs that take them. Built without libweir-manifest, each function says so. */
#ifndef WEIR_CLI_MANIFEST_H
#define WEIR_CLI_MANIFEST_H

#include <weir/manifest.h>

/* As weir_manifest_read with its defaults. Without the library only models are read: else WEIR_ERR_UNSUPPORTED. */
weir_status manifest_read(const char *path, weir_manifest **out);
void manifest_release(weir_manifest *manifest);

/* As weir_manifest_check. */
weir_status manifest_check(const char *path, weir_manifest_problems **out);
void manifest_problems_release(weir_manifest_problems *problems);

/* As weir_manifest_clear with its defaults: all packages that are not in use. */
weir_status manifest_clear(weir_manifest_cleared *out);

#endif
