/* ask.c: the address of a server, requests without a body, and the exit status for an answer or a failure. */
#include "remote.h"

#include "cli/cli.h"
#include "cli/text.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the address ------------------------------------------------------------------------------------------------- */

#define DEFAULT_URL "http://127.0.0.1:8000"

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

static int remote_ask_ask(const remote_server *server, const char *method, const char *path, unsigned seconds,
                          json_t **out, char **why)
{
    remote_answer answer;
    remote_ask(server, &(remote_request){.method = method, .path = path, .seconds = seconds}, NULL, &answer);
    *out = answer.answered && answer.status == 200 ? json_loadb(answer.body ? answer.body : "", answer.bytes, 0, NULL)
                                                   : NULL;
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        if (answer.answered && answer.status == 200)
            *why = text_print("what answers at %s is no server of weir's", server->url);
        else
            *why = remote_refusal(server, &answer);
    }
    free(answer.body);
    return *out ? -1 : CLI_FAILED;
}

static int ask_say(int status, char *why)
{
    if (status >= 0)
        cli_fail("%s", why);
    free(why);
    return status;
}

int remote_get(const remote_server *server, const char *path, json_t **out)
{
    enum { SECONDS = 30 };
    char *why = NULL;
    int status = remote_ask_ask(server, "GET", path, SECONDS, out, &why);
    return ask_say(status, why);
}

int remote_post(const remote_server *server, const char *path, json_t **out)
{
    char *why = NULL;
    int status = remote_ask_ask(server, "POST", path, 0, out, &why);
    return ask_say(status, why);
}

int remote_look(const remote_server *server, json_t **out)
{
    enum { SECONDS = 5 };
    char *why = NULL;
    *out = NULL;
    if (server->off)
        return -1;
    int status = remote_ask_ask(server, "GET", "/weir/state", SECONDS, out, &why);
    if (status >= 0 && !server->chosen) {
        free(why);
        return -1;
    }
    return ask_say(status, why);
}

json_t *remote_state(const remote_server *server)
{
    enum { SECONDS = 5 };
    char *why = NULL;
    json_t *state = NULL;
    if (!server->off)
        (void)remote_ask_ask(server, "GET", "/weir/state", SECONDS, &state, &why);
    free(why);
    return state;
}
