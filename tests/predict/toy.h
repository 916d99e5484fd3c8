/* toy.h: an engine that takes what it is told to: 64 KiB of weights, 64 bytes of cache for each token of the setting
 * "context" (1024), and in a run activations. Of the setting "gpu_layers" as of gguf's, ten in all, when it is on a
 * device. */
#ifndef PREDICT_TOY_H
#define PREDICT_TOY_H

#include <weir/engine.h>

enum { TOY_WEIGHTS = 64 << 10, TOY_CELL = 64, TOY_LAYERS = 10, TOY_FORESEEN = 4096, TOY_RUN = 32 << 10 };

typedef struct toy_state {
    unsigned plans, quick_plans;
    weir_status plan; /* what planning answers */
    size_t run;       /* bytes of activations that a run takes */
    bool refuse;      /* and then fails */
    bool exact;       /* it is certain of weights and cache */
    const char *version;
} toy_state;

extern toy_state toy;

/* Registers it under the name, for files that end in .toy; once in a process. */
void toy_register(const char *name);

#endif
