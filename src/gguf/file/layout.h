/* layout.h: what llama.cpp lays out for a model, worked out of its GGUF file alone: weights by tensor, the cache by
 * layer, the buffer of the outputs, and an estimate of what computing takes. No library is needed.
 *
 * The rules are those of the llama.cpp that scripts/pins.json names: which layers have keys and values, how many cells,
 * which have a recurrent state instead. tests/gguf/layout_dry.c holds them against its own dry run. */
#ifndef WG_LAYOUT_H
#define WG_LAYOUT_H

#include "gguf/file/file.h"

enum { WG_MOST_LAYERS = 512 };

/* What a layer has to remember. */
enum wg_memory {
    WG_CELLS = 1, /* keys and values of every token */
    WG_STATE = 2  /* one state for each sequence */
};

typedef struct wg_layer {
    uint32_t heads, heads_kv, wide, wide_expert, experts_used;
    uint8_t memory;   /* a sum of enum wg_memory */
    bool windowed;    /* sees the last `window` tokens alone */
    uint64_t weights; /* bytes of its tensors */
} wg_layer;

/* A model's hyper-parameters, as far as memory depends on them. */
typedef struct wg_hyper {
    char architecture[64];
    bool known;              /* the rules of hyper.c and layout.c hold for its cache */
    bool remembers;          /* the model has a cache */
    uint32_t layers, own;    /* in the file, and of these without those that predict further tokens */
    uint32_t trained, width; /* context_length, embedding_length */
    uint32_t width_out;
    uint32_t vocabulary;
    uint32_t key, value, key_windowed, value_windowed; /* of a head */
    bool latent;                                       /* keys stand for values, too: multi-head latent attention */
    uint32_t window;                                   /* 0: none */
    uint64_t state_r, state_s;                         /* numbers of a recurrent state, of 4 bytes */
    uint64_t inner;                                    /* width at which recurrent layers compute; 0: the model's */
    uint64_t first, last, tied; /* bytes of tensors: before the layers, behind the layers, and used in both places */
    bool ungated;               /* the feed-forward part has one wide half and no gate; told by the tensors */
    wg_layer layer[WG_MOST_LAYERS];
} wg_hyper;

/* WEIR_ERR_CORRUPT for a file without what every model has, naming the key. */
weir_status wi_gguf_hyper_read(const wg_file *file, wg_hyper *out);

/* How it is to be loaded. */
typedef struct wg_asked {
    uint32_t context;        /* tokens of a sequence */
    uint32_t sequences;      /* that go on together */
    bool shared;             /* all sequences are in the same cells: of a model that embeds */
    uint32_t batch;          /* tokens in one batch */
    uint32_t outputs;        /* rows of results at a time */
    uint32_t type_k, type_v; /* of the cache, as GGUF numbers types */
    bool flash;              /* flash attention */
    bool whole_windows;      /* layers with a window have cells for all tokens all the same */
    bool embeds;
    uint32_t device_layers; /* on a device, the output layer counted: 0 none, UINT32_MAX all */
} wg_asked;

typedef struct wg_bytes {
    uint64_t weights, cache, compute, outputs;
    uint64_t
        fixed; /* of the cache, what is there from the start: windows of fewer cells than the context, and states */
} wg_bytes;

typedef struct wg_layout {
    wg_bytes device, host;
    uint32_t layers, device_layers; /* the output layer counted */
} wg_layout;

void wi_gguf_layout_make(const wg_hyper *hyper, const wg_asked *asked, wg_layout *out);

/* The number of a type of cache by its name ("q8_0"; "" is f16); false: it is none. */
bool wi_gguf_cache_type(const char *name, uint32_t *type);

#endif
