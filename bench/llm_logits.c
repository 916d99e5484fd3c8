/* See llm_logits.h. The plug-in gives GenAI a table of ONNX Runtime's functions (src/engines/llm/table.c); its Run is replaced. */
#include "llm_logits.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/bridge/api.h"

enum { ANY_DIRECTION = 4, MOST_SEQUENCES = 64, RANKS = 4, FLOATS = 1, HALVES = 10, LONGS = 7 };

static const ort_api *real;
static __typeof__(((ort_api *)NULL)->Run) run_real;
static int (*copy_any)(void *to, const void *from, size_t bytes, int direction); /* NULL: all memory is the host's */
static int (*settle)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const llm_wanted *wanted;
static llm_seen seen;
static int sequence_of[MOST_SEQUENCES];     /* of a row of a static batch, or -1 */
static int made[MOST_SEQUENCES];            /* tokens of a sequence there */
static int32_t first_block[MOST_SEQUENCES]; /* of a sequence in a paged cache, or -1 */

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* A copy on the host, of free(). */
typedef struct tensor {
    void *data;
    int type;
    size_t rank;
    int64_t extents[RANKS];
} tensor;

static size_t bytes_of(const tensor *it)
{
    size_t bytes = it->type == HALVES ? 2 : it->type == LONGS ? 8 : 4;
    for (size_t i = 0; i < it->rank; i++)
        bytes *= (size_t)it->extents[i];
    return bytes;
}

static bool failed(ort_status *status)
{
    if (status)
        real->ReleaseStatus(status);
    return status != NULL;
}

static bool read_shape(const ort_value *value, tensor *to)
{
    ort_shape_info *info = NULL;
    if (failed(real->GetTensorTypeAndShape(value, &info)))
        return false;
    bool good = !failed(real->GetTensorElementType(info, &to->type)) &&
                !failed(real->GetDimensionsCount(info, &to->rank)) && to->rank <= RANKS &&
                !failed(real->GetDimensions(info, to->extents, to->rank));
    real->ReleaseTensorTypeAndShapeInfo(info);
    return good;
}

static tensor read_tensor(const ort_value *value)
{
    tensor it = {0};
    void *from = NULL;
    if (!value || !read_shape(value, &it) || failed(real->GetTensorMutableData((ort_value *)value, &from)))
        return (tensor){0};
    size_t bytes = bytes_of(&it);
    it.data = malloc(bytes ? bytes : 1);
    if (it.data && copy_any && (settle() != 0 || copy_any(it.data, from, bytes, ANY_DIRECTION) != 0)) {
        free(it.data);
        it.data = NULL;
    } else if (it.data && !copy_any) {
        memcpy(it.data, from, bytes);
    }
    return it;
}

static tensor read_named(const char *name, const char *const *names, const ort_value *const *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return read_tensor(values[i]);
    return (tensor){0};
}

static float half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                 : exponent     ? ldexpf((float)(fraction | 1024), exponent - 25)
                                : ldexpf((float)fraction, -24);
    return bits >> 15 ? -size : size;
}

/* Whether a float16 could be it. Models that compute in float16 may hand out their logits as floats. */
static bool is_half(float value)
{
    float scaled = ldexpf(value, fabsf(value) < 0x1p-14f ? 24 : 10 - ilogbf(value));
    return !isfinite(value) || value == 0 || (fabsf(value) <= 65504 && scaled == truncf(scaled));
}

/* ---- which logits they are --------------------------------------------------------------------------------------- */

/* `row`: of words, in the logits. */
static void keep(int sequence, int token, const tensor *logits, size_t row)
{
    int words = (int)logits->extents[logits->rank - 1];
    size_t rows = (size_t)wanted->sequences * (size_t)wanted->tokens;
    seen.unknown += sequence < 0;
    if (sequence < 0 || token < 0 || token >= wanted->tokens || (seen.words && seen.words != words))
        return;
    if (!seen.logits) {
        seen.words = words;
        seen.half = true;
        seen.logits = malloc(rows * (size_t)words * sizeof *seen.logits);
        for (size_t i = 0; seen.logits && i < rows * (size_t)words; i++)
            seen.logits[i] = NAN;
    }
    if (!seen.logits)
        return;
    float *to = seen.logits + ((size_t)sequence * (size_t)wanted->tokens + (size_t)token) * (size_t)words;
    for (int i = 0; i < words; i++) {
        to[i] = logits->type == HALVES ? half(((const uint16_t *)logits->data)[row * (size_t)words + (size_t)i])
                                       : ((const float *)logits->data)[row * (size_t)words + (size_t)i];
        seen.half = seen.half && is_half(to[i]);
    }
}

/* Whose prompt has these from `past` on; -1: nobody's. GenAI's tokens are of 64 bits, or of 32. */
static int whose(const tensor *ids, size_t from, size_t past, size_t count)
{
    for (int i = 0; i < wanted->sequences; i++) {
        bool same = count > 0 && past + count <= (size_t)wanted->after;
        for (size_t k = 0; same && k < count; k++) {
            int64_t id =
                ids->type == LONGS ? ((const int64_t *)ids->data)[from + k] : ((const int32_t *)ids->data)[from + k];
            same = id == wanted->prompts[i][past + k];
        }
        if (same)
            return i;
    }
    return -1;
}

/* Sequences are rows, which are in step. */
static void look_padded(const tensor *ids, const tensor *logits)
{
    size_t rows = (size_t)ids->extents[0], columns = (size_t)ids->extents[1];
    if (rows > MOST_SEQUENCES || logits->rank != 3 || (size_t)logits->extents[0] != rows)
        return;
    for (size_t i = 0; i < rows; i++) {
        if (columns > 1) {
            sequence_of[i] = whose(ids, i * columns, 0, columns);
            made[i] = 0;
        }
        size_t last = (i + 1) * (size_t)logits->extents[1] - 1;
        keep(sequence_of[i], made[i]++, logits, last);
    }
}

static int whose_block(int32_t block)
{
    for (int i = 0; i < wanted->sequences; i++)
        if (first_block[i] == block)
            return i;
    return -1;
}

/* Sequences follow one another; each is known by the first block of its keys and values. */
static void look_paged(const tensor *ids, const tensor *ends, const tensor *past, const tensor *blocks,
                       const tensor *logits)
{
    if (logits->rank != 2 || blocks->rank != 2 || !ends->data || !past->data || !blocks->data)
        return;
    for (int64_t i = 0; i < logits->extents[0] && i < past->extents[0]; i++) {
        const int32_t *end = (const int32_t *)ends->data + i;
        int32_t before = ((const int32_t *)past->data)[i], count = end[1] - end[0];
        int32_t block = ((const int32_t *)blocks->data)[i * blocks->extents[1]];
        if (count <= 0)
            continue;
        if (before + count <= wanted->after) {
            int sequence = whose(ids, (size_t)end[0], (size_t)before, (size_t)count), was = whose_block(block);
            if (was >= 0)
                first_block[was] = -1;
            if (sequence >= 0)
                first_block[sequence] = block;
        }
        keep(whose_block(block), before + count - wanted->after, logits, (size_t)i);
    }
}

static void look(const char *const *in, const ort_value *const *inputs, size_t in_count, const char *const *out,
                 const ort_value *const *outputs, size_t out_count)
{
    tensor logits = read_named("logits", out, outputs, out_count), ids = read_named("input_ids", in, inputs, in_count);
    if (logits.data && ids.data && logits.rank > 0 && (logits.type == FLOATS || logits.type == HALVES)) {
        seen.steps++;
        if (ids.rank == 2) {
            look_padded(&ids, &logits);
        } else {
            tensor ends = read_named("cumulative_sequence_lengths", in, inputs, in_count);
            tensor past = read_named("past_sequence_lengths", in, inputs, in_count);
            tensor blocks = read_named("block_table", in, inputs, in_count);
            look_paged(&ids, &ends, &past, &blocks, &logits);
            free(ends.data);
            free(past.data);
            free(blocks.data);
        }
    }
    free(logits.data);
    free(ids.data);
}

static ort_status *run(ort_session *session, const ort_run_options *options, const char *const *in,
                       const ort_value *const *inputs, size_t in_count, const char *const *out, size_t out_count,
                       ort_value **outputs)
{
    ort_status *status = run_real(session, options, in, inputs, in_count, out, out_count, outputs);
    pthread_mutex_lock(&lock);
    if (!status && wanted)
        look(in, inputs, in_count, out, (const ort_value *const *)outputs, out_count);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- the calls --------------------------------------------------------------------------------------------------- */

const char *llm_logits_watch(const void *inside)
{
    Dl_info plugin;
    const ort_base *(*get_base)(void) = NULL;
    void *handle = dladdr(inside, &plugin) ? dlopen(plugin.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (handle)
        *(void **)&get_base = dlsym(handle, "OrtGetApiBase");
    real = get_base ? get_base()->GetApi(ORT_API_WANTED) : NULL;
    if (!real)
        return "the plug-in shows no table of ONNX Runtime's functions";
    void *runtime = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    if (runtime) {
        *(void **)&copy_any = dlsym(runtime, "cudaMemcpy");
        *(void **)&settle = dlsym(runtime, "cudaDeviceSynchronize");
        if (!copy_any || !settle)
            return "CUDA's runtime has no cudaMemcpy or no cudaDeviceSynchronize";
    }
    run_real = real->Run;
    ((ort_api *)real)->Run = run; /* the plug-in's own copy */
    return NULL;
}

void llm_logits_begin(const llm_wanted *it)
{
    pthread_mutex_lock(&lock);
    wanted = it;
    seen = (llm_seen){0};
    for (int i = 0; i < MOST_SEQUENCES; i++)
        sequence_of[i] = first_block[i] = -1;
    pthread_mutex_unlock(&lock);
}

llm_seen llm_logits_end(void)
{
    pthread_mutex_lock(&lock);
    wanted = NULL;
    llm_seen it = seen;
    pthread_mutex_unlock(&lock);
    return it;
}
