/* Bases and adaptors of a program's own. A registered part is never removed, so that finding one takes no lock. */
#include "memory/stack.h"
#include "memory/adaptors/adaptors.h"

#include <stdio.h>

enum { OWN_PARTS = 16, OWN_PART_NAME = 32 };

typedef struct own_part {
    char name[OWN_PART_NAME];
    bool adapts;
    weir_base_table base;
    weir_adaptor_table adaptor;
} own_part;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for registration */
static own_part parts[OWN_PARTS];
static atomic_size_t known; /* the number of parts; entries below this number do not change */

WI_FREE_AFTER_FORKS(lock)

wi_own_part wi_own_part_called(const char *name)
{
    wi_own_part found = {NULL, NULL};
    size_t count = atomic_load_explicit(&known, memory_order_acquire), i = 0;
    while (i < count && strcmp(parts[i].name, name) != 0)
        i++;
    if (i < count && parts[i].adapts)
        found.adaptor = &parts[i].adaptor;
    else if (i < count)
        found.base = &parts[i].base;
    return found;
}

/* Registering ------------------------------------------------------------------------------------------------------ */

static weir_status own_part_check_name(const char *name, const char *call)
{
    size_t length = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") : 0;
    if (length > 0 && length < OWN_PART_NAME && name[length] == '\0')
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID, "%s: \"%.40s\" is no name: lower-case letters, digits and '-', at most %d", call,
                     name ? name : "", OWN_PART_NAME - 1);
}

static weir_status own_part_check_base(const weir_base_table *t)
{
    if (!t->allocate || !t->release || !t->held != !t->trim)
        return weir_fail(WEIR_ERR_INVALID,
                         "weir_base_register: the base %s lacks allocate or release, or has one of held and trim alone",
                         t->name);
    if (t->flags & ~(uint32_t)(WEIR_BASE_STREAM_ORDERED | WEIR_BASE_CAPTURABLE))
        return weir_fail(WEIR_ERR_UNSUPPORTED, "weir_base_register: the base %s has flags (0x%x) of a later version",
                         t->name, t->flags);
    return WEIR_OK;
}

static weir_status own_part_check_adaptor(const weir_adaptor_table *t)
{
    if (t->before_allocate || t->allocated || t->failed || t->resized || t->freed)
        return WEIR_OK;
    return weir_fail(WEIR_ERR_INVALID,
                     "weir_adaptor_register: the adaptor %s has none of before_allocate, allocated, failed, resized "
                     "and freed",
                     t->name);
}

/* The lock is held. */
static weir_status own_part_add(const own_part *part, const char *call)
{
    size_t count = atomic_load_explicit(&known, memory_order_relaxed);
    if (wi_stack_has(part->name))
        return weir_fail(WEIR_ERR_CONFLICT, "%s: there is a resource \"%s\" already", call, part->name);
    if (count == OWN_PARTS)
        return weir_fail(WEIR_ERR_BUSY, "%s: a process has at most %d bases and adaptors of its own", call, OWN_PARTS);
    own_part *new = &parts[count];
    *new = *part;
    new->base.name = new->adaptor.name = new->name;
    atomic_store_explicit(&known, count + 1, memory_order_release);
    return WEIR_OK;
}

static weir_status own_part_register(own_part *part, const char *name, const char *call)
{
    snprintf(part->name, sizeof part->name, "%s", name);
    watch_forks();
    pthread_mutex_lock(&lock);
    weir_status status = own_part_add(part, call);
    pthread_mutex_unlock(&lock);
    return status;
}

weir_status weir_base_register(const weir_base_table *table)
{
    static const char call[] = "weir_base_register";
    WI_ENTER();
    own_part part = {.adapts = false};
    weir_status status = WI_COPY_IN(weir_base_table, &part.base, table, call);
    if (status == WEIR_OK)
        status = own_part_check_name(part.base.name, call);
    if (status == WEIR_OK)
        status = own_part_check_base(&part.base);
    return status == WEIR_OK ? own_part_register(&part, part.base.name, call) : status;
}

weir_status weir_adaptor_register(const weir_adaptor_table *table)
{
    static const char call[] = "weir_adaptor_register";
    WI_ENTER();
    own_part part = {.adapts = true};
    weir_status status = WI_COPY_IN(weir_adaptor_table, &part.adaptor, table, call);
    if (status == WEIR_OK)
        status = own_part_check_name(part.adaptor.name, call);
    if (status == WEIR_OK)
        status = own_part_check_adaptor(&part.adaptor);
    return status == WEIR_OK ? own_part_register(&part, part.adaptor.name, call) : status;
}

/* Making ----------------------------------------------------------------------------------------------------------- */

weir_status wi_own_base_make(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                             wi_resource **out)
{
    weir_status status = wi_arguments_check(arguments, (const char *const[]){NULL});
    return status == WEIR_OK
               ? wi_own_create(wi_own_part_called(arguments->part).base, driver, device, WEIR_KIND_DEVICE, out)
               : status;
}

weir_status wi_own_adaptor_make(wi_resource *inner, const wi_arguments *arguments, wi_resource **out)
{
    return wi_own_adaptor_create(wi_own_part_called(arguments->part).adaptor, inner, arguments, out);
}
