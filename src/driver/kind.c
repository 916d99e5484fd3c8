/* The kinds of memory by name. */
#include <weir/kind.h>

const char *weir_kind_name(weir_kind kind)
{
    static const char *const names[WEIR_KIND_COUNT] = {"device", "pinned", "host"};
    return kind >= 0 && kind < WEIR_KIND_COUNT ? names[kind] : "?";
}
