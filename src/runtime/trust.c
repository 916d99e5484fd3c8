/* Trust in copies: an engine promises that memory is unwritten since it was copied. Here the promise is enforced, and checked.
 * Besides, this file tells receipts of the memory that no suspend moves. */
#include "base/values.h"
#include "runtime/residence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW_BYTES = 64 * 1024 };

/* Sealing ---------------------------------------------------------------------------------------------------------- */

/* Whether all that is away comes back at once: what came before may have been written since, as the client was told. */
static bool trust_whole(const wi_away *away)
{
    return away->coming == away->bytes;
}

void wi_trust_seal(weir_client *client, wi_residence *r)
{
    const weir_runtime *runtime = client->runtime;
    wi_base *base = runtime->resource->base;
    wi_saved_detail saved;
    if (wi_likely(!r->away.unwritten) || !wi_option_protect() || !trust_whole(&r->away))
        return;
    wi_detail_save(&saved);
    bool there = runtime->driver->stream_synchronize(runtime->device, r->stream) == WEIR_OK;
    wi_detail_restore(&saved);
    for (size_t i = 0; there && i < r->away.piece_count; i++) {
        const wi_piece *piece = &r->away.pieces[i];
        if (piece->coming && piece->low && piece->unwritten && piece->copy && piece->copy->good)
            base->table->away->seal(base, &r->away, piece);
    }
}

/* Checking --------------------------------------------------------------------------------------------------------- */

static bool trust_checks(void)
{
#ifdef WEIR_INVARIANTS
    return true;
#else
    return wi_option_protect();
#endif
}

/* The block of which the byte is, and which byte differs from what. */
static weir_status trust_broken(const wi_away *away, const char *at, unsigned there, unsigned copied)
{
    const wi_block *found = NULL;
    for (size_t i = 0; i < away->block_count && !found; i++) {
        const wi_block *block = away->blocks[i];
        const char *start = (const char *)block->pointer - block->before;
        if (at >= start && at < start + block->charged)
            found = block;
    }
    if (!found)
        return weir_fail(WEIR_ERR_CORRUPT, "%s has written at %p what it promised not to write", away->account->name,
                         (const void *)at);
    return weir_fail(WEIR_ERR_CORRUPT,
                     "the block of %s at %p%s%s was written, though its class was promised as unwritten since the last "
                     "resume: byte %llu is %u, and %u in the copy",
                     away->account->name, found->pointer, found->tag && *found->tag ? ", tag " : "",
                     found->tag ? found->tag : "", (unsigned long long)(at - (const char *)found->pointer), there,
                     copied);
}

/* Reads a part of a copy that is in a file. */
static weir_status trust_read(const wi_residence *r, unsigned char *to, uint64_t bytes, uint64_t offset)
{
    for (ssize_t done; bytes > 0; to += done, bytes -= (uint64_t)done, offset += (uint64_t)done) {
        done = pread(r->copies.file, to, bytes, (off_t)offset);
        if (done < 0 && errno == EINTR)
            done = 0;
        else if (done <= 0)
            return weir_fail(WEIR_ERR_SYSTEM, "the file with what %s has on its device cannot be read: %s",
                             r->away.account->name, done < 0 ? strerror(errno) : "it ends too early");
    }
    return WEIR_OK;
}

/* Compares up to WINDOW_BYTES at the address. */
static weir_status trust_compare(const wi_residence *r, const wi_copy *copy, const char *at, uint64_t bytes,
                                 unsigned char *window)
{
    const weir_runtime *runtime = r->copies.client->runtime;
    uint64_t from = (uint64_t)(at - (copy->chunk ? copy->home : copy->low));
    const char *memory = copy->memory.pointer;
    const unsigned char *copied = memory && !copy->chunk ? (const unsigned char *)memory + from : window + WINDOW_BYTES;
    weir_status status = runtime->driver->copy(runtime->device, window, at, bytes, NULL);
    if (status == WEIR_OK && !memory)
        status = trust_read(r, window + WINDOW_BYTES, bytes, copy->offset + from);
    else if (status == WEIR_OK && copy->chunk)
        status = runtime->driver->copy(runtime->device, window + WINDOW_BYTES, memory + from, bytes, NULL);
    if (status != WEIR_OK || memcmp(window, copied, bytes) == 0)
        return status;
    uint64_t first = 0;
    while (window[first] == copied[first])
        first++;
    return trust_broken(&r->away, at + first, window[first], copied[first]);
}

/* Keeps for good a window to which a lost device may still write. */
static void trust_keep(const unsigned char *window)
{
    typedef struct kept {
        struct kept *next;
        const unsigned char *window;
    } kept;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static kept *list;
    kept *k = malloc(sizeof *k);
    if (!k)
        return;
    pthread_mutex_lock(&lock);
    *k = (kept){list, window};
    list = k;
    pthread_mutex_unlock(&lock);
}

/* Whether copies to the window have ended, of which one has failed. The detail stays. */
static bool trust_is_still(const wi_residence *r, const wi_piece *piece, unsigned char *window)
{
    enum { TRIES = 3 };
    const weir_runtime *runtime = r->copies.client->runtime;
    weir_status status = WEIR_ERR_DRIVER;
    wi_saved_detail saved;
    wi_detail_save(&saved);
    for (int i = 0; i < TRIES && status != WEIR_OK; i++)
        status = runtime->driver->copy(runtime->device, window, r->away.runs[piece->run].start, 1, NULL);
    wi_detail_restore(&saved);
    return status == WEIR_OK;
}

weir_status wi_trust_check(const wi_residence *r, const wi_piece *piece)
{
    const wi_copy *copy = piece->copy;
    if (!trust_checks())
        return WEIR_OK;
    unsigned char *window = malloc(2 * (size_t)WINDOW_BYTES);
    weir_status status = window ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "no host memory to look at what is unwritten");
    if (status == WEIR_OK && copy->chunk)
        status = wi_host_chunk_hide(copy->chunk);
    for (size_t i = piece->run; i < piece->run + piece->run_count && status == WEIR_OK; i++) {
        const wi_run *run = &r->away.runs[i];
        for (uint64_t done = 0; run->saved && done < run->bytes && status == WEIR_OK; done += WINDOW_BYTES)
            status = trust_compare(r, copy, run->start + done, wi_min(run->bytes - done, WINDOW_BYTES), window);
    }
    if (window && status != WEIR_OK && status != WEIR_ERR_CORRUPT && !trust_is_still(r, piece, window))
        trust_keep(window);
    else
        free(window);
    return status;
}

/* Outside ---------------------------------------------------------------------------------------------------------- */

void wi_trust_tell_outside(weir_client *client, const weir_client_stats *stats, weir_residency *receipt)
{
    const weir_runtime *runtime = client->runtime;
    wi_saved_detail saved;
    receipt->outside = stats->outside;
    memcpy(receipt->outside_method, stats->outside_method, sizeof receipt->outside_method);
    wi_detail_save(&saved);
    if (runtime->driver->graph_memory && runtime->driver->graph_memory(runtime->device, &receipt->graphs) != WEIR_OK)
        receipt->graphs = 0;
    wi_detail_restore(&saved);
}
