/* A program that has another ONNX Runtime's providers in its global scope: the symbol by which a provider finds the ONNX Runtime
 * it belongs to is that other one's. Here it is this program's own. */
#include "common.h"
#include <weir/engine.h>

__attribute__((visibility("default"))) void *Provider_GetHost(void);
void *Provider_GetHost(void)
{
    abort(); /* what a provider would be bound to */
}

static weir_status load_by(loaded *l, const char *provider)
{
    weir_engine_place place = {l->runtime, l->client};
    weir_engine_load load = {.struct_size = sizeof load,
                             .path = model_path("mlp"),
                             .places = &place,
                             .place_count = 1,
                             .provider = provider};
    return l->engine->load(&load, &l->model);
}

static bool is_here(onnx_provider index)
{
    weir_engine_provider found = WEIR_INIT(weir_engine_provider);
    assert_ok(weir_engine_entry(WEIR_ENGINE_ABI)->provider(index, &found));
    return found.state == WEIR_PROVIDER_HERE;
}

static void cuda_would_be_the_others(void **state)
{
    (void)state;
    if (!is_here(ONNX_CUDA))
        skip_without("ONNX Runtime's build for CUDA");
    setenv("WEIR_TEST_DEVICE", "cuda:0", 1);
    loaded l = open_client(0);
    unsetenv("WEIR_TEST_DEVICE");
    assert_status(load_by(&l, "cuda"), WEIR_ERR_CONFLICT);
    assert_detail("the process has");
    assert_int_equal(live(&l), 0);
    close_client(&l);
}

static void openvino_has_a_symbol_of_its_own(void **state)
{
    (void)state;
    if (SANITIZED)
        skip();
    if (!is_here(ONNX_OPENVINO))
        skip_without("ONNX Runtime's build for OpenVINO");
    loaded l = open_client(0);
    assert_ok(load_by(&l, "openvino"));
    unload_model(&l);
    assert_ok(load_by(&l, "cpu"));
    unload_model(&l);
    close_client(&l);
}

int main(void)
{
    int status = need_onnxruntime();
    if (status)
        return status;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuda_would_be_the_others),
        cmocka_unit_test(openvino_has_a_symbol_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
