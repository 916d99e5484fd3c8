/* What a user may choose for a model and for a run (model.h).
 *
 * Defaults. prepack=on: without it the MLAS kernels repack their weights in every run, a third slower on short inputs.
 * optimization=extended on host: the levels above only rewrite the weights of convolutions into another layout, and do
 * that on the heap, outside the client's account; "all" suits models that spend most of a run in convolutions. On cuda
 * they cost nothing. */
#include "model.h"
#include "foresee.h"
#include <weir/engine.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KNOWN                                                                                                          \
    "prepack=on|off, weights=ours|engine, outside=told|counted, memory_pattern=on|off, dims=NAME=N,…, "              \
    "optimization=disable|basic|extended|layout|all "                                                                  \
    "(0|1|2|-|3, 99), threads=0..256, concurrency=0..256 (on cuda to 64), buckets=1..64, "                             \
    "bucket_granularity=1..1048576, "                                                                                  \
    "bucket_dims=1..16, max_batch_size=0..1024, max_queue_delay_microseconds=0..60000000, cpu_arena=off, "             \
    "cpu_fallback=on|off, "                                                                                            \
    "provider=tensorrt|cuda|rocm|coreml|directml|openvino|cpu and PROVIDER.OPTION=VALUE for its own options; on cuda " \
    "also cuda_graph=on|off"

typedef struct choice {
    const char *word;
    int value;
} choice;

static const choice switches[] = {{"on", 1}, {"off", 0}, {NULL, 0}};
static const choice outsides[] = {{"told", 0}, {"counted", 1}, {NULL, 0}};
static const choice owners[] = {{"ours", 1}, {"engine", 0}, {NULL, 0}};
/* "3" means "all", like "99": ONNX Runtime's own level 3, "layout", is lower. */
static const choice levels[] = {{"disable", 0}, {"0", 0},    {"basic", 1}, {"1", 1},   {"extended", 2}, {"2", 2},
                                {"layout", 3},  {"all", 99}, {"3", 99},    {"99", 99}, {NULL, 0}};
static const choice places[] = {{"host", 0}, {"device", 1}, {NULL, 0}};

/* In any case, as manifests and the choice take words. */
static bool onnx_settings_choose(const choice *choices, const char *value, int *out)
{
    for (; choices->word; choices++)
        if (strcasecmp(choices->word, value) == 0) {
            *out = choices->value;
            return true;
        }
    return false;
}

static bool onnx_settings_read_number(const char *value, int least, int most, int *out)
{
    char *end;
    long number = strtol(value, &end, 10);
    *out = (int)number;
    return value[0] >= '0' && value[0] <= '9' && *end == 0 && number >= least && number <= most;
}

/* ---- the providers' own options ---------------------------------------------------------------------------------- */

const char *onnx_setting_option(const weir_setting *setting, const char *provider)
{
    size_t length = strlen(provider);
    if (!setting->key || strncmp(setting->key, provider, length) != 0 || setting->key[length] != '.')
        return NULL;
    return setting->key + length + 1;
}

/* Text that a provider reads as an address, and follows: a wrong one ends the process, and no text of a user's can be
 * right. */
static bool is_pointer(onnx_text option)
{
    static const char pointers[] =
        "user_compute_stream gpu_external_alloc gpu_external_free gpu_external_empty_cache migraphx_external_alloc "
        "migraphx_external_free migraphx_external_empty_cache default_memory_arena_cfg trt_onnx_bytestream "
        "trt_onnx_bytestream_size trt_external_data_bytestream trt_external_data_bytestream_size context";
    return onnx_text_among(option, pointers);
}

/* Of CUDA's: those that would take the order of streams, or memory, out of weir's hands. */
static weir_status check_cuda_option(const weir_setting *setting, onnx_text option)
{
    static const char weirs[] =
        "device_id user_compute_stream has_user_compute_stream do_copy_in_default_stream "
        "use_ep_level_unified_stream enable_cuda_graph trt_cuda_graph_enable gpu_external_alloc gpu_external_free "
        "gpu_external_empty_cache";
    static const char arenas[] = "gpu_mem_limit arena_extend_strategy default_memory_arena_cfg";
    if (onnx_text_among(option, weirs))
        return weir_fail(WEIR_ERR_INVALID, "setting %s: weir sets that option itself; known: " KNOWN, setting->key);
    if (onnx_text_among(option, arenas))
        return weir_fail(WEIR_ERR_INVALID,
                         "setting %s: it is for ONNX Runtime's own arena, which weir's memory replaces; limit the "
                         "client instead (its maximum)",
                         setting->key);
    return WEIR_OK;
}

/* What nobody would read. */
static weir_status check_option(const weir_setting *setting, onnx_provider owner, const char *option)
{
    int ordinal;
    onnx_text its = {option, strlen(option)};
    weir_status status = owner == ONNX_CUDA || owner == ONNX_TENSORRT ? check_cuda_option(setting, its) : WEIR_OK;
    if (status == WEIR_OK && is_pointer(its))
        return weir_fail(WEIR_ERR_INVALID,
                         "setting %s: its value is an address in this process, which a text cannot name; leave it out",
                         setting->key);
    if (status != WEIR_OK || owner == ONNX_CUDA || owner == ONNX_TENSORRT)
        return status;
    if (owner == ONNX_CPU)
        return weir_fail(WEIR_ERR_INVALID, "setting %s: the provider cpu has no options of its own; known: " KNOWN,
                         setting->key);
    if (owner == ONNX_DIRECTML &&
        (strcmp(option, "device_id") != 0 || !onnx_settings_read_number(setting->value, 0, INT_MAX, &ordinal)))
        return weir_fail(WEIR_ERR_INVALID, "setting %s: directml has the option device_id alone, a number from 0",
                         setting->key);
    return WEIR_OK;
}

/* An option of a provider that does not run the model would do nothing. */
static weir_status onnx_settings_check_owner(const weir_setting *setting, bool cuda, onnx_provider runs, bool *taken)
{
    *taken = false;
    for (int i = 0; i < ONNX_PROVIDERS; i++) {
        onnx_provider owner = (onnx_provider)i;
        const char *option = onnx_setting_option(setting, onnx_provider_name(owner));
        bool of_cuda = owner == ONNX_CUDA || owner == ONNX_TENSORRT;
        if (!option)
            continue;
        *taken = true;
        if (of_cuda && !cuda)
            return weir_fail(WEIR_ERR_INVALID, "setting %s: the model is on host; known: " KNOWN, setting->key);
        weir_status status = check_option(setting, owner, option);
        if (status != WEIR_OK || owner == runs || (owner == ONNX_CUDA && runs == ONNX_TENSORRT))
            return status;
        return weir_fail(WEIR_ERR_INVALID, "setting %s: %s does not run the model; set provider=%s, too", setting->key,
                         onnx_provider_name(owner), onnx_provider_name(owner));
    }
    return WEIR_OK;
}

/* ---- which provider ---------------------------------------------------------------------------------------------- */

static weir_status onnx_settings_find_provider(const char *name, onnx_provider *out)
{
    return onnx_provider_find(name, out)
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID,
                           "the engine onnx has no provider \"%s\"; it has tensorrt, cuda, rocm, coreml, "
                           "directml, openvino and cpu",
                           name);
}

/* Weir's memory of CUDA's devices is what tells their two providers from the others, which begin on the host. */
static weir_status choose_provider(const weir_setting *settings, size_t count, bool cuda, const char *asked,
                                   onnx_provider *out)
{
    const char *set = NULL;
    onnx_provider other;
    *out = cuda ? ONNX_CUDA : ONNX_CPU;
    for (size_t i = 0; i < count; i++)
        if (settings[i].key && settings[i].value && strcmp(settings[i].key, "provider") == 0)
            set = settings[i].value;
    weir_status status = set ? onnx_settings_find_provider(set, out) : WEIR_OK;
    other = *out;
    if (status == WEIR_OK && asked)
        status = onnx_settings_find_provider(asked, out);
    if (status != WEIR_OK)
        return status;
    if (set && asked && other != *out)
        return weir_fail(WEIR_ERR_INVALID,
                         "setting provider=%s: the load asks for the provider %s; leave one of them out", set, asked);
    bool of_cuda = *out == ONNX_CUDA || *out == ONNX_TENSORRT;
    if (of_cuda && !cuda)
        return weir_fail(WEIR_ERR_INVALID,
                         "provider %s: the model is on host, and it runs models on cuda: ask for the device cuda:0",
                         onnx_provider_name(*out));
    return of_cuda == cuda
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID,
                           "provider %s: the model is on cuda, and it runs models on host: ask for the device host",
                           onnx_provider_name(*out));
}

/* ---- a model's --------------------------------------------------------------------------------------------------- */

enum {
    PREPACK,
    OURS,
    OUTSIDE,
    PATTERN,
    LEVEL,
    THREADS,
    GRAPH,
    ARENA,
    FALLBACK,
    CONCURRENCY,
    BUCKETS,
    GRANULARITY,
    BUCKET_DIMS,
    BATCH,
    BATCH_DELAY,
    KEYS
};

enum { UNSET = -1 };

static const struct key {
    const char *name;
    const choice *choices; /* NULL: a number */
    int least, most;
} keys[KEYS] = {
    [PREPACK] = {"prepack", switches, 0, 0},
    [OURS] = {"weights", owners, 0, 0},
    [OUTSIDE] = {"outside", outsides, 0, 0},
    [PATTERN] = {"memory_pattern", switches, 0, 0},
    [LEVEL] = {"optimization", levels, 0, 0},
    [THREADS] = {"threads", NULL, 0, 256},
    [GRAPH] = {"cuda_graph", switches, 0, 0},
    [ARENA] = {"cpu_arena", switches, 0, 0},
    [FALLBACK] = {"cpu_fallback", switches, 0, 0},
    [CONCURRENCY] = {"concurrency", NULL, 0, 256},
    [BUCKETS] = {"buckets", NULL, 1, 64},
    [GRANULARITY] = {"bucket_granularity", NULL, 1, 1 << 20},
    [BUCKET_DIMS] = {"bucket_dims", NULL, 1, WEIR_MAX_RANK},
    [BATCH] = {"max_batch_size", NULL, 0, ONNX_BATCH_MOST},
    [BATCH_DELAY] = {"max_queue_delay_microseconds", NULL, 0, 60000000},
};

static weir_status onnx_settings_read_one(const weir_setting *setting, bool cuda, onnx_provider runs, int *values)
{
    if (!setting->key || !setting->value)
        return weir_fail(WEIR_ERR_INVALID, "a setting without key or value; known: " KNOWN);
    bool taken;
    weir_status status = onnx_settings_check_owner(setting, cuda, runs, &taken);
    if (taken || strcmp(setting->key, "provider") == 0)
        return status;
    if (strcmp(setting->key, "dims") == 0) /* of predictions alone */
        return onnx_dims_good(setting->value)
                   ? WEIR_OK
                   : weir_fail(
                         WEIR_ERR_INVALID,
                         "setting dims: \"%.80s\" is no list of sizes of open dimensions, as batch=1,sequence=128",
                         setting->value);
    for (int i = 0; i < KEYS; i++) {
        const struct key *key = &keys[i];
        if (strcmp(key->name, setting->key) != 0)
            continue;
        bool good = key->choices ? onnx_settings_choose(key->choices, setting->value, &values[i])
                                 : onnx_settings_read_number(setting->value, key->least, key->most, &values[i]);
        return good ? WEIR_OK
                    : weir_fail(WEIR_ERR_INVALID, "setting %s: \"%s\" is no value of it; known: " KNOWN, setting->key,
                                setting->value);
    }
    return weir_fail(WEIR_ERR_INVALID, "the engine onnx has no setting \"%s\"; known: " KNOWN, setting->key);
}

static weir_status onnx_settings_nothing(int key, const char *why)
{
    return weir_fail(WEIR_ERR_INVALID, "setting %s: %s", keys[key].name, why);
}

/* On cuda each run at a time takes a session of its own. */
static weir_status onnx_settings_check_slots(const int *values, onnx_provider runs)
{
    if (values[CONCURRENCY] > ONNX_SLOTS_MOST)
        return weir_fail(WEIR_ERR_INVALID,
                         "setting %s: on cuda each run at a time has a session of its own, and %d are the most",
                         keys[CONCURRENCY].name, ONNX_SLOTS_MOST);
    if (runs != ONNX_CUDA)
        return onnx_settings_nothing(CONCURRENCY,
                                     "the provider compiles the weights into each session, so that they cannot be "
                                     "shared; on its device runs are served one after another");
    if (values[GRAPH])
        return onnx_settings_nothing(CONCURRENCY,
                                     "with cuda_graph=on one thread launches the model's graphs, one after another; "
                                     "leave one of them out");
    if (values[OURS] == 0)
        return onnx_settings_nothing(CONCURRENCY, "with weights=engine each session would have weights of its own");
    return WEIR_OK;
}

/* Refuses settings that would have no effect, or the opposite effect. */
static weir_status check_sense(const int *values, bool cuda, onnx_provider runs)
{
    bool several = values[BUCKETS] > 1;
    weir_status status = WEIR_OK;
    if (values[GRAPH] && !cuda)
        return onnx_settings_nothing(GRAPH, "the model is on host; known: " KNOWN);
    if (values[ARENA] == 1)
        return onnx_settings_nothing(ARENA, "there is no arena to turn on: the client's memory is in its place");
    if (values[FALLBACK] == 0 && runs == ONNX_CPU)
        return onnx_settings_nothing(FALLBACK, "the provider is the CPU itself");
    if (runs != ONNX_CPU && !cuda && values[OURS] == 1)
        return onnx_settings_nothing(OURS, "the provider takes copies of its own; only weights=engine is possible");
    if (cuda && values[CONCURRENCY] > 1)
        status = onnx_settings_check_slots(values, runs);
    if (status != WEIR_OK)
        return status;
    if (several && runs != ONNX_CPU && runs != ONNX_CUDA)
        return onnx_settings_nothing(
            BUCKETS, "the provider compiles the weights into each session, so that they cannot be shared; "
                     "sessions by shape are for cpu and cuda");
    if (several && values[GRAPH])
        return onnx_settings_nothing(BUCKETS, "with cuda_graph=on each set of shapes has a graph of its own already");
    if (several && values[PREPACK] == 1 && !cuda)
        return onnx_settings_nothing(BUCKETS, "with prepack=on each session would have weights of its own");
    if (several && values[OURS] == 0)
        return onnx_settings_nothing(BUCKETS, "with weights=engine each session would have weights of its own");
    if (values[BATCH] > 1 && values[GRAPH])
        return onnx_settings_nothing(BATCH, "with cuda_graph=on each size of a batch would take a graph of its own");
    if (values[BATCH] <= 1 && values[BATCH_DELAY] != UNSET)
        return onnx_settings_nothing(BATCH_DELAY, "it takes max_batch_size=2 or more");
    if (!several && (values[GRANULARITY] != UNSET || values[BUCKET_DIMS] != UNSET))
        return onnx_settings_nothing(values[GRANULARITY] != UNSET ? GRANULARITY : BUCKET_DIMS,
                                     "it takes buckets=2 or more");
    return WEIR_OK;
}

static weir_status check_count(const weir_setting *settings, size_t count)
{
    return settings || count == 0
               ? WEIR_OK
               : weir_fail(WEIR_ERR_INVALID, "%zu settings are announced, and there are none", count);
}

static int either(int value, int usual)
{
    return value == UNSET ? usual : value;
}

/* Without prepacking, ONNX Runtime's memory pattern reserves a block as large as the weights left in the file, and
 * never writes to it (seen in 1.23 to 1.31). Core ML takes fewer of the nodes that the optimizer makes. On cuda two
 * runs at once on the stream that the provider was given share its handle of cuBLAS, and now and then compute with
 * another precision (seen with 1.31.1 and TF32). The device would execute the two runs one after another anyway. So
 * runs at the same time have separate sessions with separate streams. */
static void onnx_settings_fill_in(const int *values, bool cuda, onnx_provider runs, onnx_settings *out)
{
    int level = either(values[LEVEL], cuda ? 99 : 2);
    *out = (onnx_settings){
        .provider = runs,
        .prepack = either(values[PREPACK], cuda || values[BUCKETS] <= 1),
        .ours = either(values[OURS], runs == ONNX_CPU || cuda),
        .outside_counts = values[OUTSIDE] == 1,
        .pattern_open = values[PATTERN] == UNSET,
        .level_open = values[LEVEL] == UNSET,
        .optimization = runs == ONNX_COREML && level > 1 ? 1 : level,
        .threads = values[THREADS],
        .cuda_graph = values[GRAPH],
        .cpu_fallback = values[FALLBACK] != 0,
        .cpu_arena_off = values[ARENA] == 0,
        .concurrency = cuda && values[CONCURRENCY] == 0 ? 1 : values[CONCURRENCY],
        .buckets = values[BUCKETS],
        .granularity = either(values[GRANULARITY], 64),
        .bucket_dims = either(values[BUCKET_DIMS], 4),
        .batch = either(values[BATCH], 0),
        .batch_delay = either(values[BATCH_DELAY], 0),
    };
    out->memory_pattern = either(values[PATTERN], out->prepack);
}

weir_status onnx_settings_read(const weir_setting *settings, size_t count, bool cuda, const char *provider,
                               onnx_settings *out)
{
    int values[KEYS];
    onnx_provider runs;
    for (int i = 0; i < KEYS; i++)
        values[i] = UNSET;
    values[THREADS] = values[GRAPH] = values[CONCURRENCY] = 0;
    values[BUCKETS] = 1;
    weir_status status = check_count(settings, count);
    if (status == WEIR_OK)
        status = choose_provider(settings, count, cuda, provider, &runs);
    for (size_t i = 0; status == WEIR_OK && i < count; i++)
        status = onnx_settings_read_one(&settings[i], cuda, runs, values);
    if (status == WEIR_OK)
        status = check_sense(values, cuda, runs);
    if (status == WEIR_OK)
        onnx_settings_fill_in(values, cuda, runs, out);
    return status;
}

bool onnx_settings_outside(const onnx_settings *settings)
{
    return settings->provider != ONNX_CPU && settings->provider != ONNX_CUDA && settings->provider != ONNX_TENSORRT;
}

/* ---- a run's ----------------------------------------------------------------------------------------------------- */

#define KNOWN_OF_RUNS "outputs=host|device"

static weir_status read_run_setting(const weir_setting *setting, int *outputs)
{
    const char *key = setting->key ? setting->key : "", *value = setting->value ? setting->value : "";
    if (strcmp(key, "outputs") == 0)
        return onnx_settings_choose(places, value, outputs)
                   ? WEIR_OK
                   : weir_fail(WEIR_ERR_INVALID, "setting outputs: \"%s\" is no value of it; " KNOWN_OF_RUNS, value);
    /* It would fail every run: ONNX Runtime looks for an arena of its own. There is nothing to shrink, weir keeps no
     * arena for a session. */
    if (strcmp(key, "memory.enable_memory_arena_shrinkage") == 0)
        return WEIR_OK;
    if (strcmp(key, "disable_synchronize_execution_providers") == 0)
        return weir_fail(WEIR_ERR_INVALID,
                         "setting %s: outputs would be handed out while the device still writes them; "
                         "known: " KNOWN_OF_RUNS,
                         key);
    return weir_fail(WEIR_ERR_INVALID, "a run of the engine onnx has no setting \"%s\"; known: " KNOWN_OF_RUNS, key);
}

weir_status onnx_run_settings_read(const weir_setting *settings, size_t count, onnx_run_settings *out)
{
    int outputs = 0;
    weir_status status = check_count(settings, count);
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = read_run_setting(&settings[i], &outputs);
    if (status == WEIR_OK)
        out->device_outputs = outputs != 0;
    return status;
}

/* ---- the level of optimization ---------------------------------------------------------------------------------------- */

/* tests/cli/test_odd_models.py notices when a version computes rightly what is said here to be wrong. */
int onnx_level_right(const onnx_file *file, int level, const char **why)
{
    enum { BASIC = 1 };
    bool lower = file->two_bits && level > BASIC;
    *why =
        lower
            ? "optimization=basic, as ONNX Runtime from extended on multiplies wrongly by 2-bit weights whose columns "
              "are no multiple of 4"
            : "";
    return lower ? BASIC : level;
}
