/* config.h: what a server is to be, in one JSON file. docs/guide/serve.md has the keys.
 *
 * A file is read as a whole, and everything that is wrong with it is found. What is good is handed out as JSON objects of
 * models, in which every key has the type that it should have: the functions below read them. */
#ifndef WEIR_CLI_SERVE_CONFIG_H
#define WEIR_CLI_SERVE_CONFIG_H

#include <weir/pool.h>

#include "cli/args.h"

#include <jansson.h>

typedef struct server_config {
    json_t *root;
    json_t *models; /* by name, each with the defaults that it does not say otherwise, and its path from here */
    char *folder;   /* that paths are from */
    char **folders; /* of models, as they can be opened from here */
    size_t folder_count;
    char **words; /* what the file says instead of the command line, as words of it */
    size_t word_count;
    char **problems; /* "models.chat.pin: …"; with one the rest is not to be used */
    size_t problem_count;
} server_config;

/* Whether the file is meant for a server: a JSON object with models or folders. */
bool config_is(const char *path);
/* Reads it; `options` are the command line's. WEIR_ERR_NOT_FOUND, WEIR_ERR_SYSTEM: the file cannot be read. *out is the
 * caller's. */
weir_status config_read(const char *path, const arg *options, server_config **out);
void config_free(server_config *file); /* NULL is nothing */
/* Adds one more problem. */
void config_problem(server_config *to, const char *format, ...) WEIR_PRINTF(2, 3);
/* serve.c: as config_read with the verb's own options. NULL: it cannot be read, and the detail says why. */
server_config *serve_config(const char *path);
/* Whether both say the same of everything but models and folders. */
bool config_same_server(const server_config *a, const server_config *b);
/* Whether they say the same of a model but for what needs no other load: pin, keep_alive, aliases and load. */
bool config_same_model(const json_t *a, const json_t *b);

/* Reads a number of seconds, or a text like "300", "5m" or "1h30m", as nanoseconds; what is below 0, and what nobody lives
 * to see the end of, is WEIR_POOL_NONE. False: it is none. */
bool config_duration(const json_t *value, uint64_t *out);

/* ---- of a model; NULL is one that says nothing ------------------------------------------------------------------- */

const char *config_text(const json_t *model, const char *key); /* NULL: it says nothing */
bool config_flag(const json_t *model, const char *key, bool otherwise);
json_int_t config_number(const json_t *model, const char *key, json_int_t otherwise);
uint64_t config_size(const json_t *model, const char *key); /* bytes; 0: it says nothing */
/* Nanoseconds; "-1" and the like are WEIR_POOL_NONE. */
uint64_t config_time(const json_t *model, const char *key, uint64_t otherwise);
/* The steps of gives_up; answers how many. */
size_t config_steps(const json_t *model, weir_pool_step steps[WEIR_POOL_STEP_COUNT]);

/* Settings with texts of their own. */
typedef struct config_settings {
    weir_setting *list;
    size_t count;
} config_settings;

void config_settings_read(const json_t *object, config_settings *to);
void config_settings_add(config_settings *to, const char *key, const char *value);
void config_settings_clear(config_settings *settings);

enum { CONFIG_VARIANTS = 7 }; /* as a pool has it */

typedef struct config_variants {
    weir_pool_variant list[CONFIG_VARIANTS];
    config_settings settings[CONFIG_VARIANTS];
    size_t count;
} config_variants;

void config_variants_read(const json_t *model, config_variants *to);
void config_variants_clear(config_variants *variants);

#endif
