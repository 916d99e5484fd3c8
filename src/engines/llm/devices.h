/* devices.h: GenAI's library for CUDA, and its memory. */
#ifndef WL_DEVICES_H
#define WL_DEVICES_H

#include "interpose/cuda_redirect.h"

/* Whether what ONNX Runtime and GenAI need of CUDA can be opened; if not, `missing` says what is missing. */
weir_status wl_devices_needs(char *missing, size_t capacity);
/* Opens the library that lies beside GenAI's, the first time, and has its memory come from models' clients until as many
 * closes. WEIR_ERR_UNSUPPORTED for another device than the first; WEIR_ERR_BUSY where models are in another runtime. */
weir_status wl_devices_open(const char *genai, weir_client *client);
void wl_devices_close(void);
/* While there are models on CUDA; NULL: none. */
wi_cuda_redirect *wl_devices_redirect(void);

#endif
