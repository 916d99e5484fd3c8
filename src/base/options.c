/* The options: one table, from which values, checks and listings come. */
#include "base/values.h"

#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <strings.h>
#include <unistd.h>

typedef bool check_fn(const char *value);

static check_fn base_options_is_size, is_amount, is_bytes, is_budget, is_stack, is_level, is_duration, is_age,
    is_switch, is_percent, is_policy, is_count, is_anything;

enum { VALUE_BYTES = 256 };

static struct option {
    const char *name, *environment, *standard, *help;
    check_fn *valid;
    bool given; /* set by a call */
    char value[VALUE_BYTES];
} options[] = {
    {.name = "budget",
     .environment = "WEIR_BUDGET",
     .standard = "",
     .help = "bytes all clients of a device may hold: a size, or a list like host=2GiB,cuda:0=40GiB",
     .valid = is_budget},
    {.name = "resource",
     .environment = "WEIR_RESOURCE",
     .standard = "cache",
     .help = "the stack of resources that serves clients, like cache or log(async); weir/runtime.h",
     .valid = is_stack},
    {.name = "poison",
     .environment = "WEIR_POISON",
     .standard = "0",
     .help = "1 puts a guard, which finds writes past blocks and after frees, around every resource; weir/guard.h",
     .valid = is_switch},
    {.name = "protect",
     .environment = "WEIR_PROTECT",
     .standard = "0",
     .help = "1 has memory that is promised as unwritten not be written while a copy of it is trusted, and compares "
             "the two "
             "at each suspend; weir/residency.h",
     .valid = is_switch},
    {.name = "range",
     .environment = "WEIR_RANGE",
     .standard = "",
     .help = "addresses to reserve for each of a device's ranges, in whole GiB; by default four times its memory, or "
             "what the system's limit of addresses leaves room for",
     .valid = base_options_is_size},
    {.name = "thread_cache",
     .environment = "WEIR_THREAD_CACHE",
     .standard = "",
     .help = "bytes of freed blocks that a thread may keep for each client and stream; by default a 64th of the budget",
     .valid = is_amount},
    {.name = "wait",
     .environment = "WEIR_WAIT",
     .standard = "1s",
     .help = "how long an allocation may wait for memory that is freed but still in use: 0, 250ms, 1s",
     .valid = is_duration},
    {.name = "reuse_wait",
     .environment = "WEIR_REUSE_WAIT",
     .standard = "2",
     .help = "percent of the time that allocations may wait for what streams have freed rather than hold more memory "
             "than was in use: 0 to 100",
     .valid = is_percent},
    {.name = "move_time",
     .environment = "WEIR_MOVE_TIME",
     .standard = "0",
     .help = "percent of the time that moves of idle memory may take where several streams free memory, before more "
             "memory is held instead: 1 to 100; 0: their time does not count",
     .valid = is_percent},
    {.name = "cores",
     .environment = "WEIR_CORES",
     .standard = "",
     .help =
         "cores that all models together compute with, 1 to 1024; by default those that the affinity and the cgroups "
         "leave; weir/cores.h",
     .valid = is_count},
    {.name = "trace",
     .environment = "WEIR_TRACE",
     .standard = "",
     .help = "a file that each runtime made from now on records into, .csv or binary; %d is the device, %p the process",
     .valid = is_anything},
    {.name = "watch",
     .environment = "WEIR_WATCH",
     .standard = "0",
     .help = "1 lets weir ps and weir top of the same user look at this process, by a socket and a thread of its own",
     .valid = is_switch},
    {.name = "outside",
     .environment = "WEIR_OUTSIDE",
     .standard = "",
     .help = "bytes of each GPU that are kept free for other processes, whatever these take: idle memory and clients "
             "give way; "
             "off by default; weir/outside.h",
     .valid = is_amount},
    {.name = "policy",
     .environment = "WEIR_POLICY",
     .standard = "fastest",
     .help = "how a provider is chosen for a model: fastest, manifest, memory; weir/select.h",
     .valid = is_policy},
    {.name = "providers",
     .environment = "WEIR_PROVIDERS",
     .standard = "",
     .help = "the order of providers for models that name none; by default cuda rocm coreml directml cpu",
     .valid = is_anything},
    {.name = "log",
     .environment = "WEIR_LOG",
     .standard = "off",
     .help = "messages on standard error: off, error, warning, info, debug",
     .valid = is_level},
    {.name = "home",
     .environment = "WEIR_HOME",
     .standard = NULL, /* computed */
     .help = "the store of engines and models",
     .valid = is_anything},
    {.name = "unpacked",
     .environment = "WEIR_UNPACKED",
     .standard = "64GiB",
     .help = "bytes that unpacked packages may take in the store; beyond, what was used longest ago goes",
     .valid = is_bytes},
    {.name = "unpacked_age",
     .environment = "WEIR_UNPACKED_AGE",
     .standard = "30d",
     .help = "how long an unpacked package stays in the store after its last use: 12h, 30d",
     .valid = is_age},
    {.name = "predictions",
     .environment = "WEIR_PREDICTIONS",
     .standard = "1",
     .help = "0 neither reads nor writes, in the store, what loads of models have taken; weir/predict.h",
     .valid = is_switch},
    {.name = "engine_path",
     .environment = "WEIR_ENGINE_PATH",
     .standard = "",
     .help = "directories searched first for engine plug-ins, separated by colons",
     .valid = is_anything},
    {.name = "onnxruntime",
     .environment = "WEIR_ONNXRUNTIME",
     .standard = "",
     .help = "the libonnxruntime.so that the engines onnx and llm open instead of the store's",
     .valid = is_anything},
    {.name = "onnxruntime_genai",
     .environment = "WEIR_ONNXRUNTIME_GENAI",
     .standard = "",
     .help = "the libonnxruntime-genai.so that the llm engine opens instead of the store's",
     .valid = is_anything},
    {.name = "llama",
     .environment = "WEIR_LLAMA",
     .standard = "",
     .help = "the directory with libllama.so that the gguf engine opens instead of the store's",
     .valid = is_anything},
};
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
WI_FREE_AFTER_FORKS(lock)

/* Checks ----------------------------------------------------------------------------------------------------------- */

static bool is_anything(const char *value)
{
    (void)value;
    return true;
}

/* Checks the parentheses of a stack. The names in it are checked in src/memory. */
static bool is_stack(const char *value)
{
    long depth = 0;
    for (; *value && depth >= 0; value++)
        depth += (*value == '(') - (*value == ')');
    return depth == 0;
}

static bool is_switch(const char *value)
{
    return strcmp(value, "0") == 0 || strcmp(value, "1") == 0;
}

static bool is_level(const char *value)
{
    int level = WEIR_LOG_OFF;
    while (level <= WEIR_LOG_DEBUG && strcmp(value, wi_log_level_name((weir_log_level)level)) != 0)
        level++;
    return level <= WEIR_LOG_DEBUG;
}

static bool is_policy(const char *value)
{
    int policy = 0;
    while (policy <= WI_MEMORY && strcasecmp(value, wi_policy_name((wi_policy)policy)) != 0)
        policy++;
    return policy <= WI_MEMORY;
}

/* "0", "250ms", "1s", "1.5s"; read by hand, as strtod takes a comma for the point in some languages, and 0x1p3. */
static bool parse_duration(const char *value, uint64_t *nanoseconds)
{
    const char *end = value;
    double number = 0, place = 1;
    if (!isdigit((unsigned char)*value))
        return false;
    for (; isdigit((unsigned char)*end); end++)
        number = number * 10 + (*end - '0');
    for (end += *end == '.'; isdigit((unsigned char)*end); end++)
        number += (*end - '0') * (place /= 10);
    double unit = strcmp(end, "ms") == 0 ? 1e6 : strcmp(end, "s") == 0 ? 1e9 : number == 0 && *end == '\0' ? 1 : 0;
    if (unit == 0 || !(number * unit <= 3.6e12))
        return false;
    *nanoseconds = (uint64_t)(number * unit);
    return true;
}

static bool is_duration(const char *value)
{
    uint64_t ignored;
    return parse_duration(value, &ignored);
}

/* Takes the next item off a comma-separated list; false at its end. */
static bool next_item(const char **list, char *item, size_t capacity)
{
    if (**list == '\0')
        return false;
    size_t length = strcspn(*list, ",");
    snprintf(item, capacity, "%.*s", (int)length, *list);
    *list += length;
    if (**list == ',')
        (*list)++;
    return true;
}

/* The full name of a device: "host", "cuda:1"; "cuda" stands for "cuda:0". A misspelt name must not pass for a device
 * that is absent. */
static bool base_options_device_name(const char *text, char *full, size_t capacity)
{
    static const char *const alone[] = {"host", "sim"};
    unsigned ordinal = 0;
    int end = 0;
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++)
        if (strcmp(text, alone[i]) == 0) {
            snprintf(full, capacity, "%s", text);
            return true;
        }
    bool cuda = strcmp(text, "cuda") == 0 || (strncmp(text, "cuda:", 5) == 0 && isdigit((unsigned char)text[5]) &&
                                              sscanf(text + 5, "%4u%n", &ordinal, &end) == 1 && text[5 + end] == '\0');
    snprintf(full, capacity, "cuda:%u", ordinal);
    return cuda;
}

/* "2GiB" is for all devices, "host=2GiB" for one. The last item that fits wins. */
static bool parse_budget(const char *value, const char *device, uint64_t *bytes)
{
    char item[VALUE_BYTES], name[32] = "";
    *bytes = 0;
    while (next_item(&value, item, sizeof item)) {
        char *equals = strchr(item, '=');
        uint64_t size;
        if (!wi_size_read(equals ? equals + 1 : item, &size) || size == 0)
            return false;
        if (equals)
            *equals = '\0';
        if (equals && !base_options_device_name(item, name, sizeof name))
            return false;
        if (!equals || (device && strcmp(name, device) == 0))
            *bytes = size;
    }
    return true;
}

static bool base_options_is_size(const char *value)
{
    uint64_t bytes;
    return *value == '\0' || (wi_size_read(value, &bytes) && bytes > 0);
}

static bool is_amount(const char *value)
{
    uint64_t ignored;
    return *value == '\0' || wi_size_read(value, &ignored);
}

static bool is_bytes(const char *value)
{
    uint64_t ignored;
    return wi_size_read(value, &ignored);
}

static bool is_age(const char *value)
{
    uint64_t ignored;
    return wi_duration_read(value, &ignored);
}

static bool read_count(const char *value, unsigned *out)
{
    char *end = NULL;
    if (!isdigit((unsigned char)*value))
        return false;
    errno = 0;
    unsigned long number = strtoul(value, &end, 10);
    bool good = *end == '\0' && errno == 0 && number <= INT32_MAX;
    if (good)
        *out = (unsigned)number;
    return good;
}

static bool is_count(const char *value)
{
    unsigned count;
    return *value == '\0' || (read_count(value, &count) && count >= 1 && count <= 1024);
}

static bool is_percent(const char *value)
{
    unsigned percent;
    return read_count(value, &percent) && percent <= 100;
}

static bool is_budget(const char *value)
{
    uint64_t ignored;
    return parse_budget(value, NULL, &ignored);
}

/* Values ----------------------------------------------------------------------------------------------------------- */

/* A service may have no HOME; the user database has one. */
static void default_home(char *text, size_t capacity)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char names[1024];
    struct passwd user, *found = NULL;
    if (cache && *cache) {
        snprintf(text, capacity, "%s/weir", cache);
        return;
    }
    if ((!home || !*home) && getpwuid_r(getuid(), &user, names, sizeof names, &found) == 0 && found)
        home = user.pw_dir;
    snprintf(text, capacity, "%s/.cache/weir", home ? home : "");
}

static struct option *base_options_find(const char *name)
{
    for (size_t i = 0; name && i < OPTION_COUNT; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

/* Reads the variable; "" if it is not set. False: too long. White space around words and numbers comes from files and
 * shells, and is removed; around paths it may be meant. */
static bool read_environment(const struct option *option, char value[VALUE_BYTES])
{
    const char *text = getenv(option->environment);
    size_t length = text ? strlen(text) : 0;
    if (option->valid != is_anything) {
        for (; length > 0 && isspace((unsigned char)*text); length--)
            text++;
        while (length > 0 && isspace((unsigned char)text[length - 1]))
            length--;
    }
    value[0] = '\0';
    if (length >= VALUE_BYTES)
        return false;
    if (length > 0)
        memcpy(value, text, length);
    value[length] = '\0';
    return true;
}

/* Fills in an option's value. One that does not parse is marked and not used. The lock is held. */
static void read_option(const struct option *option, weir_option *out)
{
    *out = (weir_option){.struct_size = out->struct_size,
                         .name = option->name,
                         .environment = option->environment,
                         .help = option->help};
    if (option->given) {
        out->source = WEIR_OPTION_FROM_CALL;
        memcpy(out->value, option->value, sizeof out->value);
        return;
    }
    char value[VALUE_BYTES];
    bool fits = read_environment(option, value);
    if (!fits || *value) {
        if (fits && option->valid(value)) {
            out->source = WEIR_OPTION_FROM_ENVIRONMENT;
            memcpy(out->value, value, strlen(value) + 1);
            return;
        }
        out->rejected = true;
    }
    if (option->standard)
        snprintf(out->value, sizeof out->value, "%s", option->standard);
    else
        default_home(out->value, sizeof out->value);
}

static weir_status base_options_give(const struct option *option, weir_option *out)
{
    weir_option value = {.struct_size = sizeof value};
    watch_forks();
    pthread_mutex_lock(&lock);
    read_option(option, &value);
    pthread_mutex_unlock(&lock);
    if (!wi_copy_out(out, out->struct_size, &value, sizeof value))
        return weir_fail(WEIR_ERR_INVALID, "weir_option_info: member struct_size is not set");
    return WEIR_OK;
}

static weir_status base_options_unknown(const char *name)
{
    const struct option *nearest = &options[0];
    for (size_t i = 1; i < OPTION_COUNT; i++)
        if (wi_edit_distance(name, options[i].name) < wi_edit_distance(name, nearest->name))
            nearest = &options[i];
    return weir_fail(WEIR_ERR_NOT_FOUND, "there is no option \"%.64s\"; the nearest is \"%s\"", name, nearest->name);
}

static weir_status option_at(size_t index, weir_option *out)
{
    if (index >= OPTION_COUNT)
        return weir_fail(WEIR_ERR_NOT_FOUND, "there are %d options; %zu is past the last", (int)OPTION_COUNT, index);
    return base_options_give(&options[index], out);
}

weir_status weir_option_info(const char *name, size_t index, weir_option *out)
{
    WI_ENTER();
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_option_info: NULL");
    const struct option *option = base_options_find(name);
    return !name ? option_at(index, out) : option ? base_options_give(option, out) : base_options_unknown(name);
}

weir_status weir_option_set(const char *name, const char *value)
{
    WI_ENTER();
    if (!name)
        return weir_fail(WEIR_ERR_INVALID, "weir_option_set: NULL");
    struct option *option = base_options_find(name);
    if (!option)
        return base_options_unknown(name);
    if (value && (strlen(value) >= VALUE_BYTES || !option->valid(value)))
        return weir_fail(WEIR_ERR_INVALID, "option %s does not take \"%.80s\": %s", name, value, option->help);
    watch_forks();
    pthread_mutex_lock(&lock);
    option->given = value != NULL;
    if (value)
        memcpy(option->value, value, strlen(value) + 1);
    pthread_mutex_unlock(&lock);
    wi_log_option_changed();
    return WEIR_OK;
}

weir_status wi_option_budget(const char *device, uint64_t *bytes)
{
    weir_option option = {.struct_size = sizeof option};
    weir_status status = weir_option_info("budget", 0, &option);
    if (status == WEIR_OK && option.rejected)
        return weir_fail(WEIR_ERR_INVALID, "%s does not hold a budget: %s", option.environment, option.help);
    if (status == WEIR_OK)
        (void)parse_budget(option.value, device, bytes);
    return status;
}

/* False: the option has no value, or there is none to be had. */
static bool base_options_value(const char *name, weir_option *out)
{
    *out = (weir_option){.struct_size = sizeof *out};
    return weir_option_info(name, 0, out) == WEIR_OK && out->value[0];
}

static uint64_t base_options_size(const char *name, uint64_t otherwise)
{
    weir_option option;
    uint64_t bytes;
    return base_options_value(name, &option) && wi_size_read(option.value, &bytes) ? bytes : otherwise;
}

static unsigned base_options_count(const char *name)
{
    weir_option option;
    unsigned count = 0;
    if (base_options_value(name, &option))
        (void)read_count(option.value, &count);
    return count;
}

static bool base_options_is_on(const char *name)
{
    weir_option option;
    return base_options_value(name, &option) && strcmp(option.value, "1") == 0;
}

uint64_t wi_option_range(void)
{
    return base_options_size("range", 0);
}

uint64_t wi_option_thread_cache(void)
{
    return base_options_size("thread_cache", UINT64_MAX);
}

uint64_t wi_option_outside(void)
{
    return base_options_size("outside", 0);
}

unsigned wi_option_reuse_wait(void)
{
    return base_options_count("reuse_wait");
}

unsigned wi_option_move_time(void)
{
    return base_options_count("move_time");
}

unsigned wi_option_cores(void)
{
    return base_options_count("cores");
}

uint64_t wi_option_wait(void)
{
    weir_option option;
    uint64_t nanoseconds = UINT64_C(1000000000);
    if (base_options_value("wait", &option))
        (void)parse_duration(option.value, &nanoseconds);
    return nanoseconds;
}

bool wi_option_poison(void)
{
    return base_options_is_on("poison");
}

bool wi_option_protect(void)
{
    return base_options_is_on("protect");
}

bool wi_option_watch(void)
{
    return base_options_is_on("watch");
}

bool wi_option_predictions(void)
{
    return base_options_is_on("predictions");
}
