/* manifest.h: manifests for the verbs that take them; where weir was built without libweir-manifest, each says so. */
#ifndef WEIR_CLI_MANIFEST_H
#define WEIR_CLI_MANIFEST_H

#include <weir/manifest_read.h>

/* As weir_manifest_read, with its defaults. Without the library models alone: else WEIR_ERR_UNSUPPORTED. */
weir_status manifest_read(const char *path, weir_manifest **out);
void manifest_release(weir_manifest *manifest);

/* As weir_manifest_check. */
weir_status manifest_check(const char *path, weir_manifest_problems **out);
void manifest_problems_release(weir_manifest_problems *problems);

/* As weir_manifest_clear, with its defaults, of all that nobody uses. */
weir_status manifest_clear(weir_manifest_cleared *out);

#endif
