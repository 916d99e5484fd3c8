/* Manifests that nobody meant well with: deep, huge, and damaged in every way that a seeded hand comes to. */
#include "manifest/hostile.h"
#include <weir/manifest.h>
#include "manifest/manifest.h"
#include "test_places.h"

#include <dirent.h>

static uint64_t state_of_random = 1;

static size_t below(size_t bound)
{
    state_of_random ^= state_of_random << 13;
    state_of_random ^= state_of_random >> 7;
    state_of_random ^= state_of_random << 17;
    return (size_t)(state_of_random % bound);
}

static char *content_of(const char *path, size_t *length)
{
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *length = fread(text, 1, 1 << 15, file);
    fclose(file);
    return text;
}

/* Changes a few places: bytes, words that JSON has, parts doubled or taken out. */
static size_t damage(char *text, size_t length)
{
    static const char *const words[] = {"{",          "}",
                                        "[",          "]",
                                        ",",          ":",
                                        "\"",         "null",
                                        "-1",         "1e999",
                                        "\\u0000",    "\n",
                                        "true",       "\"device_id\"",
                                        "\"tuning\"", "\"min_vram\"",
                                        "\\",         "\xff",
                                        "\xc3\xa9",   "9223372036854775808"};
    for (size_t times = 1 + below(4); times > 0; times--) {
        size_t at = below(length + 1), end = at + below(length - at + 1), room = (1 << 16) - 1 - length;
        const char *word = words[below(sizeof words / sizeof *words)];
        size_t more = below(3) ? strlen(word) : 0;
        if (more > room)
            continue;
        if (below(2)) /* put the word in, or in the place of a part */
            end = at;
        if (end - at > 40)
            end = at + 40;
        memmove(text + at + more, text + end, length - end);
        for (size_t i = 0; i < more; i++)
            text[at + i] = word[i];
        length = length - (end - at) + more;
    }
    return length;
}

static void damaged_manifests_are_read_or_refused(void **state)
{
    (void)state;
    const char *asked = getenv("WEIR_MANIFEST_ROUNDS");
    size_t rounds = asked ? strtoul(asked, NULL, 10) : 2000;
    const char *inputs = data_path("../manifest/seeds");
    DIR *list = opendir(inputs);
    assert_non_null(list);
    size_t seeds = 0;
    for (struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_name[0] == '.')
            continue;
        char path[600];
        snprintf(path, sizeof path, "%s/%s", inputs, entry->d_name);
        size_t length;
        char *seed = content_of(path, &length), *text = malloc(1 << 16);
        try_text(seed, length);
        for (size_t i = 0; i < rounds; i++) {
            memcpy(text, seed, length);
            try_text(text, damage(text, length));
        }
        free(text);
        free(seed);
        seeds++;
    }
    closedir(list);
    assert_in_range(seeds, 4, 100);
}

static void every_beginning_of_a_manifest_is_refused(void **state)
{
    (void)state;
    size_t length;
    char *seed = content_of(data_path("../manifest/seeds/full.json"), &length);
    for (size_t i = 0; i < length; i++)
        try_text(seed, i);
    free(seed);
}

static char *repeated(const char *head, const char *what, size_t times, const char *tail)
{
    size_t one = strlen(what), before = strlen(head);
    char *text = malloc(before + one * times + strlen(tail) + 1), *at = stpcpy(text, head);
    for (size_t i = 0; i < times; i++)
        at = stpcpy(at, what);
    stpcpy(at, tail);
    return text;
}

static const char *first_problem(const char *text)
{
    static char said[700];
    write_text("hostile.json", text);
    weir_manifest_problems *list = check_path("hostile.json");
    assert_in_range(list->count, 1, 100);
    snprintf(said, sizeof said, "%s", list->problems[0].text);
    weir_manifest_problems_destroy(list);
    return said;
}

static void depth_is_bounded(void **state)
{
    (void)state;
    write_model("m");
    static const size_t depths[] = {65, 1000, 100000, 1000000};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        char *open = repeated("{\"model_file\": \"m\", \"metadata\": ", "[", depths[i], "");
        char *text = repeated(open, "]", depths[i], "}");
        const char *said = first_problem(text);
        assert_non_null(strstr(said, depths[i] < 2000 ? "nested more than 64 deep" : "no JSON: maximum parsing depth"));
        free(text);
        free(open);
    }
}

static void size_is_bounded(void **state)
{
    (void)state;
    char *text = repeated("{\"metadata\": \"", "x", 4 << 20, "\"}");
    write_text("huge.json", text);
    free(text);
    weir_manifest *m = NULL;
    fails(WEIR_ERR_INVALID, weir_manifest_read("huge.json", NULL, &m));
    detail_names("4194304");
    assert_null(m);
    const size_t many = getenv("WEIR_SANITIZED") ? 3000 : 600000; /* strict checks of strings read them to their end */
    text = repeated("{", "\"a\":1,", many, "\"a\":1}");
    write_text("many.json", text);
    weir_manifest_problems *list = check_path("many.json");
    assert_int_equal(list->count, 100);
    assert_int_equal(list->more, 2 * many + 2 - 100); /* unknown, twice, and model_file */
    weir_manifest_problems_destroy(list);
    free(text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_make, folder_remove)
    const struct CMUnitTest tests[] = {
        TEST(damaged_manifests_are_read_or_refused),
        TEST(every_beginning_of_a_manifest_is_refused),
        TEST(depth_is_bounded),
        TEST(size_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
