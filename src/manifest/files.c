#include "manifest/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char genai_config[] = "genai_config.json";

/* ---- paths ------------------------------------------------------------------------------------------------------- */

char *wi_path_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup("");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

char *wi_path_in(const char *folder, const char *name)
{
    char *path;
    if (name[0] == '/' || folder[0] == '\0')
        return strdup(name);
    const char *between = folder[strlen(folder) - 1] == '/' ? "" : "/";
    return asprintf(&path, "%s%s%s", folder, between, name) < 0 ? NULL : path;
}

bool wi_path_stays(const char *name)
{
    if (name[0] == '/')
        return false;
    while (*name) {
        size_t part = strcspn(name, "/");
        if (part == 2 && strncmp(name, "..", 2) == 0)
            return false;
        name += part + strspn(name + part, "/");
    }
    return true;
}

/* Whether that folder has a file of this name. */
static bool folder_has(const char *folder, const char *name)
{
    struct stat found;
    char *path = wi_path_in(folder, name);
    bool has = path && stat(path, &found) == 0 && S_ISREG(found.st_mode);
    free(path);
    return has;
}

/* ---- what a file is ---------------------------------------------------------------------------------------------- */

typedef struct suffix {
    const char *text;
    wi_file_kind kind;
    const char *why;
} suffix;

#define CONVERT     "; weir runs ONNX and GGUF models, so convert it to one of these"
#define SAFETENSORS "it has weights in safetensors, without the graph that uses them" CONVERT

static const suffix suffixes[] = {
    {".json", WI_FILE_MANIFEST, NULL},
    {".aimod", WI_FILE_PACKAGE, NULL},
    {".onnx", WI_FILE_ONNX, NULL},
    {".gguf", WI_FILE_GGUF, NULL},
    {".safetensors", WI_FILE_REFUSED, SAFETENSORS},
    {".pt", WI_FILE_REFUSED, "it is PyTorch's" CONVERT},
    {".pth", WI_FILE_REFUSED, "it is PyTorch's" CONVERT},
    {".pt2", WI_FILE_REFUSED, "it is PyTorch's" CONVERT},
    {".ckpt", WI_FILE_REFUSED, "it is a checkpoint of a training" CONVERT},
    {".h5", WI_FILE_REFUSED, "it is Keras's" CONVERT},
    {".keras", WI_FILE_REFUSED, "it is Keras's" CONVERT},
    {".pb", WI_FILE_REFUSED, "it is TensorFlow's" CONVERT},
    {".tflite", WI_FILE_REFUSED, "it is TensorFlow Lite's" CONVERT},
    {".ort", WI_FILE_REFUSED, "it is in ONNX Runtime's own format; take the .onnx file that it was made from"},
    {".engine", WI_FILE_REFUSED, "it was built by TensorRT for one device; take the .onnx file that it was made from"},
    {".plan", WI_FILE_REFUSED, "it was built by TensorRT for one device; take the .onnx file that it was made from"},
    {".mlmodel", WI_FILE_REFUSED, "it is Core ML's; take the .onnx file that it was made from"},
    {".ggml", WI_FILE_REFUSED, "it is in a format that GGUF has replaced; convert it to GGUF"},
};

static const suffix *find_suffix(const char *path)
{
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t own = strlen(suffixes[i].text);
        if (length > own && strcasecmp(path + length - own, suffixes[i].text) == 0)
            return &suffixes[i];
    }
    return NULL;
}

static wi_file_kind look_inside(const char *path, const char **why)
{
    unsigned char head[16] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file >= 0 ? read(file, head, sizeof head - 1) : -1;
    if (file >= 0)
        close(file);
    if (got < 2)
        return WI_FILE_UNKNOWN;
    if (memcmp(head, "GGUF", 4) == 0)
        return WI_FILE_GGUF;
    if (head[0] == 0x1f && head[1] == 0x8b)
        return WI_FILE_PACKAGE;
    *why = "it is a zip file, as PyTorch writes them" CONVERT;
    if (memcmp(head, "PK\3\4", 4) == 0)
        return WI_FILE_REFUSED;
    *why = SAFETENSORS;
    if (got > 8 && head[8] == '{' && head[6] == 0 && head[7] == 0) /* the length of a JSON header, then that */
        return WI_FILE_REFUSED;
    if (head[0] == 0x08 && head[1] < 32) /* field 1 of ONNX's ModelProto, ir_version, comes first in practice */
        return WI_FILE_ONNX;
    size_t start = memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    start += strspn((const char *)head + start, " \t\r\n");
    return head[start] == '{' ? WI_FILE_MANIFEST : WI_FILE_UNKNOWN;
}

wi_file_kind wi_file_look(const char *path, const char **why)
{
    struct stat found;
    if (stat(path, &found) != 0)
        return WI_FILE_MISSING;
    if (S_ISDIR(found.st_mode)) {
        *why = "it is a folder without genai_config.json, which one of ONNX Runtime GenAI's has";
        return folder_has(path, genai_config) ? WI_FILE_GENAI : WI_FILE_REFUSED;
    }
    *why = "it is neither a file nor a folder";
    if (!S_ISREG(found.st_mode))
        return WI_FILE_REFUSED;
    const char *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, genai_config) == 0)
        return WI_FILE_GENAI;
    const suffix *known = find_suffix(path);
    if (!known)
        return look_inside(path, why);
    *why = known->why;
    return known->kind;
}

char *wi_file_model(const char *path, bool llm, wi_file_kind *kind)
{
    struct stat found;
    bool folder = stat(path, &found) == 0 && S_ISDIR(found.st_mode);
    if (folder || (*kind != WI_FILE_GENAI && !(llm && *kind == WI_FILE_ONNX)))
        return strdup(path);
    char *around = wi_path_folder(path);
    bool genai = around && folder_has(around, genai_config);
    if (genai)
        *kind = WI_FILE_GENAI;
    char *model = strdup(!genai ? path : *around ? around : ".");
    free(around);
    return model;
}

const char *wi_file_framework(wi_file_kind kind)
{
    return kind == WI_FILE_ONNX ? "onnx" : kind == WI_FILE_GGUF ? "gguf" : kind == WI_FILE_GENAI ? "llm" : NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static weir_status files_read_whole(int file, const char *path, size_t most, char **out, size_t *length)
{
    struct stat found;
    if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode))
        return weir_fail(WEIR_ERR_INVALID, "%s is no file that could be read", path);
    if ((uint64_t)found.st_size > most)
        return weir_fail(WEIR_ERR_INVALID, "%s has %lld bytes; a manifest has at most %zu", path,
                         (long long)found.st_size, most);
    char *text = malloc((size_t)found.st_size + 1);
    if (!text)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for %s", path);
    size_t got = 0;
    ssize_t one = 1;
    while (got < (size_t)found.st_size && one > 0)
        got += (size_t)((one = read(file, text + got, (size_t)found.st_size - got)) > 0 ? one : 0);
    if (one < 0) {
        weir_status status = weir_fail(WEIR_ERR_SYSTEM, "cannot read %s: %s", path, strerror(errno));
        free(text);
        return status;
    }
    text[got] = '\0';
    *out = text;
    *length = got;
    return WEIR_OK;
}

weir_status wi_file_read(const char *path, size_t most, char **out, size_t *length)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "cannot read %s: %s", path,
                         strerror(errno));
    weir_status status = files_read_whole(file, path, most, out, length);
    close(file);
    return status;
}
