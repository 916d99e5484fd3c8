/* Elastic blocks (weir/elastic.h): making, ending and looking. Their pages are blocks of a stack of their own, which counts
 * in the runtime's ledger; elastic_pages.c commits and releases them. */
#include "runtime/elastic/elastic.h"
#include "base/texts.h"
#include "base/system.h"
#include "base/values.h"

/* The stack -------------------------------------------------------------------------------------------------------- */

static weir_status elastic_make_stack(weir_runtime *runtime, wi_resource **out)
{
    wi_resource *stack = NULL;
    weir_status status = wi_elastic_create(runtime->driver, runtime->device, &stack);
    if (status == WEIR_OK)
        status = wi_host_trim_create(runtime, stack, &stack);
    if (status == WEIR_OK)
        status = wi_budget_create(stack, &stack);
    if (status != WEIR_OK) {
        if (stack)
            wi_resource_destroy(stack);
        return status;
    }
    wi_resource_attach(stack, &runtime->ledger);
    wi_members_add(&runtime->elastic_member, stack, &runtime->pending);
    *out = stack;
    return WEIR_OK;
}

weir_status wi_elastic_stack(weir_runtime *runtime, wi_resource **out)
{
    weir_status status = WEIR_OK;
    *out = atomic_load(&runtime->elastic);
    if (*out)
        return WEIR_OK;
    if (!runtime->driver->cover)
        return weir_fail(WEIR_ERR_UNSUPPORTED, "%s: its driver has no elastic blocks", runtime->name);
    pthread_mutex_lock(&runtime->kinds_lock);
    *out = atomic_load(&runtime->elastic);
    if (!*out) {
        status = elastic_make_stack(runtime, out);
        if (status == WEIR_OK)
            atomic_store(&runtime->elastic, *out);
    }
    pthread_mutex_unlock(&runtime->kinds_lock);
    return status;
}

static void elastic_tell_left(const weir_runtime *runtime, const wi_elastic_left *left)
{
    char text[24];
    for (size_t i = 0; i < left->count; i++)
        if (left->of[i].pages > 0)
            weir_log(WEIR_LOG_WARNING,
                     "not given back: %s had %llu page%s of %s on %s tagged \"%s\", which the driver did not take back",
                     left->of[i].client, (unsigned long long)left->of[i].pages, left->of[i].pages == 1 ? "" : "s",
                     weir_size_format(left->of[i].bytes, text, sizeof text), runtime->name, left->of[i].tag);
        else
            weir_log(WEIR_LOG_WARNING,
                     "not given back: addresses of %s on %s tagged \"%s\", which the driver did not take back",
                     left->of[i].client, runtime->name, left->of[i].tag);
}

weir_status wi_elastic_check_end(weir_runtime *runtime)
{
    wi_resource *stack = atomic_load(&runtime->elastic);
    wi_elastic_left left;
    wi_saved_detail saved;
    char text[24];
    wi_detail_save(&saved);
    bool all = !stack || wi_elastic_give_back(stack->base, &left);
    if (!all)
        elastic_tell_left(runtime, &left);
    wi_detail_restore(&saved);
    if (all || left.lost)
        return WEIR_OK;
    return weir_fail(
        WEIR_ERR_DRIVER,
        "the runtime %s is not destroyed: its driver has not taken back %s of elastic blocks, of %s tagged "
        "\"%s\" first; destroy it when the device answers again",
        runtime->name, weir_size_format(left.bytes, text, sizeof text), left.of[0].client, left.of[0].tag);
}

void wi_elastic_end(weir_runtime *runtime)
{
    wi_resource *stack = atomic_load(&runtime->elastic);
    if (!stack)
        return;
    wi_members_remove(&runtime->elastic_member);
    wi_resource_destroy(stack);
}

weir_status wi_elastic_refuse_page(const weir_runtime *runtime, const wi_resource *stack, const void *pointer,
                                   const char *call)
{
    if (stack != atomic_load(&runtime->elastic))
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "%s: %p lies in an elastic block; its pages are given back by weir_elastic_release", call,
                     pointer);
}

/* Of a client ------------------------------------------------------------------------------------------------------ */

static void elastic_list(weir_elastic *e)
{
    weir_client *client = e->client;
    pthread_mutex_lock(&client->runtime->clients_lock);
    e->next = client->elastics;
    client->elastics = e;
    pthread_mutex_unlock(&client->runtime->clients_lock);
}

static void elastic_unlist(const weir_elastic *e)
{
    weir_client *client = e->client;
    pthread_mutex_lock(&client->runtime->clients_lock);
    weir_elastic **link = &client->elastics;
    while (*link != e)
        link = &(*link)->next;
    *link = e->next;
    pthread_mutex_unlock(&client->runtime->clients_lock);
}

weir_status wi_elastics_check_none(const weir_client *client)
{
    weir_runtime *runtime = client->runtime;
    const char *tag = NULL;
    uint64_t live = 0, bytes = 0;
    char text[24], all[24];
    pthread_mutex_lock(&runtime->clients_lock);
    const weir_elastic *e = client->elastics;
    if (e && e->range) {
        wi_base_lock(e->range->base);
        tag = e->range->tag;
        live = e->range->live * e->range->page;
        wi_base_unlock(e->range->base);
        bytes = e->range->page * e->range->count;
    } else if (e) { /* being made */
        tag = "";
    }
    pthread_mutex_unlock(&runtime->clients_lock);
    if (!tag)
        return WEIR_OK;
    return weir_fail(
        WEIR_ERR_BUSY, "%s has the elastic block \"%s\" of %s, with %s committed; destroy it before closing the client",
        client->account.name, tag, weir_size_format(bytes, all, sizeof all), weir_size_format(live, text, sizeof text));
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static weir_status elastic_check_options(weir_elastic_options *o)
{
    if ((unsigned)o->memory_class >= WEIR_CLASS_COUNT)
        return weir_fail(WEIR_ERR_INVALID, "weir_elastic_create: %d is no class; see weir_class", (int)o->memory_class);
    if (o->bytes == 0 || o->bytes > UINT64_MAX / 4)
        return weir_fail(WEIR_ERR_INVALID, "weir_elastic_create: %zu bytes is no size a device could have", o->bytes);
    if (o->page > WI_GIB)
        return weir_fail(WEIR_ERR_INVALID, "weir_elastic_create: pages of %zu bytes; they have 1 GiB at most", o->page);
    o->memory_class = o->memory_class == WEIR_CLASS_OTHER ? WEIR_CLASS_KV : o->memory_class;
    o->tag = o->tag && *o->tag ? o->tag : "elastic";
    return WEIR_OK;
}

static uint64_t elastic_page_bytes(const wi_base *base, uint64_t wanted)
{
    uint64_t page = base->granule;
    while (page < wanted)
        page *= 2;
    return page;
}

/* Lets go what stands between a promise and the device's bytes: what is cached, or freed and not passed yet. False: there
 * is nothing to wait for, or no time. */
static bool elastic_clear_the_way(weir_runtime *runtime, wi_resource *stack, unsigned tries, uint64_t deadline)
{
    enum { LOOKS_AT_ONCE = 2 };
    uint64_t ignored;
    (void)wi_tcaches_empty(runtime);
    (void)wi_runtime_reap(runtime);
    (void)wi_release_kept(stack);
    (void)wi_members_pass(&runtime->ledger, &ignored);
    if (tries < LOOKS_AT_ONCE)
        return true;
    return wi_now() < deadline &&
           (wi_members_wait(&runtime->ledger, deadline) || wi_members_await(&runtime->ledger, deadline));
}

/* Keeps as much room from being held by others as was promised; cached memory makes way for it. */
static weir_status elastic_set_aside(weir_runtime *runtime, wi_resource *stack, wi_elastic_range *like)
{
    wi_ledger *ledger = &runtime->ledger;
    uint64_t bytes = like->promise.total, deadline = wi_now() + wi_option_wait();
    wi_request request = {bytes, bytes, like->memory_class, WEIR_STREAM_HOST, like->tag, bytes, 0};
    wi_shortage shortage = {.cause = WEIR_CAUSE_FRAGMENTATION, .asker = like->account, .claimed = bytes};
    unsigned tries = 0;
    do {
        wi_host_trim_make_room(runtime, bytes);
        if (wi_ledger_set_aside(ledger, bytes))
            return WEIR_OK;
    } while (elastic_clear_the_way(runtime, stack, tries++, deadline));
    stack->base->table->look(stack->base, like->memory_class, bytes, WI_UNIT, &shortage);
    return wi_ledger_refuse(ledger, like->account, &request, &shortage);
}

/* Claims what is promised, or nothing. */
static weir_status elastic_promise(weir_runtime *runtime, wi_resource *stack, wi_elastic_range *like)
{
    uint64_t bytes = like->page * like->count;
    if (!like->promised)
        return WEIR_OK;
    wi_request request = {bytes, bytes, like->memory_class, WEIR_STREAM_HOST, like->tag, 0, 0};
    weir_status status = wi_budget_reserve(stack, like->account, &request, true, true);
    if (status != WEIR_OK)
        return status;
    like->promise = (wi_reservation){.account = like->account, .total = bytes, .left = bytes};
    status = elastic_set_aside(runtime, stack, like);
    if (status != WEIR_OK)
        wi_ledger_cancel(&runtime->ledger, like->account, bytes);
    return status;
}

/* The driver had no addresses, and its words are the detail: they stay, unless it is for want of mappings. */
static weir_status elastic_refuse_range(weir_runtime *runtime, const wi_elastic_range *like)
{
    uint64_t bytes = like->page * like->count, promised = like->promise.total;
    wi_request request = {bytes, bytes, like->memory_class, WEIR_STREAM_HOST, like->tag, promised, 0};
    wi_shortage shortage = {.cause = WEIR_CAUSE_ADDRESS_RANGE, .mappings = wi_mappings_are_short()};
    wi_saved_detail saved;
    wi_detail_save(&saved);
    weir_status status = wi_ledger_refuse(&runtime->ledger, like->account, &request, &shortage);
    if (!shortage.mappings)
        wi_detail_restore(&saved);
    return status;
}

/* The device may have no memory for what stands behind unused pages, and the process no mappings, while the runtime has
 * some cached. */
static weir_status elastic_make_range(weir_runtime *runtime, wi_resource *stack, const wi_elastic_range *like,
                                      wi_elastic_range **out)
{
    bool reserved;
    weir_status status = wi_elastic_range_create(stack->base, like, out, &reserved);
    while (status == WEIR_ERR_OUT_OF_MEMORY && wi_host_trim_give(runtime, stack->base->granule))
        status = wi_elastic_range_create(stack->base, like, out, &reserved);
    return status == WEIR_ERR_OUT_OF_MEMORY && !reserved ? elastic_refuse_range(runtime, like) : status;
}

static weir_status elastic_make(weir_client *client, const weir_elastic_options *o, wi_elastic_range **out)
{
    weir_runtime *runtime = client->runtime;
    wi_resource *stack;
    weir_status status = wi_elastic_stack(runtime, &stack);
    if (status != WEIR_OK)
        return status;
    uint64_t page = elastic_page_bytes(stack->base, o->page);
    wi_elastic_range like = {.account = &client->account,
                             .client = client->account.lasting,
                             .tag = wi_intern(o->tag, sizeof((weir_block_details *)0)->tag - 1),
                             .memory_class = o->memory_class,
                             .promised = o->promised,
                             .page = page,
                             .count = (o->bytes + page - 1) / page};
    status = elastic_promise(runtime, stack, &like);
    if (status != WEIR_OK)
        return status;
    status = elastic_make_range(runtime, stack, &like, out);
    if (status != WEIR_OK && like.promised) {
        wi_ledger_cancel(&runtime->ledger, &client->account, like.promise.total);
        wi_ledger_give_aside(&runtime->ledger, like.promise.total);
    }
    return status;
}

weir_status weir_elastic_create(weir_client *client, const weir_elastic_options *options, weir_elastic **out)
{
    weir_elastic_options o;
    weir_status status = wi_client_check(client, "weir_elastic_create");
    if (status != WEIR_OK)
        return status;
    if (!out)
        return weir_fail(WEIR_ERR_INVALID, "weir_elastic_create: no place for the result");
    status = WI_COPY_IN(weir_elastic_options, &o, options, "weir_elastic_create");
    if (status != WEIR_OK)
        return status;
    *out = NULL;
    status = elastic_check_options(&o);
    if (status != WEIR_OK)
        return status;
    weir_elastic *e = calloc(1, sizeof *e);
    if (!e)
        return weir_fail(WEIR_ERR_SYSTEM, "weir_elastic_create: no host memory for an elastic block");
    wi_elastic_range *range = NULL;
    e->client = client;
    elastic_list(e); /* a close of the client looks for it after it has set the state, and this at the state after it */
    status = wi_client_check(client, "weir_elastic_create");
    if (status == WEIR_OK)
        status = elastic_make(client, &o, &range);
    if (status != WEIR_OK) {
        elastic_unlist(e);
        free(e);
        return status;
    }
    pthread_mutex_lock(&client->runtime->clients_lock);
    e->range = range;
    pthread_mutex_unlock(&client->runtime->clients_lock);
    *out = e;
    return WEIR_OK;
}

static void elastic_set_ending(weir_elastic *e, bool ending)
{
    pthread_mutex_lock(&e->client->runtime->clients_lock);
    e->ending = ending;
    pthread_mutex_unlock(&e->client->runtime->clients_lock);
}

weir_status weir_elastic_destroy(weir_elastic *elastic, weir_stream stream)
{
    WI_ENTER();
    if (!elastic)
        return WEIR_OK;
    wi_elastic_range *range = elastic->range;
    WI_VISIT(elastic->client->runtime);
    elastic_set_ending(elastic, true); /* the release waits for a suspend that has begun before */
    weir_status status = weir_elastic_release(elastic, 0, range->page * range->count, stream);
    if (status != WEIR_OK) {
        elastic_set_ending(elastic, false);
        return status;
    }
    elastic_unlist(elastic);
    free(elastic);
    wi_elastic_range_end(range);
    return WEIR_OK;
}

/* Looking ---------------------------------------------------------------------------------------------------------- */

weir_status weir_elastic_info(weir_elastic *elastic, weir_elastic_stats *out)
{
    WI_ENTER();
    if (!elastic || !out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_elastic_info: NULL, or member struct_size is not set");
    const wi_elastic_range *range = elastic->range;
    (void)wi_runtime_reap(elastic->client->runtime);
    wi_base_lock(range->base);
    weir_elastic_stats s = {.struct_size = sizeof s,
                            .base = wi_elastic_at(range, 0),
                            .bytes = range->page * range->count,
                            .page = range->page,
                            .committed = range->live * range->page,
                            .pending = range->pending * range->page,
                            .peak = range->peak * range->page,
                            .promised = atomic_load(&range->promise.left),
                            .commits = range->commits,
                            .releases = range->releases,
                            .refused = atomic_load(&elastic->refused)};
    wi_base_unlock(range->base);
    wi_copy_out(out, out->struct_size, &s, sizeof s);
    return WEIR_OK;
}

static weir_status elastic_written(const weir_elastic *elastic, const char *where, unsigned value)
{
    const wi_elastic_range *range = elastic->range;
    size_t at = (size_t)(where - wi_elastic_at(range, 0));
    return weir_fail(
        WEIR_ERR_CORRUPT,
        "somebody has written to an unused page of an elastic block of %s: at byte %zu of a page of \"%s\" it "
        "holds %#x; commit a page before it is written to",
        elastic->client->runtime->name, at % (size_t)range->page, range->tag, value);
}

/* What a check has seen of the piece of memory that unused pages share, a bit for each granule of it. */
typedef struct checked {
    uint64_t *seen, granules;
    unsigned char *copy; /* of a page */
} checked;

/* Whether the page shows what no earlier one has shown; it is noted as seen. */
static bool checked_is_new(const checked *c, const wi_elastic_range *range, uint64_t index)
{
    enum { BITS = 64 };
    uint64_t first = (uintptr_t)wi_elastic_at(range, index) / range->base->granule,
             count = range->page / range->base->granule;
    bool new = false;
    for (uint64_t i = 0; i < wi_min(count, c->granules); i++) {
        uint64_t part = (first + i) % c->granules, bit = UINT64_C(1) << part % BITS;
        new |= !(c->seen[part / BITS] & bit);
        c->seen[part / BITS] |= bit;
    }
    return new;
}

/* The next run of unused pages from *index on; 0: there is none. */
static uint64_t elastic_next_unused(const wi_elastic_range *range, uint64_t *index)
{
    uint64_t count = 0;
    wi_base_lock(range->base);
    while (*index < range->count && wi_elastic_look(range, *index, NULL) != WI_PAGE_UNUSED)
        ++*index;
    while (*index + count < range->count && wi_elastic_look(range, *index + count, NULL) == WI_PAGE_UNUSED)
        count++;
    wi_base_unlock(range->base);
    return count;
}

static weir_status elastic_check_page(const weir_elastic *elastic, uint64_t index, unsigned char *copy)
{
    const wi_elastic_range *range = elastic->range;
    const weir_runtime *runtime = elastic->client->runtime;
    char *page = wi_elastic_at(range, index);
    weir_status status = runtime->driver->copy(runtime->device, copy, page, range->page, NULL);
    if (status != WEIR_OK || (copy[0] == 0 && memcmp(copy, copy + 1, range->page - 1) == 0))
        return status;
    uint64_t at = 0;
    while (copy[at] == 0)
        at++;
    return elastic_written(elastic, page + at, copy[at]);
}

static weir_status elastic_check_run(const weir_elastic *elastic, uint64_t first, uint64_t count, const checked *c)
{
    const wi_elastic_range *range = elastic->range;
    const weir_runtime *runtime = elastic->client->runtime;
    weir_status status = WEIR_OK;
    if (!runtime->driver->written) {
        for (uint64_t i = 0; i < count && status == WEIR_OK; i++)
            if (checked_is_new(c, range, first + i))
                status = elastic_check_page(elastic, first + i, c->copy);
        return status;
    }
    unsigned char value;
    const char *where = runtime->driver->written(runtime->device, wi_elastic_at(range, first), count * range->page);
    if (where)
        status = runtime->driver->copy(runtime->device, &value, where, 1, NULL);
    return where && status == WEIR_OK ? elastic_written(elastic, where, value) : status;
}

weir_status weir_elastic_check(weir_elastic *elastic)
{
    WI_ENTER();
    if (!elastic)
        return weir_fail(WEIR_ERR_INVALID, "weir_elastic_check: NULL");
    const wi_elastic_range *range = elastic->range;
    uint64_t granules = wi_max(2 * WI_MIB / range->base->granule, 1);
    checked c = {calloc((granules + 63) / 64, sizeof *c.seen), granules, malloc(range->page)};
    weir_status status =
        c.seen && c.copy ? WEIR_OK : weir_fail(WEIR_ERR_SYSTEM, "weir_elastic_check: no host memory for a page");
    for (uint64_t index = 0, count; status == WEIR_OK && (count = elastic_next_unused(range, &index)) > 0;
         index += count)
        status = elastic_check_run(elastic, index, count, &c);
    free(c.seen);
    free(c.copy);
    return status;
}
