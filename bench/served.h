/* served.h: a model of the engine onnx, gguf or llm with a question for it, and whether its answers stay the same. */
#ifndef WEIR_BENCH_SERVED_H
#define WEIR_BENCH_SERVED_H

#include <weir/engine.h>
#include <weir/stats.h>
#include <weir/weir.h>

enum { SERVED_INPUTS = 8, SERVED_SETTINGS = 8 };

/* `first` and `rest`: open extents of an ONNX model's inputs, or the tokens of a prompt and those to be made. */
typedef struct served {
    char path[512];
    const char *name, *context; /* the latter of a model that generates */
    const char *threads;        /* on the host; "": as the engine takes them */
    int64_t first, rest;
    bool generates, folder; /* the latter: it is the engine llm's */
    bool any_answer;        /* where kernels compute nothing */
    const weir_engine *engine;
    weir_client *client;
    weir_engine_model *model; /* NULL: not loaded */
    weir_tensor inputs[SERVED_INPUTS];
    size_t input_count;
    char *answer; /* the first one: all outputs, one behind the other */
    size_t answer_bytes;
    uint64_t runs, different, refused;
} served;

/* Ends the program with weir's words unless `status` is WEIR_OK; as skipped (77) where an engine or its library is not here. */
void must(weir_status status, const char *what);
#define WEIR(call) must((call), #call)
/* Ends it with these words unless `good`. */
_Noreturn void give_up(const char *what);
static inline void check(bool good, const char *what)
{
    if (!good)
        give_up(what);
}

/* Of FILE:FIRSTxREST, or FILE:PROMPT+TOKENS, whose file may be a folder. */
void served_read(served *it, const char *word);
/* Into a client of its own. An answer from before stays the one that others are compared with. A refusal is answered. */
weir_status served_load(served *it, weir_runtime *runtime);
void served_unload(served *it);
/* One run, counted, as is an answer that is not the first one; a refusal is counted and answered. */
weir_status served_run(served *it);
weir_client_stats served_account(const served *it);
void served_forget(served *it);

#endif
