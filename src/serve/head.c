/* head.c: parses the head of an HTTP request, its header fields: the length and coding of the body, the origin and the
 * key, the route; and refuses at once. The bytes themselves are parsed by libmicrohttpd (server.c). */
#include "parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* What is counted and copied of the header fields. */
typedef struct fields {
    ws_text *copy;
    unsigned hosts, lengths, codings;
    const char *host, *length, *coding, *encoding, *expect, *origin, *authorization;
    bool no_memory;
} fields;

static bool head_append(ws_text *text, const char *data, size_t bytes)
{
    if (text->room - text->bytes < bytes) {
        size_t room = text->room * 2 + bytes + 512;
        char *grown = realloc(text->data, room);
        if (!grown)
            return false;
        text->data = grown;
        text->room = room;
    }
    memcpy(text->data + text->bytes, data, bytes);
    text->bytes += bytes;
    return true;
}

static enum MHD_Result take_field(void *user, enum MHD_ValueKind kind, const char *name, const char *value)
{
    fields *it = user;
    (void)kind;
    value = value ? value : "";
    if (strcasecmp(name, "Authorization") == 0) {
        it->authorization = value;
        return MHD_YES;
    }
    if (strcasecmp(name, "Host") == 0) {
        it->hosts++;
        it->host = value;
    } else if (strcasecmp(name, "Content-Length") == 0) {
        it->lengths++;
        it->length = value;
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        it->codings++;
        it->coding = value;
    } else if (strcasecmp(name, "Content-Encoding") == 0) {
        it->encoding = value;
    } else if (strcasecmp(name, "Expect") == 0) {
        it->expect = value;
    } else if (strcasecmp(name, "Origin") == 0) {
        it->origin = value;
    }
    it->no_memory = !head_append(it->copy, name, strlen(name) + 1) ||
                    !head_append(it->copy, value, strlen(value) + 1) || it->no_memory;
    return MHD_YES;
}

/* ---- who may ask ------------------------------------------------------------------------------------------------- */

/* Takes the same time wherever the texts differ. */
static bool is_equal(const char *given, const char *key)
{
    size_t a = strlen(given), b = strlen(key);
    unsigned char differ = a != b;
    for (size_t i = 0; i < a; i++)
        differ |= (unsigned char)(given[i] ^ key[b ? i % b : 0]);
    return differ == 0;
}

static bool head_has_key(const ws_options *options, const char *authorization)
{
    bool found = options->keys == NULL;
    if (found || !authorization || strncasecmp(authorization, "Bearer ", 7) != 0)
        return found;
    for (size_t i = 0; options->keys[i]; i++)
        found |= is_equal(authorization + 7, options->keys[i]);
    return found;
}

/* "localhost", an address, either with a port. A page of another site that has its name resolved to this machine sends that
 * name here. */
static bool is_plain_host(const char *host, const char *own)
{
    size_t bytes = host[0] == '[' ? strcspn(host, "]") : strcspn(host, ":");
    bool address = host[0] == '[' || (bytes > 0 && strspn(host, "0123456789.") >= bytes);
    bool local =
        bytes >= 9 && strncasecmp(host + bytes - 9, "localhost", 9) == 0 && (bytes == 9 || host[bytes - 10] == '.');
    return address || local || (own && strlen(own) == bytes && strncasecmp(host, own, bytes) == 0);
}

static bool from_elsewhere(const char *origin, const char *own)
{
    const char *host = origin ? strstr(origin, "://") : NULL;
    return origin && (!host || !is_plain_host(host + 3, own));
}

/* ---- the checks, in order ---------------------------------------------------------------------------------------- */

static bool head_refuse(ws_request *request, unsigned status, const char *code, const char *sentence)
{
    ws_refuse(request, status, code, sentence, 0);
    return false;
}

/* Refuses ambiguous heads: where two servers read a head differently, a part of a request is taken for another
 * request. */
static bool check_framing(ws_request *request, const fields *it, const char *version)
{
    request->broken = true;
    if (it->hosts > 1 || (it->hosts == 0 && strcmp(version, "HTTP/1.0") != 0))
        return head_refuse(request, 400, "bad_host", "a request has one Host field");
    if (it->lengths > 1 || (it->lengths && it->codings))
        return head_refuse(request, 400, "bad_length", "a body has one Content-Length, or one Transfer-Encoding");
    if (it->codings > 1 || (it->codings && strcasecmp(it->coding, "chunked") != 0))
        return head_refuse(request, 501, "bad_transfer_encoding",
                           "the only Transfer-Encoding that is understood is chunked");
    char *end = NULL;
    request->chunked = it->codings == 1;
    request->announced = it->lengths ? strtoull(it->length, &end, 10) : 0;
    if (end && (*end != '\0' || it->length[0] < '0' || it->length[0] > '9'))
        return head_refuse(request, 400, "bad_length", "Content-Length is not a number");
    request->expects = it->expect != NULL;
    request->broken = false;
    return true;
}

static bool check_origin(ws_request *request, const fields *it)
{
    const ws_options *options = &request->server->options;
    if (options->keys) /* pages of other sites know no key */
        return true;
    if (it->host && !is_plain_host(it->host, options->host))
        return head_refuse(request, 403, "bad_host",
                           "the Host field is neither an address nor localhost; with a key any is taken");
    if (from_elsewhere(it->origin, options->host))
        return head_refuse(request, 403, "bad_origin", "requests from pages of other sites need a key");
    return true;
}

static bool find_route(ws_request *request, const char *method)
{
    char allowed[64];
    ws_match match = ws_route_find(request->server->options.routes, method, request->segment_text, &request->route,
                                   request->segments, allowed);
    bool asks = strcmp(method, "OPTIONS") == 0;
    if (match == WS_MATCH)
        return true;
    if (asks && strcmp(request->path, "*") == 0) {
        ws_answer(request, 204, NULL, NULL, 0);
        return false;
    }
    if (match == WS_BAD_PATH)
        return head_refuse(request, 400, "bad_path", "the path is not one");
    if (match == WS_NO_PATH)
        return head_refuse(request, 404, "not_found", "nothing is served at this path");
    ws_add_header(request, "Allow", allowed);
    if (!asks)
        return head_refuse(request, 405, "bad_method", "this path does not take this method");
    ws_answer(request, 204, NULL, NULL, 0);
    return false;
}

static bool check_key(ws_request *request, const fields *it)
{
    bool open = request->route && request->route->open;
    if (open || head_has_key(&request->server->options, it->authorization))
        return true;
    ws_add_header(request, "WWW-Authenticate", "Bearer");
    return head_refuse(request, 401, "bad_key", "a key is needed: Authorization: Bearer KEY");
}

static bool check_body(ws_request *request)
{
    if (request->announced > request->route->most_body || (request->chunked && request->route->most_body == 0))
        return head_refuse(request, 413, "too_large", "the body is larger than this path takes");
    return true;
}

static bool check_encoding(ws_request *request, const fields *it)
{
    if (!it->encoding || strcasecmp(it->encoding, "identity") == 0)
        return true;
    if (ws_body_begin(request, it->encoding) == WEIR_OK)
        return true;
    return head_refuse(request, 415, "bad_encoding", "the only Content-Encoding that is understood is gzip or deflate");
}

static bool head_check(ws_request *request, const fields *it, const char *version)
{
    /* A client without a key does not learn which paths exist. */
    if (!check_framing(request, it, version) || !check_origin(request, it))
        return false;
    bool found = find_route(request, request->method);
    if (!found && request->server->options.keys && !head_has_key(&request->server->options, it->authorization)) {
        ws_answer_clear(&request->answer);
        request->answered = false;
    }
    return check_key(request, it) && found && check_body(request) && check_encoding(request, it);
}

weir_status ws_head_read(ws_request *request, const char *url, const char *method, const char *version)
{
    fields it = {.copy = &request->fields};
    snprintf(request->method, sizeof request->method, "%s", method);
    request->path = strdup(url);
    request->segment_text = strdup(url);
    (void)MHD_get_connection_values(request->mhd, MHD_HEADER_KIND, take_field, &it);
    if (!request->path || !request->segment_text || it.no_memory)
        return weir_fail(WEIR_ERR_SYSTEM, "no memory for the head of a request");
    if (strlen(method) >= sizeof request->method) {
        ws_refuse(request, 501, "bad_method", "there is no such method", 0);
        return WEIR_OK;
    }
    (void)head_check(request, &it, version); /* what it refuses is answered */
    return WEIR_OK;
}
