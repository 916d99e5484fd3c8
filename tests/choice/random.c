/* Random machines, manifests and residents: the choice against an oracle, and against itself with everything found in
 * another order. */
#include "choice/oracle.h"
#include <weir/select.h>
#include "choice/situation.h"
#include "factory/choice/context.h"

enum { CASES = UNDER_TSAN ? 1000 : 10000 };

/* So that rare things are known to have come. */
static unsigned met[WEIR_VERDICT_COUNT], several, none, no_plugin;

/* Checks ----------------------------------------------------------------------------------------------------------- */

static void complain(unsigned number, const weir_choice *choice, const expected *e)
{
    print_error("case %u: %s with %s on \"%s\" should be %s, rank %zu\n  %s\n", number, e->engine, e->provider,
                e->device, weir_name_of(WEIR_NAMES_VERDICT, e->verdict), e->rank, choice->rule);
    for (size_t i = 0; i < choice->count; i++)
        print_error("  %zu %s %s \"%s\" %s: %s\n", i, choice->candidates[i].engine, choice->candidates[i].provider,
                    choice->candidates[i].device, weir_name_of(WEIR_NAMES_VERDICT, choice->candidates[i].verdict),
                    choice->candidates[i].reason);
}

static void check_against_oracle(unsigned number, const situation *s, const weir_choice *choice)
{
    static expected wanted[MOST_EXPECTED];
    size_t count = oracle(&s->manifest, &s->options, s->format, 100, wanted), accepted = 0;
    assert_int_equal(choice->count, count);
    for (size_t i = 0; i < count; i++) {
        const expected *e = &wanted[i];
        const weir_candidate *c = candidate(choice, e->engine, e->provider, e->device);
        bool good = c->verdict == e->verdict && (e->verdict != WEIR_VERDICT_ACCEPTED || (size_t)c->rank == e->rank);
        if (!good)
            complain(number, choice, e);
        assert_true(good);
        accepted += e->verdict == WEIR_VERDICT_ACCEPTED;
        met[e->verdict]++;
        no_plugin += e->verdict == WEIR_VERDICT_NO_ENGINE && !double_called(e->engine);
    }
    assert_int_equal(choice->accepted, accepted);
    several += accepted > 1;
    none += accepted == 0;
}

static void are_equal(const weir_choice *a, const weir_choice *b)
{
    assert_int_equal(a->count, b->count);
    assert_string_equal(a->rule, b->rule);
    for (size_t i = 0; i < a->count; i++) {
        const weir_candidate *x = &a->candidates[i], *y = &b->candidates[i];
        assert_string_equal(x->engine, y->engine);
        assert_string_equal(x->provider, y->provider);
        assert_string_equal(x->device, y->device);
        assert_string_equal(x->reason, y->reason);
        assert_int_equal(x->verdict, y->verdict);
        assert_int_equal(x->rank, y->rank);
        assert_int_equal(x->obtainable, y->obtainable);
        assert_memory_equal(x->bytes, y->bytes, sizeof x->bytes);
    }
}

static void check_other_order_of_devices(const situation *s, const weir_choice *choice)
{
    machine other = s->here;
    weir_choice_options options = s->options;
    other.hardware.devices = other.devices;
    options.hardware = &other.hardware;
    for (size_t i = other.hardware.device_count; i > 1; i--) {
        size_t j = random_below(i);
        weir_hardware_device kept = other.devices[i - 1];
        other.devices[i - 1] = other.devices[j];
        other.devices[j] = kept;
    }
    weir_choice *again = choose(&s->manifest, &options);
    are_equal(choice, again);
    weir_choice_destroy(again);
}

static void check_other_order_of_engines(const situation *s, const weir_choice *choice)
{
    wi_context context = {.hardware = &s->here.hardware, .file_bytes = 100};
    ok(wi_criteria_read(&s->manifest, &s->options, &context.criteria));
    ok(wi_engines_find(s->manifest.model_file, &context.engines));
    for (size_t i = context.engines.count; i > 1; i--) {
        size_t j = random_below(i);
        wi_engine_info kept = context.engines.all[i - 1];
        context.engines.all[i - 1] = context.engines.all[j];
        context.engines.all[j] = kept;
    }
    ok(wi_decide(&context));
    assert_int_equal(context.count, choice->count);
    assert_string_equal(wi_explain(&context), choice->rule);
    for (size_t i = 0; i < context.count; i++) {
        assert_string_equal(context.candidates[i].engine->name, choice->candidates[i].engine);
        assert_string_equal(context.candidates[i].reason, choice->candidates[i].reason);
        assert_int_equal(context.candidates[i].verdict, choice->candidates[i].verdict);
    }
    wi_context_clear(&context);
}

static void random_cases(unsigned first, unsigned end)
{
    memset(met, 0, sizeof met);
    several = none = no_plugin = 0;
    for (unsigned number = first; number < end; number++) {
        situation s;
        situation_make(&s, number);
        weir_choice *choice = choose(&s.manifest, &s.options);
        check_against_oracle(number, &s, choice);
        check_other_order_of_devices(&s, choice);
        check_other_order_of_engines(&s, choice);
        weir_choice_destroy(choice);
    }
    for (int i = 0; i < WEIR_VERDICT_COUNT; i++)
        assert_true(met[i] > (end - first) / 1000);
    assert_true(several > (end - first) / 10 && none > (end - first) / 10);
}

static void engines_by_name_alone(void **state)
{
    (void)state;
    random_cases(0, CASES);
    assert_true(no_plugin > CASES);
}

static void engines_that_are_all_here(void **state)
{
    (void)state;
    double_llm_register();
    random_cases(CASES, 2 * CASES);
    assert_int_equal(no_plugin, 0);
}

int main(void)
{
    static const uint64_t amounts[] = {0, 1, 300 * MIB, 512 * MIB, GIB, 2 * GIB, 3 * GIB, 5 * GIB, 8 * GIB, 40 * GIB};
    const struct CMUnitTest tests[] = {cmocka_unit_test(engines_by_name_alone),
                                       cmocka_unit_test(engines_that_are_all_here)};
    doubles_register();
    situations_begin(amounts, sizeof amounts / sizeof amounts[0], 2);
    return cmocka_run_group_tests_name("choice-random", tests, NULL, NULL);
}
