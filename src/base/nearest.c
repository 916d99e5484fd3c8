#include "base/nearest.h"

#include <string.h>

size_t wi_distance(const char *a, const char *b)
{
    size_t row[64];
    size_t n = strlen(b) < 62 ? strlen(b) : 62;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] && i < 64; i++) {
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
