#include "memory/space/block.h"

static const char *const class_names[WEIR_CLASS_COUNT] = {"other", "weights", "activations", "scratch", "kv"};

const char *weir_class_name(weir_class memory_class)
{
    return (unsigned)memory_class < WEIR_CLASS_COUNT ? class_names[memory_class] : "?";
}
