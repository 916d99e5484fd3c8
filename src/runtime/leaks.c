#include "runtime/runtime.h"
#include "memory/space/stream_lists.h"

#include <weir/stats.h>

enum { LINES = 20 };

/* Live blocks of one client and tag. */
typedef struct leak {
    const char *device, *client, *tag; /* they stay as long as the process */
    uint64_t blocks, bytes;
} leak;

typedef struct leaks {
    leak *list;
    size_t count, room;
    bool failed; /* host memory ran out */
} leaks;

static void leaks_add(leaks *all, const char *device, const weir_span *span)
{
    if (all->count == all->room) {
        size_t room = all->room * 2 + 64;
        leak *list = realloc(all->list, room * sizeof *list);
        if (!list) {
            all->failed = true;
            return;
        }
        all->list = list;
        all->room = room;
    }
    uintptr_t from = (uintptr_t)span->address, at = (uintptr_t)span->block.pointer; /* a block may have several spans */
    all->list[all->count++] =
        (leak){device, span->client_name, span->tag, at >= from && at - from < span->bytes, span->bytes};
}

static void leaks_gather(leaks *all, weir_runtime *runtime, const weir_client *client)
{
    wi_layout layout = {0};
    wi_members_lock(&runtime->ledger);
    for (wi_member *m = runtime->ledger.first_member; m; m = m->next)
        wi_layout_add(&layout, m->base);
    wi_members_unlock(&runtime->ledger);
    for (size_t i = 0; i < layout.span_count; i++)
        if (layout.spans[i].state == WEIR_SPAN_LIVE && (!client || layout.spans[i].client == client))
            leaks_add(all, runtime->ledger.device, &layout.spans[i]);
    all->failed |= layout.failed;
    wi_layout_clear(&layout);
}

static int leaks_by_name(const void *a, const void *b)
{
    const leak *x = a, *y = b;
    int devices = strcmp(x->device, y->device), clients = strcmp(x->client, y->client);
    return devices ? devices : clients ? clients : strcmp(x->tag, y->tag);
}

static int leaks_most_bytes_first(const void *a, const void *b)
{
    const leak *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : leaks_by_name(a, b);
}

static void leaks_sum_up(leaks *all)
{
    size_t sums = 0;
    qsort(all->list, all->count, sizeof *all->list, leaks_by_name);
    for (size_t i = 0; i < all->count; i++) {
        if (sums > 0 && leaks_by_name(&all->list[sums - 1], &all->list[i]) == 0) {
            all->list[sums - 1].blocks += all->list[i].blocks;
            all->list[sums - 1].bytes += all->list[i].bytes;
        } else {
            all->list[sums++] = all->list[i];
        }
    }
    all->count = sums;
    qsort(all->list, all->count, sizeof *all->list, leaks_most_bytes_first);
}

static void leaks_say(leaks *all, const char *when)
{
    char text[24];
    uint64_t rest = 0;
    if (all->count > 0)
        leaks_sum_up(all);
    for (size_t i = LINES; i < all->count; i++)
        rest += all->list[i].bytes;
    for (size_t i = 0; i < all->count && i < LINES; i++) {
        const leak *one = &all->list[i];
        weir_log(WEIR_LOG_WARNING, "%s: %s has %llu live block%s of %s on %s tagged \"%s\"", when, one->client,
                 (unsigned long long)one->blocks, one->blocks == 1 ? "" : "s",
                 weir_size_format(one->bytes, text, sizeof text), one->device, one->tag);
    }
    if (rest > 0)
        weir_log(WEIR_LOG_WARNING, "%s: and %s in live blocks of %zu other tags", when,
                 weir_size_format(rest, text, sizeof text), all->count - LINES);
    if (all->failed)
        weir_log(WEIR_LOG_WARNING, "%s: there is no host memory to tell of all live blocks", when);
    free(all->list);
}

void wi_leaks_tell(weir_runtime *runtime, const weir_client *client)
{
    leaks all = {0};
    wi_saved_detail saved;
    if (!wi_log_wants(WEIR_LOG_WARNING))
        return;
    wi_detail_save(&saved);
    leaks_gather(&all, runtime, client);
    leaks_say(&all, "not given back");
    wi_detail_restore(&saved);
}

/* Exit ------------------------------------------------------------------------------------------------------------- */

static void leaks_gather_all(weir_runtime *runtime, void *user)
{
    leaks_gather(user, runtime, NULL);
}

/* What is live is copied first, as the log's function may make a runtime. */
static void leaks_at_exit(void)
{
    leaks all = {0};
    if (atomic_load(&wi_forked) || !wi_log_wants(WEIR_LOG_WARNING))
        return;
    wi_runtimes_each(leaks_gather_all, &all);
    leaks_say(&all, "at the end of the process");
}

static void leaks_register(void)
{
    (void)!atexit(leaks_at_exit);
}

void wi_leaks_watch_exit(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, leaks_register);
}
