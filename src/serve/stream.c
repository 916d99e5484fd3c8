/* stream.c: the queue between whoever writes an answer in pieces and the client that reads it. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>

/* What was read lies before stream_at; it is dropped where room is needed. */
static bool serve_stream_make_room(ws_request *request, size_t bytes)
{
    ws_text *stream = &request->stream;
    if (stream->room - request->stream_at - stream->bytes >= bytes)
        return true;
    if (stream->room - stream->bytes < bytes) {
        size_t room = stream->room * 2 > stream->bytes + bytes ? stream->room * 2 : stream->bytes + bytes + 256;
        char *grown = realloc(stream->data, room);
        if (!grown)
            return false;
        stream->data = grown;
        stream->room = room;
    }
    memmove(stream->data, stream->data + request->stream_at, stream->bytes);
    request->stream_at = 0;
    return true;
}

static weir_status serve_stream_append(ws_request *request, const char *data, size_t bytes)
{
    ws_text *stream = &request->stream;
    if (!serve_stream_make_room(request, bytes))
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for %zu bytes of a stream", bytes);
    memcpy(stream->data + request->stream_at + stream->bytes, data, bytes);
    stream->bytes += bytes;
    atomic_fetch_add(&request->server->stream_bytes, bytes);
    if (request->sleeping)
        ws_news_of(request);
    request->sleeping = false;
    return WEIR_OK;
}

weir_status ws_write(ws_request *request, const void *data, size_t bytes)
{
    const char *at = data;
    size_t most = request->server->options.limits.stream_bytes;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&request->lock);
    while (bytes > 0 && status == WEIR_OK) {
        size_t room = request->stream.bytes < most ? most - request->stream.bytes : 0,
               part = room < bytes ? room : bytes;
        if (request->cancelled) {
            status = weir_fail(WEIR_ERR_CANCELLED, "the client of the stream is gone");
        } else if (part == 0) {
            pthread_cond_wait(&request->changed, &request->lock);
        } else {
            status = serve_stream_append(request, at, part);
            at += part;
            bytes -= part;
        }
    }
    pthread_mutex_unlock(&request->lock);
    return status;
}

weir_status ws_try_write(ws_request *request, const void *data, size_t bytes)
{
    size_t most = request->server->options.limits.stream_bytes;
    weir_status status = WEIR_OK;
    pthread_mutex_lock(&request->lock);
    size_t held = request->stream.bytes;
    if (request->cancelled)
        status = weir_fail(WEIR_ERR_CANCELLED, "the client of the stream is gone");
    else if (held > 0 && (held >= most || bytes > most - held))
        status = weir_fail(WEIR_ERR_BUSY, "the stream holds %zu of %zu bytes for its client", held, most);
    else
        status = serve_stream_append(request, data, bytes);
    pthread_mutex_unlock(&request->lock);
    return status;
}

ssize_t ws_stream_read(void *user, uint64_t at, char *to, size_t most)
{
    ws_request *request = user;
    ws_text *stream = &request->stream;
    (void)at;
    pthread_mutex_lock(&request->lock);
    size_t part = stream->bytes < most ? stream->bytes : most;
    bool cancelled = request->cancelled, over = part == 0 && request->ended;
    request->sleeping = part == 0 && !over && !cancelled;
    if (part > 0 && !cancelled) {
        memcpy(to, stream->data + request->stream_at, part);
        request->stream_at += part;
        stream->bytes -= part;
        atomic_fetch_sub(&request->server->stream_bytes, part);
        pthread_cond_broadcast(&request->changed);
    }
    pthread_mutex_unlock(&request->lock);
    if (cancelled)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (over)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (part == 0) {
        request->suspended = true;
        MHD_suspend_connection(request->mhd);
    }
    return (ssize_t)part;
}
