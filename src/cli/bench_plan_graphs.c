#include "bench_plan_graphs.h"
#include "text.h"

typedef struct maker {
    weir_buffers *list;
    uint64_t seed;
    uint64_t step;
} maker;

static uint64_t roll(maker *m, uint64_t sides)
{
    m->seed = m->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (m->seed >> 33) % sides;
}

static void add(maker *m, uint64_t begin, uint64_t end, uint64_t bytes)
{
    weir_buffer b = WEIR_INIT(weir_buffer);
    b.begin = begin;
    b.end = end;
    b.bytes = bytes;
    if (weir_buffers_add(m->list, &b, NULL) != WEIR_OK)
        (void)text_zeroed(SIZE_MAX, 1);
}

static maker begin(uint64_t seed)
{
    maker m = {.seed = seed};
    if (weir_buffers_create(&m.list) != WEIR_OK)
        (void)text_zeroed(SIZE_MAX, 1);
    return m;
}

static bool wants_more(const maker *m, size_t buffers)
{
    return weir_buffers_count(m->list) < buffers;
}

/* Blocks of convolutions with a shortcut around each, at four resolutions, with workspaces of all sizes. */
static weir_buffers *make_convolutions(size_t buffers)
{
    maker m = begin(1);
    while (wants_more(&m, buffers)) {
        uint64_t at = m.step, size = UINT64_C(802816) >> ((size_t)weir_buffers_count(m.list) * 4 / buffers);
        add(&m, at, at + 5, size);
        add(&m, at + 1, at + 3, size / 4);
        add(&m, at + 2, at + 4, size / 4);
        add(&m, at + 3, at + 5, size);
        for (uint64_t i = 1; i < 4; i++)
            add(&m, at + i, at + i + 1, 512 * (1 + roll(&m, 300)));
        m.step += 4;
    }
    return m.list;
}

/* Attention and a feed-forward part, each with a shortcut around it. */
static weir_buffers *make_transformer(size_t buffers)
{
    const uint64_t hidden = UINT64_C(384) * 768 * 2, scores = UINT64_C(12) * 384 * 384 * 2;
    maker m = begin(2);
    while (wants_more(&m, buffers)) {
        uint64_t at = m.step;
        add(&m, at, at + 7, hidden);
        for (uint64_t i = 1; i < 4; i++)
            add(&m, at + i, at + (i < 3 ? 5 : 6), hidden);
        add(&m, at + 4, at + 6, scores);
        add(&m, at + 5, at + 7, scores);
        add(&m, at + 6, at + 8, hidden);
        add(&m, at + 7, at + 12, hidden);
        add(&m, at + 8, at + 10, 4 * hidden);
        add(&m, at + 9, at + 11, 4 * hidden);
        add(&m, at + 10, at + 12, hidden);
        add(&m, at + 4 + roll(&m, 6), at + 11, 256 * (1 + roll(&m, 64)));
        m.step += 11;
    }
    return m.list;
}

/* Activations wait for the way back, where gradients come and go; optimizers take some of each layer at the end. */
static weir_buffers *make_training(size_t buffers)
{
    maker m = begin(3);
    uint64_t layers = buffers / 5;
    for (uint64_t i = 0; i < layers; i++) {
        uint64_t back = 2 * layers - i, size = 512 * (8 + roll(&m, 1000));
        add(&m, i, back + 1, size);
        add(&m, i, back + 1, 512 * (1 + roll(&m, 40)));
        add(&m, i, i + 1, 512 * (1 + roll(&m, 2000)));
        add(&m, back - 1, back + 1, size);
        add(&m, back, back + 1 + roll(&m, 3), 512 * (1 + roll(&m, 2000)));
    }
    return m.list;
}

/* Lifetimes of all lengths, the short ones more often, and sizes over five orders of magnitude. */
static weir_buffers *make_random(size_t buffers)
{
    maker m = begin(4);
    for (uint64_t i = 0; wants_more(&m, buffers); i++) {
        uint64_t length = 1 + roll(&m, UINT64_C(1) << (1 + roll(&m, roll(&m, 16) ? 5 : 11)));
        add(&m, i / 2, i / 2 + length, 64 * (1 + roll(&m, UINT64_C(1) << (1 + roll(&m, 16)))));
    }
    return m.list;
}

/* What makes lists other than plain, one kind of it at a time. */
enum { ALIGNMENTS, GAPS, CONFLICTS, PINS };

static void decorate(maker *to, uint32_t i, weir_buffer *b, const weir_plan *plan, int how)
{
    weir_slot slot = WEIR_INIT(weir_slot);
    weir_status status = WEIR_OK;
    if (how == ALIGNMENTS)
        b->alignment = UINT64_C(1) << roll(to, 13);
    if (how == PINS && roll(to, 10) == 0) {
        status = weir_plan_slot(plan, i, &slot);
        b->fixed = true;
        b->offset = slot.offset;
    }
    if (status == WEIR_OK)
        status = weir_buffers_add(to->list, b, NULL);
    if (status == WEIR_OK && how == GAPS && b->end - b->begin > 3 && roll(to, 2))
        status = weir_buffers_gap(to->list, i, b->begin + 1, b->end - 1);
    if (status == WEIR_OK && how == CONFLICTS && i > 50 && roll(to, 5) == 0)
        status = weir_buffers_conflict(to->list, i, i - 1 - (uint32_t)roll(to, 50));
    if (status != WEIR_OK)
        (void)text_zeroed(SIZE_MAX, 1);
}

/* The same list with alignments of its own, gaps, conflicts, or a tenth of it fixed where an earlier plan had it. */
static weir_buffers *make_decorated(weir_buffers *plain, int how)
{
    weir_plan_options options = {.struct_size = sizeof options, .mode = WEIR_PLAN_QUICK};
    weir_plan *plan = NULL;
    maker m = begin(5);
    weir_status status = weir_plan_make(plain, &options, &plan);
    for (uint32_t i = 0; status == WEIR_OK && i < weir_buffers_count(plain); i++) {
        weir_buffer b = WEIR_INIT(weir_buffer);
        status = weir_buffers_get(plain, i, &b);
        decorate(&m, i, &b, plan, how);
    }
    weir_plan_destroy(plan);
    weir_buffers_destroy(plain);
    return m.list;
}

static weir_buffers *make_aligned_training(size_t buffers)
{
    return make_decorated(make_training(buffers), ALIGNMENTS);
}

static weir_buffers *make_training_with_gaps(size_t buffers)
{
    return make_decorated(make_training(buffers), GAPS);
}

static weir_buffers *make_training_with_conflicts(size_t buffers)
{
    return make_decorated(make_training(buffers), CONFLICTS);
}

static weir_buffers *make_pinned_training(size_t buffers)
{
    return make_decorated(make_training(buffers), PINS);
}

static weir_buffers *make_aligned_random(size_t buffers)
{
    return make_decorated(make_random(buffers), ALIGNMENTS);
}

static weir_buffers *make_pinned_random(size_t buffers)
{
    return make_decorated(make_random(buffers), PINS);
}

const bench_graph bench_graphs[] = {
    {"convolutions", 10000, false, true, make_convolutions},
    {"transformer", 10000, false, true, make_transformer},
    {"random graph", 10000, false, true, make_random},
    {"training", 10000, true, true, make_training},
    {"convolutions", 60000, false, true, make_convolutions},
    {"transformer", 60000, false, true, make_transformer},
    {"random graph", 60000, false, true, make_random},
    {"training", 60000, true, true, make_training},
    {"training, alignments", 10000, true, false, make_aligned_training},
    {"training, gaps", 10000, true, false, make_training_with_gaps},
    {"training, conflicts", 10000, true, false, make_training_with_conflicts},
    {"training, pins", 10000, true, false, make_pinned_training},
    {"random graph, alignments", 60000, false, false, make_aligned_random},
    {"random graph, pins", 60000, false, false, make_pinned_random},
};
const size_t bench_graph_count = sizeof bench_graphs / sizeof bench_graphs[0];
