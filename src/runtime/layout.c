/* Where memory lies, as the public calls tell it. */
#include "memory/space/layout.h"
#include "runtime/runtime.h"

const char *weir_span_state_name(weir_span_state state)
{
    static const char *const names[WEIR_SPAN_COUNT] = {"live",    "pending", "parked", "promised", "free",
                                                       "ordered", "kept",    "spare",  "busy"};
    return (unsigned)state < WEIR_SPAN_COUNT ? names[state] : "?";
}

/* The ledger is read within the same moment. */
static void copy_all(weir_runtime *runtime, wi_layout *layout, uint64_t *held)
{
    wi_members_lock(&runtime->ledger);
    for (wi_member *h = runtime->ledger.first_holder; h; h = h->next)
        wi_layout_add(layout, h->base);
    *held = wi_ledger_look(&runtime->ledger).held;
    wi_members_unlock(&runtime->ledger);
}

static weir_layout_totals inspect_add_up(const wi_layout *layout, uint64_t held)
{
    weir_layout_totals t = {
        .struct_size = sizeof t, .held = held, .segments = layout->segment_count, .spans = layout->span_count};
    uint64_t sum = 0;
    for (size_t i = 0; i < layout->span_count; i++) {
        t.bytes[layout->spans[i].state] += layout->spans[i].bytes;
        sum += layout->spans[i].bytes;
    }
    wi_assert(sum <= held);
    t.in_hand = held - sum;
    return t;
}

static void inspect_tell(const wi_layout *layout, weir_layout_fn fn, void *user)
{
    const weir_span *span = layout->spans;
    for (size_t i = 0; i < layout->segment_count; i++)
        for (uint32_t k = 0; k < layout->segments[i].spans; k++)
            fn(&layout->segments[i], span++, user);
}

weir_status weir_layout_walk(weir_runtime *runtime, weir_layout_fn fn, void *user, weir_layout_totals *out)
{
    WI_ENTER();
    if (!runtime || (out && out->struct_size < 2 * sizeof(size_t)))
        return weir_fail(WEIR_ERR_INVALID, "weir_layout_walk: NULL, or member struct_size is not set");
    wi_layout layout = {0};
    uint64_t held;
    (void)wi_runtime_reap(runtime);
    copy_all(runtime, &layout, &held);
    weir_status status =
        layout.failed ? weir_fail(WEIR_ERR_SYSTEM, "no host memory for a copy of where %s's memory lies", runtime->name)
                      : WEIR_OK;
    if (status == WEIR_OK && out) {
        weir_layout_totals totals = inspect_add_up(&layout, held);
        wi_copy_out(out, out->struct_size, &totals, sizeof totals);
    }
    if (status == WEIR_OK && fn)
        inspect_tell(&layout, fn, user);
    wi_layout_clear(&layout);
    return status;
}
