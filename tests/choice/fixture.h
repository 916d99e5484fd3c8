/* What the tests of the choice share: a machine, a manifest and options, which each test fills as it likes. */
#ifndef TESTS_CHOICE_FIXTURE_H
#define TESTS_CHOICE_FIXTURE_H

#include "choice/machine.h"
#include <weir/manifest.h>
#include <weir/select.h>

static const char *model;
static machine here;
static weir_manifest manifest;
static weir_choice_options options;
static weir_choice *made;

static inline int set_up(void **state)
{
    (void)state;
    doubles_reset();
    machine_begin(&here, 64 * GIB);
    manifest = (weir_manifest){.struct_size = sizeof manifest, .path = "", .model_file = model};
    options = (weir_choice_options){.struct_size = sizeof options, .hardware = &here.hardware};
    made = NULL;
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    weir_choice_destroy(made);
    return 0;
}

static inline weir_requirements *needs(void)
{
    return &manifest.requirements;
}

static inline void choose_here(void)
{
    weir_choice_destroy(made);
    made = choose(&manifest, &options);
}

/* The accepted ones, as "cuda@cuda-1 cpu@cpu". */
static inline const char *ranking(void)
{
    static char text[512];
    size_t length = 0;
    choose_here();
    text[0] = '\0';
    for (size_t i = 0; i < made->accepted; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%s@%s", i ? " " : "",
                                   made->candidates[i].provider, made->candidates[i].device);
    return text;
}

static inline void is_refused(weir_verdict verdict, const char *provider, const char *device, const char *text)
{
    choose_here();
    const weir_candidate *c = candidate(made, "onnx", provider, device);
    if (c->verdict != verdict || !strstr(c->reason, text))
        print_error("%s on %s: %s: %s\n", provider, device, weir_name_of(WEIR_NAMES_VERDICT, c->verdict), c->reason);
    assert_int_equal(c->verdict, verdict);
    assert_non_null(strstr(c->reason, text));
}

static inline void list_providers(const char *preferred, const char *const *fallbacks, size_t count)
{
    needs()->preferred_provider = preferred;
    needs()->fallback_providers = fallbacks;
    needs()->fallback_count = count;
}

static inline void cannot_choose(weir_status status, const char *text)
{
    weir_choice *choice = (weir_choice *)&here;
    fails(status, weir_choice_create(&manifest, &options, &choice));
    assert_null(choice);
    detail_names(text);
}

static inline void with_two_cards(void)
{
    machine_add(&here, WEIR_HARDWARE_CUDA, 6 * GIB)->driver_runtime = version("12.0");
    machine_add(&here, WEIR_HARDWARE_CUDA, 10 * GIB)->driver_runtime = version("12.0");
    needs()->preferred_provider = "cuda";
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
