/* own-adaptor.c: an adaptor of the program's own, which lets allocations fail on purpose and counts the bytes of each
 * tag.
 *
 * "fail(every=3, cache)" refuses every third allocation, to see what an engine does then. It stands around the budget,
 * so that its answer is the request's answer; within the budget weir would take the refusal as a shortage and try to
 * make room. */
#include <weir/adaptor.h>
#include <weir/weir.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TAGS = 16 };

typedef struct failing {
    pthread_mutex_t lock;
    unsigned every, requests;
    struct {
        const char *tag; /* the same text has the same address */
        uint64_t live, peak;
    } tags[MOST_TAGS];
} failing;

static weir_status failing_create(void *user, const weir_adaptor_place *place, void **state)
{
    unsigned every;
    char rest;
    if (sscanf(place->arguments, "every=%u%c", &every, &rest) != 1 || every == 0)
        return weir_fail(WEIR_ERR_INVALID, "fail takes every=N, not \"%s\"", place->arguments);
    failing *f = user;
    f->every = every;
    *state = f;
    return WEIR_OK;
}

static weir_status failing_before(void *state, const weir_adaptor_block *block)
{
    failing *f = state;
    pthread_mutex_lock(&f->lock);
    unsigned number = ++f->requests;
    pthread_mutex_unlock(&f->lock);
    if (number % f->every != 0)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "%s: request %u of %llu bytes is made to fail", block->client, number,
                     (unsigned long long)block->bytes);
}

/* With the lock held; what there is no room for is counted in the last place. */
static size_t place_of(failing *f, const char *tag)
{
    size_t i = 0;
    while (i < MOST_TAGS - 1 && f->tags[i].tag && f->tags[i].tag != tag)
        i++;
    f->tags[i].tag = tag;
    return i;
}

static void count(failing *f, const weir_adaptor_block *block, uint64_t more, uint64_t less)
{
    pthread_mutex_lock(&f->lock);
    size_t i = place_of(f, block->tag);
    f->tags[i].live += more - less;
    f->tags[i].peak = f->tags[i].live > f->tags[i].peak ? f->tags[i].live : f->tags[i].peak;
    pthread_mutex_unlock(&f->lock);
}

static void failing_allocated(void *state, const weir_adaptor_block *block)
{
    count(state, block, block->bytes, 0);
}

static void failing_resized(void *state, const weir_adaptor_block *block)
{
    count(state, block, block->bytes, block->old_bytes);
}

static void failing_freed(void *state, const weir_adaptor_block *block)
{
    count(state, block, 0, block->bytes);
}

static int give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weir_detail());
    return 1;
}

static weir_status register_it(failing *f)
{
    weir_adaptor_table table = WEIR_INIT(weir_adaptor_table);
    table.name = "fail";
    table.user = f;
    table.create = failing_create;
    table.before_allocate = failing_before;
    table.allocated = failing_allocated;
    table.resized = failing_resized;
    table.freed = failing_freed;
    return weir_adaptor_register(&table);
}

int main(void)
{
    static failing f = {.lock = PTHREAD_MUTEX_INITIALIZER};
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = 64u << 20;
    options.resource = "fail(every=3, budget(cache))";
    weir_client_options who = WEIR_INIT(weir_client_options);
    who.name = "mine";
    weir_runtime *runtime;
    weir_client *client;
    if (register_it(&f) != WEIR_OK || weir_runtime_create("host", &options, &runtime) != WEIR_OK ||
        weir_client_create(runtime, &who, &client) != WEIR_OK)
        return give_up("start");

    static const char *const tags[] = {"query", "key", "query", "value", "query"};
    weir_block blocks[5];
    for (int i = 0; i < 5; i++) {
        weir_request request = WEIR_INIT(weir_request);
        request.bytes = 1u << 20;
        request.tag = tags[i];
        if (weir_alloc_with(client, &request, &blocks[i]) != WEIR_OK)
            printf("refused: %s\n", weir_detail());
    }
    for (int i = 0; i < 5; i++)
        if (weir_free_block(client, blocks[i], WEIR_STREAM_HOST) != WEIR_OK)
            return give_up("free");
    if (weir_client_destroy(client) != WEIR_OK || weir_runtime_destroy(runtime) != WEIR_OK)
        return give_up("end");
    uint64_t left = 0;
    for (size_t i = 0; i < MOST_TAGS && f.tags[i].tag; i++) {
        printf("%s: at most %llu bytes\n", f.tags[i].tag, (unsigned long long)f.tags[i].peak);
        left += f.tags[i].live;
    }
    return left == 0 ? 0 : 1;
}
