/* load_onnx.c: ONNX Runtime by itself loads a model, with its own defaults or with the level and the threads of weir's session; on a
 * device with its provider for CUDA and that one's arena. */
#include <stdlib.h>

#include <weir/engine.h>

#include "load_speed.h"
#include "plain.h"

enum { LEVEL = 2, ALL = 99 };

static onnx_settings settings = {.prepack = true, .memory_pattern = true};
static bool defaults; /* of a session for the processor */

static void *open_onnx(const load_options *options)
{
    const onnx_library *library = NULL;
    settings.provider = options->cuda ? ONNX_CUDA : ONNX_CPU;
    settings.optimization = options->threads ? LEVEL : ALL;
    settings.threads = options->threads;
    defaults = !options->cuda && options->threads == 0;
    if (onnx_library_get(settings.provider, &library) != WEIR_OK)
        abort();
    return (void *)(uintptr_t)library;
}

static void *load_onnx(void *engine, const char *path)
{
    plain *it = malloc(sizeof *it);
    if (!it)
        abort();
    *it = plain_open(engine, path, defaults ? NULL : &settings);
    return it;
}

static void unload_onnx(void *engine, void *model)
{
    (void)engine;
    plain_close(model);
    free(model);
}

const load_plain_side load_plain_onnx = {"onnx", open_onnx, load_onnx, unload_onnx};
