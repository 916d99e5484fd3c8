/* What is not given back is told in the log, by client and tag: where a client or a runtime cannot end, and at the end of the
 * process. */
#include "core.h"

#include <sys/wait.h>

enum { BUDGET = 64 << 20, LINES = 64, LINE = 256 };

static char said[LINES][LINE];
static int lines;

static void hear(weir_log_level level, const char *text, void *user)
{
    (void)user;
    if (level <= WEIR_LOG_WARNING && lines < LINES)
        snprintf(said[lines++], LINE, "%s", text);
}

static bool was_said(const char *one, const char *other, const char *third)
{
    for (int i = 0; i < lines; i++)
        if (strstr(said[i], one) && strstr(said[i], other) && strstr(said[i], third))
            return true;
    return false;
}

static void *take(weir_client *client, size_t bytes, const char *tag)
{
    weir_request request = WEIR_INIT(weir_request);
    weir_block block;
    request.bytes = bytes;
    request.tag = tag;
    ok(weir_alloc_with(client, &request, &block));
    return block.pointer;
}

typedef struct fixture {
    weir_runtime *runtime;
    weir_client *llama, *bert, *empty;
    void *blocks[4];
} fixture;

static fixture start(void)
{
    fixture f = {.runtime = make_runtime(BUDGET)};
    f.llama = open_client(f.runtime, "llama", 0, 0);
    f.bert = open_client(f.runtime, "bert", 0, 0);
    f.empty = open_client(f.runtime, "empty", 0, 0);
    f.blocks[0] = take(f.llama, 3 * MIB, "KV cache");
    f.blocks[1] = take(f.llama, 5 * MIB, "KV cache");
    f.blocks[2] = take(f.llama, 1 * MIB, "weights");
    f.blocks[3] = take(f.bert, 2 * MIB, "weights");
    lines = 0;
    return f;
}

static void end(fixture *f)
{
    for (int i = 0; i < 4; i++)
        ok(weir_free(i < 3 ? f->llama : f->bert, f->blocks[i], WEIR_STREAM_HOST));
    ok(weir_client_destroy(f->llama));
    ok(weir_client_destroy(f->bert));
    ok(weir_client_destroy(f->empty));
    ok(weir_runtime_destroy(f->runtime));
}

static void a_client_that_cannot_close(void **state)
{
    (void)state;
    fixture f = start();
    ok(weir_log_set(hear, NULL, WEIR_LOG_WARNING));
    fails(WEIR_ERR_BUSY, weir_client_destroy(f.llama));
    assert_int_equal(lines, 2);
    assert_non_null(
        strstr(said[0], "llama has 2 live blocks of 8 MiB on host tagged \"KV cache\"")); /* most bytes first */
    assert_non_null(strstr(said[1], "llama has 1 live block of 1 MiB on host tagged \"weights\""));
    lines = 0;
    ok(weir_client_destroy(f.empty));
    assert_int_equal(lines, 0);
    f.empty = open_client(f.runtime, "empty", 0, 0);
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    end(&f);
}

static void a_runtime_that_cannot_end(void **state)
{
    (void)state;
    fixture f = start();
    ok(weir_log_set(hear, NULL, WEIR_LOG_WARNING));
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(f.runtime));
    assert_int_equal(lines, 3);
    assert_true(was_said("llama", "8 MiB", "\"KV cache\""));
    assert_true(was_said("llama", "1 MiB", "\"weights\""));
    assert_true(was_said("bert", "2 MiB", "\"weights\""));
    ok(weir_log_set(hear, NULL, WEIR_LOG_ERROR));
    lines = 0;
    fails(WEIR_ERR_BUSY, weir_runtime_destroy(f.runtime));
    assert_int_equal(lines, 0); /* they are warnings */
    ok(weir_log_set(NULL, NULL, WEIR_LOG_OFF));
    end(&f);
}

/* A program of its own: this one, with words. */
static char *program;

static void run(const char *what, const char *level)
{
    int ends[2], status;
    size_t used = 0;
    static char text[LINES * LINE];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        setenv("WEIR_LOG", level, 1);
        execl(program, program, what, NULL);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    close(ends[0]);
    text[used] = '\0';
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    lines = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (strstr(line, "at the end of the process"))
            snprintf(said[lines++], LINE, "%s", line);
}

static void the_end_of_a_process(void **state)
{
    (void)state;
    run("leaks", "warning");
    assert_int_equal(lines, 4);
    assert_true(was_said("llama has 2 live blocks of 8 MiB", "host", "\"KV cache\""));
    assert_true(was_said("llama has 1 live block of 1 MiB", "host", "\"weights\""));
    assert_true(was_said("bert has 1 live block of 2 MiB", "host", "\"weights\""));
    assert_true(was_said("shared has 1 live block of 4 KiB", "host", "\"\"")); /* the process's own runtime */
    run("leaks", "error");
    assert_int_equal(lines, 0);
    run("clean", "warning");
    assert_int_equal(lines, 0);
}

/* Only what is in many tags is summed up. */
static void many_tags(void **state)
{
    (void)state;
    run("many", "warning");
    assert_int_equal(lines, 21);
    assert_true(was_said("and", "80 KiB", "20 other tags"));
}

static int leave(const char *what)
{
    if (strcmp(what, "many") == 0) {
        weir_client *client = open_client(make_runtime(BUDGET), "llama", 0, 0);
        for (int i = 0; i < 40; i++) {
            char tag[16];
            snprintf(tag, sizeof tag, "tag %d", i);
            (void)take(client, i < 20 ? 8192 : 4096, tag);
        }
        return 0;
    }
    fixture f = start();
    if (strcmp(what, "clean") == 0) {
        end(&f);
        return 0;
    }
    weir_runtime *runtime;
    ok(weir_runtime_get("host", NULL, &runtime));
    (void)allocate(open_client(runtime, "shared", 0, 0), 4096, WEIR_STREAM_HOST, WEIR_CLASS_OTHER);
    return 0;
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_cannot_close),
        cmocka_unit_test(a_runtime_that_cannot_end),
        cmocka_unit_test(the_end_of_a_process),
        cmocka_unit_test(many_tags),
    };
    if (count > 1)
        return leave(words[1]);
    program = words[0];
    return cmocka_run_group_tests_name("leaks", tests, NULL, NULL);
}
