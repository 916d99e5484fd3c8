/* Allocations and frees on streams that the caller names, or for all of them. */
#include "seams/seams.h"

#include "seams/places.h"

const char *wseam_version(void)
{
    return weir_version();
}

size_t wseam_streams(void)
{
    return wseam_places_count();
}

size_t wseam_waiting(void)
{
    wseam_free_waiting();
    return wseam_frees_waiting();
}

void wseam_end_stream(void *native)
{
    wseam_places_end(native);
}

weir_status wseam_forget(weir_runtime *runtime)
{
    return wseam_places_forget(runtime);
}

static weir_status alloc_on(weir_client *client, size_t bytes, size_t alignment, weir_stream stream, void **out)
{
    weir_request request = WEIR_INIT(weir_request);
    weir_block block = {NULL, 0};
    request.bytes = bytes;
    request.alignment = alignment;
    request.stream = stream;
    request.memory_class = WEIR_CLASS_ACTIVATIONS;
    weir_status status = weir_alloc_with(client, &request, &block);
    *out = block.pointer;
    return status;
}

weir_status wseam_alloc(weir_client *client, size_t bytes, size_t alignment, void *native, void **out)
{
    weir_stream stream;
    *out = NULL;
    wseam_free_waiting();
    weir_status status = wseam_place_or_host(client, native, &stream);
    return status == WEIR_OK ? alloc_on(client, bytes, alignment, stream, out) : status;
}

void wseam_free_on(weir_client *client, void *pointer, void *native)
{
    weir_stream stream;
    if (wseam_place_of(client, native, &stream) != WEIR_OK)
        stream = WEIR_STREAM_HOST;
    if (pointer)
        wseam_free(client, pointer, stream);
}

weir_status wseam_alloc_for_all(weir_client *client, size_t bytes, void **out)
{
    wseam_free_waiting();
    return alloc_on(client, bytes, 0, WEIR_STREAM_HOST, out);
}

void wseam_free_behind(weir_client *client, void *pointer)
{
    if (pointer)
        wseam_free(client, pointer, WEIR_STREAM_ALL);
}
