/* What llama.cpp's commands load by GGML_BACKEND_PATH: the entry of a module of llama.cpp's, over its CUDA library, which was
 * built to be linked and has the name of its registry alone. WEIR_LLAMA_CUDA_LIBRARY is the path of that library. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

__attribute__((visibility("default"))) void *ggml_backend_init(void);
void *ggml_backend_init(void)
{
    const char *path = getenv("WEIR_LLAMA_CUDA_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library ? dlsym(library, "ggml_backend_cuda_reg") : NULL;
    void *(*registry)(void);
    memcpy(&registry, &symbol, sizeof symbol);
    return symbol ? registry() : NULL;
}
