#include "resources/contract_device.h"

#include "driver/device.h"

contract_place place;

#ifdef CONTRACT_SIMULATED
#include "sim/device/device.h"

static atomic_uint wrong;

static void note_wrong(void *user, const char *what)
{
    (void)user;
    fprintf(stderr, "sim: %s\n", what);
    atomic_fetch_add(&wrong, 1);
}

int choose_place(int argc, char **argv)
{
    static const wi_sim_watcher watcher = {.wrong = note_wrong};
    place = (contract_place){.device = "sim", .stack = argc > 1 ? argv[1] : "mapped", .simulated = true};
    wi_sim_configure(&(wi_sim_options){.seed = 1, .watcher = &watcher});
    return 0;
}

bool something_is_left(void)
{
    return atomic_load(&wrong) > 0;
}

bool spin_on_gpu(void *stream, uint64_t nanoseconds)
{
    (void)stream;
    (void)nanoseconds;
    return false;
}
#else
#include "own-driver/toy.h"

int choose_place(int argc, char **argv)
{
    bool toy = argc > 1 && strcmp(argv[1], "toy") == 0;
    if (toy && toy_register() != WEIR_OK)
        return 1;
    int answer = toy ? 0 : choose_device(argc, argv);
    place.stack = argc > 2 ? argv[2] : "mapped";
    place.device = toy ? "toy:1" : device_name();
    place.gpu = device_kind_now == ON_CUDA;
    return answer;
}

bool something_is_left(void)
{
    static const char *const kinds[] = {"handles", "mappings", "reservations", "contexts", "streams", "events", "used"};
    bool left = false;
    for (size_t i = 0; device_kind_now == ON_STUB && i < sizeof kinds / sizeof kinds[0]; i++) {
        uint64_t count = control.stub_count(kinds[i]);
        if (count != 0)
            fprintf(stderr, "%s: %llu are left\n", kinds[i], (unsigned long long)count);
        left |= count != 0;
    }
    return left;
}

/* One thread that waits until the clock is so much further. */
static const char spin_text[] = "\
.version 7.0\n\
.target sm_75\n\
.address_size 64\n\
.visible .entry spin(.param .u64 nanoseconds)\n\
{\n\
    .reg .pred %p<2>;\n\
    .reg .b64 %d<4>;\n\
    ld.param.u64 %d1, [nanoseconds];\n\
    mov.u64 %d2, %globaltimer;\n\
    add.u64 %d1, %d1, %d2;\n\
again:\n\
    mov.u64 %d3, %globaltimer;\n\
    setp.lt.u64 %p1, %d3, %d1;\n\
    @%p1 bra again;\n\
    ret;\n\
}\n";

static struct {
    int (*cuDevicePrimaryCtxRetain)(void **context, int device);
    int (*cuCtxPushCurrent_v2)(void *context);
    int (*cuCtxPopCurrent_v2)(void **context);
    int (*cuModuleLoadData)(void **module, const void *image);
    int (*cuModuleGetFunction)(void **function, void *module, const char *name);
    int (*cuLaunchKernel)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                          void **extra);
} cuda;

static bool find_functions(void)
{
    void *symbol;
    bool all = true;
#define FIND(name)                                                                                                     \
    symbol = cuda_symbol(#name);                                                                                       \
    all = all && symbol;                                                                                               \
    memcpy(&cuda.name, &symbol, sizeof symbol)
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxPushCurrent_v2);
    FIND(cuCtxPopCurrent_v2);
    FIND(cuModuleLoadData);
    FIND(cuModuleGetFunction);
    FIND(cuLaunchKernel);
#undef FIND
    return all;
}

/* The kernel and its context are kept until the process ends. */
bool spin_on_gpu(void *stream, uint64_t nanoseconds)
{
    static void *context, *module, *function;
    void *parameters[] = {&nanoseconds};
    if (!find_functions() || (!context && cuda.cuDevicePrimaryCtxRetain(&context, 0) != 0) ||
        cuda.cuCtxPushCurrent_v2(context) != 0) {
        fprintf(stderr, "the device's context cannot be used\n");
        return false;
    }
    int code = module ? 0 : cuda.cuModuleLoadData(&module, spin_text);
    if (code == 0 && !function)
        code = cuda.cuModuleGetFunction(&function, module, "spin");
    if (code == 0)
        code = cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL);
    (void)cuda.cuCtxPopCurrent_v2(&context);
    if (code != 0)
        fprintf(stderr, "the kernel cannot be started: CUDA error %d\n", code);
    return code == 0;
}
#endif
