/* Sessions by shape over one set of weights: that they answer as one session does, and what they take. */
#include <stdio.h>
#include <stdlib.h>

#include "onnx/engine/model.h"
#include "gpu.h"

static uint64_t weights(const served *s)
{
    weir_client_stats stats = {.struct_size = sizeof stats};
    must(weir_client_info(s->client, &stats), "statistics");
    return stats.live_class[WEIR_CLASS_WEIGHTS];
}

/* buckets MODEL REST COUNT ROUNDS: batches of 1 to COUNT by turns, each by a session of its own, and by one session. */
int part_buckets(const bed *b, int argc, char **argv)
{
    check(argc == 4, "buckets MODEL REST COUNT ROUNDS");
    unsigned long count = strtoul(argv[2], NULL, 10), rounds = strtoul(argv[3], NULL, 10), different = 0;
    char setting[32];
    double most = 0;
    served many, one = serve(b, argv[0]);
    snprintf(setting, sizeof setting, "buckets=%lu", count);
    must(serve_try(b, argv[0], 0, (const char *const[]){setting, NULL}, &many), argv[0]);
    uint64_t of_one = weights(&one);
    double start = seconds();
    for (unsigned long i = 0; i < rounds * count; i++) {
        question q, same_q;
        answer wanted, got;
        shape form = {1 + (int64_t)(i % count), strtoll(argv[1], NULL, 10)};
        ask(&one, form, &q);
        run(&one, &q, &wanted);
        ask(&many, form, &same_q);
        run(&many, &same_q, &got);
        different += !same(&wanted, &got, &most);
        free(wanted.values);
        free(got.values);
        ask_end(&q);
        ask_end(&same_q);
    }
    onnx_bucket_stats stats = onnx_buckets_look(many.model);
    uint64_t of_many = weights(&many);
    printf("{\"part\": \"buckets\", \"model\": \"%s\", \"sessions\": %zu, \"failed\": %llu, \"seconds\": %.2f, "
           "\"weights\": %llu, \"weights_of_one\": %llu, \"different\": %lu, \"most_different\": %.3g}\n",
           one.name, stats.now + 1, (unsigned long long)stats.failed, seconds() - start, (unsigned long long)of_many,
           (unsigned long long)of_one, different, most);
    serve_end(&many);
    serve_end(&one);
    check(live(b) == 0, "the ledger is not back at zero");
    check(stats.now + 1 == count && stats.failed == 0, "not every bucket has a session");
    return most < 1e-3 ? 0 : 1;
}
