/* Stream uses: the last write and the reads since, the last move, and open tickets. */
#include "memory/space/stream_order.h"
#include "base/probes.h"

static weir_status stream_uses_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no host memory to remember the use of a block");
}

/* Makes room for one more read, so that closing a ticket cannot fail. Each open reader may be on another stream. */
static weir_status stream_uses_reserve(wi_stream_uses *stream_uses)
{
    uint32_t needed = stream_uses->read_count + stream_uses->readers + 1;
    if (needed <= stream_uses->read_capacity)
        return WEIR_OK;
    wi_event *reads = realloc(stream_uses->reads, 2 * (size_t)needed * sizeof *reads);
    if (!reads)
        return stream_uses_no_memory();
    stream_uses->reads = reads;
    stream_uses->read_capacity = 2 * needed;
    return WEIR_OK;
}

weir_status wi_stream_uses_open(wi_stream_uses **stream_uses, weir_access access, bool *opened)
{
    if (!*stream_uses)
        *stream_uses = calloc(1, sizeof **stream_uses);
    wi_stream_uses *m = *stream_uses;
    weir_status status = m ? stream_uses_reserve(m) : stream_uses_no_memory();
    *opened = status == WEIR_OK && !m->writer && (access == WEIR_ACCESS_READ || m->readers == 0);
    if (*opened && access == WEIR_ACCESS_READ)
        m->readers++;
    else if (*opened)
        m->writer = true;
    return status;
}

static void stream_uses_add_read(wi_stream_uses *stream_uses, wi_event event)
{
    for (uint32_t i = 0; i < stream_uses->read_count; i++)
        if (stream_uses->reads[i].stream == event.stream) {
            stream_uses->reads[i].sequence = wi_max(stream_uses->reads[i].sequence, event.sequence);
            return;
        }
    wi_assert(stream_uses->read_count < stream_uses->read_capacity);
    stream_uses->reads[stream_uses->read_count++] = event;
}

void wi_stream_uses_close(wi_stream_uses *stream_uses, weir_access access, const wi_event *event)
{
    if (access == WEIR_ACCESS_READ) {
        wi_assert(stream_uses->readers > 0 && !stream_uses->writer);
        stream_uses->readers--;
        if (event && event->stream)
            stream_uses_add_read(stream_uses, *event);
        return;
    }
    wi_assert(stream_uses->writer && stream_uses->readers == 0);
    stream_uses->writer = false;
    if (event) { /* this write waited for all uses before it */
        stream_uses->write = *event;
        stream_uses->read_count = 0;
    }
}

weir_status wi_stream_uses_first_write(wi_stream_uses **stream_uses, wi_event event)
{
    if (!*stream_uses)
        *stream_uses = calloc(1, sizeof **stream_uses);
    if (!*stream_uses)
        return stream_uses_no_memory();
    if (!(*stream_uses)->write.stream)
        (*stream_uses)->write = event;
    return WEIR_OK;
}

weir_status wi_stream_uses_moved(wi_stream_uses **stream_uses, const wi_event *event)
{
    if (!*stream_uses)
        *stream_uses = calloc(1, sizeof **stream_uses);
    if (!*stream_uses)
        return stream_uses_no_memory();
    if (event)
        (*stream_uses)->moved = *event;
    (*stream_uses)->adrift = !event;
    return WEIR_OK;
}

void wi_stream_uses_rest(wi_stream_uses *stream_uses)
{
    if (stream_uses)
        stream_uses->adrift = false;
}

const char *wi_stream_uses_holder(const wi_stream_uses *stream_uses)
{
    if (!stream_uses || wi_has_bug(WI_BUG_FREE_UNDER_USE))
        return NULL;
    if (stream_uses->writer || stream_uses->readers > 0)
        return "a launch that has not ended; end or abort it first";
    return stream_uses->adrift ? "copies of which the device does not say that they are done; try again when it answers"
                               : NULL;
}

bool wi_stream_uses_point(const wi_stream_uses *stream_uses, weir_access access, uint32_t index, wi_event *out)
{
    if (!stream_uses || index >= 2 + (access == WEIR_ACCESS_READ ? 0 : stream_uses->read_count))
        return false;
    *out = index == 0 ? stream_uses->write : index == 1 ? stream_uses->moved : stream_uses->reads[index - 2];
    return true;
}

bool wi_stream_uses_passed(const wi_stream_uses *stream_uses, const wi_driver *driver, wi_device *device,
                           wi_event *waiting)
{
    wi_event event;
    for (uint32_t i = 0; wi_stream_uses_point(stream_uses, WEIR_ACCESS_WRITE, i, &event); i++)
        if (event.stream && !driver->passed(device, event)) {
            *waiting = event;
            return false;
        }
    return true;
}

weir_status wi_stream_uses_copy(const wi_stream_uses *stream_uses, wi_stream_uses **out)
{
    *out = NULL;
    if (!stream_uses)
        return WEIR_OK;
    wi_stream_uses *copy = calloc(1, sizeof *copy);
    wi_event *reads = malloc((stream_uses->read_count + 1) * sizeof *reads);
    if (!copy || !reads) {
        free(copy);
        free(reads);
        return stream_uses_no_memory();
    }
    if (stream_uses->read_count > 0)
        memcpy(reads, stream_uses->reads, stream_uses->read_count * sizeof *reads);
    *copy = (wi_stream_uses){.write = stream_uses->write,
                             .moved = stream_uses->moved,
                             .reads = reads,
                             .read_count = stream_uses->read_count,
                             .read_capacity = stream_uses->read_count + 1};
    *out = copy;
    return WEIR_OK;
}

void wi_stream_uses_free(wi_stream_uses *stream_uses)
{
    if (stream_uses)
        free(stream_uses->reads);
    free(stream_uses);
}
