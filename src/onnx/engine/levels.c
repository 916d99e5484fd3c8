/* The level of optimization that a model gets by default (foresee.h). tests/cli/test_odd_models.py notices when a
 * version computes rightly what is said here to be wrong. */
#include "foresee.h"

#include <limits.h>
#include <stddef.h>

enum { BASIC = 1 };

static bool has_two_bits(const onnx_file *file)
{
    return file->two_bits;
}

static const struct {
    bool (*is_in)(const onnx_file *file);
    unsigned from, before; /* minor versions: wrong in the first, right again in the second; UINT_MAX: not known */
    int right;             /* the highest level that is right */
    const char *why;
} wrong[] = {
    {has_two_bits, 0, UINT_MAX, BASIC,
     "optimization=basic, as ONNX Runtime from extended on multiplies wrongly by 2-bit weights whose columns are no "
     "multiple of 4"},
};

int onnx_level_right(const onnx_file *file, unsigned minor, int level, const char **why)
{
    *why = "";
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (level > wrong[i].right && minor >= wrong[i].from && minor < wrong[i].before && wrong[i].is_in(file)) {
            level = wrong[i].right;
            *why = wrong[i].why;
        }
    return level;
}
