/* body.c: a body as it arrives: inflated, counted, kept. */
#include "parts.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

weir_status ws_body_begin(ws_request *request, const char *encoding)
{
    if (strcasecmp(encoding, "gzip") != 0 && strcasecmp(encoding, "x-gzip") != 0 &&
        strcasecmp(encoding, "deflate") != 0)
        return WEIR_ERR_UNSUPPORTED;
    request->inflating = calloc(1, sizeof *request->inflating);
    if (request->inflating && inflateInit2(request->inflating, 15 + 32) == Z_OK) /* either header */
        return WEIR_OK;
    free(request->inflating);
    request->inflating = NULL;
    return WEIR_ERR_SYSTEM;
}

void ws_body_clear(ws_request *request)
{
    if (request->inflating)
        inflateEnd(request->inflating);
    free(request->inflating);
    request->inflating = NULL;
    atomic_fetch_sub(&request->server->body_bytes, request->body.room);
    free(request->body.data);
    request->body = (ws_text){0};
}

static bool body_refuse(ws_request *request, unsigned status, const char *code, const char *sentence)
{
    ws_refuse(request, status, code, sentence, status == 503);
    return false;
}

/* Makes room for more of the body. The memory of all bodies is counted before the allocation. */
static bool body_grow(ws_request *request, size_t bytes)
{
    ws_server *server = request->server;
    ws_text *body = &request->body;
    uint64_t room = body->room * 2 > 4096 ? body->room * 2 : 4096, most = request->route->most_body + 1;
    room = room < body->bytes + bytes + 1 ? body->bytes + bytes + 1 : room;
    room = room > most ? most : room;
    room =
        !request->chunked && !request->inflating ? request->announced + 1 < room ? request->announced + 1 : room : room;
    uint64_t more = room - body->room;
    if (atomic_fetch_add(&server->body_bytes, more) + more > server->options.limits.bodies) {
        atomic_fetch_sub(&server->body_bytes, more);
        return body_refuse(request, 503, "bodies_full",
                           "the bodies of other requests take all memory that there is for them");
    }
    char *grown = realloc(body->data, room);
    if (!grown) {
        atomic_fetch_sub(&server->body_bytes, more);
        return body_refuse(request, 503, "no_memory", "no memory for the body");
    }
    body->data = grown;
    body->room = room;
    return true;
}

/* `bytes` of the body itself, inflated. */
static bool body_keep(ws_request *request, const void *data, size_t bytes)
{
    ws_text *body = &request->body;
    if (bytes > request->route->most_body - body->bytes)
        return body_refuse(request, 413, "too_large", "the body is larger than this path takes");
    if (body->room < body->bytes + bytes + 1 && !body_grow(request, bytes))
        return false;
    memcpy(body->data + body->bytes, data, bytes);
    body->bytes += bytes;
    body->data[body->bytes] = '\0';
    return true;
}

static bool inflate_part(ws_request *request, const void *data, size_t bytes)
{
    unsigned char out[16384];
    z_stream *z = request->inflating;
    z->next_in = (unsigned char *)(uintptr_t)data;
    z->avail_in = (unsigned)bytes;
    do {
        z->next_out = out;
        z->avail_out = sizeof out;
        int got = inflate(z, Z_NO_FLUSH);
        if (got != Z_OK && got != Z_STREAM_END && got != Z_BUF_ERROR)
            return body_refuse(request, 400, "bad_encoding", "the body is not what Content-Encoding says");
        if (got == Z_STREAM_END && z->avail_in > 0)
            return body_refuse(request, 400, "bad_encoding", "there are bytes behind the end of the compressed body");
        if (!body_keep(request, out, sizeof out - z->avail_out))
            return false;
        if (got == Z_STREAM_END)
            break;
    } while (z->avail_in > 0 || z->avail_out == 0);
    return true;
}

bool ws_body_take(ws_request *request, const void *data, size_t bytes)
{
    request->body_sent += bytes;
    if (request->body_sent > request->route->most_body)
        return body_refuse(request, 413, "too_large", "the body is larger than this path takes");
    return request->inflating ? inflate_part(request, data, bytes) : body_keep(request, data, bytes);
}

bool ws_body_ends(ws_request *request)
{
    if (!request->inflating || request->body_sent == 0)
        return true;
    unsigned char none[1];
    z_stream *z = request->inflating;
    z->next_in = NULL;
    z->avail_in = 0;
    z->next_out = none;
    z->avail_out = sizeof none;
    if (inflate(z, Z_FINISH) != Z_STREAM_END)
        return body_refuse(request, 400, "bad_encoding", "the compressed body ends too early");
    return true;
}
