/* What the path of a model tells, and the folder of watched processes. */
#include "base/paths.h"

#include <weir/base.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Models ----------------------------------------------------------------------------------------------------------- */

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

/* Watched processes ------------------------------------------------------------------------------------------------ */

bool wi_watch_allows(uid_t self, uid_t peer)
{
    return peer == self || peer == 0;
}

void wi_watch_address(int folder, const char *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%.64s", folder, name);
}

static weir_status watch_folder_check_owner(int file, const char *path, bool make, uid_t self)
{
    struct stat found;
    if (fstat(file, &found) != 0)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    if (found.st_uid != self && (make || self != 0))
        return weir_fail(WEIR_ERR_SYSTEM, "the folder %s is user %u's, not user %u's", path, (unsigned)found.st_uid,
                         (unsigned)self);
    if (found.st_mode & (S_IRWXG | S_IRWXO))
        return weir_fail(WEIR_ERR_SYSTEM, "the folder %s can be entered by others: its mode is %03o, not 700", path,
                         (unsigned)found.st_mode & 0777u);
    return WEIR_OK;
}

weir_status wi_watch_folder_take(const char *path, bool make, uid_t self, int *file)
{
    *file = -1;
    if (make && mkdir(path, S_IRWXU) != 0 && errno != EEXIST)
        return weir_fail(WEIR_ERR_SYSTEM, "the folder %s cannot be made: %s", path, strerror(errno));
    int opened = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "the folder %s: %s", path,
                         strerror(errno));
    weir_status status = watch_folder_check_owner(opened, path, make, self);
    if (status == WEIR_OK && (*file = openat(opened, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        status = weir_fail(WEIR_ERR_SYSTEM, "the folder %s: %s", path, strerror(errno));
    close(opened);
    return status;
}

/* The folder that the system gives the user until logout; "": none. A privileged program does not believe its caller, and
 * nobody puts a folder into another user's. */
static const char *runtime_folder(bool make, uid_t self)
{
    const char *path = secure_getenv("XDG_RUNTIME_DIR");
    struct stat found;
    if (!path || path[0] != '/' || strlen(path) + sizeof "/weir" > WI_WATCH_PATH || stat(path, &found) != 0)
        return "";
    return make && found.st_uid != self ? "" : path;
}

weir_status wi_watch_folder_open(int number, bool make, char path[WI_WATCH_PATH], int *file)
{
    uid_t self = geteuid();
    const char *given = number == 0 ? runtime_folder(make, self) : "/tmp";
    *file = -1;
    if (!given[0])
        return weir_fail(WEIR_ERR_NOT_FOUND, "XDG_RUNTIME_DIR names no folder of this user's");
    if (number == 0)
        snprintf(path, WI_WATCH_PATH, "%s/weir", given);
    else
        snprintf(path, WI_WATCH_PATH, "%s/weir-%u", given, (unsigned)self);
    return wi_watch_folder_take(path, make, self, file);
}
