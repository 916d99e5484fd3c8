/* Read by the static analyzer before every source (scripts/lint): what it cannot see by itself. */
#include <weir/base.h>

/* weir_fail answers the status it was given, so never WEIR_OK where a failure was meant. */
#define weir_fail(status, ...) ((weir_fail)((status), __VA_ARGS__), (status))
