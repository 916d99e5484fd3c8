/* elastic_book.c: the pages of an elastic KV cache, against a book of its own: after every token of random runs, with
 * neighbours who need memory and limits that just fit, the cache has the pages of the cells in use, those that look ahead,
 * and at rest the first of each tensor. A debug build also looks whether unused pages were written, and ends the test. */
#include "common.h"

#include <weir/engine.h>

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* Keys of a layer take 256 bytes a cell, so that a page of 64 KiB holds 256 cells; the same for values. */
static const model_shape shape = {.layers = 2, .width = 128, .heads = 2, .heads_kv = 2, .wide = 64, .context = 4096};
static char llama_path[64], other_path[64];
enum { TENSORS = 4, PAGE = 65536, CELLS = 256, CONTEXT = 2048, BATCH = 256, SPARE = 8, PROMPT = 1500, MADE = 60 };

static const weir_setting elastic[] = {
    {"context", "2048"}, {"threads", "1"}, {"batch", "256"}, {"cache_memory", "elastic"}, {"sequences", "1"}};

static uint64_t kv_of(const bench *it)
{
    return stats_of(it).live_class[WEIR_CLASS_KV];
}

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
    return *seed >> 33;
}

/* ---- the book ------------------------------------------------------------------------------------------------------ */

typedef struct book {
    uint64_t pages[TENSORS];
    uint64_t most; /* that the limit leaves room for; 0: no limit */
} book;

static uint64_t in_all(const book *it)
{
    uint64_t sum = 0;
    for (int t = 0; t < TENSORS; t++)
        sum += it->pages[t];
    return sum;
}

static uint64_t pages_of(uint64_t cells)
{
    return (cells + CELLS - 1) / CELLS;
}

/* A decode after which so many cells are in use. Near the end of the pages one tensor gets its next one. */
static void book_decode(book *it, uint64_t cells)
{
    uint64_t least = UINT64_MAX;
    int behind = -1;
    for (int t = 0; t < TENSORS; t++)
        it->pages[t] = it->pages[t] > pages_of(cells) ? it->pages[t] : pages_of(cells);
    for (int t = TENSORS - 1; t >= 0; t--)
        if (it->pages[t] <= least) {
            least = it->pages[t];
            behind = t;
        }
    bool near = cells + SPARE + TENSORS >= least * CELLS && least * CELLS < CONTEXT;
    if (near && (it->most == 0 || in_all(it) < it->most))
        it->pages[behind]++;
}

static void book_prompt(book *it, uint64_t prompt)
{
    for (uint64_t at = BATCH; at < prompt; at += BATCH)
        book_decode(it, at);
    book_decode(it, prompt);
}

/* Only what the cells need is left. */
static void book_pressure(book *it, uint64_t cells)
{
    for (int t = 0; t < TENSORS; t++)
        it->pages[t] = it->pages[t] < pages_of(cells) ? it->pages[t] : pages_of(cells);
}

/* ---- runs ---------------------------------------------------------------------------------------------------------- */

typedef struct walk {
    const fixture *its;
    weir_client *neighbour;
    book book;
    uint64_t seed, prompt, made, stop_at;
    bool exact, blind; /* blind: others compute, and a piece may come after its run's end */
    int pieces, wrong, pressed;
} walk;

/* The neighbour asks for so much that all pages have to go that no cell needs, and gives it back. */
static void press(walk *it)
{
    void *block = NULL;
    /* More than there is: it is refused in the end, after everybody was asked. */
    assert_int_equal(weir_alloc(it->neighbour, 1ull << 30, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &block),
                     WEIR_ERR_OUT_OF_MEMORY);
    it->pressed++;
}

static void compare(walk *it, uint64_t cells)
{
    uint64_t now = kv_of(&it->its->it) / PAGE, least = pages_of(cells) * TENSORS;
    bool right = it->exact ? now == in_all(&it->book) : now >= least && (it->book.most == 0 || now <= it->book.most);
    if (!right && !it->blind && it->wrong++ < 5)
        print_error("prompt %llu, piece %d: %llu pages, and the book has %llu\n", (unsigned long long)it->prompt,
                    it->pieces, (unsigned long long)now, (unsigned long long)in_all(&it->book));
}

/* At rest the first page of each tensor stays. */
static void book_rest(book *it)
{
    for (int t = 0; t < TENSORS; t++)
        it->pages[t] = it->pages[t] > 0 ? 1 : 0;
}

/* The last one comes when its run is over. */
static bool on_piece(const weir_piece *piece, void *user)
{
    walk *it = user;
    bool last = piece->index + 1 == it->made;
    uint64_t cells = last ? 0 : it->prompt + piece->index;
    if (piece->index > 0)
        book_decode(&it->book, it->prompt + piece->index);
    if (last)
        book_rest(&it->book);
    compare(it, cells);
    it->pieces++;
    if (it->exact && next(&it->seed) % 12 == 0) {
        press(it);
        book_pressure(&it->book, cells);
        compare(it, cells);
    }
    return piece->index + 1 < it->stop_at;
}

static weir_status run(walk *it, uint64_t prompt, uint64_t made)
{
    char words[16];
    int32_t tokens[PROMPT];
    snprintf(words, sizeof words, "%llu", (unsigned long long)made);
    const weir_setting settings[] = {{"tokens", words}, {"temperature", "0"}, {"ignore_eos", "1"}};
    for (uint64_t i = 0; i < prompt; i++)
        tokens[i] = (int32_t)(3 + i * 7 % 200);
    it->prompt = prompt;
    it->made = made;
    weir_tensor input = token_input(tokens, 0, (int64_t)prompt);
    weir_inference inference = inference_of(&input, settings, 3);
    weir_outputs outputs = WEIR_INIT(weir_outputs);
    book_prompt(&it->book, prompt);
    weir_status status = it->its->it.engine->infer_stream(it->its->model, &inference, on_piece, it, &outputs);
    if (status == WEIR_OK)
        release(it->its, &outputs);
    return status;
}

static walk begin(const fixture *its, uint64_t seed)
{
    walk it = {.its = its, .seed = seed, .exact = true};
    weir_client_options named = WEIR_INIT(weir_client_options);
    named.name = "neighbour";
    OK(weir_client_create(its->it.runtime, &named, &it.neighbour));
    return it;
}

static void rests(walk *it)
{
    book_rest(&it->book);
    assert_int_equal(kv_of(&it->its->it), in_all(&it->book) * PAGE);
    assert_int_equal(stats_of(&it->its->it).pending, 0);
}

static void test_after_every_token_the_cache_has_the_pages_of_the_book(void **state)
{
    enum { RUNS = 60 };
    (void)state;
    fixture its = fixture_open(llama_path, elastic, 5);
    walk it = begin(&its, 4711);
    for (int i = 0; i < RUNS; i++) {
        uint64_t made = 1 + next(&it.seed) % MADE, pages = 1 + next(&it.seed) % 5;
        /* Half of them end near the end of a page. */
        uint64_t prompt = next(&it.seed) % 2 ? pages * CELLS - next(&it.seed) % 40 : 1 + next(&it.seed) % PROMPT;
        it.stop_at = next(&it.seed) % 3 ? UINT64_MAX : 1 + next(&it.seed) % made;
        OK(run(&it, prompt, made));
        rests(&it);
        if (next(&it.seed) % 4 == 0) {
            press(&it);
            book_pressure(&it.book, 0);
            assert_int_equal(kv_of(&its.it), 0);
        }
    }
    print_message("%d pieces, %d times pressed\n", it.pieces, it.pressed);
    assert_int_equal(it.wrong, 0);
    assert_true(it.pieces > RUNS && it.pressed > RUNS / 4);
    OK(weir_client_destroy(it.neighbour));
    fixture_close(&its);
}

/* A limit with room for so many pages: who needs no more is served, without a look ahead, and who does is refused. */
static void test_a_limit_that_just_fits_is_enough(void **state)
{
    enum { RUNS = 60 };
    (void)state;
    int refused = 0;
    fixture its = fixture_open(llama_path, elastic, 5);
    walk it = begin(&its, 99);
    OK(run(&it, 5, 2));
    uint64_t besides = stats_of(&its.it).live - kv_of(&its.it);
    it.exact = false;
    it.stop_at = UINT64_MAX;
    for (int i = 0; i < RUNS; i++) {
        uint64_t made = 2 + next(&it.seed) % MADE, prompt = 1 + next(&it.seed) % 1200;
        uint64_t needed = pages_of(prompt + made - 1) * TENSORS, less = next(&it.seed) % 2;
        press(&it);
        assert_int_equal(kv_of(&its.it), 0);
        it.book = (book){.most = needed - less};
        OK(weir_client_set_limits(its.it.client, 0, besides + it.book.most * PAGE + PAGE / 2));
        assert_int_equal(run(&it, prompt, made), less ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        refused += (int)less;
        OK(weir_client_set_limits(its.it.client, 0, 0));
        assert_true(kv_of(&its.it) <= TENSORS * PAGE);
        it.book = (book){{1, 1, 1, 1}, 0};
    }
    assert_int_equal(it.wrong, 0);
    assert_true(refused > 10 && refused < RUNS - 10);
    OK(weir_client_destroy(it.neighbour));
    fixture_close(&its);
}

/* ---- sequences ---------------------------------------------------------------------------------------------------- */

typedef struct guest {
    walk walk;
    pthread_t thread;
    int failed;
} guest;

static void *visit(void *user)
{
    guest *it = user;
    for (int i = 0; i < 12; i++) {
        it->walk.stop_at = next(&it->walk.seed) % 3 ? UINT64_MAX : 5;
        it->failed += run(&it->walk, 1 + next(&it->walk.seed) % 700, 1 + next(&it->walk.seed) % 30) != WEIR_OK;
    }
    return NULL;
}

static void *press_on(void *user)
{
    walk *it = user;
    while (!__atomic_load_n(&it->stop_at, __ATOMIC_ACQUIRE)) {
        void *block = NULL;
        if (weir_alloc(it->neighbour, 2 << 20, WEIR_STREAM_HOST, WEIR_CLASS_OTHER, &block) == WEIR_OK)
            (void)!weir_free(it->neighbour, block, WEIR_STREAM_HOST);
        it->pressed++;
    }
    return NULL;
}

/* Beside a neighbour who needs memory all the time; at the end the first page of each tensor is left. */
static void test_sequences_with_cancels_leave_the_first_pages(void **state)
{
    enum { GUESTS = 3 };
    (void)state;
    weir_setting settings[] = {elastic[0], elastic[1], elastic[2], elastic[3], {"sequences", "3"}};
    fixture its = fixture_open(llama_path, settings, 5);
    walk neighbour = begin(&its, 1);
    guest guests[GUESTS];
    pthread_t thread;
    uint64_t most = stats_of(&its.it).live + GUESTS * pages_of(730) * TENSORS * PAGE;
    OK(weir_runtime_set_budget(its.it.runtime, most + (2 << 20) + (1 << 20)));
    assert_int_equal(pthread_create(&thread, NULL, press_on, &neighbour), 0);
    for (int i = 0; i < GUESTS; i++) {
        guests[i] = (guest){.walk = {.its = &its, .seed = (uint64_t)i + 5, .blind = true}};
        assert_int_equal(pthread_create(&guests[i].thread, NULL, visit, &guests[i]), 0);
    }
    for (int i = 0; i < GUESTS; i++) {
        pthread_join(guests[i].thread, NULL);
        assert_int_equal(guests[i].failed + guests[i].walk.wrong, 0);
    }
    __atomic_store_n(&neighbour.stop_at, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    assert_true(neighbour.pressed > 0);
    assert_true(kv_of(&its.it) <= TENSORS * PAGE);
    assert_int_equal(stats_of(&its.it).pending, 0);
    OK(weir_client_destroy(neighbour.neighbour));
    fixture_close(&its);
}

/* ---- other architectures ------------------------------------------------------------------------------------------- */

static void tokens_of(const fixture *its, int prompt, char *text, size_t capacity)
{
    static const weir_setting settings[] = {
        {"tokens", "40"}, {"temperature", "0"}, {"ignore_eos", "1"}, {"logits", "1"}};
    int32_t tokens[PROMPT];
    for (int i = 0; i < prompt; i++)
        tokens[i] = 3 + i * 7 % 200;
    weir_tensor input = token_input(tokens, 0, prompt);
    weir_outputs outputs;
    OK(infer(its, &input, settings, 4, &outputs));
    const weir_tensor *out = output_named(&outputs, "tokens"), *logits = output_named(&outputs, "logits");
    size_t used = 0;
    for (size_t i = 0; i < out->bytes / 4; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%d ", ((const int32_t *)out->data)[i]);
    snprintf(text + used, capacity - used, "%08x", ((const uint32_t *)logits->data)[0]);
    release(its, &outputs);
}

/* What the first run has to have is foreseen: what is there from the start, and 256 cells of what grows. */
static void is_foreseen(const fixture *its, const weir_setting *settings, size_t count, uint64_t loaded, uint64_t ran)
{
    for (int quick = 0; quick < 2; quick++) {
        weir_engine_plan plan = {.struct_size = sizeof plan};
        weir_engine_load load = its->it.load;
        load.places = &its->it.place;
        load.settings = settings;
        load.setting_count = count;
        load.quick = quick;
        OK(its->it.engine->plan(&load, &plan));
        assert_true(plan.bytes[WEIR_CLASS_KV] >= loaded && plan.bytes[WEIR_CLASS_KV] <= ran);
    }
}

/* Both ways give the same answers. */
static void same_both_ways(const char *context, const char *windows, bool grows)
{
    static const int prompts[] = {5, 200, 300, 440, 30, 460};
    const weir_setting one[] = {{"context", context}, elastic[1], elastic[2], elastic[3], {"swa_full", windows}};
    const weir_setting other[] = {
        {"context", context}, elastic[1], elastic[2], {"cache_memory", "whole"}, {"swa_full", "1"}};
    fixture its = fixture_open(other_path, one, 5), whole = fixture_open(other_path, other, 5);
    uint64_t loaded = kv_of(&its.it);
    if (grows)
        assert_true(loaded < kv_of(&whole.it));
    else
        assert_true(loaded >= kv_of(&whole.it));
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
        char ours[1024], theirs[1024];
        tokens_of(&its, prompts[i], ours, sizeof ours);
        tokens_of(&whole, prompts[i], theirs, sizeof theirs);
        assert_string_equal(ours, theirs);
        if (i == 0)
            is_foreseen(&its, one, 5, loaded, kv_of(&its.it));
    }
    assert_true(kv_of(&its.it) >= loaded);
    fixture_close(&its);
    fixture_close(&whole);
}

/* Layers with a window have as many cells as the others, or so many that those which the window has left are used again: the
 * tokens are the same. */
static void test_windows_grow_and_answer_the_same(void **state)
{
    static const model_shape four = {.layers = 4, .width = 128, .heads = 2, .heads_kv = 2, .wide = 64, .context = 4096};
    (void)state;
    write_windowed(other_path, &four, 64);
    same_both_ways("2048", "1", true);
    same_both_ways("512", "1", true);
    same_both_ways("2048", "0", true);
    same_both_ways("512", "0", true);
    unlink(other_path);
}

static void test_states_of_recurrent_layers_stay_whole(void **state)
{
    (void)state;
    write_recurrent(other_path, &shape);
    same_both_ways("2048", "0", false);
    unlink(other_path);
}

static int write_model(void **state)
{
    (void)state;
    snprintf(llama_path, sizeof llama_path, "/tmp/weir-book-%d.gguf", (int)getpid());
    snprintf(other_path, sizeof other_path, "/tmp/weir-book-other-%d.gguf", (int)getpid());
    write_llama(llama_path, &shape);
    return 0;
}

static int remove_model(void **state)
{
    (void)state;
    return unlink(llama_path);
}

int main(int count, char **words)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_after_every_token_the_cache_has_the_pages_of_the_book),
        cmocka_unit_test(test_a_limit_that_just_fits_is_enough),
        cmocka_unit_test(test_sequences_with_cancels_leave_the_first_pages),
        cmocka_unit_test(test_windows_grow_and_answer_the_same),
        cmocka_unit_test(test_states_of_recurrent_layers_stay_whole),
    };
    if (count > 1)
        cmocka_set_test_filter(words[1]);
    return cmocka_run_group_tests(tests, write_model, remove_model);
}
