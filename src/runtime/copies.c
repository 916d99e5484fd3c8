/* Copies of what is away: in memory of the host's, in a file, or in chunks that can be shown. */
#include "runtime/copies.h"
#include "base/system.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAGE_BYTES = 8 * WI_MIB };

void wi_copies_begin(wi_copies *copies, weir_client *client)
{
    *copies = (wi_copies){.client = client, .file = -1};
}

/* What it takes of the host's memory, or of the file. */
static uint64_t copies_bytes(const wi_copy *copy)
{
    return copy->chunk ? (uint64_t)(copy->home_end - copy->home) : (uint64_t)(copy->high - copy->low);
}

/* Where the copy, which is in memory, has what is at the address of the device. */
static char *copies_at(const wi_copy *copy, const char *address)
{
    return (char *)copy->memory.pointer + (address - (copy->chunk ? copy->home : copy->low));
}

static void copies_drop(wi_copies *copies, size_t which)
{
    wi_copy *copy = copies->of[which];
    uint64_t bytes = copies_bytes(copy);
    if (!copy->memory.pointer && copies->file >= 0) /* the disk has its place back, as far as the file system can */
        (void)!fallocate(copies->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)copy->offset, (off_t)bytes);
    copies->elsewhere -= copy->chunk || !copy->memory.pointer ? bytes : 0;
    if (copy->memory.pointer && !copy->chunk)
        wi_copy_memory_return(&copies->memory, copies->client, copy->memory.pointer, bytes);
    else if (copy->chunk && weir_free_block(copies->client, copy->memory, WEIR_STREAM_HOST) != WEIR_OK)
        weir_log(WEIR_LOG_WARNING, "a copy of what %s had on its device was not freed: %s",
                 copies->client->account.name, weir_detail());
    free(copy);
    memmove(&copies->of[which], &copies->of[which + 1], (--copies->count - which) * sizeof(wi_copy *));
}

static void copies_drop_stage(wi_copies *copies)
{
    if (copies->stage_block.pointer)
        (void)!weir_free_block(copies->client, copies->stage_block, WEIR_STREAM_HOST);
    else
        free(copies->stage);
    copies->stage_block = (weir_block){NULL, 0};
    copies->stage = NULL;
}

uint64_t wi_copies_stored(const wi_copies *copies)
{
    return copies->elsewhere + copies->memory.held;
}

uint64_t wi_copies_chunks(const wi_copies *copies, uint64_t *bytes)
{
    uint64_t chunks = 0;
    *bytes = 0;
    for (size_t i = 0; i < copies->count; i++)
        if (copies->of[i]->chunk) {
            chunks++;
            *bytes += copies_bytes(copies->of[i]);
        }
    return chunks;
}

void wi_copies_end(wi_copies *copies)
{
    while (copies->count > 0)
        copies_drop(copies, copies->count - 1);
    free(copies->of);
    copies_drop_stage(copies);
    if (copies->file >= 0)
        close(copies->file);
    wi_copy_memory_expect_none(&copies->memory);
    wi_copies_begin(copies, copies->client);
}

void wi_copies_sweep(wi_copies *copies, bool fresh)
{
    for (size_t i = copies->count; i-- > 0;)
        if (!copies->of[i]->good || (fresh && copies->of[i]->fresh))
            copies_drop(copies, i);
    if (copies->count == 0)
        wi_copies_end(copies);
    else if (copies->file < 0) /* it was for a comparison */
        copies_drop_stage(copies);
}

/* Places ----------------------------------------------------------------------------------------------------------- */

/* A file without a name: nothing is left of it when the process ends, however that happens. */
static weir_status copies_open_file(wi_copies *copies, const char *folder)
{
    copies->file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (copies->file < 0) { /* a file system that has no such files */
        char path[4096];
        snprintf(path, sizeof path, "%s/weir-XXXXXX", folder);
        copies->file = mkostemp(path, O_CLOEXEC);
        if (copies->file >= 0)
            unlink(path);
    }
    if (copies->file < 0)
        return weir_fail(WEIR_ERR_SYSTEM, "no file for what %s has on its device can be made in %s: %s",
                         copies->client->account.name, folder, strerror(errno));
    copies->file_end = 0;
    return WEIR_OK;
}

static weir_status copies_make_stage(wi_copies *copies)
{
    weir_client *client = copies->client;
    weir_request request = {.struct_size = sizeof request,
                            .bytes = STAGE_BYTES,
                            .kind = WEIR_KIND_PINNED,
                            .stream = WEIR_STREAM_HOST,
                            .tag = "stage of copies"};
    if (copies->stage)
        return WEIR_OK;
    if (wi_kind_is_own(client->runtime, WEIR_KIND_PINNED)) {
        copies->stage = malloc(STAGE_BYTES);
        return copies->stage ? WEIR_OK
                             : weir_fail(WEIR_ERR_SYSTEM, "no host memory for a stage of %d bytes", STAGE_BYTES);
    }
    weir_status status = weir_alloc_with(client, &request, &copies->stage_block);
    copies->stage = copies->stage_block.pointer;
    return status;
}

weir_status wi_copies_open(wi_copies *copies, const char *folder, bool shown)
{
    bool own = wi_kind_is_own(copies->client->runtime, WEIR_KIND_PINNED);
    const char *temporary = getenv("TMPDIR");
    for (size_t i = 0; i < copies->count; i++)
        copies->of[i]->fresh = false;
    wi_copy_memory_expect_none(&copies->memory);
    if (!folder && own)
        folder = temporary && *temporary ? temporary : "/tmp";
    copies->to_file = folder != NULL;
    copies->shown = shown;
    if (!folder || copies->file >= 0)
        return WEIR_OK;
    weir_status status = copies_make_stage(copies);
    return status == WEIR_OK ? copies_open_file(copies, folder) : status;
}

/* The first copy that ends behind the address. */
static size_t copies_from(const wi_copies *copies, const char *low)
{
    size_t first = 0, end = copies->count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (copies->of[middle]->high > low)
            end = middle;
        else
            first = middle + 1;
    }
    return first;
}

wi_copy *wi_copies_find(const wi_copies *copies, const wi_away *away, const wi_piece *piece)
{
    wi_base *base = copies->client->runtime->resource->base;
    size_t at = copies_from(copies, piece->low);
    wi_copy *copy = at < copies->count ? copies->of[at] : NULL;
    bool covers = copy && copy->good && copy->low <= piece->low && copy->high >= piece->high;
    return covers && base->table->away->stamp(base, away, copy->low, copy->high) == copy->stamp ? copy : NULL;
}

bool wi_copies_spoil(wi_copies *copies, const wi_piece *piece)
{
    bool any = false;
    for (size_t i = copies_from(copies, piece->low); i < copies->count && copies->of[i]->low < piece->high; i++) {
        any |= copies->of[i]->good;
        copies->of[i]->good = false;
    }
    return any;
}

void wi_copies_narrow(wi_copies *copies, const wi_away *away)
{
    wi_base *base = copies->client->runtime->resource->base;
    const wi_piece *last = NULL; /* the one before, if it has the same copy */
    wi_base_lock(base);          /* frees on other threads take pieces from the list */
    for (size_t i = 0; i < copies->count; i++)
        copies->of[i]->whole = false;
    for (size_t i = 0; i < away->piece_count; i++) {
        const wi_piece *piece = &away->pieces[i];
        wi_copy *copy = piece->copy;
        bool goes_on = last && last->copy == copy && last->region == piece->region;
        if (copy) { /* it is whole as long as no gap has been found, and when its end is reached */
            bool begins = piece->low == copy->low, adjoins = goes_on && last->first + last->count == piece->first;
            copy->good &= begins || adjoins;
            copy->whole = piece->high == copy->high;
        }
        last = piece;
    }
    wi_base_unlock(base);
    for (size_t i = 0; i < copies->count; i++)
        copies->of[i]->good &= copies->of[i]->whole;
}

/* Puts a new record at its place in the order. */
static weir_status copies_insert(wi_copies *copies, size_t at, wi_copy *copy)
{
    if (copies->count == copies->room) {
        size_t room = copies->room ? 2 * copies->room : 16;
        wi_copy **of = realloc(copies->of, room * sizeof(wi_copy *));
        if (!of)
            return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the records of copies");
        copies->of = of;
        copies->room = room;
    }
    memmove(&copies->of[at + 1], &copies->of[at], (copies->count++ - at) * sizeof(wi_copy *));
    copies->of[at] = copy;
    return WEIR_OK;
}

/* Whether new copies of the piece are chunks; those of pages are not, as these are handles of their own. */
static bool copies_shows(const wi_copies *copies, const wi_piece *piece)
{
    return copies->shown && piece->region;
}

/* The addresses of all granules of the piece. */
static char *copies_home(const wi_piece *piece, char **end)
{
    char *home = piece->region->base + piece->first * piece->region->granule;
    *end = home + piece->count * piece->region->granule;
    return home;
}

/* Whether the copy has the piece's addresses, and is where new copies go. */
static bool copies_fits(const wi_copies *copies, const wi_copy *copy, const wi_piece *piece)
{
    char *end = NULL;
    const char *home = piece->region ? copies_home(piece, &end) : NULL;
    if (copy->low != piece->low || copy->high != piece->high || !copy->chunk == copies_shows(copies, piece))
        return false;
    return copy->chunk ? copy->home == home && copy->home_end == end : !copy->memory.pointer == copies->to_file;
}

/* Memory, or a place in the file, for a copy of the piece. */
static weir_status copies_obtain(wi_copies *copies, const wi_piece *piece, wi_copy *copy)
{
    uint64_t bytes = (uint64_t)(piece->high - piece->low);
    copy->offset = copies->file_end;
    if (copies_shows(copies, piece)) {
        char *end, *home = copies_home(piece, &end);
        weir_status status =
            wi_alloc_shown(copies->client, (uint64_t)(end - home), "copy of what is away", &copy->memory);
        if (status != WEIR_OK)
            return status;
        copy->chunk = wi_host_chunks_of(copies->client->runtime->host_chunks, copy->memory.pointer);
        copy->home = home;
        copy->home_end = end;
        return WEIR_OK;
    }
    copies->file_end += copies->to_file ? bytes : 0;
    return copies->to_file ? WEIR_OK
                           : wi_copy_memory_cut(&copies->memory, copies->client, bytes, &copy->memory.pointer);
}

void wi_copies_expect(wi_copies *copies, const wi_piece *piece)
{
    size_t at = copies_from(copies, piece->low);
    bool there = at < copies->count && copies_fits(copies, copies->of[at], piece);
    if (!there && !copies->to_file && !copies_shows(copies, piece))
        wi_copy_memory_expect(&copies->memory, (uint64_t)(piece->high - piece->low));
}

/* Gives back what a record would have had. */
static void copies_give_up(wi_copies *copies, wi_copy *copy, const wi_piece *piece)
{
    if (copy && copy->chunk)
        (void)!weir_free_block(copies->client, copy->memory, WEIR_STREAM_HOST);
    else if (copy && copy->memory.pointer)
        wi_copy_memory_return(&copies->memory, copies->client, copy->memory.pointer,
                              (uint64_t)(piece->high - piece->low));
    free(copy);
}

weir_status wi_copies_make(wi_copies *copies, wi_piece *piece)
{
    size_t at = copies_from(copies, piece->low);
    if (at < copies->count && copies_fits(copies, copies->of[at], piece)) {
        wi_copy *same = copies->of[at];
        same->good = false;
        same->fresh = true;
        same->stamp = piece->stamp;
        piece->copy = same;
        return WEIR_OK;
    }
    while (at < copies->count && copies->of[at]->low < piece->high)
        copies_drop(copies, at);
    wi_copy *copy = calloc(1, sizeof *copy);
    weir_status status = copy ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory for the records of copies");
    if (status == WEIR_OK)
        status = copies_obtain(copies, piece, copy);
    if (status == WEIR_OK)
        status = copies_insert(copies, at, copy);
    if (status != WEIR_OK) {
        copies_give_up(copies, copy, piece);
        return status;
    }
    copy->low = piece->low;
    copy->high = piece->high;
    copy->stamp = piece->stamp;
    copy->fresh = true;
    copies->elsewhere += copy->chunk || !copy->memory.pointer ? copies_bytes(copy) : 0;
    piece->copy = copy;
    return WEIR_OK;
}

void wi_copies_give_up(wi_copies *copies, const wi_copy *copy)
{
    size_t at = copies_from(copies, copy->low);
    wi_assert(copies->of[at] == copy);
    copies_drop(copies, at);
}

/* Contents --------------------------------------------------------------------------------------------------------- */

/* What is copied out may have bytes between the kept runs; what is copied in are the kept runs alone, as what lies between
 * them may be somebody else's before the copies are through. */

/* The kept runs of a piece, one after the other. */
#define EACH_RUN(r, away, piece)                                                                                       \
    for (const wi_run *r = (away)->runs + (piece)->run, *end_ = r + (piece)->run_count; r < end_; r++)                 \
        if (r->saved)

/* A checksum over words; it finds a torn or a damaged file, and no forgery. */
static uint64_t copies_sum(uint64_t sum, const void *data, size_t bytes)
{
    const char *at = data;
    for (; bytes >= sizeof sum; at += sizeof sum, bytes -= sizeof sum) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 32;
    }
    return sum;
}

static weir_status copies_file_failed(const wi_copies *copies, const char *what, ssize_t done)
{
    return weir_fail(WEIR_ERR_SYSTEM, "the file with what %s has on its device cannot be %s: %s",
                     copies->client->account.name, what, done < 0 ? strerror(errno) : "it ends too early");
}

static weir_status copies_damaged(const wi_copies *copies)
{
    return weir_fail(WEIR_ERR_CORRUPT,
                     "what was read back for %s is not what was written: its file, or the disk, is damaged",
                     copies->client->account.name);
}

static weir_status copies_write(const wi_copies *copies, const char *data, size_t bytes, uint64_t offset)
{
    for (ssize_t done; bytes > 0; data += done, bytes -= (size_t)done, offset += (uint64_t)done) {
        do
            done = pwrite(copies->file, data, bytes, (off_t)offset);
        while (done < 0 && errno == EINTR);
        if (done <= 0)
            return copies_file_failed(copies, "written", done);
    }
    return WEIR_OK;
}

static weir_status copies_read(const wi_copies *copies, char *data, size_t bytes, uint64_t offset)
{
    for (ssize_t done; bytes > 0; data += done, bytes -= (size_t)done, offset += (uint64_t)done) {
        do
            done = pread(copies->file, data, bytes, (off_t)offset);
        while (done < 0 && errno == EINTR);
        if (done < 0)
            return copies_file_failed(copies, "read", done);
        if (done == 0)
            return copies_damaged(copies);
    }
    return WEIR_OK;
}

static weir_status copies_move(const wi_copies *copies, void *to, const void *from, uint64_t bytes, void *stream)
{
    const weir_runtime *runtime = copies->client->runtime;
    return runtime->driver->copy(runtime->device, to, from, bytes, stream);
}

/* Copies that go to the driver together. */
typedef struct copies_batch {
    const wi_copies *copies;
    void *stream;
    size_t count;
    weir_driver_copy of[512];
} copies_batch;

static weir_status copies_batch_queue(copies_batch *b)
{
    const weir_runtime *runtime = b->copies->client->runtime;
    size_t count = b->count;
    b->count = 0;
    return wi_driver_copy_many(runtime->driver, runtime->device, b->of, count, b->stream);
}

static weir_status copies_batch_add(copies_batch *b, void *to, const void *from, uint64_t bytes)
{
    b->of[b->count++] = (weir_driver_copy){to, from, bytes};
    return b->count == sizeof b->of / sizeof b->of[0] ? copies_batch_queue(b) : WEIR_OK;
}

/* A window of a copy that passes the stage. */
typedef struct window {
    char *low; /* of the device */
    uint64_t bytes, offset;
} window;

static window copies_window(const wi_copy *copy, uint64_t at, uint64_t most)
{
    return (window){copy->low + at, wi_min((uint64_t)(copy->high - copy->low) - at, most), copy->offset + at};
}

static weir_status copies_save_to_file(wi_copies *copies, wi_copy *copy)
{
    weir_status status = WEIR_OK;
    copy->sum = 0;
    for (uint64_t at = 0; copy->low + at < copy->high && status == WEIR_OK; at += STAGE_BYTES) {
        window w = copies_window(copy, at, STAGE_BYTES);
        status = copies_move(copies, copies->stage, w.low, w.bytes, NULL);
        if (status != WEIR_OK)
            break;
        copy->sum = copies_sum(copy->sum, copies->stage, w.bytes);
        status = copies_write(copies, copies->stage, w.bytes, w.offset);
    }
    return status;
}

/* The part of a run that lies in the window. */
static wi_run copies_part(const wi_run *run, const window *w)
{
    char *low = run->start > w->low ? run->start : w->low;
    char *high = run->start + run->bytes < w->low + w->bytes ? run->start + run->bytes : w->low + w->bytes;
    return (wi_run){low, low < high ? (uint64_t)(high - low) : 0, run->saved};
}

/* Reads the whole copy, even parts that are not needed, so that the checksum can be verified. */
static weir_status copies_load_from_file(wi_copies *copies, const wi_away *away, const wi_piece *piece)
{
    const wi_copy *copy = piece->copy;
    weir_status status = WEIR_OK;
    uint64_t sum = 0;
    for (uint64_t at = 0; copy->low + at < copy->high && status == WEIR_OK; at += STAGE_BYTES) {
        window w = copies_window(copy, at, STAGE_BYTES);
        status = copies_read(copies, copies->stage, w.bytes, w.offset);
        sum = copies_sum(sum, copies->stage, w.bytes);
        copies_batch batch = {.copies = copies};
        EACH_RUN (run, away, piece) {
            wi_run part = copies_part(run, &w);
            if (status == WEIR_OK && part.bytes > 0)
                status = copies_batch_add(&batch, part.start, (char *)copies->stage + (part.start - w.low), part.bytes);
        }
        if (status == WEIR_OK)
            status = copies_batch_queue(&batch);
    }
    if (status == WEIR_OK && sum != copy->sum)
        status = copies_damaged(copies);
    return status;
}

weir_status wi_copies_save(wi_copies *copies, const wi_piece *piece, void *stream)
{
    wi_copy *copy = piece->copy;
    weir_status status = copy->chunk ? wi_host_chunk_hide(copy->chunk) : WEIR_OK;
    if (status != WEIR_OK)
        return status;
    if (copy->chunk)
        return copies_move(copies, copies_at(copy, copy->low), copy->low, (uint64_t)(copy->high - copy->low), stream);
    return copy->memory.pointer
               ? copies_move(copies, copy->memory.pointer, copy->low, (uint64_t)(copy->high - copy->low), stream)
               : copies_save_to_file(copies, copy);
}

/* Between two runs less than this is copied along: a copy of its own costs about as much. */
enum { LEAST_GAP = 32 * 1024 };

/* Adds the kept runs of a piece whose copy is in copy memory. */
static weir_status copies_save_runs(copies_batch *batch, const wi_away *away, const wi_piece *piece)
{
    char *low = NULL, *high = NULL;
    weir_status status = WEIR_OK;
    EACH_RUN (run, away, piece) {
        if (low && run->start - high >= LEAST_GAP) {
            status = copies_batch_add(batch, copies_at(piece->copy, low), low, (uint64_t)(high - low));
            low = NULL;
        }
        if (status != WEIR_OK)
            return status;
        low = low ? low : run->start;
        high = run->start + run->bytes;
    }
    return low ? copies_batch_add(batch, copies_at(piece->copy, low), low, (uint64_t)(high - low)) : WEIR_OK;
}

weir_status wi_copies_save_all(wi_copies *copies, const wi_away *away, size_t first, size_t count, void *stream)
{
    copies_batch batch = {.copies = copies, .stream = stream};
    weir_status status = WEIR_OK;
    for (size_t i = first; i < first + count && status == WEIR_OK; i++) {
        const wi_piece *piece = &away->pieces[i];
        if (piece->copy && piece->copy->memory.pointer && !piece->copy->chunk)
            status = copies_save_runs(&batch, away, piece);
        else if (piece->copy)
            status = wi_copies_save(copies, piece, stream);
    }
    return status == WEIR_OK ? copies_batch_queue(&batch) : status;
}

static weir_status copies_load_runs(copies_batch *batch, const wi_away *away, const wi_piece *piece)
{
    weir_status status = piece->copy->chunk ? wi_host_chunk_hide(piece->copy->chunk) : WEIR_OK;
    EACH_RUN (run, away, piece)
        if (status == WEIR_OK)
            status = copies_batch_add(batch, run->start, copies_at(piece->copy, run->start), run->bytes);
    return status;
}

weir_status wi_copies_load_all(wi_copies *copies, const wi_away *away, size_t first, size_t count, void *stream)
{
    copies_batch batch = {.copies = copies, .stream = stream};
    weir_status status = WEIR_OK;
    for (size_t i = first; i < first + count && status == WEIR_OK; i++) {
        const wi_piece *piece = &away->pieces[i];
        if (piece->copy && piece->copy->memory.pointer)
            status = copies_load_runs(&batch, away, piece);
        else if (piece->copy)
            status = copies_load_from_file(copies, away, piece);
    }
    return status == WEIR_OK ? copies_batch_queue(&batch) : status;
}

weir_status wi_copies_load(wi_copies *copies, const wi_away *away, const wi_piece *piece, void *stream)
{
    return wi_copies_load_all(copies, away, (size_t)(piece - away->pieces), 1, stream);
}

weir_status wi_copies_compare(wi_copies *copies, const wi_away *away, const wi_piece *piece, bool *same)
{
    const wi_copy *copy = piece->copy;
    const uint64_t half = STAGE_BYTES / 2;
    weir_status status = copies_make_stage(copies);
    if (status == WEIR_OK && copy->chunk)
        status = wi_host_chunk_hide(copy->chunk);
    *same = true;
    for (uint64_t at = 0; copy->low + at < copy->high && status == WEIR_OK && *same; at += half) {
        window w = copies_window(copy, at, half);
        char *there = copy->memory.pointer && !copy->chunk ? copies_at(copy, w.low) : (char *)copies->stage + half;
        if (!copy->memory.pointer)
            status = copies_read(copies, there, w.bytes, w.offset);
        else if (copy->chunk)
            status = copies_move(copies, there, copies_at(copy, w.low), w.bytes, NULL);
        EACH_RUN (run, away, piece) {
            wi_run part = copies_part(run, &w);
            if (status == WEIR_OK && part.bytes > 0)
                status = copies_move(copies, copies->stage, part.start, part.bytes, NULL);
            *same = *same && status == WEIR_OK && memcmp(copies->stage, there + (part.start - w.low), part.bytes) == 0;
        }
    }
    return status;
}

/* Shown ------------------------------------------------------------------------------------------------------------ */

weir_status wi_copies_clear(const wi_copies *copies, const wi_away *away, const wi_piece *piece, void *stream)
{
    const weir_runtime *runtime = copies->client->runtime;
    const wi_copy *copy = piece->copy;
    weir_status status = wi_host_chunk_hide(copy->chunk); /* a trusted one is where a failed call has left it */
    for (const wi_run *r = away->runs + piece->run, *end = r + piece->run_count; r < end && status == WEIR_OK; r++)
        if (!r->saved)
            status = runtime->driver->fill(runtime->device, copies_at(copy, r->start), 0, r->bytes, stream);
    return status;
}

void wi_copies_fit(const wi_away *away)
{
    for (size_t i = 0, next; i < away->piece_count; i = next) {
        const wi_piece *first = &away->pieces[i], *last = first;
        wi_copy *copy = first->copy;
        for (next = i + 1; copy && next < away->piece_count && away->pieces[next].copy == copy &&
                           away->pieces[next].first == last->first + last->count;
             next++)
            last = &away->pieces[next];
        char *end = NULL;
        if (copy && !(copy->chunk && copies_home(first, &end) == copy->home && copies_home(last, &end) &&
                      end == copy->home_end))
            copy->good = false;
    }
}

weir_status wi_copies_show(const wi_copy *copy)
{
    return wi_host_chunk_show(copy->chunk, copy->home);
}

weir_status wi_copies_hide(const wi_copy *copy)
{
    return wi_host_chunk_hide(copy->chunk);
}
