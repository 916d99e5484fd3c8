/* scratch_known.c: the scratch that earlier loads have measured, kept in the store's file `gguf-scratch`.
 *
 * A measurement computes two of the largest batches, which are most of a short load on a device. The scratch depends on
 * the model's file, the settings, llama.cpp's libraries and the kind of device with its driver: when none of these has
 * changed, the known scratch is reserved, and nothing is computed. The file has a line for each measurement, the newest
 * last, with a checksum; a line that is damaged or implausible is ignored. */
#include "wg.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY = 33 }; /* with the byte behind it */
enum { MOST_LINES = 256, LINE = 32 + 2 + WG_DEVICES * 48 + 20, PATH_BYTES = 700 };
#define MOST_SCRATCH (UINT64_C(1) << 40) /* more than any device has */

/* ---- the key ----------------------------------------------------------------------------------------------------- */

typedef struct words {
    uint64_t sums[2];
} words;

static void scratch_known_add(words *to, const void *data, size_t bytes)
{
    for (int i = 0; i < 2; i++)
        to->sums[i] = wt_sum(to->sums[i] + bytes, data, bytes);
}

static void scratch_known_add_text(words *to, const char *text)
{
    scratch_known_add(to, text, strlen(text) + 1);
}

static void scratch_known_add_file(words *to, const char *path)
{
    struct stat about;
    scratch_known_add_text(to, path);
    if (stat(path, &about) != 0)
        return;
    const int64_t facts[] = {(int64_t)about.st_size, (int64_t)about.st_mtim.tv_sec, (int64_t)about.st_mtim.tv_nsec};
    scratch_known_add(to, facts, sizeof facts);
}

static void add_driver(words *to)
{
    char line[256] = "";
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    if (file && !fgets(line, sizeof line, file))
        line[0] = '\0';
    if (file)
        fclose(file);
    scratch_known_add_text(to, line);
}

static void add_devices(const weir_engine_model *model, words *to)
{
    for (size_t i = 0; i < model->devices.count; i++) {
        size_t unused = 0, total = 0;
        model->library->ggml_backend_dev_memory(model->devices.list[i], &unused, &total);
        scratch_known_add_text(to, model->library->ggml_backend_dev_description(model->devices.list[i]));
        scratch_known_add(to, &total, sizeof total);
    }
}

/* False: it cannot be told. The fingerprint has the contents of the file. */
static bool scratch_known_make_key(const weir_engine_model *model, char key[KEY])
{
    char settings[1024], library[600] = "";
    wg_load_settings counted = model->load;
    words all = {{1, 2}};
    const uint32_t sizes[] = {model->longest, model->pack, model->step, model->embeds};
    counted.threads = 0;
    if (!wt_choices_words(&wg_choices, &counted, 0, settings, sizeof settings) ||
        wg_devices_find(model->load.llama_cuda, library, sizeof library) != WEIR_OK)
        return false;
    scratch_known_add(&all, &model->fingerprint, sizeof model->fingerprint);
    scratch_known_add(&all, sizes, sizeof sizes);
    scratch_known_add_text(&all, settings);
    scratch_known_add_file(&all, library);
    scratch_known_add_file(&all, model->library->file);
    add_driver(&all);
    add_devices(model, &all);
    snprintf(key, KEY, "%016" PRIx64 "%016" PRIx64, all.sums[0], all.sums[1]);
    return true;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void scratch_known_write_line(const char *key, const wg_scratch *known, size_t devices, char line[LINE])
{
    int used = snprintf(line, LINE, "%s", key);
    for (size_t i = 0; i < devices; i++)
        used += snprintf(line + used, LINE - (size_t)used, " %" PRIu64 ",%" PRIu64, known->taken[i], known->grows[i]);
    uint64_t sum = wt_sum(3, line, (size_t)used);
    snprintf(line + used, LINE - (size_t)used, " %016" PRIx64 "\n", sum);
}

/* Reads the scratch of `devices` devices from a line. False: the line has another key, or is damaged. */
static bool scratch_known_read_line(const char *line, const char *key, size_t devices, wg_scratch *out)
{
    char again[LINE];
    wg_scratch found = {{0}, {0}};
    const char *at = line + KEY - 1;
    if (strncmp(line, key, KEY - 1) != 0)
        return false;
    for (size_t i = 0; i < devices; i++) {
        int read = 0;
        if (sscanf(at, " %" SCNu64 ",%" SCNu64 "%n", &found.taken[i], &found.grows[i], &read) != 2 || read == 0 ||
            found.taken[i] > MOST_SCRATCH || found.grows[i] > MOST_SCRATCH)
            return false;
        at += read;
    }
    scratch_known_write_line(key, &found, devices, again);
    if (strcmp(again, line) != 0)
        return false;
    *out = found;
    return true;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Whether loads are to be remembered at all. */
static bool scratch_known_is_wanted(void)
{
    weir_option its = WEIR_INIT(weir_option);
    return weir_option_info("predictions", 0, &its) == WEIR_OK && strcmp(its.value, "1") == 0;
}

static bool scratch_known_find(const char *path, const char *key, size_t devices, wg_scratch *out)
{
    char line[LINE];
    bool found = false;
    FILE *file = fopen(path, "re");
    for (int i = 0; file && i < MOST_LINES && fgets(line, sizeof line, file); i++)
        found = scratch_known_read_line(line, key, devices, out) || found; /* the newest */
    if (file)
        fclose(file);
    return found;
}

/* The lines of other keys, but for the oldest where there are too many, and the new one. */
static bool copy_lines(const char *path, const char *key, FILE *to)
{
    char line[LINE];
    size_t count = 0;
    bool good = true;
    FILE *from = fopen(path, "re");
    while (from && fgets(line, sizeof line, from))
        count++;
    if (from)
        rewind(from);
    for (size_t i = 0; good && from && fgets(line, sizeof line, from); i++)
        if (i + MOST_LINES > count && strchr(line, '\n') && strncmp(line, key, KEY - 1) != 0)
            good = fputs(line, to) >= 0;
    if (from)
        fclose(from);
    return good;
}

/* Whole or not at all; of two processes that write at once the later one's counts. */
static void scratch_known_put(const char *path, const char *key, const char *line)
{
    char beside[PATH_BYTES + 32];
    snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid());
    FILE *file = fopen(beside, "we");
    bool good = file && copy_lines(path, key, file) && fputs(line, file) >= 0;
    if (file)
        good = fclose(file) == 0 && good;
    if (!good || rename(beside, path) != 0) {
        weir_log(WEIR_LOG_DEBUG, "gguf: %s: what scratch a model takes is not remembered", path);
        (void)unlink(beside);
    }
}

bool wg_scratch_recall(const weir_engine_model *model, wg_scratch *out)
{
    char path[PATH_BYTES], key[KEY];
    if (!scratch_known_is_wanted() || !scratch_known_make_key(model, key))
        return false;
    wg_store_directory("gguf-scratch", path, sizeof path);
    return scratch_known_find(path, key, model->devices.count, out);
}

void wg_scratch_remember(const weir_engine_model *model, const wg_scratch *known)
{
    char path[PATH_BYTES], key[KEY], line[LINE];
    if (!scratch_known_is_wanted() || !scratch_known_make_key(model, key))
        return;
    wg_store_directory("gguf-scratch", path, sizeof path);
    scratch_known_write_line(key, known, model->devices.count, line);
    scratch_known_put(path, key, line);
}
