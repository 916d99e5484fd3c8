/* curl.c: one request to a server, by libcurl. It is opened at run time, as it brings two dozen libraries along that no other
 * verb needs. Built without its header, nothing can be asked. */
#include "remote.h"

#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifdef WEIR_CURL
#include <dlfcn.h>
#include <pthread.h>

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#define CALLS(X)                                                                                                       \
    X(global_init)                                                                                                     \
    X(easy_init)                                                                                                       \
    X(easy_setopt)                                                                                                     \
    X(easy_perform) X(easy_getinfo) X(easy_reset) X(easy_cleanup) X(easy_strerror) X(slist_append) X(slist_free_all)

static struct {
#define MEMBER(name) __typeof__(curl_##name) *name;
    CALLS(MEMBER)
} lib;
static const char *lacks; /* NULL: it is there */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Debian's builds differ in who does TLS; either will do. */
static void curl_open_library(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    lacks = library ? NULL : "libcurl is not here (apt install libcurl4)";
#define FIND(name)                                                                                                     \
    *(void **)&lib.name = library ? dlsym(library, "curl_" #name) : NULL;                                              \
    lacks = lib.name || lacks ? lacks : "libcurl lacks curl_" #name;
    CALLS(FIND)
    if (!lacks && lib.global_init(CURL_GLOBAL_DEFAULT) != 0)
        lacks = "libcurl does not start";
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

typedef struct reading {
    CURL *curl;
    const remote_request *request;
    remote_answer *answer;
    size_t room;
} reading;

static size_t keep_body(reading *it, const char *data, size_t bytes)
{
    remote_answer *answer = it->answer;
    enum { MOST = 64 << 20 };
    if (answer->bytes + bytes > MOST)
        return 0;
    if (it->room < answer->bytes + bytes + 1) {
        it->room = 2 * (answer->bytes + bytes) + 1024;
        answer->body = text_grow(answer->body, it->room, 1);
    }
    memcpy(answer->body + answer->bytes, data, bytes);
    answer->bytes += bytes;
    answer->body[answer->bytes] = '\0';
    return bytes;
}

static size_t curl_take(char *data, size_t each, size_t count, void *user)
{
    reading *it = user;
    size_t bytes = each * count;
    long status = 0;
    lib.easy_getinfo(it->curl, CURLINFO_RESPONSE_CODE, &status);
    if (!it->request->part || status != 200)
        return keep_body(it, data, bytes);
    return it->request->part(data, bytes, it->request->user) ? bytes : 0;
}

/* What is on this machine is not asked for by a proxy. */
static bool curl_is_here(const char *url)
{
    const char *host = strstr(url, "://") + 3;
    return strncmp(host, "127.", 4) == 0 || strncasecmp(host, "localhost", 9) == 0 || strncmp(host, "[::1]", 5) == 0;
}

static struct curl_slist *fields_of(const remote_server *server, const remote_request *request)
{
    struct curl_slist *fields = lib.slist_append(NULL, "Expect:");
    if (request->body)
        fields = lib.slist_append(fields, "Content-Type: application/json");
    if (server->key) {
        char *key = text_print("Authorization: Bearer %s", server->key);
        fields = lib.slist_append(fields, key);
        free(key);
    }
    return fields;
}

static void curl_prepare(CURL *curl, const remote_server *server, const remote_request *request, const char *url,
                         reading *it, char *problem)
{
    enum { CONNECT_MS = 5000 };
    lib.easy_setopt(curl, CURLOPT_URL, url);
    lib.easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    lib.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    lib.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    lib.easy_setopt(curl, CURLOPT_TIMEOUT, (long)request->seconds);
    lib.easy_setopt(curl, CURLOPT_ERRORBUFFER, problem);
    lib.easy_setopt(curl, CURLOPT_WRITEFUNCTION, curl_take);
    lib.easy_setopt(curl, CURLOPT_WRITEDATA, it);
    if (curl_is_here(url))
        lib.easy_setopt(curl, CURLOPT_NOPROXY, "*");
    if (server->certificate)
        lib.easy_setopt(curl, CURLOPT_CAINFO, server->certificate);
    if (strcmp(request->method, "POST") == 0) {
        lib.easy_setopt(curl, CURLOPT_POSTFIELDS, request->body ? request->body : "");
        lib.easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)(request->body ? strlen(request->body) : 0));
    }
}

void remote_ask(const remote_server *server, const remote_request *request, void **keep, remote_answer *out)
{
    char problem[CURL_ERROR_SIZE] = "";
    *out = (remote_answer){0};
    pthread_once(&once, curl_open_library);
    if (lacks) {
        out->cannot = true;
        snprintf(out->failure, sizeof out->failure, "%s", lacks);
        return;
    }
    CURL *curl = keep && *keep ? *keep : lib.easy_init();
    if (!curl)
        text_out_of_memory();
    reading it = {.curl = curl, .request = request, .answer = out};
    struct curl_slist *fields = fields_of(server, request);
    char *url = text_print("%s%s", server->url, request->path);
    lib.easy_reset(curl);
    curl_prepare(curl, server, request, url, &it, problem);
    lib.easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
    CURLcode code = lib.easy_perform(curl);
    lib.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &out->status);
    out->answered = code == CURLE_OK;
    if (code != CURLE_OK)
        snprintf(out->failure, sizeof out->failure, "%s", problem[0] ? problem : lib.easy_strerror(code));
    lib.slist_free_all(fields);
    free(url);
    if (keep)
        *keep = curl;
    else
        lib.easy_cleanup(curl);
}

void remote_end(void *keep)
{
    if (keep)
        lib.easy_cleanup(keep);
}

#else

void remote_ask(const remote_server *server, const remote_request *request, void **keep, remote_answer *out)
{
    (void)server;
    (void)request;
    (void)keep;
    *out = (remote_answer){.cannot = true};
    snprintf(out->failure, sizeof out->failure,
             "this weir was built without libcurl (apt install libcurl4-gnutls-dev)");
}

void remote_end(void *keep)
{
    (void)keep;
}

#endif
