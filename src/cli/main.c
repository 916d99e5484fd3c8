/* main.c: the command weir: finds the verb. */
#include "cli.h"

#include "args.h"
#include "remote/remote.h"

#include <stdio.h>
#include <string.h>

static int verb_help(int argc, char **argv);

static int verb_simulate_there(int argc, char **argv)
{
    (void)argc;
    return beside_become_sim(argv);
}

static int verb_bench_there(int argc, char **argv)
{
    (void)argc;
    return beside_become_bench(argv + 1);
}

#ifndef WEIR_SERVE
static int any_words(char **operands, size_t count, void *to)
{
    (void)operands;
    (void)count;
    (void)to;
    return -1;
}
#endif

static int verb_serve_here(int argc, char **argv)
{
#ifdef WEIR_SERVE
    return verb_serve(argc, argv);
#else
    static const args_table arguments = {.verb = "serve",
                                         .usage = "serve MODEL|MANIFEST|FOLDER… [--json]",
                                         .about = "This weir was built without it: that needs libmicrohttpd.",
                                         .options = args_json,
                                         .read_operands = any_words};
    bool json = false;
    int status = args_read(&arguments, argc, argv, &json, NULL);
    return status >= 0
               ? status
               : cli_fail(
                     "this weir was built without serve: that needs libmicrohttpd (apt install libmicrohttpd-dev)");
#endif
}

static const cli_verb verbs[] = {
    {"run", "load models under one budget, run them, show where the memory went", verb_run},
    {"serve", "models over HTTP: the Open Inference Protocol, OpenAI's interface", verb_serve_here},
    {"simulate", "random or scripted use of a simulated device, watched for races", verb_simulate_there},
    {"replay", "have a resource do again what a trace recorded; the smallest cap that does", verb_replay},
    {"report", "a page that shows what a trace recorded: who held how much when, what lay where", verb_report},
    {"export", "a trace for other tools: Perfetto, PyTorch's memory_viz, RMM; and theirs for weir", verb_export},
    {"plan", "an arena for a model's activations, a trace or a list, as small as can be", verb_plan},
    {"exec", "run a program as it is, with its CUDA memory under a budget", verb_exec},
    {"bench", "what single operations cost, beside what one would call instead; a running server under load",
     verb_bench_there},
    {"ps", "the models that a running server has loaded, and the processes that can be watched", verb_ps},
    {"top", "a server or a process, live: its budget, models, clients and classes", verb_top},
    {"yield", "have processes give device memory back, for another program", verb_yield},
    {"list", "the models of a running server, loaded or not", verb_list},
    {"show", "all that a running server knows of a model", verb_show},
    {"load", "have a running server load models", verb_move},
    {"unload", "have a running server unload models, and say what came back", verb_move},
    {"stop", "the same as unload", verb_move},
    {"suspend", "have a running server suspend models", verb_move},
    {"resume", "have a running server bring suspended models back", verb_move},
    {"pin", "have a running server keep models where they are", verb_move},
    {"unpin", "have a running server unload models for others again", verb_move},
    {"options", "every option, its value and where it came from", verb_options},
    {"devices", "the processor and the GPUs here, and what engines and their providers lack", verb_devices},
    {"engines", "the inference engines that can be used here, and what is missing", verb_engines},
    {"check", "whether a manifest is good: every mistake with its line and column", verb_check},
    {"explain", "which engine, provider and device a model would get, and why not the others", verb_explain},
    {"predict", "what a model will take, by class, before it is loaded, and how it would fit", verb_predict},
    {"version", "the version", verb_version},
    {"help", "this text, or the help of a verb", verb_help},
};
enum { VERBS = sizeof verbs / sizeof verbs[0] };

static const cli_verb *cli_main_find(const char *name)
{
    for (size_t i = 0; i < VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static int cli_main_print_help(bool json)
{
    if (json) {
        json_t *list = json_array();
        for (size_t i = 0; i < VERBS; i++)
            json_array_append_new(list, json_pack("{s:s, s:s}", "name", verbs[i].name, "summary", verbs[i].summary));
        return cli_print_json(json_pack("{s:o}", "verbs", list));
    }
    puts("usage: weir VERB …\n\n"
         "One device-memory budget for every inference engine in a process.\n");
    for (size_t i = 0; i < VERBS; i++)
        printf("  %-9s %s\n", verbs[i].name, verbs[i].summary);
    puts("\n'weir VERB --help' tells more. Every verb takes --json (one JSON object on standard output).\n"
         "Exit status: 0; 1 it failed, with one line on standard error; 2 bad usage.");
    return cli_flush(CLI_OK);
}

static int verb_help(int argc, char **argv)
{
    static const args_table arguments = {.verb = "help", .usage = "help [VERB] [--json]", .options = args_json};
    if (argc == 2 && argv[1][0] != '-') {
        const cli_verb *verb = cli_main_find(argv[1]);
        if (verb == NULL)
            return cli_usage(NULL, "there is no verb '%s'", argv[1]);
        char help[] = "--help";
        char *words[] = {argv[1], help, NULL};
        return verb->main == verb_help ? cli_main_print_help(false) : verb->main(2, words);
    }
    bool json = false;
    int status = args_read(&arguments, argc, argv, &json, NULL);
    return status >= 0 ? status : cli_main_print_help(json);
}

int verb_version(int argc, char **argv)
{
    static const args_table arguments = {.verb = "version",
                                         .usage = "version [--json]",
                                         .about = "Prints the version of libweir that is running.",
                                         .options = args_json};
    bool json = false;
    int status = args_read(&arguments, argc, argv, &json, NULL);
    if (status >= 0)
        return status;
    if (json)
        return cli_print_json(json_pack("{s:s, s:s}", "version", weir_version(), "command", WEIR_VERSION_STRING));
    printf("weir %s\n", weir_version());
    return cli_flush(CLI_OK);
}

int main(int argc, char **argv)
{
    cli_keep_streams();
    if (argc < 2)
        return cli_usage(NULL, "which verb?");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return cli_main_print_help(false);
    if (strcmp(argv[1], "--version") == 0) {
        argv[1] = (char[]){"version"};
        return verb_version(argc - 1, argv + 1);
    }
    const cli_verb *verb = cli_main_find(argv[1]);
    if (verb == NULL)
        return cli_usage(NULL, argv[1][0] == '-' ? "unknown option %s" : "there is no verb '%s'", argv[1]);
    return cli_end(verb->main(argc - 1, argv + 1), argv + 1);
}
