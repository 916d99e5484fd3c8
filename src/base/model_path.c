#include "base/model_path.h"

#include <weir/base.h>

#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* Paths ------------------------------------------------------------------------------------------------------------ */

const char *wi_path_meant(const char *word, char stored[PATH_MAX])
{
    weir_option home = WEIR_INIT(weir_option);
    if (word[0] == '\0' || strchr(word, '/') || access(word, F_OK) == 0 ||
        weir_option_info("home", 0, &home) != WEIR_OK)
        return word;
    int length = snprintf(stored, PATH_MAX, "%s/models/%s", home.value, word);
    return length > 0 && length < PATH_MAX && access(stored, F_OK) == 0 ? stored : word;
}

weir_status wi_path_missing(const char *path)
{
    return weir_fail(WEIR_ERR_NOT_FOUND, "%s is not there or cannot be read%s", path,
                     strchr(path, '/') ? "" : ", here or among the store's models");
}

/* Names ------------------------------------------------------------------------------------------------------------ */

/* Where the last part of the path begins, and how long it is. */
static const char *last_part(const char *path, size_t whole, size_t *length)
{
    size_t end = whole;
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    *length = end - begin;
    return path + begin;
}

const char *wi_path_model_name(const char *path, size_t *length)
{
    static const char genai_config[] = "genai_config.json";
    const char *name = last_part(path, strlen(path), length);
    if (name > path + 1 && *length == sizeof genai_config - 1 && strncmp(name, genai_config, *length) == 0)
        name = last_part(path, (size_t)(name - path), length);
    if (*length == 0) { /* of the root there is no last part */
        *length = strlen(path);
        return path;
    }
    return name;
}

/* Words ------------------------------------------------------------------------------------------------------------ */

typedef bool word_fits(const char *word, size_t length, const char *path);

static bool any_fits(const char *words, const char *path, word_fits *fits)
{
    while (words && *words) {
        size_t length = strcspn(words, " ");
        if (length > 0 && fits(words, length, path))
            return true;
        words += length + strspn(words + length, " ");
    }
    return false;
}

static bool fits_name(const char *word, size_t length, const char *path)
{
    size_t whole = strlen(path);
    if (word[0] == '.')
        return length < whole && strncasecmp(path + whole - length, word, length) == 0;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return strlen(name) == length && strncmp(name, word, length) == 0;
}

bool wi_suffix_of(const char *words, const char *path)
{
    return any_fits(words, path, fits_name);
}

static bool is_in_folder(const char *word, size_t length, const char *folder)
{
    char path[PATH_MAX];
    struct stat about;
    int written = snprintf(path, sizeof path, "%s/%.*s", folder, (int)length, word);
    return word[0] != '.' && written > 0 && (size_t)written < sizeof path && stat(path, &about) == 0 &&
           S_ISREG(about.st_mode);
}

bool wi_path_taken(const char *words, const char *path)
{
    struct stat about;
    bool folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    return any_fits(words, path, folder ? is_in_folder : fits_name);
}

const char *wi_suffix_by_content(const char *path)
{
    unsigned char head[4] = {0};
    FILE *file = fopen(path, "rbe");
    size_t got = file ? fread(head, 1, sizeof head, file) : 0;
    if (file)
        fclose(file);
    if (got == 4 && memcmp(head, "GGUF", 4) == 0)
        return "x.gguf";
    if (got >= 2 && head[0] == 0x08 &&
        head[1] < 32) /* field 1 of ONNX's ModelProto, ir_version, comes first in practice */
        return "x.onnx";
    return "";
}
