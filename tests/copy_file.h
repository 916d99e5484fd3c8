/* Copies a file for a test that changes it, or wants the same under another name. Include it behind cmocka.h. */
#ifndef TESTS_COPY_FILE_H
#define TESTS_COPY_FILE_H

#include <stdio.h>

static inline void copy_file(const char *from, const char *to)
{
    char bytes[4096];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, n, out), n);
    assert_int_equal(fclose(in), 0);
    assert_int_equal(fclose(out), 0);
}

#endif
