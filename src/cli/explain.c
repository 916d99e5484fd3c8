/* explain.c: `weir explain`: what would be chosen for a model, and why not the others. */
#include "choice_words.h"
#include "cli.h"
#include "engine_file.h"
#include "explain_print.h"
#include "manifest.h"
#include "text.h"

#include <stdlib.h>

static const char help[] =
    "usage: weir explain MANIFEST|MODEL [OPTION…]\n\n"
    "Shows which engine, provider and device a model would get, in the order in which they would be tried, and why "
    "each\n"
    "other one would not do, with the bytes that the engine predicts. Nothing is loaded and no device memory is "
    "touched.\n\n"
    "  --engine NAME      exactly this engine: onnx, gguf, llm …\n"
    "  --provider NAME    exactly this provider: tensorrt, cuda, rocm, coreml (or metal), directml, openvino, cpu\n"
    "  --device NAME      exactly this device: cuda:0, cpu, a key of 'weir devices', or an ordinal\n"
    "  --policy NAME      fastest (default), manifest: its providers alone, memory: what needs the fewest bytes first\n"
    "  --order LIST       providers for models that name none (default: cuda rocm coreml directml cpu)\n"
    "  --no-cpu           the processor is no last resort\n"
    "  --sysroot DIR      of the machine whose files are below DIR\n"
    "  --json             the answer as JSON: policy, rule, chosen, candidates[]\n\n"
    "MODEL is a file, or the name of one in the store's models/. Defaults of --policy and --order: WEIR_POLICY and\n"
    "WEIR_PROVIDERS.\n\n"
    "Exit status: 0; 1 nothing is accepted, or the model cannot be looked at; 2 bad usage.\n";

typedef struct words {
    weir_choice_options options;
    const char *sysroot, *model;
    bool json;
} words;

enum { W_SYSROOT = 256, W_JSON };

static const struct option long_words[] = {CHOICE_WORDS,
                                           {"sysroot", required_argument, NULL, W_SYSROOT},
                                           {"json", no_argument, NULL, W_JSON},
                                           {"help", no_argument, NULL, 'h'},
                                           {NULL, 0, NULL, 0}};

/* Answers -1 to go on, else the exit status. */
static int read_words(int argc, char **argv, words *w)
{
    *w = (words){.options = WEIR_INIT(weir_choice_options)};
    opterr = 0;
    optind = 1;
    for (int code, at = 0; (code = getopt_long(argc, argv, ":h", long_words, &at)) != -1;) {
        if (code == 'h') {
            fputs(help, stdout);
            return cli_flush(CLI_OK);
        }
        if (code == '?' || code == ':')
            return cli_bad_option("explain", code, argv);
        if (optarg != NULL && optarg[0] == '\0')
            return cli_usage("explain", "--%s: an empty word", long_words[at].name);
        if (code == W_SYSROOT)
            w->sysroot = optarg;
        else if (!choice_word_read(code, &w->options))
            w->json = true;
    }
    if (optind + 1 != argc)
        return cli_usage("explain", optind == argc ? "which manifest or model?" : "one manifest or model at a time");
    w->model = argv[optind];
    if (w->model[0] == '\0')
        return cli_usage("explain", "'' is no manifest or model");
    return -1;
}

/* It could not be looked at, for the reason that the detail has. */
static int fail(const words *w)
{
    char *reason = text_copy(weir_detail());
    if (w->json)
        (void)cli_print_json(
            json_pack("{s:s, s:o, s:n, s:[]}", "policy", "", "rule", text_json(reason), "chosen", "candidates"));
    int status = cli_fail("%s", reason);
    free(reason);
    return status;
}

/* Where the manifest alone would do, the words of the command do not: bad usage. */
static int fail_choice(const words *w, const weir_manifest *manifest, weir_status status)
{
    weir_choice_options plain = WEIR_INIT(weir_choice_options);
    weir_choice *choice = NULL;
    plain.hardware = w->options.hardware;
    char *reason = text_copy(weir_detail());
    bool usage = status == WEIR_ERR_INVALID && weir_choice_make(manifest, &plain, &choice) == WEIR_OK;
    weir_choice_release(choice);
    (void)weir_fail(status, "%s", reason);
    int answer = usage ? cli_usage("explain", "%s", reason) : fail(w);
    free(reason);
    return answer;
}

static int answer(const words *w, const weir_choice *choice)
{
    int status = CLI_OK;
    if (w->json)
        status = cli_print_json(explain_json(choice));
    else
        explain_print(choice);
    if (choice->accepted == 0 && status == CLI_OK)
        return cli_fail("%s: no engine, provider and device will do; %s", w->model,
                        w->json ? "the rule says why" : "the table says why");
    return w->json ? status : cli_flush(status);
}

static int explain(words *w, const char *path)
{
    weir_manifest *manifest = NULL;
    weir_hardware *machine = NULL;
    weir_choice *choice = NULL;
    weir_hardware_options where = WEIR_INIT(weir_hardware_options);
    where.sysroot = w->sysroot;
    where.limit_ms = WEIR_HARDWARE_PATIENT_MS; /* as a choice looks */
    int status;
    weir_status looked = manifest_read(path, &manifest);
    if (looked == WEIR_OK)
        looked = weir_hardware_look(&where, &machine);
    w->options.hardware = machine;
    if (looked != WEIR_OK)
        status = fail(w);
    else if ((looked = weir_choice_make(manifest, &w->options, &choice)) != WEIR_OK)
        status = fail_choice(w, manifest, looked);
    else
        status = answer(w, choice);
    weir_choice_release(choice);
    weir_hardware_release(machine);
    manifest_release(manifest);
    return status;
}

int verb_explain(int argc, char **argv)
{
    words w;
    int status = read_words(argc, argv, &w);
    if (status >= 0)
        return status;
    char *path = engine_file_named(w.model);
    status = explain(&w, path);
    free(path);
    return status;
}
