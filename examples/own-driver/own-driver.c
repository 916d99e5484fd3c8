/* own-driver.c: a runtime over a driver of the program's own (toy.c): memory that is freed while the device works on
 * it is reused when it has done. */
#include "toy.h"

#include <weir/weir.h>

#include <stdio.h>

static int give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, weir_detail());
    return 1;
}

int main(void)
{
    weir_runtime_options options = WEIR_INIT(weir_runtime_options);
    options.budget = 8u << 20;
    weir_client_options who = WEIR_INIT(weir_client_options);
    who.name = "mine";
    weir_runtime *runtime;
    weir_client *client;
    weir_stream one, other;
    if (toy_register() != WEIR_OK || weir_runtime_create("toy:1", &options, &runtime) != WEIR_OK ||
        weir_client_create(runtime, &who, &client) != WEIR_OK || weir_stream_acquire(runtime, &one) != WEIR_OK ||
        weir_stream_acquire(runtime, &other) != WEIR_OK)
        return give_up("start");
    weir_runtime_details its = WEIR_INIT(weir_runtime_details);
    if (weir_runtime_info(runtime, &its) != WEIR_OK)
        return give_up("look");
    printf("%s has %s\n", its.device, its.resource);

    /* 6 MiB twice do not fit into 8: the second block waits until the work on the first is done. */
    void *first, *second;
    unsigned char got[2] = {0, 0};
    if (weir_alloc(client, 6u << 20, one, WEIR_CLASS_ACTIVATIONS, &first) != WEIR_OK ||
        weir_fill(runtime, first, 7, 6u << 20, one) != WEIR_OK ||
        weir_copy(runtime, &got[0], first, 1, one) != WEIR_OK || weir_free(client, first, one) != WEIR_OK)
        return give_up("the first block");
    if (weir_alloc(client, 6u << 20, other, WEIR_CLASS_ACTIVATIONS, &second) != WEIR_OK ||
        weir_fill(runtime, second, 9, 6u << 20, other) != WEIR_OK ||
        weir_copy(runtime, &got[1], second, 1, other) != WEIR_OK || weir_free(client, second, other) != WEIR_OK)
        return give_up("the second block");
    if (weir_stream_release(one) != WEIR_OK || weir_stream_release(other) != WEIR_OK)
        return give_up("streams");
    printf("the work saw %d and %d\n", got[0], got[1]);
    if (weir_client_destroy(client) != WEIR_OK || weir_runtime_destroy(runtime) != WEIR_OK)
        return give_up("end");
    return got[0] == 7 && got[1] == 9 ? 0 : 1;
}
