/* main.c: weir-sim, the part of the command that has the simulated device. `weir simulate`, and `weir replay` on that
 * device, are this program, which is linked with a core of its own: libweir has neither the device nor the bugs that
 * can be seeded. */
#include "simulate.h"

#include "cli/cli.h"

#include <string.h>

static const cli_verb verbs[] = {{"simulate", "", verb_simulate}, {"replay", "", verb_replay}};

int main(int argc, char **argv)
{
    wi_replay_simulated = &simulate_replays;
    for (size_t i = 0; argc > 1 && i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return cli_end(verbs[i].main(argc - 1, argv + 1), argv + 1);
    return cli_usage(NULL, "weir-sim is the part of weir that simulates and replays");
}
