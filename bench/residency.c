/* Suspending and resuming clients, beside what page-locked copies of the same machine do in the same run.
 *
 *     bench-residency [--device cuda:0] [--mib 8192] [--rounds 5] [--models 10] [--room 3] [--turns 100] [--changes 100]
 *                     [--cases one,kernel,asked,exchange,places,faults,pages,beside,turns] [--seconds 300] [--why]
 *
 * Prints a table, and another one with the goals. Every byte is looked at when it is back; the exit status is 1 when one is another.
 * --cases: these alone, in their order. --seconds: no case begins later than that. --why: which calls of CUDA's driver the time went
 * to. */
#include "residency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct bench_case {
    const char *name;
    void (*run)(weir_runtime *runtime);
    int eighths; /* of a model: the budget; 0: for `room` models */
} cases[] = {{"one", one_model, 20},
             {"kernel", first_kernel, 20},
             {"asked", is_asked, 9},
             {"exchange", exchanging_places, 9},
             {"places", changing_places, 20},
             {"faults", faults, 20},
             {"pages", small_pages, 24},
             {"beside", beside, 20},
             {"turns", in_turn, 0}};

enum { CASES = sizeof cases / sizeof cases[0] };

static const char *chosen = "one,kernel,asked,exchange,places,faults,pages,beside,turns";

static void run_case(const char *name)
{
    int i = 0;
    while (i < CASES && strcmp(cases[i].name, name) != 0)
        i++;
    if (i == CASES) {
        fprintf(stderr, "bench-residency: there is no case %s\n", name);
        exit(2);
    }
    if (now() > asked.end) {
        printf("%s: skipped, the time is over\n", name);
        return;
    }
    int eighths = cases[i].eighths ? cases[i].eighths : 8 * asked.room + 1;
    weir_runtime *runtime = make_runtime(asked.model_bytes / 8 * (uint64_t)eighths + 8 * MIB);
    double start = now();
    cases[i].run(runtime);
    MUST(weir_runtime_destroy(runtime));
    printf("  (%s took %.1f s)\n", name, now() - start);
}

/* The cases of `chosen`, in its order. */
static void run_chosen(void)
{
    char list[256], *rest = NULL;
    snprintf(list, sizeof list, "%s", chosen);
    for (const char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        run_case(name);
}

static int number(const char *text, int most)
{
    int value = atoi(text);
    return value < most ? value : most;
}

static bool take_word(const char *name, const char *value)
{
    if (strcmp(name, "--device") == 0)
        asked.device = value;
    else if (strcmp(name, "--mib") == 0)
        asked.model_bytes = strtoull(value, NULL, 10) * MIB;
    else if (strcmp(name, "--rounds") == 0)
        asked.rounds = number(value, MOST_ROUNDS);
    else if (strcmp(name, "--models") == 0)
        asked.models = number(value, MOST_MODELS);
    else if (strcmp(name, "--room") == 0)
        asked.room = number(value, MOST_MODELS);
    else if (strcmp(name, "--turns") == 0)
        asked.turns = number(value, 1000000);
    else if (strcmp(name, "--changes") == 0)
        asked.changes = number(value, 1000000);
    else if (strcmp(name, "--cases") == 0)
        chosen = value;
    else if (strcmp(name, "--seconds") == 0)
        asked.end = now() + atof(value);
    else
        return false;
    return true;
}

int main(int count, char **words)
{
    bool why = false;
    for (int i = 1; i < count; i++) {
        if (strcmp(words[i], "--why") == 0) {
            why = true;
        } else if (i + 1 == count || !take_word(words[i], words[i + 1])) {
            fprintf(stderr, "bench-residency: %s is no option\n", words[i]);
            return 2;
        } else {
            i++;
        }
    }
    if (asked.model_bytes == 0)
        asked.model_bytes = (strcmp(asked.device, "host") == 0 ? 256 : 8192) * MIB;
    weir_runtime *runtime = make_runtime(5 * (asked.model_bytes < 1024 * MIB ? asked.model_bytes : 1024 * MIB));
    why_begin(why);
    printf("%s, models of %.2f GiB, medians of %d rounds\n", asked.device,
           (double)asked.model_bytes / (1024.0 * (double)MIB), asked.rounds);
    measure_link(runtime);
    MUST(weir_runtime_destroy(runtime));
    run_chosen();
    tell_goals();
    return 0;
}
