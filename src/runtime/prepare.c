/* Host memory for copies that is made before it is needed, by threads beside the work: ahead of a client's first suspend, and
 * within one, while former slabs are filled. */
#include "runtime/prepare.h"
#include "base/system.h"
#include "memory/away.h"
#include "runtime/residence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wi_makers_begin(wi_makers *makers)
{
    *makers = (wi_makers){0};
    pthread_mutex_init(&makers->lock, NULL);
    pthread_cond_init(&makers->changed, NULL);
}

void wi_makers_free(wi_makers *makers)
{
    pthread_cond_destroy(&makers->changed);
    pthread_mutex_destroy(&makers->lock);
}

/* Making ----------------------------------------------------------------------------------------------------------- */

/* With the lock. */
static void makers_forget_lengths(wi_makers *m)
{
    free(m->lengths);
    m->lengths = NULL;
    m->at = m->count = 0;
}

/* With the lock. */
static void makers_add_ready(wi_makers *m, wi_slab *slab)
{
    wi_slab **link = &m->ready;
    while (*link && (*link)->order < slab->order)
        link = &(*link)->next;
    slab->next = *link;
    *link = slab;
    m->ready_bytes += slab->bytes;
}

/* What the machine, or the process' group, has left: no more than what spares a part of it is taken ahead. */
static weir_status makers_check_system(uint64_t bytes)
{
    enum { SPARED = 32 }; /* this part of all memory */
    char free_text[24], text[24];
    uint64_t available, total;
    if (!wi_cgroup_memory("", &available, &total) || available >= bytes + total / SPARED)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_OUT_OF_MEMORY, "the host has %s left, and %s more for copies would leave it short",
                     weir_size_format(available, free_text, sizeof free_text),
                     weir_size_format(bytes, text, sizeof text));
}

/* Takes no memory of others: such a request calls no pressure callbacks. */
static weir_status makers_make(weir_client *client, uint64_t bytes, wi_slab **out)
{
    weir_status status = makers_check_system(bytes);
    *out = NULL;
    return status == WEIR_OK ? wi_slab_make(client, bytes, WEIR_ALLOC_NO_WAIT, out) : status;
}

/* With the lock, which it lets go of meanwhile: makes the next slab. */
static void makers_step(weir_client *client, wi_makers *m)
{
    unsigned place = m->making[0].bytes > 0;
    uint64_t bytes = m->lengths[m->at++], order = m->order++;
    wi_slab *slab;
    m->making[place].bytes = bytes;
    m->making[place].order = order;
    pthread_mutex_unlock(&m->lock);
    weir_status status = makers_make(client, bytes, &slab);
    pthread_mutex_lock(&m->lock);
    m->making[place].bytes = 0;
    if (slab && m->stop) {
        pthread_mutex_unlock(&m->lock);
        wi_slab_end(client, slab);
        pthread_mutex_lock(&m->lock);
    } else if (slab) {
        slab->order = order;
        makers_add_ready(m, slab);
    } else {
        m->status = status;
        snprintf(m->why, sizeof m->why, "%s", weir_detail());
        makers_forget_lengths(m);
    }
    pthread_cond_broadcast(&m->changed);
}

static void makers_work(void *user)
{
    weir_client *client = user;
    wi_makers *m = &residence_of(client)->makers;
    pthread_mutex_lock(&m->lock);
    while (m->at < m->count && !wi_background_ends())
        makers_step(client, m);
    m->working--;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* With the lock: adds to what is to be made. */
static weir_status makers_add(wi_makers *m, const uint64_t *lengths, size_t count)
{
    size_t left = m->count - m->at;
    uint64_t *all = malloc((left + count + 1) * sizeof *all);
    if (!all)
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the plan of copies");
    if (left > 0)
        memcpy(all, m->lengths + m->at, left * sizeof *all);
    memcpy(all + left, lengths, count * sizeof *all);
    makers_forget_lengths(m);
    m->lengths = all;
    m->count = left + count;
    return WEIR_OK;
}

/* With the residence and the lock: has up to `most` threads make what is to be made. */
static weir_status makers_start(weir_client *client, wi_makers *m, unsigned most)
{
    size_t left = m->count - m->at;
    m->stop = false;
    while (m->working < wi_min(most, left) && wi_background(makers_work, client))
        m->working++;
    if (m->working > 0 || left == 0)
        return WEIR_OK;
    makers_forget_lengths(m);
    return weir_fail(WEIR_ERR_SYSTEM, "there is no thread to make memory for copies");
}

/* Plans ------------------------------------------------------------------------------------------------------------ */

/* Room that cuts are tried in, in the order in which they will be. */
typedef struct plan {
    uint64_t *rooms;
    size_t count, old; /* the first `old` rooms are there, or on their way */
} plan;

/* With the makers' lock. False: no host memory. */
static bool makers_plan_begin(plan *p, const wi_copy_memory *memory, const wi_makers *m)
{
    size_t room = memory->expected_count + WI_MAKERS + (m->count - m->at);
    for (const wi_slab *s = memory->slabs; s; s = s->next)
        room += s->count;
    for (const wi_slab *s = m->ready; s; s = s->next)
        room++;
    *p = (plan){.rooms = malloc((room + 1) * sizeof *p->rooms)};
    if (!p->rooms)
        return false;
    for (const wi_slab *s = memory->slabs; s; s = s->next)
        for (size_t i = 0; i < s->count; i++)
            p->rooms[p->count++] = s->gaps[i].bytes;
    for (const wi_slab *s = m->ready; s; s = s->next)
        p->rooms[p->count++] = s->bytes;
    for (int i = 0; i < WI_MAKERS; i++)
        p->rooms[p->count++] = m->making[i].bytes;
    for (size_t i = m->at; i < m->count; i++)
        p->rooms[p->count++] = m->lengths[i];
    p->old = p->count;
    return true;
}

/* Cuts what is expected, first from old rooms; a new room is as long as its cuts. */
static void makers_plan(plan *p, const wi_copy_memory *memory)
{
    uint64_t most = atomic_load(&wi_slab_most);
    for (size_t i = memory->expected_first; i < memory->expected_count; i++) {
        uint64_t bytes = memory->expected[i];
        size_t at = 0;
        while (at < p->old && p->rooms[at] < bytes)
            at++;
        if (at < p->old)
            p->rooms[at] -= bytes;
        else if (p->count > p->old && p->rooms[p->count - 1] + bytes <= most)
            p->rooms[p->count - 1] += bytes;
        else
            p->rooms[p->count++] = bytes;
    }
}

/* With the residence: has threads make what is expected and not there, if that is at least so many slabs. */
static weir_status makers_go(weir_client *client, const wi_copy_memory *memory, size_t least, unsigned threads)
{
    wi_makers *m = &residence_of(client)->makers;
    weir_status status = WEIR_OK;
    plan p;
    pthread_mutex_lock(&m->lock);
    if (!makers_plan_begin(&p, memory, m)) {
        pthread_mutex_unlock(&m->lock);
        return weir_fail(WEIR_ERR_SYSTEM, "no host memory for the plan of copies");
    }
    makers_plan(&p, memory);
    m->status = WEIR_OK;
    if (p.count - p.old >= least)
        status = makers_add(m, p.rooms + p.old, p.count - p.old);
    if (status == WEIR_OK)
        status = makers_start(client, m, threads);
    pthread_mutex_unlock(&m->lock);
    free(p.rooms);
    return status;
}

void wi_makers_help(weir_client *client, const wi_copy_memory *memory)
{
    if (memory->expected_first < memory->expected_count)
        (void)!makers_go(client, memory, 2, WI_MAKERS); /* without help the suspend makes slabs on its own thread */
}

/* Taking ----------------------------------------------------------------------------------------------------------- */

/* With the lock: whether a slab that is long enough, and comes before `order`, is being made. */
static bool makers_comes(const wi_makers *m, uint64_t bytes, uint64_t order)
{
    bool comes = false;
    for (int i = 0; i < WI_MAKERS; i++)
        comes |= m->making[i].bytes >= bytes && m->making[i].order < order;
    for (size_t i = m->at; i < m->count && !comes && order == UINT64_MAX; i++)
        comes = m->lengths[i] >= bytes;
    return comes && m->working > 0;
}

wi_slab *wi_makers_take(weir_client *client, uint64_t bytes)
{
    wi_residence *r = residence_of(client);
    wi_slab **link, *slab;
    if (!r)
        return NULL;
    wi_makers *m = &r->makers;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        for (link = &m->ready; *link && (*link)->bytes < bytes;)
            link = &(*link)->next;
        slab = *link;
        if (!makers_comes(m, bytes, slab ? slab->order : UINT64_MAX))
            break;
        pthread_cond_wait(&m->changed, &m->lock);
    }
    if (slab) {
        *link = slab->next;
        m->ready_bytes -= slab->bytes;
    }
    pthread_mutex_unlock(&m->lock);
    return slab;
}

uint64_t wi_makers_rest(weir_client *client)
{
    wi_makers *m = &residence_of(client)->makers;
    pthread_mutex_lock(&m->lock);
    wi_slab *list = m->ready;
    uint64_t bytes = m->ready_bytes;
    m->ready = NULL;
    m->ready_bytes = 0;
    m->stop = true;
    makers_forget_lengths(m);
    pthread_mutex_unlock(&m->lock);
    for (wi_slab *next; list; list = next) {
        next = list->next;
        wi_slab_end(client, list);
    }
    return bytes;
}

void wi_makers_end(weir_client *client)
{
    wi_makers *m = &residence_of(client)->makers;
    (void)wi_makers_rest(client);
    pthread_mutex_lock(&m->lock);
    while (m->working > 0)
        pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

/* Ahead of a suspend ----------------------------------------------------------------------------------------------- */

static void prepare_no_point(wi_event event, void *user)
{
    (void)event, (void)user;
}

/* With the residence: the copies that a suspend would make now are expected. */
static weir_status prepare_look(weir_client *client, wi_residence *r, const weir_prepare_options *o)
{
    wi_base *base = client->runtime->resource->base;
    weir_residency ignored = {.struct_size = sizeof ignored};
    wi_away away = {.account = &client->account, .stay = o->stay, .drop = o->drop, .receipt = &ignored};
    wi_away pages = {.stay = o->stay, .drop = o->drop};
    uint64_t left;
    wi_tcaches_drop_client(client);
    (void)wi_runtime_reap(client->runtime);
    (void)base->table->pass(base, &left);
    weir_status status = base->table->away->choose(base, &away);
    if (status != WEIR_OK)
        return status;
    status = wi_elastic_away_list(client, &pages, prepare_no_point, NULL);
    for (size_t i = 0; i < away.piece_count; i++)
        if (away.pieces[i].low)
            wi_copies_expect(&r->copies, &away.pieces[i]);
    for (size_t i = 0; i < pages.piece_count && status == WEIR_OK; i++)
        if (pages.runs[pages.pieces[i].run].saved)
            wi_copies_expect(&r->copies, &pages.pieces[i]);
    (void)!base->table->away->undo(base, &away); /* nothing was taken */
    wi_away_clear(&away);
    wi_away_clear(&pages);
    return status;
}

static void prepare_under_pressure(const weir_pressure *pressure, void *user)
{
    (void)pressure;
    (void)weir_client_forget_copies(user);
}

/* With the residence. */
static weir_status prepare_begin(weir_client *client, wi_residence *r, const weir_prepare_options *o)
{
    weir_runtime *runtime = client->runtime;
    wi_resource *pinned;
    weir_status status = wi_host_memory_stack(runtime, WEIR_KIND_PINNED, &pinned);
    if (status == WEIR_OK && r->pressure == 0)
        status = weir_pressure_register(wi_host_memory_host(runtime), 0, prepare_under_pressure, client, &r->pressure);
    if (status == WEIR_OK)
        status = wi_copies_open(&r->copies, NULL, false);
    if (status == WEIR_OK)
        status = prepare_look(client, r, o);
    if (status == WEIR_OK)
        status = makers_go(client, &r->copies.memory, 1, 1);
    wi_copy_memory_expect_none(&r->copies.memory);
    return status;
}

/* Waits until the makers rest. Answers why they ended early. */
static weir_status prepare_wait(wi_makers *m)
{
    pthread_mutex_lock(&m->lock);
    while (m->working > 0)
        pthread_cond_wait(&m->changed, &m->lock);
    weir_status status = m->status == WEIR_OK ? WEIR_OK : weir_fail(m->status, "%s", m->why);
    pthread_mutex_unlock(&m->lock);
    return status;
}

weir_status weir_client_prepare(weir_client *client, const weir_prepare_options *options)
{
    const char *call = "weir_client_prepare";
    weir_prepare_options o = {.struct_size = sizeof o};
    weir_residency_state found;
    wi_residence *r = NULL;
    weir_status status = wi_client_check(client, call);
    if (status == WEIR_OK)
        status = WI_COPY_OPTIONS_IN(weir_prepare_options, &o, options, call);
    if (status == WEIR_OK && (o.stay | o.drop) >= WEIR_CLASS_BIT(WEIR_CLASS_COUNT))
        status = weir_fail(WEIR_ERR_INVALID, "%s: a bit that is of no class; see WEIR_CLASS_BIT", call);
    if (status == WEIR_OK)
        status = wi_residence_open(client, call, &r);
    if (status != WEIR_OK || wi_kind_is_own(client->runtime, WEIR_KIND_PINNED))
        return status;
    if (!wi_residence_take(r, WEIR_RESIDENT, &found))
        return weir_fail(WEIR_ERR_BUSY, "%s: %s is %s", call, client->account.name,
                         found == WEIR_SUSPENDED ? "suspended" : "being suspended or resumed");
    status = wi_client_check(client, call); /* a close ends the residence after it has set the state */
    if (status == WEIR_OK)
        status = prepare_begin(client, r, &o);
    wi_residence_set(r, WEIR_RESIDENT);
    return status == WEIR_OK && o.wait ? prepare_wait(&r->makers) : status;
}

weir_status weir_client_preparation(weir_client *client, weir_preparation *out)
{
    weir_status status = wi_client_check_giving(client, "weir_client_preparation");
    if (status != WEIR_OK)
        return status;
    if (!out || out->struct_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID, "weir_client_preparation: NULL, or member struct_size is not set");
    weir_preparation now = {.struct_size = sizeof now};
    wi_residence *r = residence_of(client);
    if (r) {
        wi_makers *m = &r->makers;
        pthread_mutex_lock(&m->lock);
        now.ready = m->ready_bytes;
        for (int i = 0; i < WI_MAKERS; i++)
            now.coming += m->making[i].bytes;
        for (size_t i = m->at; i < m->count; i++)
            now.coming += m->lengths[i];
        now.status = m->status;
        snprintf(now.why, sizeof now.why, "%s", m->status == WEIR_OK ? "" : m->why);
        pthread_mutex_unlock(&m->lock);
    }
    wi_copy_out(out, out->struct_size, &now, sizeof now);
    return WEIR_OK;
}
