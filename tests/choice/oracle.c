#include "choice/oracle.h"
#include "base/values.h"
#include <weir/engine.h>
#include <weir/manifest.h>
#include <weir/select.h>

#include <strings.h>

/* All that may be wrong with a candidate, what matters most first. */
typedef enum wrong {
    OTHER_ENGINE,
    OTHER_FILE,
    NO_PLUGIN,
    OTHER_PROVIDER,
    UNLISTED_PROVIDER,
    CPU_UNLISTED,
    CPU_FORBIDDEN,
    OTHER_SYSTEM,
    DEVICE_MISSING,
    OTHER_DEVICE,
    LIBRARY_LACKS,
    LIBRARY_FAILS,
    LIBRARY_MISSING,
    UNUSABLE,
    OLD_CUDA,
    OLD_DRIVER,
    OLD_CARD,
    SETTING,
    UNREADABLE,
    OVER_MAXIMUM_HOST,
    OVER_MAXIMUM,
    HOST_FULL,
    DEVICE_FULL,
    WRONGS
} wrong;

static const weir_verdict verdicts[WRONGS] = {
    WEIR_VERDICT_NOT_ASKED,   WEIR_VERDICT_OTHER_FORMAT,    WEIR_VERDICT_NO_ENGINE,    WEIR_VERDICT_NOT_ASKED,
    WEIR_VERDICT_NOT_LISTED,  WEIR_VERDICT_NO_CPU,          WEIR_VERDICT_NO_CPU,       WEIR_VERDICT_OTHER_PLATFORM,
    WEIR_VERDICT_NO_DEVICE,   WEIR_VERDICT_NOT_ASKED,       WEIR_VERDICT_NOT_BUILT,    WEIR_VERDICT_NOT_LOADABLE,
    WEIR_VERDICT_NO_ENGINE,   WEIR_VERDICT_DEVICE_UNUSABLE, WEIR_VERDICT_OLD_CUDA,     WEIR_VERDICT_OLD_DRIVER,
    WEIR_VERDICT_OLD_DEVICE,  WEIR_VERDICT_BAD_SETTING,     WEIR_VERDICT_OTHER_FORMAT, WEIR_VERDICT_LITTLE_MEMORY,
    WEIR_VERDICT_LITTLE_VRAM, WEIR_VERDICT_LITTLE_MEMORY,   WEIR_VERDICT_LITTLE_VRAM,
};

typedef struct view {
    const weir_manifest *m;
    const weir_requirements *r;
    const weir_choice_options *o;
    const char *format;
    uint64_t file_bytes;
    const char *sequence[32]; /* providers in the order in which they are tried */
    size_t length;
    bool by_order, cpu_is_named, cpu_comes_last;
} view;

static const char *text_or_none(const char *text)
{
    return text && *text ? text : NULL;
}

static bool same(const char *a, const char *b)
{
    return strcasecmp(a, b) == 0 || (strcasecmp(a, "metal") == 0 && strcasecmp(b, "coreml") == 0);
}

static size_t index_of(const char *provider)
{
    size_t i = 0;
    while (strcmp(provider_names[i], provider) != 0)
        i++;
    return i;
}

/* Sequence of providers -------------------------------------------------------------------------------------------- */

static bool in_sequence(const view *v, const char *provider)
{
    for (size_t i = 0; i < v->length; i++)
        if (same(v->sequence[i], provider))
            return true;
    return false;
}

static void append(view *v, const char *word)
{
    for (size_t i = 0; i < KINDS_OF_PROVIDERS; i++)
        if (same(word, provider_names[i]) && !in_sequence(v, provider_names[i]))
            v->sequence[v->length++] = provider_names[i];
}

static void append_words(view *v, const char *words)
{
    char copy[256];
    snprintf(copy, sizeof copy, "%s", words);
    char *rest = copy;
    for (char *word; (word = strsep(&rest, " ,"));)
        append(v, word);
}

static bool manifest_names(const view *v, bool accelerators)
{
    for (size_t i = 0; i <= v->r->fallback_count; i++) {
        const char *name = i == v->r->fallback_count ? v->r->preferred_provider : v->r->fallback_providers[i];
        if (text_or_none(name) && same(name, "cpu") != accelerators)
            return true;
    }
    return false;
}

static void make_sequence(view *v)
{
    const char *policy = text_or_none(v->o->policy), *order = text_or_none(v->o->order);
    bool manifest_only = policy && strcasecmp(policy, "manifest") == 0;
    if (text_or_none(v->o->provider)) {
        append(v, v->o->provider);
        v->cpu_is_named = in_sequence(v, "cpu");
        return;
    }
    v->by_order = !manifest_only && !manifest_names(v, true);
    v->cpu_is_named = manifest_names(v, false);
    if (v->by_order && order) {
        append_words(v, order);
        v->cpu_is_named |= in_sequence(v, "cpu");
        v->cpu_comes_last = !in_sequence(v, "cpu");
    } else if (v->by_order) {
        append_words(v, "cuda rocm coreml directml");
        v->cpu_comes_last = true;
    } else {
        /* Where only the manifest counts, cpu stays where it stands there. */
        const char *first = text_or_none(v->r->preferred_provider);
        if (first && (manifest_only || !same(first, "cpu")))
            append(v, first);
        for (size_t i = 0; i < v->r->fallback_count; i++)
            if (manifest_only || !same(v->r->fallback_providers[i], "cpu"))
                append(v, v->r->fallback_providers[i]);
        v->cpu_comes_last = !in_sequence(v, "cpu");
    }
    append(v, "cpu");
}

/* Devices ---------------------------------------------------------------------------------------------------------- */

static bool runs_on(const char *provider, weir_hardware_kind kind)
{
    switch (kind) {
    case WEIR_HARDWARE_CPU:
        return !strcmp(provider, "cpu") || !strcmp(provider, "openvino");
    case WEIR_HARDWARE_CUDA:
        return !strcmp(provider, "cuda") || !strcmp(provider, "tensorrt");
    case WEIR_HARDWARE_ROCM:
        return !strcmp(provider, "rocm");
    case WEIR_HARDWARE_INTEL:
        return !strcmp(provider, "openvino");
    case WEIR_HARDWARE_METAL:
        return !strcmp(provider, "coreml");
    case WEIR_HARDWARE_DIRECTML:
        return !strcmp(provider, "directml");
    default:
        return false;
    }
}

static bool is_named(const char *text, const weir_hardware_device *d)
{
    char by_kind[80], ordinal[16];
    snprintf(by_kind, sizeof by_kind, "%s:%d", weir_name_of(WEIR_NAMES_HARDWARE, d->kind), d->ordinal);
    snprintf(ordinal, sizeof ordinal, "%d", d->ordinal);
    if (d->kind == WEIR_HARDWARE_CPU)
        return same(text, "cpu") || same(text, "host") || same(text, d->key);
    return same(text, d->key) || (d->ordinal >= 0 && (same(text, by_kind) || same(text, ordinal))) ||
           (d->ordinal == 0 && same(text, weir_name_of(WEIR_NAMES_HARDWARE, d->kind)));
}

static bool has_ordinal(const view *v, const char *provider, int ordinal, bool *any)
{
    bool found = false;
    for (size_t i = 0; i < v->o->hardware->device_count; i++) {
        const weir_hardware_device *d = &v->o->hardware->devices[i];
        if (d->kind == WEIR_HARDWARE_CPU || !runs_on(provider, d->kind))
            continue;
        *any = true;
        found |= d->ordinal == ordinal;
    }
    return found;
}

/* Whether somebody names an ordinal that none of the provider's devices has. */
static bool lacks_a_named_one(const view *v, const char *provider)
{
    bool any = false, lacking = false;
    const char *text = text_or_none(v->o->device);
    if (text) {
        char kind[16] = "";
        int ordinal = 0;
        if (sscanf(text, "%d", &ordinal) == 1)
            return !has_ordinal(v, provider, ordinal, &any) && any;
        snprintf(kind, sizeof kind, "%.*s", (int)strcspn(text, ":"), text);
        for (int k = WEIR_HARDWARE_CUDA; k < WEIR_HARDWARE_COUNT; k++)
            if (same(kind, weir_name_of(WEIR_NAMES_HARDWARE, k)) && runs_on(provider, (weir_hardware_kind)k)) {
                if (strchr(text, ':'))
                    (void)sscanf(strchr(text, ':') + 1, "%d", &ordinal);
                return !has_ordinal(v, provider, ordinal, &any) && any;
            }
        return false;
    }
    for (size_t i = 0; !text_or_none(v->r->strategy) && i < v->r->device_count; i++)
        lacking |= !has_ordinal(v, provider, v->r->device_ids[i], &any);
    return lacking && any;
}

static bool in_ids(const view *v, const weir_hardware_device *d)
{
    bool found = v->r->device_count == 0 || d->kind == WEIR_HARDWARE_CPU;
    for (size_t i = 0; i < v->r->device_count; i++)
        found |= v->r->device_ids[i] == d->ordinal;
    return found;
}

static uint64_t had(const view *v, const weir_hardware_device *d)
{
    uint64_t bytes = d->free, margin = d->free / 10;
    if (margin < 512 * MIB)
        margin = 512 * MIB;
    if (bytes != WEIR_BYTES_UNKNOWN)
        bytes = bytes > margin ? bytes - margin : 0;
    for (size_t i = 0; i < v->o->obtainable_count; i++)
        if (strcmp(v->o->obtainable[i].device, d->key) == 0)
            bytes = v->o->obtainable[i].bytes;
    for (size_t i = 0; d->kind != WEIR_HARDWARE_CPU && d->shares_host && i < v->o->hardware->device_count; i++) {
        const weir_hardware_device *cpu = &v->o->hardware->devices[i];
        if (cpu->kind == WEIR_HARDWARE_CPU && had(v, cpu) < bytes)
            bytes = had(v, cpu);
    }
    return bytes;
}

/* What is wrong ---------------------------------------------------------------------------------------------------- */

static void look_at_engine(const view *v, const char *engine, bool *w)
{
    const char *asked = text_or_none(v->o->engine), *framework = text_or_none(v->m->framework);
    w[OTHER_ENGINE] = (asked && !same(asked, engine)) || (framework && !same(framework, engine));
    const char *theirs = same(engine, "llm") ? "genai" : engine;
    bool takes = same(v->format, theirs) || (same(v->format, "both") && !same(engine, "llm"));
    w[OTHER_FILE] = !asked && !framework && !takes;
    w[NO_PLUGIN] = !double_called(engine);
}

static void look_at_provider(const view *v, const char *engine, const char *provider, bool *w)
{
    bool named = in_sequence(v, provider), one = text_or_none(v->o->provider) != NULL, cpu = same(provider, "cpu");
    w[OTHER_PROVIDER] = one && !named;
    w[UNLISTED_PROVIDER] = !one && !named;
    bool forbidden = v->o->no_cpu || v->r->cpu == WEIR_CPU_FORBIDDEN;
    w[CPU_UNLISTED] = cpu && !forbidden && v->r->cpu == WEIR_CPU_LISTED && !v->cpu_is_named && !one;
    const double_engine *e = double_called(engine);
    if (!e)
        return;
    size_t i = index_of(provider);
    w[LIBRARY_LACKS] = !e->has[i] || e->states[i] == WEIR_PROVIDER_NOT_BUILT;
    w[LIBRARY_FAILS] = e->has[i] && e->states[i] == WEIR_PROVIDER_NOT_LOADABLE;
    w[LIBRARY_MISSING] = e->has[i] && e->states[i] == WEIR_PROVIDER_NO_LIBRARY;
    const char *level = text_or_none(v->r->graph_optimization_level);
    w[SETTING] = (level && !same(engine, "onnx") && !same(level, "all")) || e->plan == WEIR_ERR_INVALID;
    w[UNREADABLE] = e->plan != WEIR_OK && e->plan != WEIR_ERR_INVALID && e->plan != WEIR_ERR_OUT_OF_MEMORY &&
                    e->plan != WEIR_ERR_DRIVER && e->plan != WEIR_ERR_DEVICE_LOST && e->plan != WEIR_ERR_CANCELLED;
}

static bool older(weir_version_number there, weir_version_number wanted)
{
    return wanted.count > 0 && wi_version_compare(there, wanted) < 0;
}

static void look_at_device(const view *v, const char *provider, const weir_hardware_device *d, bool *w)
{
    const char *named = text_or_none(v->o->device);
    bool any = false, cpu = d && d->kind == WEIR_HARDWARE_CPU, cuda = d && d->kind == WEIR_HARDWARE_CUDA;
    for (size_t i = 0; i < v->o->hardware->device_count; i++)
        any |= runs_on(provider, v->o->hardware->devices[i].kind);
    w[CPU_FORBIDDEN] = cpu && (v->o->no_cpu || v->r->cpu == WEIR_CPU_FORBIDDEN);
    w[OTHER_SYSTEM] = !any && (same(provider, "coreml") || same(provider, "directml"));
    w[DEVICE_MISSING] = !d;
    if (!d)
        return;
    w[OTHER_DEVICE] = named ? !is_named(named, d) : !text_or_none(v->r->strategy) && !in_ids(v, d);
    w[UNUSABLE] = !d->usable;
    w[OLD_CUDA] = cuda && older(d->driver_runtime, v->r->min_cuda_version);
    w[OLD_DRIVER] = !cpu && older(d->driver, v->r->min_driver_version);
    w[OLD_CARD] = cuda && older(d->capability, v->r->min_compute_capability);
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static bool predicts(const char *engine)
{
    return double_called(engine)->plan == WEIR_OK;
}

static uint64_t wants(const view *v, const char *engine, const char *provider)
{
    return predicts(engine) ? double_called(engine)->bytes[index_of(provider)] : v->file_bytes;
}

static void look_at_memory(const view *v, const char *engine, const char *provider, const weir_hardware_device *d,
                           bool *w)
{
    if (!d || !double_called(engine))
        return;
    const weir_hardware_device *host = v->o->hardware->devices;
    while (host->kind != WEIR_HARDWARE_CPU) /* every machine has one */
        host++;
    bool cpu = d == host, ours = d->runtime[0] != '\0';
    uint64_t bytes = wants(v, engine, provider), there = had(v, d), at_host = had(v, host);
    uint64_t account_here = ours || cpu ? v->r->guaranteed : 0, account_host = cpu || !ours ? v->r->guaranteed : 0;
    uint64_t of_host = most(v->r->min_memory, cpu ? most(bytes, account_host) : account_host);
    uint64_t of_device = most(v->r->min_vram, most(bytes, account_here));
    bool over = v->r->maximum > 0 && predicts(engine) && bytes > v->r->maximum && (cpu || ours);
    w[OVER_MAXIMUM_HOST] = over && cpu;
    w[OVER_MAXIMUM] = over && !cpu;
    if (at_host == WEIR_BYTES_UNKNOWN)
        w[HOST_FULL] = v->r->min_memory > 0 || (account_host > 0 && of_host == account_host);
    else
        w[HOST_FULL] = of_host > at_host;
    if (cpu)
        return;
    if (there == WEIR_BYTES_UNKNOWN)
        w[DEVICE_FULL] = v->r->min_vram > 0 || account_here > 0;
    else
        w[DEVICE_FULL] = of_device > 0 && of_device + (d->shares_host ? of_host : 0) > there;
}

static weir_verdict verdict_of(const view *v, const char *engine, const char *provider, const weir_hardware_device *d)
{
    bool w[WRONGS] = {0};
    look_at_engine(v, engine, w);
    look_at_provider(v, engine, provider, w);
    look_at_device(v, provider, d, w);
    look_at_memory(v, engine, provider, d, w);
    for (int i = 0; i < WRONGS; i++)
        if (w[i])
            return verdicts[i];
    return WEIR_VERDICT_ACCEPTED;
}

/* Ranks ------------------------------------------------------------------------------------------------------------ */

static size_t step_of(const view *v, const char *provider)
{
    size_t i = 0;
    while (!same(v->sequence[i], provider))
        i++;
    return i;
}

static bool comes_before(const view *v, const expected *a, const weir_hardware_device *x, const expected *b,
                         const weir_hardware_device *y)
{
    const char *policy = text_or_none(v->o->policy);
    bool last_a = v->cpu_comes_last && same(a->provider, "cpu"), last_b = v->cpu_comes_last && same(b->provider, "cpu");
    if (last_a || last_b)
        if (last_a != last_b)
            return last_b;
    if (policy && same(policy, "memory")) {
        bool told_a = predicts(a->engine), told_b = predicts(b->engine);
        if (told_a != told_b)
            return told_a;
        if (told_a && wants(v, a->engine, a->provider) != wants(v, b->engine, b->provider))
            return wants(v, a->engine, a->provider) < wants(v, b->engine, b->provider);
    }
    if (step_of(v, a->provider) != step_of(v, b->provider))
        return step_of(v, a->provider) < step_of(v, b->provider);
    if (strcmp(a->engine, b->engine) != 0)
        return strcmp(a->engine, b->engine) < 0;
    if (text_or_none(v->r->strategy) && v->r->device_count > 0 && in_ids(v, x) != in_ids(v, y))
        return in_ids(v, x);
    uint64_t p = had(v, x), q = had(v, y);
    p = p == WEIR_BYTES_UNKNOWN ? 0 : p;
    q = q == WEIR_BYTES_UNKNOWN ? 0 : q;
    if (p != q)
        return p > q;
    return x->ordinal != y->ordinal ? x->ordinal < y->ordinal : strcmp(x->key, y->key) < 0;
}

static const weir_hardware_device *by_key(const view *v, const char *key)
{
    for (size_t i = 0; i < v->o->hardware->device_count; i++)
        if (strcmp(v->o->hardware->devices[i].key, key) == 0)
            return &v->o->hardware->devices[i];
    return NULL;
}

size_t oracle(const weir_manifest *manifest, const weir_choice_options *options, const char *format,
              uint64_t file_bytes, expected *out)
{
    static const char *const engines[] = {"onnx", "gguf", "llm"};
    view v = {.m = manifest, .r = &manifest->requirements, .o = options, .format = format, .file_bytes = file_bytes};
    size_t count = 0;
    make_sequence(&v);
    for (size_t e = 0; e < 3; e++)
        for (size_t p = 0; p < KINDS_OF_PROVIDERS; p++) {
            const char *engine = engines[e], *provider = provider_names[p];
            size_t before = count;
            for (size_t i = 0; i < options->hardware->device_count; i++) {
                const weir_hardware_device *d = &options->hardware->devices[i];
                if (runs_on(provider, d->kind))
                    out[count++] = (expected){engine, provider, d->key, verdict_of(&v, engine, provider, d), 0};
            }
            if (count == before || lacks_a_named_one(&v, provider))
                out[count++] = (expected){engine, provider, "", verdict_of(&v, engine, provider, NULL), 0};
        }
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            if (out[i].verdict == WEIR_VERDICT_ACCEPTED && out[j].verdict == WEIR_VERDICT_ACCEPTED && i != j)
                out[i].rank += comes_before(&v, &out[j], by_key(&v, out[j].device), &out[i], by_key(&v, out[i].device));
    return count;
}
