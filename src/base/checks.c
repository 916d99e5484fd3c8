/* Checks: of the structures and lists that callers hand in, of weir's own invariants, and windows for tests. */
#include "base/internal.h"
#include "base/probes.h"

#include <weir/engine.h>

#include <stdio.h>

/* Structures of older and newer callers ---------------------------------------------------------------------------- */

/* Whether a caller's structure has anything set beyond our size. */
static bool is_set_beyond(const unsigned char *from, size_t ours, size_t theirs)
{
    for (size_t i = ours; i < theirs; i++)
        if (from[i])
            return true;
    return false;
}

weir_status wi_copy_in_other(void *to, size_t our_size, const void *from, size_t caller_size, const char *call,
                             const char *type)
{
    if (!from)
        return weir_fail(WEIR_ERR_INVALID, "%s: the %s is NULL", call, type);
    if (caller_size < 2 * sizeof(size_t))
        return weir_fail(WEIR_ERR_INVALID,
                         "%s: the member struct_size of the %s is not set: begin it with WEIR_INIT(%s)", call, type,
                         type);
    if (caller_size > our_size + WI_LATER_MEMBERS)
        return weir_fail(WEIR_ERR_INVALID,
                         "%s: the member struct_size of the %s is %zu, and no version's is (here it is %zu): begin it "
                         "with WEIR_INIT(%s)",
                         call, type, caller_size, our_size, type);
    if (is_set_beyond(from, our_size, caller_size))
        return weir_fail(WEIR_ERR_UNSUPPORTED,
                         "%s: the caller's %s has %zu bytes and something set beyond the %zu that libweir %s knows: "
                         "leave members of later versions 0, or run with the libweir that the program was built for",
                         call, type, caller_size, our_size, WEIR_VERSION_STRING);
    memset(to, 0, our_size);
    memcpy(to, from, wi_min(caller_size, our_size));
    return WEIR_OK;
}

weir_status wi_check_list(const void *list, size_t count, const char *call, const char *name)
{
    return list || count == 0
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "%s: %s is NULL, and its count is %zu; set both, or neither", call, name,
                           count);
}

weir_status wi_check_settings(const weir_setting *settings, size_t count, const char *call)
{
    weir_status status = wi_check_list(settings, count, call, "settings");
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        if (!settings[i].key || !settings[i].key[0] || !settings[i].value)
            status = weir_fail(WEIR_ERR_INVALID, "%s: setting %zu has no key or no value", call, i);
    return status;
}

/* Invariants ------------------------------------------------------------------------------------------------------- */

#ifdef WEIR_INVARIANTS
void wi_invariant_broken(const char *invariant, const char *file, int line)
{
    fprintf(stderr, "weir: broken invariant: %s (%s:%d)\n", invariant, file, line);
    abort();
}
#endif

/* Windows ---------------------------------------------------------------------------------------------------------- */

#ifdef WEIR_INVARIANTS
void (*wi_window_hook)(wi_window_point point);
#endif
