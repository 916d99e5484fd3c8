/* What public calls tell of values: the words for them, sizes as texts, the bytes of tensors. */
#include "base/values.h"

#include <weir/guard.h>
#include <weir/model.h>
#include <weir/stats.h>
#include <weir/trace.h>

static const char *const statuses[WEIR_STATUS_COUNT] = {
    "WEIR_OK",           "WEIR_ERR_INVALID",     "WEIR_ERR_OUT_OF_MEMORY", "WEIR_ERR_FOREIGN",
    "WEIR_ERR_INTERIOR", "WEIR_ERR_DOUBLE_FREE", "WEIR_ERR_STALE",         "WEIR_ERR_BUSY",
    "WEIR_ERR_CONFLICT", "WEIR_ERR_NOT_FOUND",   "WEIR_ERR_UNSUPPORTED",   "WEIR_ERR_STREAM_MISUSE",
    "WEIR_ERR_NO_ROOM",  "WEIR_ERR_FORKED",      "WEIR_ERR_DRIVER",        "WEIR_ERR_DEVICE_LOST",
    "WEIR_ERR_SYSTEM",   "WEIR_ERR_CORRUPT",     "WEIR_ERR_ENGINE",        "WEIR_ERR_CANCELLED",
};
static const char *const kinds[WEIR_KIND_COUNT] = {"device", "pinned", "host"};
static const char *const types[WEIR_TYPE_COUNT] = {
    NULL,  "f32", "f64", "f16",  "bf16",     "i8",         "i16",    "i32",        "i64",  "u8",
    "u16", "u32", "u64", "bool", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "text",
};
static const char *const classes[WEIR_CLASS_COUNT] = {"other", "weights", "activations", "scratch", "kv"};
static const char *const causes[WEIR_CAUSE_COUNT] = {
    "none",   "budget",        "maximum",       "fragmentation", "pending",
    "device", "other process", "address range", "reservation",   "adaptor",
};
static const char *const rungs[WEIR_RUNG_COUNT] = {"fit",   "thread_cached", "completed", "spare",    "create",
                                                   "remap", "kept_released", "order",     "pressure", "wait"};
static const char *const spans[WEIR_SPAN_COUNT] = {"live",    "pending", "thread_cached", "promised", "free",
                                                   "ordered", "kept",    "spare",         "busy"};
static const char *const actions[WEIR_ACTION_COUNT] = {
    "allocate",     "deallocate",  "reap",      "resize",   "refuse",    "hold",       "fail", "stream-open",
    "stream-close", "synchronize", "use-begin", "use-end",  "use-abort", "use-record", "copy", "fill",
    "call",         "note-record", "note-wait", "note-use", "leave",     "return",     "pool"};
static const char *const pool_actions[WEIR_POOL_ACTION_COUNT] = {
    "predicted", "promised", "committed", "suspended", "resumed", "evicted", "unloaded", "refused", "gave up"};
static const char *const guards[WEIR_GUARD_COUNT] = {"overrun", "underrun", "use after free", "overlap"};
static const char *const hardware[WEIR_HARDWARE_COUNT] = {"cpu", "cuda", "rocm", "intel", "metal", "directml"};
static const char *const verdicts[WEIR_VERDICT_COUNT] = {
    "ACCEPTED",     "NOT_ASKED",      "NOT_LISTED", "NO_ENGINE",       "OTHER_FORMAT",  "NOT_BUILT",
    "NOT_LOADABLE", "OTHER_PLATFORM", "NO_DEVICE",  "DEVICE_UNUSABLE", "LITTLE_MEMORY", "LITTLE_VRAM",
    "OLD_CUDA",     "OLD_DRIVER",     "OLD_DEVICE", "NO_CPU",          "BAD_SETTING"};
static const char *const stages[WEIR_STAGE_COUNT] = {"detect", "construct", "load", "first-run", "later-run"};

static const char *const residencies[WEIR_RESIDENCY_COUNT] = {"resident", "suspended", "moving"};

static const char *const sources[WEIR_PREDICTED_COUNT] = {"none", "size", "metadata", "dry run", "measured"};

const char *weir_name_of(weir_names names, int value)
{
    static const struct {
        const char *const *words;
        unsigned count;
    } tables[WEIR_NAMES_COUNT] = {
        [WEIR_NAMES_STATUS] = {statuses, WEIR_STATUS_COUNT},
        [WEIR_NAMES_KIND] = {kinds, WEIR_KIND_COUNT},
        [WEIR_NAMES_TYPE] = {types, WEIR_TYPE_COUNT},
        [WEIR_NAMES_CLASS] = {classes, WEIR_CLASS_COUNT},
        [WEIR_NAMES_CAUSE] = {causes, WEIR_CAUSE_COUNT},
        [WEIR_NAMES_RUNG] = {rungs, WEIR_RUNG_COUNT},
        [WEIR_NAMES_SPAN] = {spans, WEIR_SPAN_COUNT},
        [WEIR_NAMES_ACTION] = {actions, WEIR_ACTION_COUNT},
        [WEIR_NAMES_GUARD] = {guards, WEIR_GUARD_COUNT},
        [WEIR_NAMES_POOL] = {pool_actions, WEIR_POOL_ACTION_COUNT},
        [WEIR_NAMES_HARDWARE] = {hardware, WEIR_HARDWARE_COUNT},
        [WEIR_NAMES_VERDICT] = {verdicts, WEIR_VERDICT_COUNT},
        [WEIR_NAMES_STAGE] = {stages, WEIR_STAGE_COUNT},
        [WEIR_NAMES_RESIDENCY] = {residencies, WEIR_RESIDENCY_COUNT},
        [WEIR_NAMES_SOURCE] = {sources, WEIR_PREDICTED_COUNT},
    };
    bool known = (unsigned)names < WEIR_NAMES_COUNT && value >= 0 && (unsigned)value < tables[names].count;
    const char *word = known ? tables[names].words[value] : NULL;
    return word ? word : "?";
}

weir_status weir_size_parse(const char *text, uint64_t *bytes)
{
    WI_ENTER();
    return wi_size_parse(text, bytes);
}

char *weir_size_format(uint64_t bytes, char *text, size_t capacity)
{
    return wi_size_text(bytes, text, capacity);
}

weir_status weir_tensor_bytes(weir_type type, uint32_t rank, const int64_t *shape, size_t *bytes)
{
    size_t total = wi_type_bytes(type);
    bool empty = false;
    if (total == 0)
        return weir_fail(WEIR_ERR_INVALID, "%d is no element type", (int)type);
    if (rank > WEIR_MAX_RANK || (rank > 0 && !shape) || !bytes)
        return weir_fail(WEIR_ERR_INVALID, "a rank of %u is more than %d, or a pointer is NULL", rank,
                         (int)WEIR_MAX_RANK);
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return weir_fail(WEIR_ERR_INVALID, "dimension %u is %lld", i, (long long)shape[i]);
        empty |= shape[i] == 0;
        if (shape[i] > 0 && __builtin_mul_overflow(total, (uint64_t)shape[i], &total))
            return weir_fail(WEIR_ERR_INVALID, "the tensor is larger than any memory");
    }
    *bytes = empty ? 0 : total;
    return WEIR_OK;
}
