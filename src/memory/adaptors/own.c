/* An adaptor of a program's own: calls its functions, on the thread of the request, with no lock of weir's held. It
 * hears of a free before the block is retired, as that happens under locks. */
#include "memory/adaptors/adaptors.h"
#include "base/system.h"

#include <stdio.h>

enum { OWN_WORDS = 256 };

typedef struct own_adaptor {
    wi_resource resource;
    const weir_adaptor_table *own;
    void *state;
    wi_resource_table table;                      /* its name is the adaptor's */
    char arguments[OWN_WORDS + 2 * WI_ARGUMENTS]; /* of a stack, whose text is shorter than OWN_WORDS */
} own_adaptor;

/* How many functions of adaptors this thread is inside. */
static _Thread_local uint32_t inside;
/* Why an adaptor refused last: OWN_WORDS bytes; NULL: none has, or there was no host memory. */
static _Thread_local void *words;

static own_adaptor *own_adaptor_of(wi_resource *resource)
{
    return (own_adaptor *)resource;
}

/* Telling ---------------------------------------------------------------------------------------------------------- */

static weir_adaptor_block block_wanted(const wi_placement *p)
{
    return (weir_adaptor_block){.struct_size = sizeof(weir_adaptor_block),
                                .client = p->account->lasting,
                                .tag = p->tag,
                                .memory_class = p->memory_class,
                                .stream = p->stream,
                                .bytes = p->bytes};
}

static weir_adaptor_block block_there(const wi_block *block)
{
    return (weir_adaptor_block){.struct_size = sizeof(weir_adaptor_block),
                                .client = block->account->lasting,
                                .tag = block->tag,
                                .memory_class = block->memory_class,
                                .stream = block->stream,
                                .address = block->pointer,
                                .bytes = block->bytes};
}

static void adaptors_own_tell(const own_adaptor *a, void (*what)(void *state, const weir_adaptor_block *block),
                              const weir_adaptor_block *block)
{
    if (!what)
        return;
    inside++;
    what(a->state, block);
    inside--;
}

static void tell_failed(const own_adaptor *a, const weir_adaptor_block *block, weir_status status)
{
    wi_saved_detail why;
    if (!a->own->failed)
        return;
    wi_detail_save(&why);
    inside++;
    a->own->failed(a->state, block, status);
    inside--;
    wi_detail_restore(&why);
}

static weir_status adaptors_own_ask(const own_adaptor *a, const weir_adaptor_block *block)
{
    if (inside > 0)
        return weir_fail(
            WEIR_ERR_BUSY,
            "%s: a function of an adaptor asks for memory that the adaptor %s sees; take it from a runtime "
            "without an adaptor of the program's own",
            block->client, a->own->name);
    if (!a->own->before_allocate)
        return WEIR_OK;
    inside++;
    weir_status status = a->own->before_allocate(a->state, block);
    inside--;
    return status;
}

static const char *keep_words(const own_adaptor *a)
{
    if (!wi_own(&words, OWN_WORDS))
        return a->own->name;
    snprintf(words, OWN_WORDS, "%s: %s", a->own->name, weir_detail());
    return words;
}

/* Blocks ----------------------------------------------------------------------------------------------------------- */

/* A refusal is a shortage to the budget above, which climbs the ladder, and reports it if nothing helps. */
static weir_status own_adaptor_refuse(own_adaptor *a, const wi_placement *p, weir_status status, wi_shortage *shortage)
{
    wi_base *base = a->resource.base;
    if (status != WEIR_ERR_OUT_OF_MEMORY &&
        status != WEIR_ERR_NO_ROOM) /* WEIR_ERR_NO_ROOM has a meaning of its own between resources */
        return status;
    const char *why = keep_words(a);
    base->table->look(base, p->memory_class, p->charged, p->alignment, shortage);
    shortage->cause = WEIR_CAUSE_ADAPTOR;
    shortage->words = why;
    return WEIR_ERR_OUT_OF_MEMORY;
}

static weir_status own_adaptor_allocate(wi_resource *resource, wi_placement *p, wi_block **out, wi_shortage *shortage)
{
    own_adaptor *a = own_adaptor_of(resource);
    weir_adaptor_block block = block_wanted(p);
    weir_status status = adaptors_own_ask(a, &block);
    if (status != WEIR_OK)
        return own_adaptor_refuse(a, p, status, shortage);
    status = wi_allocate(resource->inner, p, out, shortage);
    if (status != WEIR_OK)
        tell_failed(a, &block, status);
    return status;
}

static void own_adaptor_discard(wi_resource *resource, wi_block *block, const wi_placement *p)
{
    weir_adaptor_block wanted = block_wanted(p);
    wi_discard(resource->inner, block, p);
    tell_failed(own_adaptor_of(resource), &wanted, WEIR_ERR_DRIVER);
}

static void own_adaptor_publish(wi_resource *resource, wi_block *block)
{
    const own_adaptor *a = own_adaptor_of(resource);
    weir_adaptor_block there = block_there(block);
    adaptors_own_tell(a, a->own->allocated, &there); /* before another thread can free the block */
    wi_publish(resource->inner, block);
}

static void own_adaptor_freeing(wi_resource *resource, const wi_block *block, weir_stream stream)
{
    const own_adaptor *a = own_adaptor_of(resource);
    weir_adaptor_block there = block_there(block);
    there.stream = stream;
    adaptors_own_tell(a, a->own->freed, &there);
}

/* Asks the adaptor about a resize. A refused growth answers WEIR_ERR_NO_ROOM: the caller may allocate another
 * block. */
static weir_status ask_resize(const own_adaptor *a, const weir_adaptor_block *now)
{
    weir_status status = now->bytes > now->old_bytes ? adaptors_own_ask(a, now) : WEIR_OK;
    return status == WEIR_ERR_OUT_OF_MEMORY ? WEIR_ERR_NO_ROOM : status;
}

static weir_status tell_resize(const own_adaptor *a, const weir_adaptor_block *now, weir_status status)
{
    if (status == WEIR_OK)
        adaptors_own_tell(a, a->own->resized, now);
    else if (now->bytes > now->old_bytes)
        tell_failed(a, now, status);
    return status;
}

static weir_adaptor_block block_resized(const wi_block *block, uint64_t bytes)
{
    weir_adaptor_block now = block_there(block);
    now.old_bytes = block->bytes;
    now.bytes = bytes;
    return now;
}

/* Also sets a slightly larger size, within the charge of the block. */
static weir_status own_adaptor_shrink(wi_resource *resource, wi_block *block, uint64_t bytes, void *native,
                                      wi_block **tail)
{
    const own_adaptor *a = own_adaptor_of(resource);
    weir_adaptor_block now = block_resized(block, bytes);
    weir_status status = ask_resize(a, &now);
    return status == WEIR_OK ? tell_resize(a, &now, wi_shrink(resource->inner, block, bytes, native, tail)) : status;
}

static weir_status own_adaptor_grow(wi_resource *resource, wi_block *block, uint64_t bytes, bool may_wait,
                                    wi_shortage *shortage)
{
    const own_adaptor *a = own_adaptor_of(resource);
    weir_adaptor_block now = block_resized(block, bytes);
    weir_status status = ask_resize(a, &now);
    return status == WEIR_OK ? tell_resize(a, &now, wi_grow(resource->inner, block, bytes, may_wait, shortage))
                             : status;
}

/* The same, where an adaptor around this one does it. */
static weir_status own_adaptor_resizing(wi_resource *resource, const wi_block *block, uint64_t bytes)
{
    weir_adaptor_block now = block_resized(block, bytes);
    return ask_resize(own_adaptor_of(resource), &now);
}

static void own_adaptor_resized(wi_resource *resource, const wi_block *block, uint64_t from, uint64_t to,
                                weir_status status)
{
    weir_adaptor_block now = block_resized(block, to);
    now.old_bytes = from;
    (void)tell_resize(own_adaptor_of(resource), &now, status);
}

/* Making ----------------------------------------------------------------------------------------------------------- */

static void own_adaptor_describe(const wi_resource *resource, char *text, size_t capacity)
{
    const own_adaptor *a = (const own_adaptor *)resource;
    snprintf(text, capacity, "%s%s", a->arguments, a->arguments[0] ? ", " : "");
}

static void own_adaptor_destroy(wi_resource *resource)
{
    own_adaptor *a = own_adaptor_of(resource);
    if (a->own->destroy)
        a->own->destroy(a->state);
    free(a);
}

static const wi_resource_table own_adaptor_table = {
    .allocate = own_adaptor_allocate,
    .discard = own_adaptor_discard,
    .publish = own_adaptor_publish,
    .freeing = own_adaptor_freeing,
    .shrink = own_adaptor_shrink,
    .grow = own_adaptor_grow,
    .resizing = own_adaptor_resizing,
    .resized = own_adaptor_resized,
    .describe = own_adaptor_describe,
    .destroy = own_adaptor_destroy,
};

/* What is between the commas of the text, with a blank before each but the first. */
static void join_arguments(const wi_arguments *arguments, char *text, size_t capacity)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < arguments->count; i++) {
        length += (size_t)snprintf(text + length, capacity - length, "%s%s", i ? ", " : "", arguments->text[i]);
        wi_assert(length < capacity);
    }
}

static weir_status own_adaptor_make_state(own_adaptor *a)
{
    const weir_adaptor_place place = {
        .struct_size = sizeof place, .driver = a->resource.driver->name, .arguments = a->arguments};
    a->state = a->own->user;
    if (a->own->create)
        return a->own->create(a->own->user, &place, &a->state);
    return a->arguments[0]
               ? weir_fail(WEIR_ERR_INVALID, "the resource %s takes no argument \"%.40s\"", a->own->name, a->arguments)
               : WEIR_OK;
}

weir_status wi_own_adaptor_create(const weir_adaptor_table *own, wi_resource *inner, const wi_arguments *arguments,
                                  wi_resource **out)
{
    own_adaptor *a = calloc(1, sizeof *a);
    if (!a)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for an adaptor");
    a->own = own;
    a->table = own_adaptor_table;
    a->table.name = own->name;
    wi_resource_init(&a->resource, &a->table, inner);
    join_arguments(arguments, a->arguments, sizeof a->arguments);
    weir_status status = own_adaptor_make_state(a);
    if (status != WEIR_OK) {
        free(a);
        return status;
    }
    *out = &a->resource;
    return WEIR_OK;
}
