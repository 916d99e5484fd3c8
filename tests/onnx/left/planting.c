/* Leaves a thousand bytes each time that a client is closed, or that it is asked to, by way of another library. */
#include <dlfcn.h>
#include <stddef.h>

#include <weir/client.h>

void *planted(size_t size);
void *planting(size_t size);

void *planting(size_t size)
{
    void *volatile p = planted(size); /* as in planted.c */
    return p;
}

weir_status weir_client_destroy(weir_client *client)
{
    weir_status (*close)(weir_client *) = NULL;
    *(void **)&close = dlsym(RTLD_NEXT, "weir_client_destroy");
    planting(1000);
    return close(client);
}
