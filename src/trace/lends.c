#include "trace/lifetimes.h"

#include "base/texts.h"
#include "base/maps.h"

#include <stdlib.h>
#include <string.h>

/* A range of addresses whose last block had this client and this stream. The treap's key is the beginning of the
 * range. */
typedef struct owned {
    wi_treap_node node;
    uint64_t end;
    const char *client;
    uint64_t stream;
    bool left;          /* the last block was away when freed, so that the next block has other memory */
    struct owned *next; /* of the unused ones */
} owned;

typedef struct table {
    lend *list;
    size_t count, room;
    uint32_t *places; /* open addressing, at most half full */
    size_t place_room;
} table;

typedef struct book {
    wi_treap treap;
    owned *unused;
    table clients, streams;
    uint32_t at;
} book;

static weir_status lends_no_memory(void)
{
    return weir_fail(WEIR_ERR_SYSTEM, "no memory to follow the addresses of the trace");
}

/* Sums ------------------------------------------------------------------------------------------------------------- */

static size_t lends_place_of(const table *t, const lend *like)
{
    const uint64_t key[4] = {(uintptr_t)like->from, (uintptr_t)like->to, like->from_stream, like->to_stream};
    size_t at = (size_t)wi_hash(key, sizeof key) & (t->place_room - 1);
    for (; t->places[at]; at = (at + 1) & (t->place_room - 1)) {
        const lend *one = &t->list[t->places[at] - 1];
        if (one->from == like->from && one->to == like->to && one->from_stream == like->from_stream &&
            one->to_stream == like->to_stream)
            break;
    }
    return at;
}

static bool lends_make_room(table *t)
{
    if (2 * t->count < t->place_room)
        return true;
    size_t room = t->place_room ? 2 * t->place_room : 64;
    uint32_t *places = calloc(room, sizeof *places);
    lend *list = realloc(t->list, room * sizeof *list);
    if (list)
        t->list = list;
    if (!places || !list) {
        free(places);
        return false;
    }
    free(t->places);
    t->places = places;
    t->place_room = room;
    for (size_t i = 0; i < t->count; i++)
        t->places[lends_place_of(t, &t->list[i])] = (uint32_t)i + 1;
    return true;
}

/* A block that has several pieces of theirs counts once. */
static bool count_lend(table *t, lend one, uint32_t at, uint64_t bytes)
{
    if (!lends_make_room(t))
        return false;
    uint32_t *place = &t->places[lends_place_of(t, &one)];
    if (!*place) {
        one.first = at;
        one.last = LIFETIMES_NEVER;
        t->list[t->count] = one;
        *place = (uint32_t)++t->count;
    }
    lend *to = &t->list[*place - 1];
    to->bytes += bytes;
    to->count += to->last != at;
    to->last = at;
    return true;
}

static bool count_bytes(book *b, const owned *old, const owned *now, uint64_t bytes)
{
    if (old->left)
        return true;
    if (old->client != now->client)
        return count_lend(&b->clients, (lend){.from = old->client, .to = now->client}, b->at, bytes);
    if (old->stream != now->stream)
        return count_lend(&b->streams, (lend){.from_stream = old->stream, .to_stream = now->stream}, b->at, bytes);
    return true;
}

/* Addresses -------------------------------------------------------------------------------------------------------- */

static owned *new_owned(book *b)
{
    owned *one = b->unused;
    if (one)
        b->unused = one->next;
    else
        one = malloc(sizeof *one);
    return one;
}

static void lends_drop(book *b, owned *one)
{
    wi_treap_remove(&b->treap, &one->node);
    one->next = b->unused;
    b->unused = one;
}

static bool lends_add(book *b, uint64_t begin, uint64_t end, const owned *like)
{
    owned *one = new_owned(b);
    if (!one)
        return false;
    *one = (owned){.end = end, .client = like->client, .stream = like->stream, .left = like->left};
    wi_treap_add(&b->treap, &one->node, begin);
    return true;
}

/* Takes the addresses from whoever has had them, and counts what was another's. */
static bool lends_take(book *b, uint64_t begin, const owned *now)
{
    owned *old = (owned *)wi_treap_floor(&b->treap, begin);
    if (!old || old->end <= begin)
        old = (owned *)wi_treap_above(&b->treap, begin);
    while (old && old->node.key < now->end) {
        owned was = *old;
        uint64_t from = was.node.key > begin ? was.node.key : begin, to = was.end < now->end ? was.end : now->end;
        lends_drop(b, old);
        if (!count_bytes(b, &was, now, to - from) ||
            (was.node.key < begin && !lends_add(b, was.node.key, begin, &was)) ||
            (was.end > now->end && !lends_add(b, now->end, was.end, &was)))
            return false;
        old = (owned *)wi_treap_above(&b->treap, to - 1);
    }
    return lends_add(b, begin, now->end, now);
}

static void free_nodes(wi_treap_node *node)
{
    while (node) { /* the left side is turned over to the right, so that nothing is called deeply */
        wi_treap_node *left = node->left, *right = node->right;
        if (left) {
            node->left = left->right;
            left->right = node;
            node = left;
        } else {
            free(node);
            node = right;
        }
    }
}

/* All -------------------------------------------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b)
{
    const lend *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static uint64_t lends_finish(table *t, lend **list, size_t *count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < t->count; i++)
        sum += t->list[i].bytes;
    if (t->count > 0)
        qsort(t->list, t->count, sizeof *t->list, by_bytes);
    free(t->places);
    *list = t->list;
    *count = t->count;
    return sum;
}

weir_status lends_make(const lifetimes *all, lends *out)
{
    book b = {.treap = {.seed = 0x9e3779b97f4a7c15}};
    bool good = true;
    *out = (lends){.clients = NULL};
    for (size_t i = 0; good && i < all->count; i++) {
        const lifetime *one = &all->list[i];
        const weir_event *event = &all->of->events[one->begin];
        if (one->charged == 0 || one->freed == one->begin || one->charged > UINT64_MAX - one->pointer)
            continue;
        owned now = {.end = one->pointer + one->charged,
                     .client = all->kinds[one->kind].client,
                     .stream = event->other.id,
                     .left = one->away > 0};
        b.at = one->begin;
        good = lends_take(&b, one->pointer, &now);
    }
    free_nodes(b.treap.root);
    while (b.unused) {
        owned *next = b.unused->next;
        free(b.unused);
        b.unused = next;
    }
    out->client_bytes = lends_finish(&b.clients, &out->clients, &out->client_count);
    out->stream_bytes = lends_finish(&b.streams, &out->streams, &out->stream_count);
    if (!good)
        lends_clear(out);
    return good ? WEIR_OK : lends_no_memory();
}

void lends_clear(lends *all)
{
    free(all->clients);
    free(all->streams);
    *all = (lends){.clients = NULL};
}
