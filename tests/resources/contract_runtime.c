/* The stack as a text, and a runtime's beginning and end. */
#include "info.h"
#include "resources/contract.h"

#include <ctype.h>

/* Every part that was asked for, in that order, and a budget; and the text makes the same stack again. */
static void the_text_names_its_parts(void **state)
{
    fixture *f = *state;
    weir_runtime_details its = runtime_details(f->runtime);
    char asked[256], *rest;
    const char *at = its.resource;
    assert_non_null(strstr(at, "budget("));
    snprintf(asked, sizeof asked, "%s", place.stack);
    for (char *word = strtok_r(asked, "(), ", &rest); word; word = strtok_r(NULL, "(), ", &rest))
        if (!strchr(word, '=') && !isdigit((unsigned char)word[0])) { /* no argument */
            at = strstr(at, word);
            assert_non_null(at);
            at += strlen(word);
        }
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET, .resource = its.resource};
    weir_runtime *twin;
    ok(weir_runtime_create(place.device, &options, &twin));
    assert_string_equal(runtime_details(twin).resource, its.resource);
    assert_int_equal(runtime_details(twin).features, f->features);
    ok(weir_runtime_destroy(twin));
}

static void a_runtime_ends_when_nobody_needs_it(void **state)
{
    fixture *f = *state;
    weir_runtime *brief;
    weir_stream stream;
    weir_runtime_options options = {.struct_size = sizeof options, .budget = BUDGET / 2, .resource = place.stack};
    for (int round = 0; round < 3; round++) {
        ok(weir_runtime_create(place.device, &options, &brief));
        weir_client *client = open_client(brief, "brief", 0, 0);
        ok(weir_stream_acquire(brief, &stream));
        void *p = take(client, 1000000, stream), *q = take(client, 70000, WEIR_STREAM_HOST);
        fails(WEIR_ERR_FOREIGN, weir_free(f->one, p, WEIR_STREAM_HOST));
        fails(WEIR_ERR_BUSY, weir_runtime_destroy(brief));
        ok(weir_fill(brief, p, 1, 1000000, stream));
        ok(weir_free(client, p, stream));
        ok(weir_free(client, q, stream));
        ok(weir_client_destroy(client));
        fails(WEIR_ERR_BUSY, weir_runtime_destroy(brief)); /* the stream */
        ok(weir_stream_release(stream));
        ok(weir_runtime_destroy(brief));
    }
}

int contract_runtime(void)
{
    const struct CMUnitTest runtime[] = {
        CASE(the_text_names_its_parts),
        CASE(a_runtime_ends_when_nobody_needs_it),
    };
    return cmocka_run_group_tests(runtime, NULL, NULL);
}
