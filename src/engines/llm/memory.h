/* memory.h: what ONNX Runtime GenAI and its sessions ask ONNX Runtime for, out of the client of the model that the
 * calling thread is at work for. */
#ifndef WL_MEMORY_H
#define WL_MEMORY_H

#include <weir/onnxruntime.h>
#include <weir/weir.h>

#include "interpose/cuda_redirect.h"
#include "onnx/bridge/api.h"

/* Whose memory it is. */
typedef struct wl_account wl_account;

/* What the calling thread does. */
typedef enum wl_stage {
    WL_LOADING, /* sessions that are made get the account's bridge */
    WL_RUNNING
} wl_stage;

typedef struct wl_phase {
    wl_account *account;
    wl_stage stage;
    uint64_t refused_before; /* by the bridge */
    wi_cuda_scope scope;     /* of a model on CUDA */
    weir_client *client;     /* the scope's */
    bool scoped;
    weir_status refusal; /* of a request of this thread's */
    char detail[1024];
    struct wl_phase *outer;
} wl_phase;

/* An account of the client's: on `host`, or on cuda:0 with what is on the host charged in the host's ledger. */
weir_status wl_account_make(const ort_api *api, ort_env *env, uint32_t version, weir_client *client, wl_account **out);
/* Gives it back; what GenAI still holds of it stays until it is freed, and is logged. NULL is nothing. */
void wl_account_drop(wl_account *account);
weir_client *wl_account_client(const wl_account *account);
/* Made with the first call, of what is known then; NULL: weir_detail says why. */
weir_onnxruntime *wl_account_bridge(wl_account *account);
/* Waits for what GenAI has put on the device, before what that uses is freed. On the host: nothing. */
void wl_account_settle(const wl_account *account);

void wl_phase_begin(wl_phase *phase, wl_stage stage, wl_account *account);
void wl_phase_end(wl_phase *phase);
/* The status of the refusal, where what has failed in the phase is one; its words are `text` then. WEIR_OK: it is none. */
weir_status wl_phase_refused(const wl_phase *phase, char *text, size_t capacity);

/* The table that GenAI gets for ONNX Runtime's. Before GenAI is opened. */
weir_status wl_table_make(const ort_base *base, void *handle);

#endif
