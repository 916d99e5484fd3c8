/* Stacks of resources: parses the text form and makes the resources. */
#include "memory/stack.h"
#include "base/values.h"
#include "memory/adaptors/adaptors.h"
#include "memory/mapped/mapped.h"
#include "memory/segments.h"

#include <stdio.h>

/* The parts that a stack can have: a base or an adaptor. */
typedef struct part {
    const char *name;
    weir_status (*base)(const wi_driver *driver, wi_device *device, const wi_arguments *arguments, wi_resource **out);
    weir_status (*adaptor)(wi_resource *inner, const wi_arguments *arguments, wi_resource **out);
} part;

static weir_status stack_make_mapped(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                                     wi_resource **out)
{
    weir_status status = wi_arguments_check(arguments, (const char *const[]){NULL});
    return status == WEIR_OK ? wi_mapped_create(driver, device, out) : status;
}

/* The caching allocator: mapped, or segments on a device that cannot map memory. */
static weir_status stack_make_cache(const wi_driver *driver, wi_device *device, const wi_arguments *arguments,
                                    wi_resource **out)
{
    weir_status status = stack_make_mapped(driver, device, arguments, out);
    return status == WEIR_ERR_UNSUPPORTED ? wi_segments_create(driver, device, out) : status;
}

static weir_status stack_make_budget(wi_resource *inner, const wi_arguments *arguments, wi_resource **out)
{
    weir_status status = wi_arguments_check(arguments, (const char *const[]){NULL});
    return status == WEIR_OK ? wi_budget_create(inner, out) : status;
}

static const part parts[] = {
    {.name = "cache", .base = stack_make_cache},    {.name = "mapped", .base = stack_make_mapped},
    {.name = "direct", .base = wi_direct_make},     {.name = "async", .base = wi_async_make},
    {.name = "segments", .base = wi_segments_make}, {.name = "budget", .adaptor = stack_make_budget},
    {.name = "log", .adaptor = wi_log_create},      {.name = "guard", .adaptor = wi_guard_create},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static const part own_base = {.base = wi_own_base_make}, own_adaptor = {.adaptor = wi_own_adaptor_make};

static const part *stack_part(const char *name)
{
    for (size_t i = 0; i < PARTS; i++)
        if (strcmp(parts[i].name, name) == 0)
            return &parts[i];
    wi_own_part own = wi_own_part_called(name);
    return own.base ? &own_base : own.adaptor ? &own_adaptor : NULL;
}

bool wi_stack_has(const char *name)
{
    return stack_part(name);
}

static weir_status stack_unknown(const char *name)
{
    char list[160] = "";
    for (size_t i = 0, n = 0; i < PARTS && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", parts[i].name);
    return weir_fail(WEIR_ERR_NOT_FOUND, "there is no resource \"%.40s\"; there are %s", name, list);
}

/* Arguments -------------------------------------------------------------------------------------------------------- */

const char *wi_argument(const wi_arguments *arguments, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < arguments->count; i++) {
        const char *text = arguments->text[i];
        if (length == 0 && !strchr(text, '='))
            return text;
        if (length > 0 && strncmp(text, name, length) == 0 && text[length] == '=')
            return text + length + 1;
    }
    return NULL;
}

weir_status wi_argument_size(const wi_arguments *arguments, const char *name, uint64_t least, uint64_t *out)
{
    const char *value = wi_argument(arguments, name);
    if (value && (!wi_size_read(value, out) || *out < least))
        return weir_fail(WEIR_ERR_INVALID, "the resource %s does not take \"%.40s\" for %s; it is a size",
                         arguments->part, value, *name ? name : "its argument");
    return WEIR_OK;
}

/* The length of an argument's name; 0: it has none. */
static size_t stack_name_length(const char *text)
{
    const char *equals = strchr(text, '=');
    return equals ? (size_t)(equals - text) : 0;
}

weir_status wi_arguments_check(const wi_arguments *arguments, const char *const *known)
{
    for (size_t i = 0; i < arguments->count; i++) {
        const char *text = arguments->text[i];
        size_t length = stack_name_length(text), k = 0, first = 0;
        while (known[k] && (strlen(known[k]) != length || strncmp(known[k], text, length) != 0))
            k++;
        if (!known[k])
            return weir_fail(WEIR_ERR_INVALID, "the resource %s takes no argument \"%.40s\"", arguments->part, text);
        while (stack_name_length(arguments->text[first]) != length ||
               strncmp(arguments->text[first], text, length) != 0)
            first++;
        if (first < i)
            return weir_fail(WEIR_ERR_INVALID, "the resource %s takes one of \"%.40s\" and \"%.40s\", not both",
                             arguments->part, arguments->text[first], text);
    }
    return WEIR_OK;
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

typedef struct reading {
    const char *text, *at;
    const wi_driver *driver; /* NULL: only checks the text */
    wi_device *device;
    unsigned depth;
    unsigned budgets;
    bool guarded; /* it has a guard, or is not to get one */
} reading;

enum { MOST_PARTS = 16 };

static weir_status stack_wrong(const reading *r, const char *what)
{
    return weir_fail(WEIR_ERR_INVALID,
                     "\"%.80s\" is no stack of resources: %s at character %d; write it like "
                     "budget(log(async))",
                     r->text, what, (int)(r->at - r->text) + 1);
}

static void stack_skip_blanks(reading *r)
{
    while (*r->at == ' ')
        r->at++;
}

/* Reads one word, up to a bracket or a comma; blanks around it are skipped. */
static void stack_read_word(reading *r, char *word, size_t capacity)
{
    stack_skip_blanks(r);
    size_t length = strcspn(r->at, "(),");
    const char *next = r->at + length;
    while (length > 0 && r->at[length - 1] == ' ')
        length--;
    snprintf(word, capacity, "%.*s", (int)wi_min(length, capacity - 1), r->at);
    r->at = next;
}

static weir_status stack_read_part(reading *r, wi_resource **out);

/* Reads what is between a part's brackets: arguments, then the inner resource of an adaptor. */
static weir_status stack_read_brackets(reading *r, const part *p, wi_arguments *arguments, bool *within,
                                       wi_resource **inner)
{
    weir_status status = WEIR_OK;
    while (status == WEIR_OK && *r->at++ != ')') {
        const char *start = r->at;
        char word[WI_ARGUMENT_BYTES];
        stack_read_word(r, word, sizeof word);
        if (!word[0])
            return stack_wrong(r, "something is missing");
        if (strlen(word) == sizeof word - 1)
            return stack_wrong(r, "an argument that is too long ends");
        if (*within)
            return stack_wrong(r, "nothing may follow the inner resource");
        if (p->adaptor && (*r->at == '(' || stack_part(word) || (*r->at == ')' && !strchr(word, '=')))) {
            r->at = start;
            *within = true;
            status = stack_read_part(r, inner);
        } else if (arguments->count == WI_ARGUMENTS) {
            return stack_wrong(r, "too many arguments");
        } else {
            memcpy(arguments->text[arguments->count++], word, sizeof word);
        }
        if (status == WEIR_OK && *r->at != ',' && *r->at != ')')
            return stack_wrong(r, "a bracket is missing");
    }
    return status;
}

/* The option `poison`: puts a guard next to the base, if the text has none. */
static weir_status stack_add_guard(wi_resource **base)
{
    wi_resource *inner = *base;
    weir_status status = wi_guard_create(inner, &(wi_arguments){.part = "guard"}, base);
    if (status != WEIR_OK) {
        wi_resource_destroy(inner);
        *base = NULL;
    }
    return status;
}

static weir_status stack_read_part(reading *r, wi_resource **out)
{
    char name[40];
    wi_resource *inner = NULL;
    bool within = false;
    stack_read_word(r, name, sizeof name);
    const part *p = stack_part(name);
    if (!p)
        return name[0] ? stack_unknown(name) : stack_wrong(r, "a name is missing");
    if (++r->depth > MOST_PARTS)
        return stack_wrong(r, "too many resources");
    wi_arguments arguments = {.part = name};
    r->guarded |= p->adaptor == wi_guard_create;
    weir_status status = *r->at == '(' ? stack_read_brackets(r, p, &arguments, &within, &inner) : WEIR_OK;
    stack_skip_blanks(r);
    r->budgets += p->adaptor == stack_make_budget;
    if (status == WEIR_OK && p->adaptor && !within)
        status = stack_wrong(r, "an adaptor needs a resource within");
    if (status == WEIR_OK && r->driver)
        status = p->adaptor ? p->adaptor(inner, &arguments, out) : p->base(r->driver, r->device, &arguments, out);
    if (status == WEIR_OK && r->driver && p->base && !r->guarded)
        status = stack_add_guard(out);
    if (status != WEIR_OK && inner)
        wi_resource_destroy(inner);
    return status;
}

static weir_status stack_read_all(reading *r, wi_resource **out)
{
    weir_status status = stack_read_part(r, out);
    if (status == WEIR_OK && *r->at) {
        status = stack_wrong(r, "something stands behind the end");
        if (*out)
            wi_resource_destroy(*out);
    }
    return status;
}

weir_status wi_stack_check(const char *text)
{
    wi_resource *none = NULL;
    reading r = {.text = text, .at = text};
    return stack_read_all(&r, &none);
}

weir_status wi_stack_create(const char *text, const wi_driver *driver, wi_device *device, wi_resource **out)
{
    wi_resource *top = NULL;
    reading r = {.text = text, .at = text, .driver = driver, .device = device, .guarded = !wi_option_poison()};
    weir_status status = stack_read_all(&r, &top);
    if (status == WEIR_OK && r.budgets > 1) {
        wi_resource_destroy(top);
        status = weir_fail(WEIR_ERR_INVALID, "the stack %s has two budgets; one is enough", text);
    }
    if (status == WEIR_OK && r.budgets == 0) {
        wi_resource *inner = top;
        status = wi_budget_create(inner, &top);
        if (status != WEIR_OK)
            wi_resource_destroy(inner);
    }
    *out = status == WEIR_OK ? top : NULL;
    return status;
}
