/* Graphs: captured several times into one pool, launched between captures and again, and closed. The launches of a
 * graph are ordered by the graph's home stream. Memory that the launches touch is the graph's from the first capture
 * until the home stream is past the close. */
#include "sim/world.h"

#include "runtime/runtime.h"

static bool graphs_are_known(const world *w)
{
    enum { STREAMS_ENOUGH = 4 };
    return w->options.streams >= STREAMS_ENOUGH && world_features(w) & WEIR_FEATURE_CAPTURABLE &&
           !(world_features(w) & WEIR_FEATURE_GUARDS);
}

static graph_block *graphs_block_at(world_graph *g, const void *pointer)
{
    for (unsigned i = 0; i < g->count; i++)
        if (g->blocks[i].pointer == pointer)
            return &g->blocks[i];
    return NULL;
}

static void freed_by_user(world *w, graph_block *b)
{
    b->live = false;
    oracle_hold(w->oracle, b->known, true);
}

/* Capturing -------------------------------------------------------------------------------------------------------- */

/* Adds the allocated block to the graph, or finds the graph's block at this address, which has to be free in the
 * graph's pool. */
static graph_block *graphs_settle_in(world *w, world_graph *g, void *pointer)
{
    graph_block *b = graphs_block_at(g, pointer);
    if (b && b->live)
        oracle_report(w->oracle, ORACLE_OVERLAP, "a graph's block is given out in a capture while it is live");
    if (b && !b->live)
        oracle_hold(w->oracle, b->known, false);
    if (!b) {
        b = &g->blocks[g->count++];
        b->known = oracle_allocated(w->oracle, &(oracle_got){.client = g->client,
                                                             .address = pointer,
                                                             .length = g->charged,
                                                             .charged = g->charged,
                                                             .memory_class = WEIR_CLASS_SCRATCH});
    }
    b->pointer = pointer;
    b->live = true;
    return b;
}

/* Work that writes the block, and work that finds what was written: in every launch. */
static void put_work(world *w, const world_graph *g, const graph_block *b, void *native)
{
    uint32_t version = (w->last_version += WI_SIM_OWNERS) + w->owner[g->client];
    wi_sim_touch(w->device, native, b->pointer, g->bytes, true, version);
    wi_sim_touch(w->device, native, b->pointer, g->bytes, false, version);
}

static bool graphs_allocate(world *w, world_graph *g, unsigned stream, graph_block **out)
{
    weir_request request = {.struct_size = sizeof request,
                            .bytes = g->bytes,
                            .stream = w->streams[stream],
                            .memory_class = WEIR_CLASS_SCRATCH};
    weir_block block = {NULL, 0};
    if (g->count == WORLD_GRAPH_BLOCKS)
        return false;
    oracle_asking(w->oracle, g->client, WEIR_CLASS_SCRATCH, g->charged, false);
    weir_status status = weir_alloc_with(w->clients[g->client], &request, &block);
    oracle_answered(w->oracle, g->client, WEIR_CLASS_SCRATCH, g->charged, false);
    /* Memory of another owner must be zeroed, which is impossible during a capture. */
    if (!ANSWER(w, "weir_alloc_with", status, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_STREAM_MISUSE))
        return false;
    *out = graphs_settle_in(w, g, block.pointer);
    return true;
}

static void capture_work(world *w, const step *s, world_graph *g, unsigned stream)
{
    for (uint64_t i = 0; i <= s->field[F_COUNT] % WORLD_GRAPH_BLOCKS; i++) {
        graph_block *b = NULL;
        if (!graphs_allocate(w, g, stream, &b))
            return;
        put_work(w, g, b, w->native[stream]);
        if (s->field[F_MORE] >> i & 1 &&
            ANSWER(w, "weir_free", weir_free(w->clients[g->client], b->pointer, w->streams[stream]), WEIR_OK))
            freed_by_user(w, b);
    }
}

static void graphs_capture(world *w, const step *s, world_graph *g)
{
    unsigned stream = (unsigned)s->field[F_STREAM];
    if (stream == 0 || !world_has_stream(w, stream) || w->stream_in_hand[stream] > 0 || world_frees_for_others(w) ||
        g->captures == WORLD_CAPTURES || w->suspended[g->client] || world_has_launch(w, stream))
        return;
    w->stream_closed[stream] = true;
    oracle_capturing(w->oracle, world_number(w, stream));
    if (ANSWER(w, "weir_capture_begin", weir_capture_begin(w->streams[stream], g->graph), WEIR_OK)) {
        w->captured[stream] = true;
        bool made = wi_sim_capture_graph(w->device, w->native[stream]);
        if (made)
            capture_work(w, s, g, stream);
        g->recorded[g->captures] = wi_sim_captured(w->device, w->native[stream]);
        g->captures += made;
        (void)ANSWER(w, "weir_capture_end", weir_capture_end(w->streams[stream], g->graph), WEIR_OK);
        w->captured[stream] = false;
    }
    w->stream_closed[stream] = false;
}

/* Launching and ending --------------------------------------------------------------------------------------------- */

static void launch_again(world *w, const step *s, const world_graph *g)
{
    if (g->captures == 0)
        return;
    oracle_declare(w->oracle, true);
    wi_sim_launch(w->device, g->recorded[s->field[F_COUNT] % g->captures], w->native[g->home]);
    oracle_declare(w->oracle, false);
}

/* A live block of the pool is freed outside of captures, where its last launch was. */
static void free_one(world *w, const step *s, world_graph *g)
{
    graph_block *b = g->count > 0 ? &g->blocks[s->field[F_COUNT] % g->count] : NULL;
    if (b && b->live &&
        ANSWER(w, "weir_free", weir_free(w->clients[g->client], b->pointer, w->streams[g->home]), WEIR_OK))
        freed_by_user(w, b);
}

static void graphs_end(world *w, world_graph *g)
{
    unsigned number = world_number(w, g->home);
    for (unsigned i = 0; i < g->count; i++)
        free_one(w, &(step){.field = {[F_COUNT] = i}}, g);
    for (unsigned i = 0; i < g->count; i++)
        if (g->blocks[i].live) /* a fault was in the way */
            return;
    for (unsigned i = 0; i < g->count; i++) {
        oracle_hold(w->oracle, g->blocks[i].known, false);
        oracle_freeing(w->oracle, g->blocks[i].known, number);
    }
    bool closed =
        ANSWER(w, "weir_capture_pool_destroy", weir_capture_pool_destroy(g->graph, w->streams[g->home]), WEIR_OK);
    for (unsigned i = 0; i < g->count; i++)
        if (closed) {
            oracle_freed(w->oracle, g->blocks[i].known);
        } else {
            oracle_cached(w->oracle, g->blocks[i].known);
            oracle_hold(w->oracle, g->blocks[i].known, true);
        }
    if (!closed)
        return;
    for (unsigned i = 0; i < g->captures; i++)
        wi_sim_graph_end(g->recorded[i]);
    world_take_stream(w, g->home, -1);
    *g = (world_graph){.in_hand = true};
}

static void open_one(world *w, const step *s, world_graph *g)
{
    unsigned client = (unsigned)s->field[F_CLIENT] % w->options.clients, home = (unsigned)s->field[F_CLASS];
    weir_capture_pool *graph;
    if (!graphs_are_known(w) || home == 0 || !world_has_stream(w, home) || !world_has_client(w, client) ||
        s->field[F_BYTES] == 0)
        return;
    for (unsigned i = 0; i < WORLD_GRAPHS; i++)
        if (w->graphs[i].graph && w->graphs[i].home == home)
            return;
    world_take_stream(w, home, 1);
    if (!ANSWER(w, "weir_capture_pool_create", weir_capture_pool_create(w->clients[client], &graph), WEIR_OK)) {
        world_take_stream(w, home, -1);
        return;
    }
    uint64_t bytes = wi_round_up(s->field[F_BYTES], WI_SIM_UNIT);
    *g = (world_graph){.graph = graph,
                       .client = client,
                       .home = home,
                       .bytes = bytes,
                       .charged = world_charge(w, bytes, 0),
                       .in_hand = true};
}

/* Opens a graph, captures into a graph, launches captured work, frees some of the graph's blocks, or closes the
 * graph. */
void run_graph(world *w, const step *s)
{
    world_graph *g = &w->graphs[s->field[F_SLOT] % WORLD_GRAPHS];
    if (g->in_hand || (g->graph && w->client_closed[g->client]))
        return;
    g->in_hand = true;
    unsigned client = g->graph ? g->client : (unsigned)s->field[F_CLIENT] % w->options.clients;
    w->client_in_hand[client]++;
    switch (g->graph ? s->field[F_FLAGS] % 8 : 8) {
    case 8:
        open_one(w, s, g);
        break;
    case 0:
    case 1:
    case 2:
        graphs_capture(w, s, g);
        break;
    case 3:
        graphs_end(w, g);
        break;
    case 4:
        free_one(w, s, g);
        break;
    default:
        launch_again(w, s, g);
    }
    w->client_in_hand[client]--;
    g->in_hand = false;
}

void world_end_graphs(world *w)
{
    for (unsigned i = 0; i < WORLD_GRAPHS; i++)
        if (w->graphs[i].graph)
            run_graph(w, &(step){.field = {[F_SLOT] = i, [F_FLAGS] = 3}});
}
