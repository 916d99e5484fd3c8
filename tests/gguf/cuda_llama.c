/* See cuda_llama.h. */
#include "cuda_llama.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char *cuda_llama_open(cuda_llama *it, const char *folder)
{
    char path[600];
    snprintf(path, sizeof path, "%s/libllama.so", folder);
    it->llama = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!it->llama)
        return dlerror();
#define X(name)                                                                                                        \
    *(void **)&it->name = dlsym(it->llama, #name);                                                                     \
    if (!it->name)                                                                                                     \
        return "llama.cpp has no " #name;
    CUDA_LLAMA(X)
#undef X
    it->llama_backend_init();
    return NULL;
}

const char *cuda_llama_open_module(cuda_llama *it, const char *folder)
{
    snprintf(it->path, sizeof it->path, "%s/libggml-cuda.so", folder);
    it->module = dlopen(it->path, RTLD_NOW | RTLD_LOCAL);
    return it->module ? NULL : dlerror();
}

/* What the next buffer is for: llama.cpp asks for the size of each tensor that goes into it, and then for the buffer. The
 * tensors of a KV cache have its name; views of them, in graphs, are not asked for. */
static struct ggml_backend_buffer_type_i own;
static _Thread_local struct {
    wi_cuda_redirect *redirect;
    wi_cuda_scope scope;
    bool kv, allocating;
} now;

static size_t learn_size(ggml_backend_buffer_type_t type, const struct ggml_tensor *tensor)
{
    now.kv = !tensor->view_src && strncmp(tensor->name, "cache_", 6) == 0;
    return own.get_alloc_size(type, tensor);
}

static ggml_backend_buffer_t allocate_as(ggml_backend_buffer_type_t type, size_t size)
{
    wi_cuda_scope scope = {.memory_class = WEIR_CLASS_KV, .tag = "kv"};
    bool kv = now.redirect && now.kv && now.scope.memory_class != WEIR_CLASS_WEIGHTS &&
              wi_cuda_scope_enter(now.redirect, &scope) == WEIR_OK;
    now.allocating = true;
    ggml_backend_buffer_t buffer = own.alloc_buffer(type, size);
    now.allocating = false;
    if (kv)
        wi_cuda_scope_leave(&scope);
    return buffer;
}

const char *cuda_llama_register(cuda_llama *it)
{
    ggml_backend_reg_t (*reg)(void);
    *(void **)&reg = dlsym(it->module, "ggml_backend_cuda_reg");
    if (!reg)
        return dlerror();
    it->ggml_backend_register(reg());
    if (it->ggml_backend_reg_dev_count(reg()) == 0)
        return "the module finds no device";
    it->device = it->ggml_backend_reg_dev_get(reg(), 0);
    ggml_backend_buffer_type_t type = it->ggml_backend_dev_buffer_type(it->device);
    own = type->iface;
    type->iface.get_alloc_size = learn_size;
    type->iface.alloc_buffer = allocate_as;
    return NULL;
}

bool cuda_llama_for_kv(void)
{
    return now.allocating && now.kv;
}

void cuda_llama_is_for(cuda_llama *it, wi_cuda_redirect *redirect, weir_class memory_class)
{
    (void)it;
    if (now.redirect)
        wi_cuda_scope_leave(&now.scope);
    now.redirect = NULL;
    now.scope = (wi_cuda_scope){.memory_class = memory_class};
    if (redirect && wi_cuda_scope_enter(redirect, &now.scope) == WEIR_OK)
        now.redirect = redirect;
}
