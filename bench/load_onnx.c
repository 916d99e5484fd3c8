/* load_onnx.c: ONNX Runtime by itself loads a model, with its own defaults or with the level and the threads of weir's session. */
#include <stdlib.h>

#include <weir/engine.h>

#include "load_speed.h"
#include "plain.h"

enum { LEVEL = 2 };

static onnx_settings alike = {.provider = ONNX_CPU, .prepack = true, .memory_pattern = true, .optimization = LEVEL};

static void *open_onnx(const char *path, int mmap, int context, int threads)
{
    const onnx_library *library = NULL;
    (void)path, (void)mmap, (void)context;
    alike.threads = threads;
    if (onnx_library_get(ONNX_CPU, &library) != WEIR_OK)
        abort();
    return (void *)(uintptr_t)library;
}

static void *load_onnx(void *engine, const char *path)
{
    plain *it = malloc(sizeof *it);
    if (!it)
        abort();
    *it = plain_open(engine, path, alike.threads ? &alike : NULL);
    return it;
}

static void unload_onnx(void *engine, void *model)
{
    (void)engine;
    plain_close(model);
    free(model);
}

const load_plain_side load_plain_onnx = {"onnx", open_onnx, load_onnx, unload_onnx};
