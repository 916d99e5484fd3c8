/* Notes: what a program says of work that weir does not see. */
#include "runtime/runtime.h"
#include <weir/trace.h>

static weir_status notes_note(weir_runtime *runtime, weir_event event)
{
    void *ignored;
    weir_status status = wi_streams_resolve(&runtime->streams, event.stream, runtime->name, &ignored);
    return wi_record_call(runtime, status, &event);
}

/* Nobody listens. */
static bool notes_idle(const weir_runtime *runtime)
{
    return runtime && wi_likely(wi_recording(&runtime->ledger) == 0);
}

weir_status weir_note_record(weir_runtime *runtime, uint64_t event, weir_stream stream)
{
    WI_ENTER();
    if (notes_idle(runtime))
        return WEIR_OK;
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_note_record: NULL");
    return notes_note(runtime, (weir_event){.action = WEIR_ACTION_NOTE_RECORD, .object = event, .stream = stream});
}

weir_status weir_note_wait(weir_runtime *runtime, uint64_t event, weir_stream stream)
{
    WI_ENTER();
    if (notes_idle(runtime))
        return WEIR_OK;
    if (!runtime)
        return weir_fail(WEIR_ERR_INVALID, "weir_note_wait: NULL");
    return notes_note(runtime, (weir_event){.action = WEIR_ACTION_NOTE_WAIT, .object = event, .stream = stream});
}

weir_status weir_note_use(weir_runtime *runtime, const void *pointer, size_t bytes, weir_stream stream,
                          weir_access access)
{
    WI_ENTER();
    if (notes_idle(runtime))
        return WEIR_OK;
    if (!runtime || !pointer || bytes == 0)
        return weir_fail(WEIR_ERR_INVALID, "weir_note_use: NULL, or no bytes");
    if (access < WEIR_ACCESS_READ || access > WEIR_ACCESS_READ_WRITE)
        return weir_fail(WEIR_ERR_INVALID, "weir_note_use: %d is no access; see weir_access", (int)access);
    return notes_note(runtime, (weir_event){.action = WEIR_ACTION_NOTE_USE,
                                            .pointer = (void *)(uintptr_t)pointer,
                                            .bytes = bytes,
                                            .stream = stream,
                                            .access = access});
}
