/* What loads have measured, in the store's file `predictions`.
 *
 * A line for each model with its settings, with a sum over it. Readers take the file as it is; a writer holds a lock
 * (`predictions.lock`, of flock's), reads, changes one line and puts a new file in the place of the old one, so that
 * neither sees half of it. What cannot be right is left out, with a line in the log, and gone with the next writing. */
#include "factory/predict/forecast.h"

#include <weir/base.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/texts.h"

#define HEAD "weir predictions 1\n"

enum { MOST_LINE = 640, MOST_BYTES = WI_MEASURED_MOST * MOST_LINE + 64, PATH_BYTES = 320 };

typedef struct table {
    wi_measured all[WI_MEASURED_MOST + 1];   /* one more than is kept */
    const char *lines[WI_MEASURED_MOST + 1]; /* as they stand in `text`; NULL: it is another by now */
    size_t count;
    char *text;
} table;

static uint64_t records_sum_of(const uint64_t bytes[WEIR_CLASS_COUNT])
{
    uint64_t sum = 0;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        if (__builtin_add_overflow(sum, bytes[i], &sum))
            return UINT64_MAX;
    return sum;
}

/* Lines ------------------------------------------------------------------------------------------------------------ */

static int write_bytes(char *text, size_t room, const uint64_t bytes[WEIR_CLASS_COUNT])
{
    int used = 0;
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        used += snprintf(text + used, room - (size_t)used, "%s%" PRIu64, i > 0 ? "," : "", bytes[i]);
    return used;
}

/* Without the line break. Answers its length. */
static size_t records_write_line(char line[MOST_LINE], const wi_measured *r)
{
    char resident[32 * WEIR_CLASS_COUNT], peak[32 * WEIR_CLASS_COUNT];
    (void)write_bytes(resident, sizeof resident, r->resident);
    (void)write_bytes(peak, sizeof peak, r->peak);
    int length = snprintf(line, MOST_LINE, "%s %" PRId64 " %" PRIu64 " %d %s %s %s", r->key, r->seen, r->loads,
                          r->ran ? 1 : 0, resident, peak, r->version[0] ? r->version : "-");
    return (size_t)length +
           (size_t)snprintf(line + length, MOST_LINE - (size_t)length, " %016" PRIx64, wi_fnv1a(line, (size_t)length));
}

static bool records_read_number(const char **at, char end, uint64_t *out)
{
    char *rest;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *out = strtoull(*at, &rest, 10);
    if (errno != 0 || *rest != end)
        return false;
    *at = rest + 1;
    return true;
}

static bool read_bytes(const char **at, uint64_t out[WEIR_CLASS_COUNT])
{
    for (int i = 0; i < WEIR_CLASS_COUNT; i++)
        if (!records_read_number(at, i + 1 < WEIR_CLASS_COUNT ? ',' : ' ', &out[i]))
            return false;
    return records_sum_of(out) < UINT64_MAX / 2;
}

/* `line` ends with a NUL byte, and is `length` long. */
static bool records_read_line(const char *line, size_t length, wi_measured *out)
{
    enum { SUM = 16 };
    uint64_t sum, seen, ran;
    *out = (wi_measured){.loads = 0};
    if (length < WI_MEASURED_KEY + SUM || length >= MOST_LINE || strlen(line) != length ||
        line[WI_MEASURED_KEY - 1] != ' ')
        return false;
    char *end;
    sum = strtoull(line + length - SUM, &end, 16);
    if (*end != '\0' || sum != wi_fnv1a(line, length - SUM - 1) ||
        strspn(line, "0123456789abcdef") != WI_MEASURED_KEY - 1)
        return false;
    memcpy(out->key, line, WI_MEASURED_KEY - 1);
    const char *at = line + WI_MEASURED_KEY;
    if (!records_read_number(&at, ' ', &seen) || seen > INT64_MAX || !records_read_number(&at, ' ', &out->loads) ||
        !records_read_number(&at, ' ', &ran) || !read_bytes(&at, out->resident) || !read_bytes(&at, out->peak))
        return false;
    size_t version = strcspn(at, " ");
    if (version == 0 || version >= sizeof out->version)
        return false;
    if (strncmp(at, "-", version) != 0)
        memcpy(out->version, at, version);
    out->seen = (int64_t)seen;
    out->ran = ran != 0;
    return true;
}

/* The file --------------------------------------------------------------------------------------------------------- */

static bool path_of(const char *behind, char path[PATH_BYTES])
{
    weir_option home = {.struct_size = sizeof home};
    if (weir_option_info("home", 0, &home) != WEIR_OK || home.value[0] == '\0')
        return false;
    return snprintf(path, PATH_BYTES, "%s/predictions%s", home.value, behind) < PATH_BYTES;
}

/* NULL: there is none, or none that can be read; *out is its length then, 0. To be freed. */
static char *records_read_file(const char *path, size_t *out)
{
    struct stat about;
    *out = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return NULL;
    char *text = NULL;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= MOST_BYTES)
        text = malloc((size_t)about.st_size + 1);
    ssize_t got = text ? read(file, text, (size_t)about.st_size) : -1;
    close(file);
    if (got < 0) {
        weir_log(WEIR_LOG_WARNING, "%s is no file of predictions, and is left alone", path);
        free(text);
        return NULL;
    }
    text[got] = '\0';
    *out = (size_t)got;
    return text;
}

/* `key`: of that alone, as a load looks for one line of hundreds; NULL: all of them. */
static void records_read_lines(const char *path, char *text, size_t length, const char *key, table *out)
{
    const size_t head = sizeof HEAD - 1;
    size_t bad = 0;
    if (length < head || memcmp(text, HEAD, head) != 0) {
        weir_log(WEIR_LOG_WARNING, "%s does not begin as a file of predictions does, and is left alone", path);
        return;
    }
    for (char *line = text + head, *end; *line || line < text + length; line = end + 1) {
        end = memchr(line, '\n', (size_t)(text + length - line));
        if (!end) { /* a torn line */
            bad++;
            break;
        }
        *end = '\0';
        if (key && strncmp(line, key, WI_MEASURED_KEY - 1) != 0)
            continue;
        if (out->count < WI_MEASURED_MOST && records_read_line(line, (size_t)(end - line), &out->all[out->count]))
            out->lines[out->count++] = line;
        else
            bad++;
    }
    if (bad > 0)
        weir_log(WEIR_LOG_WARNING, "%s: %zu of its lines cannot be right, and are left out", path, bad);
}

/* An empty one where nothing can be read. NULL without host memory. */
static table *read_table(const char *path, const char *key)
{
    table *out = malloc(sizeof *out);
    size_t length;
    if (!out)
        return NULL;
    out->count = 0;
    out->text = records_read_file(path, &length);
    if (out->text)
        records_read_lines(path, out->text, length, key, out);
    return out;
}

static void drop_table(table *records)
{
    if (records)
        free(records->text);
    free(records);
}

static bool write_lines(FILE *file, const table *records)
{
    char line[MOST_LINE];
    bool good = fputs(HEAD, file) >= 0;
    for (size_t i = 0; good && i < records->count; i++) {
        if (!records->lines[i])
            (void)records_write_line(line, &records->all[i]);
        good = fputs(records->lines[i] ? records->lines[i] : line, file) >= 0 && fputc('\n', file) != EOF;
    }
    return good;
}

/* Whole or not at all: into a file beside, which then takes the other's place. */
static weir_status write_table(const char *path, const table *records)
{
    char beside[PATH_BYTES + 8];
    snprintf(beside, sizeof beside, "%s.XXXXXX", path);
    int descriptor = mkostemp(beside, O_CLOEXEC);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    if (!file) {
        weir_status status = weir_fail(WEIR_ERR_SYSTEM, "%s: %s", beside, strerror(errno));
        if (descriptor >= 0)
            close(descriptor);
        return status;
    }
    bool good = write_lines(file, records);
    good = fclose(file) == 0 && good;
    if (good && rename(beside, path) == 0)
        return WEIR_OK;
    weir_status status = weir_fail(WEIR_ERR_SYSTEM, "%s: %s", path, strerror(errno));
    (void)unlink(beside);
    return status;
}

/* The lock --------------------------------------------------------------------------------------------------------- */

static void records_make_folder(const char *path)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *end = strrchr(folder, '/');
    if (!end || end == folder)
        return;
    *end = '\0';
    if (mkdir(folder, 0700) != 0 && errno == ENOENT) {
        records_make_folder(folder);
        (void)mkdir(folder, 0700);
    }
}

/* A writer holds it for a millisecond; one that has stopped meanwhile holds nobody up for longer than half a second. */
static int take_lock(const char *path)
{
    enum { TRIES = 500 };
    static const struct timespec millisecond = {.tv_nsec = 1000000};
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (file < 0 && errno == ENOENT) {
        records_make_folder(path);
        file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    }
    for (int i = 0; file >= 0 && flock(file, LOCK_EX | LOCK_NB) != 0; i++) {
        if (i == TRIES || (errno != EWOULDBLOCK && errno != EINTR)) {
            close(file);
            return -1;
        }
        nanosleep(&millisecond, NULL);
    }
    return file;
}

/* Found and added -------------------------------------------------------------------------------------------------- */

bool wi_measured_find(const char *key, const char *version, wi_measured *out)
{
    char path[PATH_BYTES];
    wi_saved_detail saved;
    bool found = false;
    wi_detail_save(&saved);
    table *records = path_of("", path) ? read_table(path, key) : NULL;
    for (size_t i = 0; records && i < records->count; i++) {
        const wi_measured *one = &records->all[i];
        if (strcmp(one->key, key) == 0 && (!*version || strcmp(one->version, version) == 0) &&
            (!found || one->seen > out->seen)) {
            *out = *one;
            found = true;
        }
    }
    drop_table(records);
    wi_detail_restore(&saved);
    return found;
}

/* The classes of the larger sum are those of one moment, and stay together. */
static void records_grow(uint64_t to[WEIR_CLASS_COUNT], const uint64_t more[WEIR_CLASS_COUNT])
{
    if (records_sum_of(more) > records_sum_of(to))
        memcpy(to, more, WEIR_CLASS_COUNT * sizeof *to);
}

static void records_take_in(wi_measured *to, const wi_measured *measured)
{
    records_grow(to->resident, measured->resident);
    records_grow(to->peak, measured->peak);
    to->loads += measured->loads;
    to->ran = to->ran || measured->ran;
    to->seen = measured->seen > to->seen ? measured->seen : to->seen;
}

static void records_put_in(table *records, const wi_measured *measured)
{
    size_t oldest = 0;
    for (size_t i = 0; i < records->count; i++) {
        const wi_measured *one = &records->all[i];
        if (strcmp(one->key, measured->key) == 0 && strcmp(one->version, measured->version) == 0) {
            records_take_in(&records->all[i], measured);
            records->lines[i] = NULL;
            return;
        }
        oldest = records->all[i].seen < records->all[oldest].seen ? i : oldest;
    }
    size_t index = records->count == WI_MEASURED_MOST ? oldest : records->count++;
    records->all[index] = *measured;
    records->lines[index] = NULL;
}

weir_status wi_measured_add(const wi_measured *measured)
{
    char path[PATH_BYTES], lock_path[PATH_BYTES];
    if (!path_of("", path) || !path_of(".lock", lock_path))
        return weir_fail(WEIR_ERR_SYSTEM, "the store has no place for what loads have measured (option home)");
    int lock = take_lock(lock_path);
    if (lock < 0)
        return weir_fail(WEIR_ERR_SYSTEM, "%s: %s", lock_path, strerror(errno));
    table *records = read_table(path, NULL);
    weir_status status = records ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for what loads have measured");
    if (records) {
        records_put_in(records, measured);
        status = write_table(path, records);
    }
    drop_table(records);
    close(lock);
    return status;
}
