/* One model that leaves and comes back, and two that change places. */
#include "residency.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double gigabytes(void)
{
    return (double)asked.model_bytes / 1e9;
}

/* What a suspend with a good copy may take: 10 ms for 16 GiB, and for more in proportion. */
static double good_goal(void)
{
    double sixteens = (double)asked.model_bytes / (16384.0 * (double)MIB);
    return sixteens > 1 ? 10 * sixteens : 10;
}

/* The first suspend over the next one that copies. */
static void first_over_later(weir_runtime *runtime, const model *m)
{
    double first = suspend(m, &changed);
    why_tell("the first suspend", first);
    double back = resume(m);
    why_tell("the first resume", back);
    double second = suspend(m, &changed);
    (void)resume(m);
    line("suspend, the first time (the host's memory is made)", gigabytes() / first, "GB/s",
         gigabytes() / first / machine.out, "of the copy out");
    goal("the first suspend over the next that copies", first / second, "x", 1.2, true);
    check(runtime, m, UINT64_MAX);
}

/* Its copies are there. */
static void with_contents_changed(weir_runtime *runtime, const model *m)
{
    double outs[MOST_ROUNDS], ins[MOST_ROUNDS], last;
    for (int i = 0; i < asked.rounds; i++) {
        outs[i] = gigabytes() / (last = suspend(m, &changed));
        if (i == asked.rounds - 1)
            why_tell("the last suspend with contents changed", last);
        ins[i] = gigabytes() / (last = resume(m));
        if (i == asked.rounds - 1)
            why_tell("the last resume", last);
    }
    check(runtime, m, UINT64_MAX);
    double out = median(outs, asked.rounds), in = median(ins, asked.rounds);
    line("suspend, contents changed", out, "GB/s", out / machine.out, "of the copy out");
    line("resume, until the contents are there", in, "GB/s", in / machine.in, "of the copy in");
    goal("suspend, contents changed, of the copy out", out / machine.out, "", 0.97, false);
}

static void with_a_good_copy(weir_runtime *runtime, const model *m)
{
    double seconds[MOST_ROUNDS], calls = 0;
    for (int i = 0; i < asked.rounds; i++) {
        seconds[i] = 1e3 * suspend(m, &unwritten);
        calls = (double)why_calls();
        if (i == 0 || i == asked.rounds - 1)
            why_tell(i ? "the last suspend with a good copy" : "the first suspend with a good copy", seconds[i] / 1e3);
        (void)resume(m);
    }
    check(runtime, m, UINT64_MAX);
    double figure = median(seconds, asked.rounds);
    line("suspend, the host's copy is still good", figure, "ms", 0, NULL);
    line("calls of CUDA's driver in it", calls, "", 0, NULL);
    goal("suspend with a good copy", figure, "ms", good_goal(), true);
}

void one_model(weir_runtime *runtime)
{
    static model m;
    load(runtime, &m, "model", asked.model_bytes, 1);
    first_over_later(runtime, &m);
    with_a_good_copy(runtime, &m);
    with_contents_changed(runtime, &m);
    unload(&m);
}

/* The first kernel ------------------------------------------------------------------------------------------------- */

/* Some work behind the resume that reads what came last, on the stream on which it came. Seconds from the call of the resume to the
 * end of the work. */
static double resume_and_work(weir_runtime *runtime, const model *m, weir_block scratch, weir_stream stream)
{
    const char *last = m->blocks[0];
    for (size_t i = 1; i < m->count; i++)
        last = (const char *)m->blocks[i] > last ? m->blocks[i] : last;
    double start = now();
    MUST(weir_client_resume(m->client, stream));
    MUST(weir_copy(runtime, scratch.pointer, last, 4096, stream));
    MUST(weir_stream_synchronize(stream));
    return now() - start;
}

static weir_client *make_worker(weir_runtime *runtime, weir_block *scratch, weir_stream *stream)
{
    weir_client_options options = {.struct_size = sizeof options, .name = "works"};
    weir_request request = {.struct_size = sizeof request, .bytes = MIB};
    weir_client *client;
    MUST(weir_client_create(runtime, &options, &client));
    MUST(weir_stream_acquire(runtime, stream));
    MUST(weir_alloc_with(client, &request, scratch));
    return client;
}

static void end_worker(weir_client *client, weir_block scratch, weir_stream stream)
{
    MUST(weir_free_block(client, scratch, stream));
    MUST(weir_stream_release(stream));
    MUST(weir_client_destroy(client));
}

void first_kernel(weir_runtime *runtime)
{
    static model m;
    double rates[MOST_ROUNDS];
    weir_block scratch;
    weir_stream stream;
    weir_client *worker = make_worker(runtime, &scratch, &stream);
    load(runtime, &m, "model", asked.model_bytes, 4);
    for (int i = -1; i < asked.rounds; i++) {
        (void)suspend(&m, i < 0 ? &changed : &unwritten);
        double seconds = resume_and_work(runtime, &m, scratch, stream);
        if (i >= 0)
            rates[i] = gigabytes() / seconds;
    }
    check(runtime, &m, UINT64_MAX);
    double rate = median(rates, asked.rounds);
    line("resume, until the first work behind it is done", rate, "GB/s", rate / machine.in, "of the copy in");
    goal("resume until the first kernel, of the copy in", rate / machine.in, "", 0.97, false);
    unload(&m);
    end_worker(worker, scratch, stream);
}

/* Two models ------------------------------------------------------------------------------------------------------- */

static void *suspend_it(void *user)
{
    (void)suspend(user, &changed);
    return NULL;
}

/* There is room for both. */
void changing_places(weir_runtime *runtime)
{
    static model a, b;
    double rates[MOST_ROUNDS];
    load(runtime, &a, "one", asked.model_bytes, 2);
    load(runtime, &b, "two", asked.model_bytes, 3);
    (void)suspend(&b, &changed);
    (void)suspend(&a, &changed);
    (void)resume(&a);
    for (int i = 0; i < asked.rounds; i++) {
        model *leaves = i % 2 ? &b : &a, *comes = i % 2 ? &a : &b;
        pthread_t thread;
        double start = now();
        if (pthread_create(&thread, NULL, suspend_it, leaves) != 0)
            abort();
        double came = resume(comes);
        if (i == asked.rounds - 1)
            why_tell("the last resume while the other left", came);
        pthread_join(thread, NULL);
        rates[i] = gigabytes() / (now() - start);
    }
    double rate = median(rates, asked.rounds);
    line("two models changing places, each way at once", rate, "GB/s", rate / machine.both, "of both copies at once");
    goal("changing places, each way", rate, "GB/s", 46, false);
    (void)resume(asked.rounds % 2 ? &a : &b);
    check(runtime, &a, UINT64_MAX);
    check(runtime, &b, UINT64_MAX);
    unload(&a);
    unload(&b);
}

/* The same with room for one of them: each piece that has left makes room for one that comes. */
#if __has_include(<weir/exchange.h>)
#include <weir/exchange.h>

static double exchange(const model *leaves, const model *comes, const weir_suspend_options *options)
{
    why_clear();
    double start = now();
    MUST(weir_client_exchange(leaves->client, options, comes->client, WEIR_STREAM_HOST, NULL));
    return now() - start;
}

void exchanging_places(weir_runtime *runtime)
{
    static model pair[2];
    double rates[MOST_ROUNDS];
    load(runtime, &pair[0], "one", asked.model_bytes, 7);
    (void)suspend(&pair[0], &changed);
    load(runtime, &pair[1], "two", asked.model_bytes, 8);
    (void)exchange(&pair[1], &pair[0], &changed); /* the host's memory is there from now on */
    for (int i = 0; i < asked.rounds; i++) {
        double seconds = exchange(&pair[i % 2], &pair[(i + 1) % 2], &changed);
        rates[i] = gigabytes() / seconds;
        if (i == asked.rounds - 1)
            why_tell("the last exchange", seconds);
        check(runtime, &pair[(i + 1) % 2], UINT64_MAX);
    }
    double rate = median(rates, asked.rounds), beyond = 1e3 * (gigabytes() / rate - gigabytes() / machine.in);
    line("two models exchanged with room for one, each way", rate, "GB/s", rate / machine.both,
         "of both copies at once");
    line("  beyond the bytes of the one that comes over the link", beyond, "ms", 0, NULL);
    goal("exchanged with room for one, each way", rate, "GB/s", 46, false);
    goal("B comes, A has changed and leaves in the same window, beyond the link", beyond, "ms", 30, true);
    model *here = &pair[asked.rounds % 2], *away = &pair[(asked.rounds + 1) % 2];
    unload(here);
    (void)resume(away);
    check(runtime, away, UINT64_MAX);
    unload(away);
}
#else
void exchanging_places(weir_runtime *runtime)
{
    (void)runtime;
    printf("two models exchanged: skipped, this weir has no weir/exchange.h\n");
}
#endif

/* A is asked, then B ----------------------------------------------------------------------------------------------- */

static struct asking {
    const model *here;
    const weir_suspend_options *options;
} asking;

static void let_leave(const weir_pressure *pressure, void *user)
{
    const struct asking *a = user;
    weir_residency r = {.struct_size = sizeof r};
    if (!a->here || a->here->client == pressure->client)
        return;
    MUST(weir_client_residency(a->here->client, &r));
    if (r.state == WEIR_RESIDENT)
        (void)suspend(a->here, a->options);
}

/* Milliseconds beyond B's bytes over the link until B's first work is done, with room for one of them. A leaves when B asks for
 * memory. */
static double asked_by_turns(weir_runtime *runtime, model *pair, const weir_suspend_options *options)
{
    double beyond[MOST_ROUNDS], link = gigabytes() / machine.in;
    weir_block scratch;
    weir_stream stream;
    weir_client *worker = make_worker(runtime, &scratch, &stream);
    for (int i = 0; i < asked.rounds; i++) {
        model *comes = &pair[(i + 1) % 2];
        asking = (struct asking){&pair[i % 2], options};
        beyond[i] = 1e3 * (resume_and_work(runtime, comes, scratch, stream) - link);
        check(runtime, comes, UINT64_MAX);
    }
    if (asked.rounds % 2) { /* the first one is there again */
        asking = (struct asking){&pair[1], &unwritten};
        (void)resume(&pair[0]);
    }
    end_worker(worker, scratch, stream);
    return median(beyond, asked.rounds);
}

void is_asked(weir_runtime *runtime)
{
    static model pair[2];
    uint64_t id;
    MUST(weir_pressure_register(runtime, 0, let_leave, &asking, &id));
    load(runtime, &pair[0], "one", asked.model_bytes, 5);
    (void)suspend(&pair[0], &changed);
    load(runtime, &pair[1], "two", asked.model_bytes, 6);
    asking = (struct asking){&pair[1], &changed};
    (void)resume(&pair[0]);
    double good = asked_by_turns(runtime, pair, &unwritten), copies = asked_by_turns(runtime, pair, &changed);
    line("A is here with a good copy, B is asked: B's first work", good, "ms", 0, NULL);
    line("A is here and has changed, B is asked: B's first work", copies, "ms", 0, NULL);
    printf("  (each beyond B's bytes over the link, %.1f ms)\n", 1e3 * gigabytes() / machine.in);
    goal("B's first work beyond the link, A has a good copy", good, "ms", 30, true);
    asking = (struct asking){&pair[0], &unwritten};
    (void)resume(&pair[1]);
    unload(&pair[1]);
    asking.here = NULL;
    (void)resume(&pair[0]);
    check(runtime, &pair[0], UINT64_MAX);
    unload(&pair[0]);
    MUST(weir_pressure_unregister(runtime, id));
}

/* Small pages ------------------------------------------------------------------------------------------------------ */

enum { PAGE = 64 << 10, PAGES = 16384 };

static void check_pages(weir_runtime *runtime, void *const *pages, int count)
{
    static unsigned char seen[PAGE];
    for (int i = 0; i < count; i += 2) {
        memset(seen, i + 1, PAGE);
        MUST(weir_copy(runtime, seen, pages[i], PAGE, WEIR_STREAM_HOST));
        if (seen[0] != i % 256 || memcmp(seen, seen + 1, PAGE - 1) != 0) {
            fprintf(stderr, "bench-residency: page %d holds other bytes\n", i);
            exit(1);
        }
    }
}

/* Pages of 64 KiB of which every other one is not kept, so that each is a copy of its own. */
void small_pages(weir_runtime *runtime)
{
    static void *pages[2 * PAGES];
    weir_client_options options = {.struct_size = sizeof options, .name = "pages"};
    weir_suspend_options drops = {.struct_size = sizeof drops, .drop = WEIR_CLASS_BIT(WEIR_CLASS_SCRATCH)};
    double outs[MOST_ROUNDS], ins[MOST_ROUNDS];
    int count = asked.model_bytes < 1024 * MIB ? (int)(asked.model_bytes / PAGE) : PAGES;
    model m = {.bytes = (uint64_t)count * 2 * PAGE};
    MUST(weir_client_create(runtime, &options, &m.client));
    for (int i = 0; i < 2 * count; i++) {
        MUST(weir_alloc(m.client, PAGE, WEIR_STREAM_HOST, i % 2 ? WEIR_CLASS_SCRATCH : WEIR_CLASS_KV, &pages[i]));
        MUST(weir_fill(runtime, pages[i], (uint8_t)i, PAGE, WEIR_STREAM_HOST));
    }
    for (int i = -1; i < asked.rounds; i++) {
        double out = suspend(&m, &drops);
        if (i == asked.rounds - 1)
            why_tell("the last suspend of pages", out);
        double in = resume(&m);
        if (i == asked.rounds - 1)
            why_tell("the last resume of pages", in);
        if (i >= 0) {
            outs[i] = (double)count * PAGE / 1e9 / out;
            ins[i] = (double)count * PAGE / 1e9 / in;
        }
    }
    check_pages(runtime, pages, 2 * count);
    double out = median(outs, asked.rounds), in = median(ins, asked.rounds);
    line("pages of 64 KiB, every other one kept: out", out, "GB/s", out / machine.out, "of the copy out");
    line("pages of 64 KiB, every other one kept: in", in, "GB/s", in / machine.in, "of the copy in");
    goal("64 KiB pages of 1 GiB, the slower way", out < in ? out : in, "GB/s", 30, false);
    for (int i = 0; i < 2 * count; i++)
        MUST(weir_free(m.client, pages[i], WEIR_STREAM_HOST));
    MUST(weir_client_destroy(m.client));
}
