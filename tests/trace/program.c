/* A small program that is recorded by WEIR_TRACE: two streams share a block. `ordered` says so to weir; `unordered`
 * frees on one stream what the other may still read; `killed` ends without a word; `late` makes runtimes from the log's
 * function while the exit closes traces. */
#include "info.h"

#include <weir/weir.h>
#include <weir/trace.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void must(weir_status status)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "%s\n", weir_detail());
    exit(3);
}

static void round_trip(weir_runtime *rt, weir_client *client, weir_stream a, weir_stream b, bool ordered)
{
    void *p;
    must(weir_alloc(client, 4096, a, WEIR_CLASS_ACTIVATIONS, &p));
    must(weir_fill(rt, p, 1, 4096, a));
    must(note_record(rt, 1, a));
    must(note_wait(rt, 1, b));
    must(note_use(rt, p, 4096, b, WEIR_ACCESS_READ));
    if (ordered) {
        must(note_record(rt, 2, b));
        must(note_wait(rt, 2, a));
    }
    must(weir_free(client, p, a));
}

/* Called at exit, for files that cannot be finished: first for that of the option, then for that of the runtime made
 * here. */
static void make_one_more(weir_log_level level, const char *text, void *user)
{
    static weir_runtime *late;
    static int calls;
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    weir_client_options late_user = WEIR_INIT(weir_client_options);
    weir_client *client;
    void *p;
    (void)level, (void)user;
    options.budget = 1 << 20;
    options.resource = "log(csv=/dev/full, mapped)";
    late_user.name = "late";
    if (!strstr(text, "/dev/full") || calls++ >= 2)
        return;
    if (calls == 1) {
        must(weir_runtime_create("host", &options, &late));
        must(weir_client_create(late, &late_user, &client));
        must(weir_alloc(client, 4096, WEIR_STREAM_HOST, WEIR_CLASS_KV, &p));
        must(weir_free(client, p, WEIR_STREAM_HOST));
        must(weir_client_destroy(client));
    } else {
        puts(weir_name_of(WEIR_NAMES_STATUS, weir_runtime_destroy(late)));
    }
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "ordered", *device = argc > 2 ? argv[2] : "host";
    weir_client_options options = WEIR_INIT(weir_client_options);
    weir_runtime *rt, *second;
    weir_client *client;
    weir_stream a, b;
    options.name = "user, \"program\"";
    must(weir_runtime_get(device, NULL, &rt));
    must(weir_client_create(rt, &options, &client));
    must(weir_stream_acquire(rt, &a));
    must(weir_stream_acquire(rt, &b));
    for (int i = 0; i < (strcmp(how, "killed") == 0 ? 2000 : 3); i++)
        round_trip(rt, client, a, b, strcmp(how, "unordered") != 0);
    if (strcmp(how, "killed") == 0)
        _exit(0);
    if (strcmp(how, "twice") == 0) {
        weir_runtime_options more = WEIR_INIT(weir_runtime_options);
        more.budget = 1 << 20;
        must(weir_runtime_create(device, &more, &second));
        must(weir_runtime_destroy(second));
    }
    must(weir_stream_release(a));
    must(weir_stream_release(b));
    must(weir_client_destroy(client));
    puts(weir_detail());
    if (strcmp(how, "late") == 0)
        must(weir_log_set(make_one_more, NULL, WEIR_LOG_WARNING));
    return 0;
}
