/* Clocks: what is known to be done before what. */
#include "sim/oracle_state.h"

#include <stdarg.h>
#include <stdio.h>

const char *oracle_kind_name(oracle_kind kind)
{
    static const char *const names[ORACLE_KINDS] = {
        "early-reuse", "overlap", "unmapped", "unmap-live", "unmap-under-use", "before-arrival", "lost-order", "budget",
        "ledger",      "refusal", "answer",   "device",     "stuck",           "leak",           "user"};
    return kind < ORACLE_KINDS ? names[kind] : "?";
}

void oracle_report(oracle *o, oracle_kind kind, const char *format, ...)
{
    oracle_findings *f = &o->found;
    bool users = kind == ORACLE_USER;
    if (users ? f->count[ORACLE_USER] == 0 && f->violations == 0 : f->violations == 0) {
        va_list arguments;
        int length = snprintf(f->first, sizeof f->first, "%s: ", oracle_kind_name(kind));
        va_start(arguments, format);
        /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it does not see va_start */
        vsnprintf(f->first + length, sizeof f->first - (size_t)length, format, arguments);
        va_end(arguments);
        f->first_kind = kind;
    }
    f->count[kind]++;
    f->violations += !users;
}

bool oracle_room(oracle *o, void *list, size_t count, size_t *room, size_t bytes)
{
    bool made = wi_make_room(list, count, room, bytes);
    if (!made)
        oracle_report(o, ORACLE_DEVICE, "no host memory for the oracle");
    return made;
}

const oracle_findings *oracle_found(const oracle *o)
{
    return &o->found;
}

void oracle_declare(oracle *o, bool declared)
{
    o->declared = declared;
}

bool oracle_by_user(oracle *o, bool users)
{
    bool before = o->users;
    o->users = users;
    return before;
}

/* Clocks ----------------------------------------------------------------------------------------------------------- */

const uint64_t *oracle_clock(const oracle *o, unsigned stream)
{
    return stream ? o->clock[stream] : o->host;
}

bool oracle_behind(const oracle *o, const uint64_t *clock, const uint64_t *last, unsigned *late)
{
    for (unsigned s = 1; s < o->width; s++)
        if (clock[s] < last[s]) {
            *late = s;
            return false;
        }
    return true;
}

void oracle_join(const oracle *o, uint64_t *clock, const uint64_t *other)
{
    for (unsigned s = 1; s < o->width; s++)
        clock[s] = wi_max(clock[s], other[s]);
}

/* Snapshots of what the host knows already tell nothing new. */
static void forget_known(const oracle *o, unsigned stream)
{
    snapshots *e = &o->events[stream];
    while (e->count > 0 && e->ring[e->first].sequence <= o->host[stream]) {
        e->first = (e->first + 1) % e->capacity;
        e->count--;
    }
}

static bool oracle_make_room(const oracle *o, snapshots *e)
{
    if (e->count < e->capacity)
        return true;
    size_t capacity = e->capacity ? 2 * e->capacity : 64;
    snapshot *ring = calloc(capacity, sizeof *ring);
    for (size_t i = 0; ring && i < capacity; i++) {
        ring[i].clock =
            i < e->capacity ? e->ring[(e->first + i) % e->capacity].clock : calloc(o->width, sizeof *ring[i].clock);
        if (i < e->count)
            ring[i].sequence = e->ring[(e->first + i) % e->capacity].sequence;
        if (!ring[i].clock) {
            for (size_t k = e->capacity; k < i; k++)
                free(ring[k].clock);
            free(ring);
            return false;
        }
    }
    if (!ring)
        return false;
    free(e->ring);
    *e = (snapshots){ring, 0, e->count, capacity};
    return true;
}

static void on_record(void *user, unsigned stream, uint64_t sequence)
{
    oracle *o = user;
    snapshots *e = &o->events[stream];
    forget_known(o, stream);
    oracle_join(o, o->clock[stream], o->host);
    if (sequence <= o->host[stream] ||
        (e->count > 0 && e->ring[(e->first + e->count - 1) % e->capacity].sequence == sequence))
        return;
    if (!oracle_make_room(o, e)) {
        oracle_report(o, ORACLE_DEVICE, "no host memory for the oracle");
        return;
    }
    snapshot *s = &e->ring[(e->first + e->count++) % e->capacity];
    s->sequence = sequence;
    memcpy(s->clock, o->clock[stream], o->width * sizeof *s->clock);
    s->clock[stream] = sequence;
}

/* What is done when the event is passed; NULL: nothing that the host does not know. */
static const uint64_t *oracle_clock_of(const oracle *o, unsigned stream, uint64_t sequence)
{
    const snapshots *e = &o->events[stream];
    size_t low = 0, high = e->count; /* the first with at least this sequence */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (e->ring[(e->first + middle) % e->capacity].sequence < sequence)
            low = middle + 1;
        else
            high = middle;
    }
    const snapshot *s = low < e->count ? &e->ring[(e->first + low) % e->capacity] : NULL;
    return s && s->sequence == sequence ? s->clock : NULL;
}

static void on_order(void *user, unsigned stream, unsigned other, uint64_t sequence)
{
    oracle *o = user;
    const uint64_t *clock = oracle_clock_of(o, other, sequence);
    oracle_join(o, o->clock[stream], o->host);
    if (clock)
        oracle_join(o, o->clock[stream], clock);
}

static void on_pass(void *user, unsigned stream, uint64_t sequence)
{
    oracle *o = user;
    if (sequence <= o->host[stream])
        return;
    const uint64_t *clock = oracle_clock_of(o, stream, sequence);
    if (clock)
        oracle_join(o, o->host, clock);
    o->host[stream] = wi_max(o->host[stream], sequence);
}

static void on_touch(void *user, unsigned stream, uint64_t sequence, const void *address, uint64_t bytes, bool write,
                     bool own)
{
    oracle *o = user;
    if (stream) {
        oracle_join(o, o->clock[stream], o->host);
        o->clock[stream][stream] = sequence;
    }
    oracle_touch(user, stream, sequence, address, bytes, write, own);
}

static void on_wrong(void *user, const char *what)
{
    oracle_report(user, ORACLE_DEVICE, "%s", what);
}

/* Making and ending ------------------------------------------------------------------------------------------------ */

wi_sim_watcher oracle_watcher(oracle *o)
{
    return (wi_sim_watcher){.user = o,
                            .touch = on_touch,
                            .record = on_record,
                            .order = on_order,
                            .pass = on_pass,
                            .hold = oracle_holding,
                            .map = oracle_mapping,
                            .unmap = oracle_unmapping,
                            .wrong = on_wrong};
}

void oracle_attach(oracle *o, wi_device *device)
{
    o->device = device;
}

oracle *oracle_create(unsigned streams, uint64_t device_bytes, uint64_t granule, uint64_t budget)
{
    oracle *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->width = streams + 1;
    o->granule = granule;
    o->budget = o->next_budget = budget;
    o->host = calloc(o->width, sizeof *o->host);
    o->clock = calloc(o->width, sizeof *o->clock);
    o->events = calloc(o->width, sizeof *o->events);
    bool made = o->host && o->clock && o->events &&
                wi_plane_init(&o->owners, (1 + WI_SIM_HOST_TIMES) * (device_bytes / granule) + 1,
                              (uint32_t)(granule / WI_SIM_UNIT));
    for (unsigned s = 0; made && s < o->width; s++)
        made = (o->clock[s] = calloc(o->width, sizeof **o->clock)) != NULL;
    made = made && oracle_new_owner(o, 0, 0, NULL) == 0; /* nobody: what units point to at first */
    if (made)
        return o;
    oracle_destroy(o);
    return NULL;
}

void oracle_destroy(oracle *o)
{
    if (!o)
        return;
    for (unsigned s = 0; s < o->width; s++) {
        for (size_t i = 0; o->events && i < o->events[s].capacity; i++)
            free(o->events[s].ring[i].clock);
        if (o->events)
            free(o->events[s].ring);
        if (o->clock)
            free(o->clock[s]);
    }
    for (uint32_t i = 0; i < o->count; i++)
        free(o->table[i].last);
    wi_plane_clear(&o->owners);
    free(o->events);
    free(o->clock);
    free(o->host);
    free(o->table);
    free(o->unused);
    free(o->pending);
    free(o->ordered);
    free(o->away);
    free(o->there);
    free(o->copies);
    free(o);
}
