/* file.c: the structure of a GGUF file: header, keys, tensor directory, data section.
 *
 * What is refused here is what llama.cpp's own reader refuses too or would trip over; the messages name the byte. All
 * integers are little-endian, as the machines that weir runs on. */
#include "gguf/file/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- kinds and types --------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t bytes;
} kinds[WG_KIND_COUNT] = {
    [WG_U8] = {"u8", 1},     [WG_I8] = {"i8", 1},       [WG_U16] = {"u16", 2}, [WG_I16] = {"i16", 2},
    [WG_U32] = {"u32", 4},   [WG_I32] = {"i32", 4},     [WG_F32] = {"f32", 4}, [WG_BOOL] = {"bool", 1},
    [WG_TEXT] = {"text", 0}, [WG_ARRAY] = {"array", 0}, [WG_U64] = {"u64", 8}, [WG_I64] = {"i64", 8},
    [WG_F64] = {"f64", 8},
};

/* By the number of enum ggml_type; an element count of 0 is a number that was given up or never given. A test holds
 * these against the library's own. */
static const struct {
    uint16_t elements, bytes;
} blocks[] = {
    [0] = {1, 4},      [1] = {1, 2},      [2] = {32, 18},   [3] = {32, 20},    [6] = {32, 22},    [7] = {32, 24},
    [8] = {32, 34},    [9] = {32, 36},    [10] = {256, 84}, [11] = {256, 110}, [12] = {256, 144}, [13] = {256, 176},
    [14] = {256, 210}, [15] = {256, 292}, [16] = {256, 66}, [17] = {256, 74},  [18] = {256, 98},  [19] = {256, 50},
    [20] = {32, 18},   [21] = {256, 110}, [22] = {256, 82}, [23] = {256, 136}, [24] = {1, 1},     [25] = {1, 2},
    [26] = {1, 4},     [27] = {1, 8},     [28] = {1, 8},    [29] = {256, 56},  [30] = {1, 2},     [34] = {256, 54},
    [35] = {256, 66},  [39] = {32, 17},   [40] = {64, 36},  [41] = {128, 18},  [42] = {64, 18},
};

const char *wi_gguf_kind_name(uint32_t kind)
{
    return kind < WG_KIND_COUNT ? kinds[kind].name : "?";
}

size_t wi_gguf_kind_bytes(uint32_t kind)
{
    return kind < WG_KIND_COUNT ? kinds[kind].bytes : 0;
}

bool wi_gguf_type_block(uint32_t type, uint32_t *elements, uint32_t *bytes)
{
    if (type >= sizeof blocks / sizeof blocks[0] || blocks[type].elements == 0)
        return false;
    *elements = blocks[type].elements;
    *bytes = blocks[type].bytes;
    return true;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* The minimum bytes of a key (length, a letter, kind, a byte) and of a tensor entry. */
enum { LEAST_KEY = 8 + 1 + 4 + 1, LEAST_TENSOR = 8 + 1 + 4 + 8 + 4 + 8, LONGEST_KEY = 65535 };

static weir_status gguf_file_file_corrupt(const wg_file *file, uint64_t at, const char *what)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s: %s, at byte %llu", file->path, what, (unsigned long long)at);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static weir_status read_scalar(wg_cursor *cursor, wg_key *key)
{
    unsigned char raw[8] = {0};
    weir_status status = wi_gguf_cursor_read(cursor, raw, wi_gguf_kind_bytes(key->kind));
    if (status != WEIR_OK)
        return status;
    uint64_t bits = 0;
    float single;
    memcpy(&bits, raw, sizeof bits);
    memcpy(&single, raw, sizeof single);
    switch (key->kind) {
    case WG_I8:
        key->integer = (uint64_t)(int64_t)(int8_t)bits;
        break;
    case WG_I16:
        key->integer = (uint64_t)(int64_t)(int16_t)bits;
        break;
    case WG_I32:
        key->integer = (uint64_t)(int64_t)(int32_t)bits;
        break;
    default:
        key->integer = bits;
        break;
    }
    bool is_signed = key->kind == WG_I8 || key->kind == WG_I16 || key->kind == WG_I32 || key->kind == WG_I64;
    key->number = is_signed ? (double)(int64_t)key->integer : (double)key->integer;
    if (key->kind == WG_F32)
        key->number = (double)single;
    if (key->kind == WG_F64)
        memcpy(&key->number, raw, sizeof key->number);
    return WEIR_OK;
}

static weir_status gguf_file_file_read_text(wg_cursor *cursor, wg_key *key)
{
    weir_status status = wi_gguf_cursor_text_bytes(cursor, &key->text_bytes);
    if (status != WEIR_OK)
        return status;
    uint64_t stored = key->text_bytes < WG_TEXT_KEPT ? key->text_bytes : WG_TEXT_KEPT;
    status = wi_gguf_cursor_read(cursor, key->text, stored);
    return status == WEIR_OK ? wi_gguf_cursor_read(cursor, NULL, key->text_bytes - stored) : status;
}

static weir_status skip_array(wg_cursor *cursor, wg_key *key)
{
    const wg_file *file = cursor->file;
    uint64_t at = cursor->at;
    weir_status status = wi_gguf_cursor_read(cursor, &key->element, 4);
    if (status == WEIR_OK)
        status = wi_gguf_cursor_read(cursor, &key->count, 8);
    if (status != WEIR_OK)
        return status;
    size_t each = key->element == WG_TEXT ? 8 : wi_gguf_kind_bytes(key->element);
    if (each == 0)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s' is an array of %s (kind %u), at byte %llu", file->path,
                         key->name, wi_gguf_kind_name(key->element), key->element, (unsigned long long)at);
    if (key->count > (file->size - cursor->at) / each)
        return weir_fail(WEIR_ERR_CORRUPT,
                         "%s: key '%s' claims %llu elements of %s at byte %llu, and %llu bytes are left", file->path,
                         key->name, (unsigned long long)key->count, wi_gguf_kind_name(key->element),
                         (unsigned long long)at, (unsigned long long)(file->size - cursor->at));
    key->value_at = cursor->at;
    if (key->element != WG_TEXT)
        return wi_gguf_cursor_read(cursor, NULL, key->count * each);
    for (uint64_t i = 0; i < key->count && status == WEIR_OK; i++) {
        uint64_t bytes = 0;
        status = wi_gguf_cursor_text_bytes(cursor, &bytes);
        if (status == WEIR_OK)
            status = wi_gguf_cursor_read(cursor, NULL, bytes);
    }
    return status;
}

static bool gguf_file_file_is_plain(const char *text, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] < 0x20 || (unsigned char)text[i] == 0x7f)
            return false;
    return true;
}

static weir_status gguf_file_file_read_key(wg_cursor *cursor, wg_key *key)
{
    const wg_file *file = cursor->file;
    uint64_t bytes = 0;
    key->at = cursor->at;
    key->count = 1;
    weir_status status = wi_gguf_cursor_text_bytes(cursor, &bytes);
    if (status != WEIR_OK)
        return status;
    if (bytes == 0 || bytes > LONGEST_KEY)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: a key has a name of %llu bytes (1 to %d are allowed), at byte %llu",
                         file->path, (unsigned long long)bytes, LONGEST_KEY, (unsigned long long)key->at);
    key->name = calloc(1, (size_t)bytes + 1);
    if (!key->name)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory to read its keys", file->path);
    status = wi_gguf_cursor_read(cursor, key->name, bytes);
    if (status == WEIR_OK && !gguf_file_file_is_plain(key->name, bytes))
        return gguf_file_file_corrupt(file, key->at, "a key's name holds control characters");
    uint64_t kind_at = cursor->at;
    if (status == WEIR_OK)
        status = wi_gguf_cursor_read(cursor, &key->kind, 4);
    if (status != WEIR_OK)
        return status;
    key->value_at = cursor->at;
    if (key->kind == WG_ARRAY)
        return skip_array(cursor, key);
    if (key->kind == WG_TEXT)
        return gguf_file_file_read_text(cursor, key);
    if (wi_gguf_kind_bytes(key->kind) == 0)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s' is of kind %u, which is none, at byte %llu", file->path,
                         key->name, key->kind, (unsigned long long)kind_at);
    status = read_scalar(cursor, key);
    if (status == WEIR_OK && key->kind == WG_BOOL && key->integer > 1)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s' is a bool of value %llu, at byte %llu", file->path, key->name,
                         (unsigned long long)key->integer, (unsigned long long)key->value_at);
    return status;
}

/* Room for one more in an array that grows as the file is read: a count in the header alone allocates nothing. */
static void *grown(void *array, size_t count, size_t each)
{
    if (count > 0 && (count & (count - 1)) != 0)
        return array;
    size_t room = count == 0 ? 1 : count * 2;
    return realloc(array, room * each);
}

static int by_key_name(const void *a, const void *b)
{
    return strcmp(((const wg_key *)a)->name, ((const wg_key *)b)->name);
}

static weir_status read_keys(wg_cursor *cursor, wg_file *file, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        wg_key *keys = grown(file->keys, file->key_count, sizeof *keys);
        if (!keys)
            return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory to read its keys", file->path);
        file->keys = keys;
        memset(&keys[file->key_count], 0, sizeof *keys);
        weir_status status = gguf_file_file_read_key(cursor, &keys[file->key_count++]);
        if (status != WEIR_OK)
            return status;
    }
    if (file->key_count > 1)
        qsort(file->keys, file->key_count, sizeof *file->keys, by_key_name);
    for (size_t i = 1; i < file->key_count; i++)
        if (strcmp(file->keys[i - 1].name, file->keys[i].name) == 0)
            return weir_fail(WEIR_ERR_CORRUPT, "%s: key '%s' stands there twice, at bytes %llu and %llu", file->path,
                             file->keys[i].name, (unsigned long long)file->keys[i - 1].at,
                             (unsigned long long)file->keys[i].at);
    return WEIR_OK;
}

static weir_status read_alignment(wg_file *file)
{
    const wg_key *key = wi_gguf_file_key(file, "general.alignment");
    file->alignment = 32;
    if (!key)
        return WEIR_OK;
    if (key->kind != WG_U32 || key->integer == 0 || (key->integer & (key->integer - 1)) != 0)
        return weir_fail(WEIR_ERR_CORRUPT,
                         "%s: key 'general.alignment' is %s %.0f and must be a u32 power of two, at byte "
                         "%llu",
                         file->path, wi_gguf_kind_name(key->kind), key->number, (unsigned long long)key->value_at);
    file->alignment = key->integer;
    return WEIR_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static weir_status bad_tensor(const wg_file *file, const wg_tensor *tensor, const char *what)
{
    return weir_fail(WEIR_ERR_CORRUPT, "%s: tensor '%s' %s, in its entry at byte %llu", file->path, tensor->name, what,
                     (unsigned long long)tensor->at);
}

static weir_status read_tensor_name(wg_cursor *cursor, wg_tensor *tensor)
{
    const wg_file *file = cursor->file;
    uint64_t bytes = 0;
    weir_status status = wi_gguf_cursor_text_bytes(cursor, &bytes);
    if (status != WEIR_OK)
        return status;
    if (bytes == 0 || bytes >= WG_NAME_BYTES)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: a tensor has a name of %llu bytes (1 to %d are allowed), at byte %llu",
                         file->path, (unsigned long long)bytes, WG_NAME_BYTES - 1, (unsigned long long)tensor->at);
    status = wi_gguf_cursor_read(cursor, tensor->name, bytes);
    if (status == WEIR_OK && !gguf_file_file_is_plain(tensor->name, bytes))
        return gguf_file_file_corrupt(file, tensor->at, "a tensor's name holds control characters");
    return status;
}

/* Elements and bytes, without overflow; the product stays below 2^63 as ggml counts in int64_t. */
static weir_status size_tensor(const wg_file *file, wg_tensor *tensor)
{
    uint32_t block = 0, block_bytes = 0;
    if (!wi_gguf_type_block(tensor->type, &block, &block_bytes))
        return bad_tensor(file, tensor, "is of a type that is none");
    uint64_t elements = 1;
    for (uint32_t i = 0; i < WG_MAX_DIMS; i++) {
        if (tensor->ne[i] == 0 || tensor->ne[i] > INT64_MAX / elements)
            return bad_tensor(file, tensor, "has an extent of zero, or more elements than can be counted");
        elements *= tensor->ne[i];
    }
    if (tensor->ne[0] % block != 0)
        return bad_tensor(file, tensor, "has rows that are no whole blocks of its type");
    if (elements / block > file->size / block_bytes)
        return bad_tensor(file, tensor, "is larger than the file");
    tensor->bytes = elements / block * block_bytes;
    return WEIR_OK;
}

static weir_status read_tensor(wg_cursor *cursor, wg_tensor *tensor)
{
    const wg_file *file = cursor->file;
    tensor->at = cursor->at;
    weir_status status = read_tensor_name(cursor, tensor);
    if (status == WEIR_OK)
        status = wi_gguf_cursor_read(cursor, &tensor->dims, 4);
    if (status != WEIR_OK)
        return status;
    if (tensor->dims == 0 || tensor->dims > WG_MAX_DIMS)
        return bad_tensor(file, tensor, "does not have 1 to 4 dimensions");
    for (uint32_t i = 0; i < WG_MAX_DIMS; i++)
        tensor->ne[i] = 1;
    status = wi_gguf_cursor_read(cursor, tensor->ne, 8ull * tensor->dims);
    if (status == WEIR_OK)
        status = wi_gguf_cursor_read(cursor, &tensor->type, 4);
    if (status == WEIR_OK)
        status = wi_gguf_cursor_read(cursor, &tensor->offset, 8);
    return status == WEIR_OK ? size_tensor(file, tensor) : status;
}

static int by_tensor_name(const void *a, const void *b)
{
    return strcmp((*(const wg_tensor *const *)a)->name, (*(const wg_tensor *const *)b)->name);
}

static weir_status index_tensors(wg_file *file)
{
    if (file->tensor_count == 0)
        return WEIR_OK;
    file->by_name = malloc(file->tensor_count * sizeof *file->by_name);
    if (!file->by_name)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory for an index of its tensors", file->path);
    for (size_t i = 0; i < file->tensor_count; i++)
        file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, file->tensor_count, sizeof *file->by_name, by_tensor_name);
    for (size_t i = 1; i < file->tensor_count; i++)
        if (strcmp(file->by_name[i - 1]->name, file->by_name[i]->name) == 0)
            return bad_tensor(file, file->by_name[i], "stands there twice");
    return WEIR_OK;
}

static weir_status gguf_file_file_read_tensors(wg_cursor *cursor, wg_file *file, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        wg_tensor *tensors = grown(file->tensors, file->tensor_count, sizeof *tensors);
        if (!tensors)
            return weir_fail(WEIR_ERR_SYSTEM, "%s: no memory to read its tensors", file->path);
        file->tensors = tensors;
        memset(&tensors[file->tensor_count], 0, sizeof *tensors);
        weir_status status = read_tensor(cursor, &tensors[file->tensor_count++]);
        if (status != WEIR_OK)
            return status;
    }
    return index_tensors(file);
}

/* Checks that the tensors follow in order, without overlap and without gaps besides those of the alignment. */
static weir_status place_tensors(wg_file *file, uint64_t directory_end)
{
    uint64_t mask = file->alignment - 1, expected = 0;
    file->data_at = (directory_end + mask) & ~mask;
    if (file->tensor_count > 0 && file->data_at > file->size)
        return gguf_file_file_corrupt(file, directory_end, "the tensor data would begin behind the end of the file");
    for (size_t i = 0; i < file->tensor_count; i++) {
        const wg_tensor *tensor = &file->tensors[i];
        uint64_t room = file->size - file->data_at;
        if (tensor->offset != expected)
            return weir_fail(WEIR_ERR_CORRUPT,
                             "%s: tensor '%s' has offset %llu where %llu is next, in its entry at byte "
                             "%llu",
                             file->path, tensor->name, (unsigned long long)tensor->offset, (unsigned long long)expected,
                             (unsigned long long)tensor->at);
        if (tensor->offset > room || tensor->bytes > room - tensor->offset)
            return weir_fail(WEIR_ERR_CORRUPT,
                             "%s: tensor '%s' takes %llu bytes from byte %llu on, and the file ends at "
                             "%llu",
                             file->path, tensor->name, (unsigned long long)tensor->bytes,
                             (unsigned long long)file->data_at + tensor->offset, (unsigned long long)file->size);
        expected = (tensor->offset + tensor->bytes + mask) & ~mask;
    }
    return WEIR_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static weir_status gguf_file_file_read_header(wg_cursor *cursor, wg_file *file, uint64_t *tensors, uint64_t *keys)
{
    char magic[4];
    weir_status status = wi_gguf_cursor_read(cursor, magic, sizeof magic);
    if (status != WEIR_OK)
        return status;
    if (memcmp(magic, "GGUF", 4) != 0)
        return gguf_file_file_corrupt(file, 0, "does not begin with 'GGUF'");
    status = wi_gguf_cursor_read(cursor, &file->version, 4);
    if (status != WEIR_OK)
        return status;
    if ((file->version & 0xffff) == 0)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: is a GGUF file of the other byte order", file->path);
    if (file->version != 2 && file->version != 3)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: is a GGUF file of version %u; 2 and 3 can be read", file->path,
                         file->version);
    status = wi_gguf_cursor_read(cursor, tensors, 8);
    if (status == WEIR_OK)
        status = wi_gguf_cursor_read(cursor, keys, 8);
    if (status != WEIR_OK)
        return status;
    if (*tensors > file->size / LEAST_TENSOR)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: claims %llu tensors, more than its %llu bytes can hold, at byte 8",
                         file->path, (unsigned long long)*tensors, (unsigned long long)file->size);
    if (*keys > file->size / LEAST_KEY)
        return weir_fail(WEIR_ERR_CORRUPT, "%s: claims %llu keys, more than its %llu bytes can hold, at byte 16",
                         file->path, (unsigned long long)*keys, (unsigned long long)file->size);
    return WEIR_OK;
}

static weir_status gguf_file_file_read_all(wg_file *file)
{
    wg_cursor cursor;
    uint64_t tensors = 0, keys = 0;
    weir_status status = wi_gguf_cursor_open(file, 0, &cursor);
    if (status != WEIR_OK)
        return status;
    status = gguf_file_file_read_header(&cursor, file, &tensors, &keys);
    if (status == WEIR_OK)
        status = read_keys(&cursor, file, keys);
    if (status == WEIR_OK)
        status = read_alignment(file);
    if (status == WEIR_OK)
        status = gguf_file_file_read_tensors(&cursor, file, tensors);
    if (status == WEIR_OK)
        status = place_tensors(file, cursor.at);
    wi_gguf_cursor_close(&cursor);
    return status;
}

weir_status wi_gguf_file_open(const char *path, wg_file *out)
{
    struct stat about;
    *out = (wg_file){.descriptor = -1, .path = path};
    out->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (out->descriptor < 0)
        return weir_fail(errno == ENOENT ? WEIR_ERR_NOT_FOUND : WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    weir_status status = WEIR_OK;
    if (fstat(out->descriptor, &about) != 0)
        status = weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(about.st_mode))
        status = weir_fail(WEIR_ERR_INVALID, "%s: is no regular file", path);
    if (status == WEIR_OK) {
        out->size = (uint64_t)about.st_size;
        status = gguf_file_file_read_all(out);
    }
    if (status != WEIR_OK)
        wi_gguf_file_close(out);
    return status;
}

void wi_gguf_file_close(wg_file *file)
{
    for (size_t i = 0; i < file->key_count; i++)
        free(file->keys[i].name);
    free(file->keys);
    free(file->tensors);
    free(file->by_name);
    if (file->descriptor >= 0)
        close(file->descriptor);
    *file = (wg_file){.descriptor = -1};
}

const wg_key *wi_gguf_file_key(const wg_file *file, const char *name)
{
    wg_key wanted = {.name = (char *)name};
    if (file->key_count == 0)
        return NULL;
    return bsearch(&wanted, file->keys, file->key_count, sizeof *file->keys, by_key_name);
}

static int by_its_name(const void *name, const void *tensor)
{
    return strcmp(name, (*(const wg_tensor *const *)tensor)->name);
}

const wg_tensor *wi_gguf_file_tensor(const wg_file *file, const char *name)
{
    const wg_tensor **found = NULL;
    if (file->tensor_count > 0)
        found = bsearch(name, file->by_name, file->tensor_count, sizeof *file->by_name, by_its_name);
    return found ? *found : NULL;
}

/* The name of the first part, where the file is called as llama-gguf-split calls parts. */
static bool first_part(const char *path, char *out, size_t capacity)
{
    static const char end[] = "-00001-of-00001.gguf";
    size_t length = strlen(path), tail = sizeof end - 1;
    unsigned part, count;
    if (length <= tail || sscanf(path + length - tail, "-%5u-of-%5u.gguf", &part, &count) != 2)
        return false;
    int written = snprintf(out, capacity, "%.*s-%05u-of-%05u.gguf", (int)(length - tail), path, 1u, count);
    return written > 0 && (size_t)written < capacity;
}

weir_status wi_gguf_file_whole(const wg_file *file)
{
    char first[512];
    const wg_key *count = wi_gguf_file_key(file, "split.count"), *part = wi_gguf_file_key(file, "split.no");
    if (!count || count->number < 2)
        return WEIR_OK;
    bool named = first_part(file->path, first, sizeof first);
    return weir_fail(WEIR_ERR_UNSUPPORTED,
                     "%s: is part %.0f of %.0f of a model; join them with llama-gguf-split --merge %s WHOLE.gguf, and "
                     "name that",
                     file->path, part ? part->number + 1 : 1, count->number, named ? first : "FIRST-PART");
}
