/* manifest.h: reads, checks and clears manifests for the verbs of the command. In a build without libweir-manifest
 * reading, checking and clearing fail with WEIR_ERR_UNSUPPORTED, except manifest_read of a model. */
#ifndef WEIR_CLI_MANIFEST_H
#define WEIR_CLI_MANIFEST_H

#include <weir/manifest.h>

/* As weir_manifest_read with its defaults. */
weir_status manifest_read(const char *path, weir_manifest **out);
void manifest_release(weir_manifest *manifest);

/* As weir_manifest_check. */
weir_status manifest_check(const char *path, weir_manifest_problems **out);
void manifest_problems_release(weir_manifest_problems *problems);

/* As weir_manifest_clear with its defaults: clears every package that is not in use. */
weir_status manifest_clear(weir_manifest_cleared *out);

#endif
