/* Bases of a program's own. A registered base is never removed, so that finding one takes no lock. */
#include "memory/own_base.h"
#include "memory/driver_alloc.h"

#include <stdio.h>

enum { OWN_BASES = 16, OWN_BASE_NAME = 32 };

typedef struct own_base {
    weir_base_table table;
    char name[OWN_BASE_NAME];
} own_base;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for registration */
static own_base bases[OWN_BASES];
static atomic_size_t known; /* the number of bases; those below it do not change */

WI_FREE_AFTER_FORKS(lock)

const weir_base_table *wi_own_base_called(const char *name)
{
    size_t count = atomic_load_explicit(&known, memory_order_acquire);
    for (size_t i = 0; i < count; i++)
        if (strcmp(bases[i].name, name) == 0)
            return &bases[i].table;
    return NULL;
}

static bool own_base_is_name(const char *name)
{
    size_t length = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") : 0;
    return length > 0 && length < OWN_BASE_NAME && name[length] == '\0';
}

static weir_status own_base_check(const weir_base_table *t)
{
    if (!own_base_is_name(t->name))
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_base_register: \"%.40s\" is no name: lower-case letters, digits and '-', at most %d",
                         t->name ? t->name : "", OWN_BASE_NAME - 1);
    if (!t->allocate || !t->release || !t->held != !t->trim)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_base_register: the base %s lacks allocate or release, or has one of held and trim alone",
                         t->name);
    if (t->flags & ~(uint32_t)(WEIR_BASE_STREAM_ORDERED | WEIR_BASE_CAPTURABLE))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "weir_base_register: the base %s has flags (0x%x) of a later version",
                         t->name, t->flags);
    return WEIR_OK;
}

/* The lock is held. */
static weir_status own_base_add(const weir_base_table *t)
{
    size_t count = atomic_load_explicit(&known, memory_order_relaxed);
    if (wi_stack_has(t->name))
        return weir_fail(WEIR_ERR_CONFLICT, "weir_base_register: there is a resource \"%s\" already", t->name);
    if (count == OWN_BASES)
        return weir_fail(WEIR_ERR_BUSY, "weir_base_register: a process has at most %d bases of its own", OWN_BASES);
    own_base *new = &bases[count];
    new->table = *t;
    snprintf(new->name, sizeof new->name, "%s", t->name);
    new->table.name = new->name;
    atomic_store_explicit(&known, count + 1, memory_order_release);
    return WEIR_OK;
}

weir_status weir_base_register(const weir_base_table *table)
{
    WI_ENTER();
    weir_base_table t;
    weir_status status = WI_COPY_IN(weir_base_table, &t, table, "weir_base_register");
    if (status == WEIR_OK)
        status = own_base_check(&t);
    if (status != WEIR_OK)
        return status;
    watch_forks();
    pthread_mutex_lock(&lock);
    status = own_base_add(&t);
    pthread_mutex_unlock(&lock);
    return status;
}

weir_status wi_own_base_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out)
{
    weir_status status = wi_arguments_check(arguments, (const char *const[]){NULL});
    return status == WEIR_OK ? wi_own_create(wi_own_base_called(arguments->part), driver, device, out) : status;
}
