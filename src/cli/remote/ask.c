/* ask.c: the address of a server, requests without a body, and the exit status for an answer or a failure. */
#include "remote.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the address ------------------------------------------------------------------------------------------------- */

#define DEFAULT_URL "http://127.0.0.1:8000"

enum { LOOK_SECONDS = 5 };

/* "host:port" is taken as well, as people write it. */
static char *ask_address_of(const char *text)
{
    bool whole = strncasecmp(text, "http://", 7) == 0 || strncasecmp(text, "https://", 8) == 0;
    char *url = text_print("%s%s", whole ? "" : "http://", text);
    for (size_t end = strlen(url); end > 0 && url[end - 1] == '/'; end--)
        url[end - 1] = '\0';
    return url;
}

int remote_defaults(remote_server *server, const char *verb)
{
    const char *set = getenv("WEIR_SERVER"), *key = getenv("WEIR_KEY");
    static char *address; /* as long as the command */
    const char *given = server->url ? server->url : set;
    server->chosen = given && given[0];
    server->off = !server->url && set && !set[0];
    free(address);
    address = ask_address_of(server->chosen ? given : DEFAULT_URL);
    if (strpbrk(address, " \t\r\n") || !strstr(address, "://"))
        return cli_usage(verb, "'%.80s' is no address of a server", given ? given : "");
    server->url = address;
    server->key = server->key ? server->key : key && key[0] ? key : NULL;
    return -1;
}

/* ---- what it said ------------------------------------------------------------------------------------------------ */

/* {"error": TEXT}, or {"error": {"message": TEXT}}. */
static char *sentence_of(const remote_answer *answer)
{
    json_t *object = answer->body ? json_loadb(answer->body, answer->bytes, 0, NULL) : NULL;
    const json_t *error = json_object_get(object, "error"), *inner = json_object_get(error, "message");
    const char *text = json_string_value(inner ? inner : error);
    char *sentence = text ? text_copy(text) : NULL;
    json_decref(object);
    return sentence;
}

char *remote_refusal(const remote_server *server, const remote_answer *answer)
{
    if (answer->cannot)
        return text_print("a server cannot be asked: %s", answer->failure);
    if (!answer->answered && answer->status == 0)
        return text_print(
            "no server answers at %s: %s. Start one with 'weir serve', or say where it is with --server or "
            "WEIR_SERVER",
            server->url, answer->failure);
    if (!answer->answered)
        return text_print("the server at %s broke off: %s", server->url, answer->failure);
    if (answer->status == 401)
        return text_print("the server at %s wants %s: --key, or WEIR_KEY in the environment", server->url,
                          server->key ? "another key" : "a key");
    char *said = sentence_of(answer);
    if (!said)
        said = text_print("what answers at %s (with %ld) is no server of weir's", server->url, answer->status);
    return said;
}

/* NULL: *out has the answer. Else why there is none, for the caller to free. */
static char *remote_ask_ask(const remote_server *server, const char *method, const char *path, unsigned seconds,
                            json_t **out)
{
    remote_answer answer;
    remote_ask(server, &(remote_request){.method = method, .path = path, .seconds = seconds}, NULL, &answer);
    bool good = answer.answered && answer.status == 200;
    *out = good ? json_loadb(answer.body ? answer.body : "", answer.bytes, 0, NULL) : NULL;
    char *why = json_is_object(*out) ? NULL
                : good               ? text_print("what answers at %s is no server of weir's", server->url)
                                     : remote_refusal(server, &answer);
    if (why) {
        json_decref(*out);
        *out = NULL;
    }
    free(answer.body);
    return why;
}

/* Prints the reason, which is taken. -1 where there is none. */
static int ask_say(char *why)
{
    int status = why ? cli_fail("%s", why) : -1;
    free(why);
    return status;
}

int remote_get(const remote_server *server, const char *path, json_t **out)
{
    enum { SECONDS = 30 };
    return ask_say(remote_ask_ask(server, "GET", path, SECONDS, out));
}

int remote_post(const remote_server *server, const char *path, json_t **out)
{
    return ask_say(remote_ask_ask(server, "POST", path, 0, out));
}

int remote_look(const remote_server *server, json_t **out)
{
    *out = NULL;
    if (server->off)
        return -1;
    char *why = remote_ask_ask(server, "GET", "/weir/state", LOOK_SECONDS, out);
    if (server->chosen)
        return ask_say(why);
    free(why);
    return -1;
}

json_t *remote_state(const remote_server *server)
{
    json_t *state = NULL;
    if (!server->off)
        free(remote_ask_ask(server, "GET", "/weir/state", LOOK_SECONDS, &state));
    return state;
}
