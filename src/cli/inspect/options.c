/* options.c: the verb options: every option of weir, its value and its source. */
#include "cli/args.h"
#include "cli/cli.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const args_table arguments = {
    .verb = "options",
    .usage = "options [--json]",
    .about =
        "Lists every option of weir: its name, its environment variable, its value and where the value came from. A "
        "value in the environment that does not parse is marked: the default is used instead.",
    .options = args_json};

static const char *source_name(weir_option_source source)
{
    switch (source) {
    case WEIR_OPTION_FROM_DEFAULT:
        return "default";
    case WEIR_OPTION_FROM_ENVIRONMENT:
        return "environment";
    case WEIR_OPTION_FROM_CALL:
        return "call";
    }
    return "?";
}

static json_t *option_json(const weir_option *option)
{
    const char *given = option->rejected ? getenv(option->environment) : NULL;
    json_t *object = json_pack("{s:s, s:s, s:o, s:s, s:b, s:s}", "name", option->name, "environment",
                               option->environment, "value", text_json(option->value), "source",
                               source_name(option->source), "rejected", option->rejected, "help", option->help);
    if (given != NULL)
        json_object_set_new(object, "rejected_value", text_json(given));
    return object;
}

static void print_option(const weir_option *option)
{
    char *value = text_clean(option->value, strlen(option->value), false);
    printf("%s%-17s%s %-22s = %s  (%s)\n", terminal_bold(), option->name, terminal_plain(), option->environment,
           value[0] != '\0' ? value : "unset", source_name(option->source));
    free(value);
    if (option->rejected) {
        const char *given = getenv(option->environment);
        char *clean = text_clean(given != NULL ? given : "", given != NULL ? strlen(given) : 0, false);
        printf("                  %srejected: %s=%s is not understood and not used%s\n", terminal_red(),
               option->environment, clean, terminal_plain());
        free(clean);
    }
    printf("                  %s\n", option->help);
}

int verb_options(int argc, char **argv)
{
    bool json = false;
    int status = args_read(&arguments, argc, argv, &json, NULL);
    if (status >= 0)
        return status;
    json_t *list = json_array();
    weir_option option = WEIR_INIT(weir_option);
    for (size_t i = 0; weir_option_info(NULL, i, &option) == WEIR_OK; i++) {
        if (json)
            json_array_append_new(list, option_json(&option));
        else
            print_option(&option);
        option = WEIR_INIT(weir_option);
    }
    if (json)
        return cli_print_json(json_pack("{s:o}", "options", list));
    json_decref(list);
    return cli_flush(CLI_OK);
}
