/* See folders.h. */
#include "folders.h"

#include "common.h"

#include <dirent.h>
#include <sys/stat.h>

const char *const folder_files[FOLDER_FILES] = {"genai_config.json", "tokenizer.json", "tokenizer_config.json",
                                                "model.onnx"};

static FILE *open_in(const char *path, const char *file, const char *how)
{
    char name[1024];
    snprintf(name, sizeof name, "%s/%s", path, file);
    FILE *opened = fopen(name, how);
    if (!opened)
        fail_msg("%s cannot be opened", name);
    return opened;
}

char *folder_read(const char *path, const char *file, size_t *bytes)
{
    FILE *from = open_in(path, file, "rb");
    struct stat about;
    assert_int_equal(fstat(fileno(from), &about), 0);
    *bytes = (size_t)about.st_size;
    char *data = calloc(1, *bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *bytes, from), *bytes);
    fclose(from);
    return data;
}

void folder_write(const char *path, const char *file, const char *data, size_t bytes)
{
    FILE *to = open_in(path, file, "wb");
    assert_int_equal(fwrite(data, 1, bytes, to), bytes);
    assert_int_equal(fclose(to), 0);
}

void folder_copy(const char *model, char path[FOLDER_NAME])
{
    snprintf(path, FOLDER_NAME, "/tmp/weir-llm-XXXXXX");
    assert_non_null(mkdtemp(path));
    for (int i = 0; i < FOLDER_FILES; i++) {
        size_t bytes;
        char *data = folder_read(model, folder_files[i], &bytes);
        folder_write(path, folder_files[i], data, bytes);
        free(data);
    }
}

void folder_drop(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            assert_int_equal(unlinkat(dirfd(folder), entry->d_name, 0), 0);
    closedir(folder);
    assert_int_equal(rmdir(path), 0);
}

void folder_replace(const char *path, const char *file, const char *one, const char *other)
{
    size_t bytes;
    char *data = folder_read(path, file, &bytes);
    char *at = memmem(data, bytes, one, strlen(one));
    if (!at || memmem(at + 1, bytes - (size_t)(at + 1 - data), one, strlen(one)))
        fail_msg("%s: '%s' is not there once", file, one);
    FILE *to = open_in(path, file, "wb");
    size_t before = (size_t)(at - data), behind = bytes - before - strlen(one);
    assert_int_equal(fwrite(data, 1, before, to), before);
    assert_int_equal(fwrite(other, 1, strlen(other), to), strlen(other));
    assert_int_equal(fwrite(at + strlen(one), 1, behind, to), behind);
    assert_int_equal(fclose(to), 0);
    free(data);
}
