/* devices_rig.h: what tests of the gguf engine's devices share. llama.cpp's library for CUDA, its devices, the redirect of its
 * memory and the elastic cache are made up: the engine's own devices.c and buffers.c call them. */
#ifndef TESTS_GGUF_DEVICES_RIG_H
#define TESTS_GGUF_DEVICES_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <weir/stats.h>
#include <weir/weir.h>

#include "gguf/engine/wg.h"

/* Runtimes on the host, of which the test says what device they are; each has a client. */
enum { RUNTIMES = 19, ON_0 = 0, ON_1 = 1, AGAIN_ON_0 = 17, ON_HOST = 18 };
extern weir_client *clients[RUNTIMES];

extern struct devices_rig {
    char names[RUNTIMES][16]; /* of the runtimes' devices */
    int said;                 /* errors in the log */
    char said_last[512];
    char home[64], file[96]; /* the folder of the library, and the library */
    size_t device_count;
    ggml_backend_buffer_t made; /* what the original functions answer; NULL: nothing */
    bool refuses;               /* the original functions find no memory */
    int allocated;              /* calls of these */
    wi_cuda_scope during;       /* the innermost scope, as it was in the last of the calls */
    wi_cuda_scope *entered;
    int opens; /* of the library */
    bool cannot_be_opened;
    const char *lacks;     /* a library of CUDA's */
    const char *throws;    /* llama.cpp, when it begins with CUDA */
    weir_status mark;      /* what the check of the library's commit answers */
    bool elastic;          /* a cache is wanted */
    weir_status on_device; /* what the cache on a device answers */
    const weir_client *cache_of;
    wi_cuda_source its_source;
    int caches_made;
    ggml_backend_buffer_t cache_made;
} rig;

extern struct ggml_backend_device_t {
    struct ggml_backend_buffer_type type, of_host;
} devices[3];
extern struct ggml_backend_buffer_type cpu;
extern struct ggml_backend_buffer from_host; /* the last one over a pointer */
extern const wg_library library;

/* The redirect. */
extern struct redirects {
    int begun, added, ended, settled;
    bool cannot_begin, cannot_end, does_not_settle;
    weir_client *clients[WI_CUDA_DEVICES]; /* its own */
    uint64_t overrun[RUNTIMES];            /* of the models' */
    int asked;                             /* for these */
} its;

weir_status __real_wg_cache_on_device(weir_engine_model *model, weir_client *client, size_t bytes,
                                      const wi_cuda_source **out);
void __real_wg_cache_made(const wi_cuda_source *source, ggml_backend_buffer_t buffer);

void says(const char *words); /* the thread's detail text */
weir_client_stats account_of(weir_client *client);
size_t clients_on(int which);
wg_devices places_of(const int *which, size_t count);
#define PLACES(...) places_of((const int[]){__VA_ARGS__}, sizeof(int[]){__VA_ARGS__} / sizeof(int))
void nothing_is_left(const wg_devices *of);

int devices_begin(void **state);
int devices_finish(void **state);

#endif
