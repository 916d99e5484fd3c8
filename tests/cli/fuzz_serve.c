/* What weir serve reads of strangers and of its configuration, steered by the compiler: paths, JSON, tensors, schemas, times. The
 * server's own part is left out: an answer must be one whole JSON object. */
#include "cli/serve/completion.h"
#include "cli/serve/config.h"
#include "serve/parts.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int answers; /* of the request that is tried */

const char *ws_path(const ws_request *request)
{
    (void)request;
    return "/v2/models/m/infer";
}

const char *ws_body(const ws_request *request, size_t *bytes)
{
    (void)request;
    *bytes = 0;
    return NULL;
}

const char *ws_segment(const ws_request *request, size_t index)
{
    (void)request, (void)index;
    return "";
}

void v2_lacking(ws_request *request, void *user)
{
    (void)request, (void)user;
    abort();
}

void ws_add_header(ws_request *request, const char *name, const char *value)
{
    (void)request;
    for (const char *c = value; *c; c++)
        assert((unsigned char)*c >= ' ');
    assert(*name);
}

void ws_answer_own(ws_request *request, unsigned status, const char *type, void *body, size_t bytes)
{
    json_t *object = json_loadb(body, bytes, 0, NULL);
    (void)type;
    assert(json_is_object(object) && status >= 400 && status < 500);
    json_decref(object);
    (void)request;
    free(body);
    answers++;
}

void ws_refuse(ws_request *request, unsigned status, const char *code, const char *sentence, unsigned retry_after)
{
    (void)request, (void)status, (void)code, (void)sentence, (void)retry_after;
    assert(!"an answer could not be made");
}

static void try_path(const char *text)
{
    static const ws_route routes[] = {{.method = "GET", .path = "/v2/models/{}/versions/{}/ready"},
                                      {.method = "POST", .path = "/weir/models/{}/{}"},
                                      {.method = "GET", .path = "/"},
                                      {0}};
    const ws_route *route;
    const char *segments[WS_SEGMENTS] = {0};
    char allowed[64], *path = strdup(text);
    if (ws_route_find(routes, "GET", path, &route, segments, allowed) == WS_MATCH)
        for (size_t i = 0; i < WS_SEGMENTS && segments[i]; i++)
            assert(strlen(segments[i]) <= strlen(text));
    free(path);
}

/* The JSON, and behind a byte 1 what follows it. */
static void try_tensors(const char *text, size_t size)
{
    ws_request request = {0};
    answers = 0;
    const char *end = memchr(text, 1, size);
    size_t head = end ? (size_t)(end - text) : size;
    json_t *object = text_to_json(&request, text, head);
    wire_inputs inputs = {0};
    if (object && wire_read(&request, NULL, object, end ? end + 1 : text + head, end ? size - head - 1 : 0, &inputs)) {
        assert(answers == 0);
        for (size_t i = 0; i < inputs.count; i++)
            for (uint64_t k = 0; k < inputs.list[i].bytes; k += 4096)
                (void)*(volatile const char *)((const char *)inputs.list[i].data + k);
    } else {
        assert(answers == 1);
    }
    if (object)
        wire_clear(&inputs);
    json_decref(object);
}

static void try_schema(const char *text, size_t size)
{
    json_t *schema = json_loadb(text, size, 0, NULL);
    char *why = NULL, *grammar = json_is_object(schema) ? schema_grammar(schema, &why) : NULL;
    assert(!json_is_object(schema) || (grammar != NULL) != (why != NULL));
    free(grammar);
    free(why);
    json_decref(schema);
}

static void try_time(const char *text)
{
    uint64_t nanoseconds;
    json_t *value = json_string(text);
    (void)config_duration(value, &nanoseconds);
    json_decref(value);
}

/* As the verb has them, of each kind one. */
static const arg options[] = {{"host", "ADDRESS", "", ARG_NAME, .at = 0},
                              {"port", "N", "", ARG_COUNT, .at = 0, .least = 0, .most = 65535},
                              {"no-cpu", NULL, "", ARG_FLAG, .at = 0},
                              {"certificate", "FILE", "", ARG_FILE, .at = 0},
                              {.name = NULL}};

static void read_model(const json_t *model)
{
    config_settings settings = {0};
    config_variants variants = {.count = 0};
    weir_pool_step steps[WEIR_POOL_STEP_COUNT];
    assert(config_text(model, "path"));
    assert(config_steps(model, steps) <= WEIR_POOL_STEP_COUNT);
    (void)config_time(model, "keep_alive", 0);
    (void)config_size(model, "maximum");
    config_settings_read(json_object_get(model, "tuning"), &settings);
    config_variants_read(model, &variants);
    config_settings_clear(&settings);
    config_variants_clear(&variants);
}

static void try_config(const char *text, size_t size)
{
    char path[32];
    server_config *file;
    const char *name;
    json_t *model;
    int fd = memfd_create("config", 0);
    assert(fd >= 0 && write(fd, text, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert(config_read(path, options, &file) == WEIR_OK);
    if (file->problem_count == 0)
        json_object_foreach(file->models, name, model)
        {
            read_model(model);
        }
    config_free(file);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t bytes = size - 1;
    char *text = malloc(bytes + 1); /* so that a read past its end is seen */
    memcpy(text, data + 1, bytes);
    text[bytes] = '\0';
    switch (data[0] % 5) {
    case 0:
        try_path(text);
        break;
    case 1:
        try_tensors(text, bytes);
        break;
    case 2:
        try_schema(text, bytes);
        break;
    case 3:
        try_time(text);
        break;
    default:
        try_config(text, bytes);
    }
    free(text);
    return 0;
}
