#include "base/edit_distance.h"

#include <string.h>

enum { ROW = 64 };

size_t wi_edit_distance(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    size_t m = strlen(a), n = strlen(b);
    while (m > 0 && n > 0 && a[m - 1] == b[n - 1])
        m--, n--;
    if (n > m) {
        const char *longer = b;
        size_t most = n;
        b = a, n = m;
        a = longer, m = most;
    }
    if (n >= ROW)
        return m;
    size_t row[ROW];
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t substitution = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t step = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = substitution < step ? substitution : step;
        }
    }
    return row[n];
}
