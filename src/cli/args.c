/* args.c: reads the arguments of a verb by its table, and prints its help. */
#include "args.h"

#include "cli.h"
#include "terminal.h"
#include "text.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CODE = 256, WIDEST = 114, NARROWEST = 60 };

const arg args_json[] = {{"json", NULL, "one JSON object on standard output", ARG_FLAG, .at = 0}, {.name = NULL}};

/* Help ------------------------------------------------------------------------------------------------------------- */

/* Where the further rows of a line begin: below the second column if it has one ("  --lag N  the work …"), else below
 * its first character. */
static size_t indent_of(const char *line)
{
    enum { SECOND_COLUMN_MOST = 32 };
    size_t first = strspn(line, " ");
    for (size_t i = first; i < SECOND_COLUMN_MOST && line[i] != '\0' && line[i] != '\n'; i++)
        if (line[i] == ' ' && line[i + 1] == ' ')
            return i + strspn(line + i, " ");
    return first;
}

static void cli_args_print_lines(const char *text, size_t width)
{
    while (*text != '\0') {
        size_t length = strcspn(text, "\n"), indent = indent_of(text);
        char *line = text_print("%.*s", (int)length, text);
        const char *rest = line;
        for (size_t used = 0; *rest != '\0' || rest == line; used = indent) {
            size_t fits = text_line(rest, width - used);
            printf("%*s%.*s\n", (int)used, "", (int)fits, rest);
            rest += fits;
            rest += strspn(rest, " ");
            if (*rest == '\0')
                break;
        }
        free(line);
        text += length + (text[length] == '\n');
    }
}

static char *cli_args_name_of(const arg *option)
{
    const char *value = option->value != NULL ? option->value : "";
    return text_print("--%s%s%s", option->name, *value != '\0' ? " " : "", value);
}

static void print_options(const arg *options, size_t width)
{
    static const arg help = {.name = "help", .help = "this text"};
    size_t longest = 0;
    for (const arg *o = options; o->name != NULL; o++) {
        char *name = cli_args_name_of(o);
        size_t columns = text_columns(name);
        longest = columns > longest ? columns : longest;
        free(name);
    }
    for (const arg *o = options; o != NULL; o = o == &help ? NULL : o[1].name != NULL ? o + 1 : &help) {
        char *name = cli_args_name_of(o), *line = text_print("  %-*s  %s", (int)longest, name, o->help);
        cli_args_print_lines(line, width);
        free(line);
        free(name);
    }
}

static int cli_args_print_help(const args_table *all)
{
    size_t columns = (size_t)terminal_columns();
    size_t width = columns > WIDEST ? WIDEST : columns < NARROWEST ? NARROWEST : columns;
    const char *usage = all->usage;
    for (const char *before = "usage:"; *usage != '\0'; before = "      ") {
        size_t length = strcspn(usage, "\n");
        printf("%s weir %.*s\n", before, (int)length, usage);
        usage += length + (usage[length] == '\n');
    }
    if (all->about != NULL) {
        puts("");
        cli_args_print_lines(all->about, width);
    }
    puts("");
    print_options(all->options, width);
    if (all->notes != NULL) {
        puts("");
        cli_args_print_lines(all->notes, width);
    }
    return cli_flush(CLI_OK);
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

/* Says what getopt_long, called with opterr 0 and a leading ':', found wrong with the word it just read. */
static int cli_args_bad_option(const char *verb, int code, char **argv)
{
    const char *word = argv[optind - 1];
    if (code == ':')
        return cli_usage(verb, "%s needs a value", word);
    /* optopt is the letter of an unknown short option, and 0 or the option's own value for long ones. */
    if (optopt > 0 && optopt < FIRST_CODE && strncmp(word, "--", 2) != 0)
        return cli_usage(verb, "unknown option -%c", optopt);
    if (optopt != 0)
        return cli_usage(verb, "%s takes no value", word);
    return cli_usage(verb, "unknown or ambiguous option %s", word);
}

static int cli_args_set_number(const char *verb, const arg *option, const char *value, void *at)
{
    uint64_t number;
    if (!text_number(value, option->least, option->most, &number))
        return cli_usage(verb, "--%s %s: a whole number from %llu to %llu is wanted", option->name, value,
                         (unsigned long long)option->least, (unsigned long long)option->most);
    if (option->type == ARG_NUMBER)
        *(uint64_t *)at = number;
    else
        *(unsigned *)at = (unsigned)number;
    return -1;
}

static int cli_args_set_text(const char *verb, const arg *option, const char *value, void *at)
{
    if (value[0] == '\0' && option->type == ARG_FILE)
        return cli_usage(verb, "--%s needs a file name", option->name);
    if (value[0] == '\0' && option->type == ARG_NAME)
        return cli_usage(verb, "--%s: an empty word", option->name);
    *(const char **)at = value;
    return -1;
}

static int set_option(const char *verb, const arg *option, const char *value, void *to)
{
    void *at = (char *)to + option->at;
    switch (option->type) {
    case ARG_FLAG:
    case ARG_CLEAR:
        *(bool *)at = option->type == ARG_FLAG;
        return -1;
    case ARG_TEXT:
    case ARG_NAME:
    case ARG_FILE:
        return cli_args_set_text(verb, option, value, at);
    case ARG_NUMBER:
    case ARG_COUNT:
        return cli_args_set_number(verb, option, value, at);
    case ARG_CALL:
    case ARG_LATE:
        break;
    }
    return option->read(option, value, to);
}

static size_t cli_args_count_of(const arg *options)
{
    size_t count = 0;
    while (options[count].name != NULL)
        count++;
    return count;
}

uint64_t args_bit(const args_table *all, const char *name)
{
    size_t i = 0;
    while (strcmp(all->options[i].name, name) != 0)
        i++;
    return UINT64_C(1) << i;
}

static struct option *getopt_table(const arg *options, size_t count)
{
    struct option *known = text_zeroed(count + 2, sizeof *known);
    for (size_t i = 0; i < count; i++)
        known[i] = (struct option){options[i].name, options[i].value != NULL ? required_argument : no_argument, NULL,
                                   FIRST_CODE + (int)i};
    known[count] = (struct option){"help", no_argument, NULL, 'h'};
    return known;
}

/* The letters, as getopt_long wants them. */
static char *getopt_letters(const args_table *all)
{
    const arg *options = all->options;
    size_t count = cli_args_count_of(options);
    char *letters = text_zeroed(4 + 2 * count, 1), *to = letters;
    if (all->operands_end_options)
        *to++ = '+';
    *to++ = ':';
    *to++ = 'h';
    for (size_t i = 0; i < count; i++)
        if (options[i].letter != 0) {
            *to++ = options[i].letter;
            if (options[i].value != NULL)
                *to++ = ':';
        }
    return letters;
}

static const arg *cli_args_option_of(const arg *options, int code)
{
    if (code >= FIRST_CODE)
        return &options[code - FIRST_CODE];
    while (options->name != NULL && (options->letter == 0 || options->letter != code))
        options++;
    return options->name != NULL ? options : NULL;
}

/* An option whose meaning depends on others, or on the operands. */
typedef struct late {
    const arg *option;
    const char *value;
} late;

typedef struct late_list {
    late *list;
    size_t count;
} late_list;

static int cli_args_read_options(const args_table *all, int argc, char **argv, void *to, late_list *later,
                                 uint64_t *seen)
{
    struct option *known = getopt_table(all->options, cli_args_count_of(all->options));
    char *letters = getopt_letters(all);
    int status = -1, code;
    opterr = 0;
    optind = 0;
    while (status < 0 && (code = getopt_long(argc, argv, letters, known, NULL)) != -1) {
        const arg *option = cli_args_option_of(all->options, code);
        if (code == 'h') {
            status = cli_args_print_help(all);
        } else if (option == NULL) {
            status = cli_args_bad_option(all->verb, code, argv);
        } else if (option->type == ARG_LATE) {
            later->list = text_grow(later->list, later->count + 1, sizeof *later->list);
            later->list[later->count++] = (late){option, optarg};
        } else {
            status = set_option(all->verb, option, optarg, to);
        }
        *seen |= option != NULL ? UINT64_C(1) << (option - all->options) : 0;
    }
    free(letters);
    free(known);
    return status;
}

int args_read(const args_table *all, int argc, char **argv, void *to, uint64_t *seen)
{
    late_list later = {0};
    uint64_t given = 0;
    int status = cli_args_read_options(all, argc, argv, to, &later, &given);
    if (seen != NULL)
        *seen = given;
    if (status < 0 && all->read_operands != NULL)
        status = all->read_operands(argv + optind, (size_t)(argc - optind), to);
    else if (status < 0 && optind < argc)
        status = cli_usage(all->verb, "%s takes no word '%s'", all->verb, argv[optind]);
    for (size_t i = 0; status < 0 && i < later.count; i++)
        status = set_option(all->verb, later.list[i].option, later.list[i].value, to);
    free(later.list);
    return status;
}
