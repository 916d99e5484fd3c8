/* config.c: reads a server's configuration, and finds what is wrong with it. */
#include "config.h"

#include "base/values.h"
#include "cli/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- problems ---------------------------------------------------------------------------------------------------- */

void config_problem(server_config *to, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    to->problems = text_grow(to->problems, to->problem_count + 1, sizeof *to->problems);
    to->problems[to->problem_count++] = text_vprint(format, arguments);
    va_end(arguments);
}

/* ---- times -------------------------------------------------------------------------------------------------------- */

/* Parts like "1h30m"; a number alone is of seconds. Answers nanoseconds. */
static bool read_parts(const char *text, double *out)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}};
    bool any = false;
    *out = 0;
    while (*text) {
        char *end = NULL;
        if (strspn(text, "0123456789.") == 0 || text[1] == 'x' || text[1] == 'X') /* no "inf", no "0x10" */
            return false;
        double number = strtod(text, &end), unit = 0;
        if (number < 0 || end == text)
            return false;
        size_t letters = strspn(end, "nusmh");
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            if (strlen(units[i].unit) == letters && memcmp(units[i].unit, end, letters) == 0)
                unit = units[i].seconds;
        if (letters == 0 && *end == '\0' && !any)
            unit = 1;
        if (unit == 0)
            return false;
        *out += number * unit * 1e9;
        text = end + letters;
        any = true;
    }
    return any;
}

bool config_duration(const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    double nanoseconds = json_number_value(value) * 1e9;
    bool negative = text ? *text == '-' : nanoseconds < 0;
    if (!text && !json_is_number(value))
        return false;
    if (text && !read_parts(text + negative, &nanoseconds))
        return false;
    *out = negative || nanoseconds > 1e18 ? WEIR_POOL_NONE : (uint64_t)nanoseconds;
    return true;
}

/* ---- what a key of a model may hold ------------------------------------------------------------------------------ */

typedef struct rule rule;

struct rule {
    const char *key;
    bool (*good)(const json_t *value, const rule *of);
    const char *wanted;
    json_int_t least, most;
};

static bool serve_config_is_text(const json_t *value, const rule *of)
{
    (void)of;
    return json_string_length(value) > 0 && strlen(json_string_value(value)) == json_string_length(value);
}

static bool is_flag(const json_t *value, const rule *of)
{
    (void)of;
    return json_is_boolean(value);
}

static bool serve_config_is_number(const json_t *value, const rule *of)
{
    return json_is_integer(value) && json_integer_value(value) >= of->least && json_integer_value(value) <= of->most;
}

static bool is_time(const json_t *value, const rule *of)
{
    uint64_t nanoseconds;
    (void)of;
    return config_duration(value, &nanoseconds);
}

static bool serve_config_read_size(const json_t *value, uint64_t *bytes)
{
    *bytes = json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
    return json_is_integer(value) ? *bytes > 0
                                  : json_is_string(value) && wi_size_parse(json_string_value(value), bytes) == WEIR_OK;
}

static bool serve_config_is_size(const json_t *value, const rule *of)
{
    uint64_t bytes;
    (void)of;
    return serve_config_read_size(value, &bytes) && bytes > 0;
}

static bool are_texts(const json_t *value, const rule *of)
{
    size_t i;
    const json_t *one;
    json_array_foreach(value, i, one)
    {
        if (!serve_config_is_text(one, of))
            return false;
    }
    return json_is_array(value);
}

static bool are_settings(const json_t *value, const rule *of)
{
    const char *key;
    json_t *one;
    (void)of;
    json_object_foreach((json_t *)(uintptr_t)value, key, one)
    {
        if (!*key || !(serve_config_is_text(one, of) || json_is_number(one) || json_is_boolean(one)))
            return false;
    }
    return json_is_object(value);
}

static int step_of(const char *name)
{
    int step = 0;
    while (step < WEIR_POOL_STEP_COUNT && strcmp(weir_pool_step_name((weir_pool_step)step), name) != 0)
        step++;
    return step;
}

static bool are_steps(const json_t *value, const rule *of)
{
    size_t i;
    const json_t *one;
    unsigned seen = 0;
    if (!are_texts(value, of) || json_array_size(value) == 0)
        return false;
    json_array_foreach(value, i, one)
    {
        int step = step_of(json_string_value(one));
        if (step == WEIR_POOL_STEP_COUNT || (seen & 1u << step))
            return false;
        seen |= 1u << step;
    }
    return true;
}

static bool are_variants(const json_t *value, const rule *of)
{
    static const rule rules[] = {{"tuning", are_settings, NULL, 0, 0},
                                 {"context", serve_config_is_number, NULL, 1, UINT32_MAX},
                                 {"layers", serve_config_is_number, NULL, 0, INT32_MAX}};
    enum { RULES = sizeof rules / sizeof *rules };
    size_t i;
    json_t *one, *member;
    const char *key;
    (void)of;
    json_array_foreach(value, i, one)
    {
        json_object_foreach(one, key, member)
        {
            size_t r = 0;
            while (r < RULES && strcmp(rules[r].key, key) != 0)
                r++;
            if (r == RULES || !rules[r].good(member, &rules[r]))
                return false;
        }
        if (!json_is_object(one) || json_object_size(one) == 0)
            return false;
    }
    return json_is_array(value) && json_array_size(value) <= CONFIG_VARIANTS;
}

#define TIME "a time: \"5m\", \"1h30m\", a number of seconds, or -1 for never"
#define SIZE "a size: \"512MiB\", \"8GiB\" or a number of bytes"

static const rule rules[] = {
    {"path", serve_config_is_text, "the name of a file or folder", 0, 0},
    {"aliases", are_texts, "a list of names", 0, 0},
    {"tuning", are_settings, "an object of settings: texts, numbers, true or false", 0, 0},
    {"engine", serve_config_is_text, "the name of an engine", 0, 0},
    {"provider", serve_config_is_text, "the name of a provider", 0, 0},
    {"device", serve_config_is_text, "the name of a device", 0, 0},
    {"load", is_flag, "true or false", 0, 0},
    {"pin", is_flag, "true or false", 0, 0},
    {"suspend", is_flag, "true or false", 0, 0},
    {"warm_up", is_flag, "true or false", 0, 0},
    {"prepare", is_flag, "true or false", 0, 0},
    {"keep_alive", is_time, TIME, 0, 0},
    {"suspend_after", is_time, TIME, 0, 0},
    {"minimum_stay", is_time, TIME, 0, 0},
    {"priority", serve_config_is_number, "a whole number from -1000 to 1000", -1000, 1000},
    {"weight", serve_config_is_number, "a whole number from 1 to 1000", 1, 1000},
    {"parallel", serve_config_is_number, "a whole number from 1 to 4096", 1, 4096},
    {"guaranteed", serve_config_is_size, SIZE, 0, 0},
    {"maximum", serve_config_is_size, SIZE, 0, 0},
    {"peak", serve_config_is_size, SIZE, 0, 0},
    {"gives_up", are_steps, "a list of context, layers, suspend, evict, device and wait, each once", 0, 0},
    {"variants", are_variants, "a list of up to 7 objects with tuning, context or layers", 0, 0},
};

/* The keys of one object; `where` is its own. */
static void serve_config_check_model(server_config *to, const char *where, const json_t *model, bool has_path)
{
    const char *key;
    json_t *value;
    if (!json_is_object(model)) {
        config_problem(to, "%s: is to be an object", where);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)model, key, value)
    {
        size_t i = 0;
        while (i < sizeof rules / sizeof *rules && strcmp(rules[i].key, key) != 0)
            i++;
        if (i == sizeof rules / sizeof *rules)
            config_problem(to, "%s.%.60s: there is no such key; docs/guide/serve.md lists them", where, key);
        else if (!has_path && (strcmp(key, "path") == 0 || strcmp(key, "aliases") == 0))
            config_problem(to, "%s.%s: is for one model alone", where, key);
        else if (!rules[i].good(value, &rules[i]))
            config_problem(to, "%s.%s: is to be %s", where, key, rules[i].wanted);
    }
    if (has_path && !json_object_get(model, "path"))
        config_problem(to, "%s.path: is missing: the model's file", where);
}

/* ---- models and folders ------------------------------------------------------------------------------------------ */

enum { NAME_MOST = 63 };

static char *path_from(const server_config *from, const char *path)
{
    return path[0] == '/' ? text_copy(path) : text_print("%s%s", from->folder, path);
}

static bool serve_config_good_name(const char *name)
{
    bool control = false;
    for (const char *c = name; *c; c++)
        control |= (unsigned char)*c < ' ';
    return name[0] && strlen(name) <= NAME_MOST && !control;
}

static void take_models(server_config *to)
{
    const json_t *defaults = json_object_get(to->root, "defaults");
    json_t *models = json_object_get(to->root, "models"), *model;
    const char *name;
    to->models = json_object();
    if (defaults)
        serve_config_check_model(to, "defaults", defaults, false);
    if (models && !json_is_object(models))
        config_problem(to, "models: is to be an object, with a model by each name");
    json_object_foreach(models, name, model)
    {
        char *where = text_print("models.%.80s", name);
        if (!serve_config_good_name(name))
            config_problem(to, "%s: a name has 1 to %d bytes, and no control characters", where, NAME_MOST);
        serve_config_check_model(to, where, model, true);
        free(where);
        const char *path = json_string_value(json_object_get(model, "path"));
        if (!path)
            continue;
        json_t *whole = json_deep_copy(model);
        json_object_update_missing(whole, (json_t *)(uintptr_t)defaults);
        char *from_here = path_from(to, path);
        json_object_set_new(whole, "path", text_json(from_here));
        free(from_here);
        json_object_set_new(to->models, name, whole);
    }
}

static void take_folders(server_config *to)
{
    const json_t *folders = json_object_get(to->root, "folders"), *one;
    size_t i;
    if (folders && !are_texts(folders, NULL)) {
        config_problem(to, "folders: is to be a list of names of folders");
        return;
    }
    json_array_foreach(folders, i, one)
    {
        to->folders = text_grow(to->folders, to->folder_count + 1, sizeof *to->folders);
        to->folders[to->folder_count++] = path_from(to, json_string_value(one));
    }
}

/* Adds a problem for each alias that is already a name or an alias. */
static void serve_config_check_names(server_config *to)
{
    json_t *seen = json_object(), *model;
    const char *name;
    json_object_foreach(json_object_get(to->root, "models"), name, model)
    {
        json_object_set_new(seen, name, json_string(name));
    }
    json_object_foreach(to->models, name, model)
    {
        const json_t *alias;
        size_t i;
        json_array_foreach(json_object_get(model, "aliases"), i, alias)
        {
            const char *text = json_string_value(alias);
            const char *other = text ? json_string_value(json_object_get(seen, text)) : NULL;
            if (other)
                config_problem(to, "models.%s.aliases: '%s' is a name of '%s' already", name, text, other);
            else if (text)
                json_object_set_new(seen, text, json_string(name));
        }
    }
    json_decref(seen);
}

/* ---- the server's options ---------------------------------------------------------------------------------------- */

static void serve_config_add_word(server_config *to, char *word)
{
    to->words = text_grow(to->words, to->word_count + 1, sizeof *to->words);
    to->words[to->word_count++] = word;
}

static const arg *serve_config_option_of(const arg *options, const char *key)
{
    for (const arg *o = options; o->name; o++) {
        size_t i = 0;
        while (o->name[i] && key[i] == (o->name[i] == '-' ? '_' : o->name[i]))
            i++;
        if (!o->name[i] && !key[i])
            return o;
    }
    return NULL;
}

static void take_option(server_config *to, const arg *option, const char *key, const json_t *value)
{
    if (option->type == ARG_FLAG) {
        if (!json_is_boolean(value))
            config_problem(to, "%s: is to be true or false", key);
        else if (json_is_true(value))
            serve_config_add_word(to, text_print("--%s", option->name));
    } else if (option->type == ARG_COUNT) {
        json_int_t number = json_integer_value(value);
        if (!json_is_integer(value) || number < (json_int_t)option->least || number > (json_int_t)option->most)
            config_problem(to, "%s: is to be a whole number from %llu to %llu", key, (unsigned long long)option->least,
                           (unsigned long long)option->most);
        else
            serve_config_add_word(to, text_print("--%s=%lld", option->name, (long long)number));
    } else if (!serve_config_is_text(value, NULL)) {
        config_problem(to, "%s: is to be a text", key);
    } else {
        char *text =
            option->type == ARG_FILE ? path_from(to, json_string_value(value)) : text_copy(json_string_value(value));
        serve_config_add_word(to, text_print("--%s=%s", option->name, text));
        free(text);
    }
}

static void take_keys(server_config *to, const json_t *keys)
{
    if (!are_texts(keys, NULL))
        config_problem(to, "keys: is to be a list of texts");
    for (size_t i = 0; are_texts(keys, NULL) && i < json_array_size(keys); i++)
        serve_config_add_word(to, text_print("--key=%s", json_string_value(json_array_get(keys, i))));
}

static void take_options(server_config *to, const arg *options)
{
    static const char *const others[] = {"models", "folders", "defaults"};
    static const char *const not_here[] = {"key", "config", "json"};
    const char *key;
    json_t *value;
    json_object_foreach(to->root, key, value)
    {
        const arg *option = serve_config_option_of(options, key);
        bool other = false;
        for (size_t i = 0; i < sizeof others / sizeof *others; i++)
            other |= strcmp(key, others[i]) == 0;
        for (size_t i = 0; i < sizeof not_here / sizeof *not_here; i++)
            option = strcmp(key, not_here[i]) == 0 ? NULL : option;
        if (strcmp(key, "keys") == 0)
            take_keys(to, value);
        else if (option)
            take_option(to, option, key, value);
        else if (!other)
            config_problem(to, "%.60s: there is no such key; docs/guide/serve.md lists them", key);
    }
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

bool config_is(const char *path)
{
    json_t *root = json_load_file(path, 0, NULL);
    bool is = json_object_get(root, "models") || json_object_get(root, "folders");
    json_decref(root);
    return is;
}

weir_status config_read(const char *path, const arg *options, server_config **out)
{
    json_error_t wrong;
    FILE *file = fopen(path, "re");
    *out = NULL;
    if (!file)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "cannot read %s: %s", path,
                         strerror(errno));
    server_config *to = text_zeroed(1, sizeof *to);
    const char *slash = strrchr(path, '/');
    to->folder = text_print("%.*s", slash ? (int)(slash + 1 - path) : 0, path);
    to->root = json_loadf(file, JSON_REJECT_DUPLICATES, &wrong);
    fclose(file);
    if (!to->root) {
        config_problem(to, "%d:%d: %s", wrong.line, wrong.column, wrong.text);
    } else if (!json_is_object(to->root)) {
        config_problem(to, "1:1: is to be one JSON object");
    } else {
        take_options(to, options);
        take_folders(to);
        take_models(to);
        serve_config_check_names(to);
    }
    *out = to;
    return WEIR_OK;
}

static void free_texts(char **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i]);
    free(list);
}

void config_free(server_config *file)
{
    if (!file)
        return;
    free_texts(file->folders, file->folder_count);
    free_texts(file->words, file->word_count);
    free_texts(file->problems, file->problem_count);
    json_decref(file->models);
    json_decref(file->root);
    free(file->folder);
    free(file);
}

bool config_same_server(const server_config *a, const server_config *b)
{
    if (a->word_count != b->word_count)
        return false;
    for (size_t i = 0; i < a->word_count; i++)
        if (strcmp(a->words[i], b->words[i]) != 0)
            return false;
    return true;
}

/* Without what a loaded model can be told. */
static json_t *core_of(const json_t *model)
{
    static const char *const told[] = {"pin", "keep_alive", "aliases", "load"};
    json_t *core = model ? json_copy((json_t *)(uintptr_t)model) : json_object();
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        json_object_del(core, told[i]);
    return core;
}

bool config_same_model(const json_t *a, const json_t *b)
{
    json_t *one = core_of(a), *other = core_of(b);
    bool same = json_equal(one, other);
    json_decref(one);
    json_decref(other);
    return same;
}

/* ---- reading a model's keys -------------------------------------------------------------------------------------- */

const char *config_text(const json_t *model, const char *key)
{
    return json_string_value(json_object_get(model, key));
}

bool config_flag(const json_t *model, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(model, key);
    return value ? json_is_true(value) : otherwise;
}

json_int_t config_number(const json_t *model, const char *key, json_int_t otherwise)
{
    const json_t *value = json_object_get(model, key);
    return value ? json_integer_value(value) : otherwise;
}

uint64_t config_size(const json_t *model, const char *key)
{
    uint64_t bytes;
    const json_t *value = json_object_get(model, key);
    return value && serve_config_read_size(value, &bytes) ? bytes : 0;
}

uint64_t config_time(const json_t *model, const char *key, uint64_t otherwise)
{
    uint64_t nanoseconds;
    const json_t *value = json_object_get(model, key);
    return value && config_duration(value, &nanoseconds) ? nanoseconds : otherwise;
}

size_t config_steps(const json_t *model, weir_pool_step steps[WEIR_POOL_STEP_COUNT])
{
    size_t i;
    const json_t *one, *list = json_object_get(model, "gives_up");
    json_array_foreach(list, i, one)
    {
        steps[i] = (weir_pool_step)step_of(json_string_value(one));
    }
    return json_array_size(list);
}

void config_settings_add(config_settings *to, const char *key, const char *value)
{
    to->list = text_grow(to->list, to->count + 1, sizeof *to->list);
    to->list[to->count++] = (weir_setting){text_copy(key), text_copy(value)};
}

void config_settings_read(const json_t *object, config_settings *to)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        char *number = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
        config_settings_add(to, key, number ? number : json_string_value(value));
        free(number);
    }
}

void config_settings_clear(config_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++) {
        free((char *)(uintptr_t)settings->list[i].key);
        free((char *)(uintptr_t)settings->list[i].value);
    }
    free(settings->list);
    *settings = (config_settings){.list = NULL};
}

/* A number that stands for a setting of the engines' too, unless that is among the others. Answers it. */
static json_int_t add_own(config_settings *to, const json_t *variant, const char *key, const char *setting,
                          json_int_t otherwise)
{
    const json_t *value = json_object_get(variant, key);
    char *text = value ? text_print("%lld", (long long)json_integer_value(value)) : NULL;
    if (text && !json_object_get(json_object_get(variant, "tuning"), setting))
        config_settings_add(to, setting, text);
    free(text);
    return value ? json_integer_value(value) : otherwise;
}

void config_variants_read(const json_t *model, config_variants *to)
{
    size_t i;
    const json_t *one, *list = json_object_get(model, "variants");
    json_array_foreach(list, i, one)
    {
        weir_pool_variant *v = &to->list[i];
        *v = WEIR_INIT(weir_pool_variant);
        config_settings_read(json_object_get(one, "tuning"), &to->settings[i]);
        v->context = (uint32_t)add_own(&to->settings[i], one, "context", "context", 0);
        v->layers = (int32_t)add_own(&to->settings[i], one, "layers", "gpu_layers", -1);
        v->settings = to->settings[i].list;
        v->setting_count = to->settings[i].count;
        v->gives = json_object_get(one, "layers") ? WEIR_POOL_STEP_LAYERS : WEIR_POOL_STEP_CONTEXT;
    }
    to->count = json_array_size(list);
}

void config_variants_clear(config_variants *variants)
{
    for (size_t i = 0; i < variants->count; i++)
        config_settings_clear(&variants->settings[i]);
    variants->count = 0;
}
