/* args.h: the arguments of a verb as one table, from which they are read and checked and its help is made. */
#ifndef WEIR_CLI_ARGS_H
#define WEIR_CLI_ARGS_H

#include <weir/base.h>

#include <stddef.h>

/* What an option writes into the verb's structure, at arg.at. */
typedef enum arg_type {
    ARG_FLAG,   /* a bool, true; it takes no value */
    ARG_CLEAR,  /* a bool, false; it takes no value */
    ARG_TEXT,   /* a const char *, the value as it is */
    ARG_NAME,   /* a const char *, not empty */
    ARG_FILE,   /* a const char *, not empty: the name of a file or folder */
    ARG_NUMBER, /* a uint64_t from arg.least to arg.most */
    ARG_COUNT,  /* an unsigned from arg.least to arg.most */
    ARG_CALL,   /* whatever arg.read does */
    ARG_LATE    /* the same, once all options and operands have been read */
} arg_type;

typedef struct arg arg;

struct arg {
    const char *name;  /* without its dashes; NULL ends a table */
    const char *value; /* as the help calls it; NULL: it takes none */
    const char *help;
    arg_type type;
    size_t at; /* offset in the verb's structure */
    uint64_t least, most;
    int (*read)(const arg *option, const char *value, void *to); /* answers -1 to go on, else the exit status */
    char letter; /* short form of the option, behind a single dash; 0: none */
};

typedef struct args_table {
    const char *verb;
    const char *usage; /* what follows "usage: weir ", a line for each form */
    const char *about; /* in the help before the options, and after them; may be NULL */
    const arg *options;
    const char *notes;
    bool operands_end_options; /* what follows the first operand is an operand, too */
    /* Reads the operands, which are no options; NULL: there may be none. Answers as arg.read. */
    int (*read_operands)(char **operands, size_t count, void *to);
} args_table;

/* Reads the arguments into the verb's structure, which has its defaults. *seen, unless NULL, gets a bit for each option
 * in the table that was given. Answers -1 to go on, else the exit status: help was asked for, or bad usage was
 * reported. */
int args_read(const args_table *all, int argc, char **argv, void *to, uint64_t *seen);

/* The bit of an option in `seen`. */
uint64_t args_bit(const args_table *all, const char *name);

/* The options of a verb that has only --json; the structure is a bool. */
extern const arg args_json[];

/* The options that select engine, provider and device, in a table: `member` of `type` is a weir_choice_options. */
#define ARGS_CHOICE(type, member)                                                                                      \
    {"engine", "NAME", "exactly this engine: onnx, gguf, llm, others; or an error", ARG_NAME,                          \
     .at = offsetof(type, member.engine)},                                                                             \
        {"provider", "NAME",                                                                                           \
         "exactly this provider: tensorrt, cuda, rocm, coreml (or metal), directml, openvino, cpu", ARG_NAME,          \
         .at = offsetof(type, member.provider)},                                                                       \
        {"device", "NAME", "exactly this device: cuda:0, cpu, a key of 'weir devices', or an ordinal", ARG_NAME,       \
         .at = offsetof(type, member.device)},                                                                         \
        {"policy", "NAME",                                                                                             \
         "fastest (default), manifest: its providers alone, memory: what needs the fewest bytes first", ARG_NAME,      \
         .at = offsetof(type, member.policy)},                                                                         \
        {"order", "LIST", "providers for models that name none (default: cuda rocm coreml directml cpu)", ARG_NAME,    \
         .at = offsetof(type, member.order)},                                                                          \
    {                                                                                                                  \
        "no-cpu", NULL, "the processor is no last resort", ARG_FLAG, .at = offsetof(type, member.no_cpu)               \
    }

#endif
