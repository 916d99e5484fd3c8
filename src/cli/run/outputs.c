/* outputs.c: what comes out of a model: kept, written to files, shown. */
#include "tensors.h"
#include <weir/engine.h>

#include "cli/terminal.h"
#include "cli/text.h"
#include "base/values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SHOWN_VALUES = 4, FILE_BYTES = 180 /* of a file's name */ };

weir_status outputs_keep(const weir_outputs *from, outputs *out)
{
    *out = (outputs){.tensors = text_zeroed(from->count, sizeof *out->tensors),
                     .files = text_zeroed(from->count, sizeof *out->files)};
    for (size_t i = 0; i < from->count; i++) {
        /* The first tensor's struct_size is the stride: the engine may have been built with a longer weir_tensor. */
        const weir_tensor *tensor =
            (const weir_tensor *)((const char *)from->tensors + i * from->tensors[0].struct_size);
        void *data = malloc(tensor->bytes + 1);
        if (data == NULL)
            return weir_fail(WEIR_ERR_SYSTEM, "no memory to keep output %s (%zu bytes)", tensor->name, tensor->bytes);
        if (tensor->bytes > 0)
            memcpy(data, tensor->data, tensor->bytes);
        ((char *)data)[tensor->bytes] = '\0';
        weir_tensor *stored = &out->tensors[out->count++];
        *stored = *tensor;
        stored->struct_size = sizeof *stored;
        stored->name = text_copy(tensor->name != NULL ? tensor->name : "");
        stored->data = data;
    }
    return WEIR_OK;
}

char *file_name_of(const char *name)
{
    char *file = text_clean(name, strlen(name), false);
    for (char *at = file; *at != '\0'; at++)
        if (strchr("/\\:*?\"<>|", *at) != NULL)
            *at = '_';
    if (file[0] == '.')
        file[0] = '_';
    text_cut(file, FILE_BYTES);
    if (file[0] == '\0') {
        free(file);
        return text_copy("_");
    }
    return file;
}

static weir_status outputs_make_folder(const char *path)
{
    char *copy = text_copy(path);
    for (char *at = copy + 1; *at != '\0'; at++)
        if (*at == '/') {
            *at = '\0';
            (void)mkdir(copy, 0777); /* the last mkdir tells what could not be made */
            *at = '/';
        }
    free(copy);
    struct stat found;
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && stat(path, &found) == 0 && S_ISDIR(found.st_mode)))
        return WEIR_OK;
    return weir_fail(WEIR_ERR_SYSTEM, "cannot make the folder %s: %s", path, strerror(errno));
}

static weir_status write_text(const char *path, const weir_tensor *tensor)
{
    FILE *file = output_file_open(path, "");
    if (file == NULL)
        return WEIR_ERR_SYSTEM;
    errno = 0;
    bool good = tensor->bytes == 0 || fwrite(tensor->data, 1, tensor->bytes, file) == tensor->bytes;
    if (tensor->bytes == 0 || ((const char *)tensor->data)[tensor->bytes - 1] != '\n')
        good = fputc('\n', file) != EOF && good;
    return output_file_close(file, path, "", good ? 0 : errno);
}

/* DIR/NAME.npy; NAME-2.npy if two names give the same file name. */
static char *file_for(const outputs *all, size_t index, const char *folder)
{
    const weir_tensor *tensor = &all->tensors[index];
    char *base = file_name_of(tensor->name);
    const char *suffix = tensor->type == WEIR_TYPE_TEXT ? "txt" : "npy";
    char *path = text_print("%s/%s.%s", folder, base, suffix);
    for (size_t number = 2, i = 0; i < index; i++)
        if (all->files[i] != NULL && strcmp(all->files[i], path) == 0) {
            free(path);
            path = text_print("%s/%s-%zu.%s", folder, base, number++, suffix);
            i = (size_t)-1; /* compares the new path with all files again */
        }
    free(base);
    return path;
}

weir_status outputs_write(outputs *all, const char *folder)
{
    weir_status status = outputs_make_folder(folder);
    for (size_t i = 0; status == WEIR_OK && i < all->count; i++) {
        char *path = file_for(all, i, folder);
        const weir_tensor *tensor = &all->tensors[i];
        status = tensor->type == WEIR_TYPE_TEXT ? write_text(path, tensor) : npy_write(path, tensor);
        if (status == WEIR_OK)
            all->files[i] = path;
        else
            free(path);
    }
    return status;
}

json_t *outputs_json(const outputs *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const weir_tensor *tensor = &all->tensors[i];
        weir_type stored = npy_stored_type(tensor->type);
        json_t *shape = json_array();
        for (uint32_t j = 0; j < tensor->rank; j++)
            json_array_append_new(shape, json_integer(tensor->shape[j]));
        json_t *object = json_pack("{s:o, s:s, s:o, s:o}", "name", text_json(tensor->name), "type",
                                   weir_name_of(WEIR_NAMES_TYPE, tensor->type), "shape", shape, "file",
                                   all->files[i] != NULL ? text_json(all->files[i]) : json_null());
        if (tensor->type == WEIR_TYPE_TEXT)
            json_object_set_new(object, "text", text_json_bytes(tensor->data, tensor->bytes));
        else if (stored != tensor->type)
            json_object_set_new(object, "stored_as", json_string(weir_name_of(WEIR_NAMES_TYPE, stored)));
        json_array_append_new(list, object);
    }
    return list;
}

static void print_values(const weir_tensor *tensor)
{
    char text[32];
    size_t width = wi_type_bytes(tensor->type), count = width == 0 ? 0 : tensor->bytes / width;
    for (size_t i = 0; i < count && i < SHOWN_VALUES; i++)
        printf(" %s", numbers_text(tensor->type, tensor->data, i, text, sizeof text));
    printf("%s\n", count > SHOWN_VALUES ? " …" : count == 0 ? " (empty)" : "");
}

static void outputs_print_text(const weir_tensor *tensor)
{
    char *clean = text_clean(tensor->data, tensor->bytes, true);
    printf("\n    ");
    for (const char *at = clean; *at != '\0'; at++)
        printf(*at == '\n' && at[1] != '\0' ? "\n    " : "%c", *at);
    puts("");
    free(clean);
}

void outputs_print(const outputs *all, bool streamed)
{
    for (size_t i = 0; i < all->count; i++) {
        const weir_tensor *tensor = &all->tensors[i];
        weir_type stored = npy_stored_type(tensor->type);
        char *name = text_clean(tensor->name, strlen(tensor->name), false);
        printf("  %s %s%s [", name, terminal_faint(), weir_name_of(WEIR_NAMES_TYPE, tensor->type));
        free(name);
        for (uint32_t j = 0; j < tensor->rank; j++)
            printf("%s%" PRId64, j > 0 ? ", " : "", tensor->shape[j]);
        printf("]%s", terminal_plain());
        if (all->files[i] != NULL)
            printf(" → %s%s%s", all->files[i],
                   stored != tensor->type && tensor->type != WEIR_TYPE_TEXT ? ", stored as " : "",
                   stored != tensor->type && tensor->type != WEIR_TYPE_TEXT ? weir_name_of(WEIR_NAMES_TYPE, stored)
                                                                            : "");
        if (tensor->type == WEIR_TYPE_TEXT && !streamed)
            outputs_print_text(tensor);
        else if (tensor->type == WEIR_TYPE_TEXT || all->files[i] != NULL)
            puts("");
        else
            print_values(tensor);
    }
}

void outputs_clear(outputs *all)
{
    for (size_t i = 0; i < all->count; i++) {
        free((char *)all->tensors[i].name);
        free(all->tensors[i].data);
        free(all->files[i]);
    }
    free(all->tensors);
    free(all->files);
    *all = (outputs){0};
}
