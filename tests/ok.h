/* A call that has to succeed: OK(call). Behind cmocka.h. */
#ifndef TESTS_OK_H
#define TESTS_OK_H

#include <weir/weir.h>

#define OK(call) assert_ok((call), #call, __FILE__, __LINE__)

static inline void assert_ok(weir_status status, const char *what, const char *file, int line)
{
    if (status == WEIR_OK)
        return;
    print_error("%s: %s: %s\n", what, weir_name_of(WEIR_NAMES_STATUS, status), weir_detail());
    _assert_int_equal(status, WEIR_OK, file, line);
}

#endif
