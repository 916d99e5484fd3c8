/* shared_memory.c: tensors in shared memory of this machine, as Triton's extension has it, where the server allows it.
 *
 * A client names memory of its own (shm_open), and requests say which part of it a tensor is. The memory is read and written
 * as a file, never mapped: a client that cuts it short meanwhile gets an error, where a mapping would end the server. */
#include "serve.h"

#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_REGIONS = 256 };
#define MOST_BYTES (UINT64_C(1) << 30) /* of one tensor, as many as a body may have */

typedef struct region {
    struct region *next;
    unsigned references; /* under the lock: the list, and who reads or writes */
    char *name, *key;
    uint64_t offset, bytes;
    int file;
} region;

struct shared_regions {
    pthread_mutex_t lock;
    region *first;
    size_t count;
};

shared_regions *shared_create(void)
{
    shared_regions *all = text_zeroed(1, sizeof *all);
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

/* With the lock. */
static void shared_memory_drop(region *one)
{
    if (--one->references > 0)
        return;
    close(one->file);
    free(one->name);
    free(one->key);
    free(one);
}

/* With the lock: takes it out of the list; `name` NULL: all. */
static void shared_memory_forget(shared_regions *all, const char *name)
{
    region **link = &all->first;
    while (*link) {
        region *one = *link;
        if (name && strcmp(one->name, name) != 0) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        all->count--;
        shared_memory_drop(one);
    }
}

void shared_free(shared_regions *all)
{
    if (!all)
        return;
    shared_memory_forget(all, NULL);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

/* With the lock. */
static region *shared_memory_find(const shared_regions *all, const char *name)
{
    region *one = all->first;
    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    return one;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

bool shared_is_meant(const json_t *parameters)
{
    return json_object_get(parameters, "shared_memory_region") != NULL;
}

typedef struct part {
    region *of; /* a reference */
    uint64_t at, bytes;
} part;

static void shared_memory_end(shared_regions *all, const part *it)
{
    pthread_mutex_lock(&all->lock);
    shared_memory_drop(it->of);
    pthread_mutex_unlock(&all->lock);
}

/* A whole number that is not negative; without one `otherwise`. */
static bool shared_memory_read_number(const json_t *value, uint64_t otherwise, uint64_t *out)
{
    *out = value ? (uint64_t)json_integer_value(value) : otherwise;
    return !value || (json_is_integer(value) && json_integer_value(value) >= 0);
}

/* Which part of a region the parameters mean. */
static weir_status shared_memory_begin(shared_regions *all, const json_t *parameters, part *out)
{
    const char *name = json_string_value(json_object_get(parameters, "shared_memory_region"));
    const json_t *bytes = json_object_get(parameters, "shared_memory_byte_size");
    if (!all)
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "shared memory is taken by a server that is started with --shared-memory");
    if (!name || !bytes || !shared_memory_read_number(bytes, 0, &out->bytes) ||
        !shared_memory_read_number(json_object_get(parameters, "shared_memory_offset"), 0, &out->at) ||
        out->bytes > MOST_BYTES)
        return weir_fail(WEIR_ERR_INVALID,
                         "a tensor in shared memory needs shared_memory_region, "
                         "shared_memory_byte_size (1 GiB at most), and may have shared_memory_offset");
    pthread_mutex_lock(&all->lock);
    region *one = shared_memory_find(all, name);
    bool inside = one && out->at <= one->bytes && out->bytes <= one->bytes - out->at;
    if (inside)
        one->references++;
    pthread_mutex_unlock(&all->lock);
    out->of = one;
    if (!one)
        return weir_fail(WEIR_ERR_NOT_FOUND, "no shared memory is registered as '%.60s'", name);
    return inside ? WEIR_OK
                  : weir_fail(WEIR_ERR_INVALID, "%llu bytes at %llu are not all inside of the shared memory '%.60s'",
                              (unsigned long long)out->bytes, (unsigned long long)out->at, name);
}

weir_status shared_read(shared_regions *all, const json_t *parameters, char **data, size_t *bytes)
{
    part it;
    weir_status status = shared_memory_begin(all, parameters, &it);
    if (status != WEIR_OK)
        return status;
    char *to = text_zeroed(it.bytes, 1);
    size_t got = 0;
    for (ssize_t more = 1; got < it.bytes && more > 0; got += more > 0 ? (size_t)more : 0)
        more = pread(it.of->file, to + got, it.bytes - got, (off_t)(it.of->offset + it.at + got));
    if (got < it.bytes) {
        status = weir_fail(WEIR_ERR_INVALID, "the shared memory '%.60s' has become shorter", it.of->name);
        free(to);
        to = NULL;
    }
    shared_memory_end(all, &it);
    *data = to;
    *bytes = got;
    return status;
}

weir_status shared_write(shared_regions *all, const json_t *parameters, const void *data, size_t bytes)
{
    part it;
    weir_status status = shared_memory_begin(all, parameters, &it);
    if (status != WEIR_OK)
        return status;
    size_t put = 0;
    if (bytes > it.bytes)
        status = weir_fail(WEIR_ERR_INVALID, "the result has %zu bytes, and shared_memory_byte_size is %llu", bytes,
                           (unsigned long long)it.bytes);
    for (ssize_t more = 1; status == WEIR_OK && put < bytes && more > 0; put += more > 0 ? (size_t)more : 0)
        more = pwrite(it.of->file, (const char *)data + put, bytes - put, (off_t)(it.of->offset + it.at + put));
    if (status == WEIR_OK && put < bytes)
        status =
            weir_fail(WEIR_ERR_SYSTEM, "the shared memory '%.60s' cannot be written: %s", it.of->name, strerror(errno));
    shared_memory_end(all, &it);
    return status;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* False: the server does not allow it, and has said so. */
static bool shared_memory_allowed(ws_request *request, const served *all)
{
    if (!all->regions)
        v2_lacking(request, NULL);
    return all->regions != NULL;
}

static json_t *region_json(const region *one)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "name", text_json(one->name), "key", text_json(one->key), "offset",
                     text_json_count(one->offset), "byte_size", text_json_count(one->bytes));
}

/* Of the region that the path names, or of all. */
void shared_status(ws_request *request, void *user)
{
    served *all = user;
    const char *name = ws_segment(request, 0);
    json_t *list = json_array();
    if (!shared_memory_allowed(request, all)) {
        json_decref(list);
        return;
    }
    pthread_mutex_lock(&all->regions->lock);
    for (const region *one = all->regions->first; one; one = one->next)
        if (!name[0] || strcmp(one->name, name) == 0)
            json_array_insert_new(list, 0, region_json(one));
    pthread_mutex_unlock(&all->regions->lock);
    if (!name[0] || json_array_size(list) > 0) {
        answer_json(request, 200, list);
        return;
    }
    json_decref(list);
    answer_failure(request, weir_fail(WEIR_ERR_NOT_FOUND, "no shared memory is registered as '%.60s'", name));
}

/* Opened as "/NAME", with nothing of a path behind it. */
static weir_status open_memory(const char *key, uint64_t offset, uint64_t bytes, int *file)
{
    struct stat found;
    if (strchr(key[0] == '/' ? key + 1 : key, '/') || strlen(key) > 250)
        return weir_fail(WEIR_ERR_INVALID, "'%.60s' is no key of shared memory", key);
    char *path = text_print("%s%s", key[0] == '/' ? "" : "/", key);
    *file = shm_open(path, O_RDWR | O_CLOEXEC, 0);
    free(path);
    if (*file < 0)
        return weir_fail(WEIR_ERR_INVALID, "the shared memory '%.60s' cannot be opened: %s", key, strerror(errno));
    bool fits =
        fstat(*file, &found) == 0 && (uint64_t)found.st_size >= offset && (uint64_t)found.st_size - offset >= bytes;
    if (fits)
        return WEIR_OK;
    close(*file);
    return weir_fail(WEIR_ERR_INVALID, "the shared memory '%.60s' has fewer than %llu bytes at %llu", key,
                     (unsigned long long)bytes, (unsigned long long)offset);
}

static weir_status shared_memory_add(shared_regions *all, const char *name, const char *key, uint64_t offset,
                                     uint64_t bytes)
{
    int file = -1;
    weir_status status = open_memory(key, offset, bytes, &file);
    if (status != WEIR_OK)
        return status;
    pthread_mutex_lock(&all->lock);
    if (shared_memory_find(all, name))
        status = weir_fail(WEIR_ERR_INVALID, "shared memory is registered as '%.60s' already", name);
    else if (all->count == MOST_REGIONS)
        status = weir_fail(WEIR_ERR_INVALID, "%d regions of shared memory are registered, and no more are taken",
                           MOST_REGIONS);
    if (status == WEIR_OK) {
        region *one = text_zeroed(1, sizeof *one);
        *one = (region){.next = all->first,
                        .references = 1,
                        .name = text_copy(name),
                        .key = text_copy(key),
                        .offset = offset,
                        .bytes = bytes,
                        .file = file};
        all->first = one;
        all->count++;
    }
    pthread_mutex_unlock(&all->lock);
    if (status != WEIR_OK)
        close(file);
    return status;
}

void shared_register(ws_request *request, void *user)
{
    served *all = user;
    uint64_t offset, bytes;
    json_t *body = shared_memory_allowed(request, all) ? body_json(request) : NULL;
    if (!body)
        return;
    const char *key = json_string_value(json_object_get(body, "key"));
    const json_t *size = json_object_get(body, "byte_size");
    weir_status status = WEIR_ERR_INVALID;
    if (!key || !key[0] || !size || !shared_memory_read_number(size, 0, &bytes) || bytes == 0 ||
        !shared_memory_read_number(json_object_get(body, "offset"), 0, &offset))
        status = weir_fail(WEIR_ERR_INVALID, "shared memory has a key, a byte_size, and may have an offset");
    else
        status = shared_memory_add(all->regions, ws_segment(request, 0), key, offset, bytes);
    if (status == WEIR_OK)
        answer_json(request, 200, json_object());
    else
        answer_failure(request, status);
    json_decref(body);
}

/* Unregisters the region that the path names, or all regions. An unknown name is no failure. */
void shared_unregister(ws_request *request, void *user)
{
    served *all = user;
    const char *name = ws_segment(request, 0);
    if (!shared_memory_allowed(request, all))
        return;
    pthread_mutex_lock(&all->regions->lock);
    shared_memory_forget(all->regions, name[0] ? name : NULL);
    pthread_mutex_unlock(&all->regions->lock);
    answer_json(request, 200, json_object());
}
