/* Builds that lack a library: what they cannot do is said, with what is missing. */
#include "cli/cli.h"
#include <weir/manifest.h>
#include "core/core.h"
#include "manifest/package.h"

static void a_command_without_manifests_says_so(void **state)
{
    (void)state;
    weir_manifest *manifest = (weir_manifest *)state;
    weir_manifest_problems *list = (weir_manifest_problems *)state;
    fails(WEIR_ERR_UNSUPPORTED, manifest_read("m.json", &manifest));
    detail_names("m.json");
    detail_names("WEIR_MANIFEST=OFF");
    assert_null(manifest);
    fails(WEIR_ERR_UNSUPPORTED, manifest_check("m.json", &list));
    detail_names("WEIR_MANIFEST=OFF");
    assert_null(list);
    manifest_problems_release(list);
    ok(manifest_read("folder.d/m", &manifest));
    assert_string_equal(manifest->model_file, "folder.d/m");
    assert_string_equal(manifest->path, "folder.d/m");
    assert_null(manifest->framework);
    manifest_release(manifest);
    ok(manifest_read("phi/genai_config.json", &manifest)); /* a model by this name, and no manifest */
    assert_string_equal(manifest->model_file, "phi/genai_config.json");
    manifest_release(manifest);
    fails(WEIR_ERR_UNSUPPORTED, manifest_read("phi/config.JSON", &manifest));
    fails(WEIR_ERR_UNSUPPORTED, manifest_read("phi/m.aimod", &manifest));
}

static void packages_without_libarchive_name_it(void **state)
{
    (void)state;
    char *folder = (char *)state;
    int use = 7;
    weir_manifest_cleared cleared = WEIR_INIT(weir_manifest_cleared);
    weir_manifest_options options = WEIR_INIT(weir_manifest_options);
    fails(WEIR_ERR_UNSUPPORTED, wi_package_open("m.aimod", &options, &folder, &use));
    detail_names("m.aimod");
    detail_names("libarchive-dev");
    assert_null(folder);
    fails(WEIR_ERR_UNSUPPORTED, weir_manifest_clear(&options, 0, 0, &cleared));
    detail_names("libarchive");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_without_manifests_says_so),
        cmocka_unit_test(packages_without_libarchive_name_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
